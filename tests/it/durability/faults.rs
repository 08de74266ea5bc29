//! Disk errors: every write that was answered with success is there after a kill, no refused one is,
//! and the log says what happened.
//!
//! `NOUNS_SOAK=1` fails many more calls than the few of `./test --all`.
//! With strace, a call fails instead of being made, as on a disk that writes nothing;
//! `partial_writes.rs` tests partial writes.

use super::judge::JudgeVerdict;
use super::ledger::Ledger;
use super::leftover_database::{LeftoverDatabase, copy_folder};
use super::serving::{VerdictTotals, judge_running_server, run_burst, setup, start};
use super::trace::{ANY, DATABASE, Injection, SYNC, WAL};
use crate::harness::{Folder, Server, is_soak, run_nouns, wait_until};

const WRITING_STOPPED_MESSAGE: &str =
    "the writer has stopped; reads continue; check the disk and restart the server";

/// The effect of a fault on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultEffect {
    /// Writes are refused until the fault is gone.
    RefusesWrites,
    /// The state of the disk is unknown: the server stops writing.
    StopsWriting,
}

/// Runs a burst with a fault, checks the server's state, kills it, and judges the database.
fn fail_in_a_burst(
    left: &LeftoverDatabase,
    injection: &Injection<'_>,
    requests_each: usize,
    then: FaultEffect,
) -> JudgeVerdict {
    let of = format!("{}, {injection:?}", left.seed_text);
    let mut ledger = left.ledger.clone();
    let folder = copy_folder(left.folder.path());
    let server = injection.set_up(setup(), &folder).start_in(folder);
    run_burst(&server, &mut ledger, requests_each);
    match then {
        FaultEffect::StopsWriting => check_writing_stopped(&server, &of),
        FaultEffect::RefusesWrites => check_writing_resumes(&server, injection, &of),
    }
    let server = start(server.kill());
    let verdict = judge_running_server(&server, &mut ledger, &of);
    assert!(verdict.unavailable + verdict.open.len() > 0, "{of}: the fault was not met");
    if then == FaultEffect::RefusesWrites {
        assert_eq!(verdict.open.len(), 0, "{of}: nobody was left without an answer");
    }
    // The database that is left works without restriction.
    run_burst(&server, &mut ledger, 1);
    let after = judge_running_server(&server, &mut ledger, &of);
    assert_eq!(after.open.len(), 0, "{of}: {after:?}");
    verdict
}

fn post(server: &Server) -> (u16, Option<String>) {
    // Not in the ledger: it must not be stored, and the judge would report an unknown owner.
    let answer = server.post("/customers", r#"{"customer":{"name":"x","email":"x@example.com"}}"#);
    (answer.status, (answer.status >= 400).then(|| answer.problem()))
}

pub fn check_writing_stopped(server: &Server, of: &str) {
    assert_eq!(post(server), (503, Some("unavailable".to_owned())), "{of}");
    assert_eq!(server.get("/-/ready").problem(), "unavailable", "{of}");
    assert_eq!(
        (server.get("/-/health").status, server.get("/customers").status),
        (200, 200),
        "{of}"
    );
    let metrics = server.get("/-/metrics");
    assert!(metrics.text().contains("\nnouns_sqlite_writes_stopped 1\n"), "{of}: {metrics:?}");
    wait_until("the log says that writing has stopped", || {
        server.log().contains(WRITING_STOPPED_MESSAGE).then_some(())
    });
}

fn check_writing_resumes(server: &Server, injection: &Injection<'_>, of: &str) {
    assert_eq!(server.get("/-/ready").status, 200, "{of}");
    wait_until("the log has the cause", || {
        server.log().contains("database or disk is full").then_some(())
    });
    assert!(!server.log().contains(WRITING_STOPPED_MESSAGE), "{of}");
    if injection.when.ends_with('+') {
        assert_eq!(post(server), (503, Some("unavailable".to_owned())), "{of}");
    }
}

/// The n-th call fails, or it and all that follow.
fn fail_at_each_call(
    left: &LeftoverDatabase,
    calls: &str,
    files: &[&str],
    cases: &[(&str, FaultEffect)],
    numbers: &[usize],
) {
    for (error, then) in cases {
        let mut figures = VerdictTotals::default();
        let what = format!("error={error}");
        for number in numbers {
            for when in [number.to_string(), format!("{number}+")] {
                let injection = Injection { calls, files, effect: &what, when };
                // A connection has at most one request in a commit, and a commit has at least two
                // writes.
                let requests_each = 8 + if calls == SYNC { 2 * number } else { number / 2 };
                figures.add(&fail_in_a_burst(left, &injection, requests_each, *then));
            }
        }
        println!("{calls} {files:?} {error}: {figures}");
    }
}

/// From the tenth on: a start has some of its own, which the tests below cover.
#[test]
fn wal_write_error_loses_no_answered_write() {
    let numbers = if is_soak() { (10..160).step_by(6).collect() } else { vec![21] };
    let cases = [("EIO", FaultEffect::StopsWriting), ("ENOSPC", FaultEffect::RefusesWrites)];
    fail_at_each_call(&LeftoverDatabase::empty(), "pwrite64", WAL, &cases, &numbers);
}

/// ENOSPC as well: a file system with delayed allocation may have lost some of the data.
#[test]
fn wal_sync_error_stops_writing() {
    let numbers = if is_soak() { (3..23).collect() } else { vec![4] };
    let cases = [("EIO", FaultEffect::StopsWriting), ("ENOSPC", FaultEffect::StopsWriting)];
    fail_at_each_call(&LeftoverDatabase::empty(), SYNC, WAL, &cases, &numbers);
}

/// A checkpoint answers no request, but its failure must still be noticed.
#[test]
fn checkpoint_sync_error_stops_writing() {
    // A start on a WAL with frames makes a checkpoint, which
    // `start_with_failing_nth_call_fails_or_recovers` tests.
    let left = LeftoverDatabase::empty();
    let injection =
        Injection { calls: SYNC, files: DATABASE, effect: "error=EIO", when: "1".to_owned() };
    let mut ledger = left.ledger.clone();
    let folder = copy_folder(left.folder.path());
    let server = injection.set_up(setup(), &folder).start_in(folder);
    wait_until("a checkpoint fails", || {
        run_burst(&server, &mut ledger, 1);
        server.log().contains(WRITING_STOPPED_MESSAGE).then_some(())
    });
    check_writing_stopped(&server, &left.seed_text);
    // A command could let the WAL begin again, with frames that are lost.
    let refused = run_nouns(server.folder(), &["user", "disable", "admin"]);
    let message = "nouns: the server that uses nouns.db has stopped writing after a failure of the disk; check the \
                   disk, and restart the server first\n";
    assert_eq!((refused.code, &*refused.stderr), (Some(2), message));
    // A checkpoint at its end could copy less than all frames, and delete them.
    server.terminate();
    let (_, folder) = server.wait();
    let wal = folder.path().join("nouns.db-wal").metadata();
    assert!(wal.is_ok_and(|wal| wal.len() > 0), "the next start needs the WAL");
    let server = start(folder);
    let verdict = judge_running_server(&server, &mut ledger, &left.seed_text);
    assert!(verdict.open.is_empty(), "a checkpoint comes after the answers: {verdict:?}");
    run_burst(&server, &mut ledger, 1);
    judge_running_server(&server, &mut ledger, &left.seed_text);
}

/// A start with a disk error fails with a message, or recovers; the next one serves.
fn fail_in_a_start(from: Option<&LeftoverDatabase>, calls: &str, error: &str) -> (usize, usize) {
    let stride = if is_soak() || calls != "pwrite64" { 1 } else { 6 };
    let mut borne = 0;
    for number in (1..).step_by(stride) {
        let what = format!("error={error}");
        let injection = Injection { calls, files: ANY, effect: &what, when: number.to_string() };
        let of = format!("{injection:?}");
        let mut ledger = from.map_or_else(|| Ledger::new(0), |left| left.ledger.clone());
        let folder = from.map_or_else(Folder::new, |left| copy_folder(left.folder.path()));
        let folder = match injection.set_up(setup(), &folder).try_start_in(folder) {
            Ok(server) => {
                let Some(met) = Injection::failed_call(server.folder()) else {
                    return (number, borne);
                };
                // SQLite ignores the result of a folder's sync.
                assert!(
                    met.contains(&format!("<{}>", server.folder().display())),
                    "{of}, on {}: {met}\n{}",
                    if from.is_some() { "recovery" } else { "first start" },
                    server.log()
                );
                borne += 1;
                server.kill()
            }
            Err((ended, folder)) => {
                assert_eq!(ended.code, Some(2), "{of}: {ended:?}");
                let says = ["check the disk", "free some space", "check that the disk has space"];
                assert!(says.iter().any(|says| ended.stderr.contains(says)), "{of}: {ended:?}");
                folder
            }
        };
        let server = start(folder);
        judge_running_server(&server, &mut ledger, &of);
        run_burst(&server, &mut ledger, 1);
        judge_running_server(&server, &mut ledger, &of);
    }
    unreachable!("a start has an end");
}

#[test]
fn start_with_failing_nth_call_fails_or_recovers() {
    const FEW: [(&str, &str); 3] = [(SYNC, "EIO"), ("pwrite64", "ENOSPC"), ("ftruncate", "EIO")];
    const REST: [(&str, &str); 3] =
        [(SYNC, "ENOSPC"), ("pwrite64", "EIO"), ("ftruncate", "ENOSPC")];
    let left = LeftoverDatabase::grown();
    let rest = if is_soak() { REST.as_slice() } else { &[] };
    for (calls, error) in FEW.iter().chain(rest) {
        for from in [None, Some(&left)] {
            let (number, borne) = fail_in_a_start(from, calls, error);
            let on = if from.is_some() { "recovery" } else { "first start" };
            println!(
                "{on}: has fewer than {number} {calls}; got over {borne} that failed with {error}"
            );
        }
    }
}

/// The last checkpoint fails: the WAL stays, and with it every answered write.
#[test]
fn shutdown_with_failing_checkpoint_loses_nothing() {
    let left = LeftoverDatabase::empty();
    for calls in ["pwrite64", SYNC, "ftruncate"] {
        for error in ["error=EIO", "error=ENOSPC"] {
            let injection =
                Injection { calls, files: DATABASE, effect: error, when: "1+".to_owned() };
            let of = format!("{}, {injection:?}", left.seed_text);
            let mut ledger = left.ledger.clone();
            let server = start(copy_folder(left.folder.path()));
            run_burst(&server, &mut ledger, 1);
            let _tracer = injection.attach(&server);
            server.terminate();
            let (status, folder) = server.wait();
            assert_eq!(status.code(), Some(0), "{of}");
            judge_running_server(&start(folder), &mut ledger, &of);
        }
    }
}
