//! Event streams under fire: many writers, readers that cut their connection at any byte, servers that are
//! killed.
//!
//! The judge is the database's own log: each reader has received every change exactly once and in order, and
//! every write that was answered is among them. Other readers follow with `snapshot=true`, with a filter, and
//! with a row filter, and their copies of the list are the list at the end. On PostgreSQL three servers serve one database, readers connect
//! to another one each time, and a transaction holds back a number that it has drawn early.
//! `NOUNS_SOAK` makes 50,000 changes, otherwise there are fewer.

mod writer;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::writer::Writer;
use super::list_copy::{ListCopy, fetch_list};
use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{
    Backend, ConnectError, EventSource, OpenTransaction, Person, Received, Server, Setup,
    StreamEnd, StreamEvent, TIMEOUT, is_soak, run_sql, wait_until,
};

const WRITERS: usize = 16;
/// A list, and whether Ann reads it, who sees her own notes only.
const SNAPSHOTS: [(&str, bool); 4] = [
    ("/notes?", false),
    ("/notes?rank=1&", false),
    ("/notes?", true),
    ("/notes?rank:gte=1&", true),
];
const READERS: usize = 8;
const REPLICAS: usize = 3;
/// The changes at the end, which readers receive live.
const LIVE_CHANGES: usize = 100;
/// A cut may come as late as this; several events fit into it, and fewer than all.
const CUT_BYTES_MAX: usize = 60_000;

const MODEL: &str = r#"
title = "Notes"
[server]
changes_keep = "forever"
[server.limits]
heartbeat_seconds = 1
streams_per_caller_max = 400
[resources.note.fields]
text = { type = "text", required = true, unique = true }
rank = { type = "integer", default = 0, filter = true }
owner = { type = "text" }
[roles.owner]
note = { verbs = ["get"], where = "owner = $user" }
"#;

fn changes_min() -> usize {
    if is_soak() { 50_000 } else { 1_500 }
}

fn readers_timeout() -> Duration {
    if changes_min() > 10_000 { 10 * TIMEOUT } else { 4 * TIMEOUT }
}

/// One change of an item: its id, its kind, and the version that it made; a deletion makes none.
type ItemChange = (String, String, u64);

/// What writers, readers and the test share.
struct Battle {
    admin: String,
    ann: String,
    addresses: Mutex<Vec<Option<SocketAddr>>>,
    /// Changes that were answered.
    changes: AtomicUsize,
    answered: Mutex<BTreeSet<ItemChange>>,
    /// The last change that each reader has received.
    positions: [AtomicI64; READERS],
    /// Set when the last writer has ended: the last change of the log.
    last: AtomicI64,
    has_failed: AtomicBool,
}

/// Ends the other threads when one has failed.
struct FailOnPanic<'a>(&'a AtomicBool);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Battle {
    fn new(servers: &[Server]) -> Self {
        let ann = Person::new("ann", "the password of ann");
        servers[0].add_user(&ann, &["owner"]);
        Self {
            admin: servers[0].admin().basic(),
            ann: ann.basic(),
            addresses: Mutex::new(servers.iter().map(|server| Some(server.address)).collect()),
            changes: AtomicUsize::new(0),
            answered: Mutex::default(),
            positions: std::array::from_fn(|_| AtomicI64::new(0)),
            last: AtomicI64::new(i64::MAX),
            has_failed: AtomicBool::new(false),
        }
    }

    /// The address of a server that is not being restarted.
    fn some_address(&self, random: &mut SeededRandom) -> SocketAddr {
        wait_until("a server is there", || {
            assert!(!self.has_failed.load(Ordering::Relaxed), "another thread has failed");
            let addresses = self.addresses.lock().unwrap();
            let present: Vec<_> = addresses.iter().flatten().copied().collect();
            random.one_of(&present).copied()
        })
    }

    fn wait_for_readers(&self, last: i64) {
        wait_until("the readers have caught up", || {
            assert!(!self.has_failed.load(Ordering::Relaxed), "another thread has failed");
            self.positions.iter().all(|at| at.load(Ordering::Relaxed) >= last).then_some(())
        });
    }

    fn is_over(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
            || self.changes.load(Ordering::Relaxed) >= changes_min()
    }

    fn record(&self, change: ItemChange) {
        let name = format!("{change:?}");
        assert!(self.answered.lock().unwrap().insert(change), "answered twice: {name}");
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a reader has received.
#[derive(Default)]
struct Reading {
    sequences: Vec<i64>,
    changes: BTreeSet<ItemChange>,
    connections: usize,
}

impl Reading {
    fn take(&mut self, event: &StreamEvent) {
        let data = event.json();
        assert_eq!(data["id"].as_str(), Some(event.id.as_str()), "{event:?}");
        let id = data["subject"].as_str().unwrap().strip_prefix("/notes/").unwrap().to_owned();
        let version = data["data"]["after"]["version"].as_u64().unwrap_or(0);
        self.sequences.push(event.sequence());
        self.changes.insert((id, event.kind.clone(), version));
    }
}

/// Reads to the last change, over many connections.
fn read_all(battle: &Battle, number: usize, mut random: SeededRandom) -> Reading {
    let _fail = FailOnPanic(&battle.has_failed);
    let mut source = EventSource::new("/notes?since=0").header("Authorization", &battle.admin);
    let mut reading = Reading::default();
    let deadline = Instant::now() + readers_timeout();
    loop {
        match source.connect(battle.some_address(&mut random)) {
            Ok(_) => {
                reading.connections += 1;
                source.cut_after(random.below(CUT_BYTES_MAX));
            }
            Err(ConnectError::Lost(_)) => continue,
            // A server that has just started counts streams whose clients have gone.
            Err(ConnectError::Refused(answer)) if [429, 503].contains(&answer.status) => continue,
            Err(ConnectError::Refused(answer)) => panic!("{answer:?}"),
        }
        loop {
            match source.poll(Duration::from_millis(200)) {
                Some(Received::Event(event)) => reading.take(&event),
                Some(Received::End(StreamEnd::Cut | StreamEnd::Truncated)) => break,
                Some(Received::End(StreamEnd::Complete)) => panic!("no server was shut down"),
                None => {}
            }
            let last = reading.sequences.last().copied().unwrap_or(0);
            battle.positions[number].store(last, Ordering::Relaxed);
            if last >= battle.last.load(Ordering::Relaxed) {
                return reading;
            }
            assert!(!battle.has_failed.load(Ordering::Relaxed), "another thread has failed");
            assert!(Instant::now() < deadline, "stuck after {last}");
        }
    }
}

/// Keeps a copy of a list, over many connections and several snapshots, until it is the list.
fn copy_list(battle: &Battle, (list, is_ann): (&str, bool), mut random: SeededRandom) {
    let _fail = FailOnPanic(&battle.has_failed);
    let login = if is_ann { &battle.ann } else { &battle.admin };
    let begin = || EventSource::new(&format!("{list}snapshot=true")).header("Authorization", login);
    let (mut source, mut copy, mut snapshots) = (begin(), ListCopy::default(), 0);
    let deadline = Instant::now() + readers_timeout();
    loop {
        let address = battle.some_address(&mut random);
        match source.connect(address) {
            Ok(_) => {}
            Err(ConnectError::Refused(answer)) if ![429, 503].contains(&answer.status) => {
                panic!("{answer:?}")
            }
            Err(_) => continue,
        }
        let is_last = battle.last.load(Ordering::Relaxed) < i64::MAX;
        let expected = is_last.then(|| fetch_list(address, &format!("{list}limit=500"), login));
        // One in three is cut in its snapshot, the others after it.
        let mut is_cut = !is_last && random.below(3) == 0;
        if is_cut {
            source.cut_after(random.below(CUT_BYTES_MAX));
        }
        loop {
            assert!(!battle.has_failed.load(Ordering::Relaxed), "another thread has failed");
            assert!(Instant::now() < deadline, "{list}: the copy has {} items", copy.items.len());
            if copy.is_synced && expected.as_ref() == Some(&copy.items) {
                println!(
                    "{list} is_ann={is_ann}: {} items, {snapshots} snapshots",
                    copy.items.len()
                );
                return;
            }
            match source.poll(Duration::from_millis(200)) {
                Some(Received::Event(event)) => {
                    copy.apply(&event);
                    snapshots += usize::from(event.kind == "synced");
                }
                Some(Received::End(StreamEnd::Complete)) => panic!("no server was shut down"),
                Some(Received::End(StreamEnd::Cut | StreamEnd::Truncated)) => break,
                // The writers have ended while nothing more comes before the cut.
                None if !is_last && battle.last.load(Ordering::Relaxed) < i64::MAX => break,
                None => {}
            }
            if copy.is_synced && !is_cut && !is_last {
                is_cut = true;
                source.cut_after(random.below(CUT_BYTES_MAX));
            }
        }
        if !is_last && random.below(4) == 0 {
            (source, copy) = (begin(), ListCopy::default());
        }
    }
}

/// Kills two servers, one after the other, while changes are written, and starts them again.
fn disturb(battle: &Battle, servers: &mut Vec<Server>, setup: &Setup) {
    for kill in 1..=2 {
        let due = changes_min() * kill / 3;
        wait_until("enough is written", || {
            assert!(!battle.has_failed.load(Ordering::Relaxed), "another thread has failed");
            (battle.changes.load(Ordering::Relaxed) >= due).then_some(())
        });
        let index = kill % servers.len();
        battle.addresses.lock().unwrap()[index] = None;
        let folder = servers.remove(index).kill();
        servers.insert(index, setup.clone().start_in(folder));
        battle.addresses.lock().unwrap()[index] = Some(servers[index].address);
    }
}

/// Draws a number early and commits it late, as a slow writer does.
const LATE_CHANGE: &str = r#"BEGIN;
INSERT INTO notes (id, text, rank, created_at, updated_at, version)
    VALUES ('00000000-0000-7000-8000-000000000001', 'late', 0, '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z', 1);
INSERT INTO nouns_changes (sequence, time, resource, id, subject, kind, actor, request_id, after)
    VALUES (nouns_next_change(true), now(), 'note', '00000000-0000-7000-8000-000000000001', '/notes/00000000-0000-7000-8000-000000000001', 'created', '-', 'late',
    '{"id":"00000000-0000-7000-8000-000000000001","text":"late","rank":0,"owner":null,"created_at":"2026-01-01T00:00:00.000000Z","updated_at":"2026-01-01T00:00:00.000000Z","version":1}') RETURNING sequence;
"#;

fn run_battle(backend: Backend) {
    let seed = print_seed("under fire");
    let first = Setup::new(backend).model(MODEL).with_authentication().start();
    // A restarted server has the same database and the same folder.
    let setup = match backend {
        Backend::Sqlite => Setup::new(backend).model(MODEL).with_authentication(),
        Backend::Postgres => {
            Setup::replica(first.database()).model(MODEL).key_file(first.key_file())
        }
    };
    let database = first.folder().to_owned();
    let mut servers = vec![first];
    if backend == Backend::Postgres {
        servers.extend((1..REPLICAS).map(|_| setup.clone().start()));
    }
    let battle = Battle::new(&servers);
    let mut random = SeededRandom::new(seed);
    let readings: Vec<Reading> = thread::scope(|scope| {
        let _fail = FailOnPanic(&battle.has_failed);
        let readers: Vec<_> = (0..READERS)
            .map(|number| {
                let (battle, random) = (&battle, SeededRandom::new(random.next()));
                scope.spawn(move || read_all(battle, number, random))
            })
            .collect();
        for list in SNAPSHOTS {
            let (battle, random) = (&battle, SeededRandom::new(random.next()));
            scope.spawn(move || copy_list(battle, list, random));
        }
        let late =
            (backend == Backend::Postgres).then(|| OpenTransaction::begin(&database, LATE_CHANGE));
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let mut writer = Writer::new(&battle, number, SeededRandom::new(random.next()));
                scope.spawn(move || writer.run())
            })
            .collect();
        if let Some(late) = late {
            wait_until("many numbers are larger", || {
                (battle.changes.load(Ordering::Relaxed) >= changes_min() / 10).then_some(())
            });
            late.commit();
        }
        disturb(&battle, &mut servers, &setup);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let last = || -> i64 {
            let last = run_sql(
                backend,
                &database,
                "SELECT max(sequence) FROM nouns_changes WHERE resource = 'note'",
            );
            last.trim().parse().unwrap()
        };
        // The readers catch up, and receive the last changes as they happen.
        battle.wait_for_readers(last());
        let mut writer = Writer::new(&battle, WRITERS, SeededRandom::new(random.next()));
        (0..LIVE_CHANGES).for_each(|_| writer.create(1));
        battle.last.store(last(), Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    check(
        &battle,
        &readings,
        &run_sql(
            backend,
            &database,
            "SELECT sequence FROM nouns_changes WHERE resource = 'note' ORDER BY sequence",
        ),
    );
}

fn check(battle: &Battle, readings: &[Reading], log: &str) {
    let expected: Vec<i64> = log.lines().map(|line| line.parse().unwrap()).collect();
    let answered = battle.answered.lock().unwrap();
    let connections: usize = readings.iter().map(|reading| reading.connections).sum();
    println!(
        "under fire: {} changes, {} answered, {connections} connections",
        expected.len(),
        answered.len()
    );
    assert!(connections > 5 * READERS, "the readers were cut too seldom: {connections}");
    for (number, reading) in readings.iter().enumerate() {
        if reading.sequences != expected {
            panic!("reader {number}: {}", first_difference(&reading.sequences, &expected));
        }
        let missing: Vec<_> = answered.difference(&reading.changes).take(5).collect();
        assert!(missing.is_empty(), "reader {number} has not received {missing:?}");
    }
}

fn first_difference(read: &[i64], expected: &[i64]) -> String {
    let at = read.iter().zip(expected).take_while(|(read, expected)| read == expected).count();
    let window =
        |list: &[i64]| list.iter().skip(at.saturating_sub(2)).take(6).copied().collect::<Vec<_>>();
    format!(
        "{} of {} changes; from the first difference on it read {:?} instead of {:?}",
        read.len(),
        expected.len(),
        window(read),
        window(expected)
    )
}

on_every_backend! {
    fn streams_under_fire_deliver_every_change_once_in_order(backend: Backend) {
        run_battle(backend);
    }
}
