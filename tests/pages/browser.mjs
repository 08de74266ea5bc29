// A browser with one page, for the scripts beside this file: `node SCRIPT chromium|firefox ORIGIN [NAME PASSWORD [PART]]`.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

// The packages are not beside these files.
export const packages = createRequire(`${process.env.CLIENT_PACKAGES}/`)
const { default: puppeteer } = await import(pathToFileURL(packages.resolve('puppeteer-core')))
// The machine may be busy with something else.
const TIMEOUT_MS = 90000

export const [program, origin, username, password, part] = process.argv.slice(2)

/** Whether this run takes a case: pages are made without regard to the backend, so the runs on both share many cases. */
export function isInPart(at) {
  assert.ok(['even', 'odd', 'all'].includes(part), 'PART is even, odd or all')
  return part === 'all' || part === (at % 2 ? 'odd' : 'even')
}

export const folder = mkdtempSync(join(tmpdir(), 'nouns-pages-'))
const find = name => execFileSync('which', [name]).toString().trim()
const env = { ...process.env, HOME: folder }
const browser = await {
  chromium: () =>
    puppeteer.launch({
      executablePath: find('chromium'),
      pipe: true,
      args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking', '--disable-component-update'],
      userDataDir: `${folder}/chromium`,
      timeout: TIMEOUT_MS,
      protocolTimeout: TIMEOUT_MS,
      env,
    }),
  firefox: () =>
    puppeteer.launch({
      browser: 'firefox',
      executablePath: find('firefox-esr'),
      userDataDir: `${folder}/firefox`,
      timeout: TIMEOUT_MS,
      protocolTimeout: TIMEOUT_MS,
      env,
      extraPrefsFirefox: {
        'network.proxy.type': 0,
        'browser.download.folderList': 2,
        'browser.download.dir': folder,
        'browser.helperApps.neverAsk.saveToDisk': 'text/csv',
      },
    }),
}[program]()

process.on('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }))
// A script that fails ends its browser too.
process.on('uncaughtException', async error => {
  console.error(error)
  await Promise.race([browser.close(), new Promise(resolve => setTimeout(resolve, 5000))])
  process.exit(1)
})

// Some waits have no limit of their own, and a browser may stop answering. Just below SCRIPT_LIMIT of
// tests/it/browsers/page_scripts.rs, which kills this process without a word about the browser.
const SCRIPT_MS_MAX = 25 * 60 * 1000
setTimeout(() => {
  throw new Error(`the script did not end within ${SCRIPT_MS_MAX} ms`)
}, SCRIPT_MS_MAX).unref()

export const page = await browser.newPage()
page.setDefaultTimeout(TIMEOUT_MS)
if (username) await page.authenticate({ username, password })
// A message disappears after some seconds, and this process may be slower.
await page.evaluateOnNewDocument(() => {
  globalThis.messages = []
  const isMessage = node => node.classList?.contains('toast')
  const collect = changes => {
    for (const { addedNodes } of changes) globalThis.messages.push(...[...addedNodes].filter(isMessage).map(node => node.textContent))
  }
  new MutationObserver(collect).observe(document, { childList: true, subtree: true })
})

/** Loads a page anew, also if only the fragment of the address differs, which by itself would load nothing. */
export async function load(path) {
  const from = new URL(page.url())
  const to = new URL(origin + path)
  // Each page after a blank one gets a process of its own, which takes a third of the time.
  if (from.pathname + from.search === to.pathname + to.search) await page.goto('about:blank')
  return page.goto(to.href, { waitUntil: 'load' })
}

/** Loads a page, and waits until its script has run. */
export async function open(path) {
  await load(path)
  await shows('Times are in')
}

/** Waits until a function returns true in the page. `page.waitForFunction` compiles it there, which the CSP refuses in Firefox. */
export async function until(condition, ...values) {
  const end = Date.now() + TIMEOUT_MS
  // A navigation may end the page while it is asked.
  while (!(await page.evaluate(condition, ...values).catch(() => false))) {
    if (Date.now() > end) throw new Error(`waited ${TIMEOUT_MS} ms`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

/** Waits until the page shows a text, or has shown it as a message. */
export async function shows(text) {
  try {
    const isShown = text => document.body?.innerText.includes(text) || globalThis.messages?.some(message => message.includes(text))
    await until(isShown, text)
  } catch (error) {
    const shown = await page.evaluate(() => document.body?.innerText).catch(() => 'no page')
    throw new Error(`the page does not show ${JSON.stringify(text)}, but:\n${shown}`, { cause: error })
  }
}

/** Sends a request from the page; returns its JSON. */
export const requestJson = (path, method = 'GET', body) =>
  page.evaluate(
    async (path, method, body) => {
      const headers = { Accept: 'application/json', ...(body && { 'Content-Type': 'application/json' }) }
      const answer = await fetch(path, { method, headers, body, cache: 'no-store' })
      return answer.status === 204 ? null : answer.json()
    },
    path,
    method,
    body && JSON.stringify(body),
  )

export async function end() {
  await browser.close()
  process.exit()
}

export { assert, browser }
