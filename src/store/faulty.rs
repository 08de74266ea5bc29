//! Fault injection for tests: a driver that fails at the N-th step, in a chosen way.
//!
//! It wraps the real driver. The writer's own statements (`BEGIN`, `COMMIT` and the like) count as steps too.
//! The one surprising thing: an injected fault belongs to its thread, so that tests run in parallel.

use std::cell::RefCell;

use rusqlite::ffi;

use super::Broken;
use super::driver::{Bind, Columns, Driver, Failure};
use crate::model::Resource;
use crate::value::{Id, Moment};

/// How a step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Taken,
    TimedOut,
    /// Timed out, and the engine has rolled back by itself, as SQLite does in a write.
    Interrupted,
    Locked,
    Full,
    /// An I/O error after which the engine has rolled back by itself.
    Gone,
    Sync,
    Engine,
    Panic,
}

impl Way {
    pub(super) const ALL: [Self; 9] = [
        Self::Taken,
        Self::TimedOut,
        Self::Interrupted,
        Self::Locked,
        Self::Full,
        Self::Gone,
        Self::Sync,
        Self::Engine,
        Self::Panic,
    ];

    fn rolls_back(self) -> bool {
        matches!(self, Self::Interrupted | Self::Gone)
    }

    fn failure(self) -> Failure {
        let words = || "planted".to_owned();
        match self {
            Self::Taken => Failure::Taken(words()),
            Self::TimedOut | Self::Interrupted => Failure::TimedOut,
            Self::Locked => Failure::Locked,
            Self::Full | Self::Gone => Failure::Storage(words()),
            Self::Sync => Failure::Sync(words()),
            Self::Engine => Failure::Engine(words()),
            Self::Panic => panic!("planted"),
        }
    }

    fn error(self) -> rusqlite::Error {
        let code = match self {
            Self::Taken => ffi::SQLITE_CONSTRAINT_FOREIGNKEY,
            Self::TimedOut | Self::Interrupted => ffi::SQLITE_INTERRUPT,
            Self::Locked => ffi::SQLITE_BUSY,
            Self::Full => ffi::SQLITE_FULL,
            Self::Gone => ffi::SQLITE_IOERR_WRITE,
            Self::Sync => ffi::SQLITE_IOERR_FSYNC,
            Self::Engine => ffi::SQLITE_ERROR,
            Self::Panic => panic!("planted"),
        };
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("planted".to_owned()))
    }
}

/// The injected fault, and the steps since.
#[derive(Debug, Default)]
struct Planted {
    fault: Option<(usize, Way)>,
    /// Every later step fails too.
    is_lasting: bool,
    steps: Vec<String>,
}

thread_local! {
    static PLANTED: RefCell<Planted> = RefCell::default();
}

/// Restarts the count; step `at` (from 1) fails.
pub(super) fn plant(fault: Option<(usize, Way)>) {
    PLANTED.set(Planted { fault, is_lasting: false, steps: Vec::new() });
}

/// As `inject`, and every later step fails as well.
pub(super) fn plant_lasting(at: usize, way: Way) {
    PLANTED.set(Planted { fault: Some((at, way)), is_lasting: true, steps: Vec::new() });
}

/// The steps since `inject`. The fault was hit if there are at least as many as its step.
pub(super) fn steps() -> Vec<String> {
    PLANTED.with_borrow(|planted| planted.steps.clone())
}

fn pass(step: &str) -> Option<Way> {
    PLANTED.with_borrow_mut(|planted| {
        // Two words are enough to identify a step.
        let words = step.split(' ').filter(|word| !["INTO", "FROM", "*", "OR"].contains(word));
        let count = if step.starts_with("SELECT") { 1 } else { 2 };
        planted.steps.push(words.take(count).collect::<Vec<_>>().join(" "));
        let step = planted.steps.len();
        let is_met = |at: usize| at == step || (planted.is_lasting && at < step);
        let met = planted.fault.filter(|(at, _)| is_met(*at));
        met.map(|(_, way)| way)
    })
}

/// Counts a statement that does not go through a driver.
pub(super) fn statement(sql: &str) -> rusqlite::Result<()> {
    pass(sql).map_or(Ok(()), |way| Err(way.error()))
}

/// The wrapped driver.
#[derive(Debug)]
pub(super) struct Faulty<D>(pub(super) D);

impl<D: Driver> Faulty<D> {
    async fn pass(&mut self, step: &str) -> Result<(), Failure> {
        let Some(way) = pass(step) else { return Ok(()) };
        if way.rolls_back() {
            self.0.execute("ROLLBACK", &[]).await?;
        }
        Err(way.failure())
    }
}

impl<D: Driver> Driver for Faulty<D> {
    const SHARES_COMMIT: bool = D::SHARES_COMMIT;

    async fn rows_until<T>(
        &mut self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, Failure> {
        self.pass(sql).await?;
        self.0.rows_until(sql, binds, read, is_enough).await
    }

    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, Failure> {
        self.pass(sql).await?;
        self.0.execute(sql, binds).await
    }

    async fn undo(&mut self) -> Result<(), Failure> {
        self.pass("ROLLBACK TO").await?;
        self.0.undo().await
    }

    async fn allocate(
        &mut self,
        resource: &Resource,
        count: usize,
        now: Moment,
    ) -> Result<Vec<Id>, Failure> {
        self.pass("allocate ids").await?;
        self.0.allocate(resource, count, now).await
    }

    fn now(&self) -> Moment {
        self.0.now()
    }
}
