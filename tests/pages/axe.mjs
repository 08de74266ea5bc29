// axe-core on every page: a light desktop is the even screen, a dark phone the odd one; `NOUNS_SOAK` adds the other two.
// No page is wider than the window, and no request goes to another host.

import { readFileSync } from 'node:fs'

import { requestJson, assert, end, isInPart, open, origin, packages, page } from './browser.mjs'

const axe = readFileSync(packages.resolve('axe-core/axe.min.js'), 'utf8')

const foreign = new Set()
page.on('request', request => {
  const url = new URL(request.url())
  if (url.origin !== origin && !['data:', 'blob:'].includes(url.protocol)) foreign.add(request.url())
})

await open('/')
const carriers = ['Alfa Freight', 'Beta Post'].map(name => requestJson('/carriers', 'POST', { carrier: { name } }))
const carrier = (await Promise.all(carriers))[0].carrier.id
const customers = Array.from({ length: 12 }, (_, at) => ({
  name: `Customer ${at} with a rather long name`,
  email: `customer.${at}@customers.example`,
  tags: ['wholesale', 'net30'],
  note: 'a long note '.repeat(at * 10),
  extra: { deep: [1, { x: null }] },
  carrier,
}))
const item = `/customers/${(await requestJson('/customers', 'POST', { customers })).customers[0].id}`
const order = `${item}/orders/${(await requestJson(`${item}/orders`, 'POST', { order: {} })).order.id}`
await requestJson(item, 'PUT', { customer: { ...customers[0], name: 'Another name' } })
const webhook = { url: 'https://receiver.example/hook', events: ['customer.*'] }
const hook = `/-/webhooks/${(await requestJson('/-/webhooks', 'POST', { webhook })).webhook.id}`
const user = `/-/users/${(await requestJson('/-/users')).users[0].id}`

const paths = [
  '/', '/customers', '/customers?name:contains=3&sort=-name&limit=5&count=exact', '/customers?name=nobody', '/customers#new',
  item, `${item}#edit`, `${item}?version=1`, `${item}/orders`, order, '/carriers', '/-/changes?sort=-sequence', '/-/users',
  '/-/users#new', user, '/-/webhooks', '/-/webhooks#new', hook, `${hook}/deliveries`, '/-/problems/taken', '/nowhere', '/customers?colour=red', '/-/docs', '/-/docs/customer',
]
const findings = []
const DESKTOP = [1280, 900]
const PHONE = [390, 844]
const screens = [[DESKTOP, 'light'], [PHONE, 'dark'], [PHONE, 'light'], [DESKTOP, 'dark']]
if (!process.env.NOUNS_SOAK) screens.splice(2)
for (const [at, [[width, height], scheme]] of screens.entries()) {
  if (!isInPart(at)) continue
  await page.setViewport({ width, height })
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }])
  for (const path of paths) {
    await open(path)
    const where = `${width} ${scheme} ${path}`
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    if (wider > 0) findings.push(`${where}: ${wider} px wider than the window`)
    await page.evaluate(axe)
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }))
    for (const { impact, id, help, nodes } of violations) findings.push(`${where}: ${impact} ${id}: ${help}: ${nodes[0].html}`)
  }
}
assert.deepEqual(findings, [])
assert.deepEqual([...foreign], [])
await end()
