//! Which counts of which nonces were used, among servers that share a database.
//!
//! The tables are unlogged: a claim costs no sync, and after a crash of PostgreSQL they are empty. Then
//! the epoch is gone with them, so that every nonce from before is stale at every server; a claim looks
//! at the epoch in the same statement, so that no server goes by what it remembers.
//! Claims that come while one is under way are sent together. Old ones go by the table: which one a
//! claim is in is told by when its nonce was given out, and a table of old ones is emptied whole.
//! The one surprising thing: a claim whose answer was lost is made once more, and `First` is then the
//! truth, but `Again` may be our own work and is told as a failure.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::driver::{PostgresDriver, Stage};
use super::failure::Trouble;
use super::pool::Purpose;
use super::{GRACE, Inner, Worker, no_connection};
use crate::clock;
use crate::store::claims::{NONCE_SECONDS, SKEW_SECONDS};
use crate::store::driver::{Bind, Columns, Driver, Failure};
use crate::store::{Broken, Claim, Claimed, StoreError};

/// Claims that are sent together, and that may wait.
const SENT_MAX: usize = 256;
const WAITING_MAX: usize = 4_096;
/// How often the epoch is asked for while others make one at the same time.
const EPOCH_TRIES: usize = 5;

/// Seconds of nonces in one table, and how many tables there are.
const BUCKET_SECONDS: i64 = 128;
const BUCKETS: i64 = 8;
/// A table is emptied so much later than its last nonce became too old, on top of what a statement may
/// take: a claim that is under way goes by the time at which it began.
const SLACK_SECONDS: i64 = 60;

/// Whether the tables are there.
const PRESENT: &str = "SELECT to_regclass('nouns_epoch') IS NOT NULL";

const TABLES: [&str; 2] = [
    "CREATE UNLOGGED TABLE nouns_epoch (
  one boolean NOT NULL PRIMARY KEY CHECK (one), epoch bigint NOT NULL, floor bigint NOT NULL
)",
    "CREATE TABLE nouns_claims (
  bucket integer NOT NULL, nonce uuid NOT NULL, count bigint NOT NULL, PRIMARY KEY (nonce, count, bucket)
) PARTITION BY LIST (bucket)",
];

/// The epoch, made when there is none. 1: the epoch to be, 2: the age of the oldest nonce it takes.
/// No row: another server is making it.
const EPOCH: &str = "WITH made AS (INSERT INTO nouns_epoch (one, epoch, floor) \
    SELECT true, $1::bigint, extract(epoch FROM now())::bigint - $2::bigint \
    WHERE NOT EXISTS (SELECT 1 FROM nouns_epoch) ON CONFLICT DO NOTHING RETURNING epoch) \
    SELECT epoch FROM made UNION ALL SELECT epoch FROM nouns_epoch";

/// Claims whose nonces belong into one table. 1: epochs, 2: nonces, 3: counts, 4: when they were given
/// out, each with commas; 5: how old a nonce may be, 6: by how much clocks may differ. Gives those that
/// are the first. Straight to the table: by way of the one they are parts of it takes half as long again.
fn claim_sql(bucket: i64) -> String {
    format!(
        "INSERT INTO nouns_claims_{bucket} (bucket, nonce, count) SELECT {bucket}, asked.nonce, asked.count \
    FROM nouns_epoch live, unnest(string_to_array($1, ',')::bigint[], string_to_array($2, ',')::uuid[], \
      string_to_array($3, ',')::bigint[], string_to_array($4, ',')::bigint[]) \
      AS asked (epoch, nonce, count, issued) \
    WHERE asked.epoch = live.epoch AND asked.issued BETWEEN \
      greatest(live.floor, extract(epoch FROM now())::bigint - $5::bigint) \
      AND extract(epoch FROM now())::bigint + $6::bigint \
    ON CONFLICT DO NOTHING RETURNING nonce::text, count"
    )
}

/// 1: how old a nonce may be, 2: by how much clocks may differ. Gives the epoch, and the times between
/// which nonces are known.
const LIVE: &str = "SELECT epoch, greatest(floor, extract(epoch FROM now())::bigint - $1::bigint), \
    extract(epoch FROM now())::bigint + $2::bigint FROM nouns_epoch";

/// One server at a time, until the end of the transaction.
const SWEEP_LOCK: &str = "SELECT pg_try_advisory_xact_lock(1313821262, 3)";
/// 1: the age of the oldest nonce that is taken. Gives the floor as it was before, and the time.
const RAISE: &str = "UPDATE nouns_epoch AS raised SET floor = greatest(before.floor, extract(epoch FROM now())::bigint - $1::bigint) \
    FROM nouns_epoch AS before RETURNING before.floor, extract(epoch FROM now())::bigint";

/// Claims of one worker thread that wait for one under way; the epoch is that of all threads.
#[derive(Debug)]
pub(super) struct Batch {
    waiting: Mutex<Vec<Asked>>,
    is_under_way: AtomicBool,
    epoch: Arc<Mutex<Option<u64>>>,
    /// By table.
    sql: Vec<String>,
}

#[derive(Debug)]
struct Asked {
    claim: Claim,
    answer: oneshot::Sender<Result<Claimed, StoreError>>,
}

impl Batch {
    pub(super) fn new(epoch: &Arc<Mutex<Option<u64>>>) -> Self {
        let epoch = Arc::clone(epoch);
        let sql = (0..BUCKETS).map(claim_sql).collect();
        Self { waiting: Mutex::default(), is_under_way: AtomicBool::new(false), epoch, sql }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn epoch(&self) -> MutexGuard<'_, Option<u64>> {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<Asked> {
        let mut waiting = self.waiting();
        let count = waiting.len().min(SENT_MAX);
        waiting.drain(..count).collect()
    }
}

/// However the work ends, nobody waits for it in vain, and the next claim begins anew.
struct UnderWay<'a>(&'a Batch);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.is_under_way.store(false, Ordering::Relaxed);
        self.0.waiting().clear();
    }
}

impl Worker {
    pub(in crate::store) async fn epoch(&self) -> Result<u64, StoreError> {
        self.0.epoch().await
    }

    pub(in crate::store) async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let batch = &self.0.claims;
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = batch.waiting();
            if waiting.len() >= WAITING_MAX {
                return Err(StoreError::Busy);
            }
            waiting.push(Asked { claim: *claim, answer });
        }
        if !batch.is_under_way.swap(true, Ordering::Relaxed) {
            let inner = Arc::clone(&self.0);
            // A task of its own: others go with it, so it goes on when this client leaves.
            tokio::task::spawn_local(Box::pin(async move { inner.claim_all().await }));
        }
        let lost = |_| Err(StoreError::Unavailable("a claim ended without an answer".to_owned()));
        answered.await.unwrap_or_else(lost)
    }
}

impl Inner {
    async fn epoch(&self) -> Result<u64, StoreError> {
        let known = *self.claims.epoch();
        if let Some(epoch) = known {
            return Ok(epoch);
        }
        let made = getrandom::u64().map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let binds = [Bind::Integer(made.cast_signed()), Bind::Integer(age_max())];
        for _ in 0..EPOCH_TRIES {
            let (rows, _) = self.ask(EPOCH, &binds, |row| row.integer(0)).await?;
            if let Some(epoch) = rows.into_iter().flatten().next() {
                let epoch = epoch.cast_unsigned();
                *self.claims.epoch() = Some(epoch);
                return Ok(epoch);
            }
        }
        Err(StoreError::Busy)
    }

    /// Makes the claims that wait, until none does.
    async fn claim_all(&self) {
        let _under_way = UnderWay(&self.claims);
        loop {
            let asked = self.claims.take();
            if asked.is_empty() {
                return;
            }
            let claims: Vec<Claim> = asked.iter().map(|asked| asked.claim).collect();
            let answers = self.claim_some(&claims).await;
            for (at, asked) in asked.into_iter().enumerate() {
                // Of two that are the same, sent together, one is the first.
                let is_double = claims.iter().take(at).any(|earlier| *earlier == asked.claim);
                let answer = match &answers {
                    Ok(answers) => match answers.get(at) {
                        Some(Some(Claimed::First)) if is_double => Ok(Claimed::Again),
                        Some(Some(claimed)) => Ok(*claimed),
                        Some(None) | None => Err(StoreError::Unavailable(
                            "the answer to a claim was lost".to_owned(),
                        )),
                    },
                    Err(StoreError::Busy) => Err(StoreError::Busy),
                    Err(StoreError::TimedOut) => Err(StoreError::TimedOut),
                    Err(other) => Err(StoreError::Unavailable(format!("{other:?}"))),
                };
                // The client may have left.
                let _ = asked.answer.send(answer);
            }
        }
    }

    /// What became of each; `None` where that is not known.
    async fn claim_some(&self, claims: &[Claim]) -> Result<Vec<Option<Claimed>>, StoreError> {
        let mut firsts = HashSet::new();
        let mut was_lost = false;
        for bucket in 0..BUCKETS {
            let mut some: Vec<&Claim> =
                claims.iter().filter(|claim| bucket_of(claim) == bucket).collect();
            if some.is_empty() {
                continue;
            }
            // In one order, so that two servers never wait for each other.
            some.sort_unstable_by_key(|claim| (claim.nonce, claim.count));
            some.dedup_by_key(|claim| (claim.nonce, claim.count, claim.epoch, claim.issued));
            let (rows, is_lost) = self.insert(bucket, &some).await?;
            firsts.extend(rows.into_iter().flatten());
            was_lost |= is_lost;
        }
        let is_first = |claim: &Claim| firsts.contains(&(claim.nonce, i64::from(claim.count)));
        if claims.iter().all(is_first) {
            return Ok(claims.iter().map(|_| Some(Claimed::First)).collect());
        }
        // Used, or no longer known: which of them, another look tells.
        let binds = [Bind::Integer(age_max()), Bind::Integer(SKEW_SECONDS)];
        let read = |row: &dyn Columns| Ok((row.integer(0)?, row.integer(1)?, row.integer(2)?));
        let (live, _) = self.ask(LIVE, &binds, read).await?;
        let live = live.first().copied().unwrap_or_default();
        *self.claims.epoch() = live.0.map(i64::cast_unsigned);
        let is_live = |claim: &Claim| {
            let (Some(epoch), Some(oldest), Some(newest)) = live else { return false };
            claim.epoch == epoch.cast_unsigned() && (oldest..=newest).contains(&claim.issued)
        };
        let judge = |claim: &Claim| {
            let is_first = is_first(claim);
            judge(is_first || is_live(claim), is_first, was_lost)
        };
        Ok(claims.iter().map(judge).collect())
    }

    /// Of claims that belong into one table, those that are the first.
    async fn insert(
        &self,
        bucket: i64,
        claims: &[&Claim],
    ) -> Result<(Vec<Option<(u128, i64)>>, bool), StoreError> {
        let mut texts: [String; 4] = Default::default();
        let [epochs, nonces, counts, issued] = &mut texts;
        for (at, claim) in claims.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            // Writing to a String cannot fail.
            let _ = write!(epochs, "{comma}{}", claim.epoch.cast_signed());
            let _ = write!(nonces, "{comma}{}", Uuid::from_u128(claim.nonce));
            let _ = write!(counts, "{comma}{}", claim.count);
            let _ = write!(issued, "{comma}{}", claim.issued);
        }
        let numbers = [age_max(), SKEW_SECONDS].map(Bind::Integer);
        let binds: Vec<_> = texts.iter().map(|text| Bind::Text(text)).chain(numbers).collect();
        let read = |row: &dyn Columns| {
            let nonce = row.text(0)?.and_then(|text| Uuid::try_parse(text).ok());
            Ok(nonce.map(|nonce| nonce.as_u128()).zip(row.integer(1)?))
        };
        let sql = self.claims.sql.get(usize::try_from(bucket).unwrap_or(0));
        self.ask(sql.map_or("", String::as_str), &binds, read).await
    }

    /// Runs one statement that is its own transaction. When the connection is lost, once more: the second
    /// value says so.
    async fn ask<T>(
        &self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
    ) -> Result<(Vec<T>, bool), StoreError> {
        let until = clock::now() + self.statement_max;
        let (mut is_second, mut was_lost) = (false, false);
        loop {
            let mut lease = self.pool.lease(Purpose::Read, until).await?;
            let connection = lease.connection().ok_or_else(no_connection)?;
            let mut driver = PostgresDriver::new(connection, &self.ids, self.pooling, Stage::None);
            let work = driver.rows(sql, binds, &read);
            let Ok(done) = tokio::time::timeout_at((until + GRACE).into(), work).await else {
                // The connection goes with the lease.
                self.pool.cancel(driver.cancel_token());
                return Err(StoreError::TimedOut);
            };
            match (done, driver.trouble()) {
                (Ok(rows), _) => {
                    lease.keep();
                    return Ok((rows, was_lost));
                }
                (Err(_), Some(trouble)) if !is_second => {
                    is_second = true;
                    was_lost = trouble == Trouble::Lost;
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

/// What the database said of a claim. `was_lost`: it was made before, and the answer did not come.
fn judge(is_live: bool, is_first: bool, was_lost: bool) -> Option<Claimed> {
    match (is_live, is_first) {
        (false, _) => Some(Claimed::Stale),
        (true, true) => Some(Claimed::First),
        (true, false) if was_lost => None,
        (true, false) => Some(Claimed::Again),
    }
}

/// The table that a claim belongs into.
fn bucket_of(claim: &Claim) -> i64 {
    claim.issued.div_euclid(BUCKET_SECONDS).rem_euclid(BUCKETS)
}

/// How old a nonce may be that is still looked at.
fn age_max() -> i64 {
    NONCE_SECONDS + SKEW_SECONDS
}

/// Makes the tables, unless they are there.
pub(super) async fn create(driver: &mut PostgresDriver<'_>) -> Result<(), Failure> {
    let present = driver.rows(PRESENT, &[], |row| row.boolean(0)).await?;
    if present.first() == Some(&Some(true)) {
        return Ok(());
    }
    for table in TABLES {
        driver.execute(table, &[]).await?;
    }
    for bucket in 0..BUCKETS {
        let table = format!(
            "CREATE UNLOGGED TABLE nouns_claims_{bucket} PARTITION OF nouns_claims FOR VALUES IN ({bucket})"
        );
        driver.execute(&table, &[]).await?;
    }
    Ok(())
}

/// Raises the floor, and empties the tables whose nonces all lay below it before.
pub(super) async fn sweep(
    driver: &mut PostgresDriver<'_>,
    statement_max: Duration,
) -> Result<(), Failure> {
    let is_ours = driver.rows(SWEEP_LOCK, &[], |row| row.boolean(0)).await?;
    if is_ours.first() == Some(&Some(true)) {
        let read = |row: &dyn Columns| Ok((row.integer(0)?, row.integer(1)?));
        let raised = driver.rows(RAISE, &[Bind::Integer(age_max())], read).await?;
        if let Some((Some(floor), Some(now))) = raised.first() {
            let slack = i64::try_from(statement_max.as_secs()).unwrap_or(i64::MAX);
            let oldest = floor.saturating_sub(slack).saturating_sub(SLACK_SECONDS);
            for bucket in free(oldest, now.saturating_add(SKEW_SECONDS)) {
                empty(driver, bucket).await?;
            }
        }
    }
    driver.finish(&[]).await.map_err(|stopped| stopped.failure)
}

/// The tables in which no nonce from between these times is.
fn free(oldest: i64, newest: i64) -> Vec<i64> {
    let (first, last) = (oldest.div_euclid(BUCKET_SECONDS), newest.div_euclid(BUCKET_SECONDS));
    // One round of them is all of them.
    let last = last.min(first.saturating_add(BUCKETS));
    let used: Vec<i64> = (first..=last).map(|round| round.rem_euclid(BUCKETS)).collect();
    (0..BUCKETS).filter(|bucket| !used.contains(bucket)).collect()
}

async fn empty(driver: &mut PostgresDriver<'_>, bucket: i64) -> Result<(), Failure> {
    let any = format!("SELECT 1::bigint FROM nouns_claims_{bucket} LIMIT 1");
    if driver.rows(&any, &[], |row| row.integer(0)).await?.is_empty() {
        return Ok(());
    }
    driver.execute(&format!("TRUNCATE nouns_claims_{bucket}"), &[]).await.map(|_| ())
}

#[cfg(test)]
mod tests;
