//! Resetting the write-ahead log (WAL) under continuous reads.
//!
//! SQLite restarts its WAL at the beginning when every frame is checkpointed and no reader's snapshot needs
//! one. Reads of milliseconds leave such a gap by themselves. Full scans run back to back on several threads,
//! each on its own snapshot, and leave none: the WAL then grows with every write. So from a certain size on,
//! the writer stops admitting scans that have not begun (`ReadGate`), continues writing until those in flight
//! are done, and then makes a checkpoint that resets the WAL, which takes as long as any checkpoint.
//!
//! That checkpoint (RESTART) waits for readers, and all writes wait with it. So it is tried only after one that
//! waits for no reader (PASSIVE) has passed the frame at which the hold began: then no reader is left with an
//! older snapshot, such as a backup by another process, which may keep it for minutes.
//!
//! A hold is short at first. After one that failed, the next hold is twice as long (exponential backoff) and
//! begins when the WAL has grown further, up to the time limit of a statement, within which every scan ends.
//! Reads of items and pages by id are never held back. Exports keep their snapshot for minutes: below the
//! limit of the WAL there is no hold while one is in flight, and at the limit the writer cancels them
//! (`export`).

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock;
use crate::model::settings::ServerLimits;

/// The page size: SQLite's default, which we never change.
pub const PAGE_BYTES: usize = 4_096;
/// The WAL size that triggers a checkpoint (8 MiB). With fewer pages, a hot page is copied too often; with
/// more, recovery after a crash reads longer, and from 4,096 pages on so does every reader.
pub const CHECKPOINT_PAGES: usize = 2_000;
/// The WAL size (32 MiB) from which scans are held back.
const HOLD_PAGES: usize = 8_192;
/// The length of the first hold.
const FIRST_HOLD_MAX: Duration = Duration::from_secs(1);
/// While scans are held back, how often the writer checks whether those in flight have ended.
pub const DRAIN_POLL: Duration = Duration::from_millis(5);
/// How long one attempt to reset the WAL waits for short reads to end.
pub const RESET_BUSY_MAX: Duration = Duration::from_millis(100);
/// After a hold that timed out, the next one begins when the WAL has grown by this fraction of `HOLD_PAGES`.
const RETRY_DIVISOR: usize = 4;
/// When something other than our own scans blocked the reset, the next hold begins when the WAL has grown by
/// this multiple of `HOLD_PAGES`.
const OTHER_BLOCKER_FACTOR: usize = 8;

/// Admission of scans: closed while the WAL is about to be reset.
#[derive(Debug, Default)]
pub struct ReadGate {
    state: Mutex<GateState>,
    opened: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    /// Closed until then, unless it is opened earlier.
    closed_until: Option<Instant>,
    in_flight: usize,
}

/// A scan in flight.
#[derive(Debug)]
pub struct ReadPermit<'a>(&'a ReadGate);

impl Drop for ReadPermit<'_> {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
    }
}

impl ReadGate {
    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for admission; `None` if `until` passes first.
    pub fn admit(&self, until: Instant) -> Option<ReadPermit<'_>> {
        let mut state = self.state();
        loop {
            let now = clock::now();
            match state.closed_until {
                _ if now >= until => return None,
                Some(closed_until) if now < closed_until => {
                    let wait = closed_until.min(until).saturating_duration_since(now);
                    state = self
                        .opened
                        .wait_timeout(state, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                }
                _ => {
                    state.in_flight += 1;
                    return Some(ReadPermit(self));
                }
            }
        }
    }

    fn close(&self, until: Instant) {
        self.state().closed_until = Some(until);
    }

    fn open(&self) {
        self.state().closed_until = None;
        self.opened.notify_all();
    }

    fn is_drained(&self) -> bool {
        self.state().in_flight == 0
    }
}

/// Decides which checkpoint the writer makes, and when. Owned by the writer thread.
#[derive(Debug)]
pub struct WalReset {
    gate: Arc<ReadGate>,
    checkpoint_pages: usize,
    hold_pages: usize,
    /// The limit of the WAL, from which on exports are cancelled.
    log_pages_max: usize,
    statement_max: Duration,
    /// The end of the current hold.
    holding_until: Cell<Option<Instant>>,
    /// The number of frames that must be checkpointed before a RESTART is tried: those of the WAL when the hold
    /// began, or when the last RESTART was blocked.
    frames_before_restart: Cell<usize>,
    /// The WAL size at which the next hold begins.
    next_hold: Cell<usize>,
    /// The length of the next hold, unless the WAL is at its limit.
    hold_length: Cell<Duration>,
}

/// The action that the writer has to take on the WAL after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalAction {
    Nothing,
    /// A checkpoint that waits for no reader (PASSIVE).
    Checkpoint,
    /// A checkpoint that resets the WAL (RESTART).
    Reset,
    /// The hold timed out; scans are admitted again.
    GiveUp(WalBlocker),
}

/// The cause that blocked a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalBlocker {
    Scans,
    /// Another process, or an export that is about to end.
    Others,
}

/// The limit of the WAL, in pages.
pub fn wal_pages_max(limits: &ServerLimits) -> usize {
    limits.export_wal_bytes_max.div_ceil(PAGE_BYTES)
}

impl WalReset {
    pub fn new(gate: Arc<ReadGate>, limits: &ServerLimits) -> Self {
        let log_pages_max = wal_pages_max(limits);
        let hold_pages = HOLD_PAGES.min(log_pages_max / 2);
        let statement_max = Duration::from_secs(limits.statement_seconds_max.into());
        Self {
            gate,
            checkpoint_pages: CHECKPOINT_PAGES.min(log_pages_max / 4),
            hold_pages,
            log_pages_max,
            statement_max,
            holding_until: Cell::new(None),
            frames_before_restart: Cell::new(0),
            next_hold: Cell::new(hold_pages),
            hold_length: Cell::new(FIRST_HOLD_MAX.min(statement_max)),
        }
    }

    pub fn is_holding(&self) -> bool {
        self.holding_until.get().is_some()
    }

    /// The action that is due for a WAL of this size.
    pub fn next_action(&self, pages: usize) -> WalAction {
        match self.holding_until.get() {
            // A reset between two holds, as after a backup by another process.
            None if pages < self.checkpoint_pages => {
                self.reset_backoff();
                WalAction::Nothing
            }
            None => WalAction::Checkpoint,
            Some(_) if self.gate.is_drained() => WalAction::Reset,
            Some(until) if clock::now() < until => WalAction::Nothing,
            Some(_) => WalAction::GiveUp(WalBlocker::Scans),
        }
    }

    /// After a checkpoint that may have left frames behind: starts a hold if the WAL is too large. Below the
    /// limit of the WAL, exports in flight would make a hold useless.
    pub fn hold_when_due(&self, pages: usize, has_exports: bool) {
        let is_over = pages >= self.log_pages_max;
        if pages < self.next_hold.get() || (has_exports && !is_over) {
            return;
        }
        let length = if is_over { self.statement_max } else { self.hold_length.get() };
        let until = clock::now() + length;
        self.gate.close(until);
        self.holding_until.set(Some(until));
        self.frames_before_restart.set(pages);
    }

    /// After a PASSIVE checkpoint up to `checkpointed` of the WAL's frames: whether a RESTART waits for short reads
    /// alone.
    pub fn can_restart(&self, checkpointed: usize) -> bool {
        checkpointed >= self.frames_before_restart.get()
    }

    /// Whether the WAL has been reset since the hold began: it is shorter than then. After a RESTART that was blocked,
    /// it has one frame less than required.
    pub fn is_reset(&self, frames: usize) -> bool {
        frames + 1 < self.frames_before_restart.get()
    }

    /// After a RESTART that was blocked by a reader that began during the hold: the next one waits until a checkpoint
    /// has passed its snapshot.
    pub fn restart_was_blocked(&self, frames: usize) {
        self.frames_before_restart.set(frames + 1);
    }

    /// After a checkpoint that failed to reset the WAL: whether the hold is over.
    pub fn is_last_try(&self) -> bool {
        self.holding_until.get().is_none_or(|until| clock::now() >= until)
    }

    /// Ends the hold after the WAL was reset.
    pub fn finish(&self) {
        self.reset_backoff();
        self.release();
    }

    fn reset_backoff(&self) {
        self.next_hold.set(self.hold_pages);
        self.hold_length.set(FIRST_HOLD_MAX.min(self.statement_max));
    }

    /// Admits scans again, and schedules the next hold for when the WAL has grown further.
    pub fn give_up(&self, pages: usize, blocker: WalBlocker) {
        let more = match blocker {
            WalBlocker::Scans => {
                let twice = self.hold_length.get().saturating_mul(2);
                self.hold_length.set(twice.min(self.statement_max));
                self.hold_pages / RETRY_DIVISOR
            }
            WalBlocker::Others => self.hold_pages.saturating_mul(OTHER_BLOCKER_FACTOR),
        };
        // The WAL does not pass its limit before the next hold.
        let next = pages.saturating_add(more);
        let is_over = pages >= self.log_pages_max;
        self.next_hold.set(if is_over { next } else { next.min(self.log_pages_max) });
        self.release();
    }

    fn release(&self) {
        self.holding_until.set(None);
        self.gate.open();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn reset_with(gate: &Arc<ReadGate>, log_bytes: usize) -> WalReset {
        let limits = ServerLimits { export_wal_bytes_max: log_bytes, ..ServerLimits::default() };
        WalReset::new(Arc::clone(gate), &limits)
    }

    #[test]
    fn wal_reset_waits_for_scans_in_flight_and_then_admits_the_others() {
        let gate = Arc::new(ReadGate::default());
        let reset = reset_with(&gate, 1 << 20);
        assert_eq!(reset.next_action(63), WalAction::Nothing);
        assert_eq!(reset.next_action(64), WalAction::Checkpoint);
        let later = clock::now() + Duration::from_secs(600);
        let permit = gate.admit(later).unwrap();
        reset.hold_when_due(127, false);
        assert!(!reset.is_holding(), "below the size of a hold");
        reset.hold_when_due(128, true);
        assert!(!reset.is_holding(), "an export would be in the way");
        reset.hold_when_due(128, false);
        assert_eq!(reset.next_action(130), WalAction::Nothing, "one is in flight");
        assert!(gate.admit(clock::now()).is_none(), "held back up to its deadline");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.admit(later).is_some());
            drop(permit);
            assert_eq!(reset.next_action(130), WalAction::Reset);
            reset.finish();
            assert!(waiting.join().unwrap());
        });
        assert_eq!(reset.next_action(0), WalAction::Nothing);
    }

    #[test]
    fn wal_reset_times_out_and_retries_when_the_wal_has_grown() {
        let gate = Arc::new(ReadGate::default());
        let reset = reset_with(&gate, 1 << 20);
        let later = clock::now() + Duration::from_secs(600);
        let permit = gate.admit(later).unwrap();
        reset.hold_when_due(128, false);
        reset.holding_until.set(Some(clock::now()));
        assert_eq!(reset.next_action(130), WalAction::GiveUp(WalBlocker::Scans));
        reset.give_up(130, WalBlocker::Scans);
        drop(gate.admit(later).unwrap());
        reset.hold_when_due(161, false);
        assert!(!reset.is_holding());
        reset.hold_when_due(162, false);
        let left = reset.holding_until.get().unwrap() - clock::now();
        assert!(left > FIRST_HOLD_MAX, "{left:?}: twice as long");
        reset.give_up(162, WalBlocker::Others);
        reset.hold_when_due(255, true);
        assert!(!reset.is_holding());
        // At the limit a hold begins beside exports as well, which are cancelled then.
        reset.hold_when_due(162 + 128 * OTHER_BLOCKER_FACTOR, true);
        assert!(reset.is_holding());
        drop(permit);
    }

    #[test]
    fn wal_restart_waits_until_the_frames_before_the_hold_are_checkpointed() {
        let reset = reset_with(&Arc::new(ReadGate::default()), 1 << 20);
        reset.hold_when_due(128, false);
        assert!(!reset.can_restart(127), "a reader has an older snapshot");
        assert!(reset.can_restart(128));
        assert!(reset.is_reset(20) && !reset.is_reset(128));
        // By a reader that began after the hold.
        reset.restart_was_blocked(140);
        assert!(!reset.can_restart(140), "it has the snapshot of that moment");
        assert!(!reset.is_reset(140), "nothing was written since");
        assert!(reset.can_restart(141));
    }

    #[test]
    fn wal_reset_between_holds_ends_the_backoff() {
        let reset = reset_with(&Arc::new(ReadGate::default()), 1 << 20);
        reset.hold_when_due(128, false);
        reset.give_up(200, WalBlocker::Others);
        assert_eq!(reset.next_action(210), WalAction::Checkpoint);
        reset.hold_when_due(210, false);
        assert!(!reset.is_holding());
        // The reader of another process has ended, and the WAL has begun again.
        assert_eq!(reset.next_action(10), WalAction::Nothing);
        reset.hold_when_due(128, false);
        assert!(reset.is_holding());
    }

    #[test]
    fn read_gate_opens_when_a_hold_times_out() {
        let gate = ReadGate::default();
        gate.close(clock::now() + Duration::from_millis(20));
        assert!(gate.admit(clock::now() + Duration::from_secs(600)).is_some());
    }
}
