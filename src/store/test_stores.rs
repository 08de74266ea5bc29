//! Stores for tests: an empty one on each engine, with the tables of a model.
//!
//! PostgreSQL is the server that the tests share or, if there is none, one that the test starts.

use std::io::{BufRead, BufReader, Write as _, sink};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::log::{LogStyle, Logger};
use crate::metrics::Metrics;
use crate::model::Model;
use crate::store::database::Database;
use crate::store::postgres::connection_url::address::LibpqEnvironment;
use crate::store::{StoreWorker, open};

const WITH_POSTGRES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/with-postgres");

/// Runs `work` on a store of each engine; `name` must be unique to the test.
pub fn on_each_engine(name: &str, model: &Arc<Model>, work: &impl AsyncFn(&StoreWorker)) {
    let folder = StoreTestFolder::new(name);
    run_on(&Database::Sqlite(folder.0.join("test.db")), model, work);
    let server = TestPostgres::start();
    let database = format!("{name}_{}", std::process::id());
    server.run_sql(&format!("CREATE DATABASE {database}"));
    let address = format!("{}/{database}", server.address);
    run_on(&Database::parse(&address, &LibpqEnvironment::default()).unwrap(), model, work);
    server.run_sql(&format!("DROP DATABASE {database} WITH (FORCE)"));
}

/// The output of psql for a script in an empty database; `name` must be unique to the test.
pub fn psql(name: &str, script: &str) -> String {
    let server = TestPostgres::start();
    let database = format!("{name}_{}", std::process::id());
    server.run_sql(&format!("CREATE DATABASE {database}"));
    let mut command = Command::new("psql");
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-f", "-", "-d"]);
    command.arg(format!("{}/{database}", server.address));
    let mut psql = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // No deadlock: psql reads the whole script before its output, which is short, fills the pipe.
    psql.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = psql.wait_with_output().unwrap();
    server.run_sql(&format!("DROP DATABASE {database} WITH (FORCE)"));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn run_on(database: &Database, model: &Arc<Model>, work: &impl AsyncFn(&StoreWorker)) {
    let log = Logger::start_to(LogStyle::Json, sink()).unwrap();
    let metrics = Metrics::new(model);
    let store = open(database, model, (&log, &metrics), false).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let worker = store.worker(1).unwrap();
        work(&worker).await;
    });
    store.close();
}

struct StoreTestFolder(PathBuf);

impl StoreTestFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nouns-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for StoreTestFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

struct TestPostgres {
    address: String,
    /// Keeps the server running until its standard input is closed.
    process: Option<Child>,
}

impl TestPostgres {
    #[expect(clippy::disallowed_methods, reason = "the tests say by it where PostgreSQL is")]
    fn start() -> Self {
        if let Ok(address) = std::env::var("NOUNS_TEST_POSTGRES") {
            return Self { address, process: None };
        }
        let mut command = Command::new(WITH_POSTGRES);
        command.args(["sh", "-c", "echo \"$NOUNS_TEST_POSTGRES\"; exec cat"]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self { address: line.trim_end().to_owned(), process: Some(process) }
    }

    fn run_sql(&self, text: &str) {
        let mut command = Command::new("psql");
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d"]);
        let status = command.arg(format!("{}/postgres", self.address)).args(["-c", text]).status();
        assert!(status.unwrap().success(), "{text}");
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            drop(process.stdin.take());
            drop(process.wait());
        }
    }
}
