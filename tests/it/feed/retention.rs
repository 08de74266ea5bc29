//! Event streams while old changes are removed from the log, and while the log cannot be read.

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Backend, ConnectError, EventSource, Server, Setup, StreamEnd, StreamEvent, run_sql, wait_until,
};

const MODEL: &str = r#"
title = "Log"
[server.limits]
heartbeat_seconds = 1
[resources.entry]
id = "integer"
[resources.entry.fields]
text = { type = "text" }
[resources.visit]
id = "integer"
changes = "ids"
[resources.visit.fields]
page = { type = "text" }
"#;

/// Removes the changes up to a number, as a sweep does.
fn sweep(server: &Server, backend: Backend, last: i64) {
    let sql = format!(
        "BEGIN; DELETE FROM nouns_changes WHERE sequence <= {last};
         UPDATE nouns_system SET value = '{last}' WHERE name = 'changes_swept'; COMMIT"
    );
    run_sql(backend, server.folder(), &sql);
}

/// Removes the changes after a number, as a failover to a standby that was behind does, or a restored backup.
fn lose_end(server: &Server, backend: Backend, last: i64) {
    let renumber = match backend {
        Backend::Sqlite => String::new(),
        Backend::Postgres => format!("; SELECT setval('nouns_changes_sequence', {last})"),
    };
    let sql = format!("DELETE FROM nouns_changes WHERE sequence > {last}{renumber}");
    run_sql(backend, server.folder(), &sql);
}

fn write_entries(server: &Server, count: usize, text: &str) {
    let client = &mut server.client();
    let body = json!({"entry": {"text": text}}).to_string();
    for _ in 0..count {
        assert_eq!(client.request("POST /entries", &[], &body).status, 201);
    }
}

fn refusal(source: &mut EventSource, server: &Server) -> (u16, Option<String>) {
    match source.connect(server.address) {
        Err(ConnectError::Refused(answer)) => {
            (answer.status, answer.header("Changes-Oldest").map(str::to_owned))
        }
        other => panic!("{other:?}"),
    }
}

on_every_backend! {
    /// A stream that went on would miss the entries which get the lost numbers.
    fn stream_whose_log_has_lost_its_end_is_cut(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        write_entries(&server, 5, "a");
        let mut source = EventSource::new("/entries?since=0").connected(server.address);
        assert_eq!(source.next_events(5)[4].id, "5");
        let mut copy = EventSource::new("/entries?snapshot=true").connected(server.address);
        assert_eq!(copy.next_events(7)[6].kind, "synced");
        lose_end(&server, backend, 2);
        write_entries(&server, 1, "b");
        for source in [&mut source, &mut copy] {
            let (events, end) = source.read_to_end();
            assert_eq!((events.len(), end), (0, StreamEnd::Truncated), "{events:?}");
        }
        wait_until("it is logged", || {
            server.log().contains("the change log has lost its end").then_some(())
        });
        assert_eq!(refusal(&mut source, &server), (400, None));
        copy.connect(server.address).unwrap();
        assert_eq!(copy.next_event().kind, "reset");
        let polled = server.get("/-/changes?since=5&wait=60");
        assert_eq!(polled.problem(), "position-not-reached");
        let mut source = EventSource::new("/entries?since=2").connected(server.address);
        write_entries(&server, 1, "c");
        let ids: Vec<_> = source.next_events(2).into_iter().map(|event| event.id).collect();
        assert_eq!(ids, ["3", "4"]);
    }

    fn stream_position_that_was_swept_is_gone(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        write_entries(&server, 5, "a");
        sweep(&server, backend, 3);
        for target in ["/entries", "/-/changes"] {
            for position in ["1", "2"] {
                let mut source = EventSource::new(target).resume_after(position);
                assert_eq!(refusal(&mut source, &server), (410, Some("4".to_owned())), "{target}");
            }
            let mut source = EventSource::new(&format!("{target}?since=3")).connected(server.address);
            let mut oldest = EventSource::new(&format!("{target}?since=0")).connected(server.address);
            for source in [&mut source, &mut oldest] {
                let events = source.next_events(2);
                let numbers: Vec<_> = events.iter().map(StreamEvent::sequence).collect();
                assert_eq!(numbers, [4, 5], "{target}");
            }
        }
    }

    /// A client that reads slowly is overtaken by the sweep: it does not miss changes without noticing.
    fn stream_that_catches_up_is_cut_when_what_it_has_not_read_is_swept(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let count = 400;
        write_entries(&server, count, &"x".repeat(100_000));
        let mut source = EventSource::new("/entries?since=0").connected(server.address);
        assert_eq!(source.next_event().sequence(), 1);
        sweep(&server, backend, 399);
        let (events, end) = source.read_to_end();
        assert_eq!(end, StreamEnd::Truncated);
        let numbers: Vec<_> = events.iter().map(StreamEvent::sequence).collect();
        let expected: Vec<_> = (2..).take(numbers.len()).collect();
        assert_eq!(numbers, expected, "nothing is left out");
        assert!(numbers.len() < count - 2);
        assert_eq!(refusal(&mut source, &server), (410, Some("400".to_owned())));
    }

    /// The position of a heartbeat is rounded, but never so far that the client could not resume.
    fn stream_heartbeat_position_rises_with_the_sweep(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let mut source = EventSource::new("/entries").connected(server.address);
        let visits: Vec<_> = (0..500).map(|_| json!({"page": "/"})).collect();
        let body = json!({"visits": visits}).to_string();
        for _ in 0..3 {
            assert_eq!(server.post("/visits", &body).status, 201);
        }
        let mut wait_for_id = |id: &str| {
            wait_until("a heartbeat has the position", || {
                assert_eq!(source.poll(Duration::from_millis(50)), None);
                (source.last_event_id() == id).then_some(())
            });
        };
        wait_for_id("1024");
        sweep(&server, backend, 1_400);
        wait_for_id("1400");
        source.close();
        write_entries(&server, 1, "a");
        source.connect(server.address).unwrap();
        assert_eq!(source.next_event().sequence(), 1_501);
    }

    /// The feed waits for an entry that it cannot read, says so, and goes on when it can.
    fn stream_stops_loudly_at_an_unreadable_entry_and_goes_on_after_its_repair(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let mut live = EventSource::new("/entries").connected(server.address);
        write_entries(&server, 1, "a");
        assert_eq!(live.next_event().sequence(), 1);
        let damage = match backend {
            Backend::Sqlite => "time = 'yesterday'",
            Backend::Postgres => "time = 'infinity'",
        };
        let columns = "sequence, time, resource, id, subject, kind, actor, request_id";
        let insert = match backend {
            Backend::Sqlite => format!(
                "INSERT INTO nouns_changes ({columns}) SELECT 2, 'yesterday', resource, id, subject, 'updated', actor, request_id FROM nouns_changes WHERE sequence = 1"
            ),
            Backend::Postgres => format!(
                "INSERT INTO nouns_changes ({columns}) SELECT nouns_next_change(true), 'infinity', resource, id, subject, 'updated', actor, request_id FROM nouns_changes WHERE sequence = 1"
            ),
        };
        run_sql(backend, server.folder(), &insert);
        write_entries(&server, 1, "b");
        wait_until("the failure is logged", || {
            server.log().contains("the change feed cannot read the change log").then_some(())
        });
        let failed: Option<u64> = server.metric("nouns_feed_failed_polls_total");
        assert!(failed.unwrap() > 0);
        let behind = EventSource::new("/entries?since=1").connected(server.address);
        let time = "(SELECT time FROM nouns_changes WHERE sequence = 1)";
        let repair = format!("UPDATE nouns_changes SET time = {time} WHERE {damage}");
        run_sql(backend, server.folder(), &repair);
        for mut source in [live, behind] {
            let events = source.next_events(2);
            let numbers: Vec<_> = events.iter().map(StreamEvent::sequence).collect();
            assert_eq!(numbers, [2, 3]);
        }
    }
}

/// Numbers of transactions that were rolled back are drawn again after a crash or a failover: nothing that was committed
/// depends on them. A stream that had passed them would miss the entries which get them.
#[test]
fn stream_goes_on_when_numbers_without_entries_are_drawn_again_on_postgres() {
    let server = Setup::new(Backend::Postgres).model(MODEL).start();
    write_entries(&server, 3, "a");
    let mut source = EventSource::new("/entries?since=0").connected(server.address);
    source.next_events(3);
    let sql = |text: &str| run_sql(Backend::Postgres, server.folder(), text);
    sql("SELECT setval('nouns_changes_sequence', 2000)");
    let reads = || server.metric::<usize>("nouns_feed_polls_total{kind=\"tail\"}").unwrap();
    let before = reads();
    wait_until("the feed has seen the number", || (reads() >= before + 2).then_some(()));
    assert_eq!(server.get("/-/changes").json()["page"]["position"], 3);
    sql("SELECT setval('nouns_changes_sequence', 3)");
    write_entries(&server, 2, "b");
    let ids: Vec<_> = source.next_events(2).into_iter().map(|event| event.id).collect();
    assert_eq!(ids, ["4", "5"]);
}
