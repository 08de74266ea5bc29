// A person at a browser, with mouse and keyboard: logs in, and does what the pages offer.

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { requestJson, assert, browser, end, folder, open, page, program, shows, username } from './browser.mjs'

/** Clicks an element that is in sight. */
async function click(selector) {
  const element = await page.waitForSelector(selector, { visible: true })
  await element.scrollIntoView()
  await element.click()
}

/** Replaces the text of a control. */
async function type(selector, text) {
  const control = await page.waitForSelector(selector, { visible: true })
  await control.scrollIntoView()
  await control.click({ count: 3 })
  await page.keyboard.press('Backspace')
  await control.type(text)
}

// Login: the browser asks for it by itself, and the page says who is logged in.
await open('/')
await shows(`You are ${username}.`)
for (const name of ['Alfa Freight', 'Beta Post', 'Gamma Cargo'])
  await requestJson('/carriers', 'POST', { carrier: { name } })

// Create, with a fault first. Nothing that was typed is lost.
await click('main a[href="/customers"]')
await shows('No customers yet.')
await shows('Times are in')
await click('a[href="#new"]')
await type("#new [name='/name']", 'Ann Lindqvist')
await type("#new [name='/email']", 'no address')
// A search that was begun does not open the list when the focus has left.
await type('#new [role=combobox]', 'B')
await page.keyboard.press('Tab')
await new Promise(resolve => setTimeout(resolve, 500))
assert.ok(await page.$eval('#new [role=listbox]', list => list.hidden))
// A reference is chosen by typing a part of its label.
await type('#new [role=combobox]', 'Bet')
await page.waitForSelector('#new [role=option]', { visible: true })
// The list closes when the focus leaves, and an arrow key opens it again.
await page.keyboard.press('Tab')
await page.waitForSelector('#new [role=option]', { hidden: true })
await page.focus('#new [role=combobox]')
await page.keyboard.press('ArrowDown')
await page.waitForSelector('#new [role=option]', { visible: true })
await page.keyboard.press('ArrowDown')
await page.waitForSelector('#new [role=option][aria-selected=true]')
await page.keyboard.press('Enter')
assert.notEqual(await page.$eval("#new [name='/carrier']", control => control.value), '')
await click('#new [type=submit], #new form button:not([type])')
await shows('Nothing was saved.')
await type("#new [name='/email']", 'ann@example.com')
await click('#new [type=submit], #new form button:not([type])')
await shows('Created.')
const [ann] = (await requestJson('/customers')).customers
const carrier = (await requestJson(`/carriers/${ann.carrier}`)).carrier
assert.deepEqual([ann.name, ann.email, carrier.name], ['Ann Lindqvist', 'ann@example.com', 'Beta Post'])

// Edit the whole item, then one field in its place.
const path = `/customers/${ann.id}`
await open(path)
await shows('Beta Post')
await click('a[href="#edit"]')
await type("#edit [name='/name']", 'Ann Berg')
await page.keyboard.down('Control')
await page.keyboard.press('Enter')
await page.keyboard.up('Control')
await shows('Saved. Version 2.')
await click('[data-do=inline][data-field=email]')
await type('.inline .control', 'berg@example.com')
await page.keyboard.press('Enter')
await shows('Saved. Version 3.')
const edited = (await requestJson(path)).customer
assert.deepEqual([edited.name, edited.email, edited.version], ['Ann Berg', 'berg@example.com', 3])

// A state moves by a button, on the page of an order that was created from the page of its customer.
await open(path)
await Promise.all([page.waitForNavigation({ waitUntil: 'load' }), click(`a.button[href="${path}/orders#new"]`)])
await click('#new [type=submit], #new form button:not([type])')
await shows('Created.')
const [order] = (await requestJson(`${path}/orders`)).orders
await open(`${path}/orders/${order.id}`)
await click('[data-do=move]')
await shows('Now paid.')
assert.equal((await requestJson(`${path}/orders/${order.id}`)).order.status, 'paid')

// A file with a fault creates nothing and names the fault; the mended file creates all.
const file = join(folder, 'new.csv')
async function upload(text) {
  writeFileSync(file, text)
  await page.evaluate(() => document.querySelector('#upload').closest('details')?.setAttribute('open', ''))
  await (await page.waitForSelector('#upload')).uploadFile(file)
  await click('form.upload button')
}
await open('/customers')
await upload('name,email\nBea,bea@example.com\n,carl@example.com\n')
await shows('Nothing was created')
await shows('item 2 name')
assert.equal((await requestJson('/customers')).customers.length, 1)
await upload('name,email\nBea,bea@example.com\nCarl,carl@example.com\n')
await shows('Created 2.')
assert.equal((await requestJson('/customers')).customers.length, 3)

// The download is the whole list, as a file.
await open('/customers?limit=1')
if (program === 'chromium') {
  const session = await browser.target().createCDPSession()
  await session.send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: folder })
}
await page.evaluate(() => document.querySelector('[data-do=download]').closest('details')?.setAttribute('open', ''))
await click('[data-do=download][data-accept="text/csv"]')
const saved = join(folder, 'customers.csv')
const content = () => (existsSync(saved) ? readFileSync(saved, 'utf8') : '')
for (let tries = 0; !content().includes('Carl') && tries < 600; tries++) await new Promise(resolve => setTimeout(resolve, 100))
const text = content()
for (const name of ['Ann Berg', 'Bea', 'Carl']) assert.match(text, new RegExp(name))

// A filter by the form: a chip shows it, and its cross takes it away.
await open('/customers')
await page.keyboard.press('/')
await type(".sheet input[name^='name:']", 'Bea')
await page.keyboard.press('Enter')
await page.waitForSelector('.chip')
await shows('1 on this page')
await click('.chip a')
await shows('3 on this page')
// A heading sorts.
await click('th a[href*="sort=name"]')
await page.waitForSelector('th[aria-sort=ascending]')

// The secret of a webhook is shown once.
await open('/-/webhooks')
await click('a[href="#new"]')
await type("#new [name='/url']", 'https://receiver.example/hook')
await click('#new [data-do=add]')
await type("#new [name='/events/0']", 'customer.*')
await click('#new [type=submit], #new form button:not([type])')
await shows('This secret is shown only now')
await shows('whsec_')
const [webhook] = (await requestJson('/-/webhooks')).webhooks
await open(`/-/webhooks/${webhook.id}`)
assert.doesNotMatch(await page.evaluate(() => document.documentElement.outerHTML), /whsec_/)

// Delete, after a dialog that names what goes along.
await open(path)
await click('[data-dialog="#delete"]')
await shows('Its 1 order is deleted with it.')
await click('#delete [data-do=remove]')
await shows('Deleted.')
assert.deepEqual((await requestJson('/customers')).customers.map(one => one.name), ['Bea', 'Carl'])

await end()
