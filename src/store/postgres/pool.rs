//! Connection pool of one worker thread: a bounded number of connections, each leased to one request.
//!
//! Each connection has a statement cache: it keeps the statements prepared that it uses most.
//! Writes may not use every connection, so that writes queued for the row lock of a hot item do not starve
//! reads.

use std::future::poll_fn;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quick_cache::unsync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::{AsyncMessage, CancelToken, Client, Error, Statement};

use crate::clock;
use crate::fault::OrBug;
use crate::metrics::{self, Gauge};
use crate::model::settings::Pooling;
use crate::store::error::StoreError;
use crate::store::postgres::connect::error::ConnectError;
use crate::store::postgres::connect::{ConnectionDriver, OpenConnection, SessionSettings};
use crate::store::postgres::connection_url::address::PostgresUrl;
use crate::store::postgres::error_class::{is_host_gone, is_sync_replication_warning};
use crate::store::postgres::primary::{PrimarySession, PrimaryState};
use crate::store::statement::StatementReuse;

/// Prepared statements cached per connection: more than a usual model has, but an update has one statement
/// for each set of changed fields.
const STATEMENTS_MAX: usize = 256;
/// Of lists, whose statements evict only each other: clients can send any number of them.
const LIST_STATEMENTS_MAX: usize = 64;
/// How many reads of one worker thread may hold large results at the same moment.
const LARGE_READS_MAX: usize = 2;
/// How long a request waits for a connection, whether for one in use or for a new one.
pub const LEASE_WAIT_MAX: Duration = Duration::from_secs(5);

/// One connection, with its cache of prepared statements.
pub struct DatabaseConnection {
    pub client: Client,
    /// Cancels the statement that is running on it.
    pub cancel: Arc<CancelToken>,
    pub pooling: Pooling,
    /// The statement cache.
    statements: Mutex<Cache<Box<str>, Statement>>,
    list_statements: Mutex<Cache<Box<str>, Statement>>,
    /// Permits for results that take much memory, of all connections of the pool together. A read that waits for one
    /// leaves the rest of its rows in the database's socket (backpressure).
    pub large_reads: Arc<Semaphore>,
    /// Low-water mark of the change log: all entries up to this number are visible. Any connection to the same
    /// incarnation of the database may raise it.
    pub low_watermark: Arc<AtomicI64>,
    pub primary: Arc<PrimaryState>,
    /// The generation of the primary at its opening.
    generation: u64,
    /// PostgreSQL has warned that a commit on this connection may be missing on its standbys.
    pub is_unreplicated: Arc<AtomicBool>,
    permit_until_closed: PermitUntilClosed,
    _open: GaugeGuard,
}

/// A permit that is released when its connection closes: when the database has answered everything sent on it.
type PermitUntilClosed = Arc<Mutex<Option<ConnectionPermit>>>;

#[expect(dead_code, reason = "held only to be released on drop")]
enum ConnectionPermit {
    Abandoned(OwnedSemaphorePermit),
    Places(Option<PoolSlots>),
}

/// Raises a gauge, and lowers it on drop.
struct GaugeGuard {
    metrics: Arc<metrics::PoolMetrics>,
    gauge: fn(&metrics::PoolMetrics) -> &Gauge,
}

impl GaugeGuard {
    fn new(counted: &Arc<metrics::PoolMetrics>, of: fn(&metrics::PoolMetrics) -> &Gauge) -> Self {
        of(counted).increment();
        Self { metrics: Arc::clone(counted), gauge: of }
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        (self.gauge)(&self.metrics).decrement();
    }
}

/// Counts a request as waiting for a slot, until it is dropped.
struct WaiterGuard<'a>(&'a AtomicUsize);

impl<'a> WaiterGuard<'a> {
    fn new(queued: &'a AtomicUsize) -> Self {
        queued.fetch_add(1, Ordering::Relaxed);
        Self(queued)
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DatabaseConnection {
    /// The prepared statement for this text, from the cache if possible.
    pub async fn prepare_cached(
        &self,
        sql: &str,
        reuse: StatementReuse,
    ) -> Result<Statement, Error> {
        let cache = match reuse {
            StatementReuse::OfRanges => &self.list_statements,
            _ => &self.statements,
        };
        let cache = || cache.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = cache().get(sql).cloned();
        if let Some(statement) = cached {
            return Ok(statement);
        }
        let statement = Box::pin(self.client.prepare(sql)).await?;
        // The client closes a prepared statement when its last handle is dropped.
        cache().insert(sql.into(), statement.clone());
        Ok(statement)
    }

    /// Its server does not answer: the primary may be another one.
    pub fn doubt_primary(&self) {
        self.primary.doubt();
    }

    /// Whether another request may use it.
    pub fn is_usable(&self) -> bool {
        !self.client.is_closed() && self.generation == self.primary.generation()
    }
}

/// The purpose of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeasePurpose {
    Read,
    /// A list that may scan every row. `list_slots` limits lists to half of the connections (rounded up), as
    /// `write_slots` limits writes, so that of two connections or more, scans leave one to other requests.
    List,
    Write,
}

type PoolSlots = (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit);

/// The connection pool of one worker thread.
pub struct ConnectionPool {
    address: Arc<PostgresUrl>,
    pub session: SessionSettings,
    #[expect(clippy::vec_box, reason = "requests lease and return the box itself")]
    idle: Mutex<Vec<Box<DatabaseConnection>>>,
    pub slots: Arc<Semaphore>,
    write_slots: Arc<Semaphore>,
    list_slots: Arc<Semaphore>,
    large_reads: Arc<Semaphore>,
    /// Slots for connections that were abandoned before the database had answered. Up to this many, the pool
    /// slot of such a connection is free immediately; beyond that it is free when the connection closes. A
    /// commit that waits for a standby keeps its backend for as long as the standby is away, so without this
    /// limit a server would use up all connections that the database has.
    abandoned_slots: Arc<Semaphore>,
    pub connections_max: usize,
    /// Requests that wait for a slot, for any purpose.
    waiters: AtomicUsize,
    metrics: Arc<metrics::PoolMetrics>,
    /// The epoch of the nonces; cleared when a connection ends.
    epoch: Arc<Mutex<Option<u64>>>,
    /// Shared; each new connection records a reading of the clock.
    primary: Arc<PrimaryState>,
}

impl std::fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionPool").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl ConnectionPool {
    pub fn new(
        address: Arc<PostgresUrl>,
        session: SessionSettings,
        connections_max: usize,
        counted: Arc<metrics::PoolMetrics>,
    ) -> Self {
        let writing_max = if connections_max > 2 { connections_max - 1 } else { connections_max };
        Self {
            address,
            session,
            idle: Mutex::default(),
            slots: Arc::new(Semaphore::new(connections_max)),
            write_slots: Arc::new(Semaphore::new(writing_max)),
            list_slots: Arc::new(Semaphore::new(connections_max.div_ceil(2))),
            large_reads: Arc::new(Semaphore::new(LARGE_READS_MAX)),
            abandoned_slots: Arc::new(Semaphore::new(connections_max)),
            connections_max,
            waiters: AtomicUsize::new(0),
            metrics: counted,
            epoch: Arc::default(),
            primary: Arc::default(),
        }
    }

    /// Uses what all connections of a server share about the primary: what one has seen, the others need not ask
    /// for.
    pub fn with_primary(self, primary: &Arc<PrimaryState>) -> Self {
        Self { primary: Arc::clone(primary), ..self }
    }

    /// Uses this nonce epoch, which stays known only as long as no connection to the database ends.
    pub fn with_epoch(self, epoch: &Arc<Mutex<Option<u64>>>) -> Self {
        Self { epoch: Arc::clone(epoch), ..self }
    }

    /// Looks for the primary; returns whether there is one. After that, connections to a former one are not reused.
    pub async fn find_primary(&self) -> bool {
        self.primary.find().await
    }

    /// Leases a connection: an idle one, or a new one if a slot is free before the deadline.
    pub async fn lease(
        self: &Arc<Self>,
        purpose: LeasePurpose,
        until: Instant,
    ) -> Result<ConnectionLease, StoreError> {
        // The fast path reads no clock and sets no timer.
        match self.try_lease(purpose) {
            Some(lease) => Ok(lease),
            None => self.wait_for_lease(purpose, until).await,
        }
    }

    /// Leases an idle connection if a slot is free and no request waits for one.
    pub fn try_lease(self: &Arc<Self>, purpose: LeasePurpose) -> Option<ConnectionLease> {
        let slots = self.try_acquire_slots(purpose)?;
        let connection = self.pop_idle()?;
        self.record_no_wait();
        Some(self.new_lease(connection, slots))
    }

    async fn wait_for_lease(
        self: &Arc<Self>,
        purpose: LeasePurpose,
        until: Instant,
    ) -> Result<ConnectionLease, StoreError> {
        let began = clock::now();
        let deadline = until.min(began + LEASE_WAIT_MAX);
        let waiting = GaugeGuard::new(&self.metrics, |counted| &counted.waiting);
        let slots = async {
            let share = match self.purpose_limit(purpose) {
                Some(share) => Some(Arc::clone(share).acquire_owned().await.ok()?),
                None => None,
            };
            let _queued = WaiterGuard::new(&self.waiters);
            Some((share, Arc::clone(&self.slots).acquire_owned().await.ok()?))
        };
        let slots = match tokio::time::timeout_at(deadline.into(), slots).await {
            Ok(Some(slots)) => slots,
            Ok(None) | Err(_) => return Err(StoreError::Busy),
        };
        let connection = match self.pop_idle() {
            Some(connection) => connection,
            // Boxed: this future is much larger than the others a request awaits, and seldom needed.
            None => Box::pin(self.open_connection(deadline)).await.map_err(|error| {
                StoreError::Unavailable(format!("no connection to the database: {error}"))
            })?,
        };
        drop(waiting);
        self.metrics.wait.observe_time(clock::now().saturating_duration_since(began));
        Ok(self.new_lease(connection, slots))
    }

    /// The additional limit for this purpose, beside the pool's slots.
    fn purpose_limit(&self, purpose: LeasePurpose) -> Option<&Arc<Semaphore>> {
        match purpose {
            LeasePurpose::Read => None,
            LeasePurpose::List => Some(&self.list_slots),
            LeasePurpose::Write => Some(&self.write_slots),
        }
    }

    /// Acquires slots without waiting. The semaphores are fair: requests that wait are served first.
    fn try_acquire_slots(&self, purpose: LeasePurpose) -> Option<PoolSlots> {
        let share = match self.purpose_limit(purpose) {
            Some(share) => Some(Arc::clone(share).try_acquire_owned().ok()?),
            None => None,
        };
        Some((share, Arc::clone(&self.slots).try_acquire_owned().ok()?))
    }

    /// Whether a request waits for a slot; then the pipelined connection has to be returned eventually.
    pub fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
    }

    /// Records in the metrics that a request got its connection without waiting.
    pub fn record_no_wait(&self) {
        self.metrics.wait.observe_time(Duration::ZERO);
    }

    /// Records in the metrics how many requests one statement wrote.
    pub fn record_batch_size(&self, requests: usize) {
        self.metrics.insert_batch_requests.observe(u64::try_from(requests).unwrap_or(u64::MAX));
    }

    fn new_lease(
        self: &Arc<Self>,
        connection: Box<DatabaseConnection>,
        slots: PoolSlots,
    ) -> ConnectionLease {
        ConnectionLease { connection: Some(connection), pool: Arc::clone(self), slots: Some(slots) }
    }

    /// Sends a cancel request without waiting for it. The answer on the cancelled connection shows whether
    /// it arrived.
    pub fn spawn_cancel(self: &Arc<Self>, token: &CancelToken) {
        let token = token.clone();
        let pool = Arc::clone(self);
        tokio::task::spawn_local(async move { pool.cancel_and_wait(token).await });
    }

    /// Sends a cancel request, and waits until the database has received it or does not answer.
    pub async fn cancel_and_wait(&self, token: CancelToken) {
        let _ = tokio::time::timeout(LEASE_WAIT_MAX, self.address.cancel(token)).await;
    }

    /// Whether one more idle connection is within the limit: each slot in use has a connection already.
    fn has_idle_room(&self, permit: &ConnectionPermit) -> bool {
        let own = usize::from(matches!(permit, ConnectionPermit::Places(_)));
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).len();
        idle < self.slots.available_permits() + own
    }

    /// Keeps a connection for the next request: it is intact, and in no transaction. A surplus one is closed.
    pub fn push_idle(&self, connection: Box<DatabaseConnection>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.connections_max {
            connection.is_unreplicated.store(false, Ordering::Relaxed);
            idle.push(connection);
            self.metrics.idle.increment();
        }
    }

    /// Takes an idle connection without a slot.
    pub fn pop_idle(&self) -> Option<Box<DatabaseConnection>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.primary.generation();
        // Sessions of a primary that was left are closed, also those that no request would take.
        for connection in idle.extract_if(.., |kept| kept.generation != generation) {
            self.metrics.idle.decrement();
            self.metrics.lost.add(1);
            drop(connection);
        }
        // LIFO: surplus connections stay idle, so that a proxy or the server can close them by age.
        while let Some(connection) = idle.pop() {
            self.metrics.idle.decrement();
            if connection.is_usable() {
                return Some(connection);
            }
            self.metrics.lost.add(1);
        }
        None
    }

    /// Opens a connection that does not count against the pool's slots.
    pub async fn open_connection(
        &self,
        deadline: Instant,
    ) -> Result<Box<DatabaseConnection>, ConnectError> {
        let connected = self.address.connect(&self.session, &self.primary, deadline).await?;
        let OpenConnection { client, driver, primary: session } = connected;
        let PrimarySession { generation, low_watermark } = session;
        let (epoch, primary) = (Arc::clone(&self.epoch), Arc::clone(&self.primary));
        let shared_mark = Arc::clone(&low_watermark);
        let (is_unreplicated, until_closed) = (Arc::default(), PermitUntilClosed::default());
        let noted = (Arc::clone(&is_unreplicated), Arc::clone(&until_closed));
        // Ends when the client handle is dropped and everything is answered, or with an error that the handle reports too.
        tokio::task::spawn_local(async move {
            let ended = drive_connection(driver, &noted.0).await;
            // PostgreSQL may have crashed, and then no nonce of the old epoch is accepted any more.
            *epoch.lock().unwrap_or_else(PoisonError::into_inner) = None;
            if let Err(error) = ended {
                primary.retire_low_watermark(&shared_mark);
                if is_host_gone(&error) {
                    primary.doubt();
                }
            }
            drop(noted);
        });
        self.metrics.opened.add(1);
        let open = GaugeGuard::new(&self.metrics, |counted| &counted.open);
        let cancel = Arc::new(client.cancel_token());
        let statements = Mutex::new(Cache::new(STATEMENTS_MAX));
        let list_statements = Mutex::new(Cache::new(LIST_STATEMENTS_MAX));
        Ok(Box::new(DatabaseConnection {
            client,
            cancel,
            pooling: self.session.pooling,
            statements,
            list_statements,
            large_reads: Arc::clone(&self.large_reads),
            low_watermark,
            primary: Arc::clone(&self.primary),
            generation,
            is_unreplicated,
            permit_until_closed: until_closed,
            _open: open,
        }))
    }
}

/// Polls a connection until it ends. A notice arrives before the end of its statement, so the flag is set
/// before the caller of that statement continues.
async fn drive_connection(
    mut driver: ConnectionDriver,
    unreplicated: &AtomicBool,
) -> Result<(), Error> {
    while let Some(message) = poll_fn(|context| driver.poll_message(context)).await {
        if let AsyncMessage::Notice(notice) = message?
            && is_sync_replication_warning(&notice)
        {
            unreplicated.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// A leased connection. Unless it is returned to the pool, its drop closes it, which rolls back.
pub struct ConnectionLease {
    /// `None` once it has left the lease, which ends then.
    connection: Option<Box<DatabaseConnection>>,
    pool: Arc<ConnectionPool>,
    slots: Option<PoolSlots>,
}

impl Deref for ConnectionLease {
    type Target = DatabaseConnection;

    fn deref(&self) -> &DatabaseConnection {
        self.connection.as_deref().or_bug("a lease has its connection until it ends")
    }
}

impl ConnectionLease {
    /// Sends a cancel request for the running statement without waiting for it.
    pub fn spawn_cancel(&self) {
        self.pool.spawn_cancel(&self.cancel);
    }

    /// Sends a cancel request, and waits until the database has received it or does not answer.
    pub async fn cancel_and_wait(&self) {
        self.pool.cancel_and_wait((*self.cancel).clone()).await;
    }

    /// Returns the connection to the pool: it is intact, and in no transaction.
    pub fn return_to_pool(mut self) {
        if let Some(connection) = self.connection.take_if(|kept| kept.is_usable()) {
            self.pool.push_idle(connection);
        }
    }

    /// Returns the connection to the pool, in the background, when the database has answered all that was
    /// sent on it.
    pub fn return_when_drained(mut self) {
        let Some(connection) = self.connection.take() else { return };
        let (pool, permit) = (Arc::clone(&self.pool), self.permit_while_draining());
        tokio::task::spawn_local(async move {
            // Answers arrive in order, so the answer to an empty query arrives last.
            let is_drained = connection.client.batch_execute("").await.is_ok();
            if !is_drained || !connection.is_usable() || !pool.has_idle_room(&permit) {
                pool.metrics.lost.add(1);
                return;
            }
            pool.push_idle(connection);
            drop(permit);
        });
    }

    /// The permit to hold while a connection waits for an answer that no request awaits any more.
    fn permit_while_draining(&mut self) -> ConnectionPermit {
        match Arc::clone(&self.pool.abandoned_slots).try_acquire_owned() {
            Ok(spare) => ConnectionPermit::Abandoned(spare),
            Err(_) => ConnectionPermit::Places(self.slots.take()),
        }
    }
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        self.pool.metrics.lost.add(1);
        let permit = self.permit_while_draining();
        *connection.permit_until_closed.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(permit);
    }
}
