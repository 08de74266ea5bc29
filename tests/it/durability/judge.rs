//! The judge: compares a database with the ledger. Every answered write is there completely, and no
//! refused one is.
//!
//! It reads the files alone, so that it can judge the database of a killed server as well as that of a
//! running one.
//! The change log is the evidence. Replayed from its first entry it must give the tables as they are,
//! row by row, and each of its entries must belong to exactly one request of the ledger.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Row};
use serde_json::{Map, Value, json};

use super::ledger::{
    ExpectedResponse, LedgerEntry, LedgerRequest, LedgerResponse, RequestOutcome, token_of,
};

/// The contents of a database.
#[derive(Debug, Default)]
pub struct DatabaseContents {
    /// Every item by its path.
    pub items: BTreeMap<String, Value>,
    pub log: Vec<LoggedChange>,
    /// Errors of SQLite's own checks.
    pub integrity_errors: Vec<String>,
    /// Writes were concurrent: their entries interleave, and a rollback leaves a gap.
    pub is_interleaved: bool,
}

/// An entry of the change log.
#[derive(Debug)]
pub struct LoggedChange {
    pub sequence: i64,
    pub kind: String,
    pub subject: String,
    pub request_id: String,
    pub before: Option<Rc<Value>>,
    pub after: Option<Rc<Value>>,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct JudgeVerdict {
    /// All faults; a sound database has none.
    pub faults: Vec<String>,
    /// Writes that were answered with success, and are there.
    pub answered: usize,
    /// Requests that were refused as invalid, and those that the storage refused (503).
    pub refused: usize,
    pub unavailable: usize,
    /// For each open request, in the order of the ledger: the request id under which it was done, if it
    /// was.
    pub open: Vec<Option<String>>,
}

impl JudgeVerdict {
    /// Fails with all faults.
    pub fn assert_sound(&self, of: &str) {
        let shown: Vec<_> = self.faults.iter().take(20).map(String::as_str).collect();
        let count = self.faults.len();
        assert!(count == 0, "{of}: {count} faults, among them:\n  {}", shown.join("\n  "));
    }
}

impl DatabaseContents {
    /// Reads the database in a folder. A server may have it open, or may have been killed; then the WAL
    /// stays.
    pub fn read(folder: &Path) -> Result<Self, String> {
        Self::read_file(&folder.join("nouns.db")).map_err(|error| error.to_string())
    }

    fn read_file(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.busy_timeout(crate::harness::TIMEOUT)?;
        // One snapshot of the database, while a server continues to write.
        connection.execute_batch("BEGIN")?;
        let mut found = Self::default();
        for pragma in ["PRAGMA integrity_check", "PRAGMA foreign_key_check"] {
            let mut statement = connection.prepare(pragma)?;
            let lines = statement.query_map([], |row| Ok(format!("{:?}", row.get_ref(0)?)))?;
            for line in lines {
                let line = line?;
                if !line.contains(&format!("{:?}", b"ok")) {
                    found.integrity_errors.push(format!("{pragma}: {line}"));
                }
            }
        }
        let mut customers = connection
            .prepare("SELECT id, name, email, created_at, updated_at, version FROM customers")?;
        let mut rows = customers.query([])?;
        while let Some(row) = rows.next()? {
            let item = item(row, &["id", "name", "email", "created_at", "updated_at", "version"])?;
            let path = format!("/customers/{}", text(&item, "id"));
            found.items.insert(path, item);
        }
        let columns = "id, customer_id, status, currency, items, total, note, created_at, updated_at, version";
        let mut orders = connection.prepare(&format!("SELECT {columns} FROM orders"))?;
        let mut rows = orders.query([])?;
        while let Some(row) = rows.next()? {
            let names: Vec<_> = columns.split(", ").collect();
            let item = item(row, &names)?;
            let path =
                format!("/customers/{}/orders/{}", text(&item, "customer_id"), text(&item, "id"));
            found.items.insert(path, item);
        }
        let mut log = connection.prepare(
            "SELECT sequence, kind, subject, request_id, before, after FROM nouns_changes ORDER BY sequence",
        )?;
        let mut rows = log.query([])?;
        let mut last = HashMap::new();
        while let Some(row) = rows.next()? {
            found.log.push(read_change(row, &mut last)?);
        }
        Ok(found)
    }

    /// Every item with its path, in the order of the paths.
    pub fn stored(&self) -> Vec<(String, Value)> {
        self.items.iter().map(|(path, item)| (path.clone(), item.clone())).collect()
    }
}

fn text<'a>(item: &'a Value, name: &str) -> &'a str {
    item[name].as_str().unwrap_or_default()
}

/// A row as the JSON of its item, without null values.
fn item(row: &Row<'_>, names: &[&str]) -> rusqlite::Result<Value> {
    use rusqlite::types::ValueRef;
    let mut members = Map::new();
    for (index, name) in names.iter().enumerate() {
        let value = match row.get_ref(index)? {
            ValueRef::Null => continue,
            ValueRef::Integer(number) => json!(number),
            ValueRef::Text(bytes) if *name == "items" => parse(bytes),
            ValueRef::Text(bytes) => json!(String::from_utf8_lossy(bytes)),
            other => json!(format!("{other:?}")),
        };
        members.insert((*name).to_owned(), value);
    }
    Ok(Value::Object(members))
}

/// Invalid JSON is a fault that shows in the comparison.
fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| json!(error.to_string()))
}

/// The last text of each item, parsed.
type LastTexts = HashMap<String, (String, Rc<Value>)>;

fn read_change(row: &Row<'_>, last: &mut LastTexts) -> rusqlite::Result<LoggedChange> {
    let subject: String = row.get(2)?;
    let (before, after): (Option<String>, Option<String>) = (row.get(4)?, row.get(5)?);
    let known = last.remove(&subject);
    // Nearly always the text that the previous entry has as its `after`.
    let before = before.map(|text| match known {
        Some((known, value)) if known == text => value,
        _ => Rc::new(parse(text.as_bytes())),
    });
    let after = after.map(|text| {
        let value = Rc::new(parse(text.as_bytes()));
        last.insert(subject.clone(), (text, Rc::clone(&value)));
        value
    });
    Ok(LoggedChange {
        sequence: row.get(0)?,
        kind: row.get(1)?,
        subject,
        request_id: row.get(3)?,
        before,
        after,
    })
}

/// Compares the contents with a view of the ledger: `Ledger::now` or `Ledger::as_of`.
pub fn judge(view: &[(&LedgerEntry, &RequestOutcome)], found: &DatabaseContents) -> JudgeVerdict {
    let mut verdict =
        JudgeVerdict { faults: found.integrity_errors.clone(), ..JudgeVerdict::default() };
    replay_change_log(found, &mut verdict.faults);
    let mut witness = ChangeLogIndex::new(found, view);
    for (entry, outcome) in view {
        witness.check_entry(entry, outcome, &mut verdict);
    }
    for (request_id, changes) in &witness.by_request {
        if !witness.owned.contains(request_id) {
            verdict.faults.push(format!("nobody asked for {changes:?}"));
        }
    }
    verdict
}

/// Replays the change log from its first entry; it must give what is stored.
fn replay_change_log(found: &DatabaseContents, faults: &mut Vec<String>) {
    let mut played: BTreeMap<&str, &Value> = BTreeMap::new();
    for (change, sequence) in found.log.iter().zip(1..) {
        if !found.is_interleaved && change.sequence != sequence {
            faults.push(format!("the log has a gap: expected {sequence}, got {}", change.sequence));
            return;
        }
        let before = played.remove(change.subject.as_str());
        let version =
            |item: Option<&Value>| item.map_or(0, |item| item["version"].as_i64().unwrap_or(-1));
        let fits = match change.kind.as_str() {
            "created" => change.before.is_none() && change.after.is_some(),
            "updated" => change.before.is_some() && change.after.is_some(),
            "deleted" => change.before.is_some() && change.after.is_none(),
            _ => false,
        };
        let follows = change.after.is_none()
            || version(change.after.as_deref()) == version(change.before.as_deref()) + 1;
        if !fits || !follows || before != change.before.as_deref() {
            faults.push(format!("an entry of the log does not follow from {before:?}: {change:?}"));
        }
        if let Some(after) = &change.after {
            played.insert(&change.subject, after);
        }
    }
    for (path, item) in &found.items {
        if played.get(path.as_str()) != Some(&item) {
            let logged = played.get(path.as_str());
            faults.push(format!(
                "{path} is not as the log says: {item} is stored, {logged:?} logged"
            ));
        }
    }
    for path in played.keys().filter(|path| !found.items.contains_key(**path)) {
        faults.push(format!("{path} is in the log, but is not stored"));
    }
}

/// The change log, indexed by request and by token.
struct ChangeLogIndex<'a> {
    by_request: HashMap<&'a str, Vec<&'a LoggedChange>>,
    by_token: HashMap<&'a str, &'a LoggedChange>,
    deleted: HashMap<&'a str, &'a LoggedChange>,
    /// Ids of requests whose responses say which entries are theirs.
    answered: BTreeSet<&'a str>,
    /// Items that open requests may have removed.
    open_removals: Vec<&'a str>,
    owned: BTreeSet<&'a str>,
    is_interleaved: bool,
}

impl<'a> ChangeLogIndex<'a> {
    fn new(found: &'a DatabaseContents, view: &[(&'a LedgerEntry, &'a RequestOutcome)]) -> Self {
        let mut by_request: HashMap<_, Vec<_>> = HashMap::new();
        let (mut by_token, mut deleted) = (HashMap::new(), HashMap::new());
        for change in &found.log {
            by_request.entry(change.request_id.as_str()).or_default().push(change);
            match change.after.as_deref().and_then(token_of) {
                Some(token) => drop(by_token.insert(token, change)),
                None => drop(deleted.insert(change.subject.as_str(), change)),
            }
        }
        let answered = view.iter().filter_map(|(_, outcome)| match outcome {
            RequestOutcome::Answered(answered) => Some(answered.request_id.as_str()),
            RequestOutcome::FoundDone(request_id) => Some(request_id.as_str()),
            RequestOutcome::Open | RequestOutcome::FoundMissing => None,
        });
        let open_removals =
            view.iter().filter_map(|(entry, outcome)| match (&entry.request, outcome) {
                (LedgerRequest::Remove { path }, RequestOutcome::Open) => Some(path.as_str()),
                _ => None,
            });
        Self {
            by_request,
            by_token,
            deleted,
            answered: answered.collect(),
            open_removals: open_removals.collect(),
            owned: BTreeSet::new(),
            is_interleaved: found.is_interleaved,
        }
    }

    fn check_entry(
        &mut self,
        entry: &LedgerEntry,
        outcome: &'a RequestOutcome,
        verdict: &mut JudgeVerdict,
    ) {
        match outcome {
            RequestOutcome::Answered(answered) => self.check_answered(entry, answered, verdict),
            RequestOutcome::FoundDone(request_id) => {
                self.check_complete(entry, request_id, None, &mut verdict.faults);
            }
            RequestOutcome::FoundMissing => {
                if let Some(request_id) = self.request_id_if_wrongly_done(entry) {
                    let fault = format!("was missing and has come back as {request_id}: {entry:?}");
                    verdict.faults.push(fault);
                }
            }
            RequestOutcome::Open => {
                let done = self.request_id_if_done(entry);
                if let Some(request_id) = done {
                    if entry.expected != ExpectedResponse::Change {
                        verdict.faults.push(format!("must be refused, but is there: {entry:?}"));
                    }
                    self.check_complete(entry, request_id, None, &mut verdict.faults);
                }
                verdict.open.push(done.map(str::to_owned));
            }
        }
    }

    fn check_answered(
        &mut self,
        entry: &LedgerEntry,
        answered: &'a LedgerResponse,
        verdict: &mut JudgeVerdict,
    ) {
        let request_id = answered.request_id.as_str();
        let expected = match (&entry.request, entry.expected) {
            (LedgerRequest::Create { .. }, ExpectedResponse::Change) => (201, None),
            (LedgerRequest::Replace { .. }, ExpectedResponse::Change)
            | (_, ExpectedResponse::NoChange) => (200, None),
            (LedgerRequest::Remove { .. }, ExpectedResponse::Change) => (204, None),
            (_, ExpectedResponse::Refusal(status, slug)) => (status, Some(slug)),
        };
        let is_unavailable = answered.status == 503;
        if !is_unavailable && (answered.status, answered.problem.as_deref()) != expected {
            verdict.faults.push(format!("expected {expected:?}, got {answered:?} to {entry:?}"));
        }
        if answered.status < 300 && entry.expected != ExpectedResponse::NoChange {
            verdict.answered += 1;
            self.check_complete(entry, request_id, Some(answered), &mut verdict.faults);
            return;
        }
        verdict.unavailable += usize::from(is_unavailable);
        verdict.refused += usize::from(!is_unavailable && answered.status >= 300);
        let done = if self.by_request.contains_key(request_id) {
            Some(request_id)
        } else {
            self.request_id_if_wrongly_done(entry)
        };
        if let Some(done) = done {
            verdict
                .faults
                .push(format!("refused with {answered:?}, but there as {done}: {entry:?}"));
        }
    }

    /// The request id under which a ledger entry was done, by its tokens or by its removals.
    fn request_id_if_done(&self, entry: &LedgerEntry) -> Option<&'a str> {
        let changes: Vec<&'a LoggedChange> = match (&entry.request, entry.expected) {
            // Its token is that of an earlier write, or it removes what was removed before.
            (_, ExpectedResponse::NoChange)
            | (LedgerRequest::Remove { .. }, ExpectedResponse::Refusal(..)) => return None,
            (LedgerRequest::Remove { path }, _) => {
                self.deleted.get(path.as_str()).copied().into_iter().collect()
            }
            (asked, _) => {
                let tokens = asked.tokens().into_iter();
                tokens.filter_map(|token| self.by_token.get(token).copied()).collect()
            }
        };
        let mut ids = changes.iter().map(|change| change.request_id.as_str());
        ids.find(|id| !self.answered.contains(id))
    }

    /// The same for a request that must not have been done. A removal has no token: where an open
    /// request asks for it as well, it belongs to that one.
    fn request_id_if_wrongly_done(&self, entry: &LedgerEntry) -> Option<&'a str> {
        match &entry.request {
            LedgerRequest::Remove { path }
                if self.open_removals.iter().any(|open| path.starts_with(open)) =>
            {
                None
            }
            _ => self.request_id_if_done(entry),
        }
    }

    /// Asserts that all changes of the request are in the change log under its id, consecutively, and
    /// as answered.
    fn check_complete(
        &mut self,
        entry: &LedgerEntry,
        request_id: &'a str,
        answered: Option<&LedgerResponse>,
        faults: &mut Vec<String>,
    ) {
        let Some(changes) = self.by_request.get(request_id) else {
            return faults.push(format!("lost: {request_id} {entry:?}"));
        };
        if !self.owned.insert(request_id) {
            faults.push(format!("two requests own {request_id}: {entry:?}"));
        }
        let span = changes.last().unwrap().sequence - changes[0].sequence + 1;
        let is_one_piece = self.is_interleaved || span == i64::try_from(changes.len()).unwrap();
        let afters = || changes.iter().filter_map(|change| change.after.as_deref());
        let is_as_asked = match &entry.request {
            LedgerRequest::Create { drafts, .. } => {
                changes.iter().all(|change| change.kind == "created")
                    && afters().map(token_of).eq(drafts.iter().map(token_of))
            }
            LedgerRequest::Replace { path, draft } => {
                matches!(changes.as_slice(), [one] if one.kind == "updated" && one.subject == *path)
                    && afters().map(token_of).eq([token_of(draft)])
            }
            // Cascaded removals lie below it.
            LedgerRequest::Remove { path } => {
                changes
                    .iter()
                    .all(|change| change.kind == "deleted" && change.subject.starts_with(path))
                    && changes.iter().any(|change| change.subject == *path)
            }
        };
        let is_as_answered = answered.is_none_or(|answered| afters().eq(&answered.items));
        if !is_one_piece || !is_as_asked || !is_as_answered {
            faults.push(format!("half there: {changes:?} for {answered:?} to {entry:?}"));
        }
    }
}
