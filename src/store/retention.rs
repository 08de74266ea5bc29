//! Retention: deletes expired change log entries, expired idempotency keys, old deliveries and those of deleted
//! webhooks on both backends, in small batches, so that writers never wait for more than one.
//!
//! A sweep cannot be undone, so a clock that jumps ahead is not trusted immediately. For each of the
//! tables the database stores the last time at which a server swept it (`ClockMark`). If the clock is further
//! ahead of the mark than a usual downtime, and something would be deleted, nothing is swept until the clock
//! has stayed ahead for a day by its own count. So a database unused for a month is swept a day after its
//! next start, and an operator who started with a wrong clock has a day to see the warning. While the clock
//! is doubted, no stored response expires, however old it looks.

use std::cell::RefCell;
use std::fmt::Debug;
use std::time::Duration;

use crate::log::{Level, Logger};
use crate::metrics::Metrics;
use crate::model::settings::ChangeRetention;
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::StatementError;
use crate::store::sql::deliveries::{DEAD_CLOCK, DELIVERED_CLOCK, EndedDeliveries};
use crate::store::sql::idempotency::{IDEMPOTENCY_CLOCK, NEWEST_IDEMPOTENCY_KEY};
use crate::store::sql::statements::{CHANGES_CLOCK, NEWEST_CHANGE};
use crate::store::statement::Bind;
use crate::store::{change_log, idempotency, system_values, webhooks};
use crate::value::Moment;

pub const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Entries that one batch examines.
const SWEEP_BATCH_ROWS: i64 = 1_000;
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A clock that stays ahead for this long is trusted.
const DOUBT_DURATION: Duration = DAY;
/// However short the retention is, a jump of up to this much is normal.
const TOLERANCE_MIN: Duration = Duration::from_secs(60 * 60);
/// The retention of the change log, unless the model sets another one.
const CHANGES_RETENTION: Duration = DAY.saturating_mul(30);
/// How much longer entries are kept that a webhook has not read yet.
const UNREAD_RETENTION: Duration = DAY.saturating_mul(3);
/// The retention of deliveries after their end.
const DELIVERED_RETENTION: Duration = DAY;
const DEAD_RETENTION: Duration = DAY.saturating_mul(30);

/// Counts and logs the result of a batch; returns the delay before the next one.
pub fn report_batch(
    result: Result<SweepResult, impl Debug>,
    log: &Logger,
    metrics: &Metrics,
    doubts: &ClockDoubtLog,
) -> Duration {
    match result {
        Ok(step) => {
            metrics.store.changes_swept.add(step.changes);
            doubts.log_new(log, &step);
            if step.changes + step.keys + step.deliveries > 0 { SWEEP_PAUSE } else { SWEEP_EVERY }
        }
        Err(cause) => {
            let cause = format!("{cause:?}");
            log.event(Level::Warning, "expired entries could not be deleted", &[("cause", &cause)]);
            SWEEP_EVERY
        }
    }
}

/// The result of one batch.
#[derive(Debug, Default)]
pub struct SweepResult {
    changes: u64,
    keys: u64,
    /// Old deliveries, and those of webhooks that were deleted.
    deliveries: u64,
    doubts: Vec<ClockDoubt>,
}

/// Why a table is not swept now.
#[derive(Debug)]
struct ClockDoubt {
    what: &'static str,
    seen: Moment,
    now: Moment,
    since: Moment,
}

/// Remembers which warnings about the clock were logged: one for each table.
#[derive(Debug, Default)]
pub struct ClockDoubtLog(RefCell<Vec<&'static str>>);

impl ClockDoubtLog {
    fn log_new(&self, log: &Logger, step: &SweepResult) {
        let mut logged = self.0.borrow_mut();
        logged.retain(|what| step.doubts.iter().any(|doubt| doubt.what == *what));
        for ClockDoubt { what, seen, now, since } in &step.doubts {
            if logged.contains(what) {
                continue;
            }
            logged.push(what);
            let from = later(*since, DOUBT_DURATION);
            let advice = "if the clock is wrong, correct it and restart; if it is right, \
                          no action is needed";
            log.event(
                Level::Warning,
                &format!("the clock is far ahead of the last recorded time: {what} not swept"),
                &[("clock", now), ("last_seen", seen), ("swept_from", &from), ("advice", &advice)],
            );
        }
    }
}

fn later(moment: Moment, by: Duration) -> Moment {
    Moment::from_micros(moment.micros().saturating_add(micros(by))).unwrap_or(moment)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A table to sweep.
struct SweptTable<'a> {
    what: &'static str,
    /// The key of its `ClockMark` in `nouns_system`.
    mark: &'static str,
    retention: Option<Duration>,
    /// Whether something would be deleted. 1: the cutoff time, 2: how many rows a batch examines.
    due: &'a str,
    newest: &'a str,
    sweep: TableSweep<'a>,
}

/// How expired rows are deleted.
enum TableSweep<'a> {
    /// 1: the cutoff time, 2: how many at most.
    ByTime(&'a str),
    /// First the number up to which entries have expired, which is recorded, then their deletion.
    /// `unread_cut`: the cutoff time of entries that a webhook has not read yet.
    Log { bound: &'a str, delete: &'a str, unread_cut: Option<Moment> },
}

impl TableSweep<'_> {
    /// Returns the number of deleted rows.
    async fn run<D: Driver>(
        &self,
        driver: &mut D,
        binds: &[Bind<'_>],
    ) -> Result<usize, StatementError> {
        match self {
            Self::ByTime(sql) => driver.execute(sql, binds).await,
            Self::Log { bound, delete, unread_cut } => {
                let unread_cut = unread_cut.map_or(Bind::Null, Bind::Moment);
                let binds = [binds, &[unread_cut]].concat();
                let bound = driver.query_one(bound, &binds, |row| row.integer(0)).await?;
                let Some(bound) = bound.flatten() else { return Ok(0) };
                let count = driver.execute(delete, &[Bind::Integer(bound)]).await?;
                change_log::raise_swept(driver, bound).await?;
                Ok(count)
            }
        }
    }
}

/// Runs one batch of all sweeps, in a transaction. `now`: by the clock of the database, where it has one.
pub async fn sweep_batch<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    now: Moment,
) -> Result<SweepResult, StatementError> {
    let sql = &context.sql;
    let retention = changes_retention(context.model.server.changes_keep);
    let unread_cut = retention.and_then(|keep| now.checked_sub(keep + UNREAD_RETENTION));
    let changes = SweptTable {
        what: "the change log is",
        mark: CHANGES_CLOCK,
        retention,
        due: &sql.sweep_due,
        newest: NEWEST_CHANGE,
        sweep: TableSweep::Log { bound: &sql.sweep_bound, delete: &sql.sweep, unread_cut },
    };
    let keys = SweptTable {
        what: "the idempotency keys are",
        mark: IDEMPOTENCY_CLOCK,
        retention: Some(idempotency::retention(context)),
        due: &sql.keys.due,
        newest: NEWEST_IDEMPOTENCY_KEY,
        sweep: TableSweep::ByTime(&sql.keys.sweep),
    };
    let mut step = SweepResult::default();
    change_log::record_foreign_sweep(driver).await?;
    step.changes = sweep_table(driver, &changes, (now, &mut step.doubts)).await?;
    step.keys = sweep_table(driver, &keys, (now, &mut step.doubts)).await?;
    step.deliveries = sweep_deliveries(driver, (now, &mut step.doubts)).await?;
    Ok(step)
}

/// Returns the number of deleted rows.
async fn sweep_deliveries<D: Driver>(
    driver: &mut D,
    (now, doubts): (Moment, &mut Vec<ClockDoubt>),
) -> Result<u64, StatementError> {
    let orphans = webhooks::sweep_orphans(driver, SWEEP_BATCH_ROWS).await?;
    let mut count = u64::try_from(orphans).unwrap_or(0);
    for (status, what, mark, retention) in [
        ("delivered", "the deliveries of webhooks are", DELIVERED_CLOCK, DELIVERED_RETENTION),
        ("dead", "the dead letters of webhooks are", DEAD_CLOCK, DEAD_RETENTION),
    ] {
        let sql = EndedDeliveries::new(D::DIALECT, status);
        let table = SweptTable {
            what,
            mark,
            retention: Some(retention),
            due: &sql.due,
            newest: &sql.newest,
            sweep: TableSweep::ByTime(&sql.sweep),
        };
        count += sweep_table(driver, &table, (now, doubts)).await?;
    }
    Ok(count)
}

/// Returns the number of deleted rows.
async fn sweep_table<D: Driver>(
    driver: &mut D,
    target: &SweptTable<'_>,
    (now, doubts): (Moment, &mut Vec<ClockDoubt>),
) -> Result<u64, StatementError> {
    let cut = target.retention.and_then(|keep| now.checked_sub(keep));
    let cut = cut.map(|cut| [Bind::Moment(cut), Bind::Integer(SWEEP_BATCH_ROWS)]);
    let is_due = match &cut {
        Some(binds) => !driver.query(target.due, binds, |_| Ok(())).await?.is_empty(),
        None => false,
    };
    let tolerance = tolerance(target.retention.unwrap_or(CHANGES_RETENTION));
    let stored = system_values::read(driver, target.mark).await?;
    let before = match stored.as_deref().and_then(ClockMark::parse) {
        Some(mark) => mark,
        // A database of an earlier version has no mark: its newest entry is the last known time.
        None => {
            let newest = driver.query_one(target.newest, &[], |row| row.moment(0)).await?;
            ClockMark { seen: newest.flatten().unwrap_or(now), doubted_since: None }
        }
    };
    let after = before.advance(now, tolerance, is_due);
    if stored.is_none() || after.is_worth_storing(before, tolerance) {
        system_values::write(driver, target.mark, &after.to_string()).await?;
    }
    if let Some(since) = after.doubted_since {
        doubts.push(ClockDoubt { what: target.what, seen: after.seen, now, since });
        return Ok(0);
    }
    match cut.filter(|_| is_due) {
        Some(binds) => {
            let count = target.sweep.run(driver, &binds).await?;
            Ok(u64::try_from(count).unwrap_or(0))
        }
        None => Ok(0),
    }
}

/// How far the clock may be ahead of the mark of a table with this retention.
fn tolerance(keep: Duration) -> Duration {
    (keep / 4).max(TOLERANCE_MIN)
}

/// The time at which a server last swept a table, by the clock that decides expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClockMark {
    seen: Moment,
    /// Since when the clock is not trusted.
    doubted_since: Option<Moment>,
}

impl ClockMark {
    /// Parses one time, or two with a space between them.
    fn parse(text: &str) -> Option<Self> {
        let (seen, since) = match text.split_once(' ') {
            Some((seen, since)) => (seen, Some(Moment::parse(since)?)),
            None => (text, None),
        };
        Some(Self { seen: Moment::parse(seen)?, doubted_since: since })
    }

    /// The mark after a sweep; a doubt in it means that nothing may be deleted. If the clock goes back,
    /// nothing is deleted, and the mark follows the clock.
    fn advance(self, now: Moment, tolerance: Duration, is_due: bool) -> Self {
        let is_far = now.micros().saturating_sub(self.seen.micros()) > micros(tolerance);
        let since = self.doubted_since.filter(|since| *since <= now).unwrap_or(now);
        let is_settled = now.micros().saturating_sub(since.micros()) >= micros(DOUBT_DURATION);
        match is_due && is_far && !is_settled {
            true => Self { doubted_since: Some(since), ..self },
            false => Self { seen: now, doubted_since: None },
        }
    }

    /// Whether the database has to be updated: not at every sweep, or an idle server would write all the
    /// time.
    fn is_worth_storing(self, before: Self, tolerance: Duration) -> bool {
        let moved = self.seen.micros().abs_diff(before.seen.micros());
        self.doubted_since != before.doubted_since || moved >= micros(tolerance / 4).unsigned_abs()
    }
}

impl std::fmt::Display for ClockMark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.doubted_since {
            Some(since) => write!(f, "{} {since}", self.seen),
            None => write!(f, "{}", self.seen),
        }
    }
}

/// Thirty days unless the model sets another retention; `None` is for ever.
fn changes_retention(setting: Option<ChangeRetention>) -> Option<Duration> {
    match setting {
        None => Some(CHANGES_RETENTION),
        Some(ChangeRetention::For(time)) => Some(time),
        Some(ChangeRetention::Forever) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600;

    fn at(seconds: i64) -> Moment {
        Moment::from_micros((1_700_000_000 + seconds) * 1_000_000).unwrap()
    }

    fn clock_mark(seen: i64, since: Option<i64>) -> ClockMark {
        ClockMark { seen: at(seen), doubted_since: since.map(at) }
    }

    /// With a retention of thirty days.
    fn judged(before: ClockMark, now: i64) -> ClockMark {
        before.advance(at(now), tolerance(CHANGES_RETENTION), true)
    }

    #[test]
    fn clock_mark_text_round_trips() {
        for mark in [clock_mark(0, None), clock_mark(5, Some(7))] {
            assert_eq!(ClockMark::parse(&mark.to_string()), Some(mark));
        }
        assert_eq!(ClockMark::parse(""), None);
        assert_eq!(ClockMark::parse("yesterday"), None);
    }

    #[test]
    fn clock_mark_follows_a_clock_that_advances_or_goes_back() {
        for now in [1, 7 * 24 * HOUR, -1, -400 * 24 * HOUR] {
            assert_eq!(judged(clock_mark(0, None), now), clock_mark(now, None), "{now}");
        }
    }

    #[test]
    fn clock_mark_doubts_a_jump_for_a_day_then_trusts_it() {
        let jump = 31 * 24 * HOUR;
        let doubted = judged(clock_mark(0, None), jump);
        assert_eq!(doubted, clock_mark(0, Some(jump)));
        assert_eq!(judged(doubted, jump + 24 * HOUR - 1), doubted);
        assert_eq!(judged(doubted, jump + 24 * HOUR), clock_mark(jump + 24 * HOUR, None));
    }

    #[test]
    fn clock_mark_drops_its_doubt_when_the_clock_is_corrected() {
        let doubted = judged(clock_mark(0, None), 31 * 24 * HOUR);
        assert_eq!(judged(doubted, 60), clock_mark(60, None));
        // Back, and still too far ahead: the day starts again.
        let less = 20 * 24 * HOUR;
        assert_eq!(judged(doubted, less), clock_mark(0, Some(less)));
    }

    #[test]
    fn clock_mark_has_no_doubt_when_nothing_would_be_deleted() {
        let now = 400 * 24 * HOUR;
        let after = clock_mark(0, None).advance(at(now), tolerance(CHANGES_RETENTION), false);
        assert_eq!(after, clock_mark(now, None));
    }

    #[test]
    fn clock_mark_is_written_only_after_a_large_change() {
        let tolerance = tolerance(Duration::from_secs(1));
        assert!(!clock_mark(60, None).is_worth_storing(clock_mark(0, None), tolerance));
        assert!(clock_mark(900, None).is_worth_storing(clock_mark(0, None), tolerance));
        assert!(clock_mark(-900, None).is_worth_storing(clock_mark(0, None), tolerance));
        assert!(clock_mark(0, Some(1)).is_worth_storing(clock_mark(0, None), tolerance));
    }
}
