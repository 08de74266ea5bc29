//! Rate limits by role: exactly that often, and once more.

use std::thread;
use std::time::Duration;

use crate::harness::{Answer, Backend, Person, Server, Setup};

const MODEL: &str = r#"
title = "Rates"
[server.rate_limits]
anyone = { requests = 3, seconds = 3600 }
reader = { requests = 5, seconds = 3600 }
wide = { requests = 14, seconds = 7200 }
quick = { requests = 2, seconds = 2 }
[resources.note.fields]
text = { type = "text" }
[roles.anyone]
note = ["get"]
[roles.reader]
note = ["get", "post"]
[roles.wide]
note = ["get"]
[roles.quick]
note = ["get"]
[roles.free]
note = ["get"]
"#;

fn start(backend: Backend) -> Server {
    Setup::new(backend).model(MODEL).with_authentication().start()
}

fn user(server: &Server, name: &str, roles: &[&str]) -> Person {
    let person = Person::new(name, "a good one, and long");
    server.add_user(&person, roles);
    person
}

fn request_as(server: &Server, person: &Person, line: &str, body: &str) -> Answer {
    server.request(line, &[("Authorization", &person.basic())], body)
}

/// The remaining requests in the header; the seconds are checked separately, since time passes.
fn remaining(answer: &Answer) -> &str {
    let (left, seconds) = answer.header("RateLimit").unwrap().rsplit_once(";t=").unwrap();
    assert!((1..=7200).contains(&seconds.parse::<u64>().unwrap()), "{answer:?}");
    left
}

on_every_backend! {
    fn rate_limit_counts_each_caller_separately(backend: Backend) {
        let server = start(backend);
        let [ann, bob] = ["ann", "bob"].map(|name| user(&server, name, &["reader"]));
        for number in (0..5).rev() {
            // Refused requests count too.
            let line = if number == 2 { "DELETE /notes/1" } else { "GET /notes" };
            let answer = request_as(&server, &ann, line, "");
            assert_eq!(answer.status, if number == 2 { 403 } else { 200 }, "{answer:?}");
            assert_eq!(answer.header("RateLimit-Policy"), Some("\"reader\";q=5;w=3600"));
            assert_eq!(remaining(&answer), format!("\"reader\";r={number}"));
        }
        let answer = request_as(&server, &ann, "POST /notes", r#"{"note":{}}"#);
        assert_eq!((answer.status, answer.problem().as_str()), (429, "too-many-requests"), "{answer:?}");
        assert_eq!(answer.json()["detail"], "reader: expected at most 5 requests in 3600 s");
        assert_eq!((remaining(&answer), answer.header("RateLimit-Policy")), ("\"reader\";r=0", Some("\"reader\";q=5;w=3600")));
        let wait: u64 = answer.header("Retry-After").unwrap().parse().unwrap();
        assert!((3_500..=3_600).contains(&wait), "{wait}");
        // Another caller with the same role has the full quota, and the refused writes changed nothing.
        let answer = request_as(&server, &bob, "GET /notes", "");
        assert_eq!(remaining(&answer), "\"reader\";r=4");
        assert_eq!(answer.json()["notes"], serde_json::json!([]));
    }

    fn rate_limit_of_the_most_generous_role_applies(backend: Backend) {
        let server = start(backend);
        let ann = user(&server, "ann", &["reader", "wide", "quick"]);
        // 14 in two hours are more than 5 in one; 2 in 2 seconds are more than both.
        let answer = request_as(&server, &ann, "GET /notes", "");
        assert_eq!(answer.header("RateLimit-Policy"), Some("\"quick\";q=2;w=2"));
        let bob = user(&server, "bob", &["reader", "wide"]);
        assert_eq!(remaining(&request_as(&server, &bob, "GET /notes", "")), "\"wide\";r=13");
        for person in [user(&server, "eve", &["reader", "free"]), server.admin()] {
            for _ in 0..8 {
                let answer = request_as(&server, &person, "GET /notes", "");
                assert_eq!((answer.status, answer.header("RateLimit")), (200, None));
            }
        }
        // A user without roles has the limit of anonymous callers, and yet is counted by name.
        let dan = user(&server, "dan", &[]);
        assert_eq!(remaining(&request_as(&server, &dan, "GET /notes", "")), "\"anyone\";r=2");
        assert_eq!(remaining(&server.get("/notes")), "\"anyone\";r=2");
    }

    /// Counted by address. A challenge costs nothing, so that every client can log in.
    fn rate_limit_of_anonymous_callers_is_per_address(backend: Backend) {
        let server = start(backend);
        let ann = user(&server, "ann", &["reader"]);
        let ask_who = || {
            let answer = server.post("/notes", r#"{"note":{}}"#);
            assert_eq!((answer.status, answer.header("RateLimit")), (401, None), "{answer:?}");
        };
        for number in (0..3).rev() {
            ask_who();
            assert_eq!(remaining(&server.get("/notes")), format!("\"anyone\";r={number}"));
        }
        assert_eq!(server.get("/notes").status, 429);
        ask_who();
        assert_eq!(request_as(&server, &ann, "GET /notes", "").status, 200);
        // Nor does the limit apply to the management of the server.
        assert_eq!((server.get("/-/ready").status, server.get("/-/ready").header("RateLimit")), (200, None));
    }

    fn rate_limit_resets_after_its_window(backend: Backend) {
        let server = start(backend);
        let ann = user(&server, "ann", &["quick"]);
        let mut rounds = 0;
        // Retried until three requests were sent within one window: on a busy machine it may end in
        // between.
        let refused = loop {
            let answer = request_as(&server, &ann, "GET /notes", "");
            if answer.status == 429 {
                break answer;
            }
            rounds += 1;
            assert!(rounds < 100, "never refused");
        };
        assert!(rounds >= 2, "{rounds}");
        let wait: u64 = refused.header("Retry-After").unwrap().parse().unwrap();
        assert!((1..=2).contains(&wait), "{wait}");
        thread::sleep(Duration::from_secs(wait));
        let answer = request_as(&server, &ann, "GET /notes", "");
        assert_eq!((answer.status, remaining(&answer)), (200, "\"quick\";r=1"), "{answer:?}");
    }
}
