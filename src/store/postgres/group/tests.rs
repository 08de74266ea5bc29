//! Insert batching against a private PostgreSQL; all creates are started before any of them is awaited.

use futures_util::future::{join, join_all};
use tokio::runtime::{Builder, LocalOptions};
use tokio_postgres::{Client, NoTls};

use super::*;
use crate::permit::Reach;
use crate::plan::{Action, By, Collection, Count, Draft, Values};
use crate::store::WriteOptions;
use crate::store::postgres::cluster::Cluster;
use crate::store::postgres::pool::Purpose;
use crate::store::postgres::{Undone, Worker};
use crate::value::Value;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Of five connections one is reserved for reads.
const WRITES_MAX: usize = 4;
/// `request_seconds_max` of this test's model; most creates here get a later deadline.
const REQUEST_MAX: Duration = Duration::from_secs(2);

struct Scene {
    cluster: Cluster,
    worker: Worker,
    /// A connection beside the worker's.
    other: Client,
}

impl Scene {
    fn create(&self, name: &str) -> Box<Write> {
        let model = &self.worker.0.context.model;
        let thing = model.resources.iter().find(|resource| &*resource.label == "thing").unwrap();
        Box::new(write_of(thing.index, name))
    }

    async fn write(&self, name: &str) -> Result<Outcome, StoreError> {
        self.worker.write(self.create(name), WriteOptions::until(clock::now() + PATIENCE)).await
    }

    /// Resets the statistics: one create is sent at once and the others wait for it, however long earlier
    /// statements took.
    fn forget_the_pace(&self) {
        let line = self.worker.0.line(&self.create(""), 0, clock::now() + PATIENCE).unwrap();
        line.least.store(0, Ordering::Relaxed);
        line.last.store(0, Ordering::Relaxed);
    }

    async fn write_all(&self, names: &[String]) -> Vec<Result<Outcome, StoreError>> {
        self.forget_the_pace();
        join_all(names.iter().map(|name| self.write(name))).await
    }

    /// Opens every connection that writes may use and prepares the statements on it; a connection without
    /// them would wait for the table lock while preparing, before it has sent the insert.
    async fn warm(&self) {
        let inner = &self.worker.0;
        let resource = self.create("").collection.resource;
        let table = inner.context.sql.table(resource);
        let lease = || inner.pool.lease(Purpose::Write, clock::now() + PATIENCE);
        for lease in join_all((0..WRITES_MAX).map(|_| lease())).await {
            let lease = lease.unwrap();
            let connection = lease.connection().unwrap();
            for sql in [&table.insert].into_iter().chain(&table.insert_all) {
                connection.statement(sql).await.unwrap();
            }
            lease.keep();
        }
    }

    /// Locks the table so that the first create blocks, and then the rest as one batch; then runs `end`.
    async fn write_behind_a_lock(
        &self,
        names: &[String],
        end: impl AsyncFnOnce(),
    ) -> Vec<Result<Outcome, StoreError>> {
        self.other.batch_execute("BEGIN; LOCK TABLE things IN EXCLUSIVE MODE").await.unwrap();
        let (first, rest) = names.split_at(1);
        let behind_it = async {
            self.waiting(1).await;
            let seen = async {
                self.waiting(2).await;
                end().await;
            };
            join(self.write_all(rest), seen).await.0
        };
        let (first, rest) = join(self.write_all(first), behind_it).await;
        first.into_iter().chain(rest).collect()
    }

    async fn unlock(&self) {
        self.other.batch_execute("COMMIT").await.unwrap();
    }

    async fn sql(&self, text: &str) -> i64 {
        self.other.query_one(text, &[]).await.unwrap().get(0)
    }

    /// Whether the item is stored. It is there once, with exactly one matching change-log entry, or not at
    /// all.
    async fn is_there(&self, name: &str) -> bool {
        let things = format!("SELECT count(*) FROM things WHERE name = '{name}'");
        let entries = format!(
            "SELECT count(*) FROM nouns_changes JOIN things ON things.id::text = nouns_changes.id \
             WHERE request_id = '{name}' AND kind = 'created' AND resource = 'thing' AND actor = 'open' \
             AND subject = '/things/' || things.id AND time = things.created_at \
             AND parent_id IS NULL AND changed IS NULL AND before IS NULL \
             AND after::json ->> 'name' = things.name AND after::json ->> 'id' = things.id::text"
        );
        let all = format!("SELECT count(*) FROM nouns_changes WHERE request_id = '{name}'");
        let (things, entries, all) =
            (self.sql(&things).await, self.sql(&entries).await, self.sql(&all).await);
        assert!(
            (things, entries, all) == (1, 1, 1) || (things, entries, all) == (0, 0, 0),
            "{name}"
        );
        things == 1
    }

    async fn waiting(&self, count: i64) {
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

fn write_of(resource: ResourceIndex, name: &str) -> Write {
    let collection = Collection { resource, ancestors: Vec::new(), reach: Reach::default() };
    let values = Values::Complete(vec![Value::text(name)]);
    let draft = Draft { root: "/thing".into(), values, references: Vec::new() };
    let action = Action::Create { drafts: vec![draft], count: Count::One };
    let by = By { actor: "open".into(), request_id: name.into() };
    Write::new(collection, action, by)
}

fn names(word: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{word}-{number}")).collect()
}

#[test]
fn insert_batch_against_postgres() {
    let cluster = Cluster::start();
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
        let scene = Scene { cluster, worker: Worker::new(&store, 1), other };
        all_are_there_once(&scene).await;
        the_next_waits_for_those_who_come(&scene).await;
        one_that_is_wrong_stops_nobody_else(&scene).await;
        nobody_waits_for_long(&scene).await;
        what_is_lost_is_known_to_nobody(&scene).await;
        batch_at_its_deadline_is_not_cancelled(&scene).await;
        what_is_not_understood_is_done_once(&scene).await;
        nobody_hurries_the_others(&scene).await;
        some_go_alone(&scene);
        store.close();
    });
}

async fn all_are_there_once(scene: &Scene) {
    let names = names("all", 3 * MEMBERS_MAX);
    let told = scene.write_all(&names).await;
    for (told, name) in told.iter().zip(&names) {
        let Ok(Outcome::Created(item)) = told else { panic!("{told:?}") };
        assert_eq!(item.values, [Value::text(name)]);
        let stored =
            format!("SELECT count(*) FROM things WHERE id = '{}' AND name = '{name}'", item.id);
        assert_eq!(scene.sql(&stored).await, 1);
        assert!(scene.is_there(name).await);
    }
    // The first create alone, and then three full batches.
    let commits = "SELECT count(DISTINCT xmin::text) FROM things WHERE name LIKE 'all-%'";
    assert_eq!(scene.sql(commits).await, 4);
}

/// After a batch the next create waits for others to join; after a single create it does not.
async fn the_next_waits_for_those_who_come(scene: &Scene) {
    let line = scene.worker.0.line(&scene.create(""), 0, clock::now() + PATIENCE).unwrap();
    scene.forget_the_pace();
    line.turn().unwrap().done(3);
    assert!(line.turn().is_none());
    assert!(scene.write("one").await.is_ok());
    assert!(line.turn().is_some());
}

/// The database refuses a create that the model's rules accept.
async fn one_that_is_wrong_stops_nobody_else(scene: &Scene) {
    scene
        .other
        .batch_execute("ALTER TABLE things ADD CONSTRAINT planted CHECK (name <> 'wrong-3')")
        .await
        .unwrap();
    let names = names("wrong", 8);
    let told = scene.write_all(&names).await;
    for (told, name) in told.iter().zip(&names) {
        assert_eq!(told.is_ok(), name != "wrong-3", "{told:?}");
        assert_eq!(scene.is_there(name).await, name != "wrong-3");
    }
    scene.other.batch_execute("ALTER TABLE things DROP CONSTRAINT planted").await.unwrap();
}

/// Creates that arrive while one is blocked use other connections and do not wait for it.
async fn nobody_waits_for_long(scene: &Scene) {
    let names = names("still", 9);
    let told = scene.write_behind_a_lock(&names, async || scene.unlock().await).await;
    assert!(told.iter().all(Result::is_ok), "{told:?}");
    for name in &names {
        assert!(scene.is_there(name).await);
    }
}

/// A connection that ends may have ended after the commit: every create in the batch gets `OutcomeUnknown`.
async fn what_is_lost_is_known_to_nobody(scene: &Scene) {
    scene.warm().await;
    let names = names("lost", 9);
    let cut =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let cut = async || drop(scene.cluster.sql(cut));
    for told in scene.write_behind_a_lock(&names, cut).await {
        assert!(matches!(told, Err(StoreError::OutcomeUnknown(_))), "{told:?}");
    }
    scene.unlock().await;
    for name in &names {
        assert!(!scene.is_there(name).await);
    }
    assert!(scene.write("behind it").await.is_ok());
}

/// The statement includes its commit, so it is not cancelled at the deadline of the first create: the
/// creates of the batch get `OutcomeUnknown`.
async fn batch_at_its_deadline_is_not_cancelled(scene: &Scene) {
    scene.other.batch_execute("BEGIN; LOCK TABLE things IN EXCLUSIVE MODE").await.unwrap();
    scene.forget_the_pace();
    let stands = scene.write("long-first");
    let others = async {
        scene.waiting(1).await;
        let soon = clock::now() + REQUEST_MAX * 3 / 4;
        let hasty = async {
            let hasty =
                scene.worker.write(scene.create("long-hasty"), WriteOptions::until(soon)).await;
            scene.unlock().await;
            hasty
        };
        join(hasty, scene.write("long-patient")).await
    };
    let (first, (hasty, patient)) = join(stands, others).await;
    assert!(first.is_ok(), "{first:?}");
    assert!(matches!(hasty, Err(StoreError::OutcomeUnknown(_))), "{hasty:?}");
    assert!(matches!(patient, Ok(_) | Err(StoreError::OutcomeUnknown(_))), "{patient:?}");
    // The statement was not cancelled: the database executes it once it has the lock.
    for name in ["long-hasty", "long-patient"] {
        for _ in 0..2_000 {
            if scene.is_there(name).await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(scene.is_there(name).await, "{name}");
    }
}

/// A statement that wrote another number of rows than it was given is not retried.
async fn what_is_not_understood_is_done_once(scene: &Scene) {
    let plant = "CREATE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RETURN CASE WHEN new.request_id = ''odd-3'' THEN NULL ELSE new END; END'; \
         CREATE TRIGGER planted BEFORE INSERT ON nouns_changes FOR EACH ROW EXECUTE FUNCTION planted()";
    scene.other.batch_execute(plant).await.unwrap();
    let told = scene.write_all(&names("odd", 8)).await;
    let (first, rest) = told.split_first().unwrap();
    assert!(first.is_ok(), "{first:?}");
    assert!(rest.iter().all(|told| matches!(told, Err(StoreError::OutcomeUnknown(_)))), "{rest:?}");
    assert_eq!(scene.sql("SELECT count(*) FROM things WHERE name LIKE 'odd-%'").await, 8);
    scene.other.batch_execute("DROP TRIGGER planted ON nouns_changes").await.unwrap();
}

fn some_go_alone(scene: &Scene) {
    let inner = &scene.worker.0;
    let (plain, until) = (scene.create("plain"), clock::now() + PATIENCE);
    assert!(inner.line(&plain, BYTES_MAX, until).is_some());
    assert!(inner.line(&plain, BYTES_MAX + 1, until).is_none());
    assert!(inner.line(&plain, 0, clock::now() + REQUEST_MAX / 3).is_none());
    let users = Collection::users(&inner.context.model);
    assert!(inner.line(&Write { collection: users, ..*plain }, 0, until).is_none());
}

/// A create with an earlier deadline than the batch's does not join it.
async fn nobody_hurries_the_others(scene: &Scene) {
    scene.other.batch_execute("BEGIN; LOCK TABLE things IN EXCLUSIVE MODE").await.unwrap();
    scene.forget_the_pace();
    let line = scene.worker.0.line(&scene.create(""), 0, clock::now() + PATIENCE).unwrap();
    let turn = line.turn().unwrap();
    let leads = scene.write("hurry-leads");
    let joins = async {
        tokio::task::yield_now().await;
        let soon = clock::now() + REQUEST_MAX * 3 / 4;
        let told = scene.worker.0.go_together(line, scene.create("hurry"), soon).await;
        assert!(matches!(told, Told::Alone(_)), "{told:?}");
        drop(turn);
        scene.unlock().await;
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
        _ => StoreError::broken("one"),
    };
    let ended = |done: Attempt<Vec<Result<Outcome, StoreError>>>| {
        let now = clock::now();
        let (members, told): (Vec<_>, Vec<_>) = [now - LEASE_MAX, now]
            .map(|since| {
                let (told, answer) = channel();
                let write = Box::new(write_of(ResourceIndex(0), ""));
                (Member { write, since, told }, answer)
            })
            .into_iter()
            .unzip();
        tell(members, done);
        let word = |mut answer: Receiver<Told>| match answer.try_recv().unwrap() {
            Told::Alone(_) => "alone".to_owned(),
            Told::Done(Err(error)) => error.to_string(),
            Told::Done(Ok(_)) => "done".to_owned(),
        };
        told.into_iter().map(word).collect::<Vec<_>>().join(", ")
    };
    let words: Vec<_> = (0..5).map(|number| ended(Attempt::Done(Err(error(number))))).collect();
    let busy = "too many are waiting, alone";
    let unknown = "lost; it is not known whether the change was made, \
         lost; it is not known whether the change was made";
    assert_eq!(words, ["away, away", unknown, busy, "alone, alone", "alone, alone"]);
    assert_eq!(ended(Attempt::Again(Undone { error: error(0), violated: None })), "alone, alone");
}

/// The duration of recent statements decides how many are in flight at once.
#[test]
fn insert_batch_slow_statements_run_concurrently() {
    let line = Line::new();
    let turns = |line: &Line| {
        let all: Vec<_> = std::iter::from_fn(|| line.turn()).collect();
        all.len()
    };
    assert_eq!(turns(&line), 1);
    // One blocked statement does not count as a slow disk.
    line.note(PATIENCE);
    assert_eq!(turns(&line), 1);
    for _ in 0..20 {
        line.note(3 * QUICK);
    }
    assert_eq!(turns(&line), UNDER_WAY_MAX as usize);
    // A permit that is dropped without success does not count.
    assert_eq!(turns(&line), UNDER_WAY_MAX as usize);
    line.note(QUICK);
    assert_eq!(turns(&line), 1);
}
