//! PostgreSQL backend: any number of server processes serve one database and share nothing else.
//!
//! Each worker thread has its own connection pool (`pool`), so a request never changes threads. A write is
//! retried while no answer was sent to the client and the transaction certainly did not commit; where the
//! outcome is unknown, the client gets `OutcomeUnknown`. A maintenance thread opens the database at startup
//! and then sweeps the change log (`maintenance`).

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

/// How often one write is attempted.
const ATTEMPTS_MAX: u32 = 10;
/// Base delay before a write is retried; the delay grows with each attempt (backoff).
const PAUSE: Duration = Duration::from_millis(2);
/// The delay while another server holds the same idempotency key stops growing after this many retries.
const PAUSES_GROW: u32 = 20;
/// Added to every statement's deadline: PostgreSQL enforces `statement_timeout`, but a hung network does
/// not.
const GRACE: Duration = Duration::from_secs(5);
/// A rollback that takes longer is cut short by closing the connection, which rolls back too.
const UNDO_MAX: Duration = Duration::from_secs(1);

/// State that all worker threads share.
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

/// Session settings: no statement runs, and none waits for a lock, longer than a request may take.
fn session(settings: &ServerTable) -> Session {
    let millis = u64::from(settings.limits.statement_seconds_max) * 1_000;
    Session {
        pooling: settings.database_pooling.unwrap_or(Pooling::Session),
        // The lock timeout fires first, because its error says more.
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

/// The store as one worker thread sees it.
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

    /// Runs a write to its end even if the client disconnects; meanwhile it keeps its memory and queue
    /// slot.
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
                    // An idle connection that was cut shows it only at its next use: retry once.
                    is_second = true;
                }
                (Err(_), _) => {
                    way.leave();
                    if clock::now() >= late {
                        return Err(StoreError::TimedOut);
                    }
                }
            }
            // The old connection is released first: its slot may be the only one.
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
        // A write that depends on the stored item holds its row lock until the commit.
        let stage = match &write.action {
            // The response stored for the idempotency key is written in the same transaction.
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
            // The work is dropped first, so no commit can follow the cancel request.
            Err(_) => {
                lease.cancel();
                return Attempt::Done(Err(StoreError::TimedOut));
            }
        };
        match driver.trouble() {
            Some(Trouble::Lost) if driver.may_be_done() => {
                Attempt::Done(Err(StoreError::OutcomeUnknown(cause_of(error))))
            }
            // The connection is not reused: one of its prepared statements may be the cause.
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

/// Retries while another server is processing a request with the same idempotency key. The write holds no
/// connection between two attempts.
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

/// How one attempt to write ended.
enum Attempt<T> {
    Done(Result<T, StoreError>),
    /// The transaction was rolled back, and a retry may succeed.
    Again(Undone),
}

/// Why the database rolled a write back.
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
