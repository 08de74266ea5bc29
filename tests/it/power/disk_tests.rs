//! Tests of the simulated disk: which data survives, and that its hashes distinguish states.

use std::collections::HashMap;

use super::disk::{SimulatedDisk, Survivors};
use super::strace::{TraceStep, TracedCall};
use crate::durability::seeded_random::SeededRandom;

const NAME: &str = "nouns.db";

fn write(offset: usize, bytes: &[u8]) -> TracedCall {
    TracedCall::Write { file: NAME.to_owned(), offset, bytes: bytes.to_vec() }
}

fn sync() -> TracedCall {
    TracedCall::Sync(NAME.to_owned())
}

/// A disk after these calls, one after the other, the last `open` of them not ended.
fn disk_after(calls: &[TracedCall], open: usize) -> SimulatedDisk {
    let mut disk = SimulatedDisk::new([(NAME.to_owned(), b"old".to_vec())]);
    for number in 0..calls.len() {
        disk.apply_step(TraceStep::Begin(number), calls);
        if number + open < calls.len() {
            disk.apply_step(TraceStep::End(number), calls);
        }
    }
    disk
}

/// The file with this name, if it exists.
fn file(disk: &SimulatedDisk, name: &str, survives: Survivors, seed: u64) -> Option<Vec<u8>> {
    let state = disk.power_cut(survives, &mut SeededRandom::new(seed));
    disk.files(&state).remove(name)
}

fn text(disk: &SimulatedDisk, survives: Survivors) -> String {
    String::from_utf8(file(disk, NAME, survives, 0).unwrap()).unwrap()
}

#[test]
fn sync_covers_only_calls_that_returned_before_it() {
    let mut calls = vec![write(0, b"n"), write(1, b"e")];
    assert_eq!(text(&disk_after(&calls, 0), Survivors::Synced), "old");
    assert_eq!(text(&disk_after(&calls, 0), Survivors::All), "ned");
    assert_eq!(text(&disk_after(&calls, 0), Survivors::AllBut(0)), "oed");
    calls.push(sync());
    assert_eq!(text(&disk_after(&calls, 0), Survivors::Synced), "ned");
    // The sync has begun, and has not ended.
    assert_eq!(text(&disk_after(&calls, 1), Survivors::Synced), "old");

    let mut disk = SimulatedDisk::new([(NAME.to_owned(), b"old".to_vec())]);
    let steps = [
        TraceStep::Begin(0),
        TraceStep::End(0),
        TraceStep::Begin(1),
        TraceStep::Begin(2),
        TraceStep::End(2),
    ];
    for step in steps {
        disk.apply_step(step, &calls);
    }
    assert_eq!(text(&disk, Survivors::Synced), "nld", "the second write had not returned");
    disk.apply_step(TraceStep::End(1), &calls);
    assert_eq!(
        (text(&disk, Survivors::Synced), text(&disk, Survivors::All)),
        ("nld".into(), "ned".into())
    );
}

#[test]
fn file_name_is_durable_after_a_folder_sync() {
    let other = || "nouns.db-wal".to_owned();
    let mut calls = vec![
        TracedCall::Create(other()),
        TracedCall::Write { file: other(), offset: 0, bytes: b"x".to_vec() },
        TracedCall::Sync(other()),
    ];
    let found =
        |calls: &[TracedCall], survives| file(&disk_after(calls, 0), "nouns.db-wal", survives, 0);
    assert_eq!(found(&calls, Survivors::Synced), None);
    assert_eq!(found(&calls, Survivors::All).unwrap(), b"x");
    calls.push(TracedCall::SyncFolder);
    assert_eq!(found(&calls, Survivors::Synced).unwrap(), b"x");
    calls.push(TracedCall::Remove(other()));
    assert_eq!(found(&calls, Survivors::Synced).unwrap(), b"x", "it may come back");
    assert_eq!(found(&calls, Survivors::All), None);
    calls.push(TracedCall::Create(other()));
    assert_eq!(found(&calls, Survivors::All).unwrap(), b"", "another file under the same name");
    calls.push(TracedCall::SyncFolder);
    assert_eq!(found(&calls, Survivors::Synced).unwrap(), b"");
}

#[test]
fn truncation_is_durable_after_a_sync() {
    let resize = |length| TracedCall::Resize { file: NAME.to_owned(), length };
    let mut calls = vec![resize(1)];
    assert_eq!(text(&disk_after(&calls, 0), Survivors::Synced), "old");
    assert_eq!(text(&disk_after(&calls, 0), Survivors::All), "o");
    calls.extend([resize(3), sync()]);
    assert_eq!(
        text(&disk_after(&calls, 0), Survivors::Synced),
        "o\0\0",
        "the end does not come back"
    );
}

/// Data of a failed sync is in the page cache alone, until its page is written to again.
#[test]
fn failed_sync_leaves_pages_clean_and_lost() {
    let failed = || TracedCall::SyncFailed(NAME.to_owned());
    let mut calls = vec![write(0, b"new"), write(3, b"er"), failed(), sync()];
    let disk = disk_after(&calls, 0);
    assert_eq!(text(&disk, Survivors::All), "newer", "the processes see it");
    assert_eq!(text(&disk, Survivors::Synced), "old\0\0", "the next sync wrote the length alone");
    assert_eq!(text(&disk, Survivors::AllBut(9)), "old\0\0");
    // Another page: it changes nothing for the first one.
    calls.extend([write(4_096, b"x"), sync()]);
    let found = file(&disk_after(&calls, 0), NAME, Survivors::Synced, 0).unwrap();
    assert_eq!((&found[..6], found.len(), found[4_096]), (&b"old\0\0\0"[..], 4_097, b'x'));
    // The same page: it is written completely.
    calls.extend([write(1, b"E"), sync()]);
    let found = file(&disk_after(&calls, 0), NAME, Survivors::Synced, 0).unwrap();
    assert_eq!((&found[..6], found.len()), (&b"nEwer\0"[..], 4_097));
    // Truncated data is not in the page cache.
    let resize = |length| TracedCall::Resize { file: NAME.to_owned(), length };
    let calls = [write(0, b"newer"), failed(), resize(2), resize(4)];
    assert_eq!(text(&disk_after(&calls, 0), Survivors::All), "ne\0\0");
}

/// A write of three sectors over old ones: each of them is old or new; all eight combinations occur,
/// and no other.
#[test]
fn sectors_are_torn_independently() {
    let calls = [write(0, &[b'a'; 1536]), sync(), write(0, &[b'b'; 1536])];
    let disk = disk_after(&calls, 0);
    let mut seen = HashMap::new();
    for seed in 0..400 {
        let bytes = file(&disk, NAME, Survivors::Sectors, seed).unwrap();
        let sectors: Vec<_> = bytes
            .chunks(512)
            .map(|sector| {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "torn inside of a sector");
                sector[0]
            })
            .collect();
        *seen.entry(sectors).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
    assert!(seen.keys().flatten().all(|byte| matches!(byte, b'a' | b'b')));
}

/// Two states have the same hash exactly if they have the same files.
#[test]
fn state_hashes_are_equal_only_for_equal_files() {
    let mut chance = SeededRandom::new(1);
    for _ in 0..40 {
        let calls: Vec<TracedCall> = (0..30)
            .map(|_| match chance.below(9) {
                0 => sync(),
                8 => TracedCall::SyncFailed(NAME.to_owned()),
                1 => TracedCall::Resize { file: NAME.to_owned(), length: chance.below(3_000) },
                _ => {
                    let byte = u8::try_from(chance.below(3)).unwrap();
                    write(chance.below(2_000), &vec![byte; chance.below(1_200)])
                }
            })
            .collect();
        let (mut by_hash, mut by_files) = (HashMap::new(), HashMap::new());
        let mut disk = disk_after(&[], 0);
        for number in 0..calls.len() {
            disk.apply_step(TraceStep::Begin(number), &calls);
            disk.apply_step(TraceStep::End(number), &calls);
            for survives in
                [Survivors::Synced, Survivors::All, Survivors::Calls, Survivors::Sectors]
            {
                let state = disk.power_cut(survives, &mut SeededRandom::new(chance.next()));
                let files = disk.files(&state);
                let known = by_hash.entry(state.hash).or_insert_with(|| files.clone());
                assert_eq!(*known, files);
                assert_eq!(*by_files.entry(files).or_insert(state.hash), state.hash);
            }
        }
    }
}
