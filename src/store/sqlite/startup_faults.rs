//! Fault injection at startup: a start that fails at any step leaves nothing half made, and the next start
//! works.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use expect_test::{Expect, expect};
use rusqlite::Connection;

use crate::log::{LogStyle, Logger};
use crate::metrics::Metrics;
use crate::model;
use crate::store::fault_injection::{self, FaultKind};

const OLD: &str = r#"
title = "Rooms"

[resources.room.fields]
name = { type = "text", unique = true }
"#;

/// One more field, resource and index, and one index less.
const NEW: &str = r#"
title = "Rooms"

[resources.room.fields]
name  = { type = "text" }
floor = { type = "integer", default = 1, filter = true }

[resources.shelf]
plural = "shelves"
parent = "room"

[resources.shelf.fields]
keeper = { type = "ref", to = "room" }
"#;

static LOG: LazyLock<Logger> =
    LazyLock::new(|| Logger::start_to(LogStyle::Json, std::io::sink()).unwrap());

/// Removed when dropped.
struct StartTestFolder(PathBuf);

impl StartTestFolder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nouns-starts-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn database(&self) -> PathBuf {
        self.0.join("nouns.db")
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for StartTestFolder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Starts and stops a store; a panic is reported like any other failure.
/// Retries while the lock is held: other tests of this process spawn programs, and a child inherits the lock
/// of the last start for a moment.
fn start(path: &Path, text: &str) -> Result<(), String> {
    for _ in 0..2_000 {
        match start_once(path, text) {
            Err(message) if message.starts_with("another server is using") => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            ended => return ended,
        }
    }
    start_once(path, text)
}

fn start_once(path: &Path, text: &str) -> Result<(), String> {
    let model = Arc::new(model::read("rooms.toml", text).unwrap());
    let opened = catch_unwind(AssertUnwindSafe(|| {
        super::open::open(path, &model, &LOG, &Metrics::new(&model))
    }));
    match opened {
        Ok(Ok(shared)) => {
            shared.close();
            Ok(())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(crate::fault::panic_message(&*panic)),
    }
}

/// All that a start can change: the tables, and the stored model.
fn schema_text(path: &Path) -> String {
    let connection = Connection::open(path).unwrap();
    let sql = "SELECT name || ' ' || coalesce(sql, '') FROM sqlite_master ORDER BY name";
    let mut statement = connection.prepare(sql).unwrap();
    let tables: Vec<String> =
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let is_empty = tables.is_empty();
    let model: String = match is_empty {
        true => String::new(),
        false => connection
            .query_row("SELECT value FROM nouns_system WHERE name = 'model'", [], |row| row.get(0))
            .unwrap(),
    };
    let pragma = |name: &str| -> i64 {
        connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)).unwrap()
    };
    format!("{tables:#?}\n{model}\n{} {}", pragma("application_id"), pragma("user_version"))
}

/// Fails the start with `text` at each of its steps in every way. `before` is the model that the database
/// holds; without one there is no database.
fn check(before: Option<&str>, text: &str, expected: &Expect) {
    let mut steps = Vec::new();
    for way in FaultKind::ALL {
        let folder = StartTestFolder::new();
        let path = folder.database();
        if let Some(before) = before {
            start(&path, before).unwrap();
        }
        let (files, tables) = (folder.files(), before.map(|_| schema_text(&path)));
        for at in 1.. {
            fault_injection::inject(Some((at, way)));
            let started = start(&path, text);
            steps = fault_injection::steps_since_inject();
            fault_injection::inject(None);
            if steps.len() < at {
                assert_eq!(started, Ok(()), "{way:?}, no fault met");
                break;
            }
            assert!(started.is_err(), "{way:?} at {at}, {}", steps[at - 1]);
            match &tables {
                Some(tables) => assert_eq!(&schema_text(&path), tables, "{way:?} at {at}"),
                // After a panic nothing is cleaned up; the next start finds an empty file.
                None if way == FaultKind::Panic => {}
                None => assert_eq!(folder.files(), files, "{way:?} at {at}"),
            }
        }
        let fresh = StartTestFolder::new();
        start(&fresh.database(), text).unwrap();
        let fresh = model_of(&schema_text(&fresh.database()));
        assert_eq!(
            model_of(&schema_text(&path)),
            fresh,
            "{way:?}: in the end it is as if nothing had failed"
        );
    }
    expected.assert_eq(&(steps.join("\n") + "\n"));
}

/// Without the tables: their text depends on how they were made.
fn model_of(shown: &str) -> String {
    shown.rsplit_once("\n]\n").unwrap().1.to_owned()
}

#[test]
fn start_fault_with_a_new_database() {
    check(
        None,
        NEW,
        &expect![[r#"
            BEGIN IMMEDIATE
            CREATE TABLE
            CREATE TABLE
            CREATE TABLE
            CREATE TABLE
            SELECT
            CREATE TABLE
            CREATE UNIQUE
            INSERT nouns_system
            CREATE TRIGGER
            CREATE TRIGGER
            CREATE TRIGGER
            SELECT
            CREATE TABLE
            CREATE TABLE
            CREATE INDEX
            CREATE INDEX
            CREATE TABLE
            CREATE INDEX
            CREATE INDEX
            CREATE INDEX
            CREATE INDEX
            CREATE UNIQUE
            CREATE INDEX
            CREATE INDEX
            CREATE TABLE
            INSERT nouns_system
            SELECT
            CREATE TABLE
            CREATE INDEX
            INSERT nouns_system
            CREATE INDEX
            CREATE INDEX
            CREATE INDEX
            CREATE INDEX
            CREATE INDEX
            INSERT nouns_system
            INSERT nouns_system
            INSERT nouns_system
            INSERT nouns_system
            INSERT nouns_system
            COMMIT
        "#]],
    );
}

#[test]
fn start_fault_with_the_same_model() {
    check(
        Some(NEW),
        NEW,
        &expect![[r#"
            BEGIN IMMEDIATE
            SELECT
            SELECT
            SELECT
            SELECT
            SELECT
            SELECT
            SELECT
            SELECT
            INSERT nouns_system
            COMMIT
        "#]],
    );
}

#[test]
fn start_fault_with_a_larger_model() {
    check(
        Some(OLD),
        NEW,
        &expect![[r#"
            BEGIN IMMEDIATE
            SELECT
            SELECT
            SELECT
            SELECT
            SELECT
            CREATE TABLE
            ALTER TABLE
            SELECT
            DROP INDEX
            CREATE INDEX
            CREATE INDEX
            CREATE INDEX
            SELECT
            SELECT
            INSERT nouns_system
            INSERT nouns_system
            COMMIT
        "#]],
    );
}

/// A command may commit during a start that fails: SQLite then creates the WAL, which has the only copy.
#[test]
fn failed_start_keeps_the_wal_that_another_process_created_meanwhile() {
    let folder = StartTestFolder::new();
    let path = folder.database();
    start(&path, OLD).unwrap();
    assert!(!folder.files().contains(&"nouns.db-wal".to_owned()), "{:?}", folder.files());
    let files = super::database_files::DatabaseFiles::find(&path).unwrap();
    let mut command = None;
    // As in `start`, the lock is waited for.
    for _ in 0..2_000 {
        let opened = super::open::with_server_lock(&files, |_lock| {
            let connection = Connection::open(&path).unwrap();
            connection.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
            let insert = "INSERT INTO nouns_system (name, value) VALUES ('command', 'committed')";
            connection.execute(insert, []).unwrap();
            command = Some(connection);
            Err::<(), _>(crate::store::OpenError::new("planted".to_owned()))
        });
        assert!(opened.is_err());
        if command.is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let names = folder.files();
    assert!(names.contains(&"nouns.db-wal".to_owned()), "{names:?}");
    // The process ends without a checkpoint.
    let copy = StartTestFolder::new();
    for name in names {
        fs::copy(folder.0.join(&name), copy.0.join(&name)).unwrap();
    }
    drop(command);
    let read = "SELECT value FROM nouns_system WHERE name = 'command'";
    let copied = Connection::open(copy.database()).unwrap();
    let value: String = copied.query_row(read, [], |row| row.get(0)).unwrap();
    assert_eq!(value, "committed");
}

/// Each way of failing says what to do about it.
#[test]
fn start_fault_messages() {
    let folder = StartTestFolder::new();
    let mut text = String::new();
    for way in FaultKind::ALL {
        fault_injection::inject(Some((4, way)));
        let told = start(&folder.database(), NEW).unwrap_err();
        fault_injection::inject(None);
        text.push_str(&told.replace(&folder.0.display().to_string(), "…"));
        text.push('\n');
    }
    expect![[r#"
        …/nouns.db: cannot migrate its tables to the model (planted); restore it from a backup, or name another --database
        …/nouns.db: cannot migrate its tables to the model (another process has locked it); wait until it is done, then start again
        …/nouns.db: cannot migrate its tables to the model (another process has locked it); wait until it is done, then start again
        …/nouns.db: cannot migrate its tables to the model (another process has locked it); wait until it is done, then start again
        …/nouns.db: cannot migrate its tables to the model (planted); check that the disk has space and can be written
        …/nouns.db: cannot migrate its tables to the model (planted); check that the disk has space and can be written
        …/nouns.db: cannot migrate its tables to the model (planted); check that the disk has space and can be written
        …/nouns.db: cannot migrate its tables to the model (planted); restore it from a backup, or name another --database
        panic: planted
    "#]].assert_eq(&text);
}
