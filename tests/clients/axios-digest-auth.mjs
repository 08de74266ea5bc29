// Node: @mhoc/axios-digest-auth, one client for all steps.

import { load, take, versionOf } from './steps.mjs'

const { default: axiosDigest } = await load('@mhoc/axios-digest-auth')

await take(versionOf('@mhoc/axios-digest-auth'), async ({ name, password }) => {
  const client = new (axiosDigest.default ?? axiosDigest)({ username: name, password })
  return async (url, { method, headers, body }) => {
    // What is no success is an error to it, with the answer inside.
    const answer = await client.request({ url, method, headers, data: body, proxy: false })
      .catch(error => error.response ?? Promise.reject(error))
    return { status: answer.status, text: JSON.stringify(answer.data) }
  }
})
