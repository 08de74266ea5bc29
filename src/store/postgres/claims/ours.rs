//! Nonce leases: blocks of a nonce's counts that one server may accept from memory, without a round trip.
//!
//! A nonce whose counts have all come to one server is likely to stay there. That server leases a whole
//! block, 63 counts, in the database at once, and then accepts each of its counts from memory. This module
//! does not query the database.
//! The one surprising thing: eviction is always safe. A block that was leased and is evicted counts as used
//! up.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;

use crate::store::{Claim, Claimed};

/// Counts in one block: as many bits as a `bigint` has without its sign, which marks the block as leased.
const PART_COUNTS: u32 = 63;
/// So many counts of a nonce must have come to this server before it leases a block.
const USED_MIN: u32 = 8;
/// So many counts may be missing, plus one for every `USED_PER_GAP` seen: requests overtake each other, and
/// a client with many connections has many in flight. Where a load balancer alternates between servers,
/// more are missing.
const GAPS_MAX: u32 = 4;
const USED_PER_GAP: u32 = 8;
/// Blocks remembered per nonce, the latest ones: a client with many connections may have one that lags
/// behind.
const PARTS_MAX: usize = 16;
/// Nonces remembered. Those that are used only once are evicted soon.
const NONCES_MAX: usize = 16_384;

/// The position of the time in a key; the random part of the nonce is below it.
const TIME_SHIFT: u32 = 96;

/// One block of the counts of one nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    /// The nonce's random part, below the low half of the second of its issue: so the tables can tell how
    /// old a row is, and the newest row is the last in their index.
    pub(super) nonce: u128,
    pub(super) part: u32,
}

impl Place {
    /// The block of a count, and the count's bit in it. `None` for 0: RFC 7616 §3.4 begins with 1.
    pub(super) fn of(claim: &Claim) -> Option<(Self, u64)> {
        let index = claim.count.checked_sub(1)?;
        let time = u128::from(claim.issued.cast_unsigned() & u64::from(u32::MAX)) << TIME_SHIFT;
        let nonce = time | (claim.nonce & ((1 << TIME_SHIFT) - 1));
        let place = Self { nonce, part: index / PART_COUNTS };
        Some((place, 1 << (index % PART_COUNTS)))
    }
}

/// How the nonces that come to this server are used, and which blocks it has leased.
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
    /// Whether `claim` can decide.
    pub(super) fn has(&self, claim: &Claim) -> bool {
        let Some((place, _)) = Place::of(claim) else { return false };
        let has = |run: &mut Run| run.find(place.part).is_some_and(|part| part.is_ours);
        self.with(place.nonce, has).unwrap_or(false)
    }

    /// Claims a count of a leased block; `None` if this server has not leased it.
    pub(super) fn claim(&self, claim: &Claim) -> Option<Claimed> {
        let (place, bit) = Place::of(claim)?;
        self.with(place.nonce, |run| run.claim(place.part, bit, claim.count))?
    }

    /// If this server should lease the rest of a block: the counts of it that it has claimed.
    pub(super) fn wish(&self, place: Place) -> Option<u64> {
        self.with(place.nonce, |run| run.wish(place.part))?
    }

    /// Records a claim that the database has accepted.
    pub(super) fn note(&self, claim: &Claim) {
        let Some((place, bit)) = Place::of(claim) else { return };
        if self.with(place.nonce, |run| run.note(place.part, bit, claim.count)).is_none() {
            let mut run = Run::default();
            run.note(place.part, bit, claim.count);
            self.0.insert(place.nonce, Arc::new(Mutex::new(run)));
        }
    }

    /// Grants the lease of a block, as the database has. `bits`: the counts used so far.
    pub(super) fn take(&self, place: Place, bits: u64) {
        self.with(place.nonce, |run| {
            if let Some(part) = run.find(place.part) {
                // The nonce may have been evicted meanwhile.
                part.bits |= bits;
                part.is_ours = true;
            }
        });
    }

    /// Revokes a lease because another server wants the block. Returns the counts used, if there was one.
    pub(super) fn give_up(&self, place: Place) -> Option<u64> {
        self.with(place.nonce, |run| {
            run.is_shared = true;
            let part = run.find(place.part).filter(|part| part.is_ours)?;
            part.is_ours = false;
            Some(part.bits)
        })?
    }

    /// Whether this server may have leased the block and evicted it, so that nobody can hand it over.
    pub(super) fn has_forgotten(&self, place: Place) -> bool {
        self.with(place.nonce, |run| place.part < run.forgotten).unwrap_or(false)
    }

    fn with<T>(&self, nonce: u128, work: impl FnOnce(&mut Run) -> T) -> Option<T> {
        let run = self.0.get(&nonce)?;
        let mut run: MutexGuard<'_, Run> = run.lock().unwrap_or_else(PoisonError::into_inner);
        Some(work(&mut run))
    }
}

/// How this server has seen one nonce used.
#[derive(Debug, Default)]
struct Run {
    first: u32,
    last: u32,
    used: u32,
    /// Whether another server has seen it too.
    is_shared: bool,
    /// In ascending order.
    parts: Vec<Part>,
    /// Blocks before this one have been evicted.
    forgotten: u32,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    part: u32,
    /// Counts claimed by this server.
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
        // What was claimed of an earlier block may have been evicted.
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
    fn nonce_lease_count_maps_to_block_and_bit() {
        let at = |count| Place::of(&of(count)).map(|(place, bit)| (place.part, bit));
        assert_eq!(at(0), None);
        assert_eq!(at(1), Some((0, 1)));
        assert_eq!(at(63), Some((0, 1 << 62)));
        assert_eq!(at(64), Some((1, 1)));
        let (part, bit) = at(u32::MAX).unwrap();
        assert!(i32::try_from(part).is_ok() && bit <= 1 << 62);
    }

    #[test]
    fn nonce_lease_sequential_counts_are_leased() {
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
        // The block before the latest is still remembered.
        ours.note(&of(64));
        ours.take(place(64), 0);
        assert_eq!(ours.claim(&of(63)), Some(Claimed::Again));
        assert_eq!(ours.claim(&of(65)), Some(Claimed::First));
    }

    #[test]
    fn nonce_lease_alternating_counts_are_not_leased() {
        for step in [2, 3] {
            let ours = Ours::default();
            for count in (1..400).step_by(step) {
                assert_eq!(ours.wish(place(count)), None, "{step} {count}");
                ours.note(&of(count));
            }
        }
    }

    #[test]
    fn nonce_lease_revoked_nonce_is_not_leased_again() {
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

    /// The claims of an evicted block are forgotten, so it must not be leased.
    #[test]
    fn nonce_lease_evicted_block_is_not_leased() {
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
