//! A disk that is slow to sync: responses to writes are late and right, everything else is unaffected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::ledger::Ledger;
use super::leftover_database::{LeftoverDatabase, copy_folder};
use super::serving::{judge_running_server, run_burst, setup, start};
use super::trace::{Injection, SYNC, WAL};
use crate::harness::{Server, Stopwatch, wait_until};

fn start_with_delay(left: &LeftoverDatabase, what: &str, when: &str) -> Server {
    let injection = Injection { calls: SYNC, files: WAL, effect: what, when: when.to_owned() };
    let folder = copy_folder(left.folder.path());
    injection.set_up(setup(), &folder).start_in(folder)
}

const DELAY: Duration = Duration::from_secs(2);

/// Reads while a write waits for its sync: how many were answered before the write, and the longest.
fn read_during_a_write(server: &Server, path: &str, name: &str) -> (usize, Duration) {
    let (mut reader, mut writer) = (server.client(), server.client());
    let is_answered = &AtomicBool::new(false);
    thread::scope(|scope| {
        let written = scope.spawn(|| {
            let began = Instant::now();
            let body = format!(r#"{{"customer":{{"name":"{name}","email":"a@example.com"}}}}"#);
            let answer = writer.request(&format!("PUT {path}"), &[], body);
            is_answered.store(true, Ordering::Release);
            (answer.status, began.elapsed())
        });
        wait_until("the write is under way", || {
            let is_under_way = server.metric::<u64>("nouns_requests_in_flight") > Some(0);
            (is_under_way || is_answered.load(Ordering::Acquire)).then_some(())
        });
        let (mut reads, mut longest) = (0, Duration::ZERO);
        while !written.is_finished() {
            for path in ["/-/health", "/-/ready", path] {
                let began = Stopwatch::start();
                let answer = reader.request(&format!("GET {path}"), &[], "");
                assert_eq!(answer.status, 200, "{answer:?}");
                longest = longest.max(began.elapsed());
                reads += usize::from(!is_answered.load(Ordering::Acquire));
            }
        }
        let (status, took) = written.join().unwrap();
        println!(
            "slow sync: a write took {took:?}; {reads} reads meanwhile, the longest {longest:?}"
        );
        assert!(status == 200 && took >= DELAY, "{status} after {took:?}");
        (reads, longest)
    })
}

/// Every sync but the first begins two seconds late: no write is answered sooner, and no read waits for it.
#[test]
fn slow_sync_delays_writes_but_not_reads() {
    let server = start_with_delay(&LeftoverDatabase::empty(), "delay_enter=2s", "2+");
    let path = server.create("/customers", r#"{"customer":{"name":"a","email":"a@example.com"}}"#);
    // A busy machine may delay a read as long as a sync, now and then. One that waits for syncs is delayed each time.
    let is_seen = ["b", "c", "d", "e", "f"].iter().any(|name| {
        let (reads, longest) = read_during_a_write(&server, &path, name);
        reads >= 6 && longest < DELAY / 2
    });
    assert!(is_seen, "reads waited while writes did");
}

/// A burst while every sync takes 50 ms more, before or after it is done, and a kill.
#[test]
fn slow_sync_and_kill_in_a_burst_lose_nothing() {
    let left = LeftoverDatabase::empty();
    for what in ["delay_enter=50ms", "delay_exit=50ms"] {
        let mut ledger: Ledger = left.ledger.clone();
        let server = start_with_delay(&left, what, "1+");
        run_burst(&server, &mut ledger, 8);
        assert_eq!(ledger.count_responses(503), 0, "{what}");
        let verdict = judge_running_server(&start(server.kill()), &mut ledger, what);
        assert!(verdict.answered > 64 && verdict.open.is_empty(), "{what}: {verdict:?}");
    }
}
