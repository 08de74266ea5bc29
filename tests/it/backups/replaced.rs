//! `nouns restore --force` over a database that exists, in every state that a server leaves it in.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use expect_test::expect;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::{ANN, BEA, customers, files, refuse, run, stopped_store};
use crate::harness::{Backend, Server, Setup};

/// The write-ahead log of a killed server would be applied to the restored database.
#[test]
fn restore_over_the_database_of_a_killed_server_leaves_nothing_of_it() {
    let server = Server::on(Backend::Sqlite);
    server.create("/customers", ANN);
    run(server.folder(), &["backup", "copy.db"]);
    for _ in 0..50 {
        server.create("/customers", BEA);
    }
    let folder = server.kill();
    assert!(!fs::read(folder.path().join("nouns.db-wal")).unwrap().is_empty());
    run(folder.path(), &["restore", "copy.db", "--force"]);
    let names: Vec<_> = files(folder.path()).into_keys().collect();
    assert_eq!(names, ["copy.db", "nouns.db", "nouns.db-lock"]);
    let server = Setup::new(Backend::Sqlite).start_in(folder);
    let list = server.get("/customers").json();
    assert_eq!(list["customers"].as_array().unwrap().len(), 1, "{list}");
    server.create("/customers", BEA);
    assert_eq!(customers(server.folder()), "Ann Bea ");
}

/// Without a log, a damaged database is replaced. A log that cannot be applied is kept: it holds answered
/// writes.
#[test]
fn restore_over_a_damaged_database_keeps_its_log() {
    let folder = stopped_store();
    let path = folder.path();
    run(path, &["backup", "copy.db"]);
    for damaged in ["no database", &"no database, and longer than a header".repeat(100)] {
        fs::write(path.join("nouns.db"), damaged).unwrap();
        fs::write(path.join("nouns.db-wal"), "frames").unwrap();
        let before = files(path);
        let message = refuse(path, &["restore", "copy.db", "--force"]);
        assert!(message.starts_with("nouns: nouns.db cannot be opened ("), "{message}");
        let end = "), and FOLDER/nouns.db-wal holds writes that are not in it; move both away, and restore \
                   again\n";
        assert!(message.ends_with(end), "{message}");
        let mut after = files(path);
        // The index of the log, which SQLite creates.
        after.remove("nouns.db-shm");
        assert!(after == before, "{:?}", after.keys());
    }
    fs::remove_file(path.join("nouns.db-wal")).unwrap();
    run(path, &["restore", "copy.db", "--force"]);
    assert_eq!(customers(path), "Ann ");
}

/// The log of a database that is gone, which `serve` refuses too.
#[test]
fn restore_beside_a_stray_log_is_refused() {
    let folder = stopped_store();
    let path = folder.path();
    run(path, &["backup", "copy.db"]);
    fs::remove_file(path.join("nouns.db")).unwrap();
    for log in ["nouns.db-wal", "nouns.db-journal"] {
        fs::write(path.join(log), "frames").unwrap();
        let before = files(path);
        let message = refuse(path, &["restore", "copy.db"]);
        let expected = format!(
            "nouns: FOLDER/{log} is here, which SQLite would apply to the restored database; move it away, and \
             restore again\n"
        );
        assert_eq!(message, expected);
        assert!(files(path) == before, "{:?}", files(path).keys());
        fs::remove_file(path.join(log)).unwrap();
    }
    run(path, &["restore", "copy.db"]);
    assert_eq!(customers(path), "Ann ");
}

/// `--force` is for a database of ours, whole or damaged.
#[test]
fn restore_over_a_database_of_another_program_is_refused() {
    let folder = stopped_store();
    let path = folder.path();
    run(path, &["backup", "copy.db"]);
    let other = Connection::open(path.join("other.db")).unwrap();
    other
        .execute_batch("CREATE TABLE letters (text); INSERT INTO letters VALUES ('to Ann')")
        .unwrap();
    other.close().unwrap();
    for has_wal in [false, true] {
        if has_wal {
            let other = Connection::open(path.join("other.db")).unwrap();
            other.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
            other.pragma_update(None, "journal_mode", "wal").unwrap();
            other.execute("INSERT INTO letters VALUES ('to Bea')", []).unwrap();
            other.close().unwrap();
            fs::remove_file(path.join("other.db-shm")).unwrap();
        }
        let before = files(path);
        let arguments = ["restore", "copy.db", "--database", "sqlite:other.db", "--force"];
        let message = refuse(path, &arguments);
        expect![[r#"
            nouns: other.db is a database of another program, and is not replaced; name another --database
        "#]]
        .assert_eq(&message);
        let mut after = files(path);
        // The index of the log, which SQLite creates.
        after.remove("other.db-shm");
        assert!(after == before, "{:?}", after.keys());
    }
}

/// A server may have access by the group of the file.
#[test]
fn restore_keeps_the_mode_of_the_replaced_database() {
    let folder = stopped_store();
    let path = folder.path();
    run(path, &["backup", "copy.db"]);
    let mode = || fs::metadata(path.join("nouns.db")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    fs::set_permissions(path.join("nouns.db"), Permissions::from_mode(0o660)).unwrap();
    run(path, &["restore", "copy.db", "--force"]);
    assert_eq!(mode(), 0o660);
}

#[test]
fn restore_of_the_file_that_it_would_overwrite_is_refused() {
    let folder = stopped_store();
    let path = folder.path();
    run(path, &["backup", "nouns.db.part"]);
    let before = files(path);
    let message = refuse(path, &["restore", "nouns.db.part", "--force"]);
    expect![[r#"
        nouns: nouns.db.part would be overwritten by its own copy; name another --database
    "#]]
    .assert_eq(&message);
    assert!(files(path) == before, "{:?}", files(path).keys());
}
