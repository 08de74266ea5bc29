//! Cross-origin attempts: every way that a browser has to fetch, send, load and show from another
//! server.
//!
//! A row is script for the page. `V` is the server, `ITEM` the path of a stored item, `BODY` and
//! `CHANGED` are valid bodies, `settled(element)` waits until an element has loaded or failed. The
//! script returns everything that the page could find out.

/// One attempt.
#[derive(Debug, Clone, Copy)]
pub struct CrossOriginAttempt {
    pub name: &'static str,
    pub script: &'static str,
    /// The result for a page of a declared origin.
    pub declared_result: DeclaredOriginResult,
    /// The path of a request that is sent after the script has ended.
    pub late_path: Option<&'static str>,
}

/// The result of an attempt for a page of a declared origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclaredOriginResult {
    /// It reads stored data or the server's message, which contains this text.
    Reads(&'static str),
    /// It changes stored data.
    Changes,
    /// Nothing either: these requests carry no `Origin`, or their results are not readable as data.
    Nothing,
}

use DeclaredOriginResult::{Changes, Nothing, Reads};

/// Script that runs before each attempt.
pub const PRELUDE: &str = r#"
    const JSON_TYPE = {'Content-Type': 'application/json'}
    const BODY = '{"customer":{"name":"Eve","email":"eve@evil.example"}}'
    const CHANGED = '{"customer":{"name":"Mallory","email":"m@evil.example"}}'
    const told = promise => promise.then(
        async answer => `${answer.type} ${answer.status} ${await answer.text()}`, error => `refused: ${error.name}`)
    const settled = element => new Promise(resolve => {
        element.onload = () => resolve('loaded')
        element.onerror = () => resolve('failed')
        document.body.append(element)
    })
    const make = (name, properties) => Object.assign(document.createElement(name), properties)
    const ask = (method, url, body, type) => new Promise(resolve => {
        const request = new XMLHttpRequest()
        request.open(method, url)
        request.withCredentials = true
        if (type) request.setRequestHeader('Content-Type', type)
        request.onload = () => resolve(`${request.status} ${request.responseText}`)
        request.onerror = () => resolve('refused')
        request.send(body)
    })
    const form = (method, enctype, fields) => {
        const frame = make('iframe', {name: 'into' + Math.random()})
        const shown = settled(frame)
        const sent = make('form', {method, enctype, action: V + '/customers', target: frame.name})
        for (const [name, value] of fields) sent.append(make('input', {name, value}))
        document.body.append(sent)
        return shown.then(() => new Promise(resolve => {
            frame.onload = () => resolve(look(frame))
            sent.submit()
        }))
    }
    const look = frame => {
        try { return frame.contentDocument ? frame.contentDocument.body.innerText : 'hidden' }
        catch (error) { return 'hidden' }
    }
"#;

const fn attempt(
    name: &'static str,
    declared: DeclaredOriginResult,
    script: &'static str,
) -> CrossOriginAttempt {
    CrossOriginAttempt { name, script, declared_result: declared, late_path: None }
}

const fn late_attempt(
    name: &'static str,
    at: &'static str,
    script: &'static str,
) -> CrossOriginAttempt {
    CrossOriginAttempt { name, script, declared_result: Nothing, late_path: Some(at) }
}

pub const READS: &[CrossOriginAttempt] = &[
    attempt(
        "fetch, as anybody",
        Reads("401"),
        "told(fetch(V + '/customers', {credentials: 'omit'}))",
    ),
    attempt("fetch", Reads("Ann"), "told(fetch(V + '/customers', {credentials: 'include'}))"),
    attempt("fetch, an item", Reads("Ann"), "told(fetch(V + ITEM, {credentials: 'include'}))"),
    attempt(
        "fetch, users",
        Reads("admin"),
        "told(fetch(V + '/-/users', {credentials: 'include'}))",
    ),
    attempt(
        "fetch, metrics",
        Reads("nouns_"),
        "told(fetch(V + '/-/metrics', {credentials: 'include'}))",
    ),
    attempt("fetch, health", Reads("ok"), "told(fetch(V + '/-/health'))"),
    attempt(
        "fetch, not there",
        Reads("404"),
        "told(fetch(V + '/nowhere', {credentials: 'include'}))",
    ),
    attempt(
        "fetch, moved",
        Reads("Ann"),
        "told(fetch(V + '/customers/', {credentials: 'include'}))",
    ),
    attempt(
        "fetch, with a header of its own",
        Reads("Ann"),
        "told(fetch(V + '/customers', {credentials: 'include', headers: {'If-None-Match': '\"1\"'}}))",
    ),
    attempt(
        "fetch, blind",
        Nothing,
        "told(fetch(V + '/customers', {credentials: 'include', mode: 'no-cors'}))",
    ),
    attempt(
        "fetch, HEAD",
        Reads("200"),
        "told(fetch(V + '/customers', {method: 'HEAD', credentials: 'include'}))",
    ),
    attempt("XMLHttpRequest", Reads("Ann"), "ask('GET', V + '/customers')"),
    attempt(
        "EventSource",
        Reads("Ann"),
        "new Promise(resolve => { const source = new EventSource(V + '/customers?snapshot=true', {withCredentials: true}); \
         source.addEventListener('item', message => { source.close(); resolve(message.data) }); \
         source.onerror = () => { source.close(); resolve('failed') } })",
    ),
    attempt("script", Nothing, "settled(make('script', {src: V + '/customers'}))"),
    attempt(
        "script, with credentials",
        Nothing,
        "settled(make('script', {src: V + '/customers', crossOrigin: 'use-credentials'}))",
    ),
    attempt("module", Nothing, "import(V + '/customers').then(() => 'loaded', () => 'failed')"),
    attempt("style", Nothing, "settled(make('link', {rel: 'stylesheet', href: V + '/customers'}))"),
    attempt("image", Nothing, "settled(make('img', {src: V + '/customers'}))"),
    attempt("image, not there", Nothing, "settled(make('img', {src: V + '/nowhere'}))"),
    attempt(
        "prefetch",
        Nothing,
        "settled(make('link', {rel: 'prefetch', href: V + '/customers'}))",
    ),
    attempt(
        "frame",
        Nothing,
        "(frame => settled(frame).then(() => look(frame)))(make('iframe', {src: V + '/customers'}))",
    ),
    attempt(
        "object",
        Nothing,
        "settled(make('object', {data: V + '/customers', type: 'application/json'}))",
    ),
    attempt(
        "embed",
        Nothing,
        "(embed => settled(embed).then(() => embed.getSVGDocument() ? 'shown' : 'hidden'))\
         (make('embed', {src: V + '/customers'}))",
    ),
    attempt("form, GET", Nothing, "form('get', '', [['limit', '5']])"),
];

/// Without fetch metadata the server cannot tell these from a person who logs out.
pub const LOGOUTS: &[CrossOriginAttempt] = &[
    attempt(
        "logout, blind",
        Nothing,
        "told(fetch(V + '/-/logout', {credentials: 'include', mode: 'no-cors'}))",
    ),
    attempt("logout, image", Nothing, "settled(make('img', {src: V + '/-/logout'}))"),
];

pub const WRITES: &[CrossOriginAttempt] = &[
    attempt(
        "fetch, POST of JSON",
        Changes,
        "told(fetch(V + '/customers', {method: 'POST', credentials: 'include', headers: JSON_TYPE, body: BODY}))",
    ),
    attempt(
        "fetch, PUT",
        Changes,
        "told(fetch(V + ITEM, {method: 'PUT', credentials: 'include', headers: JSON_TYPE, body: CHANGED}))",
    ),
    attempt(
        "fetch, PATCH",
        Changes,
        "told(fetch(V + ITEM, {method: 'PATCH', credentials: 'include', headers: JSON_TYPE, body: '{\"customer\":{\"name\":\"Mallory again\"}}'}))",
    ),
    attempt(
        "fetch, POST of plain text",
        Reads("415"),
        "told(fetch(V + '/customers', {method: 'POST', credentials: 'include', body: BODY}))",
    ),
    attempt(
        "fetch, POST of no type",
        Changes,
        "told(fetch(V + '/customers', {method: 'POST', credentials: 'include', body: new Blob([BODY])}))",
    ),
    attempt(
        "fetch, blind POST of no type",
        Changes,
        "told(fetch(V + '/customers', {method: 'POST', mode: 'no-cors', credentials: 'include', \
         body: new Blob([BODY])}))",
    ),
    attempt(
        "fetch, blind POST of plain text",
        Nothing,
        "told(fetch(V + '/customers', {method: 'POST', mode: 'no-cors', credentials: 'include', body: BODY}))",
    ),
    attempt(
        "fetch, blind POST of JSON",
        Nothing,
        "told(fetch(V + '/customers', {method: 'POST', mode: 'no-cors', credentials: 'include', \
         headers: JSON_TYPE, body: BODY}))",
    ),
    attempt(
        "fetch, blind POST of a form",
        Nothing,
        "told(fetch(V + '/customers', {method: 'POST', mode: 'no-cors', credentials: 'include', \
         body: new URLSearchParams({customer: BODY})}))",
    ),
    attempt(
        "fetch, blind POST of parts",
        Nothing,
        "(parts => { parts.append('customer', new Blob([BODY], {type: 'application/json'})); \
         return told(fetch(V + '/customers', {method: 'POST', mode: 'no-cors', credentials: 'include', body: parts})) \
         })(new FormData())",
    ),
    attempt(
        "XMLHttpRequest, POST of plain text",
        Reads("415"),
        "ask('POST', V + '/customers', BODY)",
    ),
    attempt(
        "XMLHttpRequest, POST of no type",
        Changes,
        "ask('POST', V + '/customers', new Blob([BODY]))",
    ),
    attempt(
        "XMLHttpRequest, POST of JSON",
        Changes,
        "ask('POST', V + '/customers', BODY, 'application/json')",
    ),
    late_attempt("beacon", "POST /customers", "navigator.sendBeacon(V + '/customers', BODY)"),
    CrossOriginAttempt {
        name: "beacon of no type",
        script: "navigator.sendBeacon(V + '/customers', new Blob([BODY]))",
        declared_result: Changes,
        late_path: Some("POST /customers"),
    },
    late_attempt(
        "ping",
        "POST /customers",
        "make('a', {href: '#here', ping: V + '/customers'}).click()",
    ),
    attempt("form, POST", Nothing, "form('post', '', [['customer', BODY]])"),
    attempt("form, parts", Nothing, "form('post', 'multipart/form-data', [['customer', BODY]])"),
    attempt(
        "form, plain text that is JSON",
        Nothing,
        r#"form('post', 'text/plain', [['{"customer":{"email":"eve@evil.example","name":"', '"}}']])"#,
    ),
    attempt(
        "fetch, DELETE",
        Changes,
        "told(fetch(V + ITEM, {method: 'DELETE', credentials: 'include'}))",
    ),
];
