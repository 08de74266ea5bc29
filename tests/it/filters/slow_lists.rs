//! Lists that exceed their time limit: they are cancelled, and the problem suggests an alternative.
//!
//! A search for words that nearly match everywhere in long texts makes them slow.

use serde_json::json;

use crate::harness::{Backend, Person, Setup, wait_until};

const LIMITS: &str = "[server.limits]\nstatement_seconds_max = 1\n";

const MODEL: &str = r#"
title = "Slow"
[resources.note]
changes = "ids"
[resources.note.fields]
text = { type = "text", filter = true }
owner = { type = "text" }
[roles.reader]
note = { verbs = ["get"], where = "owner = $user" }
"#;

/// This many, so that one after the other they take seconds at the least.
const NOTES: usize = 48;

/// Words that match only at the end of each text: one nearly matches from the text's first letter on,
/// the other from its last.
fn query() -> String {
    let (one, other) = ("x".repeat(180) + "y", "y".to_owned() + &"x".repeat(180));
    let terms = (0..19).map(|number| format!("text:contains={}", [&one, &other][number % 2]));
    // Found nowhere, and searched for last: every text has to be searched.
    terms.chain(["text:contains=z".to_owned()]).collect::<Vec<_>>().join("&")
}

on_every_backend! {
    fn slow_list_is_cancelled_with_a_hint(backend: Backend) {
        let setup = Setup::new(backend).with_authentication();
        let server = setup.clone().model(MODEL).start();
        let ann = Person::new("ann", "reads what is hers");
        server.add_user(&ann, &["reader"]);
        let (admin, ann) = (server.admin().basic(), ann.basic());
        let text = "x".repeat(1_000_000) + "y" + &"x".repeat(200);
        let body = json!({"note": {"text": text, "owner": "ann"}}).to_string();
        let mut client = server.client();
        for _ in 0..NOTES {
            assert_eq!(client.request("POST /notes", &[("Authorization", &admin)], &body).status, 201);
        }
        // Only the lists are limited; writing these takes longer on a slow machine.
        let server = setup.model(&format!("{MODEL}{LIMITS}")).start_in(server.stop());
        let line = format!("GET /notes?{}&fields=id", query());
        for caller in [&admin, &ann] {
            let answer = server.request(&line, &[("Authorization", caller)], "");
            assert_eq!((answer.status, answer.problem().as_str()), (503, "timed-out"), "{answer:?}");
            assert!(answer.header("Retry-After").is_some(), "{answer:?}");
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.starts_with("no index helps with text:contains, "), "{detail}");
            assert!(!answer.text().contains("owner"), "{answer:?}");
            // Only a caller with a `where` is slowed by it, and only the log reports it.
            let id = answer.header("X-Request-Id").unwrap();
            let logged = wait_until("the request is logged", || {
                server.log().lines().find(|line| line.contains(id)).map(str::to_owned)
            });
            let is_told = logged.contains("not declared filter = true: note.owner");
            assert_eq!(is_told, caller == &ann, "{logged}");
        }
    }
}
