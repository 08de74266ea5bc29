//! A real browser at a real server: what pages of others can do to somebody who is logged in, what
//! pages of declared origins can do, how a person logs in and out.
//!
//! Pages of others try everything in `attempts`; after each try the data is as it was.
//! The one surprising thing: a browser tells a server which page a request comes from over TLS and to
//! loopback addresses alone, so each attempt is made at an address of either kind.

mod answers;
mod attempts;
mod chromium;
mod elsewhere;
mod logins;
mod logout;
mod others;
mod rebinding;

use crate::harness::{Backend, Person, Server, Setup};

const STORE: &str = include_str!("../../../examples/store/nouns.toml");

/// The built-in store, closed, with another line for its realm and lines of `[server]`.
fn store(backend: Backend, realm: &str, server: &str) -> Server {
    let schemes = r#"schemes = ["digest", "basic"]"#;
    assert!(STORE.contains(schemes));
    let text = format!("{}\n[server]\n{server}\n", STORE.replace(schemes, realm));
    let server = Setup::new(backend).model(&text).closed().start();
    server.add_user(&watcher(), &["admin"]);
    server
}

/// Who looks at what is stored: somebody else than the person at the browser, so that the log tells.
fn watcher() -> Person {
    Person::new("watcher", "sees all of it")
}

/// Basic alone; what there is unless said, from which Chromium chooses MD5; SHA-256.
const REALMS: [(&str, &str); 3] = [
    ("Basic", r#"schemes = ["basic"]"#),
    ("Digest MD5", r#"schemes = ["digest", "basic"]"#),
    ("Digest SHA-256", "schemes = [\"digest\", \"basic\"]\nchallenge = \"separate\""),
];

const ANN: &str = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;

/// A customer, made by the first user, and its path.
fn add_ann(server: &Server) -> String {
    let admin = server.admin().basic();
    let answer = server.request("POST /customers", &[("Authorization", &admin)], ANN);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.header("Location").unwrap().to_owned()
}

/// All that is stored.
fn stored(server: &Server) -> String {
    let watcher = watcher().basic();
    let all = ["/customers", "/-/users"].map(|path| {
        let answer = server.request(&format!("GET {path}"), &[("Authorization", &watcher)], "");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.text().to_owned()
    });
    all.concat()
}

/// The requests that the server has logged, but for the first ones: method and path, status, caller.
fn logged(server: &Server, skipped: usize) -> Vec<(String, u64, String)> {
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains(r#""message":"request""#)).skip(skipped);
    let requests = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let shown = requests.map(|line| {
        let what = format!("{} {}", text(&line["method"]), text(&line["path"]));
        (what, line["status"].as_u64().unwrap(), text(&line["caller"]))
    });
    shown.collect()
}

/// How many requests the server has logged.
fn logged_count(server: &Server) -> usize {
    server.log().matches(r#""message":"request""#).count()
}
