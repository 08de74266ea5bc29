//! The order of the change log: a reader that polls gets every change once, in order, however late it is
//! committed.
//!
//! The one surprising thing: a second reader, which believes the largest number it has seen, runs in the
//! same test, and must fail where numbers are given before they are committed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::harness::{Backend, Client, Late, NOUNS, Server, Setup, sql, wait_until};

const WRITERS: usize = 16;
const ALL: &str = "SELECT sequence FROM nouns_changes ORDER BY sequence";

fn rounds() -> usize {
    if std::env::var_os("NOUNS_SOAK").is_some() { 200 } else { 12 }
}

/// `nouns changes --follow`, and the lines it has printed.
struct Follower {
    process: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Follower {
    fn start(database: &str) -> Self {
        let mut command = Command::new(NOUNS);
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

/// Believes that nothing smaller comes after what it has seen.
#[derive(Default)]
struct Naive {
    last: AtomicI64,
    stop: AtomicBool,
}

/// A test that fails ends the reader too.
struct Stop<'a>(&'a Naive);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl Naive {
    fn read(&self, backend: Backend, folder: &Path) -> BTreeSet<i64> {
        let mut seen = BTreeSet::new();
        loop {
            let is_last_time = self.stop.load(Ordering::Relaxed);
            let last = self.last.load(Ordering::Relaxed);
            let query = format!(
                "SELECT sequence FROM nouns_changes WHERE sequence > {last} ORDER BY sequence"
            );
            let new = numbers(&sql(backend, folder, &query));
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
fn write(address: std::net::SocketAddr) {
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

/// Takes its number, and commits when it is told to.
const LATE: &str = "BEGIN; INSERT INTO nouns_changes (sequence, time, resource, id, subject, kind, actor, request_id)
            VALUES (nouns_next_change(true), now(), 'customer', 'late', '/customers/late', 'created', '-', 'late') RETURNING sequence;\n";

on_every_backend! {
    fn every_change_comes_once_and_in_order(backend: Backend) {
        let server = Setup::new(backend).start();
        let others: Vec<Server> = match backend {
            Backend::Sqlite => Vec::new(),
            Backend::Postgres => (0..2).map(|_| Setup::replica(server.database()).start()).collect(),
        };
        let mut addresses = vec![server.address];
        addresses.extend(others.iter().map(|replica| replica.address));
        let follower = Follower::start(&server.database());
        let naive = Naive::default();
        let folder = server.folder();
        server.create("/customers", r#"{"customer":{"name":"First","email":"f@example.com"}}"#);
        let late = (backend == Backend::Postgres).then(|| Late::begin(folder, LATE));
        let seen = thread::scope(|scope| {
            let stop = Stop(&naive);
            let reader = scope.spawn(|| naive.read(backend, folder));
            let writers: Vec<_> = (0..WRITERS)
                .map(|number| {
                    let address = addresses[number % addresses.len()];
                    scope.spawn(move || write(address))
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
        let all = numbers(&sql(backend, server.folder(), ALL));
        wait_until("the reader has them all", || (follower.sequences().len() >= all.len()).then_some(()));
        assert_eq!(follower.sequences(), all, "every change once, in order");
        match backend {
            Backend::Sqlite => assert_eq!(seen.len(), all.len(), "with one writer numbers come in order"),
            Backend::Postgres => assert!(seen.len() < all.len(), "the naive reader should have missed some"),
        }
        // What is in order, is in order for each item too.
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
