//! Event streams of the change log, `/-/changes`: what they show, to whom, and how they resume.

use serde_json::{Value, json};

use crate::harness::{
    Answer, Backend, ConnectError, EventSource, OpenTransaction, Person, Server, Setup,
    StreamEvent, wait_until,
};

const MODEL: &str = r#"
title = "Shop"
[server.limits]
heartbeat_seconds = 1
[resources.customer]
id = "integer"
[resources.customer.fields]
name = { type = "text" }
owner = { type = "text" }
[resources.order]
id = "integer"
parent = "customer"
on_delete = "cascade"
[resources.order.fields]
text = { type = "text" }
note = { type = "text" }
[resources.line]
id = "integer"
parent = "order"
on_delete = "cascade"
[resources.line.fields]
text = { type = "text" }
[resources.visit]
id = "integer"
changes = "ids"
[resources.visit.fields]
owner = { type = "text" }
[resources.step]
id = "integer"
parent = "visit"
[resources.step.fields]
text = { type = "text" }
[roles.anyone]
"/-/metrics" = ["get"]
[roles.own]
"/-/changes" = ["get"]
customer = { verbs = ["get"], where = "owner = $user" }
order = { verbs = ["get"], hide = ["note"] }
line = ["get"]
visit = { verbs = ["get"], where = "owner = $user" }
step = ["get"]
[roles.without]
"*" = "*"
"#;

fn follow(server: &Server, target: &str) -> EventSource {
    EventSource::new(target).connected(server.address)
}

fn customer(owner: &str) -> String {
    json!({"customer": {"name": "n", "owner": owner}}).to_string()
}

fn merge(server: &Server, path: &str, body: &str) {
    let merge = ("Content-Type", "application/merge-patch+json");
    assert_eq!(server.request(&format!("PATCH {path}"), &[merge], body).status, 200);
}

/// The number, the kind and the subject of an event.
fn line(event: &StreamEvent) -> String {
    format!("{} {} {}", event.id, event.kind, event.json()["subject"].as_str().unwrap())
}

fn lines(events: &[StreamEvent]) -> Vec<String> {
    events.iter().map(line).collect()
}

/// Five changes: a customer, its order, an update of the customer, and the deletion of both.
fn write_five(server: &Server) {
    assert_eq!(server.create("/customers", customer("ann")), "/customers/1");
    let order = server.create("/customers/1/orders", r#"{"order":{"text":"tea"}}"#);
    assert_eq!(order, "/customers/1/orders/1");
    merge(server, "/customers/1", r#"{"customer":{"owner":"bob"}}"#);
    assert_eq!(server.delete("/customers/1").status, 204);
}

const FIVE: [&str; 5] = [
    "1 created /customers/1",
    "2 created /customers/1/orders/1",
    "3 updated /customers/1",
    "4 deleted /customers/1/orders/1",
    "5 deleted /customers/1",
];

fn problem(server: &Server, target: &str, headers: &[(&str, &str)]) -> String {
    let accept = ("Accept", "text/event-stream, application/problem+json");
    let answer = server.request(&format!("GET {target}"), &[&[accept], headers].concat(), "");
    let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
    format!("{} {} {detail}", answer.status, answer.problem())
}

on_every_backend! {
    fn log_stream_sends_every_change_with_its_author(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let mut live = follow(&server, "/-/changes");
        write_five(&server);
        let events = live.next_events(5);
        assert_eq!(lines(&events), FIVE);
        let first = events[0].json();
        assert_eq!((&first["type"], &first["actor"]), (&json!("nouns.customer.created"), &json!("open")));
        assert!(first["requestid"].is_string());
        assert_eq!(events[2].json()["data"]["changed"], json!(["owner"]));
        // What is read from the log is the same.
        assert_eq!(follow(&server, "/-/changes?since=0").next_events(5), events);
        assert_eq!(follow(&server, "/-/changes?since=3").next_events(2), events[3..]);
        let mut resumed = EventSource::new("/-/changes?since=1").resume_after("4");
        resumed.connect(server.address).unwrap();
        assert_eq!(resumed.next_events(1), events[4..]);
        // A stream without a position begins now.
        let mut now = follow(&server, "/-/changes");
        server.create("/visits", r#"{"visit":{"owner":"ann"}}"#);
        assert_eq!(line(&now.next_event()), "6 created /visits/1");
        assert_eq!(now.next_events(0).len(), 0);
    }

    fn log_stream_filters_are_those_of_the_list(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let filters: [(&str, &[usize]); 8] = [
            ("resource=order", &[1, 3]),
            ("resource:in=order,visit", &[1, 3]),
            ("subject=/customers/1", &[0, 2, 4]),
            ("kind=deleted", &[3, 4]),
            ("kind:in=created,updated&resource=customer", &[0, 2]),
            ("actor=open&kind=updated", &[2]),
            ("time:gte=2020-01-01T00:00:00Z&resource=order", &[1, 3]),
            ("time:gt=2999-01-01T00:00:00Z", &[]),
        ];
        let mut live: Vec<_> =
            filters.iter().map(|(filter, _)| follow(&server, &format!("/-/changes?{filter}"))).collect();
        write_five(&server);
        // A change that all filters but the last select, after the others.
        for ((filter, expected), live) in filters.iter().zip(&mut live) {
            let expected: Vec<&str> = expected.iter().map(|at| FIVE[*at]).collect();
            assert_eq!(lines(&live.next_events(expected.len())), expected, "{filter}");
            let mut again = follow(&server, &format!("/-/changes?{filter}&since=0"));
            assert_eq!(lines(&again.next_events(expected.len())), expected, "{filter}");
        }
    }

    fn log_stream_that_cannot_be_is_refused(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        server.create("/customers", customer("ann"));
        for (target, headers, expected) in [
            ("/-/changes?since=2", &[][..], "400 position-not-reached expected a position up to 1, got a larger one"),
            ("/-/changes", &[("Last-Event-ID", "2")], "400 position-not-reached expected a position up to 1, got a larger one"),
            ("/-/changes", &[("Last-Event-ID", "x")], r#"400 bad-query Last-Event-ID: expected a number of the change log, got "x""#),
            ("/-/changes?limit=2", &[], "400 bad-query limit: an event stream has no pages and no order"),
            ("/-/changes?sort=sequence", &[], "400 bad-query sort: an event stream has no pages and no order"),
            ("/-/changes?wait=1", &[], "400 bad-query wait: an event stream has no pages and no order"),
            ("/-/changes?snapshot=true", &[], "400 bad-query snapshot: expected a list of items, got the change log"),
            ("/-/changes?time:lt=2999-01-01T00:00:00Z", &[], "400 bad-query time: expected no end of the range with an event stream"),
            ("/-/changes?kind=gone", &[], r#"400 bad-query kind: expected one of created, updated, deleted, left, got "gone""#),
        ] {
            assert_eq!(problem(&server, target, headers), expected, "{target} {headers:?}");
        }
        // Nobody gets a stream who does not prefer it.
        for accept in ["*/*", "text/*", "application/json, text/event-stream"] {
            let answer = server.request("GET /-/changes", &[("Accept", accept)], "");
            assert_ne!(answer.header("Content-Type"), Some("text/event-stream"), "{accept}");
        }
        let head = server.request("HEAD /-/changes", &[("Accept", "text/event-stream")], "");
        assert_eq!((head.status, head.header("Content-Type")), (200, Some("text/event-stream")));
        assert_eq!(head.header("Cache-Control"), Some("private, no-cache, no-transform"));
        wait_until("the stream of HEAD has ended", || {
            (server.metric("nouns_event_streams") == Some(0)).then_some(())
        });
    }
}

/// A server with users: ann sees her own customers and what is below them.
struct Shop {
    server: Server,
    admin: String,
    ann: Person,
}

impl Shop {
    fn start(backend: Backend) -> Self {
        Self::start_with(backend, MODEL)
    }

    fn start_with(backend: Backend, model: &str) -> Self {
        let server = Setup::new(backend).model(model).with_authentication().start();
        let ann = Person::new("ann", "the password of ann");
        server.add_user(&ann, &["own"]);
        let admin = server.admin().basic();
        Self { server, admin, ann }
    }

    fn request(&self, line: &str, body: &str) -> Answer {
        let kind = ("Content-Type", "application/json");
        self.server.request(line, &[("Authorization", &self.admin), kind], body)
    }

    fn create(&self, path: &str, body: &str) -> String {
        let answer = self.request(&format!("POST {path}"), body);
        assert_eq!(answer.status, 201, "{answer}");
        answer.header("Location").unwrap().to_owned()
    }

    fn set_owner(&self, path: &str, owner: &str) {
        let body = json!({"customer": {"owner": owner}}).to_string();
        assert_eq!(self.request(&format!("PATCH {path}"), &body).status, 200);
    }

    fn follow(&self, person: &Person, target: &str) -> Result<EventSource, Answer> {
        let mut source = EventSource::new(target).header("Authorization", &person.basic());
        match source.connect(self.server.address) {
            Ok(_) => Ok(source),
            Err(ConnectError::Refused(answer)) => Err(*answer),
            Err(ConnectError::Lost(error)) => panic!("{error}"),
        }
    }

    /// The changes of ann's, of hers that become others', and of others'.
    fn write(&self) {
        let [mine, other] = ["ann", "bob"].map(|owner| self.create("/customers", &customer(owner)));
        let order = r#"{"order":{"text":"tea","note":"psst"}}"#;
        let [below, beside] =
            [&mine, &other].map(|path| self.create(&format!("{path}/orders"), order));
        for path in [&below, &beside] {
            self.create(&format!("{path}/lines"), r#"{"line":{"text":"a"}}"#);
        }
        let visit = self.create("/visits", r#"{"visit":{"owner":"ann"}}"#);
        self.create(&format!("{visit}/steps"), r#"{"step":{"text":"a"}}"#);
        self.set_owner(&mine, "bob");
        self.create(&format!("{below}/lines"), r#"{"line":{"text":"unseen"}}"#);
        self.set_owner(&mine, "ann");
        self.create(&format!("{below}/lines"), r#"{"line":{"text":"seen"}}"#);
        self.set_owner(&other, "ann");
        assert_eq!(self.request(&format!("DELETE {other}"), "").status, 204);
    }
}

on_every_backend! {
    /// The stream and the list are two forms of one thing.
    fn log_stream_of_a_row_filtered_caller_shows_what_the_list_shows(backend: Backend) {
        let shop = Shop::start(backend);
        let mut live = shop.follow(&shop.ann, "/-/changes").unwrap();
        let mut below = shop.follow(&shop.ann, "/-/changes?resource=line").unwrap();
        shop.write();
        let ann = shop.ann.basic();
        let list = |query: &str| {
            let line = format!("GET /-/changes?limit=100{query}");
            let answer = shop.server.request(&line, &[("Authorization", &ann)], "").json();
            answer["changes"].as_array().unwrap().clone()
        };
        let in_list = |change: &Value| {
            let text = |name: &str| change[name].as_str().unwrap().to_owned();
            format!("{} {} {}", change["sequence"], text("kind"), text("subject"))
        };
        let listed = list("");
        let expected: Vec<String> = listed.iter().map(in_list).collect();
        assert_eq!(expected.len(), 10, "{expected:#?}");
        let events = live.next_events(10);
        assert_eq!(lines(&events), expected);
        for (event, change) in events.iter().zip(&listed) {
            let data = &event.json()["data"];
            if change["kind"] != "left" {
                for member in ["changed", "before", "after"] {
                    assert_eq!(data[member], change[member], "{event:?}");
                }
            }
            assert!(!event.data.contains("psst"), "{event:?}");
        }
        let of_lines: Vec<String> = list("&resource=line").iter().map(in_list).collect();
        assert_eq!(lines(&below.next_events(of_lines.len())), of_lines);
        // The same when it is read from the log.
        let first = events[0].sequence() - 1;
        let mut again = shop.follow(&shop.ann, &format!("/-/changes?since={first}")).unwrap();
        assert_eq!(again.next_events(10), events);
        let reads: Option<u64> = shop.server.metric("nouns_feed_polls_total{kind=\"related\"}");
        assert!(reads.unwrap() > 0);
    }

    fn log_stream_needs_the_grant_of_the_log(backend: Backend) {
        let shop = Shop::start(backend);
        let bob = Person::new("bob", "the password of bob");
        shop.server.add_user(&bob, &["without"]);
        assert_eq!(shop.follow(&bob, "/-/changes").unwrap_err().status, 403);
        let refused = EventSource::new("/-/changes").connect(shop.server.address);
        assert!(matches!(refused, Err(ConnectError::Refused(answer)) if answer.status == 401));
    }

    /// A list below an item that the caller sees by a row filter.
    fn stream_below_a_row_filtered_parent_shows_what_it_showed_then(backend: Backend) {
        let shop = Shop::start(backend);
        let mine = shop.create("/customers", &customer("ann"));
        let order = shop.create(&format!("{mine}/orders"), r#"{"order":{"text":"tea"}}"#);
        let target = format!("{order}/lines");
        let write = |text: &str| {
            shop.create(&target, &json!({"line": {"text": text}}).to_string());
        };
        let mut live = shop.follow(&shop.ann, &target).unwrap();
        write("first");
        assert_eq!(live.next_event().json()["data"]["after"]["text"], "first");
        shop.set_owner(&mine, "bob");
        // The customer, above the order, is out of sight, and so is the list.
        let (events, _) = live.read_to_end();
        assert_eq!(lines(&events), [format!("{} left {mine}", events[0].id)]);
        assert_eq!(shop.follow(&shop.ann, &target).unwrap_err().status, 404);
        write("unseen");
        shop.set_owner(&mine, "ann");
        write("last");
        // After it has come back, the log has only what could be seen then.
        live.connect(shop.server.address).unwrap();
        assert_eq!(live.next_event().json()["data"]["after"]["text"], "last");
        write("now");
        assert_eq!(live.next_event().json()["data"]["after"]["text"], "now");
        // The log has no values of visits, so nothing tells which of them ann could see.
        let visit = shop.create("/visits", r#"{"visit":{"owner":"ann"}}"#);
        assert_eq!(shop.follow(&shop.ann, &format!("{visit}/steps")).unwrap_err().status, 403);
    }

    /// More parents than one batch looks up.
    fn stream_below_many_row_filtered_parents_is_complete(backend: Backend) {
        let shop = Shop::start(backend);
        let customers: Vec<Value> = (0..300)
            .map(|number| json!({"name": "n", "owner": if number % 2 == 0 { "ann" } else { "bob" }}))
            .collect();
        let body = json!({"customers": customers}).to_string();
        assert_eq!(shop.request("POST /customers", &body).status, 201);
        let mut live = shop.follow(&shop.ann, "/-/changes?resource=order").unwrap();
        for number in 1..=300 {
            shop.create(&format!("/customers/{number}/orders"), r#"{"order":{"text":"tea"}}"#);
        }
        let events = live.next_events(150);
        let subjects: Vec<String> =
            events.iter().map(|event| event.json()["subject"].as_str().unwrap().to_owned()).collect();
        let expected: Vec<String> =
            (0..150).map(|at| format!("/customers/{}/orders/{}", 2 * at + 1, 2 * at + 1)).collect();
        assert_eq!(subjects, expected);
        let mut again = shop.follow(&shop.ann, "/-/changes?resource=order&since=0").unwrap();
        assert_eq!(again.next_events(150), events);
    }
}

/// An order of the second customer, in the log alone.
const LOGGED_ORDER: &str =
    "BEGIN; INSERT INTO nouns_changes (sequence, time, resource, id, parent_id, subject, kind, actor, request_id, after)
     VALUES (nouns_next_change(true), now(), 'order', '9', '2', '/customers/2/orders/9', 'created', 'psql', 'r',
     '{\"id\":9,\"text\":\"tea\",\"created_at\":\"2026-01-01T00:00:00.000000Z\",\"updated_at\":\"2026-01-01T00:00:00.000000Z\",\"version\":1}') RETURNING sequence;\n";

/// While a stream waits for the state of an ancestor, here because of a lock, those that need none get their events.
#[test]
fn stream_without_lookups_does_not_wait_for_those_of_others_on_postgres() {
    let limits = "[server.limits]\nstatement_seconds_max = 600\nrequest_seconds_max = 600";
    let shop = Shop::start_with(Backend::Postgres, &MODEL.replace("[server.limits]", limits));
    let order = r#"{"order":{"text":"tea"}}"#;
    let [first, _] = [(); 2].map(|()| shop.create("/customers", &customer("ann")));
    let target = "/-/changes?resource=order";
    let [mut all, mut own] =
        [&shop.server.admin(), &shop.ann].map(|person| shop.follow(person, target).unwrap());
    let created = shop.create(&format!("{first}/orders"), order);
    for source in [&mut all, &mut own] {
        assert_eq!(source.next_event().json()["subject"], *created);
    }
    let lock = "BEGIN; LOCK TABLE customers IN ACCESS EXCLUSIVE MODE; SELECT 1;\n";
    let lock = OpenTransaction::begin(shop.server.folder(), lock);
    OpenTransaction::begin(shop.server.folder(), LOGGED_ORDER).commit();
    // The commit of another process gives no hint.
    shop.create("/visits", r#"{"visit":{"owner":"ann"}}"#);
    assert_eq!(all.next_event().json()["subject"], "/customers/2/orders/9");
    lock.commit();
    assert_eq!(own.next_event().json()["subject"], "/customers/2/orders/9");
}
