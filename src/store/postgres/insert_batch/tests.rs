//! Insert batching against a private PostgreSQL; all creates are started before any of them is awaited.

use futures_util::future::{join, join_all};
use tokio::runtime::{Builder, LocalOptions};
use tokio_postgres::{Client, NoTls};

use super::*;
use crate::permit::AccessScope;
use crate::plan::{Cardinality, ChangeAuthor, Collection, DraftValues, ItemDraft, WriteAction};
use crate::store::postgres::attempt::RollbackCause;
use crate::store::postgres::connect::tests::cluster::TestCluster;
use crate::store::postgres::pool::LeasePurpose;
use crate::store::postgres::worker::PostgresWorker;
use crate::store::statement::StatementReuse;
use crate::store::write::WriteOptions;
use crate::value::Value;

/// Long enough for a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Of five connections one is reserved for reads.
const WRITES_MAX: usize = 4;
/// `request_seconds_max` of this test's model; most creates here get a later deadline.
const REQUEST_MAX: Duration = Duration::from_secs(2);

struct BatchScenario {
    cluster: TestCluster,
    worker: PostgresWorker,
    /// A connection beside the worker's.
    other_session: Client,
}

impl BatchScenario {
    fn create(&self, name: &str) -> Box<WritePlan> {
        let model = &self.worker.state.context.model;
        let thing = model.resources.iter().find(|resource| &*resource.label == "thing").unwrap();
        Box::new(create_write(thing.index, name))
    }

    async fn write(&self, name: &str) -> Result<Outcome, StoreError> {
        self.worker
            .write(self.create(name), WriteOptions::with_deadline(clock::now() + TEST_TIMEOUT))
            .await
    }

    /// Resets the statistics: one create is sent immediately and the others wait for it, however long earlier
    /// statements took.
    fn reset_statistics(&self) {
        let line = self
            .worker
            .batches
            .batch_queue(&self.create(""), 0, clock::now() + TEST_TIMEOUT)
            .unwrap();
        line.fastest_micros.store(0, Ordering::Relaxed);
        line.last_batch_size.store(0, Ordering::Relaxed);
    }

    async fn write_all(&self, names: &[String]) -> Vec<Result<Outcome, StoreError>> {
        self.reset_statistics();
        join_all(names.iter().map(|name| self.write(name))).await
    }

    /// Opens every connection that writes may use and prepares the statements on it; a connection without
    /// them would wait for the table lock while preparing, before it has sent the insert.
    async fn prepare_connections(&self) {
        let inner = &self.worker.state;
        let resource = self.create("").collection.resource;
        let table = inner.context.sql.table_statements(resource);
        let lease = || inner.pool.lease(LeasePurpose::Write, clock::now() + TEST_TIMEOUT);
        for lease in join_all((0..WRITES_MAX).map(|_| lease())).await {
            let lease = lease.unwrap();
            for sql in [&table.insert].into_iter().chain(&table.insert_batch) {
                lease.prepare_cached(sql, StatementReuse::Always).await.unwrap();
            }
            lease.return_to_pool();
        }
    }

    /// Locks the table so that the first create blocks, and then the rest as one batch; then runs `end`.
    async fn write_behind_a_lock(
        &self,
        names: &[String],
        end: impl AsyncFnOnce(),
    ) -> Vec<Result<Outcome, StoreError>> {
        self.other_session
            .batch_execute("BEGIN; LOCK TABLE things IN EXCLUSIVE MODE")
            .await
            .unwrap();
        let (first, rest) = names.split_at(1);
        let behind_it = async {
            self.wait_for_lock_waiters(1).await;
            let seen = async {
                self.wait_for_lock_waiters(2).await;
                end().await;
            };
            join(self.write_all(rest), seen).await.0
        };
        let (first, rest) = join(self.write_all(first), behind_it).await;
        first.into_iter().chain(rest).collect()
    }

    async fn unlock(&self) {
        self.other_session.batch_execute("COMMIT").await.unwrap();
    }

    async fn sql(&self, text: &str) -> i64 {
        self.other_session.query_one(text, &[]).await.unwrap().get(0)
    }

    /// Whether the item is stored. It exists once, with exactly one matching change-log entry, or not at all.
    async fn is_stored_once(&self, name: &str) -> bool {
        // One statement, and so one snapshot: the item may be committed meanwhile.
        let counts = format!(
            "SELECT (SELECT count(*) FROM things WHERE name = '{name}'), \
             (SELECT count(*) FROM nouns_changes JOIN things ON things.id::text = nouns_changes.id \
              WHERE request_id = '{name}' AND kind = 'created' AND resource = 'thing' AND actor = 'open' \
              AND subject = '/things/' || things.id AND time = things.created_at \
              AND parent_id IS NULL AND changed IS NULL AND before IS NULL \
              AND after::json ->> 'name' = things.name AND after::json ->> 'id' = things.id::text), \
             (SELECT count(*) FROM nouns_changes WHERE request_id = '{name}')"
        );
        let row = self.other_session.query_one(&counts, &[]).await.unwrap();
        let (things, entries, all): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        assert!(
            (things, entries, all) == (1, 1, 1) || (things, entries, all) == (0, 0, 0),
            "{name}: {things} items, {all} entries, {entries} of them as expected"
        );
        things == 1
    }

    async fn wait_for_lock_waiters(&self, count: i64) {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        for _ in 0..2_000 {
            if self.sql(waiting).await >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("not so many wait for a lock");
    }
}

fn create_write(resource: ResourceIndex, name: &str) -> WritePlan {
    let collection = Collection::nested(resource, Vec::new(), AccessScope::default());
    let values = DraftValues::Complete(vec![Value::text(name)]);
    let draft = ItemDraft { root: "/thing".into(), values, references: Vec::new() };
    let action = WriteAction::Create { drafts: vec![draft], count: Cardinality::One };
    let by = ChangeAuthor::without_user("open", name);
    WritePlan::new(collection, action, by)
}

fn names(word: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{word}-{number}")).collect()
}

#[test]
fn insert_batch_against_postgres() {
    let cluster = TestCluster::start();
    cluster.restart("fast");
    let store = cluster.open(
        "limits.database_connections_max = 5\nlimits.statement_seconds_max = 30\nlimits.request_seconds_max = 2",
    );
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let address = format!("postgres://nouns@127.0.0.1:{}/postgres", cluster.port);
        let (other, connection) = tokio_postgres::connect(&address, NoTls).await.unwrap();
        tokio::task::spawn_local(connection);
        let scenario =
            BatchScenario { cluster, worker: PostgresWorker::new(&store, 1), other_session: other };
        batched_creates_are_stored_once(&scenario).await;
        create_after_a_batch_waits_for_others(&scenario).await;
        refused_create_does_not_fail_the_batch(&scenario).await;
        blocked_create_does_not_delay_others(&scenario).await;
        lost_connection_is_outcome_unknown(&scenario).await;
        batch_at_its_deadline_is_not_cancelled(&scenario).await;
        wrong_row_count_is_not_retried(&scenario).await;
        earlier_deadline_does_not_join(&scenario).await;
        large_or_urgent_creates_are_not_batched(&scenario);
        store.close();
    });
}

async fn batched_creates_are_stored_once(scenario: &BatchScenario) {
    let names = names("all", 3 * BATCH_MEMBERS_MAX);
    let outcomes = scenario.write_all(&names).await;
    for (outcome, name) in outcomes.iter().zip(&names) {
        let Ok(Outcome::Created(item)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(item.values, [Value::text(name)]);
        let stored =
            format!("SELECT count(*) FROM things WHERE id = '{}' AND name = '{name}'", item.id);
        assert_eq!(scenario.sql(&stored).await, 1);
        assert!(scenario.is_stored_once(name).await);
    }
    // The first create alone, and then three full batches.
    let commits = "SELECT count(DISTINCT xmin::text) FROM things WHERE name LIKE 'all-%'";
    assert_eq!(scenario.sql(commits).await, 4);
}

/// After a batch the next create waits for others to join; after a single create it does not.
async fn create_after_a_batch_waits_for_others(scenario: &BatchScenario) {
    let line = scenario
        .worker
        .batches
        .batch_queue(&scenario.create(""), 0, clock::now() + TEST_TIMEOUT)
        .unwrap();
    scenario.reset_statistics();
    line.try_acquire_permit().unwrap().record_success(3);
    assert!(line.try_acquire_permit().is_none());
    assert!(scenario.write("one").await.is_ok());
    assert!(line.try_acquire_permit().is_some());
}

/// The database refuses a create that the model's rules accept.
async fn refused_create_does_not_fail_the_batch(scenario: &BatchScenario) {
    scenario
        .other_session
        .batch_execute("ALTER TABLE things ADD CONSTRAINT planted CHECK (name <> 'wrong-3')")
        .await
        .unwrap();
    let names = names("wrong", 8);
    let outcomes = scenario.write_all(&names).await;
    for (outcome, name) in outcomes.iter().zip(&names) {
        assert_eq!(outcome.is_ok(), name != "wrong-3", "{outcome:?}");
        assert_eq!(scenario.is_stored_once(name).await, name != "wrong-3");
    }
    scenario
        .other_session
        .batch_execute("ALTER TABLE things DROP CONSTRAINT planted")
        .await
        .unwrap();
}

/// Creates that arrive while one is blocked use other connections and do not wait for it.
async fn blocked_create_does_not_delay_others(scenario: &BatchScenario) {
    let names = names("still", 9);
    let outcomes = scenario.write_behind_a_lock(&names, async || scenario.unlock().await).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    for name in &names {
        assert!(scenario.is_stored_once(name).await);
    }
}

/// A connection that ends may have ended after the commit: every create in the batch gets `OutcomeUnknown`.
async fn lost_connection_is_outcome_unknown(scenario: &BatchScenario) {
    scenario.prepare_connections().await;
    let names = names("lost", 9);
    let cut =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let cut = async || drop(scenario.cluster.sql(cut));
    for outcome in scenario.write_behind_a_lock(&names, cut).await {
        assert!(matches!(outcome, Err(StoreError::OutcomeUnknown(_))), "{outcome:?}");
    }
    scenario.unlock().await;
    for name in &names {
        assert!(!scenario.is_stored_once(name).await);
    }
    assert!(scenario.write("behind it").await.is_ok());
}

/// The statement includes its commit, so it is not cancelled at the deadline of the first create: the
/// creates of the batch get `OutcomeUnknown`.
async fn batch_at_its_deadline_is_not_cancelled(scenario: &BatchScenario) {
    scenario
        .other_session
        .batch_execute("BEGIN; LOCK TABLE things IN EXCLUSIVE MODE")
        .await
        .unwrap();
    scenario.reset_statistics();
    let stands = scenario.write("long-first");
    let others = async {
        scenario.wait_for_lock_waiters(1).await;
        let soon = clock::now() + REQUEST_MAX * 3 / 4;
        let hasty = async {
            let hasty = scenario
                .worker
                .write(scenario.create("long-hasty"), WriteOptions::with_deadline(soon))
                .await;
            scenario.unlock().await;
            hasty
        };
        join(hasty, scenario.write("long-patient")).await
    };
    let (first, (hasty, patient)) = join(stands, others).await;
    assert!(first.is_ok(), "{first:?}");
    assert!(matches!(hasty, Err(StoreError::OutcomeUnknown(_))), "{hasty:?}");
    assert!(matches!(patient, Ok(_) | Err(StoreError::OutcomeUnknown(_))), "{patient:?}");
    // The statement was not cancelled: the database executes it once it has the lock.
    for name in ["long-hasty", "long-patient"] {
        for _ in 0..2_000 {
            if scenario.is_stored_once(name).await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(scenario.is_stored_once(name).await, "{name}");
    }
}

/// A statement that wrote another number of rows than it was given is not retried.
async fn wrong_row_count_is_not_retried(scenario: &BatchScenario) {
    let plant = "CREATE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RETURN CASE WHEN new.request_id = ''odd-3'' THEN NULL ELSE new END; END'; \
         CREATE TRIGGER planted BEFORE INSERT ON nouns_changes FOR EACH ROW EXECUTE FUNCTION planted()";
    scenario.other_session.batch_execute(plant).await.unwrap();
    let outcomes = scenario.write_all(&names("odd", 8)).await;
    let (first, rest) = outcomes.split_first().unwrap();
    assert!(first.is_ok(), "{first:?}");
    assert!(
        rest.iter().all(|outcome| matches!(outcome, Err(StoreError::OutcomeUnknown(_)))),
        "{rest:?}"
    );
    assert_eq!(scenario.sql("SELECT count(*) FROM things WHERE name LIKE 'odd-%'").await, 8);
    scenario.other_session.batch_execute("DROP TRIGGER planted ON nouns_changes").await.unwrap();
}

fn large_or_urgent_creates_are_not_batched(scenario: &BatchScenario) {
    let inner = &scenario.worker.batches;
    let (plain, until) = (scenario.create("plain"), clock::now() + TEST_TIMEOUT);
    assert!(inner.batch_queue(&plain, BATCHED_WRITE_BYTES_MAX, until).is_some());
    assert!(inner.batch_queue(&plain, BATCHED_WRITE_BYTES_MAX + 1, until).is_none());
    assert!(inner.batch_queue(&plain, 0, clock::now() + REQUEST_MAX / 3).is_none());
    let users = Collection::users(&inner.state.context.model);
    assert!(inner.batch_queue(&WritePlan { collection: users, ..*plain }, 0, until).is_none());
}

/// A create with an earlier deadline than the batch's does not join it.
async fn earlier_deadline_does_not_join(scenario: &BatchScenario) {
    scenario
        .other_session
        .batch_execute("BEGIN; LOCK TABLE things IN EXCLUSIVE MODE")
        .await
        .unwrap();
    scenario.reset_statistics();
    let line = scenario
        .worker
        .batches
        .batch_queue(&scenario.create(""), 0, clock::now() + TEST_TIMEOUT)
        .unwrap();
    let turn = line.try_acquire_permit().unwrap();
    let leads = scenario.write("hurry-leads");
    let joins = async {
        tokio::task::yield_now().await;
        let soon = clock::now() + REQUEST_MAX * 3 / 4;
        let result =
            scenario.worker.batches.enqueue_create(line, scenario.create("hurry"), soon).await;
        assert!(matches!(result, BatchResult::RetryIndividually(_)), "{result:?}");
        drop(turn);
        scenario.unlock().await;
    };
    let (leads, ()) = join(leads, joins).await;
    assert!(leads.is_ok(), "{leads:?}");
}

/// A create that joined late has not waited for a connection yet, so it is retried when the others give up.
#[test]
fn insert_batch_failure_of_all_is_reported_to_each_member() {
    let error = |number: usize| match number {
        0 => StoreError::Unavailable("away".to_owned()),
        1 => StoreError::OutcomeUnknown("lost".to_owned()),
        2 => StoreError::Busy,
        3 => StoreError::TimedOut,
        _ => StoreError::internal("one"),
    };
    let ended = |done: WriteAttempt<Vec<Result<Outcome, StoreError>>>| {
        let now = clock::now();
        let (members, told): (Vec<_>, Vec<_>) = [now - LEASE_WAIT_MAX, now]
            .map(|since| {
                let (told, answer) = channel();
                let write = Box::new(create_write(ResourceIndex(0), ""));
                (BatchMember { write, enqueued_at: since, result: told }, answer)
            })
            .into_iter()
            .unzip();
        distribute_results(members, done);
        let word = |mut answer: Receiver<BatchResult>| match answer.try_recv().unwrap() {
            BatchResult::RetryIndividually(_) => "alone".to_owned(),
            BatchResult::Done(Err(error)) => error.to_string(),
            BatchResult::Done(Ok(_)) => "done".to_owned(),
        };
        told.into_iter().map(word).collect::<Vec<_>>().join(", ")
    };
    let words: Vec<_> =
        (0..5).map(|number| ended(WriteAttempt::Done(Err(error(number))))).collect();
    let busy = "too many requests are queued, alone";
    let unknown = "lost; it is not known whether the change was made, \
         lost; it is not known whether the change was made";
    assert_eq!(words, ["away, away", unknown, busy, "alone, alone", "alone, alone"]);
    assert_eq!(
        ended(WriteAttempt::Retry(RollbackCause { error: error(0), violated_key: None })),
        "alone, alone"
    );
}

/// The duration of recent statements decides how many run concurrently.
#[test]
fn insert_batch_slow_statements_run_concurrently() {
    let line = BatchQueue::new();
    let turns = |line: &BatchQueue| {
        let all: Vec<_> = std::iter::from_fn(|| line.try_acquire_permit()).collect();
        all.len()
    };
    assert_eq!(turns(&line), 1);
    // One blocked statement does not count as a slow disk.
    line.record_duration(TEST_TIMEOUT);
    assert_eq!(turns(&line), 1);
    for _ in 0..20 {
        line.record_duration(3 * FAST_STATEMENT_MAX);
    }
    assert_eq!(turns(&line), IN_FLIGHT_MAX as usize);
    // A permit that is dropped without success does not count.
    assert_eq!(turns(&line), IN_FLIGHT_MAX as usize);
    line.record_duration(FAST_STATEMENT_MAX);
    assert_eq!(turns(&line), 1);
}
