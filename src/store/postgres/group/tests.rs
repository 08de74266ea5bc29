//! Creates at a PostgreSQL of the test's own, all begun before any of them is waited for.

use futures_util::future::{join, join_all};
use tokio::runtime::{Builder, LocalOptions};
use tokio_postgres::{Client, NoTls};

use super::*;
use crate::intent::conditions::Conditions;
use crate::plan::{Action, By, Collection, Count, Draft, Values};
use crate::store::postgres::Worker;
use crate::store::postgres::cluster::Cluster;
use crate::value::Value;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Scene {
    cluster: Cluster,
    worker: Worker,
    /// Beside the worker.
    other: Client,
}

impl Scene {
    fn create(&self, name: &str) -> Box<Write> {
        let model = &self.worker.0.context.model;
        let thing = model.resources.iter().find(|resource| &*resource.label == "thing").unwrap();
        let collection = Collection { resource: thing.index, ..Collection::users(model) };
        let values = Values::Complete(vec![Value::text(name)]);
        let draft = Draft { root: "/thing".into(), values, references: Vec::new() };
        let action = Action::Create { drafts: vec![draft], count: Count::One };
        let by = By { actor: "open".into(), request_id: name.into() };
        Box::new(Write { collection, action, conditions: Conditions::default(), by, once: None })
    }

    async fn write(&self, name: &str) -> Result<Outcome, StoreError> {
        self.worker.write(self.create(name), 0, clock::now() + PATIENCE).await
    }

    /// From here on one goes and the others wait for it, however long those before have taken.
    fn forget_the_pace(&self) {
        let line = self.worker.0.line(&self.create(""), 0).unwrap();
        line.least.store(0, Ordering::Relaxed);
    }

    async fn write_all(&self, names: &[String]) -> Vec<Result<Outcome, StoreError>> {
        self.forget_the_pace();
        join_all(names.iter().map(|name| self.write(name))).await
    }

    async fn sql(&self, text: &str) -> i64 {
        self.other.query_one(text, &[]).await.unwrap().get(0)
    }

    /// Each name once, with one entry that tells the same of it, or not at all.
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

fn names(word: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{word}-{number}")).collect()
}

#[test]
fn creates_go_together() {
    let cluster = Cluster::start();
    cluster.restart("fast");
    let store = cluster.open(
        "limits.database_connections_max = 5\nlimits.statement_seconds_max = 30\nlimits.request_seconds_max = 60",
    );
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let address = format!("postgres://nouns@127.0.0.1:{}/postgres", cluster.port);
        let (other, connection) = tokio_postgres::connect(&address, NoTls).await.unwrap();
        tokio::task::spawn_local(connection);
        let scene = Scene { cluster, worker: Worker::new(&store, 1), other };
        all_are_there_once(&scene).await;
        one_that_is_wrong_stops_nobody_else(&scene).await;
        nobody_waits_for_long(&scene).await;
        what_is_lost_is_known_to_nobody(&scene).await;
        what_takes_too_long_is_not_done(&scene).await;
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
    // The first alone, and then as many as may go together.
    let commits = "SELECT count(DISTINCT xmin::text) FROM things WHERE name LIKE 'all-%'";
    assert_eq!(scene.sql(commits).await, 4);
}

/// The database refuses what our own rules let through.
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

/// Those who come while one stands still go on connections of their own, and not together with it.
async fn nobody_waits_for_long(scene: &Scene) {
    scene.other.batch_execute("BEGIN; LOCK TABLE things IN EXCLUSIVE MODE").await.unwrap();
    let names = names("still", 9);
    let (first, rest) = names.split_at(1);
    let locked = async {
        scene.waiting(1).await;
        let more = scene.write_all(rest);
        let seen = async {
            scene.waiting(2).await;
            scene.other.batch_execute("COMMIT").await.unwrap();
        };
        join(more, seen).await.0
    };
    let (first, rest) = join(scene.write_all(first), locked).await;
    assert!(first.iter().chain(&rest).all(Result::is_ok), "{first:?} {rest:?}");
    for name in &names {
        assert!(scene.is_there(name).await);
    }
}

/// A connection that ends may have ended behind the commit: those who were on it are told so.
async fn what_is_lost_is_known_to_nobody(scene: &Scene) {
    scene.other.batch_execute("BEGIN; LOCK TABLE things IN EXCLUSIVE MODE").await.unwrap();
    let names = names("lost", 9);
    let (first, rest) = names.split_at(1);
    let ended = async {
        scene.waiting(1).await;
        let more = scene.write_all(rest);
        let end = async {
            scene.waiting(2).await;
            scene.cluster.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
            );
        };
        join(more, end).await.0
    };
    let (first, rest) = join(scene.write_all(first), ended).await;
    for told in first.iter().chain(&rest) {
        assert!(matches!(told, Err(StoreError::OutcomeUnknown(_))), "{told:?}");
    }
    scene.other.batch_execute("COMMIT").await.unwrap();
    for name in &names {
        assert!(!scene.is_there(name).await);
    }
    assert!(scene.write("behind it").await.is_ok());
}

/// The first one's time ends it for all; the others try again alone, as long as they have time.
async fn what_takes_too_long_is_not_done(scene: &Scene) {
    scene.other.batch_execute("BEGIN; LOCK TABLE things IN EXCLUSIVE MODE").await.unwrap();
    scene.forget_the_pace();
    let stands = scene.write("long-first");
    let others = async {
        scene.waiting(1).await;
        let soon = clock::now() + Duration::from_millis(200);
        let hasty = scene.worker.write(scene.create("long-hasty"), 0, soon);
        let patient = scene.write("long-patient");
        let end = async {
            tokio::time::sleep(Duration::from_millis(400)).await;
            scene.other.batch_execute("COMMIT").await.unwrap();
        };
        join(join(hasty, patient), end).await.0
    };
    let (first, (hasty, patient)) = join(stands, others).await;
    assert!(first.is_ok(), "{first:?}");
    assert!(matches!(hasty, Err(StoreError::TimedOut)), "{hasty:?}");
    assert!(patient.is_ok(), "{patient:?}");
    assert!(!scene.is_there("long-hasty").await);
    assert!(scene.is_there("long-patient").await);
}

fn some_go_alone(scene: &Scene) {
    let inner = &scene.worker.0;
    let plain = scene.create("plain");
    assert!(inner.line(&plain, BYTES_MAX).is_some());
    assert!(inner.line(&plain, BYTES_MAX + 1).is_none());
    let users = Collection::users(&inner.context.model);
    assert!(inner.line(&Write { collection: users, ..*plain }, 0).is_none());
}

/// How long they took decides for how many others wait.
#[test]
fn a_slow_disk_has_several_at_once() {
    let line = Line::new();
    let turns = |line: &Line| {
        let all: Vec<_> = std::iter::from_fn(|| line.turn()).collect();
        all.len()
    };
    assert_eq!(turns(&line), 1);
    // One that stands still says nothing of the disk.
    line.note(PATIENCE);
    assert_eq!(turns(&line), 1);
    for _ in 0..20 {
        line.note(3 * QUICK);
    }
    assert_eq!(turns(&line), UNDER_WAY_MAX as usize);
    line.note(QUICK);
    assert_eq!(turns(&line), 1);
}
