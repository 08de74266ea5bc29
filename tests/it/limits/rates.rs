//! How often a caller may ask, by role: exactly so often, and once more.

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
    Setup::new(backend).model(MODEL).closed().start()
}

fn user(server: &Server, name: &str, roles: &[&str]) -> Person {
    let person = Person::new(name, "a good one, and long");
    server.add_user(&person, roles);
    person
}

fn ask(server: &Server, person: &Person, line: &str, body: &str) -> Answer {
    server.request(line, &[("Authorization", &person.basic())], body)
}

/// What is left, by the header; the seconds are checked apart, since time passes.
fn left(answer: &Answer) -> &str {
    let (left, seconds) = answer.header("RateLimit").unwrap().rsplit_once(";t=").unwrap();
    assert!((1..=7200).contains(&seconds.parse::<u64>().unwrap()), "{answer:?}");
    left
}

on_every_backend! {
    fn so_often_for_each_caller(backend: Backend) {
        let server = start(backend);
        let [ann, bob] = ["ann", "bob"].map(|name| user(&server, name, &["reader"]));
        for number in (0..5).rev() {
            // What is refused counts too.
            let line = if number == 2 { "DELETE /notes/1" } else { "GET /notes" };
            let answer = ask(&server, &ann, line, "");
            assert_eq!(answer.status, if number == 2 { 403 } else { 200 }, "{answer:?}");
            assert_eq!(answer.header("RateLimit-Policy"), Some("\"reader\";q=5;w=3600"));
            assert_eq!(left(&answer), format!("\"reader\";r={number}"));
        }
        let answer = ask(&server, &ann, "POST /notes", r#"{"note":{}}"#);
        assert_eq!((answer.status, answer.problem().as_str()), (429, "too-many-requests"), "{answer:?}");
        assert_eq!(answer.json()["detail"], "reader: expected at most 5 requests in 3600 s");
        assert_eq!((left(&answer), answer.header("RateLimit-Policy")), ("\"reader\";r=0", Some("\"reader\";q=5;w=3600")));
        let wait: u64 = answer.header("Retry-After").unwrap().parse().unwrap();
        assert!((3_500..=3_600).contains(&wait), "{wait}");
        // Another one with the same role has all of it, and nothing was done.
        let answer = ask(&server, &bob, "GET /notes", "");
        assert_eq!(left(&answer), "\"reader\";r=4");
        assert_eq!(answer.json()["notes"], serde_json::json!([]));
    }

    fn the_widest_role_counts(backend: Backend) {
        let server = start(backend);
        let ann = user(&server, "ann", &["reader", "wide", "quick"]);
        // 14 in two hours are more than 5 in one; 2 in 2 seconds are more than both.
        let answer = ask(&server, &ann, "GET /notes", "");
        assert_eq!(answer.header("RateLimit-Policy"), Some("\"quick\";q=2;w=2"));
        let bob = user(&server, "bob", &["reader", "wide"]);
        assert_eq!(left(&ask(&server, &bob, "GET /notes", "")), "\"wide\";r=13");
        for person in [user(&server, "eve", &["reader", "free"]), server.admin()] {
            for _ in 0..8 {
                let answer = ask(&server, &person, "GET /notes", "");
                assert_eq!((answer.status, answer.header("RateLimit")), (200, None));
            }
        }
        // Who has no role at all is as anyone, and yet counted by name.
        let dan = user(&server, "dan", &[]);
        assert_eq!(left(&ask(&server, &dan, "GET /notes", "")), "\"anyone\";r=2");
        assert_eq!(left(&server.get("/notes")), "\"anyone\";r=2");
    }

    /// By their address. To be asked who one is costs nothing, so that all can log in.
    fn callers_without_a_name(backend: Backend) {
        let server = start(backend);
        let ann = user(&server, "ann", &["reader"]);
        let ask_who = || {
            let answer = server.post("/notes", r#"{"note":{}}"#);
            assert_eq!((answer.status, answer.header("RateLimit")), (401, None), "{answer:?}");
        };
        for number in (0..3).rev() {
            ask_who();
            assert_eq!(left(&server.get("/notes")), format!("\"anyone\";r={number}"));
        }
        assert_eq!(server.get("/notes").status, 429);
        ask_who();
        assert_eq!(ask(&server, &ann, "GET /notes", "").status, 200);
        // Nor do those wait who look after the server.
        assert_eq!((server.get("/-/ready").status, server.get("/-/ready").header("RateLimit")), (200, None));
    }

    fn it_begins_anew(backend: Backend) {
        let server = start(backend);
        let ann = user(&server, "ann", &["quick"]);
        let mut rounds = 0;
        // Until three were asked within one span: on a busy machine it may be over between two.
        let refused = loop {
            let answer = ask(&server, &ann, "GET /notes", "");
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
        let answer = ask(&server, &ann, "GET /notes", "");
        assert_eq!((answer.status, left(&answer)), (200, "\"quick\";r=1"), "{answer:?}");
    }
}
