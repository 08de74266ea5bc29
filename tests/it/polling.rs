//! Polling a list with `If-None-Match` while sixteen clients write: a 304 never hides a change that was
//! answered before the poll was sent.
//!
//! Answered writes are recorded in a book, of which the poller takes a copy before each poll; after a
//! 304 all of it must be in the poller's list. On PostgreSQL there are three servers, and in each round
//! a transaction that takes its number early and commits after all the others.
//! Each round ends with a pause, because a change that is followed by another one cannot stay hidden.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Backend, Client, OpenTransaction, Server, Setup, is_soak, wait_until};

const WRITERS: usize = 16;
const MODEL: &str = "title = \"Notes\"\n[server.limits]\npage_items_max = 2000\n[resources.note]\nid = \"integer\"\n[resources.note.fields]\nround = { type = \"integer\" }\n";
const LIST: &str = "GET /notes?limit=2000";

fn rounds() -> usize {
    if is_soak() { 250 } else { 12 }
}

/// The known state of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PolledItem {
    /// It exists, with this version or a later one.
    Version(i64),
    /// It is being deleted.
    Deleting,
    Deleted,
}

type RecordedWrites = Mutex<BTreeMap<i64, PolledItem>>;

fn record(book: &RecordedWrites, id: i64, known: PolledItem) {
    book.lock().unwrap().insert(id, known);
}

struct PollingWriter<'a> {
    client: Client,
    recorded: &'a RecordedWrites,
    number: usize,
    /// The items it has created and not deleted.
    items: Vec<i64>,
}

impl PollingWriter<'_> {
    fn request(&mut self, line: &str, body: &Value, status: u16) -> Value {
        let answer = self.client.request(
            line,
            &[],
            if body.is_null() { String::new() } else { body.to_string() },
        );
        assert_eq!(answer.status, status, "{line} {answer:?}");
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }

    fn record_created(&mut self, item: &Value) {
        let id = item["id"].as_i64().unwrap();
        record(self.recorded, id, PolledItem::Version(1));
        self.items.push(id);
    }

    /// Some writers create many items at once, which takes long to commit; all create, change and
    /// delete.
    fn write(&mut self, round: usize) {
        if self.number % 4 == round % 4 {
            let many = json!({"notes": vec![json!({"round": round}); 12]});
            let answer = self.request("POST /notes", &many, 201);
            answer["notes"].as_array().unwrap().iter().for_each(|item| self.record_created(item));
        }
        let answer = self.request("POST /notes", &json!({"note": {"round": round}}), 201);
        self.record_created(&answer["note"]);
        let first = self.items[0];
        let body = json!({"note": {"round": round + 1_000}});
        let answer = self.request(&format!("PUT /notes/{first}"), &body, 200);
        record(
            self.recorded,
            first,
            PolledItem::Version(answer["note"]["version"].as_i64().unwrap()),
        );
        let many = self.items.len().saturating_sub(12);
        for id in self.items.drain(..many.max(1)).collect::<Vec<_>>() {
            record(self.recorded, id, PolledItem::Deleting);
            self.request(&format!("DELETE /notes/{id}"), &Value::Null, 204);
            record(self.recorded, id, PolledItem::Deleted);
        }
        let answer = self.request("POST /notes", &json!({"note": {"round": round}}), 201);
        self.record_created(&answer["note"]);
    }
}

/// A row with its entry in the change log, in a transaction that commits on request.
const LATE_NOTE: &str = "BEGIN; WITH made AS (INSERT INTO notes (created_at, updated_at, version) VALUES (now(), now(), 1) RETURNING id)
            INSERT INTO nouns_changes (sequence, time, resource, id, subject, kind, actor, request_id)
            SELECT nouns_next_change(true), now(), 'note', id, '/notes/' || id, 'created', '-', 'late' FROM made RETURNING id;\n";

/// The poller's list, and how often it got each status.
#[derive(Default)]
struct Poller {
    stop: AtomicBool,
    changed: AtomicUsize,
    unchanged: AtomicUsize,
}

/// Stops the poller when the test fails, too.
struct StopPollerOnDrop<'a>(&'a Poller);

impl Drop for StopPollerOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl Poller {
    /// One poll after another, each at the next server.
    fn poll(&self, addresses: &[SocketAddr], book: &RecordedWrites) {
        let mut clients: Vec<_> =
            addresses.iter().map(|address| Client::connect(*address)).collect();
        let (mut tag, mut versions) = ("\"none\"".to_owned(), BTreeMap::new());
        for at in (0..clients.len()).cycle() {
            let noted = book.lock().unwrap().clone();
            let answer = clients[at].request(LIST, &[("If-None-Match", &tag)], "");
            match answer.status {
                304 => {
                    check(&noted, &versions, &tag);
                    self.unchanged.fetch_add(1, Ordering::Relaxed);
                }
                200 => {
                    let page = answer.json();
                    assert!(page["page"]["next"].is_null(), "the list has more than a page");
                    let pair = |item: &Value| {
                        (item["id"].as_i64().unwrap(), item["version"].as_i64().unwrap())
                    };
                    versions = page["notes"].as_array().unwrap().iter().map(pair).collect();
                    tag = answer.header("ETag").expect("a tag on every list").to_owned();
                    self.changed.fetch_add(1, Ordering::Relaxed);
                }
                _ => panic!("{answer:?}"),
            }
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Waits for a 304 to a poll that began after this call.
    fn wait_for_304(&self) {
        let unchanged = self.unchanged.load(Ordering::Relaxed);
        wait_until("the poller is told that nothing has changed", || {
            assert!(!self.stop.load(Ordering::Relaxed), "the poller has ended");
            (self.unchanged.load(Ordering::Relaxed) >= unchanged + 2).then_some(())
        });
    }
}

fn check(noted: &BTreeMap<i64, PolledItem>, versions: &BTreeMap<i64, i64>, tag: &str) {
    for (id, known) in noted {
        let has = versions.get(id).copied();
        let is_right = match known {
            PolledItem::Version(version) => has.is_some_and(|has| has >= *version),
            PolledItem::Deleting => true,
            PolledItem::Deleted => has.is_none(),
        };
        assert!(
            is_right,
            "304 for {tag} hides a change of note {id}: it is {known:?}, and the list has {has:?}"
        );
    }
}

on_every_backend! {
    fn list_etag_304_hides_no_change(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let others: Vec<Server> = match backend {
            Backend::Sqlite => Vec::new(),
            Backend::Postgres => (0..2).map(|_| Setup::replica(server.database()).model(MODEL).start()).collect(),
        };
        let mut addresses = vec![server.address];
        addresses.extend(others.iter().map(|replica| replica.address));
        let (book, poller) = (RecordedWrites::default(), Poller::default());
        let mut writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let client = Client::connect(addresses[number % addresses.len()]);
                PollingWriter { client, recorded: &book, number, items: Vec::new() }
            })
            .collect();
        thread::scope(|scope| {
            let stop = StopPollerOnDrop(&poller);
            let polling = scope.spawn(|| {
                let _stop = StopPollerOnDrop(&poller);
                poller.poll(&addresses, &book);
            });
            for round in 0..rounds() {
                let late = (backend == Backend::Postgres).then(|| OpenTransaction::begin(server.folder(), LATE_NOTE));
                thread::scope(|scope| {
                    for writer in &mut writers {
                        scope.spawn(move || writer.write(round));
                    }
                });
                poller.wait_for_304();
                if let Some(late) = late {
                    record(&book, late.commit(), PolledItem::Version(1));
                    poller.wait_for_304();
                }
            }
            drop(stop);
            polling.join().unwrap();
        });
        let told = (poller.changed.into_inner(), poller.unchanged.into_inner());
        assert!(told.0 > rounds() && told.1 > rounds(), "200 and 304: {told:?}");
    }
}
