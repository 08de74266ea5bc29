// Node: digest-fetch, one client for all steps.

import { createRequire } from 'node:module'
import readline from 'node:readline'
import { pathToFileURL } from 'node:url'

// Packages are not beside this file.
const packages = createRequire(`${process.env.CLIENT_PACKAGES}/`)
const { default: DigestClient } = await import(pathToFileURL(packages.resolve('digest-fetch')))

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const next = async () => (await lines.next()).value
const [base, scheme, name, password] = [await next(), await next(), await next(), await next()]
const client = new DigestClient(name, password, { basic: scheme === 'basic' })
for await (const line of lines) {
  const [, method, path, body] = /^(\S+) (\S+) (.*)$/.exec(line)
  const options = { method, headers: {} }
  if (body) Object.assign(options, { body, headers: { 'Content-Type': 'application/json' } })
  try {
    const answer = await client.fetch(base + path, options)
    console.log(answer.status, await answer.text())
  } catch (error) {
    console.log(0, String(error.cause ?? error).replaceAll('\n', ' '))
  }
}
