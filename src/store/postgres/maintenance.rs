//! Maintenance thread: opens the database, then sweeps the change log and the stored idempotent responses,
//! and renews this server's registration (heartbeat).
//!
//! Of several servers one sweeps at a time. The heartbeat runs in a separate task and, while the sweep uses
//! its connection, over a separate connection: neither a sweep nor an index build delays it.

use std::cell::Cell;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use crate::clock;
use crate::log::{Level, Logger};
use crate::metrics::Metrics;
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{OpenError, StatementError, StoreError};
use crate::store::postgres::commit_wait::{CONNECT_TIMEOUT, CommitGuard, StartFailure};
use crate::store::postgres::connect::SessionSettings;
use crate::store::postgres::connection_url::address::PostgresUrl;
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::notifications::ChangeNotifications;
use crate::store::postgres::open::{START_LOCK_TIMEOUT, StartupMigration};
use crate::store::postgres::pool::{ConnectionPool, DatabaseConnection, LeasePurpose};
use crate::store::postgres::primary::PrimaryState;
use crate::store::postgres::replay_protection::tables;
use crate::store::postgres::server_registry::{
    RENEW_EVERY, Renewal, SWEEP_LOCK, ServerRegistration,
};
use crate::store::retention::{self, ClockDoubtLog, SWEEP_EVERY, SweepResult};
use crate::store::statement::Columns;

/// Delay between attempts to reach a database that is not available yet.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// The timeout of a search for the primary.
const PRIMARY_CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// At shutdown, how long to wait for the removal of the server's registration. One that remains keeps servers with
/// other models from starting for minutes, so a slow database gets some time.
const DEREGISTER_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of one renewal (heartbeat); the next one opens a new connection.
const RENEW_MAX: Duration = Duration::from_secs(15);

/// Timeout of one step of a sweep, in case the network hangs.
const SWEEP_STEP_TIMEOUT: Duration = Duration::from_secs(3 * 60);

/// Handle of the thread.
#[derive(Debug)]
pub struct MaintenanceThread {
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    /// Shared by all connections of the server.
    pub primary: Arc<PrimaryState>,
}

struct MaintenanceTask {
    address: Arc<PostgresUrl>,
    primary: Arc<PrimaryState>,
    context: Arc<StoreContext>,
    pool: Arc<ConnectionPool>,
    session: SessionSettings,
    display_url: String,
    log: Logger,
    metrics: Arc<Metrics>,
    server: ServerRegistration,
    /// Whether there are other servers; checked at the start and at each renewal.
    has_peers: watch::Sender<bool>,
    /// When the periodic tasks last ran.
    last_round: Cell<Option<Instant>>,
    doubts: ClockDoubtLog,
}

impl MaintenanceThread {
    /// Starts the thread, which opens the database and then runs until the server ends.
    pub fn start(
        address: Arc<PostgresUrl>,
        context: Arc<StoreContext>,
        session: SessionSettings,
        (log, metrics): (&Logger, &Arc<Metrics>),
        is_patient: bool,
    ) -> Result<Self, OpenError> {
        let display_url = address.to_string();
        // A migration of large tables takes longer than a request may.
        let millis = u64::try_from(START_LOCK_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        let opening = SessionSettings { statement_ms_max: millis, lock_ms_max: millis, ..session };
        let primary: Arc<PrimaryState> = Arc::default();
        let pool = ConnectionPool::new(Arc::clone(&address), opening, 1, metrics.pool());
        let pool = pool.with_primary(&primary);
        let pool = Arc::new(pool);
        let (log, metrics) = (log.clone(), Arc::clone(metrics));
        let server = ServerRegistration::new().map_err(|error| {
            OpenError::new(format!("the system's random number generator failed: {error}"))
        })?;
        let work = MaintenanceTask {
            address,
            primary: Arc::clone(&primary),
            context,
            pool,
            session,
            display_url,
            log,
            metrics,
            server,
            has_peers: watch::Sender::new(false),
            last_round: Cell::new(None),
            doubts: ClockDoubtLog::default(),
        };
        let (opened, wait) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("maintenance".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(tokio::runtime::LocalOptions::default());
            match runtime {
                Ok(runtime) => runtime.block_on(work.run(is_patient, &opened, stopped)),
                Err(error) => {
                    let error = OpenError::new(format!("cannot start a thread: {error}"));
                    let _ = opened.send(Err(error));
                }
            }
        });
        let thread =
            thread.map_err(|error| OpenError::new(format!("cannot start a thread: {error}")))?;
        match wait.recv() {
            Ok(Ok(())) => Ok(Self { thread, stop, primary }),
            Ok(Err(error)) => Err(error),
            // The thread ended without a result: it panicked, and the caller's thread resumes the panic.
            Err(_) => match thread.join() {
                Ok(()) => Err(OpenError::new(
                    "the maintenance thread ended during startup without a result".to_owned(),
                )),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }

    pub fn stop(self) {
        // The receiver is gone if the thread has ended already.
        let _ = self.stop.send(());
        // A thread that panicked has logged it.
        let _ = self.thread.join();
    }
}

impl MaintenanceTask {
    async fn run(
        self,
        is_patient: bool,
        opened: &mpsc::Sender<Result<(), OpenError>>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let work = Rc::new(self);
        let renewals = tokio::task::spawn_local(Rc::clone(&work).renew_registration());
        let is_open = work.open(is_patient).await;
        let goes_on = is_open.is_ok();
        let _ = opened.send(is_open);
        if goes_on {
            let notifications = tokio::task::spawn_local(Rc::clone(&work).exchange_notifications());
            let primary_checks = tokio::task::spawn_local(Rc::clone(&work).check_doubted_primary());
            work.sweep_until(&mut stopped).await;
            notifications.abort();
            primary_checks.abort();
            work.server.set_registered(false);
            work.remove_registration().await;
        }
        renewals.abort();
    }

    /// Opens a connection whenever the primary is doubted, which leaves the former one if there is another, until the
    /// server ends.
    async fn check_doubted_primary(self: Rc<Self>) {
        loop {
            self.primary.doubted().await;
            loop {
                let deadline = clock::now() + PRIMARY_CHECK_TIMEOUT;
                let is_found =
                    self.address.connect(&self.session, &self.primary, deadline).await.is_ok();
                self.primary.record_search(is_found);
                // Also after a success: a slow statement doubts the primary too.
                tokio::time::sleep(RECONNECT_INTERVAL).await;
                if is_found {
                    break;
                }
            }
        }
    }

    /// Tells other servers that the change log has grown, and is told by them, until the server ends.
    async fn exchange_notifications(self: Rc<Self>) {
        let notifications = ChangeNotifications {
            address: Arc::clone(&self.address),
            session: self.session,
            primary: Arc::clone(&self.primary),
            hint: Arc::clone(&self.context.change_hint),
            log: self.log.clone(),
            server_id: self.server.id().to_owned(),
            has_peers: self.has_peers.subscribe(),
        };
        self.check_peers().await;
        notifications.run().await;
    }

    /// Sweeps until the server ends.
    async fn sweep_until(self: &Rc<Self>, stopped: &mut oneshot::Receiver<()>) {
        // Entries may have expired while no server was running.
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                _ = &mut *stopped => break,
                () = tokio::time::sleep(pause) => {}
            }
            let work = Rc::clone(self);
            // Runs each step in a separate task, so that a panic in one does not end the sweeps.
            let step = tokio::task::spawn_local(async move {
                work.run_periodic_tasks().await;
                work.sweep_change_log().await
            });
            let abort = step.abort_handle();
            // A database that hangs does not delay the shutdown.
            let swept = tokio::select! {
                biased;
                _ = &mut *stopped => {
                    abort.abort();
                    break;
                }
                swept = tokio::time::timeout(SWEEP_STEP_TIMEOUT, step) => swept,
            };
            abort.abort();
            pause = swept.ok().and_then(Result::ok).unwrap_or(SWEEP_EVERY);
        }
    }

    async fn open(&self, is_patient: bool) -> Result<(), OpenError> {
        let commits = CommitGuard {
            pool: &self.pool,
            log: &self.log,
            display_url: &self.display_url,
            is_patient,
            has_reported_wait: Cell::new(false),
        };
        let start = StartupMigration { model: &self.context.model, server: &self.server, commits };
        let mut has_reported_wait = false;
        loop {
            let error = match start.run().await {
                Ok(()) => return Ok(()),
                Err(StartFailure::Refused(error)) => return Err(error),
                Err(StartFailure::Unreachable(error)) if !is_patient => {
                    return Err(OpenError::new(format!("{error}; start with --wait to retry")));
                }
                Err(StartFailure::Retryable(error) | StartFailure::Unreachable(error)) => error,
            };
            if !is_patient {
                return Err(error);
            }
            if !has_reported_wait {
                has_reported_wait = true;
                let message = "waiting for the database";
                self.log.event(Level::Warning, message, &[("cause", &error)]);
            }
            tokio::time::sleep(RECONNECT_INTERVAL).await;
        }
    }

    /// Runs the periodic tasks if they are due. A task that fails runs again the next time.
    async fn run_periodic_tasks(&self) {
        let now = clock::now();
        if self.last_round.get().is_some_and(|last| now < last + SWEEP_EVERY) {
            return;
        }
        self.last_round.set(Some(now));
        self.sweep_claims().await;
    }

    /// Renews the registration (heartbeat) until the server ends.
    async fn renew_registration(self: Rc<Self>) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            if !self.server.is_registered() {
                continue;
            }
            let work = Rc::clone(&self);
            // Runs in a separate task, as the sweep does.
            let renewal = tokio::task::spawn_local(async move { work.renew_once().await });
            let abort = renewal.abort_handle();
            let done = tokio::time::timeout(RENEW_MAX, renewal).await;
            abort.abort();
            let failed = |cause: &str| {
                self.primary.doubt();
                let message = "could not renew the registration of this server";
                self.log.event(Level::Warning, message, &[("cause", &cause)]);
            };
            match done {
                Ok(Ok(Ok(renewal))) => self.tell_renewal(&renewal),
                Ok(Ok(Err(cause))) => failed(&cause),
                // The task has panicked, which was logged.
                Ok(Err(_)) => {}
                Err(_) => failed("the database did not answer in time"),
            }
        }
    }

    fn tell_renewal(&self, renewal: &Renewal) {
        const EXPIRED: &str =
            "the registration of this server had expired, so other servers counted it as stopped";
        let Renewal::Returned { lost, has_unreadable } = renewal else { return };
        let (level, rest) = match (lost.is_empty(), has_unreadable) {
            (true, false) => (Level::Warning, "; it is registered again"),
            (true, true) => (
                Level::Error,
                "; it is registered again, but some of them are of a newer version, whose model it cannot read, so \
                 it cannot tell whether they gave up rules that it relies on; replace it by a server of that version",
            ),
            (false, true) => (
                Level::Error,
                " and gave up rules that it relies on; some of them are of a newer version, whose model it cannot \
                 read; replace it by a server of that version",
            ),
            (false, false) => (
                Level::Error,
                " and gave up rules that it relies on; stop it, and start it with their model",
            ),
        };
        let rules = lost.join("; ");
        let fields: &[(&str, &dyn Display)] = &[("rules", &rules)];
        let fields = if lost.is_empty() { &[] } else { fields };
        self.log.event(level, &format!("{EXPIRED}{rest}"), fields);
    }

    /// Renews over the connection of the sweeps, or, while that is in use, over another one.
    async fn renew_once(&self) -> Result<Renewal, String> {
        if let Some(lease) = self.pool.try_lease(LeasePurpose::Read) {
            let renewed = self.renew_over(&lease).await;
            if renewed.is_ok() {
                lease.return_to_pool();
            }
            return renewed;
        }
        let connection = self.pool.open_connection(clock::now() + CONNECT_TIMEOUT).await;
        let connection = connection.map_err(|error| error.to_string())?;
        self.renew_over(&connection).await
    }

    async fn renew_over(&self, connection: &DatabaseConnection) -> Result<Renewal, String> {
        let driver = |stage| PostgresDriver::new(connection, stage);
        let renewed = self.server.renew(&mut driver(TransactionStage::Autocommit)).await;
        if renewed.map_err(|failure| failure.message().to_owned())? {
            let has_peers = self.server.has_others(&mut driver(TransactionStage::Autocommit)).await;
            self.has_peers.send_replace(has_peers.map_err(|failure| failure.message().to_owned())?);
            return Ok(Renewal::Done);
        }
        let mut driver = driver(TransactionStage::BeginPending);
        let done = self.server.register_again(&mut driver, &self.context.model).await;
        if !matches!(done, Ok(Renewal::Returned { .. })) && !driver.rollback_uncommitted().await {
            return Err("the connection was lost".to_owned());
        }
        done.map_err(|mismatch| mismatch.describe(&self.display_url).to_string())
    }

    /// Looks for other servers at the start.
    async fn check_peers(&self) {
        let check = async |driver: &mut PostgresDriver<'_>| self.server.has_others(driver).await;
        let found = self.with_driver(TransactionStage::Autocommit, check).await;
        // If in doubt, there are others.
        self.has_peers.send_replace(!matches!(found, Ok(Ok(false))));
    }

    /// Removes the registration when the server ends.
    async fn remove_registration(&self) {
        let remove = async |driver: &mut PostgresDriver<'_>| self.server.remove(driver).await;
        let remove = self.with_driver(TransactionStage::Autocommit, remove);
        // A row that remains expires by itself.
        let _ = tokio::time::timeout(DEREGISTER_TIMEOUT, remove).await;
    }

    /// Runs statements; `Err` without a connection. One on which they failed is closed.
    async fn with_driver<T>(
        &self,
        stage: TransactionStage,
        work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, StatementError>,
    ) -> Result<Result<T, StatementError>, StoreError> {
        let lease = self.pool.lease(LeasePurpose::Read, clock::now() + CONNECT_TIMEOUT).await?;
        let done = work(&mut PostgresDriver::new(&lease, stage)).await;
        if done.is_ok() {
            lease.return_to_pool();
        }
        Ok(done)
    }

    /// Removes expired nonce claims.
    async fn sweep_claims(&self) {
        let statement_max = Duration::from_millis(self.session.statement_ms_max);
        // Without randomness the next sweep tries again.
        let Ok(epoch) = getrandom::u64() else { return };
        let sweep = async |driver: &mut PostgresDriver<'_>| {
            tables::sweep_tables(driver, statement_max, epoch).await
        };
        if let Ok(Err(failure)) = self.with_driver(TransactionStage::BeginPending, sweep).await {
            let cause = failure.message().to_owned();
            let message = "could not sweep expired nonce claims";
            self.log.event(Level::Warning, message, &[("cause", &cause)]);
        }
    }

    /// Runs one step of the sweep. Returns the delay until the next one.
    async fn sweep_change_log(&self) -> Duration {
        crate::fault::point("sweep");
        let sweep = async |driver: &mut PostgresDriver<'_>| self.sweep_step(driver).await;
        let (log, metrics, doubts) = (&self.log, &self.metrics, &self.doubts);
        match self.with_driver(TransactionStage::BeginPending, sweep).await {
            Ok(swept) => retention::report_batch(swept, log, metrics, doubts),
            Err(error) => retention::report_batch(Err(error), log, metrics, doubts),
        }
    }

    /// Uses the database's clock: that of one server must not decide for all of them.
    async fn sweep_step(
        &self,
        driver: &mut PostgresDriver<'_>,
    ) -> Result<SweepResult, StatementError> {
        let read = |row: &dyn Columns| Ok((row.boolean(0)? == Some(true), row.moment(1)?));
        let asked = clock::now();
        let step = match driver.query_one(SWEEP_LOCK, &[], read).await? {
            Some((is_ours, Some(now))) => {
                driver.record_clock(asked, clock::now(), now);
                match is_ours {
                    true => retention::sweep_batch(driver, &self.context, now).await?,
                    false => SweepResult::default(),
                }
            }
            _ => SweepResult::default(),
        };
        driver.commit().await?;
        Ok(step)
    }
}
