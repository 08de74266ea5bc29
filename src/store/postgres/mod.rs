//! PostgreSQL: several servers on one database, which share nothing else.
//!
//! Each worker thread has connections of its own (`pool`), so that a request never leaves its thread.
//! A write is tried again while nothing has been answered and nothing can have been done; where that is
//! not known, the client is told so. One thread beside the workers opens the database and sweeps the
//! change log (`keeper`).

mod address;
mod beside;
mod changes;
mod claims;
mod commit_wait;
mod connect;
mod database_clock;
mod driver;
mod export;
mod failure;
mod foreign_key;
mod group;
mod index_build;
mod keeper;
mod lane;
mod live_servers;
mod message;
mod onward;
mod open;
mod pool;
mod recent;
mod tls;
mod values;

#[cfg(test)]
pub(super) use self::connect::tests::cluster;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

pub use address::{Address, Environment};
pub use beside::Beside;
pub use changes::Changes;

use self::claims::Batch;
use self::connect::Session;
use self::database_clock::DatabaseClock;
use self::driver::{PostgresDriver, Stage};
use self::export::Exports;
use self::failure::Trouble;
use self::foreign_key::ForeignKey;
use self::group::{Lines, Told};
use self::lane::Way;
use self::onward::Onward;
use self::pool::{Pool, Purpose};
use super::ids::Ids;
use super::sql::POSTGRES;
use super::transaction::{self, Context, Given, Halt, Pace};
use super::{OpenError, StoreError, WriteOptions};
use crate::clock;
use crate::fault;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::model::settings::{Pooling, ServerTable};
use crate::plan::{Action, Outcome, Read, Refusal, Write};
use keeper::Keeper;

/// How often one write is tried.
const ATTEMPTS_MAX: u32 = 10;
/// The pause before a write is tried again; each one is longer than the last.
const PAUSE: Duration = Duration::from_millis(2);
/// From so many on, pauses for another server are as long as they get.
const PAUSES_GROW: u32 = 20;
/// The database stops a statement by itself; a network that hangs does not.
const GRACE: Duration = Duration::from_secs(5);
/// A connection that takes longer to undo a transaction is closed, which undoes it too.
const UNDO_MAX: Duration = Duration::from_secs(1);

/// What all threads share.
#[derive(Debug)]
pub struct Shared {
    address: Arc<Address>,
    metrics: Arc<Metrics>,
    session: Session,
    context: Arc<Context>,
    connections_max: usize,
    exports: Arc<Exports>,
    epoch: Arc<Mutex<Option<u64>>>,
    claims: Arc<Batch>,
    keeper: Mutex<Option<Keeper>>,
    clock: Arc<DatabaseClock>,
}

pub(super) fn open(
    address: &Arc<Address>,
    model: &Arc<Model>,
    (log, metrics): (&Log, &Arc<Metrics>),
    is_patient: bool,
) -> Result<Arc<Shared>, OpenError> {
    let context = Context::counted(model, &POSTGRES, Arc::clone(&metrics.damaged_items));
    let session = session(&model.server);
    let (address, counted) = (Arc::clone(address), (log, metrics));
    let keeper =
        Keeper::start(Arc::clone(&address), Arc::clone(&context), session, counted, is_patient)?;
    let epoch = Arc::default();
    Ok(Arc::new(Shared {
        address,
        metrics: Arc::clone(metrics),
        session,
        context,
        connections_max: model.server.limits.database_connections_max,
        exports: Arc::new(Exports::new(&model.server.limits, metrics)),
        claims: Arc::new(Batch::new(&epoch)),
        epoch,
        clock: Arc::clone(&keeper.clock),
        keeper: Mutex::new(Some(keeper)),
    }))
}

/// No statement runs longer than a request may wait for it, and none waits longer for another's lock.
fn session(settings: &ServerTable) -> Session {
    let millis = u64::from(settings.limits.statement_seconds_max) * 1_000;
    Session {
        pooling: settings.database_pooling.unwrap_or(Pooling::Session),
        // The lock's limit comes first, since it says more.
        statement_ms_max: millis + 250,
        lock_ms_max: millis,
        idle_in_transaction_ms_max: 4 * millis,
    }
}

impl Shared {
    pub(super) fn close(&self) {
        let keeper = self.keeper.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(keeper) = keeper {
            keeper.stop();
        }
    }
}

/// One worker thread's way into the store.
#[derive(Debug)]
pub struct Worker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Arc<Context>,
    pool: Arc<Pool>,
    ids: Mutex<Ids>,
    pooling: Pooling,
    statement_max: Duration,
    claims: Arc<Batch>,
    exports: Arc<Exports>,
    lines: Lines,
}

impl Worker {
    pub(super) fn new(shared: &Arc<Shared>, workers: usize) -> Self {
        let address = Arc::clone(&shared.address);
        let connections_max = shared.connections_max.div_ceil(workers.max(1)).max(1);
        let counted = shared.metrics.pool();
        let pool = Pool::new(address, shared.session, connections_max, counted);
        let pool = pool.with_epoch(&shared.epoch).with_clock(&shared.clock);
        let limits = &shared.context.model.server.limits;
        Self(Arc::new(Inner {
            context: Arc::clone(&shared.context),
            pool: Arc::new(pool),
            ids: Mutex::default(),
            pooling: shared.session.pooling,
            statement_max: Duration::from_secs(limits.statement_seconds_max.into()),
            claims: Arc::clone(&shared.claims),
            exports: Arc::clone(&shared.exports),
            lines: Lines::new(&shared.context.model),
        }))
    }

    /// Once it has a connection, the work goes on when the client leaves: the database does to the end
    /// what it is asked, and a connection that waits for it is of no use to the next one. So does its place.
    pub(super) async fn read(
        &self,
        read: Read,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<Outcome, StoreError> {
        fault::point("read");
        let now = clock::now();
        let until = now + self.0.statement_max;
        let pool = &self.0.pool;
        let way = match &read {
            read if read.is_small() => pool.way(now, until).await?,
            read => Way::Alone(pool.lease(purpose(read), until).await?),
        };
        let inner = Arc::clone(&self.0);
        Onward::new(|| async move {
            let _place = place;
            Inner::read(inner, read, way, until).await
        })
        .await
    }

    /// The work goes on when the client leaves, from its beginning, and keeps its memory and its place.
    pub(super) fn write(
        &self,
        write: Box<Write>,
        options: WriteOptions,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + use<> {
        fault::point("queue");
        let inner = Arc::clone(&self.0);
        Onward::new(|| Inner::write(inner, write, options))
    }
}

impl Inner {
    async fn read(
        self: Arc<Self>,
        read: Read,
        mut way: Way,
        until: Instant,
    ) -> Result<Outcome, StoreError> {
        let mut is_second = false;
        loop {
            let connection = way.connection().ok_or_else(no_connection)?;
            let mut driver = PostgresDriver::new(connection, &self.ids, self.pooling, Stage::None);
            let late = until + GRACE;
            let done = {
                let mut work = pin!(transaction::read(&mut driver, &self.context, &read));
                let done = timeout_at(way.wait_until(late).into(), work.as_mut()).await;
                match done {
                    Err(_) if way.is_only_one() => timeout_at(late.into(), work.as_mut()).await,
                    done => done,
                }
            };
            match (done, driver.trouble()) {
                (Ok(done), None) => {
                    way.keep();
                    return done;
                }
                (Ok(done), Some(_)) => {
                    way.give_up();
                    if is_second {
                        return done;
                    }
                    // A connection that was cut while it was idle shows it at its next use.
                    is_second = true;
                }
                (Err(_), _) => {
                    way.leave();
                    if clock::now() >= late {
                        return Err(StoreError::TimedOut);
                    }
                }
            }
            // Not before its own place is free: that may be the only one.
            way = Way::Alone(self.pool.lease(purpose(&read), until).await?);
        }
    }

    async fn write(
        self: Arc<Self>,
        write: Box<Write>,
        options: WriteOptions,
    ) -> Result<Outcome, StoreError> {
        let WriteOptions { bytes, deadline: until, memory: _memory, place: _place } = options;
        let Some(line) = self.line(&write, bytes, until) else {
            return self.write_alone(&write, until).await;
        };
        if let Some(turn) = line.turn() {
            let done = self.write_alone(&write, until).await;
            if done.is_ok() {
                turn.done(1);
                self.pool.wrote(1);
            }
            return done;
        }
        match self.go_together(line, write, until).await {
            Told::Done(done) => done,
            Told::Alone(_) if clock::now() >= until => Err(StoreError::TimedOut),
            Told::Alone(write) => self.write_alone(&write, until).await,
        }
    }

    async fn write_alone(&self, write: &Write, until: Instant) -> Result<Outcome, StoreError> {
        // What depends on the stored item holds its lock until the end.
        let stage = match &write.action {
            // What is kept of it comes with it.
            _ if write.once.is_some() => Stage::Due,
            Action::Create { .. } => Stage::None,
            Action::Replace { .. } | Action::Amend { .. } | Action::Remove { .. } => Stage::Due,
        };
        let mut patience = Patience::new(write);
        let mut attempt = 1;
        loop {
            let is_last = attempt == ATTEMPTS_MAX;
            let work = async |driver: &mut PostgresDriver<'_>| {
                transaction::write(driver, &self.context, Given::Lent(write), Pace::Alone).await
            };
            match self.attempt(stage, until, work).await {
                Attempt::Done(Err(error)) if patience.wants(&error) => {
                    patience.pause().await;
                    continue;
                }
                Attempt::Done(done) => return done,
                Attempt::Again(Undone { violated: Some(key), .. })
                    if self.refuses_removal(write, &key, until).await =>
                {
                    return Err(StoreError::Refused(Refusal::Referenced(None)));
                }
                Attempt::Again(undone) if is_last || clock::now() >= until => {
                    return Err(undone.error);
                }
                Attempt::Again(_) => tokio::time::sleep(PAUSE * attempt * attempt).await,
            }
            attempt += 1;
        }
    }

    async fn attempt<T>(
        &self,
        stage: Stage,
        until: Instant,
        work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, Halt<Box<Write>>>,
    ) -> Attempt<T> {
        let lease = match self.pool.lease(Purpose::Write, until).await {
            Ok(lease) => lease,
            Err(error) => return Attempt::Done(Err(error)),
        };
        let Some(connection) = lease.connection() else {
            return Attempt::Done(Err(no_connection()));
        };
        let mut driver = PostgresDriver::new(connection, &self.ids, self.pooling, stage);
        let done = {
            let work = pin!(work(&mut driver));
            timeout_at(until.into(), work).await
        };
        let error = match done {
            Ok(Ok(outcome)) => {
                fault::point("answer");
                lease.keep();
                return Attempt::Done(Ok(outcome));
            }
            Ok(Err(Halt::Error(error))) => error,
            Ok(Err(Halt::TooLong(_))) => StoreError::broken("a write that is alone was too long"),
            // A commit is never cancelled: PostgreSQL would stop waiting for its standbys, and report
            // success for a transaction that a failover loses.
            Err(_) if driver.may_be_done() => {
                let cause = "the database did not confirm the commit in time".to_owned();
                lease.keep_when_answered();
                return Attempt::Done(Err(StoreError::OutcomeUnknown(cause)));
            }
            // The work is dropped, so no commit is sent behind the cancel request.
            Err(_) => {
                lease.cancel();
                return Attempt::Done(Err(StoreError::TimedOut));
            }
        };
        match driver.trouble() {
            Some(Trouble::Lost) if driver.may_be_done() => {
                Attempt::Done(Err(StoreError::OutcomeUnknown(cause_of(error))))
            }
            // A connection in trouble goes: what it has prepared may be what is wrong.
            Some(_) => Attempt::Again(Undone { error, violated: driver.take_violated() }),
            None => {
                let undo = Box::pin(tokio::time::timeout(UNDO_MAX, driver.abandon()));
                if undo.await == Ok(true) {
                    lease.keep();
                }
                Attempt::Done(Err(error))
            }
        }
    }
}

/// How long another server is waited for that works under the same key. No connection is held meanwhile.
struct Patience {
    until: Option<Instant>,
    pauses: u32,
}

impl Patience {
    fn new(write: &Write) -> Self {
        let until = write.once.as_ref().map(|once| clock::now() + once.wait);
        Self { until, pauses: 0 }
    }

    fn wants(&self, error: &StoreError) -> bool {
        matches!(error, StoreError::Refused(Refusal::KeyUnderWay))
            && self.until.is_some_and(|until| clock::now() < until)
    }

    async fn pause(&mut self) {
        self.pauses = self.pauses.saturating_add(1).min(PAUSES_GROW);
        tokio::time::sleep(PAUSE * self.pauses).await;
    }
}

/// How an attempt to write ended.
enum Attempt<T> {
    Done(Result<T, StoreError>),
    /// Nothing was done, and it may go through the next time.
    Again(Undone),
}

/// Why the database undid a write.
struct Undone {
    error: StoreError,
    violated: Option<ForeignKey>,
}

fn purpose(read: &Read) -> Purpose {
    if read.is_wide() { Purpose::List } else { Purpose::Read }
}

fn no_connection() -> StoreError {
    StoreError::broken("a lease without a connection")
}

fn cause_of(error: StoreError) -> String {
    match error {
        StoreError::Unavailable(cause) => cause,
        other => format!("{other:?}"),
    }
}
