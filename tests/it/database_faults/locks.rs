//! Locks of other sessions, deadlocks, and connection limits of PostgreSQL.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::session::PostgresSession;
use super::{ProxiedServer, model, postgres_address};
use crate::harness::{
    Answer, Client, OwnPostgres, Postgres, Setup, Stopwatch, TIMEOUT, wait_until,
};

/// For servers whose limits are not tested: no request reaches them while a test arranges what it waits for.
const LONG_LIMITS: &str = "request_seconds_max = 60\nstatement_seconds_max = 50";

/// How many of the server's sessions wait for a lock.
const WAITING_SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name <> 'beside'";

fn wait_for_waiting_sessions(session: &mut PostgresSession, count: usize) {
    wait_for_waiting_statements(session, count, "%");
}

/// The same for statements that match this pattern.
fn wait_for_waiting_statements(session: &mut PostgresSession, count: usize, form: &str) {
    let waiting = format!("{WAITING_SESSIONS} AND query LIKE '{form}'");
    wait_until("the server waits for a lock", || {
        (session.value(&waiting).parse::<usize>().unwrap() >= count).then_some(())
    });
}

/// A server with two people, and a session whose deadlock timeout is much longer than the server's.
fn start_with_people(limits: &str) -> (ProxiedServer, PostgresSession, [String; 2]) {
    let mut bench = ProxiedServer::start(limits);
    let people = ["Ann", "Bob"].map(|name| create_person(&mut bench, name));
    let other = open_session(&mut bench);
    (bench, other, people)
}

fn open_session(bench: &mut ProxiedServer) -> PostgresSession {
    let name = bench.session.value("SELECT current_database()");
    let mut session = PostgresSession::open(postgres_address(&Postgres::shared()), &name);
    session.rows("SET deadlock_timeout = '60s'");
    session
}

fn create_person(bench: &mut ProxiedServer, name: &str) -> String {
    bench.create("/people", format!(r#"{{"person":{{"name":"{name}"}}}}"#))
}

fn id(path: &str) -> &str {
    path.rsplit_once('/').unwrap().1
}

/// A team with two tasks, and their ids in the order in which a delete removes them.
fn create_team(bench: &mut ProxiedServer) -> (String, Vec<String>) {
    let team = bench.create("/teams", r#"{"team":{"name":"One"}}"#.to_owned());
    for _ in 0..2 {
        bench.create(&format!("{team}/tasks"), r#"{"task":{"title":"x"}}"#.to_owned());
    }
    let tasks = format!("SELECT id FROM tasks WHERE team_id = {} ORDER BY id", id(&team));
    let tasks = bench.session.rows(&tasks).into_iter().flatten().collect();
    (team, tasks)
}

fn lock_task(session: &mut PostgresSession, task: &str) {
    session.rows("BEGIN");
    session.rows(&format!("SELECT 1 FROM tasks WHERE id = '{task}' FOR UPDATE"));
}

/// The server waits last, and so PostgreSQL aborts its transaction: it has locked the team, and waits
/// for the second task, whose holder waits for the team.
#[test]
fn deadlock_is_retried() {
    let (mut bench, mut other, _) = start_with_people(LONG_LIMITS);
    let (team, tasks) = create_team(&mut bench);
    let before = bench.session.value(DEADLOCKS);
    // A third session: reads inside a transaction keep their snapshot.
    let mut first = open_session(&mut bench);
    lock_task(&mut first, &tasks[0]);
    lock_task(&mut other, &tasks[1]);
    let (address, line) = (bench.server.address, format!("DELETE {team}"));
    let delete = thread::spawn(move || Client::connect(address).request(&line, &[], ""));
    wait_for_waiting_sessions(&mut bench.session, 1);
    other.send_statement(&format!("SELECT 1 FROM teams WHERE id = {} FOR UPDATE", id(&team)));
    wait_until("the other one waits too", || {
        let waiting = "SELECT count(*) FROM pg_stat_activity \
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
        (bench.session.value(waiting).parse::<usize>().unwrap() >= 2).then_some(())
    });
    first.rows("COMMIT");
    other.read_response().unwrap();
    other.rows("COMMIT");
    let answer = delete.join().unwrap();
    assert_eq!(answer.status, 204, "{answer:?}");
    wait_until("the database has counted it", || {
        (bench.session.value(DEADLOCKS) != before).then_some(())
    });
    bench.check_log();
}

const DEADLOCKS: &str = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";

/// When the same deadlock occurs again and again, the server gives up at the request's deadline.
#[test]
fn deadlock_that_recurs_is_given_up_at_the_deadline() {
    let (mut bench, mut other, _) =
        start_with_people("request_seconds_max = 4\nstatement_seconds_max = 3");
    let (team, tasks) = create_team(&mut bench);
    let (address, line) = (bench.server.address, format!("DELETE {team}"));
    lock_task(&mut other, &tasks[1]);
    let start = Stopwatch::start();
    let delete = thread::spawn(move || Client::connect(address).request(&line, &[], ""));
    // The session keeps its lock and requests the other one again, until the server has given up.
    while !delete.is_finished() {
        other.rows("SAVEPOINT again");
        other.rows(&format!("SELECT 1 FROM teams WHERE id = {} FOR UPDATE", id(&team)));
        other.rows("ROLLBACK TO again");
        assert!(start.elapsed() < Duration::from_secs(30));
    }
    let answer = delete.join().unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.header("Retry-After").is_some(), "{answer:?}");
    other.rows("ROLLBACK");
    let again = (format!("DELETE {team}"), String::new());
    assert_eq!(bench.retry_unavailable(&again).status, 204);
}

/// Overlapping deletes: each deletes a team with its tasks, in a different order.
#[test]
fn deadlock_of_overlapping_deletes_and_updates_is_resolved() {
    let mut bench = ProxiedServer::start(LONG_LIMITS);
    let address = bench.server.address;
    for _ in 0..5 {
        let (team, tasks) = create_team(&mut bench);
        let task = &tasks[1];
        let lines = [
            (format!("DELETE {team}"), String::new()),
            (format!("PUT {team}/tasks/{task}"), r#"{"task":{"title":"y"}}"#.to_owned()),
            (format!("POST {team}/tasks"), r#"{"task":{"title":"z"}}"#.to_owned()),
            (format!("DELETE {team}/tasks/{task}"), String::new()),
        ];
        let asked = lines.map(|(line, body)| {
            thread::spawn(move || Client::connect(address).request(&line, &[], body))
        });
        for answer in asked.map(|thread| thread.join().unwrap()) {
            assert!([200, 201, 204, 404].contains(&answer.status), "{answer:?}");
        }
    }
    bench.check_log();
}

/// Writes that wait for a lock use all connections that writes may use, and reads still succeed.
#[test]
fn connection_pool_full_of_waiting_writes_serves_reads() {
    // The server's threads share them, and each thread reserves one for reads.
    let threads = thread::available_parallelism().unwrap().get();
    let limits = format!("{LONG_LIMITS}\ndatabase_connections_max = {}", 4 * threads);
    let (mut bench, mut other, [ann, _]) = start_with_people(&limits);
    other.rows("BEGIN");
    other.rows("SELECT 1 FROM people FOR UPDATE");
    let address = bench.server.address;
    let writes: Vec<_> = (0..16 * threads)
        .map(|number| {
            let line = format!("PUT {ann}");
            let body = format!(r#"{{"person":{{"name":"n{number}"}}}}"#);
            thread::spawn(move || Client::connect(address).request(&line, &[], body))
        })
        .collect();
    wait_until("many wait", || {
        (bench.session.value(WAITING_SESSIONS).parse::<usize>().unwrap() >= 3).then_some(())
    });
    for _ in 0..20 {
        let start = Stopwatch::start();
        // Each on a connection of its own, so that every thread of the server has some.
        let answer = bench.server.get(&ann);
        assert_eq!(answer.status, 200, "{answer:?}");
        // If the writes took all connections, the read would be refused, or would wait until the writes end.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
    // A write without a connection is refused after 5 s; one with a connection keeps waiting.
    let refused: Vec<Answer> = collect_responses(writes, 1, &mut other);
    for answer in refused.iter().filter(|answer| answer.status != 200) {
        assert_eq!((answer.status, answer.problem().as_str()), (503, "busy"), "{answer:?}");
        assert!(answer.header("Retry-After").is_some(), "{answer:?}");
    }
    assert!(refused.iter().any(|answer| answer.status == 200));
    assert!(refused.iter().any(|answer| answer.status == 503));
    bench.check_log();
}

/// Waits for this many responses, releases the lock, and waits for the rest.
fn collect_responses(
    writes: Vec<thread::JoinHandle<Answer>>,
    count: usize,
    other: &mut PostgresSession,
) -> Vec<Answer> {
    wait_until("some are refused", || {
        (writes.iter().filter(|write| write.is_finished()).count() >= count).then_some(())
    });
    other.rows("COMMIT");
    writes.into_iter().map(|write| write.join().unwrap()).collect()
}

/// A request waits for a table lock at most as long as a statement may take.
#[test]
fn table_lock_held_too_long_is_unavailable() {
    let limits = "request_seconds_max = 20\nstatement_seconds_max = 1";
    let (mut bench, mut other, [ann, _]) = start_with_people(limits);
    other.rows("BEGIN");
    other.rows("LOCK TABLE people IN EXCLUSIVE MODE");
    let start = Stopwatch::start();
    let write = (format!("PUT {ann}"), r#"{"person":{"name":"Eve"}}"#.to_owned());
    let answer = bench.request(&write);
    assert_eq!((answer.status, answer.problem().as_str()), (503, "unavailable"), "{answer:?}");
    assert!(answer.header("Retry-After").is_some(), "{answer:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    // Reads only conflict with locks against changes of the table itself. On a busy machine one may exceed the limit.
    wait_until("a read is answered", || (bench.server.get(&ann).status == 200).then_some(()));
    other.rows("COMMIT");
    other.rows("BEGIN");
    other.rows("LOCK TABLE people IN ACCESS EXCLUSIVE MODE");
    let answer = bench.server.get(&ann);
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.header("Retry-After").is_some(), "{answer:?}");
    other.rows("COMMIT");
    assert_eq!(bench.retry_unavailable(&write).status, 200);
}

/// Small reads share a pipelined connection, whose responses come in order: a locked table delays reads
/// of another table for a moment (head-of-line blocking), and not until it is unlocked.
#[test]
fn pipelined_reads_of_a_locked_table_do_not_delay_other_tables() {
    let threads = thread::available_parallelism().unwrap().get();
    let limits = format!("{LONG_LIMITS}\ndatabase_connections_max = {}", 16 * threads);
    let (mut bench, mut other, [ann, _]) = start_with_people(&limits);
    let (team, _) = create_team(&mut bench);
    let (address, is_over) = (bench.server.address, AtomicBool::new(false));
    let read = |path: &str| {
        let began = Stopwatch::start();
        let answer = Client::connect(address).request(&format!("GET {path}"), &[], "");
        assert_eq!(answer.status, 200, "{answer:?}");
        began.elapsed()
    };
    let until = Instant::now() + 2 * TIMEOUT;
    thread::scope(|scope| {
        let readers = || -> Duration {
            let goes_on = |_: &u32| !is_over.load(Ordering::Relaxed) && Instant::now() < until;
            let longest = |longest: Duration, _| longest.max(read(&team));
            (0..).take_while(goes_on).fold(Duration::ZERO, longest)
        };
        let readers: Vec<_> = (0..8).map(|_| scope.spawn(readers)).collect();
        other.rows("BEGIN");
        other.rows("LOCK TABLE people IN ACCESS EXCLUSIVE MODE");
        let held: Vec<_> = (0..4).map(|_| scope.spawn(|| read(&ann))).collect();
        wait_for_waiting_sessions(&mut bench.session, 4);
        // Longer than a shared connection waits for a stalled read, and once again.
        thread::sleep(Duration::from_secs(3));
        assert!(held.iter().all(|reader| !reader.is_finished()));
        is_over.store(true, Ordering::Relaxed);
        let longest = readers.into_iter().map(|reader| reader.join().unwrap()).max().unwrap();
        println!("the longest read of another table took {longest:?}");
        assert!(longest < Duration::from_secs(20), "{longest:?}");
        other.rows("COMMIT");
        assert!(held.into_iter().all(|reader| reader.join().is_ok()));
    });
    wait_until("every connection is given back", || {
        let open = metric_value(&bench, "nouns_pool_connections_open");
        (metric_value(&bench, "nouns_pool_connections_idle") == open).then_some(())
    });
    bench.check_log();
}

/// The value of one of the server's metrics.
pub(super) fn metric_value(bench: &ProxiedServer, name: &str) -> f64 {
    bench.server.metric(name).unwrap_or_else(|| panic!("no {name}"))
}

/// A client that disconnects during a statement occupies no connection of its own; its read or write keeps
/// its admission permit until the database is done with it, and a write is done once.
#[test]
fn client_disconnect_frees_the_connection_and_completes_the_write() {
    // Over HTTP/2 the server notices a disconnect at once.
    let (mut bench, mut other, [ann, _]) = start_with_people(LONG_LIMITS);
    other.rows("BEGIN");
    other.rows("LOCK TABLE people IN ACCESS EXCLUSIVE MODE");
    let put = ["--request", "PUT", "--json", r#"{"person":{"name":"Eve"}}"#];
    let post = ["--json", r#"{"person":{"name":"Dan"}}"#];
    let requests = [
        (&ann[..], &[][..], "SELECT %"),
        (&ann[..], &put[..], "% FOR NO KEY UPDATE%"),
        ("/people", &post[..], "%INSERT INTO %"),
    ];
    // The fixture's own session, and the one that counts.
    let connections = metric_value(&bench, "nouns_connections_open");
    let mut under_way = 0.0;
    for (path, args, form) in requests {
        let mut command = Command::new("curl");
        command.args(["--disable", "--silent", "--max-time", "60", "--http2-prior-knowledge"]);
        command.args(args).arg(format!("http://{}{path}", bench.server.address));
        let mut client = command.env_clear().stdout(Stdio::null()).spawn().unwrap();
        wait_for_waiting_statements(&mut bench.session, 1, form);
        client.kill().unwrap();
        client.wait().unwrap();
        // Nothing else bounds the number of such requests.
        under_way += 1.0;
        wait_until("the server sees that the client has left", || {
            let open = metric_value(&bench, "nouns_connections_open");
            let places = metric_value(&bench, "nouns_requests_in_flight");
            ((open, places) == (connections, under_way)).then_some(())
        });
        assert_eq!(
            metric_value(&bench, "nouns_pool_connections_failed_total"),
            0.0,
            "{path} {args:?}"
        );
    }
    other.rows("COMMIT");
    wait_until("every connection is given back", || {
        let open = metric_value(&bench, "nouns_pool_connections_open");
        (metric_value(&bench, "nouns_pool_connections_idle") == open).then_some(())
    });
    assert_eq!(metric_value(&bench, "nouns_pool_connections_failed_total"), 0.0);
    wait_until("every place is given back", || {
        (metric_value(&bench, "nouns_requests_in_flight") == 0.0).then_some(())
    });
    let written = "SELECT string_agg(name, ' ' ORDER BY name) FROM people";
    assert_eq!(bench.session.value(written), "Bob Dan Eve");
    bench.check_log();
}

/// An uncommitted child locks its parent against removal, and not against changes.
#[test]
fn parent_update_does_not_wait_for_an_uncommitted_child() {
    let (mut bench, mut other, _) =
        start_with_people("request_seconds_max = 20\nstatement_seconds_max = 1");
    let (team, tasks) = create_team(&mut bench);
    other.rows("BEGIN");
    other.rows(&format!(
        "INSERT INTO tasks (id, team_id, created_at, updated_at, version, title) \
         SELECT gen_random_uuid(), team_id, created_at, updated_at, 1, 'late' FROM tasks \
         WHERE id = '{}'",
        tasks[0]
    ));
    let body = |name: &str| format!(r#"{{"team":{{"name":"{name}"}}}}"#);
    for (method, name) in [("PATCH", "Two"), ("PUT", "Three")] {
        // One that waits for the child exceeds the limit each time.
        let answer = bench.retry_unavailable(&(format!("{method} {team}"), body(name)));
        assert_eq!(answer.status, 200, "{method}: {answer:?}");
    }
    let answer = bench.request(&(format!("DELETE {team}"), String::new()));
    assert_eq!((answer.status, answer.problem().as_str()), (503, "unavailable"), "{answer:?}");
    other.rows("ROLLBACK");
    let again = (format!("DELETE {team}"), String::new());
    assert_eq!(bench.retry_unavailable(&again).status, 204);
    bench.check_log();
}

/// A statement that computes too long, rather than waits.
#[test]
fn statement_timeout_cancels_a_long_computation() {
    let limits = "request_seconds_max = 20\nstatement_seconds_max = 1";
    let (mut bench, mut other, [ann, _]) = start_with_people(limits);
    other.rows(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_sleep(60); RETURN new; END'",
    );
    other.rows("CREATE TRIGGER slow BEFORE UPDATE ON people FOR EACH ROW EXECUTE FUNCTION slow()");
    let start = Stopwatch::start();
    let write = (format!("PUT {ann}"), r#"{"person":{"name":"Eve"}}"#.to_owned());
    let answer = bench.request(&write);
    assert_eq!((answer.status, answer.problem().as_str()), (503, "timed-out"), "{answer:?}");
    assert!(answer.header("Retry-After").is_some(), "{answer:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    other.rows("DROP TRIGGER slow ON people");
    assert_eq!(bench.retry_unavailable(&write).status, 200);
}

/// When another program changes a column's type, the prepared statements are invalid, but the server
/// recovers.
#[test]
fn prepared_statements_invalidated_by_a_type_change_recover() {
    let (mut bench, mut other, [ann, _]) = start_with_people("");
    let write = |name: &str| (format!("PUT {ann}"), format!(r#"{{"person":{{"name":"{name}"}}}}"#));
    assert_eq!(bench.request(&write("Eve")).status, 200);
    other.rows("ALTER TABLE people ALTER COLUMN name TYPE varchar");
    let answer = bench.request(&write("Ann"));
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Other sessions use all connections of the database.
#[test]
fn connection_limit_of_postgres_exhausted_is_unavailable() {
    let database = OwnPostgres::start();
    let mut first = PostgresSession::open(postgres_address(&database), "postgres");
    first.rows("CREATE ROLE guest LOGIN");
    first.rows("GRANT ALL ON SCHEMA public TO guest");
    first.rows("CREATE DATABASE shop OWNER guest");
    let address = format!("postgres://guest@{}/shop", postgres_address(&database));
    let server = Setup::replica(address).model(&model("request_seconds_max = 3")).start();
    // Stands for many sessions: from now on PostgreSQL refuses new connections of this user.
    first.rows("ALTER ROLE guest CONNECTION LIMIT 0");
    first.rows(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'guest'",
    );
    let create =
        |name: &str| server.post("/people", format!(r#"{{"person":{{"name":"{name}"}}}}"#));
    let answer =
        wait_until("a request is refused", || Some(create("Ann")).filter(|it| it.status != 201));
    assert_eq!((answer.status, answer.problem().as_str()), (503, "unavailable"), "{answer:?}");
    assert!(answer.header("Retry-After").is_some(), "{answer:?}");
    assert_eq!(server.get("/people").status, 503);
    first.rows("ALTER ROLE guest CONNECTION LIMIT -1");
    // On a busy machine a new session may take longer than the deadline.
    wait_until("a person is created", || (create("Bob").status == 201).then_some(()));
    let list = wait_until("the list is read", || {
        Some(server.get("/people")).filter(|answer| answer.status == 200)
    });
    assert!(list.text().contains("Bob") && !list.text().contains("Ann"), "{list:?}");
}
