// A caller with hidden fields and filtered rows opens every page that links lead to, every form, filter and
// type-ahead: nothing that the browser receives names what is hidden.
//
// `node restricted.mjs BROWSER ORIGIN NAME PASSWORD HIDDEN…`: each HIDDEN is a text that must not appear.

import { requestJson, assert, end, load, open, origin, page } from './browser.mjs'

const hidden = process.argv.slice(6)
const PAGES_MAX = 200

const found = []
const look = (where, text) => {
  for (const word of hidden) if (text.includes(word)) found.push(`${where} has ${word}`)
}

// All that the browser receives, also for the script and for downloads. An event stream has no end to wait for.
const bodies = []
page.on('response', response => {
  const type = response.headers()['content-type'] ?? ''
  if (!/html|json|csv/.test(type)) return
  const read = async () => look(`the response of ${response.url()}`, await response.text())
  // A navigation may discard a body before it is read; the page that it belonged to is looked at below.
  bodies.push(read().catch(() => {}))
})

const seen = new Set()
const queue = ['/', '/-/docs', '/-/changes?sort=-sequence']
const collections = []
while (queue.length > 0 && seen.size < PAGES_MAX) {
  const path = queue.shift()
  if (seen.has(path)) continue
  seen.add(path)
  const response = await load(path)
  if (!/html/.test(response.headers()['content-type'] ?? '')) {
    look(path, await response.text())
    continue
  }
  // Every menu of a page, as if each had been opened.
  await page.evaluate(() => document.querySelectorAll('details').forEach(one => (one.open = true)))
  look(path, await page.content())
  const links = await page.evaluate(() => [...document.querySelectorAll('a[href]')].map(link => link.href))
  for (const link of links.map(link => new URL(link))) {
    // Filters and orders add up without end: of a page with a query, only links to other pages are followed.
    const isCombined = path.includes('?') && link.search
    if (link.origin === origin && !isCombined && !link.pathname.startsWith('/-/logout')) queue.push(link.pathname + link.search)
  }
  if (/^\/\w+$/.test(path) && (await page.$('#new'))) collections.push(path)
}
assert.ok(seen.size > 20 && seen.size < PAGES_MAX, `${seen.size} pages`)
assert.ok(collections.length > 0)

look('the OpenAPI document', JSON.stringify(await requestJson('/-/openapi.json')))

// Type-ahead: nothing, one letter, and the beginning of what is hidden.
for (const path of collections) {
  await open(`${path}#new`)
  for (const control of await page.$$('#new [role=combobox]')) {
    for (const text of ['', 'A', 'H', ...hidden.map(word => word.slice(0, 4))]) {
      await control.click({ count: 3 })
      await page.keyboard.press('Backspace')
      await control.type(text)
      await page.keyboard.press('ArrowDown')
      // The script sends its request a moment after the last key.
      await new Promise(resolve => setTimeout(resolve, 500))
      look(`type-ahead of ${path} with "${text}"`, await page.$eval('#new', form => form.innerHTML.replaceAll(/value="[^"]*"/g, '')))
    }
  }
}
await Promise.all(bodies)
assert.deepEqual(found, [])
await end()
