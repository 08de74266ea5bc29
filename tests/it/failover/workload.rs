//! The workload of a failover: clients that write until the end and retry every request until it succeeds, a reader of
//! an event stream, and a judge.
//!
//! Each client creates notes with an `Idempotency-Key` and replaces a note of its own. Every text is a token that is
//! sent in one request and its retries, so that the judge can count how often the request was executed.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::durability::fallible_connection::FallibleConnection;
use crate::harness::{Answer, EventSource, Postgres, Received, wait_until};

pub const CLIENTS: usize = 8;
/// The pause before a request is retried, and between two requests.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const THINK_TIME: Duration = Duration::from_millis(5);
/// How often a request is retried while a primary is there.
const RETRIES_MAX: usize = 100;

pub const MODEL: &str = r#"
title = "Failover"
[server]
changes_keep = "forever"
webhook_allow_private = true
[server.limits]
request_seconds_max = 10
[resources.note.fields]
text = { type = "text" }
[resources.beat.fields]
text = { type = "text" }
"#;

/// What clients, the reader and the test share.
pub struct Workload {
    /// Where clients send requests, in turn.
    addresses: Vec<SocketAddr>,
    authorization: String,
    is_over: AtomicBool,
    /// Whether a primary is there from now on.
    is_available: AtomicBool,
    /// The requests of each client that have succeeded.
    done: [AtomicUsize; CLIENTS],
    totals: Mutex<Totals>,
}

/// The sum of what the clients have seen.
#[derive(Debug, Default)]
pub struct Totals {
    /// Texts of notes that were created, and of those that replaced a note: all of them were answered with success.
    created: HashSet<String>,
    replaced: HashSet<String>,
    /// The text that each replaced note has at last, by its path.
    last_texts: BTreeMap<String, String>,
    pub retries: usize,
    unknown_outcomes: usize,
    /// How often one request was sent.
    attempts_max: usize,
    longest_pause: Duration,
}

/// One client.
struct WriteClient<'a> {
    load: &'a Workload,
    number: usize,
    turn: usize,
    connection: Option<FallibleConnection>,
    last_success: Instant,
    totals: Totals,
}

/// Ends the clients, also when the test fails.
pub struct EndOnDrop<'a>(pub &'a Workload);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Workload {
    pub fn new(addresses: Vec<SocketAddr>, authorization: String) -> Self {
        Self {
            addresses,
            authorization,
            is_over: AtomicBool::new(false),
            is_available: AtomicBool::new(false),
            done: std::array::from_fn(|_| AtomicUsize::new(0)),
            totals: Mutex::default(),
        }
    }

    /// From now on a request has a limit of retries.
    pub fn set_available(&self) {
        self.is_available.store(true, Ordering::Relaxed);
    }

    /// Lets each client finish its request.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Waits until each client has had this many more requests answered with success.
    pub fn wait_for_progress(&self, when: &str, count: usize) {
        let before = self.done.each_ref().map(|done| done.load(Ordering::Relaxed));
        wait_until(&format!("all clients write {when}"), || {
            let mut pairs = self.done.iter().zip(before);
            let is_done = |(done, before): (&AtomicUsize, usize)| {
                done.load(Ordering::Relaxed) >= before + count
            };
            pairs.all(is_done).then_some(())
        });
    }

    /// Runs one client until the end.
    pub fn run_client(&self, number: usize) {
        let mut client = WriteClient {
            load: self,
            number,
            turn: number,
            connection: None,
            last_success: Instant::now(),
            totals: Totals::default(),
        };
        client.run();
        self.totals.lock().unwrap().add(client.totals);
    }

    pub fn into_totals(self) -> Totals {
        self.totals.into_inner().unwrap()
    }
}

impl WriteClient<'_> {
    fn run(&mut self) {
        let first = format!("{}-own", self.number);
        let own = self.create(&first);
        for count in 0.. {
            if self.load.is_over() {
                break;
            }
            self.create(&format!("{}-created-{count}", self.number));
            self.replace(&own, format!("{}-replaced-{count}", self.number));
            thread::sleep(THINK_TIME);
        }
    }

    /// Creates a note; returns its path.
    fn create(&mut self, text: &str) -> String {
        // Client 0 writes what the webhook gets, which is slower.
        let (line, name) = match self.number {
            0 => ("POST /beats", "beat"),
            _ => ("POST /notes", "note"),
        };
        let headers = format!("Idempotency-Key: \"{text}\"\r\n");
        let answer = self.send_until_done(line, &headers, &json!({name: {"text": text}}));
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.json()[name]["text"], *text);
        assert!(self.totals.created.insert(text.to_owned()));
        answer.header("Location").unwrap().to_owned()
    }

    fn replace(&mut self, path: &str, text: String) {
        let name = if self.number == 0 { "beat" } else { "note" };
        let line = format!("PUT {path}");
        let answer = self.send_until_done(&line, "", &json!({name: {"text": text}}));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()[name]["text"], *text);
        self.totals.last_texts.insert(path.to_owned(), text.clone());
        assert!(self.totals.replaced.insert(text));
    }

    /// Sends a request until its response is no 503, each time to the next server.
    fn send_until_done(&mut self, line: &str, headers: &str, body: &serde_json::Value) -> Answer {
        let Workload { addresses, authorization, .. } = self.load;
        let headers = format!(
            "Content-Type: application/json\r\nAuthorization: {authorization}\r\n{headers}"
        );
        let body = body.to_string();
        let mut retries_available = 0;
        for attempt in 1.. {
            let is_available = self.load.is_available.load(Ordering::Relaxed);
            let address = addresses[self.turn % addresses.len()];
            if self.connection.is_none() {
                self.connection = FallibleConnection::connect(address);
            }
            let connection = self.connection.as_mut();
            let answer = connection.and_then(|line_to| line_to.request_with(line, &headers, &body));
            match answer {
                Some(answer) if answer.status != 503 => {
                    self.record_success(attempt);
                    return answer;
                }
                Some(answer) => {
                    assert!(answer.header("Retry-After").is_some(), "{answer:?}");
                    // A load balancer answers too, with a body of its own.
                    let is_unknown = answer.text().contains("/-/problems/outcome-unknown");
                    self.totals.unknown_outcomes += usize::from(is_unknown);
                }
                None => {}
            }
            self.totals.retries += 1;
            retries_available += usize::from(is_available);
            assert!(retries_available <= RETRIES_MAX, "{line}: retried {attempt} times");
            self.connection = None;
            self.turn += 1;
            thread::sleep(RETRY_PAUSE);
        }
        unreachable!("it is sent until it is done")
    }

    fn record_success(&mut self, attempts: usize) {
        let pause = self.last_success.elapsed();
        self.last_success = Instant::now();
        self.totals.longest_pause = self.totals.longest_pause.max(pause);
        self.totals.attempts_max = self.totals.attempts_max.max(attempts);
        self.load.done[self.number].fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { retries, unknown_outcomes, attempts_max, longest_pause, .. } = self;
        let answered = self.created.len() + self.replaced.len();
        write!(
            f,
            "{answered} answered writes, {retries} retries, {unknown_outcomes} unknown outcomes, \
             at most {attempts_max} attempts of a write, longest pause of a client {longest_pause:.1?}"
        )
    }
}

impl Totals {
    fn add(&mut self, other: Self) {
        self.created.extend(other.created);
        self.replaced.extend(other.replaced);
        self.last_texts.extend(other.last_texts);
        self.retries += other.retries;
        self.unknown_outcomes += other.unknown_outcomes;
        self.attempts_max = self.attempts_max.max(other.attempts_max);
        self.longest_pause = self.longest_pause.max(other.longest_pause);
    }

    /// Asserts that every answered write was executed once, and nothing else. Returns the change log: the number, kind
    /// and subject of each entry.
    pub fn assert_stored_once(
        &self,
        server: &Postgres,
        database: &str,
    ) -> Vec<(i64, String, String)> {
        let sql = "SELECT sequence, kind, subject, (after::json)->>'text' FROM nouns_changes \
             WHERE resource IN ('note', 'beat') ORDER BY sequence";
        let rows = server.sql(database, sql);
        let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        let mut log = Vec::new();
        for row in rows.lines() {
            let columns: Vec<_> = row.split('|').collect();
            let [sequence, kind, subject, text] = *columns else { panic!("{row}") };
            *counts.entry((kind.to_owned(), text.to_owned())).or_default() += 1;
            log.push((sequence.parse().unwrap(), kind.to_owned(), subject.to_owned()));
        }
        let doubled: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
        assert!(doubled.is_empty(), "executed more than once: {doubled:?}");
        let texts = |kind: &str| -> HashSet<String> {
            counts.keys().filter(|(of, _)| of == kind).map(|(_, text)| text.clone()).collect()
        };
        for (kind, answered) in [("created", &self.created), ("updated", &self.replaced)] {
            let logged = texts(kind);
            let lost: Vec<_> = answered.difference(&logged).collect();
            assert!(lost.is_empty(), "{kind}, answered and lost: {lost:?}");
            let extra: Vec<_> = logged.difference(answered).collect();
            assert!(extra.is_empty(), "{kind}, without an answer: {extra:?}");
        }
        self.assert_items(server, database);
        log
    }

    /// Asserts that each item exists once, with its last text.
    fn assert_items(&self, server: &Postgres, database: &str) {
        let items = "SELECT '/notes/' || id, text FROM notes UNION ALL SELECT '/beats/' || id, text FROM beats";
        let stored: Vec<String> = server.sql(database, items).lines().map(str::to_owned).collect();
        assert_eq!(stored.len(), self.created.len());
        let stored: BTreeMap<_, _> =
            stored.iter().map(|row| row.split_once('|').unwrap()).collect();
        for (path, text) in &self.last_texts {
            assert_eq!(stored.get(&**path), Some(&&**text), "{path}");
        }
    }
}

/// Reads a stream until it has the last change after the end of the workload. Returns the numbers of its events, and how
/// often it had to connect again, as any client of such a stream does.
pub fn follow(load: &Workload, last: &Mutex<Option<i64>>) -> (Vec<i64>, usize) {
    let mut source = EventSource::new("/-/changes?since=0");
    source = source.header("Authorization", &load.authorization);
    let (mut events, mut reconnects, mut turn) = (Vec::new(), 0, 0);
    wait_until("the stream begins", || source.connect(load.addresses[0]).ok());
    loop {
        match source.poll(Duration::from_millis(100)) {
            Some(Received::Event(event)) => {
                let is_item = ["/notes/", "/beats/"].iter().any(|path| event.data.contains(path));
                if is_item {
                    events.push(event.sequence());
                }
            }
            Some(Received::End(_)) => {
                reconnects += 1;
                wait_until("the stream is resumed", || {
                    turn += 1;
                    source.connect(load.addresses[turn % load.addresses.len()]).ok()
                });
            }
            None if load.is_over() => {
                let last = *last.lock().unwrap();
                if last.is_some_and(|last| events.last().is_some_and(|seen| *seen >= last)) {
                    return (events, reconnects);
                }
            }
            None => {}
        }
    }
}
