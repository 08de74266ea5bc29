//! Nonce leases: blocks of a nonce's counts that one server may accept from memory, without a round trip.
//!
//! A nonce whose counts were all sent to one server is likely to stay there. That server leases a whole
//! block, 63 counts, in the database in one step, and then accepts each of its counts from memory. This
//! module does not query the database. Eviction is always safe. A block that was leased and is evicted counts
//! as used up.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;

use crate::store::replay_protection::{NonceClaim, NonceClaimResult};

/// Counts in one block: as many bits as a `bigint` has without its sign, which marks the block as leased.
const BLOCK_COUNTS: u32 = 63;
/// How many counts of a nonce must have been sent to this server before it leases a block.
const LEASE_USES_MIN: u32 = 8;
/// How many counts may be missing, plus one for every `USED_PER_GAP` seen: requests overtake each other, and
/// a client with many connections has many in flight. Where a load balancer alternates between servers,
/// more are missing.
const GAPS_MAX: u32 = 4;
const USED_PER_GAP: u32 = 8;
/// Blocks remembered per nonce, the latest ones: a client with many connections may have one that lags
/// behind.
const BLOCKS_MAX: usize = 16;
/// Nonces remembered. Those that are used only once are evicted soon.
const NONCES_MAX: usize = 16_384;

/// The position of the time in a key; the random part of the nonce is below it.
const TIME_SHIFT: u32 = 96;

/// One block of the counts of one nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CountBlock {
    /// The nonce's random part, below the low half of the second of its issue: so the tables can tell how
    /// old a row is, and the newest row is the last in their index.
    pub nonce: u128,
    pub index: u32,
}

impl CountBlock {
    /// The block of a count, and the count's bit in it. `None` for 0: RFC 7616 §3.4 begins with 1.
    pub fn from_claim(claim: &NonceClaim) -> Option<(Self, u64)> {
        let index = claim.count.checked_sub(1)?;
        let time = u128::from(claim.issued.cast_unsigned() & u64::from(u32::MAX)) << TIME_SHIFT;
        let nonce = time | (claim.nonce & ((1 << TIME_SHIFT) - 1));
        let block = Self { nonce, index: index / BLOCK_COUNTS };
        Some((block, 1 << (index % BLOCK_COUNTS)))
    }
}

/// The usage of the nonces that are sent to this server, and the blocks that it has leased.
pub struct NonceLeases(Cache<u128, Arc<Mutex<NonceUsage>>>);

impl fmt::Debug for NonceLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NonceLeases").finish_non_exhaustive()
    }
}

impl Default for NonceLeases {
    fn default() -> Self {
        Self(Cache::new(NONCES_MAX))
    }
}

impl NonceLeases {
    /// Whether `claim` can decide.
    #[cfg(test)]
    pub fn is_leased(&self, claim: &NonceClaim) -> bool {
        let Some((block, _)) = CountBlock::from_claim(claim) else { return false };
        let has = |run: &mut NonceUsage| run.find(block.index).is_some_and(|part| part.is_leased);
        self.with_usage(block.nonce, has).unwrap_or(false)
    }

    /// Claims a count of a leased block; `None` if this server has not leased it.
    pub fn claim(&self, claim: &NonceClaim) -> Option<NonceClaimResult> {
        let (block, bit) = CountBlock::from_claim(claim)?;
        self.with_usage(block.nonce, |run| run.claim(block.index, bit, claim.count))?
    }

    /// The counts of a block that this server has claimed, if it should lease the rest of the block.
    pub fn lease_request(&self, block: CountBlock) -> Option<u64> {
        self.with_usage(block.nonce, |run| run.lease_request(block.index))?
    }

    /// Records a claim that the database has accepted.
    pub fn record_use(&self, claim: &NonceClaim) {
        let Some((block, bit)) = CountBlock::from_claim(claim) else { return };
        if self
            .with_usage(block.nonce, |run| run.record_use(block.index, bit, claim.count))
            .is_none()
        {
            let mut run = NonceUsage::default();
            run.record_use(block.index, bit, claim.count);
            self.0.insert(block.nonce, Arc::new(Mutex::new(run)));
        }
    }

    /// Grants the lease of a block, as the database has. `bits`: the counts used so far.
    pub fn grant(&self, block: CountBlock, bits: u64) {
        self.with_usage(block.nonce, |run| {
            if let Some(part) = run.find(block.index) {
                // The nonce may have been evicted meanwhile.
                part.used_bits |= bits;
                part.is_leased = true;
            }
        });
    }

    fn with_usage<T>(&self, nonce: u128, work: impl FnOnce(&mut NonceUsage) -> T) -> Option<T> {
        let run = self.0.get(&nonce)?;
        let mut run: MutexGuard<'_, NonceUsage> =
            run.lock().unwrap_or_else(PoisonError::into_inner);
        Some(work(&mut run))
    }
}

/// The usage of one nonce, as far as this server has seen it.
#[derive(Debug, Default)]
struct NonceUsage {
    first_count: u32,
    last_count: u32,
    uses: u32,
    /// In ascending order.
    blocks: Vec<BlockUsage>,
}

#[derive(Debug, Clone, Copy)]
struct BlockUsage {
    index: u32,
    /// Counts claimed by this server.
    used_bits: u64,
    is_leased: bool,
}

impl NonceUsage {
    fn find(&mut self, part: u32) -> Option<&mut BlockUsage> {
        self.blocks.iter_mut().rev().find(|known| known.index == part)
    }

    fn claim(&mut self, part: u32, bit: u64, count: u32) -> Option<NonceClaimResult> {
        let known = self.find(part).filter(|known| known.is_leased)?;
        if known.used_bits & bit != 0 {
            return Some(NonceClaimResult::Replay);
        }
        known.used_bits |= bit;
        self.extend_range(count);
        Some(NonceClaimResult::First)
    }

    fn lease_request(&mut self, part: u32) -> Option<u64> {
        let span = self.last_count - self.first_count + 1;
        let gaps_max = GAPS_MAX + self.uses / USED_PER_GAP;
        let is_alone = self.uses >= LEASE_USES_MIN && span.saturating_sub(self.uses) <= gaps_max;
        if !is_alone {
            return None;
        }
        if let Some(known) = self.find(part) {
            return Some(known.used_bits);
        }
        // The claims of an earlier block may have been evicted.
        self.is_latest(part).then_some(0)
    }

    fn record_use(&mut self, part: u32, bit: u64, count: u32) {
        self.extend_range(count);
        if let Some(known) = self.find(part) {
            known.used_bits |= bit;
            return;
        }
        if self.is_latest(part) {
            if self.blocks.len() == BLOCKS_MAX {
                self.blocks.remove(0);
            }
            self.blocks.push(BlockUsage { index: part, used_bits: bit, is_leased: false });
        }
    }

    fn is_latest(&self, part: u32) -> bool {
        self.blocks.last().is_none_or(|latest| latest.index < part)
    }

    fn extend_range(&mut self, count: u32) {
        self.first_count = if self.uses == 0 { count } else { self.first_count.min(count) };
        self.last_count = self.last_count.max(count);
        self.uses = self.uses.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim_of(count: u32) -> NonceClaim {
        NonceClaim { epoch: 1, nonce: 7, count, issued: 0 }
    }

    fn block_of(count: u32) -> CountBlock {
        CountBlock::from_claim(&claim_of(count)).unwrap().0
    }

    #[test]
    fn nonce_lease_count_maps_to_block_and_bit() {
        let at =
            |count| CountBlock::from_claim(&claim_of(count)).map(|(block, bit)| (block.index, bit));
        assert_eq!(at(0), None);
        assert_eq!(at(1), Some((0, 1)));
        assert_eq!(at(63), Some((0, 1 << 62)));
        assert_eq!(at(64), Some((1, 1)));
        let (part, bit) = at(u32::MAX).unwrap();
        assert!(i32::try_from(part).is_ok() && bit <= 1 << 62);
    }

    #[test]
    fn nonce_lease_sequential_counts_are_leased() {
        let ours = NonceLeases::default();
        for count in 1..LEASE_USES_MIN {
            assert_eq!(ours.lease_request(block_of(count)), None, "{count}");
            ours.record_use(&claim_of(count));
        }
        ours.record_use(&claim_of(LEASE_USES_MIN));
        assert_eq!(ours.lease_request(block_of(9)), Some(0xff));
        assert_eq!(ours.lease_request(block_of(64)), Some(0), "the next part is untouched");
        assert_eq!(ours.claim(&claim_of(9)), None, "not ours yet");

        ours.record_use(&claim_of(9));
        ours.grant(block_of(9), 0);
        assert!(ours.is_leased(&claim_of(10)) && !ours.is_leased(&claim_of(64)));
        assert_eq!(ours.claim(&claim_of(9)), Some(NonceClaimResult::Replay));
        for count in (10..=63).rev() {
            assert_eq!(ours.claim(&claim_of(count)), Some(NonceClaimResult::First));
            assert_eq!(ours.claim(&claim_of(count)), Some(NonceClaimResult::Replay));
        }
        // The block before the latest is still remembered.
        ours.record_use(&claim_of(64));
        ours.grant(block_of(64), 0);
        assert_eq!(ours.claim(&claim_of(63)), Some(NonceClaimResult::Replay));
        assert_eq!(ours.claim(&claim_of(65)), Some(NonceClaimResult::First));
    }

    #[test]
    fn nonce_lease_alternating_counts_are_not_leased() {
        for step in [2, 3] {
            let ours = NonceLeases::default();
            for count in (1..400).step_by(step) {
                assert_eq!(ours.lease_request(block_of(count)), None, "{step} {count}");
                ours.record_use(&claim_of(count));
            }
        }
    }

    /// The claims of an evicted block are forgotten, so it must not be leased.
    #[test]
    fn nonce_lease_evicted_block_is_not_leased() {
        let ours = NonceLeases::default();
        for part in 0..=16 {
            (1..=63).for_each(|count| ours.record_use(&claim_of(part * 63 + count)));
        }
        assert_eq!(ours.lease_request(block_of(1)), None);
        assert_eq!(ours.lease_request(block_of(64)), Some(u64::MAX >> 1));
        assert_eq!(ours.lease_request(block_of(17 * 63 + 1)), Some(0));
    }
}
