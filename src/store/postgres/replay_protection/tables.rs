//! Tables and SQL of replay protection: which counts of which nonces have been used.
//!
//! The tables are unlogged: a claim costs no sync, and a crash of PostgreSQL empties them. Old claims are
//! removed by table: the time of issue of its nonce decides which table a claim is in, and a table of
//! expired nonces is truncated.
//!
//! The epoch is valid only where it was created. A copy of the tables may lack claims that the original has
//! accepted since, so a server that finds a copy starts a new epoch (`epoch_is_original`), after which every
//! older nonce is stale. Three things that no copy can carry over identify the original:
//!
//! - `written_by` names the transaction that wrote the row, and so does its `xmin`. Any restore of a
//!   dump, in full or data alone, writes the row in another transaction.
//! - `database` is the OID of the database: `CREATE DATABASE … TEMPLATE` copies rows with their `xmin`.
//! - `started` is when this PostgreSQL was started: data files that were copied while it was stopped are
//!   the same in everything else, and transactions of other clusters have the same numbers.
//!
//! A promoted standby finds unlogged tables empty, and so does a restored base backup.

use std::time::Duration;

use crate::store::driver::Driver;
use crate::store::error::StatementError;
use crate::store::postgres::driver::PostgresDriver;
use crate::store::replay_protection::{CLOCK_SKEW_SECONDS, NONCE_SECONDS, NonceClaim};
use crate::store::statement::{Bind, Columns};

/// Seconds of nonces in one table, and how many tables there are.
const BUCKET_SECONDS: i64 = 128;
pub const BUCKETS: i64 = 8;
/// A table is truncated this much later than its last nonce expired, on top of a statement's timeout: a
/// claim in flight sees the time at which its transaction began.
const SLACK_SECONDS: i64 = 60;

/// Whether the tables exist, and whether the epoch records where it was created.
const TABLES_PRESENT: &str = "SELECT to_regclass('nouns_used_7') IS NOT NULL, \
    EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('nouns_epoch') AND attname = 'written_by')";

const CREATE_EPOCH_TABLE: &str = "CREATE UNLOGGED TABLE IF NOT EXISTS nouns_epoch (
  one boolean NOT NULL PRIMARY KEY CHECK (one), epoch bigint NOT NULL, floor bigint NOT NULL
)";

/// Columns that identify the original epoch; an older version had none of them.
const EPOCH_COLUMNS: &str = "ALTER TABLE nouns_epoch ADD COLUMN IF NOT EXISTS started timestamptz, \
    ADD COLUMN IF NOT EXISTS database oid, ADD COLUMN IF NOT EXISTS written_by xid8";

/// A row is one block of a nonce, with one bit for each used count. A negative number says that a server
/// has leased the block. `held`: the counts that the last server to ask for a lease knew to be its own.
/// Rows are updated often, and the fill factor leaves room for the new version on the same page.
fn used_table(bucket: i64) -> String {
    format!(
        "CREATE UNLOGGED TABLE nouns_used_{bucket} (
  nonce uuid NOT NULL, part integer NOT NULL, bits bigint NOT NULL, held bigint NOT NULL,
  PRIMARY KEY (nonce, part)
) WITH (fillfactor = 50)"
    )
}

macro_rules! this_database {
    () => {
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    };
}

/// Whether the row `live` of `nouns_epoch` was written here, and is no copy.
macro_rules! epoch_is_original {
    () => {
        concat!(
            "live.started = pg_postmaster_start_time() AND live.written_by::xid = live.xmin \
             AND live.database = ",
            this_database!()
        )
    };
}

/// As `epoch_is_original`, and a new nonce is not below the floor. It would be below if the database's clock
/// was ahead when the floor was raised: without a new epoch every nonce would be stale until the time has
/// caught up, and then older nonces would be valid again, although all their claims were swept.
macro_rules! epoch_is_usable {
    ($skew:literal) => {
        concat!(
            epoch_is_original!(),
            " AND live.floor <= extract(epoch FROM now())::bigint - ",
            $skew,
            "::bigint"
        )
    };
}

/// Returns the epoch, or creates one if none is usable. 1: the new epoch, 2: the age of the oldest nonce it
/// accepts, 3: the clock skew allowed. No row: another server is creating it.
pub const SELECT_OR_CREATE_EPOCH: &str = concat!(
    "WITH made AS (INSERT INTO nouns_epoch AS live (one, epoch, floor, started, database, written_by) \
     SELECT true, $1::bigint, extract(epoch FROM now())::bigint - $2::bigint, pg_postmaster_start_time(), ",
    this_database!(),
    ", pg_current_xact_id() WHERE NOT EXISTS (SELECT 1 FROM nouns_epoch live WHERE ",
    epoch_is_usable!("$3"),
    ") ON CONFLICT (one) DO UPDATE SET epoch = excluded.epoch, floor = excluded.floor, \
     started = excluded.started, database = excluded.database, written_by = excluded.written_by WHERE (",
    epoch_is_usable!("$3"),
    ") IS NOT TRUE RETURNING live.epoch) \
     SELECT epoch FROM made UNION ALL SELECT live.epoch FROM nouns_epoch live WHERE ",
    epoch_is_usable!("$3"),
);

/// 1: the maximum age of a nonce, 2: the clock skew allowed. Returns the epoch and the range of issue times
/// that are accepted; nothing where a new epoch has to start.
pub const LIVE_EPOCH: &str = concat!(
    "SELECT live.epoch, greatest(live.floor, extract(epoch FROM now())::bigint - $1::bigint), \
     extract(epoch FROM now())::bigint + $2::bigint FROM nouns_epoch live WHERE ",
    epoch_is_usable!("$2"),
);

/// Lets one server sweep at a time, until the end of its transaction.
const NONCE_SWEEP_LOCK: &str = "SELECT pg_try_advisory_xact_lock(1313821262, 3)";
/// Raises the floor. 1: the age of the oldest nonce accepted. Returns the previous floor, and the time.
const RAISE_FLOOR: &str = "UPDATE nouns_epoch AS raised SET written_by = pg_current_xact_id(), \
    floor = greatest(before.floor, extract(epoch FROM now())::bigint - $1::bigint) \
    FROM nouns_epoch AS before RETURNING before.floor, extract(epoch FROM now())::bigint";

/// Starts another epoch unconditionally. 1: the new epoch, 2: the age of the oldest nonce it accepts.
const REPLACE_EPOCH: &str = "UPDATE nouns_epoch SET epoch = $1::bigint, written_by = pg_current_xact_id(), \
    floor = extract(epoch FROM now())::bigint - $2::bigint";

/// The statements about one table of used counts.
#[derive(Debug)]
pub struct BucketStatements {
    /// Claims blocks. 1: epochs, 2: nonces, 3: blocks, 4: bits, 5: the counts known to be our own if we ask
    /// for a lease, else -1, 6: when the nonce was issued, each comma-separated; 7: the maximum age of a
    /// nonce, 8: the clock skew allowed. Returns the blocks of which all bits were unused, and whether this
    /// server has leased them now.
    pub claim: String,
    /// 1: nonces, 2: blocks, each comma-separated. Returns their bits.
    pub select_bits: String,
}

impl BucketStatements {
    pub fn for_all_buckets() -> Vec<Self> {
        (0..BUCKETS).map(Self::new).collect()
    }

    fn new(bucket: i64) -> Self {
        let original = epoch_is_original!();
        let claim = format!(
            "INSERT INTO nouns_used_{bucket} AS kept (nonce, part, bits, held) \
    SELECT asked.nonce, asked.part, CASE asked.held WHEN 0 THEN -1 ELSE asked.bits END, asked.held \
    FROM nouns_epoch live, unnest(string_to_array($1, ',')::bigint[], string_to_array($2, ',')::uuid[], \
      string_to_array($3, ',')::integer[], string_to_array($4, ',')::bigint[], \
      string_to_array($5, ',')::bigint[], string_to_array($6, ',')::bigint[]) \
      AS asked (epoch, nonce, part, bits, held, issued) \
    WHERE {original} AND asked.epoch = live.epoch AND asked.issued BETWEEN \
      greatest(live.floor, extract(epoch FROM now())::bigint - $7::bigint) \
      AND extract(epoch FROM now())::bigint + $8::bigint \
    ON CONFLICT (nonce, part) DO UPDATE SET held = excluded.held, \
      bits = CASE kept.bits WHEN excluded.held THEN -1 ELSE kept.bits | excluded.bits END \
    WHERE kept.bits & excluded.bits = 0 RETURNING nonce::text, part::bigint, bits < 0"
        );
        let look = format!(
            "SELECT kept.nonce::text, kept.part::bigint, kept.bits FROM nouns_used_{bucket} kept, \
    unnest(string_to_array($1, ',')::uuid[], string_to_array($2, ',')::integer[]) AS asked (nonce, part) \
    WHERE kept.nonce = asked.nonce AND kept.part = asked.part"
        );
        Self { claim, select_bits: look }
    }
}

/// The table that a claim belongs to.
pub fn bucket_of(claim: &NonceClaim) -> i64 {
    claim.issued.div_euclid(BUCKET_SECONDS).rem_euclid(BUCKETS)
}

/// The parameters of the epoch statement.
pub fn epoch_binds(made: u64) -> [Bind<'static>; 3] {
    [made.cast_signed(), nonce_age_seconds_max(), CLOCK_SKEW_SECONDS].map(Bind::Integer)
}

/// How old a nonce may be to be accepted.
pub fn nonce_age_seconds_max() -> i64 {
    NONCE_SECONDS + CLOCK_SKEW_SECONDS
}

/// Creates the tables unless they exist.
pub async fn create_tables(driver: &mut PostgresDriver<'_>) -> Result<(), StatementError> {
    let read = |row: &dyn Columns| Ok((row.boolean(0)?, row.boolean(1)?));
    let present = driver.query_one(TABLES_PRESENT, &[], read).await?;
    if present == Some((Some(true), Some(true))) {
        return Ok(());
    }
    if !matches!(present, Some((Some(true), _))) {
        driver.execute(CREATE_EPOCH_TABLE, &[]).await?;
        for bucket in 0..BUCKETS {
            driver.execute(&used_table(bucket), &[]).await?;
        }
    }
    driver.execute(EPOCH_COLUMNS, &[]).await.map(drop)
}

/// Raises the floor, and truncates the tables whose nonces were all below the previous one. `epoch`: the
/// next epoch, if this one is not usable: a table may be truncated only when its nonces cannot be accepted
/// again.
pub async fn sweep_tables(
    driver: &mut PostgresDriver<'_>,
    statement_max: Duration,
    epoch: u64,
) -> Result<(), StatementError> {
    if driver.query_is_true(NONCE_SWEEP_LOCK).await? {
        driver.query(SELECT_OR_CREATE_EPOCH, &epoch_binds(epoch), |_| Ok(())).await?;
        let read = |row: &dyn Columns| Ok((row.required_integer(0)?, row.required_integer(1)?));
        let age = [Bind::Integer(nonce_age_seconds_max())];
        if let Some((floor, now)) = driver.query_one(RAISE_FLOOR, &age, read).await? {
            let slack = i64::try_from(statement_max.as_secs()).unwrap_or(i64::MAX);
            let oldest = floor.saturating_sub(slack).saturating_sub(SLACK_SECONDS);
            let free = expired_buckets(oldest, now.saturating_add(CLOCK_SKEW_SECONDS));
            truncate_buckets(driver, &free, (now, epoch)).await?;
        }
    }
    driver.commit().await
}

/// The tables that hold no nonce issued between these times.
fn expired_buckets(oldest: i64, newest: i64) -> Vec<i64> {
    let (first, last) = (oldest.div_euclid(BUCKET_SECONDS), newest.div_euclid(BUCKET_SECONDS));
    // One full round covers all tables.
    let last = last.min(first.saturating_add(BUCKETS));
    let used: Vec<i64> = (first..=last).map(|round| round.rem_euclid(BUCKETS)).collect();
    (0..BUCKETS).filter(|bucket| !used.contains(bucket)).collect()
}

/// Truncates these tables. A claim from the future was made while the database's clock was ahead, and its
/// nonce will be valid again when that time has come: such an epoch has to end before its claims are
/// deleted, and then all of them may be.
async fn truncate_buckets(
    driver: &mut PostgresDriver<'_>,
    free: &[i64],
    (now, epoch): (i64, u64),
) -> Result<(), StatementError> {
    let (mut full, mut is_ahead) = (Vec::new(), false);
    for bucket in 0..BUCKETS {
        let newest = format!(
            "SELECT ('x' || left(nonce::text, 8))::bit(32)::bigint FROM nouns_used_{bucket} \
             ORDER BY nonce DESC LIMIT 1"
        );
        let newest = driver.query_one(&newest, &[], |row| row.required_integer(0)).await?;
        if let Some(newest) = newest {
            full.push(bucket);
            is_ahead |= newest > now.saturating_add(CLOCK_SKEW_SECONDS);
        }
    }
    if is_ahead {
        let [epoch, age, _] = epoch_binds(epoch);
        driver.execute(REPLACE_EPOCH, &[epoch, age]).await?;
    }
    for bucket in full.into_iter().filter(|bucket| is_ahead || free.contains(bucket)) {
        driver.execute(&format!("TRUNCATE nouns_used_{bucket}"), &[]).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_tables_between_oldest_and_newest_are_kept() {
        let span = |seconds| expired_buckets(1_000_000, 1_000_000 + seconds);
        assert_eq!(span(0).len(), 7);
        assert!(!span(700).is_empty());
        assert!(span(BUCKET_SECONDS * BUCKETS).is_empty());
        assert!(span(i64::MAX / 2).is_empty());
        assert!(expired_buckets(i64::MIN, i64::MAX).is_empty());
        // Never a table that a claim could be in.
        for second in 1_000_000..1_000_700 {
            let bucket = second / BUCKET_SECONDS % BUCKETS;
            assert!(!span(700).contains(&bucket), "{second}");
        }
    }
}
