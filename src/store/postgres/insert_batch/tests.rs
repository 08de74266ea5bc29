//! Insert batching against a private PostgreSQL; all creates are started before any of them is awaited.

use futures_util::future::{join, join_all};
use tokio::runtime::{Builder, LocalOptions};
use tokio_postgres::{Client, NoTls};

use super::*;
use crate::model::ResourceIndex;
use crate::permit::AccessScope;
use crate::plan::{Cardinality, ChangeAuthor, Collection, DraftValues, ItemDraft, WriteAction};
use crate::store::postgres::attempt::RollbackCause;
use crate::store::postgres::connect::tests::cluster::TestCluster;
use crate::store::postgres::pool::LeasePurpose;
use crate::store::postgres::worker::PostgresWorker;
use crate::value::Value;

/// Long enough for a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Of five connections one is reserved for reads.
const WRITES_MAX: usize = 4;
/// For a create with little time left.
const SHORT_TIMEOUT: Duration = Duration::from_millis(1_500);

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

    async fn write_all(&self, names: &[String]) -> Vec<Result<Outcome, StoreError>> {
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
                lease.prepare_cached(sql).await.unwrap();
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
            "{name}"
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
    let collection = Collection { resource, ancestors: Vec::new(), scope: AccessScope::default() };
    let values = DraftValues::Complete(vec![Value::text(name)]);
    let draft = ItemDraft { root: "/thing".into(), values, references: Vec::new() };
    let action = WriteAction::Create { drafts: vec![draft], count: Cardinality::One };
    let by = ChangeAuthor { actor: "open".into(), request_id: name.into() };
    WritePlan::new(collection, action, by)
}

fn names(word: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{word}-{number}")).collect()
}

#[test]
fn insert_batch_against_postgres() {
    let cluster = TestCluster::start();
    cluster.restart("fast");
    let store =
        cluster.open("limits.database_connections_max = 5\nlimits.statement_seconds_max = 30");
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let address = format!("postgres://nouns@127.0.0.1:{}/postgres", cluster.port);
        let (other, connection) = tokio_postgres::connect(&address, NoTls).await.unwrap();
        tokio::task::spawn_local(connection);
        let scenario =
            BatchScenario { cluster, worker: PostgresWorker::new(&store, 1), other_session: other };
        batched_creates_are_stored_once(&scenario).await;
        refused_create_does_not_fail_the_batch(&scenario).await;
        blocked_create_does_not_delay_others(&scenario).await;
        lost_connection_is_outcome_unknown(&scenario).await;
        create_at_its_deadline_does_not_cancel_the_batch(&scenario).await;
        wrong_row_count_is_not_retried(&scenario).await;
        large_creates_are_not_batched(&scenario);
        store.close();
    });
}

async fn batched_creates_are_stored_once(scenario: &BatchScenario) {
    let names = names("all", 3 * LIMITS.batch_max);
    let outcomes = scenario.write_all(&names).await;
    for (outcome, name) in outcomes.iter().zip(&names) {
        let Ok(Outcome::Created(item)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(item.values, [Value::text(name)]);
        let stored =
            format!("SELECT count(*) FROM things WHERE id = '{}' AND name = '{name}'", item.id);
        assert_eq!(scenario.sql(&stored).await, 1);
        assert!(scenario.is_stored_once(name).await);
    }
    // Three full batches.
    let commits = "SELECT count(DISTINCT xmin::text) FROM things WHERE name LIKE 'all-%'";
    assert_eq!(scenario.sql(commits).await, 3);
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

/// The statement includes its commit, so it is not cancelled at the deadline of one create: that one gets
/// `OutcomeUnknown`, and the others of the batch wait for their own deadlines.
async fn create_at_its_deadline_does_not_cancel_the_batch(scenario: &BatchScenario) {
    scenario
        .other_session
        .batch_execute("BEGIN; LOCK TABLE things IN EXCLUSIVE MODE")
        .await
        .unwrap();
    let stands = scenario.write("long-first");
    let others = async {
        scenario.wait_for_lock_waiters(1).await;
        let soon = clock::now() + SHORT_TIMEOUT;
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
    assert!(patient.is_ok(), "{patient:?}");
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
    assert!(
        outcomes.iter().all(|outcome| matches!(outcome, Err(StoreError::OutcomeUnknown(_)))),
        "{outcomes:?}"
    );
    assert_eq!(scenario.sql("SELECT count(*) FROM things WHERE name LIKE 'odd-%'").await, 8);
    scenario.other_session.batch_execute("DROP TRIGGER planted ON nouns_changes").await.unwrap();
}

fn large_creates_are_not_batched(scenario: &BatchScenario) {
    let inner = &scenario.worker.batches;
    let plain = scenario.create("plain");
    assert!(inner.queue_for(&plain, BATCHED_WRITE_BYTES_MAX).is_some());
    assert!(inner.queue_for(&plain, BATCHED_WRITE_BYTES_MAX + 1).is_none());
    let users = Collection::users(&inner.state.context.model);
    assert!(inner.queue_for(&WritePlan { collection: users, ..*plain }, 0).is_none());
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
        let queue = CreateQueue::new(LIMITS);
        let mut push = |enqueued_at| {
            let write = Box::new(create_write(ResourceIndex(0), ""));
            let options = WriteOptions::with_deadline(now + TEST_TIMEOUT);
            queue.push(BatchedCreate { write, options, enqueued_at }).unwrap()
        };
        let [(first, sender), (second, _)] = [now - LEASE_WAIT_MAX, now].map(&mut push);
        distribute_results(sender.unwrap().take().0, done);
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let told = [first, second].map(|pending| runtime.block_on(pending.wait(now)));
        let word = |result: Result<BatchResult, AnswerError>| match result.unwrap() {
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
