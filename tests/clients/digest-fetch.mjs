// Node: digest-fetch, one client for all steps.

import { load, take, versionOf } from './steps.mjs'

const { default: DigestClient } = await load('digest-fetch')

await take(versionOf('digest-fetch'), async ({ scheme, name, password }) => {
  // In docs/reference/clients.md:
  const client = new DigestClient(name, password, { basic: scheme === 'basic' })
  // Not in it:
  return async (url, options) => {
    // In docs/reference/clients.md:
    const answer = await client.fetch(url, options)
    // Not in it:
    return { status: answer.status, text: await answer.text() }
  }
})
