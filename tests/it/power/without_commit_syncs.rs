//! The trace of a server whose commits are not synced, derived from that of one whose commits are.
//!
//! It is what SQLite does with `synchronous=NORMAL`: the same writes in the same order, and every sync
//! but those of commits. The server has no such setting, so its own trace stands in for it.
//! A sync of the WAL belongs to a commit when frames were written since the one before; the sync
//! after the WAL's header, and the one before a checkpoint, occur in both modes.

use super::strace::{TraceLog, TraceStep, TracedCall};

const WAL: &str = "nouns.db-wal";
const HEADER_BYTES: usize = 32;

/// The steps without the syncs of commits.
pub fn steps_without_commit_syncs(log: &TraceLog) -> Vec<TraceStep> {
    let mut frames_written = false;
    let is_of_commit: Vec<bool> = log
        .calls
        .iter()
        .map(|call| match call {
            TracedCall::Write { file, offset, bytes } if file == WAL => {
                frames_written = !(*offset == 0 && bytes.len() == HEADER_BYTES);
                false
            }
            TracedCall::Sync(file) if file == WAL => std::mem::take(&mut frames_written),
            _ => false,
        })
        .collect();
    assert!(is_of_commit.contains(&true) && log.syncs_left_out == 0);
    let of_commit = |step: &&TraceStep| match **step {
        TraceStep::Begin(call) | TraceStep::End(call) => !is_of_commit[call],
    };
    log.steps.iter().filter(of_commit).copied().collect()
}

/// How often the WAL was checkpointed, and how often it was restarted.
pub fn checkpoints_and_restarts(log: &TraceLog) -> (usize, usize) {
    let mut database_written = false;
    let (mut checkpoints, mut restarts) = (0, 0);
    for call in &log.calls {
        match call {
            TracedCall::Write { file, .. } if file == "nouns.db" => database_written = true,
            TracedCall::Sync(file) if file == "nouns.db" => {
                checkpoints += usize::from(std::mem::take(&mut database_written));
            }
            TracedCall::Write { file, offset: 0, bytes }
                if file == WAL && bytes.len() == HEADER_BYTES =>
            {
                restarts += 1;
            }
            _ => {}
        }
    }
    (checkpoints, restarts)
}
