//! A server with a ledger: starts it, runs the burst, and judges what it serves.
//!
//! The tests end the server.
//! The data is read twice, over HTTP and from the files of the running server, and both must be
//! equal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;

use serde_json::Value;

use super::judge::{DatabaseContents, JudgeVerdict, judge};
use super::ledger::{Burst, Ledger, model};
use crate::harness::{Backend, Client, Folder, Server, Setup};

/// Orders of this many customers are read over HTTP; the files are read completely.
const CUSTOMERS_LOOKED_INTO: usize = 40;

pub fn setup() -> Setup {
    Setup::new(Backend::Sqlite).model(&model())
}

/// Starts on the database in the folder.
pub fn start(folder: Folder) -> Server {
    setup().start_in(folder)
}

/// A burst that ends by itself or with the server.
pub fn run_burst(server: &Server, ledger: &mut Ledger, requests_each_max: usize) {
    let answered = &AtomicUsize::new(0);
    ledger.run_burst(&Burst { address: server.address, requests_each_max, answered });
}

/// Judges the database of a running server, records the outcomes of the open requests, and fails on any
/// fault.
pub fn judge_running_server(server: &Server, ledger: &mut Ledger, of: &str) -> JudgeVerdict {
    let found =
        DatabaseContents::read(server.folder()).unwrap_or_else(|error| panic!("{of}: {error}"));
    let mut verdict = judge(&ledger.now(), &found);
    verdict.faults.extend(compare_served(server, &found));
    verdict.assert_sound(of);
    ledger.record_outcomes(&verdict.open, &found.stored());
    verdict
}

/// Compares the data over HTTP with the files.
pub fn compare_served(server: &Server, found: &DatabaseContents) -> Vec<String> {
    let mut client = server.client();
    let mut served = BTreeMap::new();
    list(&mut client, "/customers", &mut served);
    let customers: Vec<_> = served.keys().cloned().collect();
    let stride = (customers.len() / CUSTOMERS_LOOKED_INTO).max(1);
    let looked_into: BTreeSet<_> = customers.iter().step_by(stride).collect();
    for customer in &looked_into {
        list(&mut client, &format!("{customer}/orders"), &mut served);
    }
    let stored = found.items.iter().filter(|(path, _)| match path.split_once("/orders/") {
        None => true,
        Some((customer, _)) => looked_into.contains(&customer.to_owned()),
    });
    let stored: BTreeMap<_, _> = stored.collect();
    let mut faults = Vec::new();
    for (path, item) in &stored {
        if served.get(*path) != Some(item) {
            faults.push(format!("{path}: {item} is stored, {:?} is served", served.get(*path)));
        }
    }
    for path in served.keys().filter(|path| !stored.contains_key(path)) {
        faults.push(format!("{path} is served, but not stored"));
    }
    faults
}

/// Reads a collection page by page.
fn list(client: &mut Client, collection: &str, into: &mut BTreeMap<String, Value>) {
    let mut next = format!("{collection}?limit=500");
    loop {
        let answer = client.request(&format!("GET {next}"), &[], "");
        assert_eq!(answer.status, 200, "{next}: {answer:?}");
        let body = answer.json();
        let items = body.as_object().unwrap().values().next().unwrap();
        for item in items.as_array().unwrap() {
            into.insert(format!("{collection}/{}", item["id"].as_str().unwrap()), item.clone());
        }
        match body["page"]["next"].as_str() {
            None => return,
            Some(cursor) => next = format!("{collection}?limit=500&cursor={cursor}"),
        }
    }
}

/// The sum of several verdicts, for a line at the end of a test.
#[derive(Debug, Default)]
pub struct VerdictTotals {
    pub rounds: usize,
    pub answered: usize,
    pub refused: usize,
    pub unavailable: usize,
    pub open_done: usize,
    pub open_missing: usize,
}

impl VerdictTotals {
    /// Adds a verdict on a new ledger.
    pub fn add(&mut self, verdict: &JudgeVerdict) {
        self.answered += verdict.answered;
        self.refused += verdict.refused;
        self.unavailable += verdict.unavailable;
        self.add_open(verdict);
    }

    /// Adds a verdict of a round after which the same ledger continues: only the open requests are new.
    pub fn add_open(&mut self, verdict: &JudgeVerdict) {
        self.rounds += 1;
        let done = verdict.open.iter().flatten().count();
        self.open_done += done;
        self.open_missing += verdict.open.len() - done;
    }
}

impl std::fmt::Display for VerdictTotals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rounds, answered, refused, unavailable, open_done, open_missing } = self;
        write!(
            f,
            "{rounds} rounds; {answered} writes answered, all there; {refused} refused and \
             {unavailable} turned away, none there; of those without an answer {open_done} are there, \
             {open_missing} are not"
        )
    }
}
