// nouns.js: what HTML alone cannot do. It sends, it listens, it moves the focus; the server draws every page.
// Nothing is built from strings of HTML; text goes in as text. Each part works alone and does nothing where its elements are absent.

const one = (selector, within = document) => within.querySelector(selector)
const all = (selector, within = document) => [...within.querySelectorAll(selector)]
const make = (tag, props = {}, ...inside) => {
  const e = Object.assign(document.createElement(tag), props)
  e.append(...inside)
  return e
}

// ---- requests ----
// no-store: an answer in JSON must never be what the browser shows for this address when somebody goes back.
async function ask(method, path, { body, raw, type = 'application/json', headers = {}, accept = 'application/json', signal } = {}) {
  const content = raw ?? (body === undefined ? undefined : JSON.stringify(body))
  let answer, json, data
  try {
    answer = await fetch(path, {
      method,
      signal,
      cache: 'no-store',
      headers: { Accept: accept, ...(content === undefined ? {} : { 'Content-Type': type }), ...headers },
      body: content,
    })
    json = /json/.test(answer.headers.get('Content-Type') ?? '')
    data = json ? await answer.json() : await answer.text()
  } catch (error) {
    if (error.name === 'AbortError') throw error
    return { ok: false, status: 0, data: { title: 'The server did not answer', detail: 'check the connection and try again' } }
  }
  return {
    ok: answer.ok,
    status: answer.status,
    headers: answer.headers,
    data: answer.ok || json ? data : { title: `The server answered ${answer.status}` },
  }
}
// crypto.randomUUID is absent over plain HTTP to a name that is not loopback; getRandomValues is not.
const key = () => [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, '0')).join('')

// One key for one body: a second press, or a retry after a lost answer, creates nothing twice.
const tries = new WeakMap()
function keyOf(form, content) {
  if (tries.get(form)?.content !== content) tries.set(form, { content, key: key() })
  return `"${tries.get(form).key}"`
}
// After a final answer the next request is another one.
function settle(form, { ok, status, data }) {
  const isOpen = !status || status >= 500 || [401, 408, 429].includes(status) || (status === 409 && /request-under-way$/.test(data.type))
  if (ok || !isOpen) tries.delete(form)
}

// A JSON Patch, because a merge patch would merge into objects. A field that is not nullable has no value when it is absent.
const patch = (wrap, item, nullable) =>
  Object.entries(item).flatMap(([field, value]) => {
    const path = `/${wrap}/${field}`
    const add = { op: 'add', path, value }
    return value === null && !nullable.includes(field) ? [add, { op: 'remove', path }] : [add]
  })
const PATCH = 'application/json-patch+json'

// The browser may refuse access to its storage.
const recall = (area, name) => {
  try {
    return window[area].getItem(name)
  } catch {
    return null
  }
}
const keep = (area, name, text) => {
  try {
    text === null ? window[area].removeItem(name) : window[area].setItem(name, text)
  } catch {} // It works without, until the page is left.
}

// ---- times in the reader's time zone; the server writes them in UTC ----
const day = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'short' })
const clock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' })
function localize(within) {
  for (const e of all('time[datetime*="T"]', within)) {
    const at = new Date(e.dateTime)
    if (!isNaN(at)) e.textContent = (e.dataset.form === 'time' ? clock : day).format(at)
  }
}
localize(document)
const zone = one('[data-zone]')
if (zone) zone.textContent = `Times are in ${day.resolvedOptions().timeZone}.`

// ---- messages ----
function say(text, { bad = false, action } = {}) {
  const box = one('.toasts')
  const toast = make('div', { className: bad ? 'toast bad' : 'toast' }, make('span', { textContent: text }))
  const close = make('button', { className: 'button quiet small', type: 'button', textContent: action?.label ?? 'Close' })
  close.onclick = () => {
    toast.remove()
    action?.run()
  }
  toast.append(close)
  box.replaceChildren(toast)
  if (!bad) setTimeout(() => toast.remove(), 6000) // A failure stays until it is closed.
}
const complain = ({ data }) => say([data.title, data.detail].filter(Boolean).join(': '), { bad: true })
function go(path, message) {
  if (message) keep('sessionStorage', 'said', message)
  if (path !== location.pathname + location.search) return location.assign(path)
  history.replaceState(null, '', path) // Without the fragment, which would open the form again.
  location.reload()
}
const said = recall('sessionStorage', 'said')
if (said) {
  keep('sessionStorage', 'said', null)
  say(said)
}

// ---- forms: the name of a control is the JSON pointer of its value, within the item ----
const changed = c =>
  c.type === 'checkbox'
    ? c.checked !== c.defaultChecked
    : c.tagName === 'SELECT'
      ? c.selectedIndex !==
        Math.max(
          0,
          [...c.options].findIndex(o => o.defaultSelected),
        )
      : c.value !== c.defaultValue
const controls = (form, field) =>
  all('[name^="/"]', form).filter(c => !c.readOnly && (!field || c.name === `/${field}` || c.name.startsWith(`/${field}/`)))
const moved = form => all('[data-list][data-moved]', form).map(l => l.dataset.list) // A list without elements has no control.
const fields = form => [...new Set([...controls(form).map(c => c.name), ...moved(form)].map(name => name.split('/')[1]))]
const dirty = form => fields(form).filter(f => controls(form, f).some(changed) || moved(form).includes(`/${f}`))

function read(c) {
  if (c.type === 'checkbox') return c.checked
  if (c.value === '') return null // An empty control is no value: absent, not "" and not 0.
  const text = c.value.trim()
  const number = /^-?\d[\d.eE+-]*$/.test(text) ? Number(text) : NaN
  switch (c.dataset.type) {
    case 'boolean':
      return c.value === 'true'
    case 'integer':
      return Number.isSafeInteger(number) ? number : c.value // Text that is not a number is sent as it is, and the server reports the fault.
    case 'number':
      return Number.isFinite(number) ? number : c.value
    case 'json':
      try {
        return JSON.parse(c.value)
      } catch {
        return c.value
      }
    case 'timestamp':
      return /Z$|[+-]\d\d:\d\d$/.test(c.value) ? c.value : `${c.value}Z`
    default:
      return c.value // A decimal stays a text: exact.
  }
}
const isIndex = step => /^\d+$/.test(step)
function stored(item, c) {
  // The value of a control that was not changed: its text cannot tell "" from no value.
  const name = c.dataset.was ?? c.name
  if (!name || changed(c)) return undefined
  return name
    .split('/')
    .slice(1)
    .reduce((at, step) => at?.[step], item)
}
function value(form, field) {
  // The value of one top-level field, put together from its controls.
  const item = form.dataset.item ? JSON.parse(form.dataset.item) : {}
  let root = null
  for (const c of controls(form, field)) {
    const way = c.name.split('/').slice(2)
    const v = stored(item, c) ?? read(c)
    if (!way.length) return v
    if (v === null) continue // A member without a value is absent.
    let at = (root ??= isIndex(way[0]) ? [] : {})
    way.slice(0, -1).forEach((step, i) => {
      at = at[step] ??= isIndex(way[i + 1]) ? [] : {}
    })
    at[way.at(-1)] = v
  }
  if (Array.isArray(root)) root = root.filter(() => true) // Emptied elements left holes.
  return root ?? (one(`[data-list="/${field}"]`, form) ? [] : null)
}

function clear(form) {
  all('.fault', form).forEach(e => e.classList.remove('fault'))
  all('.wrong, .summary', form).forEach(e => e.remove())
  all('[aria-invalid]', form).forEach(e => {
    e.removeAttribute('aria-invalid')
    if (e.dataset.hint) e.setAttribute('aria-describedby', e.dataset.hint)
    else e.removeAttribute('aria-describedby')
  })
}
function faults(form, problem) {
  // Each message goes beside its control; all of them are linked from the top.
  clear(form)
  const list = make('ul')
  for (const [i, fault] of (problem.errors ?? []).entries()) {
    const pointer = '/' + fault.pointer.split('/').slice(2).join('/')
    let c = all('[name]', form).find(e => e.name === pointer) ?? all('[name]', form).find(e => e.name.startsWith(pointer + '/'))
    if (c?.hidden) c = one('[role="combobox"]', c.parentElement) ?? c
    const text = fault.detail
    if (c) {
      const id = `wrong-${i}`
      c.setAttribute('aria-invalid', 'true')
      c.setAttribute('aria-describedby', [c.dataset.hint, id].filter(Boolean).join(' '))
      c.parentElement.append(make('p', { className: 'wrong', id, textContent: text }))
      c.closest('.field')?.classList.add('fault')
      c.id ||= `c-${i}`
    }
    const name = pointer
      .slice(1)
      .split('/')
      .map(s => (/^\d+$/.test(s) ? `#${+s + 1}` : s))
      .join(' › ') // People count from 1.
    const line = c ? make('a', { href: `#${c.id}`, textContent: name }) : make('b', { textContent: name || form.dataset.wrap })
    list.append(make('li', {}, line, ` ${text}`))
  }
  const title = problem.errors?.length
    ? `${problem.detail ?? problem.title}. Nothing was saved.`
    : [problem.title, problem.detail].filter(Boolean).join(': ')
  if (form.matches('.inline') && one('.wrong', form)) return one('.control', form).focus() // One field: its message is enough.
  const box = make('div', { className: 'summary', tabIndex: -1 }, make('h2', { textContent: title }), list)
  box.setAttribute('role', 'alert')
  form.prepend(box)
  box.focus()
}

function lend(inline) {
  // The typed text moves to the whole form, which can show the conflict.
  const form = one('#edit form')
  for (const c of controls(inline)) all('[name]', form).find(e => e.name === c.name).value = c.value
  location.hash = '#edit'
  return form
}

function secret(form, text, path) {
  // Shown once, here: it is never stored, and going on would lose it.
  const copy = make('button', { className: 'button', type: 'button', textContent: 'Copy' })
  copy.dataset.do = 'copy'
  const box = make(
    'div',
    { className: 'empty', tabIndex: -1 },
    make('p', { textContent: 'Created. This secret is shown only now: keep it where the receiver reads it.' }),
    make('p', {}, make('code', { textContent: text }), ' ', copy),
    make('p', {}, make('a', { href: path, textContent: 'Go on' })),
  )
  form.replaceWith(box)
  box.focus()
}

async function send(form) {
  const create = form.dataset.send === 'POST'
  const wrap = form.dataset.wrap
  const open = all('[role="combobox"]', form).map(takeId).filter(Boolean)
  if (open.length) {
    const errors = open.map(name => ({ pointer: `/${wrap}${name}`, detail: 'choose one from the list, or type an id' }))
    return faults(form, { detail: 'A reference is not known', errors })
  }
  const names = create ? fields(form) : dirty(form)
  if (!create && !names.length) return say('Nothing was changed.')
  const item = Object.fromEntries(names.map(f => [f, value(form, f)]).filter(([, v]) => !create || v !== null))
  const content = JSON.stringify(create ? { [wrap]: item } : patch(wrap, item, form.dataset.nullable.split(',')))
  const answer = await ask(form.dataset.send, form.dataset.to, {
    raw: content,
    type: create ? 'application/json' : PATCH,
    headers: create ? { 'Idempotency-Key': keyOf(form, content) } : { 'If-Match': `"${form.dataset.version}"` },
  })
  settle(form, answer)
  if (answer.ok) {
    form.dataset.sent = ''
    const saved = answer.data[wrap]
    if ('secret' in form.dataset && saved?.secret) return secret(form, saved.secret, answer.headers.get('Location'))
    return go(create ? answer.headers.get('Location') : location.pathname, create ? 'Created.' : `Saved. Version ${saved?.version}.`)
  }
  if (answer.status === 412 && form.matches('.inline')) return conflict(lend(form), names)
  if (answer.status === 412) return conflict(form, names)
  faults(form, answer.data)
}

document.addEventListener('submit', async event => {
  const form = event.target
  if (form.matches('.sheet form'))
    return all('[data-type="timestamp"]', form).forEach(c => {
      if (/^\d{4}-\d\d-\d\d$/.test(c.value)) c.value += 'T00:00:00Z'
    })
  if (form.dataset.upload) {
    event.preventDefault()
    return upload(form)
  }
  if (!form.dataset.send) return
  event.preventDefault()
  const button = event.submitter ?? one('button:not([type="button"])', form)
  if (button.getAttribute('aria-busy') === 'true') return
  button.setAttribute('aria-busy', 'true')
  try {
    await send(form)
  } finally {
    button.removeAttribute('aria-busy')
  }
})
async function upload(form) {
  // New items from a file, all or none; each fault names its line.
  const file = one('input', form).files[0]
  if (!file) return
  one('.summary', form)?.remove()
  const button = one('button', form)
  button.setAttribute('aria-busy', 'true')
  const answer = await ask('POST', form.dataset.upload, {
    raw: file,
    type: /json/.test(file.name) ? 'application/x-ndjson' : 'text/csv',
    headers: { 'Idempotency-Key': keyOf(form, file) },
  })
  button.removeAttribute('aria-busy')
  settle(form, answer)
  if (answer.ok) return go(location.pathname + location.search, `Created ${answer.data[form.dataset.plural]?.length ?? ''}.`)
  const list = make('ul')
  for (const fault of (answer.data.errors ?? []).slice(0, 50)) {
    const [at, ...rest] = fault.pointer.split('/').slice(2)
    list.append(make('li', { textContent: `${/^\d+$/.test(at) ? `item ${+at + 1} ` : ''}${rest.join(' › ')} ${fault.detail}` }))
  }
  const title = [answer.data.title, answer.data.detail, 'Nothing was created'].filter(Boolean).join('. ')
  const box = make('div', { className: 'summary', tabIndex: -1 }, make('h2', { textContent: `${title}.` }), list)
  box.setAttribute('role', 'alert')
  form.append(box)
  box.focus()
}
document.addEventListener('input', event => {
  const form = event.target.closest('form[data-send]')
  if (!form) return
  const names = dirty(form)
  const note = one('.savebar .note', form)
  if (note) note.textContent = names.length ? `Not saved: ${names.join(', ')}` : ''
})
document.addEventListener('change', ({ target }) => {
  // The operator of a filter is part of the name of its control.
  if (target.matches('.sheet select[data-field]')) one('input', target.form).name = `${target.dataset.field}:${target.value}`
})
addEventListener('beforeunload', event => {
  if (all('form[data-send]').some(f => !('sent' in f.dataset) && dirty(f).length)) event.preventDefault()
})

// ---- 412: somebody else was faster. Three values beside each other; nothing is merged without a look. ----
async function conflict(form, mine) {
  const answer = await ask('GET', form.dataset.to)
  if (!answer.ok) return faults(form, answer.data)
  const theirs = answer.data[form.dataset.wrap]
  const was = JSON.parse(form.dataset.item) // The item as this page had it.
  const show = v => (v === undefined || v === null ? 'no value' : typeof v === 'string' ? v : JSON.stringify(v))
  const same = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null)
  const view = one('#merge').content.cloneNode(true).firstElementChild
  one('p', view).textContent =
    `Version ${theirs.version} was saved while you were editing version ${was.version}. Choose what to keep where both changed something.`
  for (const field of Object.keys({ ...was, ...theirs }).filter(f => !['id', 'created_at', 'updated_at', 'version'].includes(f))) {
    const byYou = mine.includes(field),
      byThem = !same(theirs[field], was[field])
    if (!byThem && !byYou) continue
    const yours = byYou ? value(form, field) : was[field]
    const cell = (label, v, ...more) => {
      const td = make('td', {}, ...(more.length ? more : [make('span', { className: 'was', textContent: show(v) })]))
      td.dataset.label = label
      return td
    }
    const pick = (whose, v) =>
      make(
        'label',
        { className: 'pick' },
        make('input', { type: 'radio', name: `pick-${field}`, value: whose, checked: whose === 'yours' }),
        make('span', { textContent: show(v) }),
      )
    const alone = (v, text) => [show(v), make('span', { className: 'tick', textContent: text })]
    const both = byYou && byThem && !same(yours, theirs[field])
    const row = make(
      'tr',
      {},
      make('th', { scope: 'row', textContent: field }),
      cell('before', was[field]),
      both
        ? cell('theirs', 0, pick('theirs', theirs[field]))
        : byThem
          ? cell('theirs', 0, ...alone(theirs[field], 'only they changed this; it stays'))
          : cell('theirs', theirs[field]),
      both
        ? cell('yours', 0, pick('yours', yours))
        : byYou
          ? cell('yours', 0, ...alone(yours, 'only you changed this; it will be saved'))
          : cell('yours', yours),
    )
    if (byYou) row.dataset.field = field
    one('tbody', view).append(row)
  }
  view.addEventListener('click', event => {
    const act = event.target.closest('[data-merge]')?.dataset.merge
    if (act === 'back') {
      view.replaceWith(form)
      form.elements[0]?.focus()
    }
    if (act === 'drop') {
      form.dataset.sent = ''
      go(location.pathname)
    }
    if (act === 'save') save()
  })
  async function save() {
    const names = all('tr[data-field]', view)
      .filter(r => one('input:checked', r)?.value !== 'theirs')
      .map(r => r.dataset.field)
    const body = Object.fromEntries(names.map(f => [f, value(form, f)]))
    const again = await ask('PATCH', form.dataset.to, {
      body: patch(form.dataset.wrap, body, form.dataset.nullable.split(',')),
      type: PATCH,
      headers: { 'If-Match': `"${theirs.version}"` },
    })
    if (again.ok) {
      form.dataset.sent = ''
      return go(location.pathname, `Saved. Version ${again.data[form.dataset.wrap].version}.`)
    }
    view.replaceWith(form)
    again.status === 412 ? conflict(form, mine) : faults(form, again.data)
  }
  form.replaceWith(view)
  one('h2', view).focus()
}

// ---- actions: every button that does something says what in data-do ----
const actions = {
  async copy(button) {
    const text = button.dataset.text ?? one('code, pre', button.parentElement).textContent
    try {
      await navigator.clipboard.writeText(text)
      say('Copied.')
    } catch {
      getSelection().selectAllChildren(one('code, pre', button.parentElement))
      say('Selected. Copy it with your keyboard.')
    }
  },
  async move(button) {
    // A state moves when the server says so, not before.
    button.setAttribute('aria-busy', 'true')
    const { to, wrap, field, state, version } = button.dataset
    const answer = await ask('PATCH', to, {
      body: { [wrap]: { [field]: state } },
      type: 'application/merge-patch+json',
      headers: { 'If-Match': `"${version}"` },
    })
    button.removeAttribute('aria-busy')
    if (answer.ok) return go(location.pathname + location.search, `Now ${state}.`)
    answer.status === 412
      ? say('Somebody changed it meanwhile. Look at it again before you move it.', {
          bad: true,
          action: { label: 'Reload', run: () => location.reload() },
        })
      : complain(answer)
  },
  open(button) {
    one(button.dataset.dialog).showModal()
  },
  async remove(button) {
    button.setAttribute('aria-busy', 'true')
    const answer = await ask('DELETE', button.dataset.to, { headers: { 'If-Match': `"${button.dataset.version}"` } })
    button.removeAttribute('aria-busy')
    button.closest('dialog').close()
    answer.ok ? go(button.dataset.after, 'Deleted.') : complain(answer)
  },
  add(button) {
    // A further element of a list, from the template beside it.
    const list = button.closest('[data-list]')
    const at = all('.row', list).length
    const row = one('template', list).content.cloneNode(true).firstElementChild
    for (const e of all('[name], [for], [id]', row))
      for (const a of ['name', 'for', 'id', 'aria-controls']) if (e.hasAttribute(a)) e.setAttribute(a, e.getAttribute(a).replace('*', at))
    for (const c of all('[name]', row)) c.dataset.was = '' // Nothing is stored for it.
    all('[role="combobox"]', row).forEach(typeahead)
    one('.add', list).before(row)
    list.dataset.moved = ''
    one('.control', row).focus()
  },
  drop(button) {
    const list = button.closest('[data-list]')
    button.closest('.row').remove()
    all('.row', list).forEach((row, i) =>
      all('[name]', row).forEach(c => {
        c.dataset.was ??= c.name // Where its stored value is.
        c.name = c.name.replace(/\/\d+(?=\/|$)/, `/${i}`)
      }),
    )
    list.dataset.moved = ''
    list.dispatchEvent(new Event('input', { bubbles: true }))
    one('[data-do="add"]', list).focus()
  },
  inline(button, event) {
    // One field in its place: the control of the edit form, lent for a moment.
    const row = button.closest('.fields > div'),
      dd = one('dd', row),
      source = one(`#edit-${button.dataset.field} .control`)
    if (!source || one('.inline', dd)) return
    event.preventDefault()
    const control = source.cloneNode(true)
    control.removeAttribute('id')
    control.setAttribute('aria-label', button.dataset.field)
    const form = make(
      'form',
      { className: 'inline' },
      control,
      make('button', { className: 'button primary', type: 'submit', textContent: 'Save' }),
      make('button', { className: 'button', type: 'button', textContent: 'Cancel' }),
    )
    Object.assign(form.dataset, one('#edit form').dataset)
    const before = [...dd.childNodes]
    form.lastChild.onclick = () => {
      dd.replaceChildren(...before)
      button.focus()
    }
    form.onkeydown = e => {
      if (e.key === 'Escape') form.lastChild.click()
    }
    dd.replaceChildren(form)
    control.focus()
  },
  async json(button) {
    // The same address as JSON, loaded when it is wanted.
    const answer = await ask('GET', button.dataset.from ?? location.pathname + location.search)
    if (!answer.ok) return complain(answer)
    const box = make('div', { className: 'code-box' }, make('pre', { tabIndex: 0, textContent: JSON.stringify(answer.data, null, 2) }))
    button.replaceWith(box)
    one('pre', box).focus()
  },
  async download(button) {
    // All of the list, not a page of it.
    button.setAttribute('aria-busy', 'true')
    try {
      const answer = await fetch(button.dataset.from, { cache: 'no-store', headers: { Accept: button.dataset.accept } })
      if (!answer.ok) return say(`The server answered ${answer.status}`, { bad: true })
      const link = make('a', { href: URL.createObjectURL(await answer.blob()), download: button.dataset.file })
      link.click()
      URL.revokeObjectURL(link.href)
    } catch {
      say('The download was cut off. Nothing of it was kept.', { bad: true })
    } finally {
      button.removeAttribute('aria-busy')
    }
  },
  async restore(button) {
    // The fields as they were in a version; the item gets a new version.
    const { to, wrap, fields: names, past, version } = button.dataset
    button.setAttribute('aria-busy', 'true')
    const was = await ask('GET', `${to}?version=${past}`)
    const item = was.ok && was.data[wrap]
    const known = names.split(',')
    const before = item && Object.fromEntries(known.map(name => [name, item[name] ?? null]))
    const answer = item
      ? await ask('PATCH', to, {
          body: patch(
            wrap,
            before,
            known.filter(name => item[name] === null),
          ),
          type: PATCH,
          headers: { 'If-Match': `"${version}"` },
        })
      : was
    button.removeAttribute('aria-busy')
    answer.ok ? go(location.pathname, `Restored version ${past}. Version ${answer.data[wrap]?.version}.`) : complain(answer)
  },
  pause(button) {
    const on = button.getAttribute('aria-pressed') !== 'true'
    button.setAttribute('aria-pressed', on)
    stream?.pause(on)
  },
}
document.addEventListener('click', event => {
  const button = event.target.closest('[data-do]')
  if (button) {
    if (button.getAttribute('aria-busy') !== 'true') actions[button.dataset.do]?.(button, event)
    return
  }
  all('.menu[open]').forEach(m => {
    if (!m.contains(event.target)) m.open = false
  })
})

// ---- type-ahead for references ----
function takeId(input) {
  // An id that was typed is taken as it is; the name of the field, if the text is none.
  const hidden = one('input[hidden]', input.parentElement)
  const text = input.value.trim()
  const form = hidden?.dataset.type === 'integer' ? /^\d+$/ : /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
  if (!hidden || hidden.value || !text) return null
  if (!form.test(text)) return hidden.name
  hidden.value = text
  hidden.dispatchEvent(new Event('input', { bubbles: true }))
  return null
}
function typeahead(input) {
  const list = one('[role="listbox"]', input.parentElement),
    hidden = one('input[hidden]', input.parentElement) // Not type=hidden, whose default value follows its value.
  let wait, running
  const cancel = () => {
    clearTimeout(wait)
    running?.abort()
  }
  const close = () => {
    cancel()
    list.hidden = true
    input.setAttribute('aria-expanded', 'false')
    input.removeAttribute('aria-activedescendant')
  }
  const choose = option => {
    input.value = option.dataset.label
    hidden.value = option.dataset.id
    close()
    hidden.dispatchEvent(new Event('input', { bubbles: true }))
  }
  const mark = option => {
    cancel() // A later answer would replace the list under the mark.
    all('[role="option"]', list).forEach(o => o.setAttribute('aria-selected', o === option))
    input.setAttribute('aria-activedescendant', option.id)
    option.scrollIntoView({ block: 'nearest' })
  }
  const search = async () => {
    cancel()
    running = new AbortController()
    const { from, label, plural } = input.dataset
    const query = { fields: label, limit: 8, ...(input.value && { [`${label}:prefix`]: input.value }) }
    const answer = await ask('GET', `${from}?${new URLSearchParams(query)}`, { signal: running.signal }).catch(() => null)
    if (!answer?.ok) return
    const found = answer.data[plural]
    list.replaceChildren(
      ...found.map((item, i) => {
        const end = String(item.id).slice(-6)
        const text = item[label]?.trim() ? item[label] : end // A label may be optional.
        const option = make(
          'li',
          { id: `${list.id}-${i}` },
          make('span', { textContent: text }),
          make('code', { className: 'muted', textContent: end }),
        )
        option.setAttribute('role', 'option')
        option.setAttribute('aria-selected', 'false')
        Object.assign(option.dataset, { id: item.id, label: text })
        option.onmousedown = e => {
          e.preventDefault()
          choose(option)
        }
        return option
      }),
    )
    input.removeAttribute('aria-activedescendant')
    list.hidden = !found.length
    input.setAttribute('aria-expanded', String(!list.hidden))
  }
  input.addEventListener('input', () => {
    clearTimeout(wait)
    // Another text is another item, or none.
    hidden.value = input.value && input.value === input.defaultValue ? hidden.defaultValue : ''
    if (!input.value) return close()
    wait = setTimeout(search, 150)
  })
  input.addEventListener('keydown', event => {
    // The down arrow opens the list without more text, also for no text.
    if (list.hidden) {
      if (event.key === 'Escape') cancel()
      if (event.key !== 'ArrowDown') return
      event.preventDefault()
      if (!event.repeat) search()
      return
    }
    const options = all('[role="option"]', list),
      at = options.findIndex(o => o.getAttribute('aria-selected') === 'true')
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault()
      mark(options[(at + (event.key === 'ArrowDown' ? 1 : options.length - (at < 0 ? 0 : 1))) % options.length])
    }
    if (event.key === 'Enter' && at >= 0) {
      event.preventDefault()
      choose(options[at])
    }
    if (event.key === 'Escape') {
      event.stopPropagation()
      close()
    }
  })
  input.addEventListener('blur', () => {
    takeId(input)
    close()
  })
}
all('[role="combobox"][data-from]').forEach(typeahead)

// ---- live ----
// The page says in data-live from which position of the log it is, so that nothing falls between page and stream.
// Over HTTP/1.1 a browser has six connections to a server: a hidden page gives its own back.
let stream
for (const place of all('[data-live]')) {
  const marker = one('.live'),
    unseen = new Set(),
    late = new Set()
  let source,
    last,
    timer,
    drawing = false,
    again = false, // Something came while rows were drawn.
    drawn = -Infinity,
    paused = false
  const news = () =>
    unseen.size && make('a', { href: place.dataset.first ?? location.href, textContent: place.dataset.news ?? `${unseen.size} new, show` })
  const state = (name, text) => {
    marker.dataset.state = name
    marker.replaceChildren((name === 'on' && news()) || text)
  }
  const open = () => {
    if (source || document.hidden || paused) return
    const address = new URL(place.dataset.live, location)
    if (last) address.searchParams.set('since', last)
    source = new EventSource(address)
    source.onopen = () => state('on', 'Live')
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) {
        shut()
        state('lost', 'Not live')
      } else state('lost', 'Reconnecting')
    }
    for (const kind of ['created', 'updated', 'deleted', 'left'])
      source.addEventListener(kind, e => {
        last = e.lastEventId
        take(kind, JSON.parse(e.data))
      })
  }
  const shut = () => {
    source?.close()
    source = undefined
  }
  const row = id => document.getElementById(`row-${id}`)
  function take(kind, event) {
    // A change that was committed while the item was read may be in the page already.
    if (event.data.after?.version <= place.dataset.version) return
    marker.classList.remove('beat')
    void marker.offsetWidth
    marker.classList.add('beat')
    const id = event.subject.split('/').at(-1)
    if (place.dataset.rows && event.type !== `nouns.${place.dataset.name}.${kind}`)
      // An item above has left, maybe with some of the rows.
      all('tr[id^="row-"]', place).forEach(row => late.add(row.id.slice('row-'.length)))
    else if (kind === 'created' || !place.dataset.rows) unseen.add(place.dataset.rows ? id : last)
    else if (row(id)) {
      kind === 'updated' ? late.add(id) : (row(id).dataset.mark = kind)
      unseen.delete(id)
    } else if (kind === 'deleted') unseen.delete(id)
    soon()
  }
  // One draw at a time, and at least a second between two.
  function soon() {
    if (drawing) again = true
    else timer ??= setTimeout(draw, Math.max(250, drawn + 1000 - performance.now()))
  }
  async function draw() {
    // Rows are drawn by the server: the changed ones are asked for, a burst at a time.
    timer = undefined
    state('on', 'Live')
    if (!late.size || !place.dataset.rows) return
    const ids = [...late].slice(0, +place.dataset.batch)
    ids.forEach(id => late.delete(id))
    drawing = true
    again = false
    const query = `id:in=${ids}&limit=${ids.length}`
    const answer = await ask('GET', `${place.dataset.rows}${place.dataset.rows.includes('?') ? '&' : '?'}${query}`, {
      accept: 'text/html',
    })
    drawing = false
    drawn = performance.now()
    if (again || late.size) soon()
    if (!answer.ok) return ids.forEach(id => late.add(id)) // With the next change.
    const page = new DOMParser().parseFromString(answer.data, 'text/html')
    for (const id of ids) {
      const fresh = page.getElementById(`row-${id}`),
        old = row(id)
      if (!old || old.contains(document.activeElement)) continue
      if (fresh) {
        fresh.dataset.mark = 'updated'
        const row = document.importNode(fresh, true)
        old.replaceWith(row)
        localize(row)
      } else old.dataset.mark = 'left'
    }
  }
  stream = {
    pause(on) {
      paused = on
      on ? (shut(), state('off', 'Paused')) : open()
    },
  }
  document.addEventListener('visibilitychange', () => (document.hidden ? shut() : open()))
  addEventListener('pagehide', shut)
  addEventListener('pageshow', open)
  open()
}

// ---- keyboard. Single keys can be switched off (WCAG 2.1.4) in the list that ? opens. ----
const keys = () => recall('localStorage', 'keys') !== 'off'
const step = by => {
  const links = all('.table tbody .name a'),
    at = links.indexOf(document.activeElement)
  links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus()
}
const press = selector => {
  const e = one(selector)
  if (e) e.click()
  return e
}
const shortcuts = {
  '/': () => {
    const m = one('.menu')
    if (m) {
      m.open = true
      one('input', m)?.focus()
    }
  },
  n: () => press('[data-key="n"]'),
  e: () => press('[data-key="e"]'),
  j: () => step(1),
  k: () => step(-1),
  '?': () => one('#keys')?.showModal(),
  '.': () => press('.api > summary'),
}
document.addEventListener('keydown', event => {
  if ((event.ctrlKey || event.metaKey) && event.key === 'k') {
    event.preventDefault()
    return palette()
  }
  if ((event.ctrlKey || event.metaKey) && event.key === 'Enter') return event.target.closest('form[data-send]')?.requestSubmit()
  if (event.key === 'Escape')
    all('.menu[open]').forEach(m => {
      m.open = false
      one('summary', m).focus()
    })
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    !keys() ||
    event.target.closest('input, select, textarea, dialog, [contenteditable]')
  )
    return
  if (Object.hasOwn(shortcuts, event.key)) {
    event.preventDefault()
    shortcuts[event.key]()
  }
})
const switchKeys = one('#keys-on')
if (switchKeys) {
  switchKeys.checked = keys()
  switchKeys.onchange = () => keep('localStorage', 'keys', switchKeys.checked ? 'on' : 'off')
}

// ---- go to: the links of the navigation, a pasted path or id; no request is made ----
function palette() {
  const dialog = one('#go'),
    input = one('input', dialog),
    list = one('ul', dialog)
  const links = all('#menu li a').map(a => ({ text: a.textContent.trim(), href: a.href, path: a.dataset.path ?? a.getAttribute('href') }))
  const draw = () => {
    const typed = input.value.trim()
    const found = links.filter(l => (l.text + l.path).toLowerCase().includes(typed.toLowerCase())).slice(0, 12)
    if (/^\/(?!\/)/.test(typed)) found.unshift({ text: 'Go to', href: typed, path: typed })
    list.replaceChildren(
      ...found.map((l, i) => {
        const li = make(
          'li',
          { id: `go-${i}` },
          make('span', { textContent: l.text }),
          make('code', { className: 'muted', textContent: l.path }),
        )
        li.setAttribute('role', 'option')
        li.setAttribute('aria-selected', String(i === 0))
        li.onclick = () => location.assign(l.href)
        return li
      }),
    )
    input.setAttribute('aria-activedescendant', found.length ? 'go-0' : '')
  }
  input.value = ''
  input.oninput = draw
  input.onkeydown = event => {
    const options = all('li', list),
      at = options.findIndex(o => o.getAttribute('aria-selected') === 'true')
    if (event.key === 'Enter') {
      event.preventDefault()
      options[at]?.click()
    }
    if ((event.key !== 'ArrowDown' && event.key !== 'ArrowUp') || !options.length) return
    event.preventDefault()
    const next = (at + (event.key === 'ArrowDown' ? 1 : options.length - 1)) % options.length
    options.forEach((o, i) => o.setAttribute('aria-selected', String(i === next)))
    input.setAttribute('aria-activedescendant', `go-${next}`)
    options[next].scrollIntoView({ block: 'nearest' })
  }
  draw()
  dialog.showModal()
}
actions.palette = palette

// ---- a form that is opened by its address gets the focus ----
const enter = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)))
  if (target?.closest('.sheet-form')) (target.matches('.control') ? target : one('.control:not([readonly])', target))?.focus()
}
addEventListener('hashchange', enter)
addEventListener('load', () => setTimeout(enter)) // After the browser has gone to the fragment, which takes the focus away.
