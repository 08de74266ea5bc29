//! Backups and restores that are refused: one message, and nothing is changed.

use std::fs::{self, File};
use std::path::Path;

use expect_test::expect;
use rusqlite::Connection;

use super::{ANN, customers, damage, files, refuse, run, stopped_store};
use crate::harness::{Backend, Folder, Server, run_nouns, run_sql, wait_until};

/// Each run must leave all files as they were.
#[test]
fn backup_over_an_existing_file_is_refused() {
    let folder = stopped_store();
    let path = folder.path();
    run(path, &["backup", "copy.db"]);
    fs::write(path.join("stray.db-wal"), "frames").unwrap();
    fs::create_dir(path.join("folder")).unwrap();
    let mut messages = String::new();
    let before = files(path);
    for args in [
        &["copy.db"][..],
        &["nouns.db"],
        &["nouns.db", "--force"],
        &["./nouns.db-wal", "--force"],
        &["nouns.key", "--force"],
        &["nouns.toml", "--force"],
        &["../missing/copy.db"],
        &["folder", "--force"],
        &["stray.db"],
        &["new.db", "--database", "sqlite:none.db"],
    ] {
        messages += &refuse(path, &[&["backup"], args].concat());
        assert!(files(path) == before, "{args:?}: {:?}", files(path).keys());
    }
    expect![[r#"
        nouns: copy.db exists already, and is not overwritten; name another file, or say --force
        nouns: nouns.db is a file of the database, and is not overwritten; name another file
        nouns: nouns.db is a file of the database, and is not overwritten; name another file
        nouns: ./nouns.db-wal is a file of the database, and is not overwritten; name another file
        nouns: nouns.key is the key, and is not overwritten; name another file
        nouns: nouns.toml is the model, and is not overwritten; name another file
        nouns: the folder ../missing does not exist; create it, or name another file
        nouns: folder is a folder; name a file in it
        nouns: stray.db-wal is here, so stray.db is open, or was not closed, and its newest writes are there; name another file
        nouns: there is no database none.db; name another with --database sqlite:PATH, or create it with: nouns serve
    "#]]
    .assert_eq(&messages);
    run(path, &["backup", "copy.db", "--force"]);
}

#[test]
fn backup_beside_another_one_to_the_same_file_is_refused() {
    let folder = stopped_store();
    let part = folder.path().join("copy.db.part");
    let other = File::create(&part).unwrap();
    other.lock().unwrap();
    let before = files(folder.path());
    expect![[r#"
        nouns: another process is writing copy.db.part; wait until it is done, or name another file
    "#]]
    .assert_eq(&refuse(folder.path(), &["backup", "copy.db"]));
    assert!(files(folder.path()) == before);
    // A process that another test has just forked may have the file open for a moment longer.
    other.unlock().unwrap();
    // Left by a process that was killed.
    run(folder.path(), &["backup", "copy.db"]);
    assert!(!part.exists());
}

/// Regression: a file of somebody else with the name of the unfinished copy was deleted.
#[test]
fn backup_beside_a_foreign_part_file_is_refused() {
    let folder = stopped_store();
    let path = folder.path();
    fs::write(path.join("copy.db.part"), "a letter to my aunt").unwrap();
    fs::write(path.join("mine.txt"), "").unwrap();
    std::os::unix::fs::symlink("mine.txt", path.join("link.db.part")).unwrap();
    fs::create_dir(path.join("folder.db.part")).unwrap();
    fs::write(path.join("nouns.db.part"), "another letter").unwrap();
    let before = files(path);
    let mut messages = String::new();
    for name in ["copy.db", "link.db", "folder.db"] {
        messages += &refuse(path, &["backup", name]);
    }
    messages += &refuse(path, &["backup", "copy.db", "--force"]);
    assert!(files(path) == before, "{:?}", files(path).keys());
    run(path, &["backup", "good.db"]);
    messages += &refuse(path, &["restore", "good.db", "--force"]);
    fs::remove_file(path.join("good.db")).unwrap();
    assert!(files(path) == before, "{:?}", files(path).keys());
    expect![[r#"
        nouns: copy.db.part is there, and is no unfinished copy of a database; move it away, or name another file
        nouns: link.db.part is not a file; move it away, or name another file
        nouns: folder.db.part is not a file; move it away, or name another file
        nouns: copy.db.part is there, and is no unfinished copy of a database; move it away, or name another file
        nouns: nouns.db.part is there, and is no unfinished copy of a database; move it away, or name another file
    "#]]
    .assert_eq(&messages);
}

#[test]
fn backup_of_a_database_of_another_program_is_refused() {
    let folder = Folder::new();
    run_sql(Backend::Sqlite, folder.path(), "CREATE TABLE customers (name TEXT)");
    fs::write(folder.path().join("letter.db"), "This is a letter to my aunt.\n".repeat(500))
        .unwrap();
    let before = files(folder.path());
    let mut messages = refuse(folder.path(), &["backup", "copy.db"]);
    messages += &refuse(folder.path(), &["backup", "copy.db", "--database", "sqlite:letter.db"]);
    expect![[r#"
        nouns: nouns.db is a database of another program; name another --database
        nouns: letter.db is not an SQLite database; name another --database
    "#]]
    .assert_eq(&messages);
    assert!(files(folder.path()) == before);
}

#[test]
fn backup_of_a_damaged_database_is_refused() {
    let folder = stopped_store();
    damage(&folder.path().join("nouns.db"));
    let before = files(folder.path());
    let message = refuse(folder.path(), &["backup", "copy.db"]);
    assert!(
        message.starts_with("nouns: nouns.db is damaged (")
            || message.starts_with("nouns: the copy of nouns.db is damaged ("),
        "{message}"
    );
    assert!(files(folder.path()) == before, "{:?}", files(folder.path()).keys());
}

/// Every kind of file that is no backup.
#[test]
fn restore_of_an_invalid_file_is_refused() {
    let folder = stopped_store();
    let path = folder.path();
    run(path, &["backup", "copy.db"]);
    let copy = fs::read(path.join("copy.db")).unwrap();
    fs::write(path.join("cut.db"), &copy[..copy.len() / 2]).unwrap();
    fs::write(path.join("empty.db"), "").unwrap();
    fs::write(path.join("letter.db"), "This is a letter to my aunt.\n".repeat(500)).unwrap();
    fs::write(path.join("damaged.db"), &copy).unwrap();
    damage(&path.join("damaged.db"));
    fs::write(path.join("newer.db"), &copy).unwrap();
    let newer = Connection::open(path.join("newer.db")).unwrap();
    newer.pragma_update(None, "user_version", 9999).unwrap();
    newer.close().unwrap();
    let foreign = Connection::open(path.join("foreign.db")).unwrap();
    foreign.execute_batch("CREATE TABLE a (b)").unwrap();
    foreign.close().unwrap();
    let before = files(path);
    let mut messages = String::new();
    for file in
        ["cut.db", "empty.db", "letter.db", "damaged.db", "newer.db", "foreign.db", "none.db", "."]
    {
        messages += &refuse(path, &["restore", file, "--force"]);
        assert!(files(path) == before, "{file}: {:?}", files(path).keys());
        // Nothing is left where there was no database either.
        refuse(path, &["restore", file, "--database", "sqlite:new.db"]);
        assert!(files(path) == before, "{file}: {:?}", files(path).keys());
    }
    expect![[r#"
        nouns: cut.db is damaged (database disk image is malformed); nothing was restored: use another backup
        nouns: empty.db is empty; name a file that nouns backup has written
        nouns: letter.db is no database; name a file that nouns backup has written
        nouns: damaged.db is damaged (Tree 4 page 4: btreeInitPage() returns error code 11); nothing was restored: use another backup
        nouns: newer.db was written by a newer nouns (format 9999, this one supports 1); use that version, or name another --database
        nouns: foreign.db is no database of nouns; name a file that nouns backup has written
        nouns: there is no backup none.db; name a file that nouns backup has written
        nouns: . is no file; name a file that nouns backup has written
    "#]].assert_eq(&messages);
}

/// A process that another test has just forked may have the database open for a moment longer.
fn restore_when_closed(folder: &Path) {
    wait_until("the database is closed", || {
        (run_nouns(folder, &["restore", "copy.db", "--force"]).code == Some(0)).then_some(())
    });
}

#[test]
fn restore_over_a_database_in_use_is_refused() {
    let server = Server::on(Backend::Sqlite);
    let path = server.create("/customers", ANN);
    run(server.folder(), &["backup", "copy.db"]);
    let mut messages = refuse(server.folder(), &["restore", "copy.db"]);
    messages += &refuse(server.folder(), &["restore", "copy.db", "--force"]);
    assert_eq!(server.get(&path).status, 200);
    let folder = server.stop();
    // A shell of SQLite that only reads.
    let shell = Connection::open(folder.path().join("nouns.db")).unwrap();
    let count = |shell: &Connection| {
        shell.query_row("SELECT count(*) FROM customers", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(count(&shell), 1);
    let message = refuse(folder.path(), &["restore", "copy.db", "--force"]);
    let name = regex::Regex::new(r"\(process \d+, [^)]*\)").unwrap();
    messages += &name.replace(&message, "(process N, NAME)");
    assert_eq!(count(&shell), 1);
    drop(shell);
    messages += &refuse(folder.path(), &["restore", "nouns.db", "--force"]);
    expect![[r#"
        nouns: nouns.db exists already, and is not overwritten; name another --database, or replace it with --force
        nouns: a server is using nouns.db; stop it first, or name another --database
        nouns: another process has nouns.db open (process N, NAME); end it, and restore again
        nouns: nouns.db would be overwritten by its own copy; name another --database
    "#]]
    .assert_eq(&messages);
    assert_eq!(customers(folder.path()), "Ann ");
    restore_when_closed(folder.path());
}

/// Regression: without a write-ahead log, as after a restore, the others that have the file open were not noticed,
/// and went on in a file that was gone.
#[test]
fn restore_over_a_database_in_use_without_a_wal_is_refused() {
    let folder = stopped_store();
    run(folder.path(), &["backup", "copy.db"]);
    run(folder.path(), &["restore", "copy.db", "--force"]);
    let shell = Connection::open(folder.path().join("nouns.db")).unwrap();
    let mode: String = shell.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete");
    let name = regex::Regex::new(r"\(process \d+, [^)]*\)").unwrap();
    let mut messages = String::new();
    // Idle, in a transaction that reads, and in one that writes.
    for statement in ["SELECT 1", "BEGIN; SELECT * FROM customers", "COMMIT; BEGIN IMMEDIATE"] {
        shell.execute_batch(statement).unwrap();
        let before = files(folder.path());
        // A process that another test has just forked has the file open too, and may be named for a moment.
        let own = format!("process {}, ", std::process::id());
        let message = wait_until("the message names this process", || {
            let message = refuse(folder.path(), &["restore", "copy.db", "--force"]);
            assert!(files(folder.path()) == before, "{:?}", files(folder.path()).keys());
            message.contains(&own).then_some(message)
        });
        messages += &name.replace(&message, "(process N, NAME)");
    }
    drop(shell);
    expect![[r#"
        nouns: another process has nouns.db open (process N, NAME); end it, and restore again
        nouns: another process has nouns.db open (process N, NAME); end it, and restore again
        nouns: another process has nouns.db open (process N, NAME); end it, and restore again
    "#]]
    .assert_eq(&messages);
    restore_when_closed(folder.path());
}

#[test]
fn backup_and_restore_of_postgres_name_its_programs() {
    let folder = Folder::new();
    let database = "postgres://nouns@db.example.com/shop?sslmode=require";
    let mut messages = refuse(folder.path(), &["backup", "my copy.dump", "--database", database]);
    messages += &refuse(folder.path(), &["restore", "shop.dump", "--database", database]);
    expect![[r#"
        nouns: PostgreSQL is backed up by its own program, while servers run:
          (umask 077; pg_dump --no-unlogged-table-data --format=custom --file='my copy.dump' postgres://nouns@db.example.com:5432/shop)
        restore it into a new, empty database with:
          pg_restore --exit-on-error --dbname=postgres://USER@HOST/NEW 'my copy.dump'
        and keep a copy of the key in another place
        nouns: PostgreSQL is restored by its own program, from a dump of pg_dump; into an empty database:
          pg_restore --exit-on-error --dbname=postgres://nouns@db.example.com:5432/shop shop.dump
        over an existing one, with all servers stopped:
          pg_restore --exit-on-error --clean --if-exists --dbname=postgres://nouns@db.example.com:5432/shop shop.dump
    "#]].assert_eq(&messages);
    assert!(files(folder.path()).is_empty());
}
