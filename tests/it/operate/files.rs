//! The database by another name, and the files beside it without it.

use std::fs;
use std::os::unix::fs::symlink;

use expect_test::expect;

use super::database::in_namespace;
use super::{ANN, SERVE, check_refusal, refused};
use crate::harness::{Backend, Folder, Setup, run};

/// A folder with `link.db`, which leads to `there/nouns.db`, and `chain.db`, which leads to `link.db`.
fn linked_folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.path().join("there")).unwrap();
    symlink("there/nouns.db", folder.path().join("link.db")).unwrap();
    symlink("link.db", folder.path().join("chain.db")).unwrap();
    folder
}

/// SQLite keeps the log file beside the file that a link leads to.
#[test]
fn a_database_behind_a_link_keeps_what_was_answered() {
    let linked = || Setup::new(Backend::Sqlite).database("link.db");
    let server = linked().start_in(linked_folder());
    let paths: Vec<_> = (0..20).map(|_| server.create("/customers", ANN)).collect();
    let folder = server.kill();
    let there = |name: &str| folder.path().join("there").join(name).exists();
    assert!(there("nouns.db") && there("nouns.db-wal"));
    let server = linked().start_in(folder);
    for path in &paths {
        assert_eq!(server.get(path).status, 200);
    }
    // The same file by its own name.
    let server = Setup::new(Backend::Sqlite).database("there/nouns.db").start_in(server.stop());
    for path in &paths {
        assert_eq!(server.get(path).status, 200);
    }
}

/// The lock was beside the link, so that two names of one file were two locks.
#[test]
fn a_second_server_by_another_name_of_the_file() {
    let names = [
        ("link.db", "sqlite:there/nouns.db"),
        ("there/nouns.db", "sqlite:link.db"),
        ("there/nouns.db", "sqlite:chain.db"),
        // Here the chain leads nowhere until the first server makes the file.
        ("chain.db", "sqlite:there/nouns.db"),
    ];
    for (first, second) in names {
        let server = Setup::new(Backend::Sqlite).database(first).start_in(linked_folder());
        server.create("/customers", ANN);
        server.pause();
        let args = ["serve", "--open", "--listen", "127.0.0.1:0", "--database", second];
        let ended = run(server.folder(), &args);
        let shown = second.trim_start_matches("sqlite:");
        let message = format!("nouns: another server is using {shown}; stop it first");
        assert!(ended.code == Some(2) && ended.stderr.starts_with(&message), "{ended:?}");
        server.resume();
        assert_eq!(server.get("/customers").status, 200);
    }
}

/// SQLite would have thrown it away, and the writes it holds.
#[test]
fn a_log_file_without_its_database() {
    let server = Setup::new(Backend::Sqlite).start();
    server.create("/customers", ANN);
    let folder = server.kill();
    let file = |name: &str| folder.path().join(name);
    assert!(fs::metadata(file("nouns.db-wal")).unwrap().len() > 0);
    fs::rename(file("nouns.db"), file("kept.db")).unwrap();
    let message = expect![[r#"
        nouns: nouns.db-wal is here, but the database it belongs to is not; put nouns.db back, or move nouns.db-wal away
    "#]];
    refused(folder.path(), SERVE, &message);
    // An empty file in its place is no better.
    fs::write(file("nouns.db"), "").unwrap();
    refused(folder.path(), SERVE, &message);
    // Put back, it has everything.
    fs::rename(file("kept.db"), file("nouns.db")).unwrap();
    let server = Setup::new(Backend::Sqlite).start_in(folder);
    assert_eq!(server.get("/customers").json()["customers"].as_array().unwrap().len(), 1);
}

/// What was not there before a failed start is removed; the link was.
#[test]
fn a_link_that_leads_nowhere_was_removed_by_a_failed_start() {
    let folder = Folder::new();
    let script = r#"
        mount -t tmpfs -o size=256k none "$1"
        cd "$1"
        ln -s real.db nouns.db
        cat /dev/zero > filler 2>/dev/null || true
        code=0
        "$2" serve --open --listen 127.0.0.1:0 --database sqlite:nouns.db || code=$?
        test "$(ls -A | tr '\n' ' ')" = "filler nouns.db " || { echo "files: $(ls -lA)"; exit 99; }
        test "$(readlink nouns.db)" = real.db || { echo "the link changed"; exit 98; }
        exit $code
    "#;
    let ended = in_namespace(folder.path(), script);
    check_refusal(
        &ended,
        folder.path(),
        &expect![[r#"
            nouns: the disk that holds nouns.db is full; free some space and start again
        "#]],
    );
}
