//! Reverse proxies: the client's address counts, and no client can forge it.
//!
//! A real nginx is in front; where a test plays the proxy itself, it says so.

mod compose;
mod nginx;
mod forwarded_headers;

use serde_json::Value;

use crate::harness::{Backend, Client, Person, Server, Setup, wait_until};
use nginx::Nginx;

/// A store that trusts a proxy on this machine, and locks out after three failures.
const STORE: &str = concat!(
    include_str!("../../../examples/store/nouns.toml"),
    "\n[server]\nbehind_proxy = \"127.0.0.1\"\n[server.limits]\nfailed_logins_max = 3\n"
);

fn start_behind_proxy(backend: Backend) -> Server {
    Setup::new(backend).model(STORE).with_authentication().start()
}

/// The log lines about a path, once there are this many.
fn logged_lines(server: &Server, path: &str, count: usize) -> Vec<Value> {
    wait_until("the lines are logged", || {
        let log = server.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let lines: Vec<Value> = lines.filter(|line| line["path"] == path).collect();
        (lines.len() >= count).then_some(lines)
    })
}

fn get(client: &mut Client, path: &str, headers: &[(&str, &str)]) -> u16 {
    client.request(&format!("GET {path}"), headers, "").status
}

/// A wrong password, by Digest, which hashes quickly.
fn guess(client: &mut Client, name: &str, headers: &[(&str, &str)]) -> u16 {
    let mut session = Person::new(name, "never this one")
        .digest(&client.request("GET /customers", &[], ""), "MD5");
    let answer = session.answer("GET /customers", b"");
    get(client, "/customers", &[headers, &[("Authorization", &answer)]].concat())
}

/// Headers that a client may send to pass for another one.
const FORGED: &[&[(&str, &str)]] = &[
    &[("X-Forwarded-For", "127.0.0.3")],
    &[("X-Forwarded-For", "127.0.0.1")],
    &[("X-Forwarded-For", "127.0.0.3, 127.0.0.1")],
    &[("X-Forwarded-For", "x"), ("X-Forwarded-Proto", "https")],
    &[("Forwarded", "for=127.0.0.3;proto=https")],
    &[("Forwarded", "for=\"")],
    &[("Forwarded", "for=127.0.0.3"), ("X-Forwarded-For", "127.0.0.3")],
    &[("X-Real-IP", "127.0.0.3"), ("X-Forwarded-Host", "evil.example")],
];

on_every_backend! {
    /// Two clients of the same proxy: one guesses and is locked out, the other is not.
    fn lockout_behind_a_proxy_counts_per_client(backend: Backend) {
        let server = start_behind_proxy(backend);
        let ann = Person::new("ann", "a good password");
        server.add_user(&ann, &["clerk"]);
        let nginx = Nginx::start(server.address);
        let (mut bad, mut good) = (nginx.client_at("127.0.0.2"), nginx.client_at("127.0.0.3"));
        for forged in &FORGED[..3] {
            assert_eq!(guess(&mut bad, "ann", forged), 401, "{forged:?}");
        }
        // Each takes some time, and all of it has to happen within a minute.
        for forged in FORGED[3..].iter().step_by(2) {
            assert_eq!(guess(&mut bad, "ann", forged), 429, "shut, whatever it says: {forged:?}");
        }
        let basic = ann.basic();
        assert_eq!(get(&mut bad, "/customers", &[("Authorization", &basic)]), 429, "for the right one too");
        assert_eq!(get(&mut good, "/customers", &[("Authorization", &basic)]), 200, "another client");
        assert_eq!(guess(&mut server.client(), "ann", &[]), 401, "and one without the proxy");
    }

    /// The log has both the peer's address and the client's.
    fn request_log_behind_a_proxy_has_the_client_address(backend: Backend) {
        let server = start_behind_proxy(backend);
        let nginx = Nginx::start(server.address);
        let mut client = nginx.client_at("127.0.0.2");
        for forged in FORGED {
            assert_eq!(get(&mut client, "/-/health", forged), 200);
        }
        for line in logged_lines(&server, "/-/health", FORGED.len()) {
            assert_eq!(line["client"], "127.0.0.2", "{line}");
            assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        }
        assert_eq!(get(&mut server.client(), "/-/ready", &[]), 200);
        assert_eq!(logged_lines(&server, "/-/ready", 1)[0].get("client"), None, "nobody stands between");
    }

    /// Many requests of many clients use few connections from nginx to the server.
    fn keep_alive_behind_a_proxy_reuses_connections(backend: Backend) {
        let server = start_behind_proxy(backend);
        let nginx = Nginx::start(server.address);
        for _ in 0..30 {
            assert_eq!(get(&mut nginx.client_at("127.0.0.2"), "/-/health", &[]), 200);
        }
        let mut peers: Vec<String> =
            logged_lines(&server, "/-/health", 30).iter().map(|line| line["peer"].to_string()).collect();
        peers.sort();
        peers.dedup();
        assert!(peers.len() <= 3, "{peers:?}");
    }

    /// A proxy passes on the other kind of header: its client cannot forge an address with it.
    fn forwarded_header_of_the_unused_kind_is_not_trusted(backend: Backend) {
        let server = start_behind_proxy(backend);
        let careless = Nginx::start_as(server.address, |text| {
            text.replace("        proxy_set_header Forwarded \"\";\n", "")
        });
        let mut client = careless.client_at("127.0.0.2");
        for forwarded in ["for=127.0.0.3", "for=127.0.0.3;proto=https", "for=\"", "for=127.0.0.1"] {
            assert_eq!(get(&mut client, "/-/health", &[("Forwarded", forwarded)]), 200);
        }
        for line in logged_lines(&server, "/-/health", 4) {
            assert_eq!(line.get("client"), None, "the proxy's own address: {line}");
        }
        assert_eq!(get(&mut client, "/-/ready", &[("Forwarded", "for=127.0.0.2")]), 200);
        assert_eq!(logged_lines(&server, "/-/ready", 1)[0]["client"], "127.0.0.2", "both say so");
    }

    /// Both schemes, writes, and the paths in responses, all through the proxy.
    fn authentication_and_writes_work_behind_a_proxy(backend: Backend) {
        let server = start_behind_proxy(backend);
        let nginx = Nginx::start(server.address);
        let mut client = nginx.client_at("127.0.0.2");
        let admin = server.admin();
        let mut session = admin.digest(&client.request("GET /customers", &[], ""), "MD5");
        let body = r#"{"customers":[{"name":"Ann","email":"a@example.com"},{"name":"Bea","email":"b@example.com"}]}"#;
        let line = "POST /customers";
        let created = client.request(line, &[("Authorization", &session.answer(line, body.as_bytes()))], body);
        assert_eq!(created.status, 201, "{created:?}");
        let basic = admin.basic();
        let authorized = [("Authorization", basic.as_str())];
        let one = client.request(line, &authorized, r#"{"customer":{"name":"Cy","email":"c@example.com"}}"#);
        assert_eq!(one.status, 201, "{one:?}");
        let item = client.request(&format!("GET {}", one.header("Location").unwrap()), &authorized, "");
        assert_eq!((item.status, &item.json()["customer"]["name"]), (200, &Value::from("Cy")));
        let page = client.request("GET /customers?limit=2", &authorized, "");
        let link = page.header("Link").unwrap();
        let next = link.strip_prefix('<').and_then(|link| link.split_once(">; rel=\"next\"")).unwrap().0;
        assert!(next.starts_with("/customers?"), "{link}");
        let page = client.request(&format!("GET {next}"), &authorized, "");
        assert_eq!(page.json()["customers"].as_array().unwrap().len(), 1);
        let moved = client.request("GET /customers/", &authorized, "");
        assert_eq!((moved.status, moved.header("Location")), (308, Some("/customers")));
    }

    /// TLS ends at the proxy: both schemes, and the origin check.
    fn https_terminated_at_a_proxy_works(backend: Backend) {
        let server = start_behind_proxy(backend);
        let nginx = Nginx::start_tls(server.address);
        let admin = server.admin();
        let user = format!("{}:{}", admin.name, admin.password);
        let status = ["-o", "/dev/null", "-w", "%{http_code} %{http_version}"];
        for scheme in ["--basic", "--digest"] {
            let args = [&status[..], &[scheme, "-u", &user]].concat();
            assert_eq!(nginx.curl("/customers", &args), "200 2", "{scheme}");
        }
        let port = nginx.address.port();
        for (origin, expected) in [
            (format!("https://shop.example:{port}"), "201 2"),
            (format!("http://shop.example:{port}"), "403 2"),
            ("https://shop.example".to_owned(), "403 2"),
            ("null".to_owned(), "403 2"),
        ] {
            let origin = format!("Origin: {origin}");
            let body = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;
            let args = [&status[..], &["--basic", "-u", &user, "-H", &origin, "--json", body]].concat();
            assert_eq!(nginx.curl("/customers", &args), expected, "{origin}");
        }
        let line = &logged_lines(&server, "/customers", 2)[1];
        assert_eq!(line.get("client"), None, "the client is at the proxy's own address: {line}");
    }
}
