//! Database files under other names, and leftover files without their database.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use expect_test::expect;

use super::{ANN, SERVE, assert_start_fails, check_failed_start};
use crate::harness::{Backend, Folder, Setup, run_in_namespace, run_nouns, wait_until};

/// A folder with `link.db`, which links to `there/nouns.db`, and `chain.db`, which links to `link.db`.
fn linked_folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.path().join("there")).unwrap();
    symlink("there/nouns.db", folder.path().join("link.db")).unwrap();
    symlink("link.db", folder.path().join("chain.db")).unwrap();
    folder
}

/// SQLite keeps the WAL next to the file that a link leads to.
#[test]
fn database_behind_a_symlink_keeps_answered_writes() {
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

/// Regression: the lock was next to the link, so that two names of one file were two locks.
#[test]
fn database_lock_holds_for_another_name_of_the_file() {
    let names = [
        ("link.db", "sqlite:there/nouns.db"),
        ("there/nouns.db", "sqlite:link.db"),
        ("there/nouns.db", "sqlite:chain.db"),
        // Here the chain is dangling until the first server creates the file.
        ("chain.db", "sqlite:there/nouns.db"),
    ];
    for (first, second) in names {
        let server = Setup::new(Backend::Sqlite).database(first).start_in(linked_folder());
        server.create("/customers", ANN);
        server.pause();
        let args = ["serve", "--open", "--listen", "127.0.0.1:0", "--database", second];
        let ended = run_nouns(server.folder(), &args);
        let shown = second.trim_start_matches("sqlite:");
        let message = format!("nouns: another server is using {shown}; stop it first");
        assert!(ended.code == Some(2) && ended.stderr.starts_with(&message), "{ended:?}");
        server.resume();
        assert_eq!(server.get("/customers").status, 200);
    }
}

/// SQLite would delete it, with the writes it holds.
#[test]
fn wal_without_its_database_fails_the_start_and_is_kept() {
    let server = Setup::new(Backend::Sqlite).start();
    server.create("/customers", ANN);
    let folder = server.kill();
    let file = |name: &str| folder.path().join(name);
    assert!(fs::metadata(file("nouns.db-wal")).unwrap().len() > 0);
    fs::rename(file("nouns.db"), file("kept.db")).unwrap();
    let message = expect![[r#"
        nouns: nouns.db-wal is here, but the database it belongs to is not; put nouns.db back, or move nouns.db-wal away
    "#]];
    assert_start_fails(folder.path(), SERVE, &message);
    // The same with an empty file in its place.
    fs::write(file("nouns.db"), "").unwrap();
    assert_start_fails(folder.path(), SERVE, &message);
    // With the database restored, everything is there.
    fs::rename(file("kept.db"), file("nouns.db")).unwrap();
    let server = Setup::new(Backend::Sqlite).start_in(folder);
    assert_eq!(server.get("/customers").json()["customers"].as_array().unwrap().len(), 1);
}

/// A failed start removes what it created; the link existed before.
#[test]
fn dangling_symlink_is_kept_by_a_failed_start() {
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
    let ended = run_in_namespace(folder.path(), script);
    check_failed_start(
        &ended,
        folder.path(),
        &expect![[r#"
            nouns: the disk that holds nouns.db is full; free some space and start again
        "#]],
    );
}

/// Under a second name SQLite would keep a second WAL and second locks.
#[test]
fn database_with_a_hard_link_is_refused() {
    let server = Setup::new(Backend::Sqlite).start();
    server.create("/customers", ANN);
    fs::hard_link(server.folder().join("nouns.db"), server.folder().join("other.db")).unwrap();
    server.pause();
    let args = ["serve", "--open", "--listen", "127.0.0.1:0", "--database", "sqlite:other.db"];
    let message = |name: &str| {
        format!(
            "nouns: {name} is one file under 2 names (hard links), and under each of them another server could \
             write it; remove the others (find / -xdev -samefile {name} shows them), or copy it: cp {name} new.db\n"
        )
    };
    let ended = run_nouns(server.folder(), &args);
    assert_eq!((ended.code, ended.stderr), (Some(2), message("other.db")));
    for command in [&["user", "list", "--database"][..], &["changes", "--database"]] {
        let ended = run_nouns(server.folder(), &[command, &["sqlite:other.db"]].concat());
        assert_eq!((ended.code, ended.stderr), (Some(2), message("other.db")), "{command:?}");
    }
    server.resume();
    assert_eq!(server.get("/customers").status, 200);
    let folder = server.stop();
    let ended = run_nouns(folder.path(), SERVE);
    assert_eq!((ended.code, ended.stderr), (Some(2), message("nouns.db")));
    fs::remove_file(folder.path().join("other.db")).unwrap();
    let server = Setup::new(Backend::Sqlite).start_in(folder);
    assert_eq!(server.get("/customers").json()["customers"].as_array().unwrap().len(), 1);
}

/// SQLite takes one byte for an empty database, and deletes the WAL next to it.
#[test]
fn database_truncated_to_a_few_bytes_is_refused_and_its_wal_kept() {
    let server = Setup::new(Backend::Sqlite).start();
    server.create("/customers", ANN);
    let folder = server.kill();
    let file = |name: &str| folder.path().join(name);
    let (database, log) =
        (fs::read(file("nouns.db")).unwrap(), fs::read(file("nouns.db-wal")).unwrap());
    assert!(!log.is_empty());
    for bytes in [1, 2, 16, 99] {
        fs::write(file("nouns.db"), &database[..bytes]).unwrap();
        let message = format!(
            "nouns: nouns.db is damaged (it is truncated: {bytes} bytes are left); restore it from a backup, \
             and keep nouns.db-wal, which holds answered writes, or name another --database\n"
        );
        for args in [
            SERVE,
            &["user", "list", "--database", "sqlite:nouns.db"],
            &["changes", "--database", "sqlite:nouns.db"],
        ] {
            let ended = run_nouns(folder.path(), args);
            assert_eq!((ended.code, &ended.stderr), (Some(2), &message), "{args:?}");
            assert_eq!(fs::read(file("nouns.db-wal")).unwrap(), log, "{args:?}");
        }
    }
    fs::remove_file(file("nouns.db-wal")).unwrap();
    fs::write(file("nouns.db"), "x").unwrap();
    assert_start_fails(
        folder.path(),
        SERVE,
        &expect![[r#"
            nouns: nouns.db is damaged (it is truncated: 1 bytes are left); restore it from a backup, or name another --database
        "#]],
    );
    fs::write(file("nouns.db"), database).unwrap();
    fs::write(file("nouns.db-wal"), log).unwrap();
    let server = Setup::new(Backend::Sqlite).start_in(folder);
    assert_eq!(server.get("/customers").json()["customers"].as_array().unwrap().len(), 1);
}

/// An empty file with a WAL is no new database for a command either.
#[test]
fn wal_next_to_an_empty_database_is_kept_by_commands() {
    let server = Setup::new(Backend::Sqlite).start();
    server.create("/customers", ANN);
    let folder = server.kill();
    fs::write(folder.path().join("nouns.db"), "").unwrap();
    let log = fs::read(folder.path().join("nouns.db-wal")).unwrap();
    for command in [&["user", "list", "--database"][..], &["changes", "--database"]] {
        let ended = run_nouns(folder.path(), &[command, &["sqlite:nouns.db"]].concat());
        assert_eq!(ended.code, Some(2), "{command:?}: {ended:?}");
        assert_eq!(fs::read(folder.path().join("nouns.db-wal")).unwrap(), log, "{command:?}");
    }
}

/// A command that cannot determine whether a server has the database open appends nothing to its WAL.
#[test]
fn command_that_cannot_lock_an_unrecovered_database_fails_with_a_message() {
    let server = Setup::new(Backend::Sqlite).start();
    server.create("/customers", ANN);
    let folder = server.kill();
    let file = |name: &str| folder.path().join(name);
    fs::remove_file(file("nouns.db-lock")).unwrap();
    fs::create_dir(file("nouns.db-lock")).unwrap();
    let log = fs::read(file("nouns.db-wal")).unwrap();
    let list = || run_nouns(folder.path(), &["user", "list", "--database", "sqlite:nouns.db"]);
    let ended = list();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    assert!(ended.stderr.starts_with("nouns: cannot open nouns.db-lock ("), "{}", ended.stderr);
    assert_eq!(fs::read(file("nouns.db-wal")).unwrap(), log);
    fs::remove_dir(file("nouns.db-lock")).unwrap();
    assert_eq!(list().code, Some(0));
}

/// A database that is missing while its key or password file exists was lost: no new one is created.
#[test]
fn database_lost_is_refused_when_its_key_or_password_file_exists() {
    let serve = ["serve", "--listen", "127.0.0.1:0", "--database", "sqlite:nouns.db"];
    let folder = Setup::new(Backend::Sqlite).with_authentication().start().stop();
    let file = |name: &str| folder.path().join(name);
    fs::remove_file(file("nouns.db")).unwrap();
    let both = expect![[r#"
        nouns: there is no database nouns.db, but nouns.key and nouns.admin-password, which a server makes after it: the database was lost or moved; put it back, or restore it from a backup; if a new one is meant, move nouns.key and nouns.admin-password away, or name the key with --key-file
    "#]];
    assert_start_fails(folder.path(), &serve, &both);
    assert_start_fails(folder.path(), SERVE, &both);
    fs::write(file("nouns.db"), "").unwrap();
    assert_start_fails(folder.path(), &serve, &both);
    let named = [&serve[..], &["--key-file", "nouns.key"]].concat();
    assert_start_fails(
        folder.path(),
        &named,
        &expect![[r#"
            nouns: there is no database nouns.db, but nouns.admin-password, which a server makes after it: the database was lost or moved; put it back, or restore it from a backup; if a new one is meant, move nouns.admin-password away
        "#]],
    );
    fs::remove_file(file("nouns.admin-password")).unwrap();
    assert_start_fails(
        folder.path(),
        &serve,
        &expect![[r#"
            nouns: there is no database nouns.db, but nouns.key, which a server makes after it: the database was lost or moved; put it back, or restore it from a backup; if a new one is meant, move nouns.key away, or name the key with --key-file
        "#]],
    );
    // A key that the operator gives may be older than its database.
    let key_file = file("nouns.key");
    let folder = Setup::new(Backend::Sqlite).key_file(key_file).start_in(folder).stop();
    // Here it may be that of the other database.
    Setup::new(Backend::Sqlite).with_authentication().database("room.db").start_in(folder);
}

/// Regression: a key that may belong to another database in the folder, whose lock file is gone, was taken for that of a lost
/// one.
#[test]
fn database_new_beside_a_key_and_another_database_without_a_lock_is_explained() {
    let folder = Setup::new(Backend::Sqlite).with_authentication().start().stop();
    fs::remove_file(folder.path().join("nouns.db-lock")).unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--database", "sqlite:room.db"];
    assert_start_fails(
        folder.path(),
        &serve,
        &expect![[r#"
            nouns: there is no database room.db, and nouns.key may be the key of nouns.db, which is here too, or of a room.db that was lost; to create room.db with this key, name it: --key-file nouns.key; if it was lost or moved, put it back, or restore it from a backup
        "#]],
    );
    let key_file = folder.path().join("nouns.key");
    Setup::new(Backend::Sqlite).database("room.db").key_file(key_file).start_in(folder);
}

/// The permission bits of a file.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The database holds password hashes.
#[test]
fn database_files_are_created_with_owner_only_permissions() {
    let umask = ["sh", "-c", "umask 022; exec \"$@\"", "sh"];
    let server = Setup::new(Backend::Sqlite).run_under(&umask).start();
    server.create("/customers", ANN);
    for end in ["", "-wal", "-shm", "-lock"] {
        let path = server.folder().join(format!("nouns.db{end}"));
        assert_eq!(format!("{:03o}", mode(&path)), "600", "{}", path.display());
    }
    const OTHERS: &str =
        "other users of this machine can read the database, which holds password hashes";
    assert!(!server.log().contains(OTHERS));
    // An existing file keeps its mode: a group may be meant to read it; a warning is logged for others.
    let folder = server.stop();
    for (now, is_told) in [(0o640, false), (0o644, true)] {
        let path = folder.path().join("nouns.db");
        fs::set_permissions(&path, fs::Permissions::from_mode(now)).unwrap();
        let copy = Backend::Sqlite.copy_database(&folder);
        fs::set_permissions(copy.path().join("nouns.db"), fs::Permissions::from_mode(now)).unwrap();
        let server = Setup::new(Backend::Sqlite).start_in(copy);
        server.create("/customers", ANN);
        if is_told {
            wait_until("the log tells", || server.log().contains(OTHERS).then_some(()));
            let path = server.folder().join("nouns.db").display().to_string();
            let remedy = format!("chmod 600 {path} {path}-wal {path}-shm");
            assert!(server.log().contains(&remedy), "{}", server.log());
        } else {
            assert!(!server.log().contains(OTHERS), "{}", server.log());
        }
        assert_eq!(mode(&server.folder().join("nouns.db")), now);
    }
}
