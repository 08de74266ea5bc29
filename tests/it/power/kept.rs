//! Tests of the simulated disk: which data survives, and that its hashes distinguish states.

use std::collections::HashMap;

use super::disk::{Disk, Survives};
use super::strace::{Call, Step};
use crate::durability::chance::Chance;

const NAME: &str = "nouns.db";

fn write(offset: usize, bytes: &[u8]) -> Call {
    Call::Write { file: NAME.to_owned(), offset, bytes: bytes.to_vec() }
}

fn sync() -> Call {
    Call::Sync(NAME.to_owned())
}

/// A disk after these calls, one after the other, the last `open` of them not ended.
fn after(calls: &[Call], open: usize) -> Disk {
    let mut disk = Disk::new([(NAME.to_owned(), b"old".to_vec())]);
    for number in 0..calls.len() {
        disk.step(Step::Begin(number), calls);
        if number + open < calls.len() {
            disk.step(Step::End(number), calls);
        }
    }
    disk
}

/// The file with this name, if it exists.
fn file(disk: &Disk, name: &str, survives: Survives, seed: u64) -> Option<Vec<u8>> {
    let state = disk.cut(survives, &mut Chance::new(seed));
    disk.files(&state).remove(name)
}

fn text(disk: &Disk, survives: Survives) -> String {
    String::from_utf8(file(disk, NAME, survives, 0).unwrap()).unwrap()
}

#[test]
fn sync_covers_only_calls_that_returned_before_it() {
    let mut calls = vec![write(0, b"n"), write(1, b"e")];
    assert_eq!(text(&after(&calls, 0), Survives::Synced), "old");
    assert_eq!(text(&after(&calls, 0), Survives::All), "ned");
    assert_eq!(text(&after(&calls, 0), Survives::AllBut(0)), "oed");
    calls.push(sync());
    assert_eq!(text(&after(&calls, 0), Survives::Synced), "ned");
    // The sync has begun, and has not ended.
    assert_eq!(text(&after(&calls, 1), Survives::Synced), "old");

    let mut disk = Disk::new([(NAME.to_owned(), b"old".to_vec())]);
    let steps = [Step::Begin(0), Step::End(0), Step::Begin(1), Step::Begin(2), Step::End(2)];
    for step in steps {
        disk.step(step, &calls);
    }
    assert_eq!(text(&disk, Survives::Synced), "nld", "the second write had not returned");
    disk.step(Step::End(1), &calls);
    assert_eq!(
        (text(&disk, Survives::Synced), text(&disk, Survives::All)),
        ("nld".into(), "ned".into())
    );
}

#[test]
fn file_name_is_durable_after_a_folder_sync() {
    let other = || "nouns.db-wal".to_owned();
    let mut calls = vec![
        Call::Create(other()),
        Call::Write { file: other(), offset: 0, bytes: b"x".to_vec() },
        Call::Sync(other()),
    ];
    let found = |calls: &[Call], survives| file(&after(calls, 0), "nouns.db-wal", survives, 0);
    assert_eq!(found(&calls, Survives::Synced), None);
    assert_eq!(found(&calls, Survives::All).unwrap(), b"x");
    calls.push(Call::SyncFolder);
    assert_eq!(found(&calls, Survives::Synced).unwrap(), b"x");
    calls.push(Call::Remove(other()));
    assert_eq!(found(&calls, Survives::Synced).unwrap(), b"x", "it may come back");
    assert_eq!(found(&calls, Survives::All), None);
    calls.push(Call::Create(other()));
    assert_eq!(found(&calls, Survives::All).unwrap(), b"", "another file under the same name");
    calls.push(Call::SyncFolder);
    assert_eq!(found(&calls, Survives::Synced).unwrap(), b"");
}

#[test]
fn truncation_is_durable_after_a_sync() {
    let resize = |length| Call::Resize { file: NAME.to_owned(), length };
    let mut calls = vec![resize(1)];
    assert_eq!(text(&after(&calls, 0), Survives::Synced), "old");
    assert_eq!(text(&after(&calls, 0), Survives::All), "o");
    calls.extend([resize(3), sync()]);
    assert_eq!(text(&after(&calls, 0), Survives::Synced), "o\0\0", "the end does not come back");
}

/// Data of a failed sync is in the page cache alone, until its page is written to again.
#[test]
fn failed_sync_leaves_pages_clean_and_lost() {
    let failed = || Call::SyncFailed(NAME.to_owned());
    let mut calls = vec![write(0, b"new"), write(3, b"er"), failed(), sync()];
    let disk = after(&calls, 0);
    assert_eq!(text(&disk, Survives::All), "newer", "the processes see it");
    assert_eq!(text(&disk, Survives::Synced), "old\0\0", "the next sync wrote the length alone");
    assert_eq!(text(&disk, Survives::AllBut(9)), "old\0\0");
    // Another page: it changes nothing for the first one.
    calls.extend([write(4_096, b"x"), sync()]);
    let found = file(&after(&calls, 0), NAME, Survives::Synced, 0).unwrap();
    assert_eq!((&found[..6], found.len(), found[4_096]), (&b"old\0\0\0"[..], 4_097, b'x'));
    // The same page: it is written completely.
    calls.extend([write(1, b"E"), sync()]);
    let found = file(&after(&calls, 0), NAME, Survives::Synced, 0).unwrap();
    assert_eq!((&found[..6], found.len()), (&b"nEwer\0"[..], 4_097));
    // Truncated data is not in the page cache.
    let resize = |length| Call::Resize { file: NAME.to_owned(), length };
    let calls = [write(0, b"newer"), failed(), resize(2), resize(4)];
    assert_eq!(text(&after(&calls, 0), Survives::All), "ne\0\0");
}

/// A write of three sectors over old ones: each of them is old or new; all eight combinations occur,
/// and no other.
#[test]
fn sectors_are_torn_independently() {
    let calls = [write(0, &[b'a'; 1536]), sync(), write(0, &[b'b'; 1536])];
    let disk = after(&calls, 0);
    let mut seen = HashMap::new();
    for seed in 0..400 {
        let bytes = file(&disk, NAME, Survives::Sectors, seed).unwrap();
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
    let mut chance = Chance::new(1);
    for _ in 0..40 {
        let calls: Vec<Call> = (0..30)
            .map(|_| match chance.below(9) {
                0 => sync(),
                8 => Call::SyncFailed(NAME.to_owned()),
                1 => Call::Resize { file: NAME.to_owned(), length: chance.below(3_000) },
                _ => {
                    let byte = u8::try_from(chance.below(3)).unwrap();
                    write(chance.below(2_000), &vec![byte; chance.below(1_200)])
                }
            })
            .collect();
        let (mut by_hash, mut by_files) = (HashMap::new(), HashMap::new());
        let mut disk = after(&[], 0);
        for number in 0..calls.len() {
            disk.step(Step::Begin(number), &calls);
            disk.step(Step::End(number), &calls);
            for survives in [Survives::Synced, Survives::All, Survives::Calls, Survives::Sectors] {
                let state = disk.cut(survives, &mut Chance::new(chance.next()));
                let files = disk.files(&state);
                let known = by_hash.entry(state.hash).or_insert_with(|| files.clone());
                assert_eq!(*known, files);
                assert_eq!(*by_files.entry(files).or_insert(state.hash), state.hash);
            }
        }
    }
}
