// Node: digest-fetch, one client for all steps.

import { load, take, versionOf } from './steps.mjs'

const { default: DigestClient } = await load('digest-fetch')

await take(versionOf('digest-fetch'), async ({ scheme, name, password }) => {
  const client = new DigestClient(name, password, { basic: scheme === 'basic' })
  return async (url, options) => {
    const answer = await client.fetch(url, options)
    return { status: answer.status, text: await answer.text() }
  }
})
