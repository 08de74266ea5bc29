// Node's own fetch: the header of Basic is made by hand.

import { take } from './steps.mjs'

await take(process.versions.node, async ({ name, password }) => {
  // In docs/reference/clients.md:
  const authorization = `Basic ${Buffer.from(`${name}:${password}`).toString('base64')}`
  // Not in it:
  return async (url, options) => {
    // In docs/reference/clients.md:
    const answer = await fetch(url, { ...options, headers: { ...options.headers, authorization } })
    // Not in it:
    return { status: answer.status, text: await answer.text() }
  }
})
