// Node: urllib, which is a package of npm.

import { load, take, versionOf } from './steps.mjs'

const { request } = await load('urllib')

await take(versionOf('urllib'), async ({ scheme, name, password }) => {
  // In docs/reference/clients.md:
  const login = { [scheme === 'basic' ? 'auth' : 'digestAuth']: `${name}:${password}` }
  // Not in it:
  return async (url, { method, headers, body }) => {
    const options = { method, headers, content: body, dataType: 'text', timeout: 60000 }
    // In docs/reference/clients.md:
    const answer = await request(url, { ...login, ...options })
    // Not in it:
    return { status: answer.status, text: answer.data }
  }
})
