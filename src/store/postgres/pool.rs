//! Connections of one worker thread: so many at most, taken by one request at a time.
//!
//! Statements are prepared once a connection, and the least used go when there are many.
//! The one surprising thing: writes may not take every connection, so that a hot item, for which they
//! wait, does not keep reads out.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::{AsyncMessage, CancelToken, Client, Error, Statement};

use super::Address;
use super::connect::{ConnectError, Driver, Session};
use super::database_clock::DatabaseClock;
use super::failure::is_unreplicated;
use super::lane::Lane;
use super::recent::Recent;
use crate::clock;
use crate::metrics::{self, Gauge};
use crate::store::StoreError;

/// Prepared statements that a connection keeps: more than a usual model has, but updates come in as
/// many forms as there are sets of fields.
const STATEMENTS_MAX: usize = 256;
/// Nobody waits longer than this for a connection, be it one in use or a new one.
pub(super) const LEASE_MAX: Duration = Duration::from_secs(5);

/// One connection, with the statements prepared on it.
pub(super) struct Connection {
    pub(super) client: Client,
    /// Stops what it is doing.
    pub(super) cancel: Arc<CancelToken>,
    statements: Mutex<Recent<Statement>>,
    /// The number up to which the change log is known to be complete, by any connection of the pool.
    pub(super) settled: Arc<AtomicI64>,
    pub(super) clock: Arc<DatabaseClock>,
    /// PostgreSQL has warned that a commit on this connection may not be on its standbys.
    pub(super) is_unreplicated: Arc<AtomicBool>,
    until_closed: UntilClosed,
    _open: Raised,
}

/// A permit that is given back when its connection is closed, which is when the database has answered all
/// that was sent on it.
type UntilClosed = Arc<Mutex<Option<Permit>>>;

#[expect(dead_code, reason = "they are held, and given back by their drop")]
enum Permit {
    Spare(OwnedSemaphorePermit),
    Places(Option<Places>),
}

/// One more of something, until it is dropped.
struct Raised {
    counted: Arc<metrics::Pool>,
    of: fn(&metrics::Pool) -> &Gauge,
}

impl Raised {
    fn new(counted: &Arc<metrics::Pool>, of: fn(&metrics::Pool) -> &Gauge) -> Self {
        of(counted).raise();
        Self { counted: Arc::clone(counted), of }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        (self.of)(&self.counted).lower();
    }
}

/// One who waits for a place.
struct Queued<'a>(&'a AtomicUsize);

impl<'a> Queued<'a> {
    fn new(queued: &'a AtomicUsize) -> Self {
        queued.fetch_add(1, Ordering::Relaxed);
        Self(queued)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    /// A statement as prepared on this connection.
    pub(super) async fn statement(&self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements().get(sql) {
            return Ok(statement);
        }
        let statement = Box::pin(self.client.prepare(sql)).await?;
        // The database forgets a statement when the last handle goes.
        Ok(self.statements().put(sql, statement))
    }

    fn statements(&self) -> MutexGuard<'_, Recent<Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a connection is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    /// A list that may look at every row: such may not take every connection either.
    List,
    Write,
}

type Places = (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit);

/// The connections of one worker thread.
pub(super) struct Pool {
    address: Arc<Address>,
    session: Session,
    #[expect(clippy::vec_box, reason = "one is taken and given back by each request, as it is")]
    idle: Mutex<Vec<Box<Connection>>>,
    pub(super) places: Arc<Semaphore>,
    writing: Arc<Semaphore>,
    listing: Arc<Semaphore>,
    /// For connections that were given up before the database had answered. While there is one, the place
    /// of such a connection is free at once; beyond them it is free when the connection is closed. A
    /// commit that waits for a standby keeps its backend for as long as the standby is away, so without
    /// this limit a server would use up all connections that the database has.
    spare: Arc<Semaphore>,
    pub(super) connections_max: usize,
    /// How many wait for a place, whatever for.
    queued: AtomicUsize,
    /// What small reads share, while there are any.
    lane: Mutex<Weak<Lane>>,
    counted: Arc<metrics::Pool>,
    /// Forgotten when a connection ends.
    epoch: Arc<Mutex<Option<u64>>>,
    /// Forgotten too: another server may have taken over, and know less.
    settled: Arc<AtomicI64>,
    /// Read anew by each new connection.
    clock: Arc<DatabaseClock>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("places", &self.places).finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(
        address: Arc<Address>,
        session: Session,
        connections_max: usize,
        counted: Arc<metrics::Pool>,
    ) -> Self {
        let writing_max = if connections_max > 2 { connections_max - 1 } else { connections_max };
        Self {
            address,
            session,
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(connections_max)),
            writing: Arc::new(Semaphore::new(writing_max)),
            listing: Arc::new(Semaphore::new(connections_max.div_ceil(2))),
            spare: Arc::new(Semaphore::new(connections_max)),
            connections_max,
            queued: AtomicUsize::new(0),
            lane: Mutex::default(),
            counted,
            epoch: Arc::default(),
            settled: Arc::default(),
            clock: Arc::default(),
        }
    }

    /// With the clock that all connections of a server share.
    pub(super) fn with_clock(self, clock: &Arc<DatabaseClock>) -> Self {
        Self { clock: Arc::clone(clock), ..self }
    }

    /// With something that is believed only as long as no connection to the database has ended.
    pub(super) fn with_epoch(self, epoch: &Arc<Mutex<Option<u64>>>) -> Self {
        Self { epoch: Arc::clone(epoch), ..self }
    }

    /// A connection for one request: one that is idle, or a new one, if there is a place before the deadline.
    pub(super) async fn lease(
        self: &Arc<Self>,
        purpose: Purpose,
        until: Instant,
    ) -> Result<Lease, StoreError> {
        // Mostly there is one, and then neither a clock nor a timer is asked.
        match self.lease_at_once(purpose) {
            Some(lease) => Ok(lease),
            None => self.wait_for_lease(purpose, until).await,
        }
    }

    /// One that is idle, if there is a place that nobody waits for.
    pub(super) fn lease_at_once(self: &Arc<Self>, purpose: Purpose) -> Option<Lease> {
        let places = self.free_places(purpose)?;
        let connection = self.take_idle()?;
        self.lent_at_once();
        Some(self.lent(connection, places))
    }

    pub(super) async fn wait_for_lease(
        self: &Arc<Self>,
        purpose: Purpose,
        until: Instant,
    ) -> Result<Lease, StoreError> {
        let began = clock::now();
        let deadline = until.min(began + LEASE_MAX);
        let waiting = Raised::new(&self.counted, |counted| &counted.waiting);
        let places = async {
            let share = match self.share(purpose) {
                Some(share) => Some(Arc::clone(share).acquire_owned().await.ok()?),
                None => None,
            };
            let _queued = Queued::new(&self.queued);
            Some((share, Arc::clone(&self.places).acquire_owned().await.ok()?))
        };
        let places = match tokio::time::timeout_at(deadline.into(), places).await {
            Ok(Some(places)) => places,
            Ok(None) | Err(_) => return Err(StoreError::Busy),
        };
        let connection = match self.take_idle() {
            Some(connection) => connection,
            // In a box: it is much larger than all else that a request waits for, and seldom needed.
            None => Box::pin(self.connection(deadline)).await.map_err(|error| {
                StoreError::Unavailable(format!("no connection to the database: {error}"))
            })?,
        };
        drop(waiting);
        self.counted.wait.observe_time(clock::now().saturating_duration_since(began));
        Ok(self.lent(connection, places))
    }

    /// What some requests may have of the connections, beside one of all places.
    fn share(&self, purpose: Purpose) -> Option<&Arc<Semaphore>> {
        match purpose {
            Purpose::Read => None,
            Purpose::List => Some(&self.listing),
            Purpose::Write => Some(&self.writing),
        }
    }

    /// Places that nobody has to wait for: those who wait come first.
    fn free_places(&self, purpose: Purpose) -> Option<Places> {
        let share = match self.share(purpose) {
            Some(share) => Some(Arc::clone(share).try_acquire_owned().ok()?),
            None => None,
        };
        Some((share, Arc::clone(&self.places).try_acquire_owned().ok()?))
    }

    pub(super) fn lane(&self) -> MutexGuard<'_, Weak<Lane>> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody waits for a place: then what holds one has to end some time.
    pub(super) fn is_queued_for(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > 0
    }

    /// Nobody had to wait.
    pub(super) fn lent_at_once(&self) {
        self.counted.wait.observe_time(Duration::ZERO);
    }

    /// One statement did what so many requests wanted.
    pub(super) fn wrote(&self, requests: usize) {
        self.counted.group_requests.observe(u64::try_from(requests).unwrap_or(u64::MAX));
    }

    fn lent(self: &Arc<Self>, connection: Box<Connection>, places: Places) -> Lease {
        Lease { connection: Some(connection), pool: Arc::clone(self), places: Some(places) }
    }

    /// Asks the database to stop what a connection is doing. Nobody waits for it: whether it was heard
    /// is told by the answer on that connection.
    pub(super) fn cancel(self: &Arc<Self>, token: &CancelToken) {
        let token = token.clone();
        let pool = Arc::clone(self);
        tokio::task::spawn_local(async move { pool.stop(token).await });
    }

    /// Asks the same, and waits until the database has heard it, or does not answer.
    pub(super) async fn stop(&self, token: CancelToken) {
        let _ = tokio::time::timeout(LEASE_MAX, self.address.cancel(token)).await;
    }

    /// Whether one more idle connection is within the limit: each place that is taken has one.
    fn has_room(&self, permit: &Permit) -> bool {
        let own = usize::from(matches!(permit, Permit::Places(_)));
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).len();
        idle < self.places.available_permits() + own
    }

    fn take_idle(&self) -> Option<Box<Connection>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // The latest first: what is not needed grows old, and is closed by whoever closes idle connections.
        while let Some(connection) = idle.pop() {
            self.counted.idle.lower();
            if !connection.client.is_closed() {
                return Some(connection);
            }
            self.counted.lost.add(1);
        }
        None
    }

    /// A new connection, beside the pool.
    pub(super) async fn connection(
        &self,
        deadline: Instant,
    ) -> Result<Box<Connection>, ConnectError> {
        let connected = self.address.connect(&self.session, &self.clock, deadline).await?;
        let (client, driver) = connected;
        let (epoch, settled) = (Arc::clone(&self.epoch), Arc::clone(&self.settled));
        let (is_unreplicated, until_closed) = (Arc::default(), UntilClosed::default());
        let noted = (Arc::clone(&is_unreplicated), Arc::clone(&until_closed));
        // It ends when the client is gone and all that was sent is answered, or with an error that the
        // client sees too.
        tokio::task::spawn_local(async move {
            run(driver, &noted.0).await;
            // It may have been a crash, after which a nonce of the old epoch lets nobody in.
            *epoch.lock().unwrap_or_else(PoisonError::into_inner) = None;
            settled.store(0, Ordering::Relaxed);
            drop(noted);
        });
        self.counted.opened.add(1);
        let open = Raised::new(&self.counted, |counted| &counted.open);
        let cancel = Arc::new(client.cancel_token());
        let statements = Mutex::new(Recent::new(STATEMENTS_MAX));
        let settled = Arc::clone(&self.settled);
        let clock = Arc::clone(&self.clock);
        Ok(Box::new(Connection {
            client,
            cancel,
            statements,
            settled,
            clock,
            is_unreplicated,
            until_closed,
            _open: open,
        }))
    }
}

/// Runs a connection to its end. A notice comes before the end of the statement that it belongs to, so
/// whoever waits for that statement finds it noted.
async fn run(mut driver: Driver, unreplicated: &AtomicBool) {
    while let Some(Ok(message)) = poll_fn(|context| driver.poll_message(context)).await {
        if let AsyncMessage::Notice(notice) = message
            && is_unreplicated(&notice)
        {
            unreplicated.store(true, Ordering::Relaxed);
        }
    }
}

/// A connection in use. Dropped without `keep`, it is closed, and what was not committed is undone.
pub(super) struct Lease {
    connection: Option<Box<Connection>>,
    pool: Arc<Pool>,
    places: Option<Places>,
}

impl Lease {
    /// The connection; `None` never while the lease is held.
    pub(super) fn connection(&self) -> Option<&Connection> {
        self.connection.as_deref()
    }

    /// Asks the database to stop what the connection is doing.
    pub(super) fn cancel(&self) {
        if let Some(connection) = &self.connection {
            self.pool.cancel(&connection.cancel);
        }
    }

    /// The same, and waits until the database has heard it, or does not answer.
    pub(super) async fn stop(&self) {
        if let Some(connection) = &self.connection {
            self.pool.stop((*connection.cancel).clone()).await;
        }
    }

    /// Gives the connection back: it is whole, and in no transaction.
    pub(super) fn keep(mut self) {
        if let Some(connection) = self.connection.take_if(|kept| !kept.client.is_closed()) {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            self.pool.counted.idle.raise();
        }
    }

    /// Gives the connection back when the database has answered all that was sent on it. Nobody waits
    /// for that here.
    pub(super) fn keep_when_answered(mut self) {
        let Some(connection) = self.connection.take() else { return };
        let (pool, permit) = (Arc::clone(&self.pool), self.permit_without_answer());
        tokio::task::spawn_local(async move {
            // The answer to nothing comes behind all others.
            if connection.client.batch_execute("").await.is_err() || !pool.has_room(&permit) {
                pool.counted.lost.add(1);
                return;
            }
            connection.is_unreplicated.store(false, Ordering::Relaxed);
            pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            pool.counted.idle.raise();
            drop(permit);
        });
    }

    /// What is held for a connection while it waits for an answer that nobody waits for any more.
    fn permit_without_answer(&mut self) -> Permit {
        match Arc::clone(&self.pool.spare).try_acquire_owned() {
            Ok(spare) => Permit::Spare(spare),
            Err(_) => Permit::Places(self.places.take()),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        self.pool.counted.lost.add(1);
        let permit = self.permit_without_answer();
        *connection.until_closed.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
    }
}
