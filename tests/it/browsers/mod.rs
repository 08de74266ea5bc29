//! Browser security, tested with Chromium: what cross-origin pages can do to a logged-in user, what
//! pages of declared origins can do, and how a person logs in and out.
//!
//! Pages of other origins try everything in `cross_origin_attempts`; after each attempt the data is unchanged.
//! Browsers send fetch metadata only over TLS and to loopback addresses, so each attempt is made at
//! an address of either kind.

mod response_headers;
mod cross_origin_attempts;
mod chromium;
mod foreign_site;
mod logins;
mod logout;
mod page_scripts;
mod pages;
mod cross_origin_pages;
mod dns_rebinding;
mod event_source;

use crate::harness::{ANN, Backend, Person, Server, Setup};

const STORE: &str = include_str!("../../../examples/store/nouns.toml");

/// The built-in store with authentication, with another line for its realm and lines of `[server]`.
fn start_store(backend: Backend, realm: &str, server: &str) -> Server {
    let schemes = r#"schemes = ["digest", "basic"]"#;
    assert!(STORE.contains(schemes));
    let text = format!("{}\n[server]\n{server}\n", STORE.replace(schemes, realm));
    let server = Setup::new(backend).model(&text).with_authentication().start();
    server.add_user(&watcher(), &["admin"]);
    server
}

/// The user who reads the stored data: not the person at the browser, so that the log tells them apart.
fn watcher() -> Person {
    Person::new("watcher", "sees all of it")
}

/// Basic alone; the default, from which Chromium chooses MD5; SHA-256.
const REALMS: [(&str, &str); 3] = [
    ("Basic", r#"schemes = ["basic"]"#),
    ("Digest MD5", r#"schemes = ["digest", "basic"]"#),
    ("Digest SHA-256", "schemes = [\"digest\", \"basic\"]\nchallenge = \"separate\""),
];

/// Creates a customer as the first user; returns its path.
fn create_ann(server: &Server) -> String {
    let admin = server.admin().basic();
    let answer = server.request("POST /customers", &[("Authorization", &admin)], ANN);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.header("Location").unwrap().to_owned()
}

/// All stored data.
fn stored_data(server: &Server) -> String {
    let watcher = watcher().basic();
    let all = ["/customers", "/-/users"].map(|path| {
        let answer = server.request(&format!("GET {path}"), &[("Authorization", &watcher)], "");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.text().to_owned()
    });
    all.concat()
}

/// The logged requests after the first `skipped`: method and path, status, caller.
fn logged_requests(server: &Server, skipped: usize) -> Vec<(String, u64, String)> {
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
