//! Moves that are killed, lose their connection or fill the disk: the target is empty or complete, and the source is
//! as it was.

use std::sync::LazyLock;

use super::*;
use crate::database_faults::proxy::{Fault, FaultKind, MessagePosition, MessageSender, Proxy};
use crate::database_faults::{postgres_address, proxied_url};
use crate::harness::{DEBUG_EXECUTABLE, OwnPostgres, Postgres, run_in_namespace, wait_until};

/// Repeats a move while the killed session of an earlier one holds its locks.
fn move_when_unlocked(place: &Place, target: &Place, fault: &str) -> FinishedProcess {
    wait_until("the database has noticed the end of the last move", || {
        let ended = place.move_with_fault(target, DEBUG_EXECUTABLE, fault);
        (!ended.stderr.contains("or another command has locked it")).then_some(ended)
    })
}

/// Asserts that all rows are there.
fn check_complete(place: &Place, target: Place) {
    let counts = "SELECT (SELECT count(*) FROM customers), (SELECT count(*) FROM parcels), (SELECT count(*) FROM nouns_users), \
                  (SELECT count(*) FROM nouns_changes), (SELECT max(sequence) FROM nouns_changes)";
    assert_eq!(target.sql(counts), place.sql(counts));
    let server = target.serve(&place.path().join("nouns.key"));
    assert_eq!(server.get("/customers").status, 401);
}

on_every_backend! {
    fn move_aborted_at_each_step_leaves_an_empty_target_or_a_complete_one(backend: Backend) {
        let (server, _) = filled(backend);
        let place = Place { backend, folder: server.stop() };
        let before = place.dump();
        let target = Place::new(other(backend));
        let mut aborted = 0;
        for step in 1.. {
            let ended = move_when_unlocked(&place, &target, &format!("move:{step}!"));
            assert!(place.dump() == before, "step {step}: the source was changed");
            let is_empty = wait_until("the database has noticed the abort", || {
                // A commit that was sent may become visible only now.
                let is_settled = target.backend == Backend::Sqlite || sessions(&target) == "0";
                is_settled.then(|| target.is_empty())
            });
            if !is_empty {
                assert!(ended.code.is_none() || ended.code == Some(0), "{ended:?}");
                break;
            }
            assert_eq!(ended.code, None, "{ended:?}");
            aborted = step;
        }
        assert!(aborted > 15, "{aborted}");
        let again = move_when_unlocked(&place, &target, "");
        assert!(again.stderr.contains(" is not empty: it holds "), "{again:?}");
        check_complete(&place, target);
    }
}

/// The sessions of a PostgreSQL database, except the one that counts.
fn sessions(place: &Place) -> String {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    place.sql(count).trim().to_owned()
}

/// The connection to the source or to the target ends at some messages of the move.
#[test]
fn move_that_loses_its_connection_says_so_and_leaves_the_target_empty() {
    let (server, _) = filled(Backend::Sqlite);
    let place = Place { backend: Backend::Sqlite, folder: server.stop() };
    let before = place.dump();
    for number in (1..).step_by(23) {
        let target = Place::new(Backend::Postgres);
        target.database();
        let proxy = Proxy::start(postgres_address(&Postgres::shared()));
        let name = Postgres::database_name(target.path());
        let url = proxied_url(&proxy, &name, "sslmode=disable");
        proxy.plant_fault(Fault {
            side: MessageSender::Database,
            number,
            position: MessagePosition::Before,
            kind: FaultKind::Close,
        });
        let from = place.database();
        let ended = run(EXECUTABLE, place.path(), &["move", "--database", &from, "--to", &url], "");
        assert!(place.dump() == before, "the source was changed");
        if ended.code == Some(0) {
            assert!(number > 100, "{number}");
            return check_complete(&place, target);
        }
        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{ended:?}");
        let is_said =
            ["cannot write postgres://", "cannot reach PostgreSQL at ", "it is not known whether "]
                .iter()
                .any(|words| ended.stderr.starts_with(&format!("nouns: {words}")));
        assert!(is_said, "{number}: {ended:?}");
        wait_until("the sessions have ended", || (sessions(&target) == "0").then_some(()));
        assert!(target.is_empty() || ended.stderr.contains("not known"), "{number}: {ended:?}");
    }
}

/// A source on PostgreSQL that goes away.
#[test]
fn move_that_loses_its_source_leaves_no_file() {
    let (server, _) = filled(Backend::Postgres);
    let place = Place { backend: Backend::Postgres, folder: server.stop() };
    let proxy = Proxy::start(postgres_address(&Postgres::shared()));
    let url = proxied_url(&proxy, &Postgres::database_name(place.path()), "sslmode=disable");
    proxy.plant_fault(Fault {
        side: MessageSender::Database,
        number: 150,
        position: MessagePosition::Middle,
        kind: FaultKind::Reset,
    });
    let target = Place::new(Backend::Sqlite);
    let to = target.database();
    let ended = run(EXECUTABLE, place.path(), &["move", "--database", &url, "--to", &to], "");
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.starts_with("nouns: cannot read postgres://"), "{ended:?}");
    assert!(ended.stderr.contains("; nothing was moved, and "), "{ended:?}");
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
}

#[test]
fn move_to_a_full_disk_is_refused_and_leaves_nothing() {
    let (server, _) = filled(Backend::Sqlite);
    let place = Place { backend: Backend::Sqlite, folder: server.stop() };
    let before = place.dump();
    let script = r#"
        cd "$1"
        mkdir disk
        mount -t tmpfs -o size=64k none disk
        code=0
        "$2" move --to sqlite:disk/new.db || code=$?
        ls -A disk
        umount disk
        rmdir disk
        echo "$code"
    "#;
    let ended = run_in_namespace(place.path(), script);
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "2\n"), "{ended:?}");
    expect_test::expect![[r#"
        nouns: cannot write disk/new.db (database or disk is full (SQLite error 13)); nothing was moved: check that it can be reached and that its disk has space, and move again
    "#]]
    .assert_eq(&ended.stderr);
    assert!(place.dump() == before);
}

/// Mounts over the folder `$1` and runs the rest, as in `database_faults::full`.
const ON_A_SMALL_DISK: &str = r#"
    if unshare --mount true 2>/dev/null; then own=; else own='--map-current-user --keep-caps'; fi
    exec unshare $own --mount sh -ec 'mount -t tmpfs -o size=1m,mode=0777 none "$1"; shift; exec "$@"' sh "$@"
"#;

#[test]
fn move_to_postgresql_with_a_full_disk_is_refused_and_leaves_nothing() {
    static LARGE: LazyLock<String> = LazyLock::new(|| {
        // Not compressible.
        (0..8_000_u64)
            .map(|at| format!("{:016x}", at.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
            .collect()
    });
    let server = Setup::new(Backend::Sqlite).model(MODEL).start();
    for at in 0..10 {
        let body = json!({"customer": {"name": at.to_string(), "extra": *LARGE}});
        server.create("/customers", body.to_string());
    }
    let place = Place { backend: Backend::Sqlite, folder: server.stop() };
    let folder = Folder::new();
    let disk = folder.path().display().to_string();
    let database = OwnPostgres::start_under(&["sh", "-ec", ON_A_SMALL_DISK, "sh", &disk]);
    database.sql(
        "postgres",
        &format!("COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; mkdir -m 700 {disk}/space'"),
    );
    database.sql("postgres", &format!("CREATE TABLESPACE small LOCATION '{disk}/space'"));
    let to =
        format!("{}?options=-c%20default_tablespace%3Dsmall", database.database_url("postgres"));
    let ended = run(EXECUTABLE, place.path(), &["move", "--to", &to], "");
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{ended:?}");
    assert!(ended.stderr.contains("No space left on device"), "{ended:?}");
    assert!(ended.stderr.contains("; nothing was moved: check that "), "{ended:?}");
    let left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    assert_eq!(database.sql("postgres", left).trim(), "0");
}
