//! Kills at the n-th write or sync of the server: while it creates its tables, while it recovers, in
//! the middle of a burst, in a checkpoint, and while it stops.
//!
//! `NOUNS_SOAK=1` tests every n up to the limit of each test (at a shutdown, every fifth write);
//! without it a sample.
//! The kill comes as the call begins, so the n-th write itself is not done; n + 1 tests the state in
//! which it is done.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::judge::JudgeVerdict;
use super::ledger::{CONNECTIONS, Ledger};
use super::leftover_database::{LeftoverDatabase, copy_folder};
use super::serving::{VerdictTotals, judge_running_server, run_burst, setup, start};
use super::trace::{ANY, BOTH, CHANGES, DATABASE, Injection, SYNC};
use crate::harness::{Folder, Server, is_soak};

const KILL: &str = "signal=SIGKILL";
/// A server that is still alive after this many requests will not be killed.
const REQUESTS_EACH_MAX: usize = 1_500;

/// Every number up to the end, or a few of them.
fn numbers(end: usize, few: &[usize]) -> Vec<usize> {
    if is_soak() { (1..=end).collect() } else { few.to_vec() }
}

fn kill_at<'a>(calls: &'a str, files: &'a [&'a str], number: usize) -> Injection<'a> {
    Injection { calls, files, effect: KILL, when: number.to_string() }
}

/// Starts a server with a planted kill; a start that was killed returns its folder.
fn start_with_planted_kill(folder: Folder, injection: &Injection<'_>) -> Result<Server, Folder> {
    let setup = injection.set_up(setup(), &folder);
    setup.try_start_in(folder).map_err(|(ended, folder)| {
        assert_eq!((ended.code, ended.stderr.as_str()), (None, ""), "{injection:?}: {ended:?}");
        folder
    })
}

/// The tables are created in one transaction: the next start finds all of them or none, and serves.
#[test]
fn kill_during_the_first_start_next_start_serves() {
    for calls in CHANGES {
        let mut number = 0;
        let reached = loop {
            number += if is_soak() || calls != "pwrite64" { 1 } else { 5 };
            let injection = kill_at(calls, ANY, number);
            let Err(folder) = start_with_planted_kill(Folder::new(), &injection) else {
                break number;
            };
            let server = start(folder);
            let mut ledger = Ledger::new(0);
            let verdict = judge_running_server(&server, &mut ledger, &format!("{injection:?}"));
            assert_eq!(verdict.answered, 0);
            run_burst(&server, &mut ledger, 1);
            judge_running_server(&server, &mut ledger, &format!("after {injection:?}"));
        };
        println!("first start: serves before {calls} number {reached}");
        // A new database needs at least that many calls.
        let least = if calls == "pwrite64" || calls == SYNC { 5 } else { 1 };
        assert!(reached > least, "{calls} was not reached: has the store another call for it?");
    }
}

/// A start that finds a WAL, as a kill leaves it.
#[test]
fn kill_during_recovery_loses_nothing() {
    let left = LeftoverDatabase::grown();
    for calls in CHANGES {
        let mut number = 0;
        loop {
            number += if is_soak() || calls != "pwrite64" { 1 } else { 5 };
            let injection = kill_at(calls, ANY, number);
            let Err(folder) = start_with_planted_kill(copy_folder(left.folder.path()), &injection)
            else {
                break;
            };
            judge_running_server(
                &start(folder),
                &mut left.ledger.clone(),
                &format!("{}, {injection:?}", left.seed_text),
            );
        }
        println!("recovery: serves before {calls} number {number}");
        assert!(number > 1 || calls == "unlink" || calls == "ftruncate", "{calls} was not reached");
    }
}

/// Kills at this number of one call, in a burst on a copy of the leftover database.
fn kill_in_a_burst(
    injection: &Injection<'_>,
    left: &LeftoverDatabase,
    connections: usize,
) -> JudgeVerdict {
    let of = format!("{}, {injection:?}", left.seed_text);
    let mut ledger = left.ledger.clone().limit_connections(connections);
    let folder = match start_with_planted_kill(copy_folder(left.folder.path()), injection) {
        Err(folder) => folder,
        Ok(server) => {
            run_burst(&server, &mut ledger, REQUESTS_EACH_MAX);
            let (status, folder) = server.wait();
            assert_eq!(status.code(), None, "{of}: it ended by itself: {status}");
            folder
        }
    };
    judge_running_server(&start(folder), &mut ledger, &of)
}

/// Kills at each of these numbers, some of them concurrently: a round is mostly waiting.
fn kill_in_bursts(calls: &str, files: &[&str], numbers: &[usize], left: &LeftoverDatabase) {
    let (figures, next) = (&Mutex::new(VerdictTotals::default()), &AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..if is_soak() { 6 } else { 2 } {
            scope.spawn(|| {
                while let Some(number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // This many syncs of 64 connections would take minutes with a tracer at every call.
                    let connections = if calls == SYNC && *number > 60 { 8 } else { CONNECTIONS };
                    let injection = kill_at(calls, files, *number);
                    let verdict = kill_in_a_burst(&injection, left, connections);
                    figures.lock().unwrap().add(&verdict);
                }
            });
        }
    });
    println!("{calls} {files:?} up to {:?}: {}", numbers.last(), figures.lock().unwrap());
}

#[test]
fn kill_at_the_nth_write_loses_nothing() {
    kill_in_bursts(
        "pwrite64",
        BOTH,
        &numbers(300, &[1, 3, 9, 40, 120, 271]),
        &LeftoverDatabase::empty(),
    );
}

#[test]
fn kill_at_the_nth_sync_loses_nothing() {
    kill_in_bursts(SYNC, BOTH, &numbers(300, &[1, 2, 5, 19, 60]), &LeftoverDatabase::empty());
}

/// Only checkpoints write the database file itself.
#[test]
fn kill_at_the_nth_write_of_a_checkpoint_loses_nothing() {
    kill_in_bursts("pwrite64", DATABASE, &numbers(300, &[1, 20, 170]), &LeftoverDatabase::empty());
}

#[test]
fn kill_at_the_nth_sync_of_a_checkpoint_loses_nothing() {
    kill_in_bursts(SYNC, DATABASE, &numbers(8, &[1, 2]), &LeftoverDatabase::empty());
}

/// SIGTERM, and a kill in the last checkpoint: every answered write is in the WAL or in the database.
#[test]
fn kill_at_the_end_of_a_graceful_shutdown_loses_nothing() {
    let left = LeftoverDatabase::empty();
    for calls in CHANGES {
        let mut number = 0;
        let reached = loop {
            number += if calls != "pwrite64" {
                1
            } else if is_soak() {
                5
            } else {
                60
            };
            let injection = kill_at(calls, ANY, number);
            let mut ledger = left.ledger.clone();
            let server = start(copy_folder(left.folder.path()));
            run_burst(&server, &mut ledger, 2);
            let _tracer = injection.attach(&server);
            server.terminate();
            let (status, folder) = server.wait();
            judge_running_server(
                &start(folder),
                &mut ledger,
                &format!("{}, {injection:?}", left.seed_text),
            );
            if status.code() == Some(0) {
                break number;
            }
        };
        println!("stop: ends before {calls} number {reached}");
        assert!(reached > 1, "{calls} was not reached: has the store another call for it?");
    }
}
