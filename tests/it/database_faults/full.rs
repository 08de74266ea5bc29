//! A full disk of PostgreSQL.
//!
//! The disk is a small tmpfs in a mount namespace of PostgreSQL's own, with one table on it: PostgreSQL
//! panics when the disk of its WAL is full, which is a different case.
//! SQL fills and empties the disk, since no other process sees it.

use super::session::PostgresSession;
use super::{model, postgres_address};
use crate::harness::{Folder, OwnPostgres, Setup, wait_until};

/// Mounts over the folder `$1` and runs the rest. Root may mount directly; other users keep their id,
/// since PostgreSQL does not run as root.
const ON_A_SMALL_DISK: &str = r#"
    if unshare --mount true 2>/dev/null; then own=; else own='--map-current-user --keep-caps'; fi
    exec unshare $own --mount sh -ec 'mount -t tmpfs -o size=1m,mode=0777 none "$1"; shift; exec "$@"' sh "$@"
"#;

#[test]
fn disk_full_refuses_writes_and_serves_reads() {
    let folder = Folder::new();
    let disk = folder.path().display().to_string();
    let database = OwnPostgres::start_under(&["sh", "-ec", ON_A_SMALL_DISK, "sh", &disk]);
    let server = Setup::replica(database.database_url("postgres")).model(&model("")).start();
    let mut session = PostgresSession::open(postgres_address(&database), "postgres");
    run_in_namespace(&mut session, &format!("mkdir -m 700 {disk}/space"));
    session.rows(&format!("CREATE TABLESPACE small LOCATION '{disk}/space'"));
    session.rows("ALTER TABLE people SET TABLESPACE small");

    let body = format!(r#"{{"person":{{"name":"{}"}}}}"#, "x".repeat(4000));
    let path = server.create("/people", &body);
    let mut done = 1;
    for _ in 0..3 {
        // It fails when the disk is full.
        run_in_namespace(
            &mut session,
            &format!("cat /dev/zero >{disk}/filler 2>/dev/null || true"),
        );
        // The last page may have some room left.
        let answer = wait_until("the disk is full", || {
            let answer = server.post("/people", &body);
            done += usize::from(answer.status == 201);
            (answer.status != 201).then_some(answer)
        });
        assert_eq!((answer.status, answer.problem().as_str()), (503, "unavailable"), "{answer:?}");
        assert!(answer.header("Retry-After").is_some(), "{answer:?}");
        assert_eq!(server.get(&path).status, 200);
        run_in_namespace(&mut session, &format!("rm {disk}/filler"));
        server.create("/people", &body);
        done += 1;
    }
    let stored = session.value("SELECT count(*) FROM people");
    assert_eq!(stored, done.to_string());
    assert_eq!(session.value("SELECT count(*) FROM nouns_changes"), stored);
}

/// Runs a command in PostgreSQL's namespace. The command gets the rows on its standard input, and
/// ignores them.
fn run_in_namespace(session: &mut PostgresSession, line: &str) {
    session.rows(&format!("COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; {line}'"));
}
