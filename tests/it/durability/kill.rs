//! kill -9 at a random moment of a burst of 64 connections.
//!
//! `NOUNS_SOAK=1` kills a thousand times in place of twenty.
//! The one surprising thing: a database is killed five times before a new one begins, so that what
//! recovers is also what was recovered.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::chance::{Chance, seed};
use super::ledger::{Burst, Ledger};
use super::serving::{Figures, check, start};
use crate::harness::{Folder, Server, wait_until};

const KILLS_OF_ONE_DATABASE: usize = 5;

fn kills() -> usize {
    if std::env::var_os("NOUNS_SOAK").is_some() { 1_000 } else { 20 }
}

/// Kills the server after a random number of answers, and a random bit later.
fn kill_in_a_burst(server: Server, ledger: &mut Ledger, chance: &mut Chance) -> Folder {
    let answered = &AtomicUsize::new(0);
    let (answers, turns) = (chance.below(900), chance.below(20_000));
    let burst = Burst { address: server.address, requests_each_max: usize::MAX, answered };
    thread::scope(|scope| {
        scope.spawn(|| ledger.burst(&burst));
        wait_until("the burst is under way", || {
            (answered.load(Ordering::Relaxed) >= answers).then_some(())
        });
        for _ in 0..turns {
            std::hint::spin_loop();
        }
        server.kill()
    })
}

#[test]
fn a_kill_at_a_random_moment_loses_nothing() {
    let seed = seed("kill");
    let mut chance = Chance::new(seed);
    let mut figures = Figures::default();
    let mut kills_left = kills();
    while kills_left > 0 {
        let mut ledger = Ledger::new(chance.next());
        let mut server = start(Folder::new());
        for kill in 0..KILLS_OF_ONE_DATABASE.min(kills_left) {
            let of = format!("NOUNS_SEED={seed}, kill {} of one database", kill + 1);
            server = start(kill_in_a_burst(server, &mut ledger, &mut chance));
            let verdict = check(&server, &mut ledger, &of);
            assert_eq!(verdict.unavailable, 0, "{of}: nothing is wrong with the storage");
            let is_last = kill + 1 == KILLS_OF_ONE_DATABASE.min(kills_left);
            if is_last { figures.add(&verdict) } else { figures.add_open(&verdict) }
        }
        kills_left -= KILLS_OF_ONE_DATABASE.min(kills_left);
    }
    println!("kill: {figures}");
}
