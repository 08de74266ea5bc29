// What the clients in Node have in common: they read what is to be done and say what became of it.
// `tests/it/clients/driver.rs` has the other side.

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import readline from 'node:readline'
import { pathToFileURL } from 'node:url'

// Packages are not beside these files.
const packages = createRequire(`${process.env.CLIENT_PACKAGES}/`)
export const load = async name => import(pathToFileURL(packages.resolve(name)))
export const versionOf = name =>
  JSON.parse(readFileSync(`${process.env.CLIENT_PACKAGES}/node_modules/${name}/package.json`)).version

// `logIn({ base, scheme, name, password })` gives a function of a URL and what `fetch` takes beside it, which
// sends one request and gives back its status and text. `end` is called when all is done.
export async function take(version, logIn, end = async () => {}) {
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const next = async () => (await lines.next()).value
  let send, base
  for (let line = await next(); line !== undefined; line = await next()) {
    if (line === 'VERSION') {
      console.log(typeof version === 'function' ? await version() : version)
    } else if (line === 'LOGIN') {
      base = await next()
      send = await logIn({ base, scheme: await next(), name: await next(), password: await next() })
    } else {
      const [, method, path, body] = /^(\S+) (\S+) (.*)$/.exec(line)
      const options = { method, headers: {} }
      if (body) Object.assign(options, { body, headers: { 'Content-Type': 'application/json' } })
      try {
        const { status, text } = await send(base + path, options)
        console.log(status, text.replaceAll('\n', ' '))
      } catch (error) {
        console.log(0, String(error.cause ?? error).replaceAll('\n', ' '))
      }
    }
  }
  await end()
  process.exit()
}
