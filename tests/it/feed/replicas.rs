//! Streams on several servers of one PostgreSQL database: a change on one reaches the streams of the others at
//! once, by LISTEN and NOTIFY or by polling, and nothing polls often while nothing happens.

use std::time::Duration;

use crate::harness::{Backend, EventSource, Server, Setup, Stopwatch, run_sql, wait_until};
use crate::pooling::PgBouncer;

const MODEL: &str = r#"
title = "Store"
[server.limits]
heartbeat_seconds = 1
[resources.customer.fields]
name = { type = "text", required = true }
"#;
const ANN: &str = r#"{"customer":{"name":"Ann"}}"#;
const SAMPLES: usize = 100;
/// A server that is not notified, and does not poll instead, finds a change after five seconds.
const AT_ONCE_MAX: Duration = Duration::from_secs(1);
const WINDOW_SECONDS: usize = 8;
/// Sessions of ours that send or receive notifications, by their last statement.
const NOTIFYING: &str = "FROM pg_stat_activity WHERE datname = current_database() \
    AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify(%') AND pid <> pg_backend_pid()";

/// How long after its response a write on one server reaches the stream of another: sorted.
fn measure_delays(writer: &Server, reader: &Server) -> Vec<Duration> {
    let mut source = EventSource::new("/customers").connected(reader.address);
    let mut client = writer.client();
    let mut delays: Vec<_> = (0..SAMPLES)
        .map(|_| {
            assert_eq!(client.request("POST /customers", &[], ANN).status, 201);
            let answered = Stopwatch::start();
            assert_eq!(source.next_event().kind, "created");
            answered.elapsed()
        })
        .collect();
    delays.sort();
    println!("median {:?}, 95 % {:?}", delays[SAMPLES / 2], delays[SAMPLES * 95 / 100]);
    delays
}

fn start_two() -> (Server, Server) {
    let first = Setup::new(Backend::Postgres).model(MODEL).start();
    let second = Setup::replica(first.database()).model(MODEL).start();
    (first, second)
}

fn sql(server: &Server, query: &str) -> String {
    run_sql(Backend::Postgres, server.folder(), query).trim().to_owned()
}

/// Waits until a server listens for notifications.
fn wait_for_listener(server: &Server) {
    wait_until("a server listens", || {
        let count = sql(server, &format!("SELECT count(*) {NOTIFYING}"));
        (count.parse::<usize>().unwrap() > 0).then_some(())
    });
}

#[test]
fn stream_shows_writes_of_another_replica_at_once_on_postgres() {
    let (first, second) = start_two();
    let delays = measure_delays(&second, &first);
    assert!(delays[SAMPLES / 2] < AT_ONCE_MAX, "{delays:?}");
    // Some are as fast as promised on a busy machine too, unless notifications are held back.
    assert!(delays[SAMPLES / 10] < Duration::from_millis(100), "{delays:?}");
    // A session is known by its last statement, which may be another one for a moment.
    wait_until("both servers notify each other", || {
        (sql(&first, &format!("SELECT count(*) {NOTIFYING}")) == "2").then_some(())
    });
}

#[test]
fn stream_shows_writes_of_another_replica_through_pgbouncer_on_postgres() {
    let bouncer = PgBouncer::start("");
    let model = MODEL.replace(
        "[server.limits]",
        "[server]\ndatabase_pooling = \"transaction\"\n[server.limits]",
    );
    let [first, second] = [(); 2].map(|()| bouncer.setup(&model).start());
    let delays = measure_delays(&second, &first);
    assert!(delays[SAMPLES / 2] < AT_ONCE_MAX, "{delays:?}");
}

#[test]
fn stream_goes_on_when_its_listening_session_is_terminated_on_postgres() {
    let (first, second) = start_two();
    let mut source = EventSource::new("/customers").connected(first.address);
    for _ in 0..3 {
        wait_for_listener(&first);
        second.create("/customers", ANN);
        assert_eq!(source.next_event().kind, "created");
        // A session is known by its last statement, which may be another one for a moment.
        wait_until("a session is terminated", || {
            let ended = format!("SELECT count(pg_terminate_backend(pid)) {NOTIFYING}");
            (sql(&first, &ended) != "0").then_some(())
        });
        // Until there is a new session, polling finds it, long before the poll that is due in any case.
        second.create("/customers", ANN);
        let written = Stopwatch::start();
        assert_eq!(source.next_event().kind, "created");
        assert!(written.elapsed() < Duration::from_secs(4), "{:?}", written.elapsed());
    }
    wait_until("it is logged", || first.log().contains("they are found by polling").then_some(()));
}

/// Waits for some seconds, by the heartbeats of another server.
fn wait_for_heartbeats(count: usize) {
    let server = Setup::new(Backend::Sqlite).model(MODEL).start();
    let source = &mut EventSource::new("/customers").connected(server.address);
    wait_until("the heartbeats have come", || {
        assert_eq!(source.poll(Duration::from_millis(50)), None);
        (source.comments().len() >= count).then_some(())
    });
}

/// The transactions of a database, in the statistics of PostgreSQL.
fn transactions(server: &Server) -> usize {
    let query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    sql(server, query).parse().unwrap()
}

/// Two servers that poll send 40 transactions a second. Idle ones send one in five seconds each, and sessions
/// that they open or renew send a few more; on a busy machine a window lasts longer than its heartbeats say.
const IDLE_TRANSACTIONS_MAX: usize = 12 * WINDOW_SECONDS;

/// The statistics of PostgreSQL are up to ten seconds late, and a server polls for a while after its start, so
/// the first windows can show more. A server that polls often has no quiet window.
fn wait_until_quiet(server: &Server, state: &str) {
    let mut seen = Vec::new();
    for _ in 0..10 {
        let before = transactions(server);
        wait_for_heartbeats(WINDOW_SECONDS);
        let count = transactions(server) - before;
        seen.push(count);
        if count <= IDLE_TRANSACTIONS_MAX {
            println!("{state}: {seen:?} transactions in {WINDOW_SECONDS} seconds");
            return;
        }
    }
    panic!("{state}: {seen:?} transactions in {WINDOW_SECONDS} seconds");
}

#[test]
fn idle_streams_do_not_poll_the_database_often_on_postgres() {
    let (first, second) = start_two();
    let mut sources: Vec<_> = [&first, &second]
        .map(|server| EventSource::new("/customers").connected(server.address))
        .into();
    first.create("/customers", ANN);
    sources.iter_mut().for_each(|source| drop(source.next_event()));
    wait_until_quiet(&first, "two idle streams");
    drop(sources);
    wait_until_quiet(&first, "no streams");
}
