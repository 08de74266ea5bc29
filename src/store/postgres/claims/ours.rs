//! The parts of nonces that are this server's alone, so that nobody has to be asked about them.
//!
//! A nonce whose counts all came here up to now is likely to go on so. Then a whole part of it, 63
//! counts, is taken in the database at once, and each of its counts is claimed in this memory.
//! Nothing is asked of the database here.
//! The one surprising thing: forgetting is always safe. What was taken and is forgotten is used up, as
//! far as anybody can tell.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;

use crate::store::{Claim, Claimed};

/// Counts in one part: as many bits as a `bigint` has without its sign, which says that the part is taken.
const PART_COUNTS: u32 = 63;
/// So many counts of a nonce must have come here before a part of it is taken.
const USED_MIN: u32 = 8;
/// So many may be missing among them, and one more for so many that are not: requests overtake each other,
/// and a client with many connections has many under way. Where servers take turns, more are missing.
const GAPS_MAX: u32 = 4;
const USED_PER_GAP: u32 = 8;
/// Parts of a nonce that are known, the latest ones: a client with many connections may have one that lags
/// behind.
const PARTS_MAX: usize = 16;
/// Nonces that are looked at. Those that are used once only do not stay long.
const NONCES_MAX: usize = 16_384;

/// How far the time is moved in a key: the rest of a nonce has room below it.
const TIME_SHIFT: u32 = 96;

/// One part of one nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    /// What tells the nonce from all others, with the low half of the second of its issue on top: so the
    /// tables know how old what they hold is, and the newest is the last by their index.
    pub(super) nonce: u128,
    pub(super) part: u32,
}

impl Place {
    /// Where a count is, and its bit there. Nothing for 0: RFC 7616 §3.4 begins with 1.
    pub(super) fn of(claim: &Claim) -> Option<(Self, u64)> {
        let index = claim.count.checked_sub(1)?;
        let time = u128::from(claim.issued.cast_unsigned() & u64::from(u32::MAX)) << TIME_SHIFT;
        let nonce = time | (claim.nonce & ((1 << TIME_SHIFT) - 1));
        let place = Self { nonce, part: index / PART_COUNTS };
        Some((place, 1 << (index % PART_COUNTS)))
    }
}

/// What is known of the nonces that come here.
pub(super) struct Ours(Cache<u128, Arc<Mutex<Run>>>);

impl fmt::Debug for Ours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ours").finish_non_exhaustive()
    }
}

impl Default for Ours {
    fn default() -> Self {
        Self(Cache::new(NONCES_MAX))
    }
}

impl Ours {
    /// Whether `claim` can tell.
    pub(super) fn has(&self, claim: &Claim) -> bool {
        let Some((place, _)) = Place::of(claim) else { return false };
        let has = |run: &mut Run| run.find(place.part).is_some_and(|part| part.is_ours);
        self.with(place.nonce, has).unwrap_or(false)
    }

    /// Claims a count of a part that is ours; nothing where it is not.
    pub(super) fn claim(&self, claim: &Claim) -> Option<Claimed> {
        let (place, bit) = Place::of(claim)?;
        self.with(place.nonce, |run| run.claim(place.part, bit, claim.count))?
    }

    /// What of a part was claimed from here, if it is worth having the rest of it too.
    pub(super) fn wish(&self, place: Place) -> Option<u64> {
        self.with(place.nonce, |run| run.wish(place.part))?
    }

    /// A claim that the database took.
    pub(super) fn note(&self, claim: &Claim) {
        let Some((place, bit)) = Place::of(claim) else { return };
        if self.with(place.nonce, |run| run.note(place.part, bit, claim.count)).is_none() {
            let mut run = Run::default();
            run.note(place.part, bit, claim.count);
            self.0.insert(place.nonce, Arc::new(Mutex::new(run)));
        }
    }

    /// The database gave us the rest of a part. `bits`: what of it was used.
    pub(super) fn take(&self, place: Place, bits: u64) {
        self.with(place.nonce, |run| {
            if let Some(part) = run.find(place.part) {
                // The nonce may have been forgotten meanwhile.
                part.bits |= bits;
                part.is_ours = true;
            }
        });
    }

    /// Another server wants it: what of it was used, if it was ours. From now on it is not.
    pub(super) fn give_up(&self, place: Place) -> Option<u64> {
        self.with(place.nonce, |run| {
            run.is_shared = true;
            let part = run.find(place.part).filter(|part| part.is_ours)?;
            part.is_ours = false;
            Some(part.bits)
        })?
    }

    /// Whether a part may have been ours, so that nobody else can give it up.
    pub(super) fn has_forgotten(&self, place: Place) -> bool {
        self.with(place.nonce, |run| place.part < run.forgotten).unwrap_or(false)
    }

    fn with<T>(&self, nonce: u128, work: impl FnOnce(&mut Run) -> T) -> Option<T> {
        let run = self.0.get(&nonce)?;
        let mut run: MutexGuard<'_, Run> = run.lock().unwrap_or_else(PoisonError::into_inner);
        Some(work(&mut run))
    }
}

/// How one nonce was used here.
#[derive(Debug, Default)]
struct Run {
    first: u32,
    last: u32,
    used: u32,
    /// Whether another server has seen it too.
    is_shared: bool,
    /// In order.
    parts: Vec<Part>,
    /// Parts before this one are forgotten.
    forgotten: u32,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    part: u32,
    /// Claimed from here.
    bits: u64,
    is_ours: bool,
}

impl Run {
    fn find(&mut self, part: u32) -> Option<&mut Part> {
        self.parts.iter_mut().rev().find(|known| known.part == part)
    }

    fn claim(&mut self, part: u32, bit: u64, count: u32) -> Option<Claimed> {
        let known = self.find(part).filter(|known| known.is_ours)?;
        if known.bits & bit != 0 {
            return Some(Claimed::Again);
        }
        known.bits |= bit;
        self.count(count);
        Some(Claimed::First)
    }

    fn wish(&mut self, part: u32) -> Option<u64> {
        let span = self.last - self.first + 1;
        let gaps_max = GAPS_MAX + self.used / USED_PER_GAP;
        let is_alone = self.used >= USED_MIN && span.saturating_sub(self.used) <= gaps_max;
        if !is_alone || self.is_shared {
            return None;
        }
        if let Some(known) = self.find(part) {
            return Some(known.bits);
        }
        // What was seen of an earlier one may be forgotten.
        self.is_latest(part).then_some(0)
    }

    fn note(&mut self, part: u32, bit: u64, count: u32) {
        self.count(count);
        if let Some(known) = self.find(part) {
            known.bits |= bit;
            return;
        }
        if self.is_latest(part) {
            if self.parts.len() == PARTS_MAX {
                self.forgotten = self.parts.remove(0).part + 1;
            }
            self.parts.push(Part { part, bits: bit, is_ours: false });
        }
    }

    fn is_latest(&self, part: u32) -> bool {
        self.parts.last().is_none_or(|latest| latest.part < part)
    }

    fn count(&mut self, count: u32) {
        self.first = if self.used == 0 { count } else { self.first.min(count) };
        self.last = self.last.max(count);
        self.used = self.used.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u32) -> Claim {
        Claim { epoch: 1, nonce: 7, count, issued: 0 }
    }

    fn place(count: u32) -> Place {
        Place::of(&of(count)).unwrap().0
    }

    #[test]
    fn counts_have_places() {
        let at = |count| Place::of(&of(count)).map(|(place, bit)| (place.part, bit));
        assert_eq!(at(0), None);
        assert_eq!(at(1), Some((0, 1)));
        assert_eq!(at(63), Some((0, 1 << 62)));
        assert_eq!(at(64), Some((1, 1)));
        let (part, bit) = at(u32::MAX).unwrap();
        assert!(i32::try_from(part).is_ok() && bit <= 1 << 62);
    }

    #[test]
    fn a_nonce_that_always_comes_here_is_wished_for() {
        let ours = Ours::default();
        for count in 1..USED_MIN {
            assert_eq!(ours.wish(place(count)), None, "{count}");
            ours.note(&of(count));
        }
        ours.note(&of(USED_MIN));
        assert_eq!(ours.wish(place(9)), Some(0xff));
        assert_eq!(ours.wish(place(64)), Some(0), "the next part is untouched");
        assert_eq!(ours.claim(&of(9)), None, "not ours yet");

        ours.note(&of(9));
        ours.take(place(9), 0);
        assert!(ours.has(&of(10)) && !ours.has(&of(64)));
        assert_eq!(ours.claim(&of(9)), Some(Claimed::Again));
        for count in (10..=63).rev() {
            assert_eq!(ours.claim(&of(count)), Some(Claimed::First));
            assert_eq!(ours.claim(&of(count)), Some(Claimed::Again));
        }
        // The one before the latest is still known.
        ours.note(&of(64));
        ours.take(place(64), 0);
        assert_eq!(ours.claim(&of(63)), Some(Claimed::Again));
        assert_eq!(ours.claim(&of(65)), Some(Claimed::First));
    }

    #[test]
    fn a_nonce_that_comes_by_turns_is_not() {
        for step in [2, 3] {
            let ours = Ours::default();
            for count in (1..400).step_by(step) {
                assert_eq!(ours.wish(place(count)), None, "{step} {count}");
                ours.note(&of(count));
            }
        }
    }

    #[test]
    fn what_is_given_up_is_not_wished_for_again() {
        let ours = Ours::default();
        (1..=10).for_each(|count| ours.note(&of(count)));
        assert_eq!(ours.give_up(place(1)), None, "not ours");
        let ours = Ours::default();
        (1..=10).for_each(|count| ours.note(&of(count)));
        ours.take(place(1), 0);
        assert_eq!(ours.claim(&of(20)), Some(Claimed::First));
        assert_eq!(ours.give_up(place(1)), Some(0x3ff | 1 << 19));
        assert_eq!(ours.give_up(place(1)), None);
        assert_eq!(ours.claim(&of(21)), None);
        assert_eq!((ours.wish(place(21)), ours.wish(place(64))), (None, None));
    }

    /// Of an older part, what was claimed is forgotten, and so it must not be taken.
    #[test]
    fn an_old_part_is_not_taken() {
        let ours = Ours::default();
        for part in 0..=16 {
            (1..=63).for_each(|count| ours.note(&of(part * 63 + count)));
        }
        assert_eq!(ours.wish(place(1)), None);
        assert!(ours.has_forgotten(place(1)) && !ours.has_forgotten(place(64)));
        assert_eq!(ours.wish(place(64)), Some(u64::MAX >> 1));
        assert_eq!(ours.wish(place(17 * 63 + 1)), Some(0));
    }
}
