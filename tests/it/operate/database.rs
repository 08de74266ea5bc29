//! Databases that cannot be opened, or that another program or version has made.
//!
//! Read-only folders and full disks are made in a mount namespace (`unshare`), so that the tests need
//! no privileges and root gets no exception.

use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use expect_test::expect;

use super::{ANN, SERVE, assert_start_fails, check_failed_start, contents};
use crate::harness::{Backend, Folder, Setup, run_in_namespace, run_nouns, run_sql};

/// A folder in which a store with one customer was served and stopped.
fn used_folder() -> Folder {
    let server = Setup::new(Backend::Sqlite).start();
    server.create("/customers", ANN);
    server.stop()
}

const READ_ONLY: &str = r#"
    mount --bind "$1" "$1"
    mount -o remount,ro,bind "$1"
    cd "$1"
    exec "$2" serve --open --listen 127.0.0.1:0 --database sqlite:nouns.db
"#;

#[test]
fn database_in_a_read_only_folder_fails_the_start() {
    let folder = Folder::new();
    let ended = run_in_namespace(folder.path(), READ_ONLY);
    check_failed_start(
        &ended,
        folder.path(),
        &expect![[r#"
            nouns: cannot write beside nouns.db (Read-only file system (os error 30)); make the folder writable, or name another --database
        "#]],
    );
    assert!(contents(folder.path()).is_empty());
}

#[test]
fn database_existing_in_a_read_only_folder_fails_the_start() {
    let folder = used_folder();
    let before = contents(folder.path());
    let ended = run_in_namespace(folder.path(), READ_ONLY);
    check_failed_start(
        &ended,
        folder.path(),
        &expect![[r#"
            nouns: cannot write beside nouns.db (Read-only file system (os error 30)); make the folder writable, or name another --database
        "#]],
    );
    assert!(contents(folder.path()) == before);
}

/// The disk of a new database is full; the script prints the list of its files before and after.
#[test]
fn database_on_a_full_disk_fails_the_start() {
    let folder = Folder::new();
    let script = r#"
        mount -t tmpfs -o size=256k none "$1"
        cd "$1"
        cat /dev/zero > filler 2>/dev/null || true
        before=$(ls -A; cksum *)
        code=0
        "$2" serve --open --listen 127.0.0.1:0 --database sqlite:nouns.db || code=$?
        test "$before" = "$(ls -A; cksum *)" || { echo "files changed: $(ls -lA)"; exit 99; }
        exit $code
    "#;
    let ended = run_in_namespace(folder.path(), script);
    check_failed_start(
        &ended,
        folder.path(),
        &expect![[r#"
        nouns: the disk that holds nouns.db is full; free some space and start again
    "#]],
    );
}

#[test]
fn database_path_that_is_a_folder_fails_the_start() {
    let folder = Folder::new();
    fs::create_dir(folder.path().join("nouns.db")).unwrap();
    assert_start_fails(
        folder.path(),
        SERVE,
        &expect![[r#"
        nouns: nouns.db is a folder; name a file in it: --database sqlite:nouns.db/nouns.db
    "#]],
    );
}

#[test]
fn database_in_a_missing_folder_fails_the_start() {
    let folder = Folder::new();
    let args = ["serve", "--open", "--listen", "127.0.0.1:0", "--database", "sqlite:no/where.db"];
    assert_start_fails(
        folder.path(),
        &args,
        &expect![[r#"
        nouns: the folder no does not exist; create it, or name another --database
    "#]],
    );
}

#[test]
fn database_file_of_another_format_fails_the_start() {
    let folder = Folder::new();
    fs::write(folder.path().join("nouns.db"), "This is a letter to my aunt.\n".repeat(500))
        .unwrap();
    assert_start_fails(
        folder.path(),
        SERVE,
        &expect![[r#"
        nouns: nouns.db is not an SQLite database; name another --database
    "#]],
    );
}

#[test]
fn database_truncated_fails_the_start() {
    let folder = used_folder();
    let file = folder.path().join("nouns.db");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    assert_start_fails(
        folder.path(),
        SERVE,
        &expect![[r#"
        nouns: nouns.db is damaged (database disk image is malformed); restore it from a backup, or name another --database
    "#]],
    );
}

#[test]
fn database_with_a_damaged_page_fails_the_start() {
    let folder = used_folder();
    let file = folder.path().join("nouns.db");
    let mut bytes = fs::read(&file).unwrap();
    // The schema begins after the header of 100 bytes.
    bytes[100..1000].fill(0xAA);
    fs::write(&file, bytes).unwrap();
    assert_start_fails(
        folder.path(),
        SERVE,
        &expect![[r#"
        nouns: nouns.db is damaged (database disk image is malformed); restore it from a backup, or name another --database
    "#]],
    );
}

#[test]
fn database_of_another_program_fails_the_start() {
    let folder = Folder::new();
    run_sql(Backend::Sqlite, folder.path(), "CREATE TABLE customers (name TEXT)");
    assert_start_fails(
        folder.path(),
        SERVE,
        &expect![[r#"
        nouns: nouns.db is a database of another program; name another --database
    "#]],
    );
}

#[test]
fn database_of_a_newer_version_fails_the_start() {
    let folder = used_folder();
    run_sql(Backend::Sqlite, folder.path(), "PRAGMA user_version = 9999");
    assert_start_fails(
        folder.path(),
        SERVE,
        &expect![[r#"
        nouns: nouns.db was written by a newer nouns (format 9999, this one supports 1); use that version, or name another --database
    "#]],
    );
}

#[test]
fn database_file_in_use_by_another_server_fails_the_start() {
    let server = Setup::new(Backend::Sqlite).start();
    let path = server.create("/customers", ANN);
    // While the first one is stopped with SIGSTOP, any changed byte is the second one's doing.
    server.pause();
    assert_start_fails(
        server.folder(),
        SERVE,
        &expect![[r#"
        nouns: another server is using nouns.db; stop it first, or name another --database
    "#]],
    );
    server.resume();
    assert_eq!(server.get(&path).status, 200);
}

/// A command holds the lock while it recovers the WAL of a killed server, which systemd may restart meanwhile.
#[test]
fn server_waits_for_a_command_that_holds_the_lock() {
    let folder = Setup::new(Backend::Sqlite).start().stop();
    let lock = File::options().write(true).open(folder.path().join("nouns.db-lock")).unwrap();
    lock.lock().unwrap();
    let (began, setup) = (Instant::now(), Setup::new(Backend::Sqlite));
    let release = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        lock.unlock().unwrap();
    });
    let server = setup.start_in(folder);
    assert!(began.elapsed() >= Duration::from_millis(500));
    release.join().unwrap();
    assert_eq!(server.get("/customers").status, 200);
}

/// The lock is released with its process, however that ends.
#[test]
fn database_lock_is_released_by_a_kill_and_nothing_is_lost() {
    let server = Setup::new(Backend::Sqlite).start();
    let paths: Vec<_> = (0..20).map(|_| server.create("/customers", ANN)).collect();
    let server = Setup::new(Backend::Sqlite).start_in(server.kill());
    for path in paths {
        assert_eq!(server.get(&path).status, 200);
    }
}

#[test]
fn model_incompatible_with_the_database_fails_the_start() {
    let folder = used_folder();
    let model = r#"
        title = "Store"
        [resources.customer.fields]
        name = { type = "integer", required = true }
        phone = { type = "text", required = true }
    "#;
    fs::write(folder.path().join("other.toml"), model).unwrap();
    let args = [
        "serve",
        "other.toml",
        "--open",
        "--listen",
        "127.0.0.1:0",
        "--database",
        "sqlite:nouns.db",
    ];
    assert_start_fails(
        folder.path(),
        &args,
        &expect![[r#"
            nouns: nouns.db holds data of another model, and this one would lose or break some of it:
              customer.name: the type changed from text to integer
              customer.phone: the new field is required, but the items that are there have no value for it; give it a fill, or a default instead
              customer.email: the field was removed, but the database keeps values for it
            nothing was changed; see what would be done with: nouns plan other.toml --database sqlite:nouns.db; do it with: nouns migrate other.toml --database sqlite:nouns.db; or take these changes back
        "#]],
    );
}

#[test]
fn model_with_additions_is_applied() {
    let folder = used_folder();
    let store = run_nouns(folder.path(), &["init"]);
    assert_eq!(store.code, Some(0), "{store:?}");
    let mut model = fs::read_to_string(folder.path().join("nouns.toml")).unwrap();
    model.push_str("\n[resources.note.fields]\ntext = { type = \"text\", required = true }\n");
    let server = Setup::new(Backend::Sqlite).model(&model).start_in(folder);
    assert_eq!(server.get("/customers").json()["customers"][0]["name"], "Ann");
    server.create("/notes", r#"{"note":{"text":"hello"}}"#);
}
