// Chromium and Firefox: a page of the server's own sends the requests, and the browser logs in as it would
// by its dialog. The scheme has the browser before it: `firefox digest`.
// Which scheme is used is the browser's choice, from what is offered.

import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'

import { load, take } from './steps.mjs'

const { default: puppeteer } = await load('puppeteer-core')
// A machine may be busy with something else.
const PATIENCE_MS = 90000
// Both are where the system has put them.
const find = name => execFileSync('which', [name]).toString().trim()
const home = mkdtempSync(`${process.env.HOME}/browser-`)
process.on('exit', () => rmSync(home, { recursive: true, force: true }))

// A folder of certificates that are trusted, as both browsers have it.
function trust(folder) {
  mkdirSync(folder, { recursive: true })
  execFileSync('certutil', ['-N', '-d', `sql:${folder}`, '--empty-password'])
  execFileSync('certutil', ['-A', '-d', `sql:${folder}`, '-n', 'ca', '-t', 'C,,', '-i', process.env.CLIENT_CA])
  return folder
}

const launch = {
  chromium: () => {
    trust(`${home}/.pki/nssdb`)
    const args = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--no-proxy-server',
      '--disable-dev-shm-usage', '--disable-background-networking', '--disable-component-update', '--disable-sync']
    return puppeteer.launch({
      executablePath: find('chromium'), pipe: true, args, timeout: PATIENCE_MS, userDataDir: `${home}/chromium`,
      env: { ...process.env, HOME: home },
    })
  },
  firefox: () => puppeteer.launch({
    browser: 'firefox', timeout: PATIENCE_MS, executablePath: find('firefox-esr'), userDataDir: trust(`${home}/firefox`),
    env: { ...process.env, HOME: home },
    extraPrefsFirefox: { 'network.proxy.type': 0 },
  }),
}

const running = {}
let browser, context

await take(
  async () => (await browser.version()).replace(/.*\//, ''),
  async ({ base, scheme, name, password }) => {
    await context?.close()
    const [program] = scheme.split(' ')
    browser = running[program] ??= await launch[program]()
    context = await browser.createBrowserContext()
    const page = await context.newPage()
    page.setDefaultTimeout(PATIENCE_MS)
    await page.authenticate({ username: name, password })
    await page.goto(`${base}/-/health`)
    return (url, options) => page.evaluate(async (url, options) => {
      // In docs/reference/clients.md:
      const answer = await fetch(url, options)
      // Not in it:
      return { status: answer.status, text: await answer.text() }
    }, url, options)
  },
  // What does not end in time is killed when this process ends.
  () => Promise.race([
    Promise.all(Object.values(running).map(browser => browser.close())),
    new Promise(resolve => setTimeout(resolve, 10000)),
  ]),
)
