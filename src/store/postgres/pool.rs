//! Connection pool of one worker thread: a bounded number of connections, each leased to one request.
//!
//! Each connection caches its prepared statements (LRU).
//! The one surprising thing: writes may not take every connection, so that writes queued for the row lock of
//! a hot item do not starve reads.

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

/// Prepared statements cached per connection: more than a usual model has, but an update has one statement
/// for each set of changed fields.
const STATEMENTS_MAX: usize = 256;
/// How long a request waits for a connection, whether for one in use or for a new one.
pub(super) const LEASE_MAX: Duration = Duration::from_secs(5);

/// One connection, with its cache of prepared statements.
pub(super) struct Connection {
    pub(super) client: Client,
    /// Cancels the statement that is running on it.
    pub(super) cancel: Arc<CancelToken>,
    statements: Mutex<Recent<Statement>>,
    /// Low-water mark of the change log: all entries up to this number are visible. Any connection of the
    /// pool may raise it.
    pub(super) settled: Arc<AtomicI64>,
    pub(super) clock: Arc<DatabaseClock>,
    /// PostgreSQL has warned that a commit on this connection may be missing on its standbys.
    pub(super) is_unreplicated: Arc<AtomicBool>,
    until_closed: UntilClosed,
    _open: Raised,
}

/// A permit that is released when its connection closes, which is when the database has answered everything
/// that was sent on it.
type UntilClosed = Arc<Mutex<Option<Permit>>>;

#[expect(dead_code, reason = "they are held, and given back by their drop")]
enum Permit {
    Spare(OwnedSemaphorePermit),
    Places(Option<Places>),
}

/// Raises a gauge, and lowers it on drop.
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

/// Counts a request as waiting for a slot, until it is dropped.
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
    /// The prepared statement for this text, from the cache if possible.
    pub(super) async fn statement(&self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements().get(sql) {
            return Ok(statement);
        }
        let statement = Box::pin(self.client.prepare(sql)).await?;
        // The client closes a prepared statement when its last handle is dropped.
        Ok(self.statements().put(sql, statement))
    }

    fn statements(&self) -> MutexGuard<'_, Recent<Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a connection is leased for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    /// A list that may scan every row; lists may not take every connection either.
    List,
    Write,
}

type Places = (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit);

/// The connection pool of one worker thread.
pub(super) struct Pool {
    address: Arc<Address>,
    session: Session,
    #[expect(clippy::vec_box, reason = "one is taken and given back by each request, as it is")]
    idle: Mutex<Vec<Box<Connection>>>,
    pub(super) places: Arc<Semaphore>,
    writing: Arc<Semaphore>,
    listing: Arc<Semaphore>,
    /// For connections that were abandoned before the database had answered. Up to this many, the pool slot
    /// of such a connection is free at once; beyond that it is free when the connection closes. A commit
    /// that waits for a standby keeps its backend for as long as the standby is away, so without this limit
    /// a server would use up all connections that the database has.
    spare: Arc<Semaphore>,
    pub(super) connections_max: usize,
    /// Requests that wait for a slot, for any purpose.
    queued: AtomicUsize,
    /// The connection that small reads share by pipelining, while one is open.
    lane: Mutex<Weak<Lane>>,
    counted: Arc<metrics::Pool>,
    /// The epoch of the nonces; cleared when a connection ends.
    epoch: Arc<Mutex<Option<u64>>>,
    /// Cleared too: after a failover the new primary may have fewer entries.
    settled: Arc<AtomicI64>,
    /// Each new connection takes a reading for it.
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

    /// Uses the clock that all connections of a server share.
    pub(super) fn with_clock(self, clock: &Arc<DatabaseClock>) -> Self {
        Self { clock: Arc::clone(clock), ..self }
    }

    /// Uses this nonce epoch, which stays known only as long as no connection to the database ends.
    pub(super) fn with_epoch(self, epoch: &Arc<Mutex<Option<u64>>>) -> Self {
        Self { epoch: Arc::clone(epoch), ..self }
    }

    /// Leases a connection: an idle one, or a new one if a slot is free before the deadline.
    pub(super) async fn lease(
        self: &Arc<Self>,
        purpose: Purpose,
        until: Instant,
    ) -> Result<Lease, StoreError> {
        // The fast path reads no clock and sets no timer.
        match self.lease_at_once(purpose) {
            Some(lease) => Ok(lease),
            None => self.wait_for_lease(purpose, until).await,
        }
    }

    /// Leases an idle connection if a slot is free and no request waits for one.
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
            // Boxed: this future is much larger than the others a request awaits, and seldom needed.
            None => Box::pin(self.connection(deadline)).await.map_err(|error| {
                StoreError::Unavailable(format!("no connection to the database: {error}"))
            })?,
        };
        drop(waiting);
        self.counted.wait.observe_time(clock::now().saturating_duration_since(began));
        Ok(self.lent(connection, places))
    }

    /// The additional limit for this purpose, beside the pool's slots.
    fn share(&self, purpose: Purpose) -> Option<&Arc<Semaphore>> {
        match purpose {
            Purpose::Read => None,
            Purpose::List => Some(&self.listing),
            Purpose::Write => Some(&self.writing),
        }
    }

    /// Takes slots without waiting. The semaphores are fair, so requests that wait come first.
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

    /// Whether a request waits for a slot; then the pipelined connection has to be given back some time.
    pub(super) fn is_queued_for(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > 0
    }

    /// Records in the metrics that a request got its connection without waiting.
    pub(super) fn lent_at_once(&self) {
        self.counted.wait.observe_time(Duration::ZERO);
    }

    /// Records in the metrics how many requests one statement wrote.
    pub(super) fn wrote(&self, requests: usize) {
        self.counted.group_requests.observe(u64::try_from(requests).unwrap_or(u64::MAX));
    }

    fn lent(self: &Arc<Self>, connection: Box<Connection>, places: Places) -> Lease {
        Lease { connection: Some(connection), pool: Arc::clone(self), places: Some(places) }
    }

    /// Sends a cancel request without waiting for it. The answer on the cancelled connection shows whether
    /// it arrived.
    pub(super) fn cancel(self: &Arc<Self>, token: &CancelToken) {
        let token = token.clone();
        let pool = Arc::clone(self);
        tokio::task::spawn_local(async move { pool.stop(token).await });
    }

    /// Sends a cancel request, and waits until the database has taken it or does not answer.
    pub(super) async fn stop(&self, token: CancelToken) {
        let _ = tokio::time::timeout(LEASE_MAX, self.address.cancel(token)).await;
    }

    /// Whether one more idle connection is within the limit: each slot in use has a connection already.
    fn has_room(&self, permit: &Permit) -> bool {
        let own = usize::from(matches!(permit, Permit::Places(_)));
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).len();
        idle < self.places.available_permits() + own
    }

    fn take_idle(&self) -> Option<Box<Connection>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // LIFO: surplus connections stay idle, so that a proxy or the server can close them by age.
        while let Some(connection) = idle.pop() {
            self.counted.idle.lower();
            if !connection.client.is_closed() {
                return Some(connection);
            }
            self.counted.lost.add(1);
        }
        None
    }

    /// Opens a connection that does not count against the pool's slots.
    pub(super) async fn connection(
        &self,
        deadline: Instant,
    ) -> Result<Box<Connection>, ConnectError> {
        let connected = self.address.connect(&self.session, &self.clock, deadline).await?;
        let (client, driver) = connected;
        let (epoch, settled) = (Arc::clone(&self.epoch), Arc::clone(&self.settled));
        let (is_unreplicated, until_closed) = (Arc::default(), UntilClosed::default());
        let noted = (Arc::clone(&is_unreplicated), Arc::clone(&until_closed));
        // The task ends when the client handle is dropped and all that was sent is answered, or with an
        // error that the client handle reports too.
        tokio::task::spawn_local(async move {
            run(driver, &noted.0).await;
            // PostgreSQL may have crashed, and then no nonce of the old epoch is accepted any more.
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

/// Polls a connection until it ends. A notice arrives before the end of its statement, so the flag is set
/// before the caller of that statement continues.
async fn run(mut driver: Driver, unreplicated: &AtomicBool) {
    while let Some(Ok(message)) = poll_fn(|context| driver.poll_message(context)).await {
        if let AsyncMessage::Notice(notice) = message
            && is_unreplicated(&notice)
        {
            unreplicated.store(true, Ordering::Relaxed);
        }
    }
}

/// A leased connection. Unless it is returned to the pool, its drop closes it, which rolls back.
pub(super) struct Lease {
    connection: Option<Box<Connection>>,
    pool: Arc<Pool>,
    places: Option<Places>,
}

impl Lease {
    /// The connection; never `None` while the lease is held.
    pub(super) fn connection(&self) -> Option<&Connection> {
        self.connection.as_deref()
    }

    /// Sends a cancel request for the running statement without waiting for it.
    pub(super) fn cancel(&self) {
        if let Some(connection) = &self.connection {
            self.pool.cancel(&connection.cancel);
        }
    }

    /// Sends a cancel request, and waits until the database has taken it or does not answer.
    pub(super) async fn stop(&self) {
        if let Some(connection) = &self.connection {
            self.pool.stop((*connection.cancel).clone()).await;
        }
    }

    /// Returns the connection to the pool: it is intact, and in no transaction.
    pub(super) fn keep(mut self) {
        if let Some(connection) = self.connection.take_if(|kept| !kept.client.is_closed()) {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            self.pool.counted.idle.raise();
        }
    }

    /// Returns the connection to the pool, in the background, when the database has answered all that was
    /// sent on it.
    pub(super) fn keep_when_answered(mut self) {
        let Some(connection) = self.connection.take() else { return };
        let (pool, permit) = (Arc::clone(&self.pool), self.permit_without_answer());
        tokio::task::spawn_local(async move {
            // Answers come in order, so the answer to an empty query comes after all others.
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

    /// The permit to hold while a connection waits for an answer that no request awaits any more.
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
