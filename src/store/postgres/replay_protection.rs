//! Replay protection across servers: all servers that share the database together accept each count of a
//! Digest nonce (`nc`) once.
//!
//! The tables (`tables`) are unlogged, so a crash of PostgreSQL empties them. The epoch is lost with
//! them, and every older nonce is then stale at every server; a claim checks the epoch in the same
//! statement. A copy of the tables and a clock that was set back start a new epoch too.
//!
//! Claims that arrive while a batch is in flight are sent as the next batch, by one task for all threads.
//!
//! A nonce that only one server sees is claimed in that server's memory (`nonce_lease`), which has leased
//! a block of its counts in the database. A count of a block that another server has leased is stale: the
//! client gets a new nonce, and retries by itself.
//!
//! A claim whose answer was lost is sent again. If it is accepted then, it is valid; if it is rejected as
//! used, our own first attempt may be the cause, and the claim fails.

pub mod claim_queue;
mod nonce_lease;
pub mod tables;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::clock;
use crate::fault::OrBug;
use crate::store::driver::Driver;
use crate::store::error::{InternalError, StoreError};
use crate::store::postgres::attempt::{NETWORK_GRACE, PostgresWorkerState};
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::error_class::ErrorClass;
use crate::store::postgres::pool::LeasePurpose;
use crate::store::postgres::replay_protection::claim_queue::{
    ClaimAttemptResult, ClaimBatchGuard, ClaimQueue, ClaimRequest, lock,
};
use crate::store::postgres::replay_protection::nonce_lease::CountBlock;
use crate::store::postgres::replay_protection::tables::{
    LIVE_EPOCH, SELECT_OR_CREATE_EPOCH, bucket_of, epoch_binds, nonce_age_seconds_max,
};
use crate::store::replay_protection::{CLOCK_SKEW_SECONDS, NonceClaim, NonceClaimResult};
use crate::store::statement::{Bind, Columns};

const CLAIM_INDEX: &str = "a batch has one result for each of its claims";
/// How often claims are resent that conflicted with claims of other servers.
const CONFLICT_ROUNDS_MAX: usize = 4;
/// How often a statement is sent: two connections in turn may have been lost while they were idle.
const STATEMENT_ATTEMPTS_MAX: usize = 3;
/// How often the epoch is queried while another server creates one.
const EPOCH_ATTEMPTS_MAX: usize = 5;

/// The claims of one block of one nonce, sent as one row.
#[derive(Debug, Default)]
struct BlockClaim {
    bits: u64,
    epoch: u64,
    issued: i64,
    /// Set if this server asks to lease the block: the counts that it knows to have claimed itself.
    own_bits: Option<u64>,
    /// Indexes into the claims of the batch.
    claim_indexes: Vec<usize>,
}

/// The claims of one worker thread.
#[derive(Debug)]
pub struct NonceClaims {
    state: Arc<PostgresWorkerState>,
    /// The claims of all threads.
    pub queue: Arc<ClaimQueue>,
}

impl NonceClaims {
    pub fn new(state: &Arc<PostgresWorkerState>, queue: &Arc<ClaimQueue>) -> Self {
        Self { state: Arc::clone(state), queue: Arc::clone(queue) }
    }

    /// Whether `claim_nonce_locally` can decide.
    #[cfg(test)]
    pub fn can_claim_nonce_locally(&self, claim: &NonceClaim) -> bool {
        *lock(&self.queue.epoch) == Some(claim.epoch) && self.queue.leases.is_leased(claim)
    }

    /// Claims a count of a block that this server has leased.
    pub fn claim_nonce_locally(&self, claim: &NonceClaim) -> Option<NonceClaimResult> {
        // Leases of another epoch may still be in memory, but all its nonces are stale.
        let is_live = *lock(&self.queue.epoch) == Some(claim.epoch);
        if is_live { self.queue.leases.claim(claim) } else { None }
    }

    pub async fn claim(
        self: &Arc<Self>,
        claim: &NonceClaim,
    ) -> Result<NonceClaimResult, StoreError> {
        // RFC 7616 §3.4 begins with 1.
        if claim.count == 0 {
            return Ok(NonceClaimResult::Stale);
        }
        let (answer, answered) = oneshot::channel();
        if self.queue.enqueue(ClaimRequest { claim: *claim, answer })? {
            let inner = Arc::clone(self);
            // A separate task: it sends the claims of other requests too, so it outlives this one.
            tokio::task::spawn_local(Box::pin(async move { inner.send_claim_batches().await }));
        }
        let lost =
            |_| Err(StoreError::Unavailable("a nonce claim ended without an answer".to_owned()));
        // A request that has waited this long is rejected. Its count is used up, which is harmless.
        let max = self.state.statement_max + NETWORK_GRACE;
        let answered = tokio::time::timeout(max, answered).await;
        answered.map_err(|_| StoreError::TimedOut)?.unwrap_or_else(lost)
    }

    pub async fn epoch(&self) -> Result<u64, StoreError> {
        let known = *lock(&self.queue.epoch);
        if let Some(epoch) = known {
            return Ok(epoch);
        }
        let made = getrandom::u64().map_err(|error| StoreError::Unavailable(error.to_string()))?;
        for _ in 0..EPOCH_ATTEMPTS_MAX {
            let (rows, _) = self
                .query_with_retry(SELECT_OR_CREATE_EPOCH, &epoch_binds(made), |row| row.integer(0))
                .await?;
            if let Some(epoch) = rows.into_iter().flatten().next() {
                let epoch = epoch.cast_unsigned();
                *lock(&self.queue.epoch) = Some(epoch);
                return Ok(epoch);
            }
        }
        Err(StoreError::Busy)
    }

    /// Sends the waiting claims in batches, until none is left.
    async fn send_claim_batches(self: Arc<Self>) {
        let mut under_way = ClaimBatchGuard { queue: &self.queue, is_done: false };
        loop {
            let asked = self.queue.take_batch();
            if asked.is_empty() {
                under_way.is_done = true;
                return;
            }
            let claims: Vec<NonceClaim> = asked.iter().map(|asked| asked.claim).collect();
            let found = self.claim_batch(&claims).await;
            for (at, asked) in asked.into_iter().enumerate() {
                let answer = match &found {
                    Ok(found) => match found.get(at).or_bug(CLAIM_INDEX) {
                        ClaimAttemptResult::Decided(claimed) => Ok(*claimed),
                        ClaimAttemptResult::Unknown => {
                            let cause = "the answer to a nonce claim was lost".to_owned();
                            Err(StoreError::Unavailable(cause))
                        }
                    },
                    Err(StoreError::Busy) => Err(StoreError::Busy),
                    Err(StoreError::TimedOut) => Err(StoreError::TimedOut),
                    Err(other) => Err(StoreError::Unavailable(format!("{other:?}"))),
                };
                // The receiver is gone if the client disconnected.
                let _ = asked.answer.send(answer);
            }
        }
    }

    /// The result of each claim.
    async fn claim_batch(
        self: &Arc<Self>,
        claims: &[NonceClaim],
    ) -> Result<Vec<ClaimAttemptResult>, StoreError> {
        let epoch = self.epoch().await?;
        let mut seen = HashSet::new();
        let known = |claim: &NonceClaim| {
            // Of two equal claims in one batch, the first one wins.
            if !seen.insert((claim.nonce, claim.count, claim.epoch, claim.issued)) {
                return Some(ClaimAttemptResult::Decided(NonceClaimResult::Replay));
            }
            // The block may have been leased while the claims waited.
            let ours = if claim.epoch == epoch { self.queue.leases.claim(claim) } else { None };
            ours.map(ClaimAttemptResult::Decided)
        };
        let mut found: Vec<Option<ClaimAttemptResult>> = claims.iter().map(known).collect();
        for round in 0..CONFLICT_ROUNDS_MAX {
            let mut sent: BTreeMap<i64, BTreeMap<CountBlock, BlockClaim>> = BTreeMap::new();
            let open =
                claims.iter().zip(&found).enumerate().filter(|(_, (_, found))| found.is_none());
            for (at, (claim, _)) in open {
                let Some((place, bit)) = CountBlock::from_claim(claim) else { continue };
                let NonceClaim { epoch, issued, .. } = *claim;
                // Not after a conflict: then another server uses the nonce too.
                let held = if round == 0 { self.queue.leases.lease_request(place) } else { None };
                let parts = sent.entry(bucket_of(claim)).or_default();
                let one = parts.entry(place).or_insert(BlockClaim {
                    epoch,
                    issued,
                    own_bits: held,
                    ..BlockClaim::default()
                });
                if (one.epoch, one.issued) == (epoch, issued) {
                    one.bits |= bit;
                    one.claim_indexes.push(at);
                }
            }
            if sent.is_empty() {
                break;
            }
            for (bucket, sent) in sent {
                for (at, result) in self.claim_blocks(claims, bucket, &sent).await? {
                    *found.get_mut(at).or_bug(CLAIM_INDEX) = Some(result);
                }
            }
        }
        Ok(found.into_iter().map(|found| found.unwrap_or(ClaimAttemptResult::Unknown)).collect())
    }

    /// Claims blocks of one table. Returns the results of the claims, by index; a claim that conflicted
    /// with others has none, and is sent again.
    async fn claim_blocks(
        self: &Arc<Self>,
        claims: &[NonceClaim],
        bucket: i64,
        sent: &BTreeMap<CountBlock, BlockClaim>,
    ) -> Result<Vec<(usize, ClaimAttemptResult)>, StoreError> {
        let (taken, was_lost) = self.insert_blocks(bucket, sent).await?;
        let taken: HashMap<CountBlock, bool> = taken.into_iter().flatten().collect();
        let mut results = Vec::new();
        for (place, one) in sent {
            let Some(is_whole) = taken.get(place) else { continue };
            for at in &one.claim_indexes {
                self.queue.leases.record_use(claims.get(*at).or_bug(CLAIM_INDEX));
                results.push((*at, ClaimAttemptResult::Decided(NonceClaimResult::First)));
            }
            if let (true, Some(held)) = (is_whole, one.own_bits) {
                self.queue.leases.grant(*place, held | one.bits);
            }
        }
        if taken.len() < sent.len() {
            let rest = sent.iter().filter(|(place, _)| !taken.contains_key(place)).collect();
            results.extend(self.explain_rejections(claims, (bucket, rest), was_lost).await?);
        }
        Ok(results)
    }

    /// Finds out why claims were not accepted: the nonce is stale, the count is used, or another server has
    /// leased the block.
    async fn explain_rejections(
        &self,
        claims: &[NonceClaim],
        (bucket, sent): (i64, BTreeMap<&CountBlock, &BlockClaim>),
        was_lost: bool,
    ) -> Result<Vec<(usize, ClaimAttemptResult)>, StoreError> {
        let binds = [Bind::Integer(nonce_age_seconds_max()), Bind::Integer(CLOCK_SKEW_SECONDS)];
        let read = |row: &dyn Columns| Ok((row.integer(0)?, row.integer(1)?, row.integer(2)?));
        let (live, _) = self.query_with_retry(LIVE_EPOCH, &binds, read).await?;
        let live = live.first().copied().unwrap_or_default();
        *lock(&self.queue.epoch) = live.0.map(i64::cast_unsigned);
        let is_live = |one: &BlockClaim| {
            let (Some(epoch), Some(oldest), Some(newest)) = live else { return false };
            one.epoch == epoch.cast_unsigned() && (oldest..=newest).contains(&one.issued)
        };
        let texts = [
            comma_separated(sent.keys().map(|place| Uuid::from_u128(place.nonce))),
            comma_separated(sent.keys().map(|place| place.index)),
        ];
        let binds = texts.each_ref().map(|text| Bind::Text(text));
        let read = |row: &dyn Columns| Ok(block_from_row(row)?.zip(row.integer(2)?));
        let (kept, _) = self
            .query_with_retry(&self.queue.statements_for(bucket)?.select_bits, &binds, read)
            .await?;
        let kept: HashMap<CountBlock, i64> = kept.into_iter().flatten().collect();
        let mut results = Vec::new();
        for (place, one) in sent {
            for at in &one.claim_indexes {
                let claim = claims.get(*at).or_bug(CLAIM_INDEX);
                let (_, bit) = CountBlock::from_claim(claim).or_bug("the claim was sent");
                let found = rejection_reason(is_live(one), kept.get(place).copied(), bit, was_lost);
                results.extend(found.map(|found| (*at, found)));
            }
        }
        Ok(results)
    }

    /// Claims blocks of one table. Returns the accepted ones, and whether this server has leased them.
    async fn insert_blocks(
        &self,
        bucket: i64,
        sent: &BTreeMap<CountBlock, BlockClaim>,
    ) -> Result<(Vec<Option<(CountBlock, bool)>>, bool), StoreError> {
        // In the order of their keys, so that two servers cannot deadlock.
        let texts = [
            comma_separated(sent.values().map(|one| one.epoch.cast_signed())),
            comma_separated(sent.keys().map(|place| Uuid::from_u128(place.nonce))),
            comma_separated(sent.keys().map(|place| place.index)),
            comma_separated(sent.values().map(|one| one.bits)),
            comma_separated(sent.values().map(|one| one.own_bits.map_or(-1, u64::cast_signed))),
            comma_separated(sent.values().map(|one| one.issued)),
        ];
        let numbers = [nonce_age_seconds_max(), CLOCK_SKEW_SECONDS].map(Bind::Integer);
        let binds: Vec<_> = texts.iter().map(|text| Bind::Text(text)).chain(numbers).collect();
        let read = |row: &dyn Columns| Ok(block_from_row(row)?.zip(row.boolean(2)?));
        self.query_with_retry(&self.queue.statements_for(bucket)?.claim, &binds, read).await
    }

    /// Runs one statement that is its own transaction, and retries it if the connection is lost; the second
    /// value says whether it was.
    async fn query_with_retry<T>(
        &self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
    ) -> Result<(Vec<T>, bool), StoreError> {
        let until = clock::now() + self.state.statement_max;
        let (mut tries, mut was_lost) = (1, false);
        loop {
            let lease = self.state.pool.lease(LeasePurpose::Read, until).await?;
            let mut driver = PostgresDriver::new(&lease, TransactionStage::Autocommit);
            let work = driver.query(sql, binds, &read);
            let Ok(done) = tokio::time::timeout_at((until + NETWORK_GRACE).into(), work).await
            else {
                // The connection is closed with its lease.
                lease.doubt_primary();
                lease.spawn_cancel();
                return Err(StoreError::TimedOut);
            };
            match (done, driver.error_class()) {
                (Ok(rows), _) => {
                    lease.return_to_pool();
                    return Ok((rows, was_lost));
                }
                (Err(failure), Some(ErrorClass::ReadOnly)) => {
                    lease.return_to_pool();
                    if tries == STATEMENT_ATTEMPTS_MAX || !self.state.find_primary(until).await {
                        return Err(failure.into());
                    }
                    tries += 1;
                }
                (Err(_), Some(trouble)) if tries < STATEMENT_ATTEMPTS_MAX => {
                    tries += 1;
                    was_lost |= trouble == ErrorClass::ConnectionLost;
                }
                (Err(failure), Some(_)) => return Err(failure.into()),
                (Err(failure), None) => {
                    lease.return_to_pool();
                    return Err(failure.into());
                }
            }
        }
    }
}

/// Why a claim was not accepted; `None` if only another claim of the same row conflicted.
/// `was_lost`: an earlier attempt got no answer.
fn rejection_reason(
    is_live: bool,
    kept: Option<i64>,
    bit: u64,
    was_lost: bool,
) -> Option<ClaimAttemptResult> {
    match kept {
        Some(_) | None if !is_live => Some(ClaimAttemptResult::Decided(NonceClaimResult::Stale)),
        // No row conflicted, and yet the claim was not accepted: the row was swept since.
        None => Some(ClaimAttemptResult::Decided(NonceClaimResult::Stale)),
        Some(kept) if was_lost && kept & bit.cast_signed() != 0 => {
            Some(ClaimAttemptResult::Unknown)
        }
        // The lease of another server, or one of our own that was evicted.
        Some(..0) => Some(ClaimAttemptResult::Decided(NonceClaimResult::Stale)),
        Some(kept) if kept & bit.cast_signed() != 0 => {
            Some(ClaimAttemptResult::Decided(NonceClaimResult::Replay))
        }
        Some(_) => None,
    }
}

/// The block that a row's first two columns name.
fn block_from_row(row: &dyn Columns) -> Result<Option<CountBlock>, InternalError> {
    let nonce = row.text(0)?.and_then(|text| Uuid::try_parse(text).ok()).map(|id| id.as_u128());
    let part = row.integer(1)?.and_then(|part| u32::try_from(part).ok());
    Ok(nonce.zip(part).map(|(nonce, part)| CountBlock { nonce, index: part }))
}

fn comma_separated<T: std::fmt::Display>(values: impl Iterator<Item = T>) -> String {
    let mut text = String::new();
    for (at, value) in values.enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{}{value}", if at == 0 { "" } else { "," });
    }
    text
}

#[cfg(test)]
mod tests;
