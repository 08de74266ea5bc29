//! Replay protection compared with a plain set, at its limits, and under contention.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

const NOW: i64 = 1_800_000_000;

fn claim_of(nonce: u128, count: u32) -> NonceClaim {
    NonceClaim { epoch: 7, nonce, count, issued: NOW }
}

proptest! {
    /// No count is `First` twice; and while nothing is evicted, the results are those of a set.
    #[test]
    fn nonce_count_is_accepted_once(uses in prop::collection::vec((0u128..6, 1u32..700), 1..800)) {
        let claims = UsedNonces::with_capacity(7, 2, 64);
        let mut used = HashSet::new();
        for (nonce, count) in uses {
            let expected = if used.insert((nonce, count)) { NonceClaimResult::First } else { NonceClaimResult::Replay };
            prop_assert_eq!(claims.claim(&claim_of(nonce, count), NOW), expected);
        }
    }

    /// With a small capacity, distant counts and old nonces, evicted state never counts as unused.
    #[test]
    fn nonce_evicted_is_stale_and_never_first(
        uses in prop::collection::vec((0u128..40, 0u32..=u32::MAX, -60i64..20, any::<bool>()), 1..600),
    ) {
        let claims = UsedNonces::with_capacity(7, 2, 16);
        let mut used = HashSet::new();
        let (mut last, mut latest) = (Vec::new(), 0);
        for (nonce, count, step, is_again) in uses {
            // The clocks of threads differ a little, and no clock is set back.
            let now = latest + step;
            latest = latest.max(now);
            // A nonce has one issue time; half of the uses are replays.
            let (nonce, count) = if is_again { last.last().copied().unwrap_or((nonce, count)) } else { (nonce, count) };
            last.insert(last.len() / 2, (nonce, count));
            let issued = NOW + i64::try_from(nonce).unwrap() * 20;
            let claim = NonceClaim { epoch: 7, nonce, count, issued };
            match claims.claim(&claim, NOW + now) {
                NonceClaimResult::First => prop_assert!(used.insert((nonce, count)), "{claim:?} was used"),
                NonceClaimResult::Replay => prop_assert!(used.contains(&(nonce, count)), "{claim:?} was not used"),
                NonceClaimResult::Stale => {}
            }
            let held: usize = claims.shards.iter().map(|shard| shard.lock().unwrap().nonces.len()).sum();
            prop_assert!(held <= 16);
        }
    }
}

/// RFC 7616 §3.4: clients count up from 1; the prefix stays one number, however long it gets.
#[test]
fn nonce_counts_in_sequence_need_one_word() {
    let mut used = UsedCounts::default();
    for count in 1..=1_000_000 {
        assert_eq!(used.claim(count), NonceClaimResult::First);
        assert!(used.words.len() <= 1);
    }
    assert!(
        (1..=1_000_000).step_by(997).all(|count| used.claim(count) == NonceClaimResult::Replay)
    );
    assert_eq!(used.claim(0), NonceClaimResult::Stale);
}

/// A client that leaves gaps loses the oldest of them, and continues.
#[test]
fn nonce_gaps_are_evicted_oldest_first() {
    let mut used = UsedCounts::default();
    for word in 0..100 {
        assert_eq!(used.claim(word * 64 + 2), NonceClaimResult::First);
        assert!(used.words.len() <= WORDS_PER_NONCE_MAX);
    }
    assert_eq!(used.claim(1), NonceClaimResult::Stale, "nobody knows any more");
    assert_eq!(used.claim(2), NonceClaimResult::Stale);
    assert_eq!(used.claim(99 * 64 + 1), NonceClaimResult::First, "the last words are known");
    assert_eq!(used.claim(99 * 64 + 2), NonceClaimResult::Replay);
    // Full words behind the evicted ones are folded too.
    for count in 84 * 64 + 1..=100 * 64 {
        let _ = used.claim(count);
    }
    assert_eq!((used.evicted_words, used.words.len()), (100, 0));
    assert_eq!(used.claim(100 * 64 + 1), NonceClaimResult::First);
}

/// At capacity, a new nonce evicts those of the oldest second permanently.
#[test]
fn nonce_table_full_makes_the_oldest_stale() {
    let claims = UsedNonces::with_capacity(7, 1, 100);
    let at =
        |nonce: u128, issued: i64| NonceClaim { epoch: 7, nonce, count: 1, issued: NOW + issued };
    for nonce in 0..100 {
        let issued = i64::try_from(nonce / 10).unwrap();
        assert_eq!(claims.claim(&at(nonce, issued), NOW), NonceClaimResult::First);
    }
    assert_eq!(claims.claim(&at(0, 0), NOW), NonceClaimResult::Replay);
    assert_eq!(claims.claim(&at(1_000, 9), NOW), NonceClaimResult::First);
    assert!((0..10).all(|nonce| claims.claim(&at(nonce, 0), NOW) == NonceClaimResult::Stale));
    assert_eq!(
        claims.claim(&at(1_001, 0), NOW),
        NonceClaimResult::Stale,
        "even one that was never used"
    );
    assert_eq!(claims.claim(&at(10, 1), NOW), NonceClaimResult::Replay);
    assert!(claims.shards[0].lock().unwrap().nonces.len() <= 100);
}

/// A nonce past its lifetime is stale, and its memory is freed.
#[test]
fn nonce_expired_is_stale_and_evicted() {
    let claims = UsedNonces::with_capacity(7, 1, 1_000);
    for nonce in 0..100 {
        assert_eq!(claims.claim(&claim_of(nonce, 1), NOW), NonceClaimResult::First);
    }
    let last = NOW + NONCE_SECONDS + CLOCK_SKEW_SECONDS;
    assert_eq!(claims.claim(&claim_of(0, 1), last), NonceClaimResult::Replay);
    assert_eq!(claims.claim(&claim_of(0, 1), last + 1), NonceClaimResult::Stale);
    for nonce in 100..150 {
        let fresh = NonceClaim { issued: last, ..claim_of(nonce, 1) };
        assert_eq!(claims.claim(&fresh, last + 1), NonceClaimResult::First);
    }
    assert_eq!(claims.shards[0].lock().unwrap().nonces.len(), 50);
}

/// The memory of a full table, in bytes per nonce: a map at half load, the nonce in the order of age, and its
/// words, one or the maximum.
#[test]
fn nonce_table_full_fits_the_memory_budget() {
    let of =
        |words: usize| 2 * size_of::<(u128, UsedCounts)>() + 2 * size_of::<u128>() + words * 16;
    assert!(of(1) * NONCES_MAX <= 48 << 20, "{}", of(1));
    assert!(of(WORDS_PER_NONCE_MAX) * NONCES_MAX <= 128 << 20, "{}", of(WORDS_PER_NONCE_MAX));
    let mut used = UsedCounts::default();
    used.claim(1);
    assert_eq!(used.words.capacity(), 1);
    for word in 1..200 {
        used.claim(word * 64 + 1);
    }
    assert_eq!(used.words.capacity(), WORDS_PER_NONCE_MAX);
}

#[test]
fn nonce_of_another_epoch_is_stale() {
    let claims = UsedNonces::with_capacity(7, 1, 10);
    assert_eq!(
        claims.claim(&NonceClaim { epoch: 8, ..claim_of(1, 1) }, NOW),
        NonceClaimResult::Stale
    );
    assert_eq!(claims.claim(&claim_of(1, 1), NOW), NonceClaimResult::First);
    let (one, other) = (UsedNonces::new().unwrap(), UsedNonces::new().unwrap());
    assert_ne!(one.epoch(NOW), other.epoch(NOW));
}

/// With the floors of a clock that was ahead, every nonce would be stale until the time has caught up.
#[test]
fn nonce_epoch_changes_when_the_clock_is_set_back() {
    let claims = UsedNonces::with_capacity(7, 1, 10);
    let ahead = NOW + 86_400;
    let before = NonceClaim { issued: ahead, ..claim_of(1, 1) };
    assert_eq!((claims.epoch(ahead), claims.claim(&before, ahead)), (7, NonceClaimResult::First));
    assert_eq!(claims.epoch(ahead - CLOCK_SET_BACK_SECONDS), 7, "clocks may differ by this");
    let epoch = claims.epoch(NOW);
    assert_ne!(epoch, 7);
    assert_eq!(claims.epoch(NOW), epoch, "one for each time it is set back");
    assert_eq!(claims.claim(&before, NOW), NonceClaimResult::Stale);
    let after = NonceClaim { epoch, ..claim_of(1, 1) };
    assert_eq!(claims.claim(&after, NOW), NonceClaimResult::First);
    assert_eq!(claims.claim(&after, NOW), NonceClaimResult::Replay);
    // When the time has caught up, or the clock is ahead again.
    assert_eq!(claims.epoch(ahead), epoch);
    for count in 1..3 {
        assert_eq!(claims.claim(&NonceClaim { count, ..before }, ahead), NonceClaimResult::Stale);
    }
    assert_eq!(claims.claim(&NonceClaim { epoch, ..before }, ahead), NonceClaimResult::First);
}

#[test]
fn nonce_claim_detects_a_clock_set_back() {
    let claims = UsedNonces::with_capacity(7, 1, 10);
    assert_eq!(claims.claim(&claim_of(1, 1), NOW + 100), NonceClaimResult::First);
    assert_eq!(claims.claim(&claim_of(1, 2), NOW), NonceClaimResult::Stale);
    assert_ne!(claims.epoch(NOW), 7);
}

/// When threads race for the same counts, each count is first for one of them.
#[test]
fn nonce_count_is_accepted_once_across_threads() {
    let claims = Arc::new(UsedNonces::with_capacity(7, SHARDS, NONCES_MAX));
    let firsts = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (claims, firsts) = (Arc::clone(&claims), Arc::clone(&firsts));
            std::thread::spawn(move || {
                for nonce in 0..50 {
                    let first = |count: &u32| {
                        claims.claim(&claim_of(nonce, *count), NOW) == NonceClaimResult::First
                    };
                    firsts.fetch_add((1..=200).filter(first).count(), Ordering::Relaxed);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(firsts.load(Ordering::Relaxed), 50 * 200);
}
