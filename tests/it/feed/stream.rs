//! Event streams of collections and items: their bytes, their positions and how they resume.

use std::time::Duration;

use expect_test::expect;
use serde_json::json;

use crate::harness::{
    Answer, Backend, Client, ConnectError, EventSource, Http2, Masks, Server, Setup, StreamEnd,
    StreamEvent, wait_until,
};

const MODEL: &str = r#"
title = "Shop"
[server]
http2_prior_knowledge = true
[server.limits]
heartbeat_seconds = 1
[resources.customer]
id = "integer"
[resources.customer.fields]
name = { type = "text", required = true }
status = { type = "text", filter = true }
since = { type = "integer", filter = true }
[resources.order]
id = "integer"
parent = "customer"
on_delete = "cascade"
[resources.order.fields]
total = { type = "integer", filter = true }
[resources.visit]
id = "integer"
changes = "ids"
[resources.visit.fields]
page = { type = "text", filter = true }
"#;

const EVENTS: (&str, &str) = ("Accept", "text/event-stream");

fn start(backend: Backend) -> Server {
    Setup::new(backend).model(MODEL).start()
}

fn follow(server: &Server, target: &str) -> EventSource {
    EventSource::new(target).connected(server.address)
}

fn customer(server: &Server, name: &str, status: &str) -> String {
    let body = json!({"customer": {"name": name, "status": status}}).to_string();
    server.create("/customers", body)
}

fn patch(server: &Server, path: &str, body: &str) {
    let merge = ("Content-Type", "application/merge-patch+json");
    assert_eq!(server.request(&format!("PATCH {path}"), &[merge], body).status, 200);
}

fn refusal(server: &Server, target: &str, headers: &[(&str, &str)]) -> Answer {
    let mut source = EventSource::new(target);
    for (name, value) in headers {
        source = source.header(name, value);
    }
    match source.connect(server.address) {
        Err(ConnectError::Refused(answer)) => *answer,
        other => panic!("{target}: {other:?}"),
    }
}

/// A refusal that a client reads which accepts problems too: by the detail, after the status.
fn problem(server: &Server, target: &str, headers: &[(&str, &str)]) -> String {
    let accept = ("Accept", "text/event-stream, application/problem+json");
    let headers = [&[accept], headers].concat();
    let answer = server.request(&format!("GET {target}"), &headers, "");
    let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
    format!("{} {detail}", answer.problem())
}

on_every_backend! {
    fn stream_of_a_collection_sends_created_updated_and_deleted(backend: Backend) {
        let server = start(backend);
        let mut source = follow(&server, "/customers");
        let path = customer(&server, "Ann", "new");
        patch(&server, &path, r#"{"customer":{"status":"paid"}}"#);
        assert_eq!(server.delete(&path).status, 204);
        source.next_events(3);
        expect![[r#"
            retry: 2000
            id: 0

            id: 1
            event: created
            data: {"specversion":"1.0","id":"1","source":"/","type":"nouns.customer.created","subject":"/customers/1","time":"<time-1>","datacontenttype":"application/json","sequence":"0000000000000000001","data":{"changed":null,"before":null,"after":{"id":1,"name":"Ann","status":"new","created_at":"<time-1>","updated_at":"<time-1>","version":1}}}

            id: 2
            event: updated
            data: {"specversion":"1.0","id":"2","source":"/","type":"nouns.customer.updated","subject":"/customers/1","time":"<time-2>","datacontenttype":"application/json","sequence":"0000000000000000002","data":{"changed":["status"],"before":{"id":1,"name":"Ann","status":"new","created_at":"<time-1>","updated_at":"<time-1>","version":1},"after":{"id":1,"name":"Ann","status":"paid","created_at":"<time-1>","updated_at":"<time-2>","version":2}}}

            id: 3
            event: deleted
            data: {"specversion":"1.0","id":"3","source":"/","type":"nouns.customer.deleted","subject":"/customers/1","time":"<time-3>","datacontenttype":"application/json","sequence":"0000000000000000003","data":{"changed":null,"before":{"id":1,"name":"Ann","status":"paid","created_at":"<time-1>","updated_at":"<time-2>","version":2},"after":null}}

        "#]]
        .assert_eq(&Masks::default().text(&without_heartbeats(source.body())));
    }

    fn stream_headers_forbid_caching_buffering_and_compression(backend: Backend) {
        let server = start(backend);
        let mut source = EventSource::new("/customers").header("Accept-Encoding", "gzip, zstd");
        let head = source.connect(server.address).unwrap();
        assert_eq!(head.header("Content-Type"), Some("text/event-stream"));
        let uncached = Some("private, no-cache, no-transform");
        assert_eq!(head.header("Cache-Control"), uncached);
        assert_eq!(head.header("X-Accel-Buffering"), Some("no"));
        assert_eq!(head.header("Vary"), Some("Accept, Accept-Encoding"));
        assert_eq!(head.header("Content-Encoding"), None);
        assert_eq!(head.header("ETag"), None);
        customer(&server, "Ann", "new");
        assert_eq!(source.next_event().kind, "created");
        let head = server.request("HEAD /customers", &[EVENTS], "");
        assert_eq!((head.status, head.header("Content-Type")), (200, Some("text/event-stream")));
        wait_until("the stream of HEAD has ended", || {
            (server.metric("nouns_event_streams") == Some(1)).then_some(())
        });
    }

    fn stream_is_sent_only_to_clients_that_prefer_it(backend: Backend) {
        let server = start(backend);
        for accept in ["*/*", "text/*", "application/json, text/event-stream"] {
            let answer = server.request("GET /customers", &[("Accept", accept)], "");
            let sent = answer.header("Content-Type");
            // CSV is a text too.
            assert_ne!(sent, Some("text/event-stream"), "{accept}");
        }
        let answer = server.request("GET /-/health", &[EVENTS], "");
        assert_eq!(answer.status, 406);
        let path = customer(&server, "Ann", "new");
        assert_eq!(server.request(&format!("GET {path}"), &[("Accept", "text/*")], "").status, 406);
        let answer = server.request(&format!("PUT {path}"), &[EVENTS], "{}");
        assert_eq!(answer.status, 406);
    }

    fn stream_with_a_filter_sends_what_enters_and_left_for_what_leaves(backend: Backend) {
        let server = start(backend);
        let mut source = follow(&server, "/customers?status=paid&fields=name");
        let path = customer(&server, "Ann", "new");
        customer(&server, "Bob", "paid");
        patch(&server, &path, r#"{"customer":{"status":"paid"}}"#);
        patch(&server, &path, r#"{"customer":{"status":"done"}}"#);
        patch(&server, &path, r#"{"customer":{"status":"old"}}"#);
        assert_eq!(server.delete(&path).status, 204);
        assert_eq!(server.delete("/customers/2").status, 204);
        let events = source.next_events(4);
        let lines: Vec<String> = events
            .iter()
            .map(|event| format!("{} {} {}", event.id, event.kind, event.json()["data"]))
            .collect();
        expect![[r#"
            2 created {"changed":null,"before":null,"after":{"id":2,"name":"Bob"}}
            3 updated {"changed":null,"before":null,"after":{"id":1,"name":"Ann"}}
            4 left {"id":1}
            7 deleted {"changed":null,"before":{"id":2,"name":"Bob"},"after":null}"#]]
        .assert_eq(&lines.join("\n"));
    }

    fn stream_resumes_after_last_event_id_with_the_same_bytes(backend: Backend) {
        let server = start(backend);
        let mut whole = follow(&server, "/customers?since=0");
        for number in 0..20 {
            customer(&server, &format!("customer {number}"), "new");
        }
        let events = whole.next_events(20);
        for resumed_at in [1, 7, 19] {
            // The header is stronger than the query, which a client that reconnects cannot change.
            let mut source = EventSource::new("/customers?since=3").resume_after(&resumed_at.to_string());
            source.connect(server.address).unwrap();
            let count = 20 - resumed_at;
            assert_eq!(source.next_events(count), events[resumed_at..]);
        }
        let mut since = follow(&server, "/customers?since=18");
        assert_eq!(since.next_events(2), events[18..]);
        // A new change follows the old ones, in every stream.
        customer(&server, "last", "new");
        assert_eq!(since.next_event(), whole.next_event());
    }

    fn stream_without_a_position_begins_now(backend: Backend) {
        let server = start(backend);
        customer(&server, "before", "new");
        let mut source = follow(&server, "/customers");
        customer(&server, "after", "new");
        assert_eq!(source.next_event().json()["data"]["after"]["name"], "after");
    }

    fn stream_position_that_cannot_be_used_is_refused(backend: Backend) {
        let server = start(backend);
        customer(&server, "Ann", "new");
        for (target, headers, expected) in [
            ("/customers?since=2", &[][..], "position-not-reached expected a position up to 1, got a larger one"),
            ("/customers", &[("Last-Event-ID", "2")], "position-not-reached expected a position up to 1, got a larger one"),
            ("/customers?since=-1", &[], r#"bad-query since: expected a number of the change log, got "-1""#),
            ("/customers?since=", &[], r#"bad-query since: expected a number of the change log, got """#),
            ("/customers?since=1&since=1", &[], "bad-query since: given twice"),
            ("/customers", &[("Last-Event-ID", "x")], r#"bad-query Last-Event-ID: expected a number of the change log, got "x""#),
            ("/customers", &[("Last-Event-ID", "1"), ("Last-Event-ID", "1")], "bad-query Last-Event-ID: given twice"),
            ("/customers?limit=5", &[], "bad-query limit: an event stream has no pages and no order"),
            ("/customers?sort=id", &[], "bad-query sort: an event stream has no pages and no order"),
            ("/customers/1?status=new", &[], "bad-query status: no such parameter here (there are fields, since)"),
            ("/customers/9", &[], "not-found "),
            ("/customers/9/orders", &[], "not-found "),
            ("/visits?page=x", &[], "bad-query the change log has no values of visits, so no filter"),
        ] {
            assert_eq!(problem(&server, target, headers), expected, "{target} {headers:?}");
        }
        // A client that accepts nothing else gets the status alone.
        let answer = refusal(&server, "/customers?since=2", &[]);
        assert_eq!((answer.status, answer.body.len()), (400, 0));
    }

    fn stream_parameter_since_is_a_field_on_lists(backend: Backend) {
        let server = start(backend);
        server.create("/customers", r#"{"customer":{"name":"Ann","since":2020}}"#);
        let list = server.get("/customers?since=2020").json();
        assert_eq!(list["customers"][0]["since"], 2020);
        assert_eq!(server.get("/customers?since=2021").json()["customers"], json!([]));
    }

    fn stream_of_a_nested_collection_ends_when_its_parent_is_deleted(backend: Backend) {
        let server = start(backend);
        let (ann, bob) = (customer(&server, "Ann", "new"), customer(&server, "Bob", "new"));
        let mut source = follow(&server, &format!("{ann}/orders"));
        let order = r#"{"order":{"total":5}}"#;
        server.create(&format!("{bob}/orders"), order);
        server.create(&format!("{ann}/orders"), order);
        patch(&server, &ann, r#"{"customer":{"status":"paid"}}"#);
        assert_eq!(server.delete(&bob).status, 204);
        assert_eq!(server.delete(&ann).status, 204);
        let (events, end) = source.read_to_end();
        let line = |event: &StreamEvent| {
            let json = event.json();
            format!("{} {} {}", json["type"], json["subject"], json["data"]["id"])
        };
        expect![[r#"
            "nouns.order.created" "/customers/1/orders/2" null
            "nouns.order.deleted" "/customers/1/orders/2" null
            "nouns.customer.left" "/customers/1" 1"#]]
        .assert_eq(&events.iter().map(line).collect::<Vec<_>>().join("\n"));
        assert_eq!(end, StreamEnd::Complete);
        // A browser stops here.
        let last = source.last_event_id().to_owned();
        let answer = refusal(&server, &format!("{ann}/orders"), &[("Last-Event-ID", &last)]);
        assert_eq!(answer.status, 404);
    }

    fn stream_of_an_item_ends_when_it_is_deleted(backend: Backend) {
        let server = start(backend);
        let (ann, bob) = (customer(&server, "Ann", "new"), customer(&server, "Bob", "new"));
        let mut source = follow(&server, &format!("{ann}?fields=status"));
        patch(&server, &bob, r#"{"customer":{"status":"paid"}}"#);
        patch(&server, &ann, r#"{"customer":{"status":"paid"}}"#);
        assert_eq!(server.delete(&ann).status, 204);
        let (events, end) = source.read_to_end();
        let kinds: Vec<_> = events.iter().map(|event| &*event.kind).collect();
        assert_eq!((kinds, end), (vec!["updated", "deleted"], StreamEnd::Complete));
        let after = json!({"id": 1, "status": "paid"});
        assert_eq!(events[0].json()["data"]["after"], after);
    }

    fn stream_of_a_resource_without_values_has_ids(backend: Backend) {
        let server = start(backend);
        let mut source = follow(&server, "/visits");
        server.create("/visits", r#"{"visit":{"page":"/"}}"#);
        let event = source.next_event().json();
        assert_eq!(event["subject"], "/visits/1");
        assert_eq!(event["data"], json!({"changed": null, "before": null, "after": null}));
    }

    fn stream_heartbeat_moves_the_position_and_sends_no_event(backend: Backend) {
        let server = start(backend);
        let mut source = follow(&server, "/customers");
        let client = &mut Client::connect(server.address);
        for _ in 0..3 {
            let visits: Vec<_> = (0..500).map(|_| json!({"page": "/"})).collect();
            let body = json!({"visits": visits}).to_string();
            assert_eq!(client.request("POST /visits", &[], body).status, 201);
        }
        // 1,500 changes of others: the position is rounded, so that it does not say how many.
        wait_until("a heartbeat has the position", || {
            let received = source.poll(Duration::from_millis(100));
            assert_eq!(received, None);
            (source.last_event_id() == "1024").then_some(())
        });
        assert!(!source.comments().is_empty());
        assert_eq!(source.retry(), Some(Duration::from_secs(2)));
        customer(&server, "Ann", "new");
        assert_eq!(source.next_event().id, "1501");
    }

    fn stream_over_http2_and_http1_0(backend: Backend) {
        let server = start(backend);
        let mut http2 = Http2::connect(&server);
        http2.request(1, ("GET", "/customers"), &[("accept", "text/event-stream")], b"");
        let mut http1_0 = server.client();
        http1_0.write(b"GET /customers HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n");
        wait_until("both are connected", || {
            (server.metric("nouns_event_streams") == Some(2)).then_some(())
        });
        customer(&server, "Ann", "new");
        assert!(http2.read_until(|frame| {
            frame.stream == 1
                && frame.kind == Http2::DATA
                && String::from_utf8_lossy(&frame.payload).contains("event: created")
        }));
        // A shutdown ends the streams at once, and drops events that they have not sent yet.
        http1_0.wait_for("event: created");
        server.terminate();
        let text = String::from_utf8(http1_0.read_to_close()).unwrap();
        assert!(!text.to_lowercase().contains("transfer-encoding"), "{text}");
        // The shutdown ends the stream of HTTP/2 cleanly.
        assert!(http2.read_until(|frame| frame.stream == 1 && frame.is_end()));
        assert!(server.wait().0.success());
    }

    fn stream_ends_cleanly_at_shutdown_with_a_time_to_retry(backend: Backend) {
        let server = start(backend);
        let mut sources: Vec<_> = (0..20).map(|_| follow(&server, "/customers")).collect();
        customer(&server, "Ann", "new");
        for source in &mut sources {
            source.next_event();
        }
        server.terminate();
        let mut retries = Vec::new();
        for source in &mut sources {
            assert_eq!(source.read_to_end().1, StreamEnd::Complete);
            let retry = source.retry().unwrap();
            assert!((1_000..5_000).contains(&retry.as_millis()), "{retry:?}");
            retries.push(retry);
        }
        retries.dedup();
        assert!(retries.len() > 10, "{retries:?}");
        assert!(server.wait().0.success());
    }

    fn stream_continues_after_a_restart(backend: Backend) {
        let server = start(backend);
        let mut source = follow(&server, "/customers");
        customer(&server, "Ann", "new");
        source.next_event();
        let server = server.restart();
        customer(&server, "Bob", "new");
        source.connect(server.address).unwrap();
        assert_eq!(source.next_event().json()["data"]["after"]["name"], "Bob");
    }
}

fn without_heartbeats(body: &str) -> String {
    let is_heartbeat = |block: &&str| !block.ends_with("\n:\n\n");
    body.split_inclusive("\n\n").filter(is_heartbeat).collect()
}
