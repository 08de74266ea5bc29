//! The order of the change log: a polling reader gets every change once, in order, however late it is
//! committed.
//!
//! A second reader, which relies on the largest number it has seen, runs in the same test, and must
//! miss changes where numbers are assigned before they are committed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use serde_json::Value;

use crate::harness::{
    Backend, Client, EXECUTABLE, OpenTransaction, Server, Setup, is_soak, run_sql, wait_until,
};

const WRITERS: usize = 16;
const ALL: &str = "SELECT sequence FROM nouns_changes ORDER BY sequence";

fn rounds() -> usize {
    if is_soak() { 200 } else { 12 }
}

/// `nouns changes --follow`, and the lines it has printed.
struct Follower {
    process: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Follower {
    fn start(database: &str) -> Self {
        let mut command = Command::new(EXECUTABLE);
        command.args(["changes", "--follow", "--database", database]).env_clear();
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (out, into) = (process.stdout.take().unwrap(), Arc::clone(&lines));
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                into.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        Self { process, lines }
    }

    fn sequences(&self) -> Vec<i64> {
        let lines = self.lines.lock().unwrap();
        lines.iter().map(|line| line["sequence"].as_i64().unwrap()).collect()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A naive reader: it assumes that no smaller number follows the largest it has seen.
#[derive(Default)]
struct NaiveReader {
    last: AtomicI64,
    stop: AtomicBool,
}

/// Stops the reader when the test fails, too.
struct StopReaderOnDrop<'a>(&'a NaiveReader);

impl Drop for StopReaderOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl NaiveReader {
    fn read(&self, backend: Backend, folder: &Path) -> BTreeSet<i64> {
        let mut seen = BTreeSet::new();
        loop {
            let is_last_time = self.stop.load(Ordering::Relaxed);
            let last = self.last.load(Ordering::Relaxed);
            let query = format!(
                "SELECT sequence FROM nouns_changes WHERE sequence > {last} ORDER BY sequence"
            );
            let new = numbers(&run_sql(backend, folder, &query));
            self.last.store(new.last().copied().unwrap_or(last), Ordering::Relaxed);
            seen.extend(new);
            if is_last_time {
                return seen;
            }
        }
    }
}

fn numbers(text: &str) -> Vec<i64> {
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// Creates, bulks, updates and deletes, each from its own connection.
fn write_changes(address: std::net::SocketAddr) {
    let mut client = Client::connect(address);
    let customer = |name: &str| format!(r#"{{"name":"{name}","email":"a@example.com"}}"#);
    for round in 0..rounds() {
        let body = format!(r#"{{"customer":{}}}"#, customer("Ann"));
        let created = client.request("POST /customers", &[], &body);
        let path = created.header("Location").unwrap().to_owned();
        let many = vec![customer("Bea"); 30].join(",");
        let bulk = client.request("POST /customers", &[], format!(r#"{{"customers":[{many}]}}"#));
        assert_eq!(bulk.status, 201);
        let body = format!(r#"{{"customer":{}}}"#, customer(&format!("Cem {round}")));
        assert_eq!(client.request(&format!("PUT {path}"), &[], &body).status, 200);
        assert_eq!(client.request(&format!("DELETE {path}"), &[], "").status, 204);
    }
}

/// Takes its number early, and commits on request.
const LATE_CHANGE: &str = "BEGIN; INSERT INTO nouns_changes (sequence, time, resource, id, subject, kind, actor, request_id)
            VALUES (nouns_next_change(true), now(), 'customer', 'late', '/customers/late', 'created', '-', 'late') RETURNING sequence;\n";

on_every_backend! {
    fn change_log_follower_gets_every_change_once_in_order(backend: Backend) {
        let server = Setup::new(backend).start();
        let others: Vec<Server> = match backend {
            Backend::Sqlite => Vec::new(),
            Backend::Postgres => (0..2).map(|_| Setup::replica(server.database()).start()).collect(),
        };
        let mut addresses = vec![server.address];
        addresses.extend(others.iter().map(|replica| replica.address));
        let follower = Follower::start(&server.database());
        let naive = NaiveReader::default();
        let folder = server.folder();
        server.create("/customers", r#"{"customer":{"name":"First","email":"f@example.com"}}"#);
        let late = (backend == Backend::Postgres).then(|| OpenTransaction::begin(folder, LATE_CHANGE));
        let seen = thread::scope(|scope| {
            let stop = StopReaderOnDrop(&naive);
            let reader = scope.spawn(|| naive.read(backend, folder));
            let writers: Vec<_> = (0..WRITERS)
                .map(|number| {
                    let address = addresses[number % addresses.len()];
                    scope.spawn(move || write_changes(address))
                })
                .collect();
            if let Some(late) = late {
                wait_until("the naive reader is past it", || (naive.last.load(Ordering::Relaxed) > late.number + 100).then_some(()));
                let passed: Vec<_> = follower.sequences().into_iter().filter(|number| *number >= late.number).collect();
                assert!(passed.is_empty(), "read past {}, which may still come: {passed:?}", late.number);
                late.commit();
            }
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            drop(stop);
            reader.join().unwrap()
        });
        let all = numbers(&run_sql(backend, server.folder(), ALL));
        wait_until("the reader has them all", || (follower.sequences().len() >= all.len()).then_some(()));
        assert_eq!(follower.sequences(), all, "every change once, in order");
        match backend {
            Backend::Sqlite => assert_eq!(seen.len(), all.len(), "with one writer numbers come in order"),
            Backend::Postgres => assert!(seen.len() < all.len(), "the naive reader should have missed some"),
        }
        // The order also holds for each item.
        let mut versions: BTreeMap<String, i64> = BTreeMap::new();
        for change in follower.lines.lock().unwrap().iter().filter(|change| change["id"] != "late") {
            let id = change["id"].as_str().unwrap().to_owned();
            match (change["kind"].as_str().unwrap(), versions.get(&id).copied()) {
                ("created", None) => versions.insert(id, 1),
                ("updated", Some(version)) => {
                    assert_eq!(change["after"]["version"].as_i64(), Some(version + 1));
                    versions.insert(id, version + 1)
                }
                ("deleted", Some(version)) => {
                    assert_eq!(change["before"]["version"].as_i64(), Some(version));
                    versions.remove(&id)
                }
                other => panic!("{other:?}: {change}"),
            };
        }
    }
}

/// A value that one item at a time may have, and a second one like it with another kind of index.
const BADGES: &str = r#"
title = "Badges"
[server]
changes_keep = "forever"
[resources.person]
plural = "people"
[resources.person.fields]
badge = { type = "text", unique = true }
"#;

/// Pairs of clients, each with a badge of its own.
const PAIRS: usize = 8;

/// How often a badge changes hands: all pairs together.
fn handovers() -> usize {
    if is_soak() { 10_000 } else { 480 }
}

fn holder(badge: &str) -> String {
    format!(r#"{{"person":{{"badge":"{badge}"}}}}"#)
}

/// Gives a badge up, in one of three ways.
fn give_up_badge(client: &mut Client, path: &str, round: usize) {
    let other = holder(&format!("old {}", path.rsplit_once('/').unwrap().1));
    let answer = match round % 3 {
        0 => client.request(&format!("DELETE {path}"), &[], ""),
        1 => client.request(&format!("PUT {path}"), &[], &other),
        _ => client.request(&format!("PATCH {path}"), &[], &other),
    };
    assert!([200, 204].contains(&answer.status), "{answer:?}");
}

/// Takes a badge with a new item, one of several or alone. Returns the new item's path, and whether the
/// badge was free at the first try.
fn take_badge(client: &mut Client, badge: &str, round: usize) -> (String, bool) {
    let one = holder(badge);
    let many = format!(r#"{{"people":[{{"badge":"{badge} {round}"}},{{"badge":"{badge}"}}]}}"#);
    for attempt in 0.. {
        let body = if round % 4 == 3 { &many } else { &one };
        let answer = client.request("POST /people", &[], body);
        match answer.status {
            201 => {
                let person = &answer.json()["people"][1]["id"];
                let path = match (answer.header("Location"), person.as_str()) {
                    (Some(path), _) => path.to_owned(),
                    (None, Some(id)) => format!("/people/{id}"),
                    (None, None) => panic!("{answer:?}"),
                };
                return (path, attempt == 0);
            }
            409 => {}
            _ => panic!("{answer:?}"),
        }
    }
    unreachable!("it is tried until it is taken")
}

/// Two clients pass one badge on: one item gives it up while the next one takes it.
fn hand_over(addresses: &[std::net::SocketAddr], pair: usize, rounds: usize) -> usize {
    let badge = format!("badge {pair}");
    let address = |number: usize| addresses[number % addresses.len()];
    let (first, _) = take_badge(&mut Client::connect(address(pair)), &badge, 0);
    let (path, start) = (Mutex::new(first), Barrier::new(2));
    thread::scope(|scope| {
        let giver = scope.spawn(|| {
            let mut client = Client::connect(address(pair));
            for round in 0..rounds {
                start.wait();
                let held = path.lock().unwrap().clone();
                start.wait();
                give_up_badge(&mut client, &held, round);
                start.wait();
            }
        });
        let mut client = Client::connect(address(pair + 1));
        let mut at_once = 0;
        for round in 0..rounds {
            start.wait();
            start.wait();
            let (next, is_first_try) = take_badge(&mut client, &badge, round);
            at_once += usize::from(is_first_try);
            start.wait();
            *path.lock().unwrap() = next;
        }
        giver.join().unwrap();
        at_once
    })
}

/// Replays the log from its first entry: how often a badge comes to a new holder before the old one has
/// given it up.
fn count_inversions(log: &str) -> usize {
    let mut holders: BTreeMap<String, String> = BTreeMap::new();
    let mut badges: BTreeMap<String, String> = BTreeMap::new();
    let mut inversions = 0;
    for line in log.lines() {
        let (id, after) = line.split_once('|').unwrap();
        let gone = badges.remove(id);
        if let Some(badge) = gone.filter(|badge| holders.get(badge).is_some_and(|by| by == id)) {
            holders.remove(&badge);
        }
        if after.is_empty() {
            continue;
        }
        let badge =
            serde_json::from_str::<Value>(after).unwrap()["badge"].as_str().unwrap().to_owned();
        inversions += usize::from(holders.insert(badge.clone(), id.to_owned()).is_some());
        badges.insert(id.to_owned(), badge);
    }
    inversions
}

on_every_backend! {
    fn change_log_unique_value_is_given_up_before_it_is_taken(backend: Backend) {
        let server = Setup::new(backend).model(BADGES).start();
        let other = (backend == Backend::Postgres)
            .then(|| Setup::replica(server.database()).model(BADGES).start());
        let addresses: Vec<_> =
            [Some(&server), other.as_ref()].into_iter().flatten().map(|server| server.address).collect();
        let rounds = handovers() / PAIRS;
        let at_once: usize = thread::scope(|scope| {
            let pairs: Vec<_> = (0..PAIRS)
                .map(|pair| { let addresses = &addresses; scope.spawn(move || hand_over(addresses, pair, rounds)) })
                .collect();
            pairs.into_iter().map(|pair| pair.join().unwrap()).sum()
        });
        let log = run_sql(backend, server.folder(), "SELECT id, coalesce(after, '') FROM nouns_changes ORDER BY sequence");
        let inversions = count_inversions(&log);
        println!("{backend:?}: {} handovers, {at_once} at the first try, {inversions} inversions", rounds * PAIRS);
        assert_eq!(inversions, 0);
    }
}

/// The same, one step after the other: a create waits for a transaction that gives the value up, and
/// that takes its number only then.
#[test]
fn change_log_create_that_waited_is_numbered_after_its_wait() {
    // The create waits until the test has seen it wait.
    let model = BADGES.replace("[server]", "[server]\nlimits.statement_seconds_max = 60");
    let server = Setup::new(Backend::Postgres).model(&model).start();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND wait_event_type = 'Lock'";
    let bodies = [
        (None, holder("x")),
        (Some("a-key"), holder("x")),
        (None, r#"{"people":[{"badge":"y"},{"badge":"x"}]}"#.to_owned()),
    ];
    server.create("/people", holder("x"));
    for (key, body) in bodies {
        let give_up = "BEGIN; DELETE FROM people WHERE badge = 'x'; SELECT 0;\n";
        let mut late = OpenTransaction::begin(server.folder(), give_up);
        let address = server.address;
        let headers: Vec<_> = key.map(|key| ("Idempotency-Key", key)).into_iter().collect();
        let created = thread::scope(|scope| {
            let create =
                scope.spawn(|| Client::connect(address).request("POST /people", &headers, &body));
            wait_until("the create waits", || {
                (run_sql(Backend::Postgres, server.folder(), waiting).trim() == "1").then_some(())
            });
            late.run_statements(LATE_CHANGE.strip_prefix("BEGIN;").unwrap());
            late.commit();
            create.join().unwrap()
        });
        assert_eq!(created.status, 201, "{created:?}");
        let last = "SELECT string_agg(kind || ' ' || coalesce(after::json ->> 'badge', id), ', ' ORDER BY sequence) \
             FROM (SELECT * FROM nouns_changes ORDER BY sequence DESC LIMIT 2) AS last";
        let order = run_sql(Backend::Postgres, server.folder(), last);
        assert!(order.trim().ends_with("created x"), "{order}");
        if !body.contains("\"y\"") {
            assert_eq!(order.trim(), "created late, created x");
        }
    }
}

/// A transaction is suspended inside of `nouns_next_change`: it has read the last number, and does not
/// hold its lock yet. Meanwhile others commit, and the mark passes that number. When the transaction
/// continues, its lock lowers the mark, although it draws a larger number than all of those.
#[test]
fn change_log_mark_that_falls_hides_no_change_and_repeats_none() {
    let server = Setup::new(Backend::Postgres).start();
    let other = Setup::replica(server.database()).start();
    let follower = Follower::start(&server.database());
    let create = |count: i64| {
        for number in 0..count {
            let to = if number % 2 == 0 { &server } else { &other };
            to.create("/customers", r#"{"customer":{"name":"Ann","email":"a@example.com"}}"#);
        }
    };
    let sql = |query: &str| numbers(&run_sql(Backend::Postgres, server.folder(), query));
    let mark = || sql("SELECT nouns_settled_change()")[0];
    create(1);
    // The statements of `nouns_next_change(true)`, one after the other.
    let read = "BEGIN; SELECT pg_sequence_last_value('nouns_changes_sequence'::regclass);\n";
    let mut late = OpenTransaction::begin(server.folder(), read);
    assert_eq!(late.number, 1);
    create(10);
    wait_until("the follower has them all", || (follower.sequences().len() == 11).then_some(()));
    assert_eq!(mark(), 11);
    late.run_statements(
        "SELECT 0 FROM pg_advisory_xact_lock_shared('nouns_changes_sequence'::regclass::oid::int4, 1);\n",
    );
    assert_eq!(mark(), 1, "the function falls: each reader keeps the largest mark it has seen");
    create(4);
    let draw = LATE_CHANGE.strip_prefix("BEGIN;").unwrap();
    late.run_statements(&draw.replace("nouns_next_change(true)", "nouns_next_change(false)"));
    assert_eq!(late.number, 16, "larger than every number up to a mark that was returned");
    create(2);
    // Servers cached the larger mark, and the list has changed since: neither makes a stale response.
    for to in [&server, &other] {
        let list = to.get("/customers?limit=500");
        assert_eq!(list.json()["customers"].as_array().unwrap().len(), 17);
        let tag = list.header("ETag").map(str::to_owned);
        create(1);
        let again = to.request(
            "GET /customers?limit=500",
            &[("If-None-Match", tag.as_deref().unwrap_or("\"none\""))],
            "",
        );
        assert_eq!(again.status, 200, "{tag:?}");
        let id = again.json()["customers"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(to.delete(&format!("/customers/{id}")).status, 204);
    }
    late.commit();
    let all = sql(ALL);
    wait_until("the follower has them all", || {
        (follower.sequences().len() >= all.len()).then_some(())
    });
    assert_eq!(follower.sequences(), all, "every change once, in order");
}
