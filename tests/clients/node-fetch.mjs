// Node's own fetch: the header of Basic is made by hand.

import { take } from './steps.mjs'

await take(process.versions.node, async ({ name, password }) => {
  const authorization = `Basic ${Buffer.from(`${name}:${password}`).toString('base64')}`
  return async (url, options) => {
    const answer = await fetch(url, { ...options, headers: { ...options.headers, authorization } })
    return { status: answer.status, text: await answer.text() }
  }
})
