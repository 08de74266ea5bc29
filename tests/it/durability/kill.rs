//! SIGKILL at a random moment of a burst of 64 connections.
//!
//! `NOUNS_SOAK=1` kills a thousand times in place of twenty.
//! `NOUNS_SEED` repeats the choices of a run, though not those of the scheduler.
//! A database is killed five times before a new one begins, so that recovery also runs on a recovered
//! database.

use std::fs::File;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::ledger::{Burst, Ledger};
use super::leftover_database::{LeftoverDatabase, copy_folder};
use super::seeded_random::{SeededRandom, print_seed};
use super::serving::{VerdictTotals, judge_running_server, setup, start};
use super::trace::{Injection, SYNC, WAL};
use crate::harness::{Folder, Server, is_soak, wait_until};

const KILLS_OF_ONE_DATABASE: usize = 5;
/// A round is mostly waiting.
const DATABASES_AT_ONCE: usize = 4;

fn kills() -> usize {
    if is_soak() { 1_000 } else { 20 }
}

/// Kills the server after a random number of responses, and a random bit later.
fn kill_in_a_burst(server: Server, ledger: &mut Ledger, chance: &mut SeededRandom) -> Folder {
    let answered = &AtomicUsize::new(0);
    let (answers, turns) = (chance.below(900), chance.below(20_000));
    let burst = Burst { address: server.address, requests_each_max: usize::MAX, answered };
    thread::scope(|scope| {
        scope.spawn(|| ledger.run_burst(&burst));
        wait_until("the burst is under way", || {
            (answered.load(Ordering::Relaxed) >= answers).then_some(())
        });
        for _ in 0..turns {
            std::hint::spin_loop();
        }
        server.kill()
    })
}

/// Kills one database five times, each time after its recovery. Its number determines its choices.
fn kill_one_database(seed: u64, number: usize, figures: &Mutex<VerdictTotals>) {
    let mut chance = SeededRandom::new(seed.wrapping_add(u64::try_from(number).unwrap()));
    let mut ledger = Ledger::new(chance.next());
    let mut server = start(Folder::new());
    for kill in 1..=KILLS_OF_ONE_DATABASE {
        let of = format!("NOUNS_SEED={seed}, kill {kill} of database {number}");
        server = start(kill_in_a_burst(server, &mut ledger, &mut chance));
        let verdict = judge_running_server(&server, &mut ledger, &of);
        assert_eq!(verdict.unavailable, 0, "{of}: nothing is wrong with the storage");
        let mut figures = figures.lock().unwrap();
        let is_last = kill == KILLS_OF_ONE_DATABASE;
        if is_last { figures.add(&verdict) } else { figures.add_open(&verdict) }
    }
}

#[test]
fn kill_at_a_random_moment_loses_nothing() {
    let (seed, figures) = (print_seed("kill"), &Mutex::new(VerdictTotals::default()));
    let (next, count) = (&AtomicUsize::new(0), kills() / KILLS_OF_ONE_DATABASE);
    thread::scope(|scope| {
        for _ in 0..DATABASES_AT_ONCE {
            scope.spawn(move || {
                let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                for number in numbers.take_while(|number| *number < count) {
                    kill_one_database(seed, number, figures);
                }
            });
        }
    });
    println!("kill: {}", figures.lock().unwrap());
}

/// Kills the server once there was no response for a while, because it waits for its disk.
fn kill_when_silent(server: Server, ledger: &mut Ledger) -> Folder {
    let answered = &AtomicUsize::new(0);
    let burst = Burst { address: server.address, requests_each_max: usize::MAX, answered };
    thread::scope(|scope| {
        scope.spawn(|| ledger.run_burst(&burst));
        let mut last = (0, Instant::now());
        wait_until("no answer comes", || {
            let count = answered.load(Ordering::Relaxed);
            if count != last.0 {
                last = (count, Instant::now());
            }
            (last.1.elapsed() > Duration::from_millis(150)).then_some(())
        });
        server.kill()
    })
}

/// The n-th sync does not begin: a response that did not wait for it has all the time to arrive. The
/// WAL is then truncated to its synced part, so that data that was only written does not pass for
/// synced.
#[test]
fn responses_to_writes_wait_for_their_sync() {
    let numbers: Vec<usize> = if is_soak() { (3..23).collect() } else { vec![3, 8] };
    let left = LeftoverDatabase::empty();
    let mut figures = VerdictTotals::default();
    for number in numbers {
        let when = number.to_string();
        let injection = Injection { calls: SYNC, files: WAL, effect: "delay_enter=2s", when };
        let of = format!("{}, {injection:?}", left.seed_text);
        let mut ledger = left.ledger.clone();
        let folder = copy_folder(left.folder.path());
        let server = injection.set_up(setup(), &folder).start_in(folder);
        let folder = kill_when_silent(server, &mut ledger);
        let log = File::options().write(true).open(folder.path().join("nouns.db-wal")).unwrap();
        log.set_len(Injection::log_bytes_synced(folder.path())).unwrap();
        figures.add(&judge_running_server(&start(folder), &mut ledger, &of));
    }
    println!("held syncs: {figures}");
}
