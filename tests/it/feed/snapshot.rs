//! `snapshot=true`: all items of a list, and then their changes, without a gap and without a repetition.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use expect_test::expect;
use serde_json::json;

use super::list_copy::{ListCopy, fetch_list};
use crate::harness::{
    Backend, Client, EventSource, Masks, OpenTransaction, Person, Received, Server, Setup,
    StreamEnd, StreamEvent, wait_until,
};

const MODEL: &str = r#"
title = "Shop"
[server.limits]
streams_per_caller_max = 100
# A test compares a whole body, which must have no heartbeat.
heartbeat_seconds = 600
[resources.entry]
id = "integer"
[resources.entry.fields]
text = { type = "text" }
number = { type = "integer", filter = true }
owner = { type = "text" }
[roles.owner]
entry = { verbs = ["get"], where = "owner = $user" }
"#;

fn start(backend: Backend) -> Server {
    Setup::new(backend).model(MODEL).start()
}

fn create(server: &Server, number: i64) -> String {
    server.create("/entries", json!({"entry": {"number": number}}).to_string())
}

fn lines(events: &[StreamEvent]) -> String {
    let line = |event: &StreamEvent| {
        let json = event.json();
        format!("{} {} {}", event.kind, json["subject"], json["data"]["after"]["number"])
    };
    events.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// An entry of the log, in a transaction that commits on request.
const HELD_ENTRY: &str =
    "BEGIN; INSERT INTO nouns_changes (sequence, time, resource, id, subject, kind, actor, request_id, after)
     VALUES (nouns_next_change(true), now(), 'entry', '7', '/entries/7', 'created', 'psql', 'r',
     '{\"id\":7,\"number\":7,\"created_at\":\"2026-01-01T00:00:00.000000Z\",\"updated_at\":\"2026-01-01T00:00:00.000000Z\",\"version\":1}') RETURNING sequence;\n";

on_every_backend! {
    /// The fault would break an export.
    fn snapshot_with_head_reads_no_items(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).fault("export:1-").start();
        create(&server, 1);
        let accept = ("Accept", "text/event-stream");
        let head = server.request("HEAD /entries?snapshot=true", &[accept], "");
        assert_eq!((head.status, head.header("Content-Type")), (200, Some("text/event-stream")));
        assert!(!server.log().contains("planted"), "{}", server.log());
        let mut get = EventSource::new("/entries?snapshot=true");
        if get.connect(server.address).is_ok() {
            wait_until("the fault is logged", || server.log().contains("planted").then_some(()));
        }
    }

    fn snapshot_sends_the_items_and_then_follows(backend: Backend) {
        let server = start(backend);
        for number in 1..=3 {
            create(&server, number);
        }
        let mut source = EventSource::new("/entries?snapshot=true&number:gte=2&fields=number");
        source.connect(server.address).unwrap();
        source.next_events(4);
        create(&server, 4);
        source.next_event();
        expect![[r#"
            retry: 2000
            id:

            event: reset
            data: {}

            event: item
            data: {"specversion":"1.0","id":"/entries/2@1","source":"/","type":"nouns.entry.item","subject":"/entries/2","time":"<time-1>","datacontenttype":"application/json","data":{"after":{"id":2,"number":2}}}

            event: item
            data: {"specversion":"1.0","id":"/entries/3@1","source":"/","type":"nouns.entry.item","subject":"/entries/3","time":"<time-2>","datacontenttype":"application/json","data":{"after":{"id":3,"number":3}}}

            id: 3
            event: synced
            data: {}

            id: 4
            event: created
            data: {"specversion":"1.0","id":"4","source":"/","type":"nouns.entry.created","subject":"/entries/4","time":"<time-3>","datacontenttype":"application/json","sequence":"0000000000000000004","data":{"changed":null,"before":null,"after":{"id":4,"number":4}}}

        "#]]
        .assert_eq(&Masks::default().text(source.body()));
        // After `synced` the client resumes, without another snapshot.
        source.close();
        create(&server, 5);
        source.connect(server.address).unwrap();
        assert_eq!(lines(&[source.next_event()]), r#"created "/entries/5" 5"#);
    }

    fn snapshot_of_an_empty_list_and_of_a_position_that_is_not_there(backend: Backend) {
        let server = start(backend);
        let mut source = EventSource::new("/entries?snapshot=true").resume_after("99");
        source.connect(server.address).unwrap();
        let kinds: Vec<_> = source.next_events(2).into_iter().map(|event| event.kind).collect();
        assert_eq!(kinds, ["reset", "synced"]);
        for (target, detail) in [
            ("/entries?snapshot=1", r#"snapshot: expected true, once, got "1""#),
            ("/entries?snapshot=true&since=3", "since: a snapshot begins with the items as they are now"),
        ] {
            let accept = ("Accept", "text/event-stream, application/problem+json");
            let answer = server.request(&format!("GET {target}"), &[accept], "");
            assert_eq!((answer.status, answer.json()["detail"].as_str()), (400, Some(detail)));
        }
    }

    /// Clients that begin at any time, and are cut anywhere, have the list at the end.
    fn snapshot_during_writes_becomes_the_list(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let ann = Person::new("ann", "the password of ann");
        server.add_user(&ann, &["owner"]);
        let (admin, ann) = (server.admin().basic(), ann.basic());
        let is_done = AtomicBool::new(false);
        let (address, admin, ann) = (server.address, &admin, &ann);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..4).map(|seed| scope.spawn(move || write(address, admin, seed))).collect();
            let is_done = &is_done;
            let readers: Vec<_> = [
                ("/entries?snapshot=true", admin),
                ("/entries?snapshot=true&number:gte=50", admin),
                ("/entries?snapshot=true", ann),
                ("/entries?snapshot=true", admin),
            ]
            .into_iter()
            .enumerate()
            .map(|(at, (target, login))| scope.spawn(move || read(address, (target, login), at, is_done)))
            .collect();
            for writer in writers {
                writer.join().unwrap();
            }
            is_done.store(true, Ordering::SeqCst);
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }
}

/// Creates, changes and deletes entries, some of them in one request.
fn write(address: SocketAddr, admin: &str, seed: u64) {
    let client = &mut Client::connect(address);
    let mut state = seed + 1;
    let mut random = |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let headers = [("Authorization", admin), ("Content-Type", "application/json")];
    let mut ids: Vec<i64> = Vec::new();
    for _ in 0..150 {
        let entry = json!({
            "number": random(100), "owner": (["ann", "bob"][usize::try_from(random(2)).unwrap()])
        });
        match random(10) {
            0..4 => {
                let body = json!({"entry": entry}).to_string();
                let answer = client.request("POST /entries", &headers, body);
                assert_eq!(answer.status, 201, "{answer}");
                ids.push(answer.json()["entry"]["id"].as_i64().unwrap());
            }
            4 => {
                let body = json!({"entries": vec![entry; 20]}).to_string();
                let answer = client.request("POST /entries", &headers, body).json();
                let new = answer["entries"].as_array().unwrap();
                ids.extend(new.iter().map(|entry| entry["id"].as_i64().unwrap()));
            }
            5..8 if !ids.is_empty() => {
                let id = ids[usize::try_from(random(u64::try_from(ids.len()).unwrap())).unwrap()];
                let body = json!({"entry": entry}).to_string();
                let answer = client.request(&format!("PUT /entries/{id}"), &headers, body);
                assert_eq!(answer.status, 200, "{answer}");
            }
            _ if !ids.is_empty() => {
                let at = usize::try_from(random(u64::try_from(ids.len()).unwrap())).unwrap();
                let id = ids.swap_remove(at);
                let answer = client.request(&format!("DELETE /entries/{id}"), &headers, "");
                assert_eq!(answer.status, 204, "{answer}");
            }
            _ => {}
        }
    }
}

/// Follows a list, cut again and again, until the writers are done and the copy is the list.
fn read(address: SocketAddr, (target, login): (&str, &str), seed: usize, is_done: &AtomicBool) {
    let mut source = EventSource::new(target).header("Authorization", login);
    let (mut copy, mut cuts) = (ListCopy::default(), 0);
    let list = || fetch_list(address, &target.replace("snapshot=true", "limit=500"), login);
    loop {
        source.connect(address).unwrap();
        let is_last = is_done.load(Ordering::SeqCst) && cuts > 3;
        if !is_last {
            source.cut_after(3_000 + 7_919 * ((seed + cuts) % 9));
        }
        let expected = is_last.then(list);
        loop {
            if copy.is_synced && expected.as_ref().is_some_and(|expected| *expected == copy.items) {
                return;
            }
            match source.poll(Duration::from_millis(100)) {
                Some(Received::Event(event)) => copy.apply(&event),
                Some(Received::End(end)) => {
                    assert_eq!(end, StreamEnd::Cut, "{target}");
                    break;
                }
                // Nothing more will come before the cut.
                None if is_done.load(Ordering::SeqCst) && !is_last => break,
                None => {}
            }
        }
        cuts += 1;
    }
}

/// A transaction that has drawn a number and commits after the snapshot: its change comes after the items, and the
/// changes with larger numbers that the snapshot has do not come again.
#[test]
fn snapshot_with_a_transaction_in_flight_has_each_change_once() {
    let server = start(Backend::Postgres);
    create(&server, 1);
    let held = OpenTransaction::begin(server.folder(), HELD_ENTRY);
    create(&server, 2);
    let mut source = EventSource::new("/entries?snapshot=true");
    source.connect(server.address).unwrap();
    let items = source.next_events(3);
    assert_eq!(lines(&items), "reset null null\nitem \"/entries/1\" 1\nitem \"/entries/2\" 2");
    held.commit();
    let events = source.next_events(2);
    assert_eq!(lines(&events), "created \"/entries/7\" 7\nsynced null null");
    let ids: Vec<_> = events.iter().map(|event| &*event.id).collect();
    assert_eq!(ids, ["", "3"]);
    create(&server, 3);
    assert_eq!(source.next_event().id, "4");
}

/// A stream that transactions in flight hold back waits for the tail, and the tail polls less and less.
#[test]
fn snapshot_during_a_long_transaction_does_not_poll_often_on_postgres() {
    let model = MODEL.replace("heartbeat_seconds = 600", "heartbeat_seconds = 1");
    let server = Setup::new(Backend::Postgres).model(&model).start();
    create(&server, 1);
    let held = OpenTransaction::begin(server.folder(), HELD_ENTRY);
    create(&server, 2);
    let mut source = EventSource::new("/entries?snapshot=true").connected(server.address);
    assert_eq!(source.next_events(3).len(), 3);
    let polls = |kind: &str| -> u64 {
        server.metric(&format!("nouns_feed_polls_total{{kind=\"{kind}\"}}")).unwrap()
    };
    // At first the server is not notified of the commits of others, and polls.
    wait_until("the tail polls less than five times a second", || {
        let (before, comments) = (polls("tail"), source.comments().len());
        wait_until("four seconds have passed", || {
            assert_eq!(source.poll(Duration::from_millis(50)), None);
            (source.comments().len() >= comments + 4).then_some(())
        });
        (polls("tail") - before < 20).then_some(())
    });
    assert_eq!(polls("catch_up"), 1);
    held.commit();
    assert_eq!(lines(&source.next_events(2)), "created \"/entries/7\" 7\nsynced null null");
}
