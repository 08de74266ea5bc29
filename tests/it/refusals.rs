//! Responses to requests that reach no route: the head cannot be parsed, or its target does not exist.
//!
//! `framing` tests that they are refused; here are the contents of the responses.

use crate::framing::{HOST, get, start};
use crate::harness::{Answer, Backend, Server, Setup};

/// Header lines that cannot be parsed.
const BROKEN: &[&str] =
    &["X : y\r\n", "X: a\rb\r\n", "X: a\0b\r\n", "X\r\n", ": y\r\n", "X: y\r\n z\r\n"];
/// Header lines that can be parsed, but leave the end of the message unknown.
const UNFRAMED: &[&str] = &[
    "Content-Length: 3\r\nContent-Length: 4\r\n",
    "Content-Length: +3\r\n",
    "Transfer-Encoding: gzip\r\n",
];

fn start_with_base_path(backend: Backend) -> Server {
    let model = "title = \"Under\"\n[server]\nbase_path = \"/v1\"\n[resources.cup]\nid = \"integer\"\n\
                 [resources.cup.fields]\nsize = { type = \"integer\" }\n";
    Setup::new(backend).model(model).start()
}

fn content_type(answer: &Answer) -> Option<&str> {
    answer.header("Content-Type")
}

/// Regression: the refusal was problem+json, whatever the client accepted.
#[test]
fn refusal_of_an_unparsable_head_follows_accept() {
    let server = start();
    for lines in BROKEN {
        for (accept, expected) in [
            ("", Some("application/problem+json")),
            ("Accept: */*\r\n", Some("application/problem+json")),
            ("Accept: application/json\r\n", Some("application/json")),
            ("accept:application/json\r\n", Some("application/json")),
            ("Accept: image/png\r\nAccept: application/json\r\n", Some("application/json")),
            ("Accept: text/plain\r\n", None),
        ] {
            let answer = server.send(get(&format!("{accept}{lines}")));
            assert_eq!(
                (answer.status, content_type(&answer)),
                (400, expected),
                "{accept:?} {lines:?}"
            );
            assert_eq!(answer.body.is_empty(), expected.is_none(), "{accept:?} {lines:?}");
            assert_eq!(answer.header("Connection"), Some("close"));
        }
    }
}

/// Regression: a refusal after the head was parsed was always problem+json, since the head was
/// discarded.
#[test]
fn refusal_after_the_head_was_parsed_follows_accept() {
    let server = start();
    let head = |line: &str, headers: &str| format!("{line}\r\n{HOST}{headers}\r\n");
    let mut heads: Vec<(String, u16)> =
        UNFRAMED.iter().map(|lines| (head("GET / HTTP/1.1", lines), 400)).collect();
    let huge = "Content-Length: 18446744073709551615\r\n";
    heads.push((head("POST /customers HTTP/1.1", huge), 413));
    heads.push((head("POST / HTTP/1.0", "Transfer-Encoding: chunked\r\n"), 400));
    heads.push((head("GET http:// HTTP/1.1", ""), 400));
    heads.push((head("GET / HTTP/3.0", ""), 505));
    for (text, status) in heads {
        for (accept, expected) in [
            ("", Some("application/problem+json")),
            ("Accept: application/json\r\n", Some("application/json")),
            ("Accept: image/png\r\naccept:application/json\r\n", Some("application/json")),
            ("Accept: text/plain\r\n", None),
        ] {
            let request = text.replacen(HOST, &format!("{HOST}{accept}"), 1);
            // Also after another request, and in pieces.
            for front in ["", &get("Accept: */*\r\n"), "\r\n"] {
                let mut client = server.client();
                let whole = format!("{front}{request}");
                // A version is refused as soon as it is read, so the head has to be complete.
                let rest = if status == 505 { 0 } else { 7 };
                let (first, second) = whole.split_at(whole.len() - rest);
                client.write(first.as_bytes());
                client.write(second.as_bytes());
                if front.len() > 2 {
                    assert_eq!(client.read_answer(false).status, 200);
                }
                let answer = client.read_answer(false);
                assert_eq!((answer.status, content_type(&answer)), (status, expected), "{whole:?}");
                assert_eq!(answer.body.is_empty(), expected.is_none(), "{whole:?}");
                assert!(client.is_closed(), "{whole:?}");
            }
        }
    }
}

/// Regression: the parser's message was the detail: it means nothing to a client, and changes with the
/// crate.
#[test]
fn refusal_logs_the_parser_message_without_sending_it() {
    let server = start();
    for lines in [BROKEN, UNFRAMED].concat() {
        let answer = server.send(get(lines));
        let body = answer.json();
        assert_eq!(answer.problem(), "bad-request", "{lines:?}");
        assert_eq!(body.get("detail"), None, "{lines:?}");
        assert_eq!(body["title"], "The request is not well-formed HTTP");
        let id = answer.header("X-Request-Id").unwrap().to_owned();
        let line = crate::harness::wait_until("the cause is in the log", || {
            server.log().lines().find(|line| line.contains(&id)).map(str::to_owned)
        });
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(line["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{line}");
    }
}

/// Regression: it was routed, and no name in the database could ever match it.
#[test]
fn refusal_of_a_target_outside_ascii() {
    let server = start();
    for target in ["/customers/\u{e9}", "/customers?x=\u{e9}", "/\u{1f388}"] {
        let answer = server.send(format!("GET {target} HTTP/1.1\r\n{HOST}\r\n"));
        assert_eq!((answer.status, answer.problem().as_str()), (400, "bad-request"), "{target}");
    }
    let latin = [b"GET /customers/\xe9 HTTP/1.1\r\n", HOST.as_bytes(), b"\r\n"].concat();
    assert_eq!(server.send(latin).problem(), "bad-request");
    // Percent-encoded it is a path like any other.
    assert_eq!(server.get("/customers/%C3%A9").problem(), "not-found");
}

on_every_backend! {
    fn base_path_applies_to_every_path(backend: Backend) {
        let server = start_with_base_path(backend);
        let created = server.post("/v1/cups", r#"{"cup":{"size":1}}"#);
        assert_eq!((created.status, created.header("Location")), (201, Some("/v1/cups/1")));
        server.create("/v1/cups", r#"{"cup":{"size":2}}"#);
        assert_eq!(server.get("/v1/cups/1").status, 200);
        let page = server.get("/v1/cups?limit=1");
        let cursor = page.json()["page"]["next"].as_str().unwrap().to_owned();
        assert_eq!(page.header("Link"), Some(&*format!("</v1/cups?limit=1&cursor={cursor}>; rel=\"next\"")));
        assert_eq!(server.get(&format!("/v1/cups?limit=1&cursor={cursor}")).json()["cups"][0]["id"], 2);
        assert_eq!(server.get("/v1/cups/").header("Location"), Some("/v1/cups"));
        for home in ["/v1", "/v1/"] {
            assert_eq!(server.get(home).json()["resources"][0]["path"], "/v1/cups", "{home}");
        }
        assert_eq!((server.get("/v1/-/health").status, server.get("/v1/-/ready").status), (200, 200));
        for outside in ["/", "/cups", "/cups/1", "/-/health", "/-/ready", "/v2/cups", "/v1cups", "/v1/v1/cups", "//v1/cups", "/V1/cups"] {
            let answer = server.get(outside);
            assert_eq!((answer.status, &answer.json()["type"]), (404, &"/v1/-/problems/no-such-path".into()), "{outside}");
            assert_eq!(answer.json()["instance"], outside);
        }
    }

    /// The URL of a problem's type can be followed, even where no request was understood.
    fn base_path_is_in_the_type_of_every_problem(backend: Backend) {
        let server = start_with_base_path(backend);
        let refusals = [
            server.get("/v1/cups/9"),
            server.get("/v1/cups?x=1"),
            server.post("/v1/cups", "{"),
            server.post("/v1/cups", r#"{"cup":{"size":"large"}}"#),
            server.request("BREW /v1/cups", &[], ""),
            server.send("GET /v1/cups HTTP/1.1\r\n\r\n"),
            server.send(get("X : y\r\n")),
            server.send("garbage\r\n\r\n"),
        ];
        for refused in refusals {
            let body = refused.json();
            let page = server.get(body["type"].as_str().unwrap());
            assert_eq!(page.status, 200, "{refused:?}");
            assert_eq!(page.json()["problem"]["title"], body["title"], "{refused:?}");
        }
    }
}
