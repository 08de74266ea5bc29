//! A former primary that is still there: read-only, or with changes that the new primary does not have.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::thread;

use serde_json::json;

use super::address_of;
use crate::harness::{
    Answer, Client, EventSource, OwnPostgres, Server, Setup, StreamEnd, wait_until,
};
use crate::webhooks::receiver::{Receiver, ReceiverAction};

const DATABASE: &str = "shop";
const MODEL: &str = r#"
title = "Notes"
[server]
changes_keep = "forever"
webhook_allow_private = true
[resources.note.fields]
text = { type = "text" }
"#;

fn start_pair() -> (OwnPostgres, OwnPostgres) {
    let primary = OwnPostgres::start();
    primary.sql("postgres", &format!("CREATE DATABASE {DATABASE}"));
    let standby = primary.start_standby();
    (primary, standby)
}

fn create_note(address: SocketAddr) -> Answer {
    Client::connect(address).request("POST /notes", &[], r#"{"note":{"text":"x"}}"#)
}

/// Creates notes concurrently, so that the server opens several connections; returns their paths.
fn create_notes(server: &Server, count: usize) -> Vec<String> {
    let address = server.address;
    let create = move || {
        let answer = create_note(address);
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.header("Location").unwrap().to_owned()
    };
    let created: Vec<_> = (0..count).map(|_| thread::spawn(create)).collect();
    created.into_iter().map(|one| one.join().unwrap()).collect()
}

/// Every session has the setting from its next statement on.
fn set_read_only(primary: &OwnPostgres, value: &str) {
    primary.sql("postgres", &format!("ALTER SYSTEM SET default_transaction_read_only = {value}"));
    primary.sql("postgres", "SELECT pg_reload_conf()");
    wait_until("the other sessions are told", || {
        let found = primary.sql("postgres", "SHOW default_transaction_read_only");
        (found.trim() == value).then_some(())
    });
}

/// The sessions of the former primary stay open, and read what is old.
#[test]
fn former_primary_that_is_read_only_is_left_without_an_error() {
    let (primary, standby) = start_pair();
    let server = Setup::replica(address_of(&[&primary, &standby], DATABASE)).model(MODEL).start();
    create_notes(&server, 32);
    let mut source = EventSource::new("/notes").connected(server.address);
    server.create("/notes", r#"{"note":{"text":"before"}}"#);
    assert_eq!(source.next_event().kind, "created");
    set_read_only(&primary, "on");
    primary.stop_replication(&standby);
    standby.promote();
    let paths = create_notes(&server, 32);
    for path in &paths {
        assert_eq!(server.get(path).status, 200, "a read finds what was written");
    }
    let mut seen = HashSet::new();
    wait_until("the stream shows all of them", || {
        seen.insert(source.next_event().json()["subject"].as_str().unwrap().to_owned());
        paths.iter().all(|path| seen.contains(path)).then_some(())
    });
}

/// Reads over the sessions of the former primary would end with a timeout.
#[test]
fn former_primary_that_hangs_is_left() {
    let (primary, standby) = start_pair();
    let model =
        format!("{MODEL}\n[server.limits]\nstatement_seconds_max = 8\nrequest_seconds_max = 30");
    let server = Setup::replica(address_of(&[&primary, &standby], DATABASE)).model(&model).start();
    let address = server.address;
    // The primary still works. A slow one answers within eight seconds, but for a rare statement; a hung one never.
    let create = move || {
        wait_until("a note is created", || {
            create_note(address).header("Location").map(str::to_owned)
        })
    };
    let before: Vec<_> = (0..32).map(|_| thread::spawn(create)).collect();
    let before: Vec<_> = before.into_iter().map(|one| one.join().unwrap()).collect();
    primary.stop_replication(&standby);
    standby.promote();
    let _frozen = primary.freeze();
    wait_until("a write is done by the new primary", || {
        (server.post("/notes", r#"{"note":{"text":"after"}}"#).status == 201).then_some(())
    });
    wait_until("all sessions of the former primary are left", || {
        before.iter().all(|path| server.get(path).status == 200).then_some(())
    });
    let paths = create_notes(&server, 32);
    for path in before.iter().chain(&paths) {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
}

/// There is no other server: it is not left, since it can still be read.
#[test]
fn primary_that_becomes_read_only_is_read_and_written_again_when_it_can_be() {
    let primary = OwnPostgres::start();
    primary.sql("postgres", &format!("CREATE DATABASE {DATABASE}"));
    let server = Setup::replica(address_of(&[&primary], DATABASE)).model(MODEL).start();
    let paths = create_notes(&server, 32);
    set_read_only(&primary, "on");
    for _ in 0..20 {
        let answer = server.post("/notes", r#"{"note":{"text":"x"}}"#);
        assert_eq!((answer.status, answer.problem().as_str()), (503, "unavailable"), "{answer:?}");
    }
    for path in &paths {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    set_read_only(&primary, "off");
    create_notes(&server, 32);
}

/// The new primary lacks changes that the server has sent, and draws their numbers again before the server looks.
#[test]
fn standby_that_was_behind_cuts_streams_and_webhooks_get_every_event() {
    let (primary, standby) = start_pair();
    let address = address_of(&[&primary, &standby], DATABASE);
    let server = Setup::replica(address).model(MODEL).with_authentication().start();
    let authorization = server.admin().basic();
    let headers = [("Authorization", &*authorization)];
    let receiver = Receiver::always(ReceiverAction::status(204));
    let hook = json!({"webhook": {"url": receiver.url(), "events": ["note.*"]}}).to_string();
    assert_eq!(server.request("POST /-/webhooks", &headers, hook).status, 201);
    let create = |server: &Server, text: &str| {
        let body = json!({"note": {"text": text}}).to_string();
        let answer = server.request("POST /notes", &headers, body);
        assert_eq!(answer.status, 201, "{answer:?}");
    };
    let source = EventSource::new("/notes").header("Authorization", &authorization);
    let mut source = source.connected(server.address);
    create(&server, "kept");
    source.next_event();
    let has_arrived = |text: &str| {
        let requests = receiver.requests();
        requests.iter().any(|request| request.body.contains(text)).then_some(())
    };
    wait_until("it is delivered", || has_arrived("kept"));
    primary.stop_replication(&standby);
    (0..3).for_each(|number| create(&server, &format!("lost {number}")));
    source.next_events(3);
    wait_until("they are delivered", || has_arrived("lost 2"));

    server.pause();
    primary.kill();
    standby.promote();
    // PostgreSQL skips up to 32 numbers after a crash, so that few are drawn twice; here all are.
    let reset =
        "SELECT setval('nouns_changes_sequence', (SELECT max(sequence) FROM nouns_changes))";
    standby.sql(DATABASE, reset);
    let write = "INSERT INTO nouns_changes SELECT nextval('nouns_changes_sequence'), now(), resource, id, parent_id, \
         subject, kind, actor, 'r' || number, changed, before, replace(after, 'kept', 'new ' || number) \
         FROM nouns_changes, generate_series(0, 7) AS number WHERE after LIKE '%kept%'";
    standby.sql(DATABASE, write);
    server.resume();
    let (_, end) = source.read_to_end();
    assert_eq!(end, StreamEnd::Truncated);
    wait_until("it is logged", || {
        server
            .log()
            .contains("the change log has lost its end, and the event streams")
            .then_some(())
    });
    for number in 0..8 {
        wait_until("each of the new ones is delivered", || has_arrived(&format!("new {number}")));
    }
}
