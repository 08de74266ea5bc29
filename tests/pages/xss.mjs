// Payloads in every text field and in every part of an address: none of them runs. The policy of the pages is in
// force, and the last part shows that it would stop a script that got into a page.

import { requestJson, assert, end, isInPart, load, open, page, shows, until } from './browser.mjs'

const RUN = 'hit()'
const PAYLOADS = [
  `<script>${RUN}</script>`,
  `"><script>${RUN}</script>`,
  `'><script>${RUN}</script>`,
  `</script><script>${RUN}</script>`,
  `</title><script>${RUN}</script>`,
  `</textarea><script>${RUN}</script>`,
  `</style><script>${RUN}</script>`,
  `</option></select><script>${RUN}</script>`,
  `</template><script>${RUN}</script>`,
  `--><script>${RUN}</script><!--`,
  `]]><script>${RUN}</script>`,
  `<ScRiPt>${RUN}</sCrIpT>`,
  `<script/x>${RUN}</script >`,
  `<script src=data:text/javascript,${RUN}></script>`,
  `<img src=x onerror=${RUN}>`,
  `<img src="x" onerror="${RUN}">`,
  `"><img src=x onerror=${RUN}>`,
  `'><img src=x onerror=${RUN}>`,
  `<img/src/onerror=${RUN}>`,
  `<svg onload=${RUN}>`,
  `<svg><script>${RUN}</script></svg>`,
  `<svg><animate onbegin=${RUN} attributeName=x dur=1s>`,
  `<svg/onload=${RUN}//`,
  `<math><mtext></form><form><mglyph><style></math><img src onerror=${RUN}>`,
  `<body onload=${RUN}>`,
  `<iframe srcdoc="<script>parent.${RUN}</script>"></iframe>`,
  `<iframe src="javascript:parent.${RUN}"></iframe>`,
  `<object data="javascript:${RUN}"></object>`,
  `<embed src="javascript:${RUN}">`,
  `<video><source onerror=${RUN}></video>`,
  `<audio src onerror=${RUN}></audio>`,
  `<details open ontoggle=${RUN}>`,
  `<input autofocus onfocus=${RUN}>`,
  `<select autofocus onfocus=${RUN}></select>`,
  `<textarea autofocus onfocus=${RUN}></textarea>`,
  `<marquee onstart=${RUN}></marquee>`,
  `<a href="javascript:${RUN}">x</a>`,
  `javascript:${RUN}`,
  `JaVaScRiPt:${RUN}//http://example.com`,
  `" onmouseover="${RUN}`,
  `' onmouseover='${RUN}`,
  `" autofocus onfocus="${RUN}" x="`,
  '` onmouseover=`hit()`',
  `" style="animation-name:x" onanimationstart="${RUN}`,
  `&lt;script&gt;${RUN}&lt;/script&gt;`,
  `&#60;script&#62;${RUN}&#60;/script&#62;`,
  `\u003cscript\u003e${RUN}\u003c/script\u003e`,
  `\\"><script>${RUN}</script>`,
  '${hit()} {{hit()}} {% hit() %} #{hit()}',
  `\u2028<base href="//attacker.example/"><script>${RUN}</script>`,
  `<meta http-equiv="refresh" content="0;url=javascript:${RUN}">`,
  `<form action="javascript:${RUN}"><button autofocus>x</button></form>`,
]
assert.ok(PAYLOADS.length >= 50)

await page.evaluateOnNewDocument(() => {
  globalThis.hits = 0
  globalThis.hit = globalThis.alert = () => globalThis.hits++
  addEventListener('securitypolicyviolation', event => (globalThis.violations ??= []).push(event.violatedDirective))
})
page.on('dialog', dialog => {
  throw new Error(`a dialog: ${dialog.message()}`)
})

/** Nothing has run, nothing was stopped by the policy alone, and no attribute can run. */
async function check(what) {
  const found = await page.evaluate(() => {
    // The events that payloads wait for.
    for (const element of document.querySelectorAll('*'))
      for (const type of ['mouseover', 'focus', 'error', 'load', 'toggle', 'animationstart']) element.dispatchEvent(new Event(type))
    const attributes = [...document.querySelectorAll('*')].flatMap(element => [...element.attributes])
    const runs = ({ name, value }) => /^on|^srcdoc$|^style$/i.test(name) || (/^(href|src|action|formaction|data)$/i.test(name) && /^\s*javascript:/i.test(value))
    const bad = attributes.filter(runs).map(one => `${one.name}=${one.value}`)
    return { hits: globalThis.hits, violations: globalThis.violations ?? [], bad, scripts: document.scripts.length }
  })
  assert.deepEqual(found, { hits: 0, violations: [], bad: [], scripts: 1 }, what)
}

await open('/')
const customers = PAYLOADS.map(text => ({
  name: text.slice(0, 200),
  tags: [text, 'b'],
  note: text,
  extra: { a: text, [text]: [text] },
}))
const made = await requestJson('/customers', 'POST', { customers })
assert.equal(made.customers?.length, PAYLOADS.length, JSON.stringify(made))
for (const name of PAYLOADS.slice(0, 10)) await requestJson('/carriers', 'POST', { carrier: { name: name.slice(0, 100) } })
for (const path of ['/customers?limit=200', '/carriers', '/-/changes?sort=-sequence&limit=100', '/']) {
  await open(path)
  await check(path)
}
for (const [at, { id }] of made.customers.entries()) {
  if (!isInPart(at)) continue
  const path = `/customers/${id}`
  await open(`${path}#edit`)
  await check(`${path}: ${PAYLOADS[at]}`)
  const sent = encodeURIComponent(PAYLOADS[at])
  const reflected = [`/customers?name=${sent}`, `/customers?${sent}=1`, `/${sent}`, `/customers?sort=${sent}`, `/customers?fields=${sent}`, `/-/changes?subject=${sent}`]
  for (const path of [reflected[at % 6], reflected[(at + 3) % 6]]) {
    await load(path)
    await check(path)
  }
}
// The script shows texts too: the type-ahead, the faults of a form, and both versions of a stale edit.
await open('/customers#new')
const control = await page.waitForSelector('#new [role=combobox]', { visible: true })
await control.type('<')
await until(() => document.querySelector('#new [role=listbox]').children.length > 0)
await check('type-ahead')
const stale = `/customers/${made.customers[0].id}`
await open(`${stale}#edit`)
const name = await page.waitForSelector("#edit [name='/note']", { visible: true })
await name.type(PAYLOADS[15])
await requestJson(stale, 'PUT', { customer: { name: PAYLOADS[1], note: PAYLOADS[3] } })
await (await page.waitForSelector('#edit [type=submit], #edit form button:not([type])')).click()
await shows('Somebody else saved first.')
await check('both versions')

// The policy is in force: a script that got into the page would not run.
await open('/customers')
const stopped = await page.evaluate(async () => {
  const script = document.createElement('script')
  script.textContent = 'hit()'
  const image = document.createElement('div')
  image.innerHTML = '<img src="/nowhere.png" onerror="hit()">'
  document.body.append(script, image)
  await new Promise(resolve => setTimeout(resolve, 1000))
  return { hits: globalThis.hits, violations: globalThis.violations?.length > 0 }
})
assert.deepEqual(stopped, { hits: 0, violations: true })
await end()
