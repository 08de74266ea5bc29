//! The ledger: a workload, with a record of its requests and responses.
//!
//! 64 connections create, replace and remove customers and orders, one by one and many at once, and
//! send requests that must be refused. `judge.rs` checks whether a database agrees with the ledger.
//! Each connection writes items that no other one writes, so that the ledger knows the correct response
//! before the request is sent; all connections share three customers. Every new text in an item is a token that occurs once, by which the
//! judge recognizes a write although its response never arrived.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::fallible_connection::FallibleConnection;
use super::seeded_random::SeededRandom;
use super::workload::{Customer, Item, LedgerPage};
use crate::harness::Answer;

pub const CONNECTIONS: usize = 64;
const SHARED: usize = 3;
const TURNED_AWAY_MAX: usize = 8;

/// A page in the WAL, with its header.
pub const FRAME_BYTES: u64 = 4_096 + 24;
/// From this many pages on the WAL is checkpointed: a quarter of its limit.
pub const CHECKPOINT_PAGES: u64 = 500;

/// The built-in store with unique e-mail addresses: so a bulk of new customers can be refused after
/// some of them were written. A small limit for the WAL makes checkpoints frequent.
pub fn model() -> String {
    let store = include_str!("../../../examples/store/nouns.toml");
    let unique = store.replace(r#"{ type = "email","#, r#"{ type = "email", unique = true,"#);
    assert_ne!(store, unique);
    let log_bytes_max = 4 * CHECKPOINT_PAGES * 4_096;
    format!("{unique}\n[server.limits]\nexport_wal_bytes_max = {log_bytes_max}\n")
}

#[derive(Debug, Clone)]
pub enum LedgerRequest {
    Create { collection: String, drafts: Vec<Value> },
    Replace { path: String, draft: Value },
    Remove { path: String },
}

/// The expected response while the storage is sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedResponse {
    Change,
    /// 200, and nothing is written.
    NoChange,
    Refusal(u16, &'static str),
}

#[derive(Debug, Clone)]
pub struct LedgerResponse {
    pub status: u16,
    pub request_id: String,
    /// The slug of its problem.
    pub problem: Option<String>,
    /// The items in its body.
    pub items: Vec<Value>,
}

impl LedgerResponse {
    fn read(answer: &Answer) -> Self {
        let body = if answer.body.is_empty() { Value::Null } else { answer.json() };
        let problem = (answer.status >= 400).then(|| answer.problem());
        let items = match body.as_object().and_then(|body| body.values().next()) {
            _ if problem.is_some() => Vec::new(),
            None => Vec::new(),
            Some(Value::Array(items)) => items.clone(),
            Some(item) => vec![item.clone()],
        };
        let request_id = answer.header("X-Request-Id").unwrap().to_owned();
        assert!(answer.status != 503 || answer.header("Retry-After").is_some(), "{answer:?}");
        Self { status: answer.status, request_id, problem, items }
    }

    pub fn is_unknown(&self) -> bool {
        self.problem.as_deref() == Some("outcome-unknown")
    }
}

/// The known outcome of a request.
#[derive(Debug, Clone)]
pub enum RequestOutcome {
    /// Sent; there was no response, or one with an unknown outcome.
    Open,
    Answered(LedgerResponse),
    /// There was no response, but a judge has seen it done, so it must stay.
    FoundDone(String),
    /// There was no response, and a judge has seen that it was not done, so it must never be.
    FoundMissing,
}

#[derive(Debug, Clone)]
pub struct LedgerEntry {
    pub request: LedgerRequest,
    pub expected: ExpectedResponse,
    pub outcome: RequestOutcome,
}

#[derive(Debug, Clone)]
pub struct Ledger {
    pages: Vec<LedgerPage>,
    /// How many connections take part.
    connections: usize,
    /// Customers that all connections share.
    shared: Vec<Item>,
}

/// The length of a burst, and its observer.
#[derive(Debug)]
pub struct Burst<'a> {
    pub address: SocketAddr,
    pub requests_each_max: usize,
    /// Counts the responses as they arrive.
    pub answered: &'a AtomicUsize,
}

impl Ledger {
    pub fn new(seed: u64) -> Self {
        Self::with_connection_count(seed, CONNECTIONS)
    }

    /// With another number of connections.
    pub fn with_connection_count(seed: u64, connections: usize) -> Self {
        let mut chance = SeededRandom::new(seed);
        let page = |number| LedgerPage::new(number, chance.next());
        // The last page is for the shared items.
        let pages = (0..=connections).map(page).collect();
        Self { pages, connections, shared: Vec::new() }
    }

    /// Lets only some of the connections continue.
    pub fn limit_connections(mut self, count: usize) -> Self {
        self.connections = count;
        self
    }

    /// A page for each connection, and the shared items, which this connection creates.
    pub fn open_pages(&mut self, line: &mut FallibleConnection) -> (&mut [LedgerPage], &[Item]) {
        let Some((own, pages)) = self.pages.split_last_mut() else { panic!("no pages") };
        own.create_shared_customers(line);
        self.shared = own.customers.iter().map(|known| known.item.clone()).collect();
        (pages, &self.shared)
    }

    /// Sends requests on all connections concurrently, until each has sent its number of them, or the
    /// server is gone, has reported an unknown outcome, or refuses one request after the other.
    pub fn run_burst(&mut self, burst: &Burst<'_>) {
        let Some((own, pages)) = self.pages.split_last_mut() else { return };
        if let Some(mut line) = FallibleConnection::connect(burst.address) {
            own.create_shared_customers(&mut line);
        }
        self.shared = own.customers.iter().map(|known| known.item.clone()).collect();
        let shared = &self.shared;
        thread::scope(|scope| {
            for page in pages.iter_mut().take(self.connections) {
                scope.spawn(move || {
                    let Some(mut line) = FallibleConnection::connect(burst.address) else { return };
                    let mut turned_away = 0;
                    for _ in 0..burst.requests_each_max {
                        let (asked, expected) = page.choose(shared);
                        if !page.send_and_record(&mut line, asked, expected) {
                            return;
                        }
                        burst.answered.fetch_add(1, Ordering::Relaxed);
                        turned_away = if page.was_turned_away() { turned_away + 1 } else { 0 };
                        if turned_away == TURNED_AWAY_MAX {
                            return;
                        }
                    }
                });
            }
        });
    }

    pub fn entries(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.pages.iter().flat_map(|page| &page.entries)
    }

    /// How many responses with this status there are by now.
    pub fn count_responses(&self, status: u16) -> usize {
        let has = |entry: &&LedgerEntry| matches!(&entry.outcome, RequestOutcome::Answered(answered) if answered.status == status);
        self.entries().filter(has).count()
    }

    /// The ledger as it was when only the responses whose request ids `is_answered` knows had arrived:
    /// each connection then had at most one more request in flight. `is_settled`: the outcomes of
    /// requests without a response had been determined.
    pub fn as_of(
        &self,
        is_answered: impl Fn(&str) -> bool,
        is_settled: bool,
    ) -> Vec<(&LedgerEntry, &RequestOutcome)> {
        const OPEN: &RequestOutcome = &RequestOutcome::Open;
        let mut view = Vec::new();
        for page in &self.pages {
            for entry in &page.entries {
                match &entry.outcome {
                    RequestOutcome::Answered(answered) if is_answered(&answered.request_id) => {
                        view.push((entry, &entry.outcome));
                    }
                    // The connection that sent it continues with something else at the next server.
                    RequestOutcome::FoundDone(_) | RequestOutcome::FoundMissing => {
                        view.push((entry, if is_settled { &entry.outcome } else { OPEN }));
                    }
                    _ => {
                        view.push((entry, OPEN));
                        break;
                    }
                }
            }
        }
        view
    }

    /// The ledger as it is.
    pub fn now(&self) -> Vec<(&LedgerEntry, &RequestOutcome)> {
        self.entries().map(|entry| (entry, &entry.outcome)).collect()
    }

    /// Records the outcomes of the open requests, in the order of `now`, and what is stored, by path.
    pub fn record_outcomes(&mut self, open: &[Option<String>], stored: &[(String, Value)]) {
        let mut open = open.iter();
        for entry in self.pages.iter_mut().flat_map(|page| &mut page.entries) {
            if matches!(entry.outcome, RequestOutcome::Open) {
                entry.outcome = match open.next().expect("one for each open request") {
                    Some(request_id) => RequestOutcome::FoundDone(request_id.clone()),
                    None => RequestOutcome::FoundMissing,
                };
            }
        }
        let mut owners = HashMap::new();
        let known: Vec<_> =
            self.pages.iter_mut().map(|page| std::mem::take(&mut page.customers)).collect();
        // A customer's path comes before those of its orders.
        for (path, body) in stored {
            let item = Item { path: path.clone(), body: body.clone() };
            match path.split_once("/orders/") {
                None => {
                    let page = &mut self.pages[owner_page(body)];
                    page.customers.push(Customer { item, orders: Vec::new() });
                    owners.insert(path.as_str(), page.number);
                }
                Some((customer, _)) => {
                    let page = &mut self.pages[owners[customer]];
                    page.customers.last_mut().unwrap().orders.push(item);
                }
            }
        }
        for (page, known) in self.pages.iter_mut().zip(known) {
            let gone =
                known.into_iter().find(|known| !owners.contains_key(known.item.path.as_str()));
            page.last_removed = gone.map(|known| known.item.path).or(page.last_removed.take());
        }
    }
}

/// The number of the page to which a customer belongs.
fn owner_page(body: &Value) -> usize {
    body["email"].as_str().unwrap().split('-').next().unwrap().parse().unwrap()
}

impl LedgerPage {
    /// Creates the shared customers that are missing.
    fn create_shared_customers(&mut self, line: &mut FallibleConnection) {
        for _ in self.customers.len()..SHARED {
            let asked = self.new_customers(1);
            if !self.send_and_record(line, asked, ExpectedResponse::Change) {
                break;
            }
        }
    }

    /// Records the request, sends it, and records the response. False when there is none.
    pub fn send_and_record(
        &mut self,
        line: &mut FallibleConnection,
        asked: LedgerRequest,
        expected: ExpectedResponse,
    ) -> bool {
        let (request, body) = asked.request();
        let entry = LedgerEntry { request: asked, expected, outcome: RequestOutcome::Open };
        self.entries.push(entry);
        let Some(answer) = line.request(&request, &body) else { return false };
        let answered = LedgerResponse::read(&answer);
        if answered.is_unknown() {
            return false;
        }
        let entry = self.entries.last_mut().unwrap();
        entry.outcome = RequestOutcome::Answered(answered.clone());
        if answered.status < 300 {
            let asked = entry.request.clone();
            self.apply_response(&asked, &answered.items);
        }
        true
    }

    /// After a request without a response: its customer is not used any more, since its state is
    /// unknown.
    pub fn drop_last_customer(&mut self) {
        let Some(LedgerEntry { request: asked, .. }) = self.entries.last() else { return };
        let (LedgerRequest::Create { collection: path, .. }
        | LedgerRequest::Replace { path, .. }
        | LedgerRequest::Remove { path }) = asked;
        let customer = path.split("/orders").next().unwrap_or_default();
        self.customers.retain(|known| known.item.path != customer);
    }

    pub fn was_turned_away(&self) -> bool {
        matches!(self.entries.last().map(|entry| &entry.outcome), Some(RequestOutcome::Answered(answered)) if answered.status == 503)
    }

    /// Records the items that an answered write has made.
    fn apply_response(&mut self, asked: &LedgerRequest, items: &[Value]) {
        match asked {
            LedgerRequest::Create { collection, .. } => {
                for body in items {
                    let path = format!("{collection}/{}", body["id"].as_str().unwrap());
                    let item = Item { path, body: body.clone() };
                    match collection.strip_suffix("/orders") {
                        None => self.customers.push(Customer { item, orders: Vec::new() }),
                        Some(customer) => self.customer(customer).orders.push(item),
                    }
                }
            }
            LedgerRequest::Replace { path, .. } => {
                let all = self.customers.iter_mut();
                let mut all =
                    all.flat_map(|known| [&mut known.item].into_iter().chain(&mut known.orders));
                if let Some(item) = all.find(|item| item.path == *path) {
                    item.body = items[0].clone();
                }
            }
            LedgerRequest::Remove { path } => {
                self.customers.retain(|known| known.item.path != *path);
                for customer in &mut self.customers {
                    customer.orders.retain(|order| order.path != *path);
                }
                self.last_removed = Some(path.clone());
            }
        }
    }

    fn customer(&mut self, path: &str) -> &mut Customer {
        self.customers.iter_mut().find(|known| known.item.path == path).unwrap()
    }
}

impl LedgerRequest {
    /// The request line without its version, and the body.
    fn request(&self) -> (String, String) {
        let (singular, plural) = match self {
            Self::Create { collection: path, .. } | Self::Replace { path, .. }
                if path.contains("/orders") =>
            {
                ("order", "orders")
            }
            _ => ("customer", "customers"),
        };
        match self {
            Self::Create { collection, drafts } => {
                let body = match drafts.as_slice() {
                    [draft] => json!({singular: draft}),
                    drafts => json!({plural: drafts}),
                };
                (format!("POST {collection}"), body.to_string())
            }
            Self::Replace { path, draft } => {
                (format!("PUT {path}"), json!({singular: draft}).to_string())
            }
            Self::Remove { path } => (format!("DELETE {path}"), String::new()),
        }
    }

    /// The texts that only this request has written.
    pub fn tokens(&self) -> Vec<&str> {
        match self {
            Self::Create { drafts, .. } => drafts.iter().filter_map(token_of).collect(),
            Self::Replace { draft, .. } => token_of(draft).into_iter().collect(),
            Self::Remove { .. } => Vec::new(),
        }
    }
}

/// The token in an order or a customer.
pub fn token_of(item: &Value) -> Option<&str> {
    item.get("note").or_else(|| item.get("name"))?.as_str()
}
