//! Long polling: `/-/changes?wait=…` answers as soon as there is something, or when the time is over.

use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Person, Server, Setup, wait_until};

const MODEL: &str = r#"
title = "Shop"
[server.limits]
requests_max = 1
streams_per_caller_max = 2
[resources.customer]
id = "integer"
[resources.customer.fields]
owner = { type = "text" }
[resources.order]
id = "integer"
parent = "customer"
[resources.order.fields]
text = { type = "text" }
[roles.anyone]
"/-/metrics" = ["get"]
[roles.own]
"/-/changes" = ["get"]
customer = { verbs = ["get"], where = "owner = $user" }
order = ["get"]
[roles.reader]
"/-/changes" = ["get"]
customer = ["get"]
"#;

fn customer(owner: &str) -> String {
    json!({"customer": {"owner": owner}}).to_string()
}

/// The numbers of the changes, and the position.
fn numbers(answer: &Answer) -> (Vec<i64>, i64) {
    assert_eq!(answer.status, 200, "{answer}");
    let json = answer.json();
    let sequences = json["changes"].as_array().unwrap().iter();
    let sequences = sequences.map(|change| change["sequence"].as_i64().unwrap()).collect();
    let position = json["page"]["position"].as_i64().unwrap();
    assert_eq!(answer.header("Changes-Position"), Some(&*position.to_string()));
    (sequences, position)
}

/// Sends a request, whose response comes later.
fn poll(server: &Server, query: &str, authorization: &str) -> Client {
    let mut client = server.client();
    let head = format!(
        "GET /-/changes?{query} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n\r\n"
    );
    client.write(head.as_bytes());
    client
}

/// As `poll`, on a server without users.
fn poll_openly(server: &Server, query: &str) -> Client {
    let mut client = server.client();
    let head = format!("GET /-/changes?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.write(head.as_bytes());
    client
}

fn wait_for_waiting(server: &Server, count: u32) {
    wait_until("the requests wait", || {
        (server.metric("nouns_event_streams") == Some(count)).then_some(())
    });
}

on_every_backend! {
    fn long_poll_with_something_to_show_answers_at_once(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        server.create("/customers", customer("ann"));
        server.create("/customers", customer("bob"));
        assert_eq!(numbers(&server.get("/-/changes?since=0&wait=60")), (vec![1, 2], 2));
        assert_eq!(numbers(&server.get("/-/changes?since=1&wait=60")), (vec![2], 2));
        assert_eq!(numbers(&server.get("/-/changes?since=0&wait=60&limit=1")), (vec![1], 1));
        let lines = server.request("GET /-/changes?since=1&wait=60", &[("Accept", "text/csv")], "");
        assert_eq!(lines.text().lines().count(), 2);
    }

    fn long_poll_answers_when_there_is_a_change(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        server.create("/customers", customer("ann"));
        let mut all = poll_openly(&server, "since=1&wait=60");
        let mut orders = poll_openly(&server, "since=1&wait=60&resource=order");
        // With one permit for requests in flight, others are answered while these wait.
        wait_for_waiting(&server, 2);
        server.create("/customers", customer("bob"));
        assert_eq!(numbers(&all.read_answer(false)), (vec![2], 2));
        wait_for_waiting(&server, 1);
        server.create("/customers/1/orders", r#"{"order":{"text":"tea"}}"#);
        assert_eq!(numbers(&orders.read_answer(false)), (vec![3], 3));
        wait_for_waiting(&server, 0);
        // The next page of a page that came late.
        let mut late = poll_openly(&server, "since=3&wait=60&limit=1");
        wait_for_waiting(&server, 1);
        let both = json!({"customers": [{"owner": "c"}, {"owner": "d"}]}).to_string();
        assert_eq!(server.post("/customers", both).status, 201);
        let first = late.read_answer(false);
        assert_eq!(numbers(&first), (vec![4], 4));
        let cursor = first.json()["page"]["next"].as_str().unwrap().to_owned();
        let next = server.get(&format!("/-/changes?since=3&wait=60&limit=1&cursor={cursor}"));
        assert_eq!(numbers(&next), (vec![5], 5));
    }

    /// The position passes what the client does not see, so that it is not examined again.
    fn long_poll_whose_time_is_over_has_no_changes_and_a_position(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        server.create("/customers", customer("ann"));
        assert_eq!(numbers(&server.get("/-/changes?since=1&wait=0")), (vec![], 1));
        assert_eq!(numbers(&server.get("/-/changes?since=1&wait=1")), (vec![], 1));
        let mut orders = poll_openly(&server, "since=1&wait=10&resource=order");
        wait_for_waiting(&server, 1);
        server.create("/customers", customer("bob"));
        assert_eq!(numbers(&orders.read_answer(false)), (vec![], 2));
        assert_eq!(numbers(&server.get("/-/changes?since=2&wait=1")), (vec![], 2));
    }

    fn long_poll_that_cannot_be_is_refused(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        for (query, expected) in [
            ("since=0&wait=61", r#"wait: expected a number of seconds up to 60, got "61""#),
            ("wait=-1", r#"wait: expected a number of seconds up to 60, got "-1""#),
            ("wait=", r#"wait: expected a number of seconds up to 60, got """#),
            ("wait=1&wait=2", "wait: given twice"),
            ("wait=1&sort=-sequence", "sort: expected sequence with wait, got -sequence"),
            ("wait=1&time:lt=2999-01-01T00:00:00Z", "time: expected no end of the range with wait"),
        ] {
            let answer = server.get(&format!("/-/changes?{query}"));
            assert_eq!(answer.json()["detail"], expected, "{query}");
            assert_eq!(answer.problem(), "bad-query");
        }
        assert_eq!(server.get("/-/changes?since=1&wait=60").problem(), "position-not-reached");
    }

    /// One change wakes all of them. They read it one after the other, and none is refused, although one request
    /// may be in flight and one in the queue.
    fn long_polls_that_one_change_wakes_take_turns(backend: Backend) {
        let model = MODEL.replace("streams_per_caller_max = 2", "streams_per_caller_max = 100");
        let server = Setup::new(backend).model(&model).start();
        let poll = |count| {
            let client = poll_openly(&server, "since=0&wait=60");
            wait_for_waiting(&server, count);
            client
        };
        let mut polls: Vec<_> = (1..=40).map(poll).collect();
        server.create("/customers", customer("ann"));
        for poll in &mut polls {
            assert_eq!(numbers(&poll.read_answer(false)), (vec![1], 1));
        }
    }

    fn long_polls_count_as_streams_and_end_at_shutdown(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let mut polls = [(); 2].map(|()| poll_openly(&server, "since=0&wait=60"));
        wait_for_waiting(&server, 2);
        let third = server.get("/-/changes?since=0&wait=60");
        assert_eq!((third.status, third.problem().as_str()), (429, "too-many-streams"));
        // One that need not wait is none.
        assert_eq!(server.get("/-/changes").status, 200);
        server.terminate();
        for poll in &mut polls {
            assert_eq!(numbers(&poll.read_answer(false)), (vec![], 0));
        }
        assert!(server.wait().0.success());
    }

    fn long_poll_of_a_row_filtered_caller_answers_with_what_it_sees(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let ann = Person::new("ann", "the password of ann");
        server.add_user(&ann, &["own"]);
        let (admin, ann) = (server.admin().basic(), ann.basic());
        let create = |path: &str, body: &str| {
            let answer = server.request(&format!("POST {path}"), &[("Authorization", &admin)], body);
            assert_eq!(answer.status, 201, "{answer}");
        };
        create("/customers", &customer("ann"));
        create("/customers", &customer("bob"));
        let (_, position) = numbers(&poll(&server, "since=0&wait=60", &ann).read_answer(false));
        let mut polled = poll(&server, &format!("since={position}&wait=60"), &ann);
        wait_for_waiting(&server, 1);
        // Below a customer that ann does not see, below hers, and again one that she does not see.
        for owner in [2, 1, 2] {
            create(&format!("/customers/{owner}/orders"), r#"{"order":{"text":"tea"}}"#);
        }
        assert_eq!(numbers(&polled.read_answer(false)).0, [position + 2]);
    }

    fn long_poll_ends_when_the_rights_of_its_caller_change(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let ann = Person::new("ann", "the password of ann");
        let path = server.add_user(&ann, &["own"]);
        let (admin, ann) = (server.admin().basic(), ann.basic());
        let set = |member: Value| {
            let (line, body) = (format!("PATCH {path}"), json!({"user": member}).to_string());
            let kind = ("Content-Type", "application/json");
            let answer = server.request(&line, &[("Authorization", &admin), kind], body);
            assert_eq!(answer.status, 200, "{answer}");
        };
        let position = numbers(&poll(&server, "since=0", &ann).read_answer(false)).1;
        for (change, expected) in [
            (json!({"roles": ["reader"]}), (503, "busy")),
            (json!({"disabled": true}), (401, "credentials-wrong")),
        ] {
            let mut polled = poll(&server, &format!("since={position}&wait=60"), &ann);
            wait_for_waiting(&server, 1);
            set(change);
            let answer = polled.read_answer(false);
            assert_eq!((answer.status, answer.problem().as_str()), expected);
            set(json!({"roles": ["own"], "disabled": false}));
        }
    }
}

#[test]
fn long_poll_answers_when_another_replica_writes_on_postgres() {
    let first = Setup::new(Backend::Postgres).model(MODEL).start();
    let second = Setup::replica(first.database()).model(MODEL).start();
    let mut polled = poll_openly(&first, "since=0&wait=60");
    wait_for_waiting(&first, 1);
    second.create("/customers", customer("ann"));
    assert_eq!(numbers(&polled.read_answer(false)), (vec![1], 1));
}
