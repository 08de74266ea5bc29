//! `nouns restore --force` over a database that exists, in every state that a server leaves it in.

use std::fs;

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
