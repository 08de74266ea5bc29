//! Moves that are refused: nothing is written.

use std::fs;

use expect_test::{Expect, expect};

use super::*;

/// A move that is refused with this message, and changes neither place.
#[track_caller]
fn check_refused(place: &Place, target: &Place, expected: &Expect) {
    let files = |place: &Place| {
        let entries = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        // A running server makes and removes these.
        names.retain(|name| !name.ends_with("-wal") && !name.ends_with("-shm"));
        names.sort();
        names
    };
    let before = [files(place), files(target)];
    let ended = place.try_move(target);
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{ended:?}");
    expected.assert_eq(&place.mask(target, &ended.stderr));
    assert_eq!([files(place), files(target)], before);
}

on_every_backend! {
    fn move_while_a_server_runs_is_refused(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let database = server.database();
        let target = Folder::new();
        let to = other(backend).database(&target, "nouns.db");
        let ended = run(EXECUTABLE, server.folder(), &["move", "--database", &database, "--to", &to], "");
        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{ended:?}");
        let shown = database.strip_prefix("sqlite:").unwrap_or(&database);
        let expected = match backend {
            Backend::Sqlite => format!("nouns: a server is using {shown}; stop it first, and move again\n"),
            Backend::Postgres => format!(
                "nouns: servers are running on {shown}; stop them first, and move again (one that was killed counts for some minutes)\n"
            ),
        };
        assert_eq!(ended.stderr, expected);
        assert!(Place { backend: other(backend), folder: target }.is_empty());
    }

    fn move_to_a_database_with_data_is_refused(backend: Backend) {
        let place = Place { backend: other(backend), folder: Setup::new(other(backend)).model(MODEL).start().stop() };
        let target = Place { backend, folder: Setup::new(backend).model(MODEL).start().stop() };
        let before = target.dump();
        for from in [&place, &target] {
            let ended = from.try_move(&target);
            assert_eq!(ended.code, Some(2), "{ended:?}");
            let said = place.mask(&target, &ended.stderr);
            let expected = match (from.backend == backend, backend) {
                (true, _) => "nouns: TARGET is the source itself; name another --to\n",
                (false, Backend::Sqlite) => "nouns: TARGET is not empty: it holds customers, nouns_changes, nouns_deliveries, nouns_delivery_queue, nouns_keys and 7 more; name another --to\n",
                (false, Backend::Postgres) => "nouns: TARGET is not empty: it holds customers, nouns_changes, nouns_deliveries, nouns_delivery_queue, nouns_epoch and 17 more; name another --to\n",
            };
            assert_eq!(said, expected);
        }
        assert!(target.dump() == before);
    }

    fn move_to_a_database_of_another_program_is_refused(backend: Backend) {
        let place = Place { backend: other(backend), folder: Setup::new(other(backend)).model(MODEL).start().stop() };
        let target = Place::new(backend);
        target.database();
        target.sql("CREATE TABLE notes (text text)");
        check_refused(&place, &target, &expect![[r#"
            nouns: TARGET is not empty: it holds notes; name another --to
        "#]]);
    }

    fn move_of_a_missing_database_is_refused(backend: Backend) {
        let (place, target) = (Place::new(backend), Place::new(other(backend)));
        target.database();
        let ended = place.try_move(&target);
        let expected = match backend {
            Backend::Sqlite => "nouns: there is no database SOURCE; name another with --database sqlite:PATH, or create it with: nouns serve\n",
            Backend::Postgres => "nouns: there are no tables of nouns in SOURCE; name another --database, or create them with: nouns serve\n",
        };
        assert_eq!((ended.code, place.mask(&target, &ended.stderr)), (Some(2), expected.to_owned()));
        assert!(target.is_empty() && fs::read_dir(place.path()).unwrap().count() == 0);
    }

    /// The model does not say what it is, and its values would be lost.
    fn move_of_a_table_with_another_column_is_refused(backend: Backend) {
        let place = Place { backend, folder: Setup::new(backend).model(MODEL).start().stop() };
        place.sql("ALTER TABLE customers ADD COLUMN phone text");
        let target = Place::new(other(backend));
        target.database();
        check_refused(&place, &target, &expect![[r#"
            nouns: the table customers has a column phone that its model does not have, and whose values would be lost; drop it, or move it to a table of its own, and move again
        "#]]);
        assert!(target.is_empty());
    }
}

/// References that another program has broken cannot be in PostgreSQL.
#[test]
fn move_with_broken_references_is_refused() {
    let server = Setup::new(Backend::Sqlite).model(MODEL).start();
    let customer = server.create("/customers", r#"{"customer":{"name":"Ann"}}"#);
    server.create(&format!("{customer}/orders"), r#"{"order":{"price":"1.00"}}"#);
    let place = Place { backend: Backend::Sqlite, folder: server.stop() };
    place.sql("PRAGMA foreign_keys = off; DELETE FROM customers; SELECT 1");
    let target = Place::new(Backend::Postgres);
    target.database();
    check_refused(
        &place,
        &target,
        &expect![[r#"
        nouns: rows of orders refer to rows that do not exist, which another program has caused; mend or delete them, and move again (list them with: sqlite3 -readonly SOURCE 'PRAGMA foreign_key_check')
    "#]],
    );
    assert!(target.is_empty());
}

#[test]
fn move_to_a_file_that_is_in_the_way_is_refused() {
    let place = Place {
        backend: Backend::Sqlite,
        folder: Setup::new(Backend::Sqlite).model(MODEL).start().stop(),
    };
    let target = Place::new(Backend::Sqlite);
    let file = |name: &str, text: &str| fs::write(target.path().join(name), text).unwrap();
    file("nouns.db", "some text that is long enough to be no database at all");
    check_refused(
        &place,
        &target,
        &expect![[r#"
        nouns: TARGET exists already, and is no SQLite database; name another --to
    "#]],
    );
    fs::remove_file(target.path().join("nouns.db")).unwrap();
    file("nouns.db-wal", "frames");
    check_refused(
        &place,
        &target,
        &expect![[r#"
        nouns: TARGET-wal is here, which SQLite would apply to the new database; name another --to, or move TARGET-wal away
    "#]],
    );
    fs::remove_file(target.path().join("nouns.db-wal")).unwrap();
    // An empty file is as good as none, and so is a part that a killed move has left.
    file("nouns.db", "");
    file("nouns.db.part", "SQLite format 3\0, and no more");
    place.move_to(&target);
    assert!(!target.path().join("nouns.db.part").exists());
}

#[test]
fn move_with_wrong_flags_is_refused() {
    let folder = Folder::new();
    let said = |arguments: &[&str]| {
        let ended = run(EXECUTABLE, folder.path(), arguments, "");
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended.stderr
    };
    let all = [
        said(&["move", "--to", "mysql://x/y"]),
        said(&["move", "--to", "postgres://ann:secret@db.example/nouns"]),
        said(&["move"]),
    ];
    expect![[r#"
        nouns: --to: expected sqlite:PATH or postgres://…, got "mysql:…"
        nouns: a password in --to can be read by everyone on this machine; leave it out there, and set PGPASSWORD to the password, or put it into ~/.pgpass
        error: the following required arguments were not provided:
          --to <DATABASE>

        Usage: nouns move --to <DATABASE> [MODEL]

        For more information, try '--help'.
    "#]].assert_eq(&all.concat());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
