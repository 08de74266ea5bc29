//! The sweep of the change log and of stored responses, with a wrong clock or an idle database.
//!
//! `changes.rs` and `retries/limits.rs` test the sweep with right clocks.
//! The tests move the clock of a server with libfaketime, and PostgreSQL keeps its own, so that a
//! server that is ahead of its database runs under libfaketime.

use std::path::Path;

use crate::harness::{ANN, Answer, Backend, Folder, Server, Setup, run_sql, wait_until};

const KEY: (&str, &str) = ("Idempotency-Key", "k");
const DOUBT_MESSAGE: &str =
    "the clock is far ahead of the last recorded time: the change log is not swept";

/// Ahead by this much, such as `+31d`.
fn with_clock(setup: Setup, ahead: &str) -> Setup {
    setup.run_under(&[
        "/usr/bin/env",
        "LD_PRELOAD=/usr/$LIB/faketime/libfaketime.so.1",
        &format!("FAKETIME={ahead}"),
        "DONT_FAKE_MONOTONIC=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
    ])
}

fn number(backend: Backend, folder: &Path, query: &str) -> i64 {
    run_sql(backend, folder, query).trim().parse().unwrap()
}

fn entries(backend: Backend, folder: &Path) -> i64 {
    number(backend, folder, "SELECT count(*) FROM nouns_changes")
}

fn post_with_key(server: &Server) -> Answer {
    let answer = server.request("POST /customers", &[KEY], ANN);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer
}

/// A server with three entries in its change log and one stored response.
fn used_server(backend: Backend) -> (Server, Answer) {
    let server = Server::on(backend);
    let first = post_with_key(&server);
    server.create("/customers", ANN);
    server.create("/customers", ANN);
    (server, first)
}

#[track_caller]
fn check_replayed(first: &Answer, again: &Answer) {
    assert_eq!(again.header("Idempotent-Replayed"), Some("true"), "{again:?}");
    assert_eq!(first.body, again.body);
}

#[test]
fn sweep_of_a_replica_with_a_fast_clock_uses_the_database_clock() {
    let backend = Backend::Postgres;
    let (server, first) = used_server(backend);
    let address = server.database();
    let folder = server.stop();
    let folder = folder.path();
    let old = "INSERT INTO nouns_changes (sequence, time, resource, id, subject, kind, actor, request_id) \
               VALUES (-1, '2020-01-01T00:00:00Z', 'customer', 'x', '/customers/x', 'created', 'open', 'r')";
    run_sql(backend, folder, old);
    let fast = with_clock(Setup::replica(address), "+31d").start();
    wait_until("the fast server has swept", || {
        let old = "SELECT count(*) FROM nouns_changes WHERE sequence = -1";
        (number(backend, folder, old) == 0).then_some(())
    });
    assert_eq!(entries(backend, folder), 3);
    check_replayed(&first, &post_with_key(&fast));
    // Its writes have the database's time too.
    let path = fast.create("/customers", ANN);
    let id = path.rsplit_once('/').unwrap().1;
    let near = format!(
        "SELECT count(*) FROM customers JOIN nouns_changes ON nouns_changes.id = customers.id::text \
         WHERE customers.id = '{id}' AND abs(extract(epoch FROM created_at - now())) < 3600 \
         AND abs(extract(epoch FROM updated_at - time)) < 3600"
    );
    assert_eq!(number(backend, folder, &near), 1);
}

#[test]
fn sweep_after_a_start_with_a_fast_clock_waits_a_day() {
    let backend = Backend::Sqlite;
    let (server, first) = used_server(backend);
    let folder = server.stop();
    let server = with_clock(Setup::new(backend), "+31d").start_in(folder);
    wait_until("it has looked for old entries", || {
        let is_told = server.log().contains(DOUBT_MESSAGE);
        (is_told || entries(backend, server.folder()) < 3).then_some(())
    });
    assert_eq!(entries(backend, server.folder()), 3);
    check_replayed(&first, &post_with_key(&server));
    // A write with the wrong time changes nothing.
    server.create("/customers", ANN);
    let folder = server.stop();
    let server = with_clock(Setup::new(backend), "+755h").start_in(folder);
    wait_until("it has looked again", || server.log().contains(DOUBT_MESSAGE).then_some(()));
    assert_eq!(entries(backend, server.folder()), 4);
    // With the right time there is no doubt, and nothing is old.
    let server = Setup::new(backend).start_in(server.stop());
    check_replayed(&first, &post_with_key(&server));
    wait_until("the doubt is gone", || {
        let doubts =
            "SELECT count(*) FROM nouns_system WHERE name = 'changes_clock' AND value LIKE '% %'";
        (number(backend, server.folder(), doubts) == 0).then_some(())
    });
    assert!(!server.log().contains("far ahead"), "{}", server.log());
    assert_eq!(entries(backend, server.folder()), 4);
}

/// The clock is right, and stays ahead: 744 hours, and a day later.
#[test]
fn sweep_after_a_month_of_downtime_runs_a_day_later() {
    let backend = Backend::Sqlite;
    let (server, _) = used_server(backend);
    let server = with_clock(Setup::new(backend), "+744h").start_in(server.stop());
    wait_until("it has looked for old entries", || {
        server.log().contains(DOUBT_MESSAGE).then_some(())
    });
    let server = with_clock(Setup::new(backend), "+769h").start_in(server.stop());
    wait_until("the old entries are gone", || {
        (entries(backend, server.folder()) == 1).then_some(())
    });
    let keys = "SELECT count(*) FROM nouns_keys";
    wait_until("the old answers are gone", || {
        (number(backend, server.folder(), keys) == 0).then_some(())
    });
}

/// The stored time of the last sweep.
fn set_sweep_mark(backend: Backend, folder: &Folder, mark: &str) {
    let text = format!(
        "INSERT INTO nouns_system (name, value) VALUES ('changes_clock', '{mark}') \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    );
    run_sql(backend, folder.path(), &text);
}

on_every_backend! {
    fn sweep_of_an_idle_database_runs_after_a_day_of_doubt(backend: Backend) {
        let (server, _) = used_server(backend);
        let folder = server.stop();
        run_sql(backend, folder.path(), "UPDATE nouns_changes SET time = '2020-01-01T00:00:00.000000Z'");
        set_sweep_mark(backend, &folder, "2020-01-02T00:00:00.000000Z");
        let server = Setup::new(backend).start_in(folder);
        wait_until("it tells that it does not sweep", || server.log().contains(DOUBT_MESSAGE).then_some(()));
        assert_eq!(entries(backend, server.folder()), 3);
        let folder = server.stop();
        set_sweep_mark(backend, &folder, "2020-01-02T00:00:00.000000Z 2021-01-01T00:00:00.000000Z");
        let server = Setup::new(backend).start_in(folder);
        wait_until("the old entries are gone", || {
            (entries(backend, server.folder()) == 1).then_some(())
        });
        assert!(!server.log().contains(DOUBT_MESSAGE), "{}", server.log());
    }
}
