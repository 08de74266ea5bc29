//! Power-loss simulation: the server's system calls are traced while it works, and its files are
//! reconstructed as a power cut at each point of the trace could leave them.
//!
//! `strace.rs` parses the trace, `run.rs` records one, `disk.rs` is a disk that loses unsynced data,
//! and `replay.rs` judges each state by the ledger of what had been answered.
//! All of it is about the files of SQLite, so nothing here runs on every backend.
//! `NOUNS_SOAK=1` runs 516 requests and judges every state in place of 120 and a sample.

mod disk;
mod disk_tests;
mod without_commit_syncs;
mod replay;
mod run;
mod state_folder;
mod sectors;
mod restart;
mod strace;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::durability::seeded_random::{self, SeededRandom};
use crate::harness::is_soak;
use replay::{ReplayEffort, ReplayFigures, replay};
use run::{InitialState, RecordedRun, RunParameters, SyncBehaviour};
use strace::TracedCall;

/// The short version, or the long one.
fn effort(seed: u64) -> ReplayEffort {
    let short = ReplayEffort {
        seed,
        choices: 2,
        left_out_max: 8,
        one_of: 40,
        served_one_of: 50,
        threads: 2,
    };
    let long = ReplayEffort { left_out_max: 12, one_of: 1, served_one_of: 500, ..short };
    if is_soak() { long } else { short }
}

/// Some of the states, where it is enough to find that there are losses. Where little is synced, each
/// state is more work.
fn sampled_effort(seed: u64) -> ReplayEffort {
    ReplayEffort { one_of: 50, served_one_of: 0, ..effort(seed) }
}

fn record_run(work: RunParameters) -> RecordedRun {
    let began = Instant::now();
    let run = RecordedRun::record(work);
    let (checkpoints, restarts) = without_commit_syncs::checkpoints_and_restarts(&run.log);
    println!(
        "{} requests, {} calls, {checkpoints} checkpoints, {restarts} beginnings of the log file, {:?}",
        run.requests(),
        run.log.calls.len(),
        began.elapsed()
    );
    run
}

fn print_figures(of: &str, figures: &ReplayFigures, began: Instant) {
    println!("{of}: {figures}; {:?}", began.elapsed());
}

/// No answered write is lost, and nothing is damaged, at whatever point the power fails. The same
/// states without the syncs of commits do lose some: the test can fail.
#[test]
fn power_cut_loses_no_answered_write() {
    let seed = seeded_random::print_seed("power cuts");
    let requests_each = if is_soak() { 43 } else { 10 };
    let (begin, syncs) = (InitialState::GROWN, SyncBehaviour::Done);
    let run = record_run(RunParameters {
        seed,
        initial_state: begin,
        connections: 4,
        requests_each,
        syncs,
    });
    let (checkpoints, restarts) = without_commit_syncs::checkpoints_and_restarts(&run.log);
    assert!(checkpoints >= 2 && restarts >= 2, "{checkpoints} {restarts}");
    let began = Instant::now();
    let figures = replay(&run, &run.log.steps, effort(seed));
    print_figures("every commit synced", &figures, began);
    assert_eq!((figures.with_losses, figures.damaged), (0, 0), "{:#?}", figures.examples);
    assert!(figures.served > 0);

    let began = Instant::now();
    let figures = replay(
        &run,
        &without_commit_syncs::steps_without_commit_syncs(&run.log),
        sampled_effort(seed),
    );
    print_figures("as with synchronous=NORMAL", &figures, began);
    assert!(figures.with_losses > 0);
    assert_eq!(figures.damaged, 0, "{:#?}", figures.examples);
}

/// The simulation finds the losses of a disk that claims to have synced and has not.
#[test]
fn power_cut_with_a_lying_disk_loses_answered_writes() {
    let seed = seeded_random::print_seed("syncs left out");
    let (begin, syncs) = (InitialState::GROWN, SyncBehaviour::Skipped);
    let run = record_run(RunParameters {
        seed,
        initial_state: begin,
        connections: 4,
        requests_each: 6,
        syncs,
    });
    let began = Instant::now();
    let figures = replay(&run, &run.log.steps, sampled_effort(seed));
    print_figures("no sync done", &figures, began);
    assert!(run.log.syncs_left_out > 0 && figures.with_losses > 0);
}

/// At whatever point the power fails while the first server creates its database, the next one finds a
/// usable folder, and every answered write.
#[test]
fn power_cut_during_the_first_start_leaves_a_usable_folder() {
    let seed = seeded_random::print_seed("first start");
    let (begin, syncs) = (InitialState::Nothing, SyncBehaviour::Done);
    let run = record_run(RunParameters {
        seed,
        initial_state: begin,
        connections: 1,
        requests_each: 2,
        syncs,
    });
    let began = Instant::now();
    let served_one_of = if is_soak() { 1 } else { 16 };
    let effort = ReplayEffort { one_of: 1, served_one_of, ..effort(seed) };
    let figures = replay(&run, &run.log.steps, effort);
    print_figures("first start", &figures, began);
    assert_eq!((figures.with_losses, figures.damaged), (0, 0), "{:#?}", figures.examples);
    assert!(figures.served > 0);
}

/// A sync of the WAL fails, the server is killed, and the next one continues: its responses, and what
/// it shows of the failed commit, survive a power cut although the disk never got the pages of the
/// failed sync. `NOUNS_SOAK=1` runs it 1,000 times.
#[test]
fn power_cut_after_a_failed_sync_and_restart_loses_nothing() {
    let seed = seeded_random::print_seed("failed syncs");
    let runs = if is_soak() { 1_000 } else { 6 };
    let (next, sum) = (AtomicUsize::new(0), Mutex::new(ReplayFigures::default()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        // A run is mostly waiting.
        for _ in 0..if is_soak() { 8 } else { 2 } {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        return;
                    }
                    let figures = fail_one_sync(seed.wrapping_add(number as u64), number);
                    let mut sum = sum.lock().unwrap();
                    sum.sum(figures);
                    if number % 50 == 49 {
                        print_figures(&format!("{} runs", number + 1), &sum, began);
                    }
                }
            });
        }
    });
    let figures = sum.into_inner().unwrap();
    print_figures(&format!("{runs} runs with a failed sync"), &figures, began);
    assert_eq!((figures.with_losses, figures.damaged), (0, 0), "{:#?}", figures.examples);
}

/// One run in twenty has a WAL that is soon checkpointed, so that the sync of a checkpoint may be the
/// one that fails.
fn fail_one_sync(seed: u64, number: usize) -> ReplayFigures {
    let mut chance = SeededRandom::new(seed);
    let is_grown = number % 20 == 5;
    let begin = if is_grown { InitialState::GROWN } else { InitialState::Running { log_bytes: 0 } };
    let (requests_each, syncs) = match is_grown {
        true => (24, 1 + chance.below(16)),
        false => (8, 1 + chance.below(5)),
    };
    let syncs = SyncBehaviour::Fails(syncs);
    let run = RecordedRun::record(RunParameters {
        seed,
        initial_state: begin,
        connections: 4,
        requests_each,
        syncs,
    });
    let failed =
        run.log.calls.iter().filter(|call| matches!(call, TracedCall::SyncFailed(_))).count();
    assert_eq!(failed, 1, "the fault was not met");
    let one_of = if is_grown { 400 } else { 50 };
    replay(
        &run,
        &run.log.steps,
        ReplayEffort { one_of, served_one_of: 300, threads: 1, ..effort(seed) },
    )
}
