//! Fault injection in writes: requests that fail at each of their steps, in every way.
//!
//! Three requests share a commit, and the fault hits the one in the middle. An acknowledged request is
//! stored, any other has left nothing, every row has its change log entry, and afterwards the same request
//! succeeds. The tables list the steps and the answers.
//! The writer runs on the test's own thread, one iteration at a time.

mod commit_groups;
mod requests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use uuid::Uuid;

use crate::clock;
use crate::intent::{self, RequestVerb, ResourcePath, Route, RouteTarget};
use crate::log::{LogStyle, Logger};
use crate::metrics::Metrics;
use crate::model::{self, Model};
use crate::permit::{Caller, Rights};
use crate::plan::{
    self, ChangeAuthor, IdempotentRequest, Outcome, Plan, RequestRefusal, WritePlan,
};
use crate::store::context::StoreContext;
use crate::store::driver::poll_once;
use crate::store::error::StoreError;
use crate::store::retention::ClockDoubtLog;
use crate::store::sql::dialect::SQLITE;
use crate::store::sqlite::completions::{CompletionQueue, WriteResult};
use crate::store::sqlite::database_lock::DatabaseLock;
use crate::store::sqlite::driver::SqliteDriver;
use crate::store::sqlite::export::SqliteExports;
use crate::store::sqlite::wal_file::WalFile;
use crate::store::sqlite::wal_maintenance::WalMaintenance;
use crate::store::sqlite::wal_reset::{ReadGate, WalReset};
use crate::store::sqlite::write_queue::{QueuedWork, QueuedWrite, WriteQueue};
use crate::store::sqlite::writer::SqliteWriter;
use crate::store::{fault_injection, schema};
use crate::value::{Id, IdKind};

const MODEL: &str = r#"
title = "Teams"

[resources.person]
plural = "people"
id     = "integer"

[resources.person.fields]
name  = { type = "text", required = true }
badge = { type = "text", unique = true }

[resources.team.fields]
name = { type = "text", required = true }
lead = { type = "ref", to = "person" }

[resources.task]
parent    = "team"
on_delete = "cascade"

[resources.task.fields]
title = { type = "text", required = true }
owner = { type = "ref", to = "person", on_delete = "cascade" }
stage = { type = "state", initial = "open", next = { open = ["done"], done = [] } }

[roles.lead]
person = ["get"]
team   = { verbs = ["get"], where = "exists(task where team = this.id and title = 'x')" }
task   = ["get", "post", "put"]
"#;

/// One for all tests: its thread never ends.
static LOG: LazyLock<Logger> =
    LazyLock::new(|| Logger::start_to(LogStyle::Json, std::io::sink()).unwrap());

/// A request that sends the stored values.
const UNCHANGED: &str = "PUT /people/2";

/// A writer without a thread, on an in-memory database.
struct WriterHarness {
    writer: SqliteWriter,
    queue: WriteQueue,
    completions: Arc<CompletionQueue>,
    model: Arc<Model>,
    requests: usize,
}

impl WriterHarness {
    fn new() -> Self {
        let model = Arc::new(model::read("teams.toml", MODEL).unwrap());
        let connection = Connection::open_in_memory().unwrap();
        super::connection::configure_connection(&connection, 1_000).unwrap();
        let mut driver = SqliteDriver { connection: &connection };
        poll_once(schema::create(&mut driver, &model)).unwrap().unwrap();
        let metrics = Metrics::new(&model);
        let counted = metrics.writer();
        let (queue, jobs) = WriteQueue::new(&counted);
        let context = StoreContext::new(&model, &SQLITE, Arc::default());
        let gate = Arc::new(ReadGate::default());
        let writer = SqliteWriter {
            connection,
            context: Arc::clone(&context),
            queue: jobs,
            stopped: Arc::new(AtomicBool::new(false)),
            wal: WalMaintenance {
                pages: Arc::default(),
                reset: WalReset::new(Arc::clone(&gate), &model.server.limits),
                file: WalFile::default(),
                exports: SqliteExports::new(std::path::PathBuf::new(), &context, &metrics, &gate),
                log: LOG.clone(),
                metrics: Arc::clone(&counted),
                last_error: RefCell::default(),
            },
            lock: Arc::new(DatabaseLock::of_no_file()),
            log: LOG.clone(),
            metrics,
            writer_metrics: counted,
            doubt_log: ClockDoubtLog::default(),
        };
        let mut trial = Self { writer, queue, completions: Arc::default(), model, requests: 0 };
        // Ann leads Red; Bob owns the two tasks of Red; Red's tasks are deleted with it.
        for (line, body) in [
            (
                "POST /people",
                r#"{"people":[{"name":"Ann","badge":"a"},{"name":"Bob"},{"name":"Cem"}]}"#,
            ),
            ("POST /teams", r#"{"team":{"name":"Red","lead":1}}"#),
            (
                "POST /teams/team/tasks",
                r#"{"tasks":[{"title":"x","owner":2},{"title":"y","owner":2}]}"#,
            ),
        ] {
            assert_eq!(trial.run(&[(line, body)]), "o", "{line}");
        }
        trial
    }

    /// Queues the requests together, and runs the writer until all are answered.
    /// Returns a letter for each answer.
    fn run(&mut self, requests: &[(&str, &str)]) -> String {
        let writes: Vec<Box<WritePlan>> =
            requests.iter().map(|request| self.write(request)).collect();
        let sent: Vec<_> = writes
            .into_iter()
            .map(|write| {
                let (answer, answered) = self.completions.reply_handle();
                let request_id = write.author.request_id.clone();
                let claimed = Arc::new(AtomicBool::new(false));
                self.queue
                    .push(QueuedWrite {
                        work: QueuedWork::Write(write),
                        bytes: 1,
                        is_claimed: claimed,
                        reply_handle: answer,
                        _memory: None,
                    })
                    .unwrap();
                (request_id, answered)
            })
            .collect();
        let mut never = clock::now() + Duration::from_secs(3600);
        let told = sent
            .into_iter()
            .map(|(request_id, answered)| (request_id, self.wait_for_answer(answered, &mut never)));
        let letters: Vec<(Box<str>, char)> = told.collect();
        let mut told: String = letters.iter().map(|(_, letter)| letter).collect();
        let is_stopped = self.writer.stopped.swap(false, Ordering::Relaxed);
        if is_stopped {
            told.push('!');
            // As a restart does.
            let _ = self.writer.connection.execute_batch("ROLLBACK");
        }
        assert!(self.writer.connection.is_autocommit(), "a transaction is left open");
        self.check_entries_match_rows();
        for (request_id, letter) in letters {
            self.check_all_or_nothing(&request_id, letter);
        }
        told
    }

    fn wait_for_answer(
        &self,
        mut answered: oneshot::Receiver<WriteResult>,
        never: &mut Instant,
    ) -> char {
        loop {
            self.completions.dispatch();
            match answered.try_recv() {
                Ok(told) => return answer_letter(&told),
                // `SqliteWorker::write` reports that the writer panicked.
                Err(TryRecvError::Closed) => return 'p',
                Err(TryRecvError::Empty) => assert!(self.writer.run_once(never).is_continue()),
            }
        }
    }

    fn count(&self, sql: &str) -> i64 {
        self.writer.connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// An acknowledged request has left its change log entries, any other has left none.
    fn check_all_or_nothing(&self, request_id: &str, letter: char) {
        let sql = format!("SELECT count(*) FROM nouns_changes WHERE request_id = '{request_id}'");
        let entries = self.count(&sql);
        let is_noop = request_id.ends_with("noop");
        assert_eq!(
            entries > 0,
            letter == 'o' && !is_noop,
            "{request_id}: {letter}, {entries} entries"
        );
        // A response is stored only with a completed write or a refusal.
        let sql = format!("SELECT count(*) FROM nouns_keys WHERE scope = '{request_id}'");
        let is_kept = self.count(&sql) > 0;
        assert!(!is_kept || "ok".contains(letter), "{request_id}: {letter}, and kept");
    }

    /// The last change log entry of every item has the item's version, and deleted items are gone.
    fn check_entries_match_rows(&self) {
        let told = "SELECT resource, id, iif(kind = 'deleted', 0, json_extract(after, '$.version')) \
            FROM nouns_changes ORDER BY sequence";
        let there = "SELECT 'person', CAST(id AS TEXT), version FROM people \
            UNION ALL SELECT 'team', id, version FROM teams UNION ALL SELECT 'task', id, version FROM tasks";
        let versions = |sql: &str| -> BTreeMap<(String, String), i64> {
            let mut statement = self.writer.connection.prepare(sql).unwrap();
            let rows = statement
                .query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))
                .unwrap();
            rows.map(Result::unwrap).collect()
        };
        let mut told = versions(told);
        told.retain(|_, version| *version > 0);
        assert_eq!(told, versions(there));
    }

    /// `POST /teams/team/tasks`: a name instead of an id stands for the first item of its kind. `KEYED` sends an
    /// idempotency key, and `LEAD` sends the request as a user with that role.
    fn write(&mut self, (line, body): &(&str, &str)) -> Box<WritePlan> {
        let keyed = line.strip_prefix("KEYED ");
        let lead = line.strip_prefix("LEAD ");
        let caller = match lead {
            None => Caller::open(&self.model),
            Some(_) => {
                let rights = Rights::of_roles(&self.model, ["lead"].into_iter());
                Caller::user("lea".into(), Arc::new(rights))
            }
        };
        let (method, path) = keyed.or(lead).unwrap_or(line).split_once(' ').unwrap();
        let mut segments = path.trim_start_matches('/').split('/').peekable();
        let (mut ids, mut resource) = (intent::PathIds::default(), None);
        while let Some(plural) = segments.next() {
            let found = self.model.resources.iter().find(|resource| &*resource.plural == plural);
            let found = found.unwrap();
            resource = Some(found.index);
            if let Some(id) = segments.next() {
                let id = self.id(found.id, plural, id);
                match segments.peek() {
                    Some(_) => ids.ancestors.push(id),
                    None => ids.item = Some(id),
                }
            }
        }
        let address = ResourcePath::nested(resource.unwrap(), ids);
        let (verb, place) = match method {
            "POST" => (RequestVerb::Post, RouteTarget::Collection(address)),
            "PUT" => (RequestVerb::Put, RouteTarget::Item(address)),
            _ => (RequestVerb::Delete, RouteTarget::Item(address)),
        };
        self.requests += 1;
        let noop = if *line == UNCHANGED { "noop" } else { "" };
        let request_id: Box<str> = format!("r{}{noop}", self.requests).into();
        let once = keyed.map(|_| Box::new(idempotency_key(&request_id)));
        let route = Route { verb, target: place };
        let intent =
            intent::read(&self.model, route, (None, &intent::AllReadable), body.as_bytes())
                .unwrap();
        match plan::make(&self.model, intent, &caller, || {
            ChangeAuthor::without_user("-", &request_id)
        })
        .unwrap()
        {
            Plan::Write(write) => Box::new(WritePlan { idempotency: once, ..*write }),
            other => panic!("{line}: {other:?}"),
        }
    }

    fn id(&self, kind: IdKind, plural: &str, name: &str) -> Id {
        match kind {
            IdKind::Integer => Id::Integer(name.parse().unwrap()),
            IdKind::Uuid => {
                let sql = format!("SELECT min(id) FROM {plural}");
                let text: String =
                    self.writer.connection.query_row(&sql, [], |row| row.get(0)).unwrap();
                Id::Uuid(Uuid::parse_str(&text).unwrap())
            }
        }
    }
}

/// Every request has its own idempotency key.
fn idempotency_key(scope: &str) -> IdempotentRequest {
    IdempotentRequest {
        scope: scope.into(),
        lock_number: 0,
        fingerprints: vec!["-".into()],
        wait_max: Duration::ZERO,
        can_store_refusals: true,
        render: Arc::new(|done| Some(if done.is_ok() { "done" } else { "refused" }.to_owned())),
    }
}

fn answer_letter(told: &Result<Outcome, StoreError>) -> char {
    match told {
        Ok(Outcome::Idempotent(said)) if said.text == "refused" => 'k',
        Ok(_) => 'o',
        Err(StoreError::Refused(RequestRefusal::NotUnique(_))) => 'c',
        Err(StoreError::Refused(_)) => 'r',
        Err(StoreError::Busy) => 'b',
        Err(StoreError::TimedOut) => 't',
        Err(StoreError::RightsChanged) => 'f',
        Err(StoreError::Unavailable(_)) => 'u',
        Err(StoreError::OutcomeUnknown(_)) => '?',
        Err(StoreError::Broken(_)) => 'i',
    }
}

const NEIGHBOUR: (&str, &str) = ("POST /people", r#"{"person":{"name":"Neighbour"}}"#);

/// The steps of a group of these requests, without a fault.
fn steps(trial: &mut WriterHarness, requests: &[(&str, &str)]) -> Vec<String> {
    fault_injection::inject(None);
    trial.run(requests);
    let steps = fault_injection::steps_since_inject();
    fault_injection::inject(None);
    steps
}

fn heading() -> String {
    let names = ["taken", "time", "intr", "lock", "full", "gone", "sync", "fault", "panic"];
    line("", &names.map(str::to_owned))
}

fn line(step: &str, cells: &[String]) -> String {
    let cells: String = cells.iter().map(|cell| format!("{cell:<6}")).collect();
    format!("{step:24}{}\n", cells.trim_end())
}
