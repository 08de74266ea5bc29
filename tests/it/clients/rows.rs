//! The clients, a row for each of their ways to log in. `docs/explanation/tested-clients.md` shows them.

use super::client_row::ChallengePolicy::{EachTime, Never, Once};
use super::client_row::ClientRow;
use super::client_row::LifecycleAction::{
    Children, Create, Delete, Gone, List, Query, Read, Replace,
};
use super::client_row::LoginResult::{NotSent, Refused, Works};
use super::client_row::OfferedSchemes::{Basic, Digest};

pub const ALL: &[ClientRow] = &[
    curl("curl --digest", "digest").challenges(EachTime, 2),
    curl("curl --anyauth", "anyauth").challenges(EachTime, 2),
    curl("curl --basic", "basic"),
    curl("curl --digest --http2", "digest http2").challenges(EachTime, 2).tls_only(),
    curl("curl --anyauth --http2", "anyauth http2").challenges(EachTime, 2).tls_only(),
    curl("curl --basic --http2", "basic http2").tls_only(),
    wget("wget, Digest", "wget digest")
        .program("wget", "1.21")
        .challenges(EachTime, 2)
        .only_with(Digest),
    wget("wget, Basic", "wget either").program("wget", "1.21").challenges(EachTime, 2),
    wget("wget --auth-no-challenge", "wget basic").program("wget", "1.21"),
    wget("wget2", "wget2 digest")
        .program("wget2", "1.99")
        .challenges(EachTime, 2)
        .only_with(Digest)
        .failing_actions(READ_ONLY),
    wget("wget2 --auth-no-challenge", "wget2 basic")
        .program("wget2", "1.99")
        .challenges(Never, 2)
        .failing_actions(READ_ONLY),
    ClientRow::new("requests, HTTPDigestAuth", "python-requests.py", "digest")
        .program("requests", "2.34")
        .challenges(Once, 2)
        .login_results(LATIN1_ONLY),
    ClientRow::new("requests, HTTPBasicAuth", "python-requests.py", "basic")
        .program("requests", "2.34"),
    ClientRow::new("httpx, DigestAuth", "python-httpx.py", "digest")
        .program("httpx", "0.28")
        .challenges(Once, 2)
        .login_results([Works, NotSent, Works, NotSent]),
    ClientRow::new("httpx, BasicAuth", "python-httpx.py", "basic").program("httpx", "0.28"),
    ClientRow::new("aiohttp, DigestAuthMiddleware", "python-aiohttp.py", "digest")
        .program("aiohttp", "3.14")
        .challenges(Once, 2),
    ClientRow::new("aiohttp, encode_basic_auth", "python-aiohttp.py", "basic")
        .program("aiohttp", "3.14"),
    ClientRow::new("urllib, HTTPDigestAuthHandler", "python-urllib.py", "digest")
        .program("urllib", "3.")
        .challenges(EachTime, 7)
        .login_results([NotSent; 4]),
    ClientRow::new("urllib, HTTPBasicAuthHandler", "python-urllib.py", "basic")
        .program("urllib", "3.")
        .challenges(EachTime, 2),
    ClientRow::new("httplib2, Digest", "python-httplib2.py", "digest")
        .program("httplib2", "0.32")
        .challenges(Once, 3)
        .login_results(LATIN1_ONLY),
    ClientRow::new("httplib2, Basic", "python-httplib2.py", "basic")
        .program("httplib2", "0.32")
        .challenges(Once, 2)
        .only_with(Basic),
    ClientRow::new("HTTPie, digest", "python-httpie.py", "digest")
        .program("httpie", "3.2")
        .challenges(EachTime, 2)
        .login_results(LATIN1_ONLY),
    ClientRow::new("HTTPie, basic", "python-httpie.py", "basic").program("httpie", "3.2"),
    ClientRow::new("Node, fetch with a header", "node-fetch.mjs", "basic")
        .program("node_fetch", "20."),
    ClientRow::new("Node, digest-fetch", "digest-fetch.mjs", "digest")
        .program("digest_fetch", "3.1")
        .challenges(Once, 2)
        .login_results(LATIN1_ONLY),
    ClientRow::new("Node, digest-fetch with basic", "digest-fetch.mjs", "basic")
        .program("digest_fetch", "3.1")
        .login_results([Works, Works, NotSent, NotSent]),
    ClientRow::new("Node, urllib with digestAuth", "npm-urllib.mjs", "digest")
        .program("npm_urllib", "4.9")
        .challenges(EachTime, 2)
        .login_results(LATIN1_ONLY),
    ClientRow::new("Node, urllib with auth", "npm-urllib.mjs", "basic")
        .program("npm_urllib", "4.9"),
    ClientRow::new("Node, @mhoc/axios-digest-auth", "axios-digest-auth.mjs", "digest")
        .program("axios_digest_auth", "0.8")
        .challenges(EachTime, 2)
        .login_results([Refused, Refused, Refused, NotSent])
        .failing_actions(NEVER_LOGGED_IN),
    java("Java, HttpURLConnection, Digest", "connection digest")
        .challenges(Once, 20)
        .login_results([Refused; 4]),
    java("Java, HttpURLConnection, Basic", "connection basic")
        .challenges(Once, 20)
        .only_with(Basic),
    java("Java, HttpClient, Basic", "client basic").challenges(Once, 5).reported_status(0),
    ClientRow::new("Perl, LWP with credentials", "lwp.pl", "digest")
        .program("lwp", "6.68")
        .challenges(Once, 2)
        .reported_status(400),
    ClientRow::new("Perl, LWP with authorization_basic", "lwp.pl", "basic").program("lwp", "6.68"),
    browser("Chromium, Digest", "chromium digest").program("chromium", "156").challenges(Once, 2),
    browser("Chromium, Basic", "chromium basic")
        .program("chromium", "156")
        .challenges(Once, 2)
        .only_with(Basic),
    browser("Firefox, Digest", "firefox digest")
        .program("firefox", "153")
        .challenges(Once, 3)
        .login_results([Works, Refused, Works, Refused]),
    browser("Firefox, Basic", "firefox basic")
        .program("firefox", "153")
        .challenges(Once, 3)
        .only_with(Basic),
];

/// A header holds no letter beyond Latin-1.
const LATIN1_ONLY: [super::client_row::LoginResult; 4] = [Works, Works, Works, NotSent];

/// It has no method but GET and POST, and adds a `Content-Type` of its own to the one that is set.
const READ_ONLY: &[(super::client_row::LifecycleAction, u16)] =
    &[(Create, 415), (Query, 415), (Replace, 0), (Delete, 0), (Gone, 200)];

/// It leaves out `opaque`, and the query of `uri`.
const NEVER_LOGGED_IN: &[(super::client_row::LifecycleAction, u16)] = &[
    (List, 400),
    (Create, 401),
    (Query, 400),
    (Read, 401),
    (Replace, 401),
    (Children, 400),
    (Delete, 401),
    (Gone, 401),
];

const fn curl(name: &'static str, scheme: &'static str) -> ClientRow {
    ClientRow::new(name, "curl.sh", scheme).program("curl", "7.88")
}

const fn wget(name: &'static str, scheme: &'static str) -> ClientRow {
    ClientRow::new(name, "wget.sh", scheme)
}

const fn java(name: &'static str, scheme: &'static str) -> ClientRow {
    ClientRow::new(name, "Java.java", scheme).program("java", "17.")
}

const fn browser(name: &'static str, scheme: &'static str) -> ClientRow {
    ClientRow::new(name, "browser.mjs", scheme)
}
