//! Fault injection for tests: a driver that fails at the N-th step, in a chosen way.
//!
//! It wraps the real driver. The writer's own statements (`BEGIN`, `COMMIT` and the like) count as steps too.
//! An injected fault belongs to its thread, so that tests run in parallel.

use std::cell::RefCell;
use std::slice;

use rusqlite::ffi;

use crate::store::driver::{Driver, RowReader};
use crate::store::error::StatementError;
use crate::store::sql::dialect::Dialect;
use crate::store::statement::{Bind, Statement};
use crate::value::Moment;

/// How a step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    UniqueViolation,
    TimedOut,
    /// Timed out, and the engine has rolled back by itself, as SQLite does in a write.
    Interrupted,
    Locked,
    DiskFull,
    /// An I/O error after which the engine has rolled back by itself.
    IoError,
    Sync,
    Engine,
    Panic,
}

impl FaultKind {
    pub const ALL: [Self; 9] = [
        Self::UniqueViolation,
        Self::TimedOut,
        Self::Interrupted,
        Self::Locked,
        Self::DiskFull,
        Self::IoError,
        Self::Sync,
        Self::Engine,
        Self::Panic,
    ];

    fn rolls_back(self) -> bool {
        matches!(self, Self::Interrupted | Self::IoError)
    }

    fn failure(self) -> StatementError {
        let words = || "planted".to_owned();
        match self {
            Self::UniqueViolation => StatementError::UniqueViolation(words()),
            Self::TimedOut | Self::Interrupted => StatementError::TimedOut,
            Self::Locked => StatementError::Locked,
            Self::DiskFull | Self::IoError => StatementError::Storage(words()),
            Self::Sync => StatementError::Sync(words()),
            Self::Engine => StatementError::Engine(words()),
            Self::Panic => panic!("planted"),
        }
    }

    fn error(self) -> rusqlite::Error {
        let code = match self {
            Self::UniqueViolation => ffi::SQLITE_CONSTRAINT_FOREIGNKEY,
            Self::TimedOut | Self::Interrupted => ffi::SQLITE_INTERRUPT,
            Self::Locked => ffi::SQLITE_BUSY,
            Self::DiskFull => ffi::SQLITE_FULL,
            Self::IoError => ffi::SQLITE_IOERR_WRITE,
            Self::Sync => ffi::SQLITE_IOERR_FSYNC,
            Self::Engine => ffi::SQLITE_ERROR,
            Self::Panic => panic!("planted"),
        };
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("planted".to_owned()))
    }
}

/// The injected fault, and the steps since.
#[derive(Debug, Default)]
struct InjectedFault {
    fault: Option<(usize, FaultKind)>,
    /// Whether every later step fails too.
    is_persistent: bool,
    steps: Vec<String>,
}

thread_local! {
    static INJECTED: RefCell<InjectedFault> = RefCell::default();
}

/// Restarts the count; step `at` (from 1) fails.
pub fn inject(fault: Option<(usize, FaultKind)>) {
    INJECTED.set(InjectedFault { fault, is_persistent: false, steps: Vec::new() });
}

/// As `inject`, and every later step fails as well.
pub fn inject_persistent(at: usize, way: FaultKind) {
    INJECTED.set(InjectedFault { fault: Some((at, way)), is_persistent: true, steps: Vec::new() });
}

/// The steps since `inject`. The fault was hit if there are at least as many as its step.
pub fn steps_since_inject() -> Vec<String> {
    INJECTED.with_borrow(|planted| planted.steps.clone())
}

fn count_step(step: &str) -> Option<FaultKind> {
    INJECTED.with_borrow_mut(|planted| {
        // Two words are enough to identify a step.
        let words = step.split(' ').filter(|word| !["INTO", "FROM", "*", "OR"].contains(word));
        let count = if step.starts_with("SELECT") { 1 } else { 2 };
        planted.steps.push(words.take(count).collect::<Vec<_>>().join(" "));
        let step = planted.steps.len();
        let is_met = |at: usize| at == step || (planted.is_persistent && at < step);
        let met = planted.fault.filter(|(at, _)| is_met(*at));
        met.map(|(_, way)| way)
    })
}

/// Counts a statement that does not go through a driver.
pub fn count_statement(sql: &str) -> rusqlite::Result<()> {
    count_step(sql).map_or(Ok(()), |way| Err(way.error()))
}

/// The wrapped driver.
#[derive(Debug)]
pub struct FaultyDriver<D>(pub D);

impl<D: Driver> FaultyDriver<D> {
    async fn fail_if_injected(&mut self, step: &str) -> Result<(), StatementError> {
        let Some(way) = count_step(step) else { return Ok(()) };
        if way.rolls_back() {
            self.0.execute("ROLLBACK", &[]).await?;
        }
        Err(way.failure())
    }
}

impl<D: Driver> Driver for FaultyDriver<D> {
    const DIALECT: &'static Dialect = D::DIALECT;

    /// Each statement is a step.
    async fn read_rows(
        &mut self,
        statements: &[Statement<'_>],
        read: &mut RowReader<'_>,
    ) -> Result<(), StatementError> {
        for (at, statement) in statements.iter().enumerate() {
            self.fail_if_injected(&statement.sql).await?;
            let one = slice::from_ref(statement);
            self.0.read_rows(one, &mut |_, row| read(at, row)).await?;
        }
        Ok(())
    }

    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, StatementError> {
        self.fail_if_injected(sql).await?;
        self.0.execute(sql, binds).await
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), StatementError> {
        self.fail_if_injected("ROLLBACK TO").await?;
        self.0.rollback_to_savepoint().await
    }

    fn now(&self) -> Moment {
        self.0.now()
    }
}
