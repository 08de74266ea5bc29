//! The clients, a row for each of their ways to log in. `docs/explanation/tested-clients.md` shows them.

use super::kind::Act::{Children, Create, Delete, Gone, List, Query, Read, Replace};
use super::kind::Asks::{EachTime, Never, Once};
use super::kind::Fate::{Refused, Unsent, Works};
use super::kind::Kind;
use super::kind::Offered::{Basic, Digest};

pub const ALL: &[Kind] = &[
    curl("curl --digest", "digest").asks(EachTime, 2),
    curl("curl --anyauth", "anyauth").asks(EachTime, 2),
    curl("curl --basic", "basic"),
    curl("curl --digest --http2", "digest http2").asks(EachTime, 2).tls_only(),
    curl("curl --anyauth --http2", "anyauth http2").asks(EachTime, 2).tls_only(),
    curl("curl --basic --http2", "basic http2").tls_only(),
    wget("wget, Digest", "wget digest").of("wget", "1.21").asks(EachTime, 2).where_only(Digest),
    wget("wget, Basic", "wget either").of("wget", "1.21").asks(EachTime, 2),
    wget("wget --auth-no-challenge", "wget basic").of("wget", "1.21"),
    wget("wget2", "wget2 digest")
        .of("wget2", "1.99")
        .asks(EachTime, 2)
        .where_only(Digest)
        .fails(READS_ALONE),
    wget("wget2 --auth-no-challenge", "wget2 basic")
        .of("wget2", "1.99")
        .asks(Never, 2)
        .fails(READS_ALONE),
    Kind::new("requests, HTTPDigestAuth", "python-requests.py", "digest")
        .of("requests", "2.34")
        .asks(Once, 2)
        .letters(NAMES_OF_LATIN1),
    Kind::new("requests, HTTPBasicAuth", "python-requests.py", "basic").of("requests", "2.34"),
    Kind::new("httpx, DigestAuth", "python-httpx.py", "digest")
        .of("httpx", "0.28")
        .asks(Once, 2)
        .letters([Works, Unsent, Works, Unsent]),
    Kind::new("httpx, BasicAuth", "python-httpx.py", "basic").of("httpx", "0.28"),
    Kind::new("aiohttp, DigestAuthMiddleware", "python-aiohttp.py", "digest")
        .of("aiohttp", "3.14")
        .asks(Once, 2),
    Kind::new("aiohttp, encode_basic_auth", "python-aiohttp.py", "basic").of("aiohttp", "3.14"),
    Kind::new("urllib, HTTPDigestAuthHandler", "python-urllib.py", "digest")
        .of("urllib", "3.")
        .asks(EachTime, 7)
        .letters([Unsent; 4]),
    Kind::new("urllib, HTTPBasicAuthHandler", "python-urllib.py", "basic")
        .of("urllib", "3.")
        .asks(EachTime, 2),
    Kind::new("httplib2, Digest", "python-httplib2.py", "digest")
        .of("httplib2", "0.32")
        .asks(Once, 3)
        .letters(NAMES_OF_LATIN1),
    Kind::new("httplib2, Basic", "python-httplib2.py", "basic")
        .of("httplib2", "0.32")
        .asks(Once, 2)
        .where_only(Basic),
    Kind::new("HTTPie, digest", "python-httpie.py", "digest")
        .of("httpie", "3.2")
        .asks(EachTime, 2)
        .letters(NAMES_OF_LATIN1),
    Kind::new("HTTPie, basic", "python-httpie.py", "basic").of("httpie", "3.2"),
    Kind::new("Node, fetch with a header", "node-fetch.mjs", "basic").of("node_fetch", "20."),
    Kind::new("Node, digest-fetch", "digest-fetch.mjs", "digest")
        .of("digest_fetch", "3.1")
        .asks(Once, 2)
        .letters(NAMES_OF_LATIN1),
    Kind::new("Node, digest-fetch with basic", "digest-fetch.mjs", "basic")
        .of("digest_fetch", "3.1")
        .letters([Works, Works, Unsent, Unsent]),
    Kind::new("Node, urllib with digestAuth", "npm-urllib.mjs", "digest")
        .of("npm_urllib", "4.9")
        .asks(EachTime, 2)
        .letters(NAMES_OF_LATIN1),
    Kind::new("Node, urllib with auth", "npm-urllib.mjs", "basic").of("npm_urllib", "4.9"),
    Kind::new("Node, @mhoc/axios-digest-auth", "axios-digest-auth.mjs", "digest")
        .of("axios_digest_auth", "0.8")
        .asks(EachTime, 2)
        .letters([Refused, Refused, Refused, Unsent])
        .fails(NEVER_IN),
    java("Java, HttpURLConnection, Digest", "connection digest")
        .asks(Once, 20)
        .letters([Refused; 4]),
    java("Java, HttpURLConnection, Basic", "connection basic").asks(Once, 20).where_only(Basic),
    java("Java, HttpClient, Basic", "client basic").asks(Once, 5).told(0),
    Kind::new("Perl, LWP with credentials", "lwp.pl", "digest")
        .of("lwp", "6.68")
        .asks(Once, 2)
        .told(400),
    Kind::new("Perl, LWP with authorization_basic", "lwp.pl", "basic").of("lwp", "6.68"),
    browser("Chromium, Digest", "chromium digest").of("chromium", "156").asks(Once, 2),
    browser("Chromium, Basic", "chromium basic")
        .of("chromium", "156")
        .asks(Once, 2)
        .where_only(Basic),
    browser("Firefox, Digest", "firefox digest")
        .of("firefox", "153")
        .asks(Once, 3)
        .letters([Works, Refused, Works, Refused]),
    browser("Firefox, Basic", "firefox basic").of("firefox", "153").asks(Once, 3).where_only(Basic),
];

/// A header holds no letter beyond Latin-1.
const NAMES_OF_LATIN1: [super::kind::Fate; 4] = [Works, Works, Works, Unsent];

/// It has no method but GET and POST, and adds a `Content-Type` of its own to the one that is set.
const READS_ALONE: &[(super::kind::Act, u16)] =
    &[(Create, 415), (Query, 415), (Replace, 0), (Delete, 0), (Gone, 200)];

/// It leaves out `opaque`, and the query of `uri`.
const NEVER_IN: &[(super::kind::Act, u16)] = &[
    (List, 400),
    (Create, 401),
    (Query, 400),
    (Read, 401),
    (Replace, 401),
    (Children, 400),
    (Delete, 401),
    (Gone, 401),
];

const fn curl(name: &'static str, scheme: &'static str) -> Kind {
    Kind::new(name, "curl.sh", scheme).of("curl", "7.88")
}

const fn wget(name: &'static str, scheme: &'static str) -> Kind {
    Kind::new(name, "wget.sh", scheme)
}

const fn java(name: &'static str, scheme: &'static str) -> Kind {
    Kind::new(name, "Java.java", scheme).of("java", "17.")
}

const fn browser(name: &'static str, scheme: &'static str) -> Kind {
    Kind::new(name, "browser.mjs", scheme)
}
