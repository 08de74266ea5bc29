//! Which counts of which nonces were used, among servers that share a database.
//!
//! The tables (`tables`) are empty after a crash of PostgreSQL. Then the epoch is gone with them, so that
//! every nonce from before is stale at every server; a claim looks at the epoch in the same statement.
//! A copy of the tables, and a clock that was set back, begin a new epoch too.
//! Claims that come while one is under way are sent together, by one thread for all.
//! A nonce that comes to one server alone is claimed in the memory of that server (`ours`), which has
//! taken a part of it in the database. Another server to which it comes after all says so, and waits
//! until the part is given up with what was used of it.
//! The one surprising thing: a claim whose answer was lost is made once more, and `First` is then the
//! truth, but `Again` may be our own work and is told as a failure.

mod handover;
mod line;
mod ours;
mod tables;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use uuid::Uuid;

pub(super) use self::line::Batch;
pub(super) use self::tables::{create, sweep};

use self::line::{Asked, Found, UnderWay, lock};
use self::ours::Place;
use self::tables::{EPOCH, LIVE, age_max, bucket_of, epoch_binds};
use super::driver::{PostgresDriver, Stage};
use super::failure::Trouble;
use super::pool::Purpose;
use super::{GRACE, Inner, Worker, no_connection};
use crate::clock;
use crate::store::claims::SKEW_SECONDS;
use crate::store::driver::{Bind, Columns, Driver};
use crate::store::{Broken, Claim, Claimed, StoreError};

/// How often claims are sent that are in each other's way.
const ROUNDS_MAX: usize = 4;
/// How often a statement is sent: the claims and the watch have a connection each, and both may be lost.
const TRIES_MAX: usize = 3;
/// How often the epoch is asked for while others make one at the same time.
const EPOCH_TRIES: usize = 5;

/// How often a server looks whether it got what it wants, and when it gives up: the other one is gone.
const WANTED_PAUSE: Duration = Duration::from_millis(20);
const WANTED_AGAIN: Duration = Duration::from_millis(500);
const WANTED_MAX: Duration = Duration::from_secs(2);

/// Claims of one part of one nonce that are sent as one.
#[derive(Debug, Default)]
struct Sent {
    bits: u64,
    epoch: u64,
    issued: i64,
    /// What of the part is our own work, if we wish for all of it.
    held: Option<u64>,
    /// By their place among the claims.
    claims: Vec<usize>,
}

impl Worker {
    pub(in crate::store) async fn epoch(&self) -> Result<u64, StoreError> {
        self.0.epoch().await
    }

    /// Whether `claim_here` can tell.
    pub(in crate::store) fn can_claim_here(&self, claim: &Claim) -> bool {
        *lock(&self.0.claims.epoch) == Some(claim.epoch) && self.0.claims.ours.has(claim)
    }

    /// Claims what this server has to itself.
    pub(in crate::store) fn claim_here(&self, claim: &Claim) -> Option<Claimed> {
        // What is ours of another epoch can be known to nobody else, and yet all of it is stale.
        let is_live = *lock(&self.0.claims.epoch) == Some(claim.epoch);
        if is_live { self.0.claims.ours.claim(claim) } else { None }
    }

    pub(in crate::store) async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let Some((place, _)) = Place::of(claim) else { return Ok(Claimed::Stale) };
        let until = clock::now() + WANTED_MAX;
        let mut wanted: Option<Instant> = None;
        loop {
            match self.claim_once(claim).await? {
                Found::Told(claimed) => {
                    // It may have been given up just before it was wanted.
                    if wanted.is_some() {
                        let inner = Arc::clone(&self.0);
                        tokio::task::spawn_local(async move { inner.want_no_more(place).await });
                    }
                    return Ok(claimed);
                }
                Found::Unknown => {
                    let cause = "the answer to a claim was lost".to_owned();
                    return Err(StoreError::Unavailable(cause));
                }
                // By ourselves, long ago.
                Found::Held if self.0.claims.ours.has_forgotten(place) => {
                    return Ok(Claimed::Stale);
                }
                Found::Held if clock::now() < until => {
                    // Again now and then: another one who wanted it too may have given up.
                    if wanted.is_none_or(|last| last.elapsed() >= WANTED_AGAIN) {
                        wanted = Some(clock::now());
                        self.0.want(place, bucket_of(claim)).await?;
                    }
                    tokio::time::sleep(WANTED_PAUSE).await;
                }
                // Whoever has it does not answer. The client gets a nonce that nobody has.
                Found::Held => {
                    self.0.want_no_more(place).await?;
                    return Ok(Claimed::Stale);
                }
            }
        }
    }

    async fn claim_once(&self, claim: &Claim) -> Result<Found, StoreError> {
        let (answer, answered) = oneshot::channel();
        if self.0.claims.put(Asked { claim: *claim, answer })? {
            let inner = Arc::clone(&self.0);
            // A task of its own: others go with it, so it goes on when this client leaves.
            tokio::task::spawn_local(Box::pin(async move { inner.claim_all().await }));
        }
        let lost = |_| Err(StoreError::Unavailable("a claim ended without an answer".to_owned()));
        // Whoever has waited for so long is not let in; the count is used up, which harms nobody.
        let max = self.0.statement_max + GRACE;
        let answered = tokio::time::timeout(max, answered).await;
        answered.map_err(|_| StoreError::TimedOut)?.unwrap_or_else(lost)
    }
}

impl Inner {
    async fn epoch(&self) -> Result<u64, StoreError> {
        let known = *lock(&self.claims.epoch);
        if let Some(epoch) = known {
            return Ok(epoch);
        }
        let made = getrandom::u64().map_err(|error| StoreError::Unavailable(error.to_string()))?;
        for _ in 0..EPOCH_TRIES {
            let (rows, _) = self.ask(EPOCH, &epoch_binds(made), |row| row.integer(0)).await?;
            if let Some(epoch) = rows.into_iter().flatten().next() {
                let epoch = epoch.cast_unsigned();
                *lock(&self.claims.epoch) = Some(epoch);
                return Ok(epoch);
            }
        }
        Err(StoreError::Busy)
    }

    /// Makes the claims that wait, until none does.
    async fn claim_all(self: Arc<Self>) {
        let mut under_way = UnderWay { batch: &self.claims, is_done: false };
        loop {
            let asked = self.claims.take();
            if asked.is_empty() {
                under_way.is_done = true;
                return;
            }
            let claims: Vec<Claim> = asked.iter().map(|asked| asked.claim).collect();
            let found = self.claim_some(&claims).await;
            for (at, asked) in asked.into_iter().enumerate() {
                let answer = match &found {
                    Ok(found) => Ok(found.get(at).copied().unwrap_or(Found::Unknown)),
                    Err(StoreError::Busy) => Err(StoreError::Busy),
                    Err(StoreError::TimedOut) => Err(StoreError::TimedOut),
                    Err(other) => Err(StoreError::Unavailable(format!("{other:?}"))),
                };
                // The client may have left.
                let _ = asked.answer.send(answer);
            }
        }
    }

    /// What became of each.
    async fn claim_some(self: &Arc<Self>, claims: &[Claim]) -> Result<Vec<Found>, StoreError> {
        let epoch = self.epoch().await?;
        let mut seen = HashSet::new();
        let known = |claim: &Claim| {
            // Of two that are the same, sent together, one is the first.
            if !seen.insert((claim.nonce, claim.count, claim.epoch, claim.issued)) {
                return Some(Found::Told(Claimed::Again));
            }
            // It may have become ours while they waited.
            let ours = if claim.epoch == epoch { self.claims.ours.claim(claim) } else { None };
            ours.map(Found::Told)
        };
        let mut found: Vec<Option<Found>> = claims.iter().map(known).collect();
        for round in 0..ROUNDS_MAX {
            let mut sent: BTreeMap<i64, BTreeMap<Place, Sent>> = BTreeMap::new();
            let open =
                claims.iter().zip(&found).enumerate().filter(|(_, (_, found))| found.is_none());
            for (at, (claim, _)) in open {
                let Some((place, bit)) = Place::of(claim) else { continue };
                let Claim { epoch, issued, .. } = *claim;
                // After a try that failed it is ours no more than others'.
                let held = if round == 0 { self.claims.ours.wish(place) } else { None };
                let parts = sent.entry(bucket_of(claim)).or_default();
                let one =
                    parts.entry(place).or_insert(Sent { epoch, issued, held, ..Sent::default() });
                if (one.epoch, one.issued) == (epoch, issued) {
                    one.bits |= bit;
                    one.claims.push(at);
                }
            }
            if sent.is_empty() {
                break;
            }
            for (bucket, sent) in sent {
                for (at, told) in self.claim_parts(claims, bucket, &sent).await? {
                    if let Some(open) = found.get_mut(at) {
                        *open = Some(told);
                    }
                }
            }
        }
        Ok(found.into_iter().map(|found| found.unwrap_or(Found::Unknown)).collect())
    }

    /// Claims parts of nonces that belong into one table. Gives what became of the claims, by their place;
    /// of those that others were in the way of, nothing.
    async fn claim_parts(
        self: &Arc<Self>,
        claims: &[Claim],
        bucket: i64,
        sent: &BTreeMap<Place, Sent>,
    ) -> Result<Vec<(usize, Found)>, StoreError> {
        let (taken, was_lost) = self.insert(bucket, sent).await?;
        let taken: HashMap<Place, bool> = taken.into_iter().flatten().collect();
        let mut told = Vec::new();
        for (place, one) in sent {
            let Some(is_whole) = taken.get(place) else { continue };
            for at in &one.claims {
                claims.get(*at).into_iter().for_each(|claim| self.claims.ours.note(claim));
                told.push((*at, Found::Told(Claimed::First)));
            }
            if let (true, Some(held)) = (is_whole, one.held) {
                self.claims.ours.take(*place, held | one.bits);
                self.watch();
            }
        }
        if taken.len() < sent.len() {
            let rest = sent.iter().filter(|(place, _)| !taken.contains_key(place)).collect();
            told.extend(self.judge(claims, (bucket, rest), was_lost).await?);
        }
        Ok(told)
    }

    /// Why claims were not taken: they are stale, or used, or held by another server.
    async fn judge(
        &self,
        claims: &[Claim],
        (bucket, sent): (i64, BTreeMap<&Place, &Sent>),
        was_lost: bool,
    ) -> Result<Vec<(usize, Found)>, StoreError> {
        let binds = [Bind::Integer(age_max()), Bind::Integer(SKEW_SECONDS)];
        let read = |row: &dyn Columns| Ok((row.integer(0)?, row.integer(1)?, row.integer(2)?));
        let (live, _) = self.ask(LIVE, &binds, read).await?;
        let live = live.first().copied().unwrap_or_default();
        *lock(&self.claims.epoch) = live.0.map(i64::cast_unsigned);
        let is_live = |one: &Sent| {
            let (Some(epoch), Some(oldest), Some(newest)) = live else { return false };
            one.epoch == epoch.cast_unsigned() && (oldest..=newest).contains(&one.issued)
        };
        let texts = [
            commas(sent.keys().map(|place| Uuid::from_u128(place.nonce))),
            commas(sent.keys().map(|place| place.part)),
        ];
        let binds = texts.each_ref().map(|text| Bind::Text(text));
        let read = |row: &dyn Columns| Ok(place_of(row)?.zip(row.integer(2)?));
        let (kept, _) = self.ask(&self.claims.sql(bucket)?.look, &binds, read).await?;
        let kept: HashMap<Place, i64> = kept.into_iter().flatten().collect();
        let mut told = Vec::new();
        for (place, one) in sent {
            for at in &one.claims {
                let bit = claims.get(*at).and_then(Place::of).map_or(0, |(_, bit)| bit);
                let found = found(is_live(one), kept.get(place).copied(), bit, was_lost);
                told.extend(found.map(|found| (*at, found)));
            }
        }
        Ok(told)
    }

    /// Of parts that belong into one table, those that were taken, and whether they are ours alone.
    async fn insert(
        &self,
        bucket: i64,
        sent: &BTreeMap<Place, Sent>,
    ) -> Result<(Vec<Option<(Place, bool)>>, bool), StoreError> {
        // In the order of their keys, so that two servers never wait for each other.
        let texts = [
            commas(sent.values().map(|one| one.epoch.cast_signed())),
            commas(sent.keys().map(|place| Uuid::from_u128(place.nonce))),
            commas(sent.keys().map(|place| place.part)),
            commas(sent.values().map(|one| one.bits)),
            commas(sent.values().map(|one| one.held.map_or(-1, u64::cast_signed))),
            commas(sent.values().map(|one| one.issued)),
        ];
        let numbers = [age_max(), SKEW_SECONDS].map(Bind::Integer);
        let binds: Vec<_> = texts.iter().map(|text| Bind::Text(text)).chain(numbers).collect();
        let read = |row: &dyn Columns| Ok(place_of(row)?.zip(row.boolean(2)?));
        self.ask(&self.claims.sql(bucket)?.claim, &binds, read).await
    }

    /// Runs one statement that is its own transaction. When the connection is lost, again: the second value
    /// says so.
    async fn ask<T>(
        &self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
    ) -> Result<(Vec<T>, bool), StoreError> {
        let until = clock::now() + self.statement_max;
        let (mut tries, mut was_lost) = (1, false);
        loop {
            let lease = self.pool.lease(Purpose::Read, until).await?;
            let connection = lease.connection().ok_or_else(no_connection)?;
            let mut driver = PostgresDriver::new(connection, &self.ids, self.pooling, Stage::None);
            let work = driver.rows(sql, binds, &read);
            let Ok(done) = tokio::time::timeout_at((until + GRACE).into(), work).await else {
                // The connection goes with the lease.
                lease.cancel();
                return Err(StoreError::TimedOut);
            };
            match (done, driver.trouble()) {
                (Ok(rows), _) => {
                    lease.keep();
                    return Ok((rows, was_lost));
                }
                (Err(_), Some(trouble)) if tries < TRIES_MAX => {
                    tries += 1;
                    was_lost |= trouble == Trouble::Lost;
                }
                (Err(failure), Some(_)) => return Err(failure.into()),
                (Err(failure), None) => {
                    lease.keep();
                    return Err(failure.into());
                }
            }
        }
    }
}

/// What the database said of a claim that was not taken; nothing if it was only in bad company.
/// `was_lost`: it was made before, and the answer did not come.
fn found(is_live: bool, kept: Option<i64>, bit: u64, was_lost: bool) -> Option<Found> {
    match kept {
        Some(_) | None if !is_live => Some(Found::Told(Claimed::Stale)),
        // Nothing was in the way, and yet it is not there: it was swept since.
        None => Some(Found::Told(Claimed::Stale)),
        Some(kept) if was_lost && kept & bit.cast_signed() != 0 => Some(Found::Unknown),
        Some(..0) => Some(Found::Held),
        Some(kept) if kept & bit.cast_signed() != 0 => Some(Found::Told(Claimed::Again)),
        Some(_) => None,
    }
}

/// The part of a nonce that a row begins with.
fn place_of(row: &dyn Columns) -> Result<Option<Place>, Broken> {
    let nonce = row.text(0)?.and_then(|text| Uuid::try_parse(text).ok()).map(|id| id.as_u128());
    let part = row.integer(1)?.and_then(|part| u32::try_from(part).ok());
    Ok(nonce.zip(part).map(|(nonce, part)| Place { nonce, part }))
}

fn commas<T: std::fmt::Display>(values: impl Iterator<Item = T>) -> String {
    let mut text = String::new();
    for (at, value) in values.enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{}{value}", if at == 0 { "" } else { "," });
    }
    text
}

#[cfg(test)]
mod tests;
