//! The admin store on both engines, alone and beside a running server.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};

use super::{Arc, Model, Outcome, ReadPlan, WritePlan};
use crate::intent::preconditions::Preconditions;
use crate::log::{LogStyle, Logger};
use crate::metrics::Metrics;
use crate::plan::{
    Cardinality, ChangeAuthor, Collection, DraftValues, ItemDraft, RequestRefusal, WriteAction,
};
use crate::store::admin::AdminStore;
use crate::store::database::Database;
use crate::store::error::{OpenError, StoreError};
use crate::store::postgres::connect::tests::cluster::TestCluster;
use crate::store::postgres::connection_url::address::LibpqEnvironment;
use crate::store::replay_protection::{NonceClaim, NonceClaimResult};
use crate::store::write::WriteOptions;
use crate::value::{ClearText, Item, Value};
use crate::{model, store};

static LOG: LazyLock<Logger> =
    LazyLock::new(|| Logger::start_to(LogStyle::Json, std::io::sink()).unwrap());

const THINGS: &str = "title = \"T\"\n[resources.thing.fields]\nname = { type = \"text\" }\n";
const MORE: &str = "title = \"T\"\n[resources.thing.fields]\nname = { type = \"text\" }\nage = { type = \"integer\" }\n";
const LESS: &str = "title = \"T\"\n[resources.other.fields]\nname = { type = \"text\" }\n";

fn model(text: &str) -> Arc<Model> {
    Arc::new(model::read("admin.toml", text).unwrap())
}

struct AdminTestFolder(PathBuf);

impl AdminTestFolder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("nouns-admin-{}", getrandom::u64().unwrap()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn database(&self) -> Database {
        Database::Sqlite(self.0.join("nouns.db"))
    }
}

impl Drop for AdminTestFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Retries while the lock is held: other tests of this process spawn programs, and a child inherits the lock
/// of the last server for a moment.
fn retry_while_locked<T>(mut open: impl FnMut() -> Result<T, OpenError>) -> Result<T, OpenError> {
    for _ in 0..2_000 {
        match open() {
            Err(error) if error.to_string().starts_with("another server is using") => {
                std::thread::sleep(Duration::from_millis(5));
            }
            ended => return ended,
        }
    }
    open()
}

fn serve(database: &Database, model: &Arc<Model>) -> Result<store::Store, OpenError> {
    let metrics = Metrics::new(model);
    retry_while_locked(|| store::open(database, model, (&LOG, &metrics), false))
}

fn open(database: &Database, model: &Arc<Model>) -> AdminStore {
    retry_while_locked(|| AdminStore::open(database, model)).unwrap()
}

fn write(model: &Model, action: WriteAction) -> WritePlan {
    let collection = Collection::users(model);
    let by = ChangeAuthor::without_user("cli", "-");
    WritePlan::new(collection, action, by)
}

fn draft(name: &str, password: Value) -> ItemDraft {
    let values = vec![Value::text(name), Value::Json("[]".into()), Value::Boolean(false), password];
    ItemDraft {
        root: "/user".into(),
        values: DraftValues::Complete(values),
        references: Vec::new(),
    }
}

fn create(model: &Model, name: &str) -> WritePlan {
    let drafts = vec![draft(name, Value::text("concealed"))];
    write(model, WriteAction::Create { drafts, count: Cardinality::One })
}

fn user(admin_store: &mut AdminStore, name: &str) -> Option<Item> {
    match admin_store.read(&ReadPlan::User(name.into())).unwrap() {
        Outcome::User(user) => user,
        other => panic!("{other:?}"),
    }
}

fn stamp(admin_store: &mut AdminStore) -> i64 {
    match admin_store.read(&ReadPlan::UsersStamp).unwrap() {
        Outcome::Stamp(stamp) => stamp,
        other => panic!("{other:?}"),
    }
}

/// Creates the database, as a server does at its first start.
fn create_database(database: &Database, model: &Arc<Model>) {
    serve(database, model).unwrap().close();
}

/// Creates nothing where there is no database; reads and writes users where there is one.
fn check_alone(database: &Database) {
    let model = model(THINGS);
    assert!(AdminStore::find(database, &model).unwrap().is_none());
    let missing = AdminStore::open(database, &model).unwrap_err().to_string();
    assert!(missing.ends_with("nouns serve"), "{missing}");
    let missing = AdminStore::open_read_only(database, &model).unwrap_err().to_string();
    assert!(missing.ends_with("nouns serve"), "{missing}");
    assert!(AdminStore::find(database, &model).unwrap().is_none(), "nothing was made");
    create_database(database, &model);
    let mut admin_store = open(database, &model);
    assert_eq!((user(&mut admin_store, "ann"), stamp(&mut admin_store)), (None, 0));
    let created = admin_store.write(&create(&model, "ann")).unwrap();
    let found = user(&mut admin_store, "ann").unwrap();
    assert_eq!(created, Outcome::Created(found.clone()));
    assert_eq!(found.values[3], Value::text("concealed"));
    assert_eq!(user(&mut admin_store, "Ann"), None);
    assert_ne!(stamp(&mut admin_store), 0);
    assert!(matches!(
        admin_store.write(&create(&model, "ann")),
        Err(StoreError::Refused(RequestRefusal::NotUnique(_)))
    ));

    // Optimistic concurrency: only the version that was read is replaced.
    let replace = |version| {
        let draft = draft("ann", Value::text("another"));
        let replaced = write(&model, WriteAction::Replace { id: found.id, draft });
        WritePlan { preconditions: Preconditions::if_version(version), ..replaced }
    };
    assert!(matches!(
        admin_store.write(&replace(2)),
        Err(StoreError::Refused(RequestRefusal::PreconditionFailed(_)))
    ));
    assert_eq!(user(&mut admin_store, "ann").unwrap().version, 1);
    assert!(matches!(admin_store.write(&replace(1)), Ok(Outcome::Updated(_))));

    // No clear-text password is stored, even if a caller forgot to hash it.
    let clear = draft("eve", Value::ClearText(ClearText::new("hunter2hunter2".into())));
    let clear = write(&model, WriteAction::Create { drafts: vec![clear], count: Cardinality::One });
    assert!(matches!(admin_store.write(&clear), Err(StoreError::Broken(_))));
    assert_eq!(user(&mut admin_store, "eve"), None);

    assert_eq!(admin_store.read_system_value("key").unwrap(), None);
    admin_store.write_system_value("key", "one").unwrap();
    admin_store.write_system_value("key", "two").unwrap();
    drop(admin_store);
    let mut admin_store = open(database, &model);
    assert_eq!(admin_store.read_system_value("key").unwrap().as_deref(), Some("two"));
    assert_eq!(user(&mut admin_store, "ann").unwrap().version, 2);
    let changes = AdminStore::open_read_only(database, &model).unwrap().changes_after(0).unwrap();
    let shown: Vec<_> = changes.iter().map(|change| (&*change.resource, &*change.kind)).collect();
    assert_eq!(shown, [("-/user", "created"), ("-/user", "updated")]);
    assert!(changes.iter().all(|change| change.actor == "cli"));
    assert!(!format!("{changes:?}").contains("concealed"));
}

/// The server and the admin store see each other's writes.
fn check_with_a_running_server(database: &Database) {
    let model = model(THINGS);
    let server = serve(database, &model).unwrap();
    let worker = server.worker(1).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = runtime.unwrap();
    let mut admin_store = open(database, &model);
    admin_store.write(&create(&model, "bea")).unwrap();
    let seen = runtime.block_on(worker.read(ReadPlan::User("bea".into()))).unwrap();
    assert!(matches!(seen, Outcome::User(Some(_))), "{seen:?}");
    let until = crate::clock::now() + Duration::from_secs(30);
    runtime
        .block_on(worker.write(create(&model, "cem").into(), WriteOptions::with_deadline(until)))
        .unwrap();
    assert!(user(&mut admin_store, "cem").is_some());
    runtime.block_on(check_nonce_claims(&worker));
    drop((admin_store, worker));
    drop(runtime);
    server.close();
}

async fn check_nonce_claims(worker: &store::StoreWorker) {
    let issued = crate::clock::moment().seconds();
    let claim =
        NonceClaim { epoch: worker.nonce_epoch().await.unwrap(), nonce: 1, count: 1, issued };
    assert_eq!(worker.claim_nonce(&claim).await.unwrap(), NonceClaimResult::First);
    assert_eq!(worker.claim_nonce(&claim).await.unwrap(), NonceClaimResult::Replay);
    let other = NonceClaim { epoch: claim.epoch ^ 1, count: 2, ..claim };
    assert_eq!(worker.claim_nonce(&other).await.unwrap(), NonceClaimResult::Stale);
}

/// The users table is the same for every model.
fn check_with_another_model(database: &Database) {
    let other = model(LESS);
    let mut admin_store = open(database, &other);
    assert!(user(&mut admin_store, "ann").is_some());
    admin_store.write(&create(&other, "dan")).unwrap();
    // The server's own model still fits.
    serve(database, &model(THINGS)).unwrap().close();
}

#[test]
fn admin_store_on_sqlite() {
    let folder = AdminTestFolder::new();
    check_alone(&folder.database());
    check_with_a_running_server(&folder.database());
    check_with_another_model(&folder.database());
}

#[test]
fn admin_store_on_postgres() {
    let cluster = TestCluster::start();
    cluster.restart("fast");
    let address = format!("postgres://nouns@127.0.0.1:{}/postgres", cluster.port);
    let database = Database::parse(&address, &LibpqEnvironment::default()).unwrap();
    check_alone(&database);
    check_with_a_running_server(&database);
    check_with_another_model(&database);
}

/// A command does not report a change that a failover would lose: its commit waits for an absent standby up
/// to the time limit of a request, and is not cancelled.
#[test]
fn admin_store_commit_waiting_for_a_standby_is_outcome_unknown() {
    type Call = fn(&mut AdminStore, &Model) -> Result<(), StoreError>;
    let cluster = TestCluster::start();
    cluster.restart("fast");
    let address = format!("postgres://nouns@127.0.0.1:{}/postgres", cluster.port);
    let database = Database::parse(&address, &LibpqEnvironment::default()).unwrap();
    let model = model(&format!("{THINGS}\n[server.limits]\nrequest_seconds_max = 4\n"));
    let calls: [Call; 3] = [
        |admin_store, model| admin_store.write(&create(model, "ann")).map(drop),
        |admin_store, _| admin_store.write_system_value("key", "one"),
        |admin_store, _| admin_store.write_system_value_if_absent("other", "one").map(drop),
    ];
    create_database(&database, &model);
    let mut opened: Vec<_> = calls.iter().map(|_| open(&database, &model)).collect();
    cluster.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    cluster.restart("fast");
    for (admin_store, call) in opened.iter_mut().zip(calls) {
        let done = call(admin_store, &model);
        assert!(matches!(done, Err(StoreError::OutcomeUnknown(_))), "{done:?}");
    }
}

/// Columns in the database, as SQLite lists them.
fn columns(path: &Path) -> String {
    let connection = rusqlite::Connection::open(path).unwrap();
    let sql = "SELECT group_concat(name) FROM pragma_table_info('things')";
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// New columns of a model are added by the next start of a server, whether one runs now or not.
#[test]
fn admin_store_with_a_larger_model_adds_no_column() {
    let folder = AdminTestFolder::new();
    let path = folder.0.join("nouns.db");
    let (old, new) = (model(THINGS), model(MORE));
    let server = serve(&folder.database(), &old).unwrap();
    let mut admin_store = open(&folder.database(), &new);
    admin_store.write(&create(&new, "ann")).unwrap();
    drop(admin_store);
    assert!(!columns(&path).contains("age"));
    server.close();
    drop(server);
    let mut admin_store = open(&folder.database(), &new);
    assert!(user(&mut admin_store, "ann").is_some());
    drop(admin_store);
    assert!(!columns(&path).contains("age"));
    serve(&folder.database(), &new).unwrap().close();
    assert!(columns(&path).contains("age"));
}

/// The write waits for another process's lock.
#[test]
fn admin_store_waits_for_the_lock_of_another_process() {
    let folder = AdminTestFolder::new();
    let model = model(THINGS);
    create_database(&folder.database(), &model);
    let mut admin_store = open(&folder.database(), &model);
    let other = rusqlite::Connection::open(folder.0.join("nouns.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        other.execute_batch("COMMIT").unwrap();
    });
    admin_store.write(&create(&model, "ann")).unwrap();
    thread.join().unwrap();
}
