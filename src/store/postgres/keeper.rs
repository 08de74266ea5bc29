//! Maintenance thread: opens the database, then sweeps the change log and the stored idempotent responses,
//! and renews this server's registration (heartbeat).
//!
//! Of several servers one sweeps at a time. A server says that it is there by a task and, when the other one
//! is in use, a connection of their own: neither a sweep nor an index build holds that up.

use std::cell::Cell;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::connect::Session;
use super::database_clock::DatabaseClock;
use super::driver::{PostgresDriver, Stage};
use super::live_servers::{LiveServer, RENEW_EVERY, Renewal};
use super::open::{START_MAX, SWEEP_LOCK, Start, Unopened};
use super::pool::{Connection, Pool, Purpose};
use super::{Address, claims};
use crate::clock;
use crate::log::{Level, Log};
use crate::metrics::Metrics;
use crate::store::OpenError;
use crate::store::driver::{Columns, Driver, Failure};
use crate::store::ids::Ids;
use crate::store::sweep::{self, DoubtLog, SWEEP_EVERY, Step};
use crate::store::transaction::Context;

/// Delay between attempts to reach a database that is not available yet.
const PATIENT_PAUSE: Duration = Duration::from_secs(1);
/// Timeout for one connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// At shutdown, how long to wait for the removal of the server's registration.
const REMOVE_MAX: Duration = Duration::from_secs(2);
/// One renewal takes no longer; the next one has a connection of its own.
const RENEW_MAX: Duration = Duration::from_secs(15);

/// Timeout of one step of a sweep, in case the network hangs.
const SWEEP_MAX: Duration = Duration::from_secs(3 * 60);

/// Handle of the thread.
#[derive(Debug)]
pub(super) struct Keeper {
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    /// Shared by all connections of the server.
    pub(super) clock: Arc<DatabaseClock>,
}

struct Work {
    context: Arc<Context>,
    pool: Arc<Pool>,
    session: Session,
    shown: String,
    log: Log,
    metrics: Arc<Metrics>,
    server: LiveServer,
    /// When the periodic tasks last ran.
    rounds: Cell<Option<Instant>>,
    doubts: DoubtLog,
}

impl Keeper {
    /// Starts the thread, which opens the database and then stays.
    pub(super) fn start(
        address: Arc<Address>,
        context: Arc<Context>,
        session: Session,
        (log, metrics): (&Log, &Arc<Metrics>),
        is_patient: bool,
    ) -> Result<Self, OpenError> {
        let shown = address.to_string();
        // A migration of large tables takes longer than a request may.
        let millis = u64::try_from(START_MAX.as_millis()).unwrap_or(u64::MAX);
        let opening = Session { statement_ms_max: millis, lock_ms_max: millis, ..session };
        let clock = Arc::default();
        let pool = Pool::new(address, opening, 1, metrics.pool()).with_clock(&clock);
        let pool = Arc::new(pool);
        let (log, metrics) = (log.clone(), Arc::clone(metrics));
        let (rounds, doubts, server) = (Cell::new(None), DoubtLog::default(), LiveServer::new());
        let work = Work { context, pool, session, shown, log, metrics, server, rounds, doubts };
        let (opened, wait) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("keeper".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(tokio::runtime::LocalOptions::default());
            match runtime {
                Ok(runtime) => runtime.block_on(work.run(is_patient, &opened, stopped)),
                Err(error) => {
                    let error = OpenError(format!("cannot start a thread: {error}"));
                    let _ = opened.send(Err(error));
                }
            }
        });
        let thread =
            thread.map_err(|error| OpenError(format!("cannot start a thread: {error}")))?;
        match wait.recv() {
            Ok(Ok(())) => Ok(Self { thread, stop, clock }),
            Ok(Err(error)) => Err(error),
            // The thread ended without a result: it panicked, and the caller's thread resumes the panic.
            Err(_) => match thread.join() {
                Ok(()) => Err(OpenError("the start ended without a word".to_owned())),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }

    pub(super) fn stop(self) {
        // The receiver is gone if the thread has ended already.
        let _ = self.stop.send(());
        // A thread that panicked has logged it.
        let _ = self.thread.join();
    }
}

impl Work {
    async fn run(
        self,
        is_patient: bool,
        opened: &mpsc::Sender<Result<(), OpenError>>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let work = Rc::new(self);
        let renewals = tokio::task::spawn_local(Rc::clone(&work).renew_server());
        let is_open = work.open(is_patient).await;
        let goes_on = is_open.is_ok();
        let _ = opened.send(is_open);
        if goes_on {
            work.sweep_until(&mut stopped).await;
            work.server.set_registered(false);
            work.remove_server().await;
        }
        renewals.abort();
    }

    /// Sweeps until the server ends.
    async fn sweep_until(self: &Rc<Self>, stopped: &mut oneshot::Receiver<()>) {
        // The log may have grown old while nobody served it.
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                _ = &mut *stopped => break,
                () = tokio::time::sleep(pause) => {}
            }
            let work = Rc::clone(self);
            // A task of its own: one that panics is not the end of all sweeps.
            let step = tokio::task::spawn_local(async move {
                work.do_round().await;
                work.sweep().await
            });
            let abort = step.abort_handle();
            // A database that hangs does not delay the shutdown.
            let swept = tokio::select! {
                biased;
                _ = &mut *stopped => {
                    abort.abort();
                    break;
                }
                swept = tokio::time::timeout(SWEEP_MAX, step) => swept,
            };
            abort.abort();
            pause = swept.ok().and_then(Result::ok).unwrap_or(SWEEP_EVERY);
        }
    }

    async fn open(&self, is_patient: bool) -> Result<(), OpenError> {
        let start = Start {
            pool: &self.pool,
            model: &self.context.model,
            pooling: self.session.pooling,
            server: &self.server,
            log: &self.log,
            shown: &self.shown,
            is_patient,
            is_told: Cell::new(false),
        };
        let mut is_told = false;
        loop {
            let error = match start.run().await {
                Ok(()) => return Ok(()),
                Err(Unopened::Refused(error)) => return Err(error),
                Err(Unopened::Unreachable(error)) if !is_patient => {
                    return Err(OpenError(format!("{error}; with --wait it is tried again")));
                }
                Err(Unopened::Lost(error) | Unopened::Unreachable(error)) => error,
            };
            if !is_patient {
                return Err(error);
            }
            if !is_told {
                is_told = true;
                let message = "waiting for the database";
                self.log.event(Level::Warning, message, &[("cause", &error)]);
            }
            tokio::time::sleep(PATIENT_PAUSE).await;
        }
    }

    /// Runs the periodic tasks if they are due. A task that fails runs again the next time.
    async fn do_round(&self) {
        let now = clock::now();
        if self.rounds.get().is_some_and(|last| now < last + SWEEP_EVERY) {
            return;
        }
        self.rounds.set(Some(now));
        self.sweep_claims().await;
    }

    /// Says that the server is still there, from its registration to its end.
    async fn renew_server(self: Rc<Self>) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            if !self.server.is_registered() {
                continue;
            }
            let work = Rc::clone(&self);
            // A task of its own, as for the sweep.
            let renewal = tokio::task::spawn_local(async move { work.renew_once().await });
            let abort = renewal.abort_handle();
            let done = tokio::time::timeout(RENEW_MAX, renewal).await;
            abort.abort();
            let failed = |cause: &str| {
                let message = "could not tell other servers that this one is there";
                self.log.event(Level::Warning, message, &[("cause", &cause)]);
            };
            match done {
                Ok(Ok(Ok(renewal))) => self.tell_renewal(&renewal),
                Ok(Ok(Err(cause))) => failed(&cause),
                // It has panicked, and that was logged.
                Ok(Err(_)) => {}
                Err(_) => failed("the database did not answer in time"),
            }
        }
    }

    fn tell_renewal(&self, renewal: &Renewal) {
        match renewal {
            Renewal::Done | Renewal::Delayed => {}
            Renewal::Returned(lost) if lost.is_empty() => {
                let message = "this server was silent for so long that others took it for gone; it is \
                               registered again";
                self.log.event(Level::Warning, message, &[]);
            }
            Renewal::Returned(lost) => {
                let message = "this server was silent for so long that others took it for gone and gave up \
                               rules that it relies on; stop it, and start it with their model";
                self.log.event(Level::Error, message, &[("rules", &lost.join("; "))]);
            }
        }
    }

    /// Over the connection of the sweeps, or, while that is in use, over another one.
    async fn renew_once(&self) -> Result<Renewal, String> {
        if let Some(lease) = self.pool.lease_at_once(Purpose::Read)
            && let Some(connection) = lease.connection()
        {
            let renewed = self.renew_over(connection).await;
            if renewed.is_ok() {
                lease.keep();
            }
            return renewed;
        }
        let connection = self.pool.connection(clock::now() + CONNECT_MAX).await;
        let connection = connection.map_err(|error| error.to_string())?;
        self.renew_over(&connection).await
    }

    async fn renew_over(&self, connection: &Connection) -> Result<Renewal, String> {
        let ids = Mutex::new(Ids::default());
        let driver = |stage| PostgresDriver::new(connection, &ids, self.session.pooling, stage);
        let renewed = self.server.renew(&mut driver(Stage::None)).await;
        if renewed.map_err(|failure| failure.words().to_owned())? {
            return Ok(Renewal::Done);
        }
        let mut driver = driver(Stage::Due);
        let done = self.server.register_again(&mut driver, &self.context.model).await;
        if !matches!(done, Ok(Renewal::Returned(_))) && !driver.abandon().await {
            return Err("the connection was lost".to_owned());
        }
        done.map_err(|mismatch| mismatch.describe(&self.shown).to_string())
    }

    /// The server ends.
    async fn remove_server(&self) {
        let remove = self.with_driver(async |driver| self.server.remove(driver).await);
        // A row that remains expires by itself.
        let _ = tokio::time::timeout(REMOVE_MAX, remove).await;
    }

    /// Runs statements, each its own transaction; `None` without a connection.
    async fn with_driver<T>(
        &self,
        work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, Failure>,
    ) -> Option<Result<T, Failure>> {
        let lease = self.pool.lease(Purpose::Read, clock::now() + CONNECT_MAX).await.ok()?;
        let ids = Mutex::new(Ids::default());
        let connection = lease.connection()?;
        let mut driver = PostgresDriver::new(connection, &ids, self.session.pooling, Stage::None);
        let done = work(&mut driver).await;
        if done.is_ok() {
            lease.keep();
        }
        Some(done)
    }

    /// Removes expired nonce claims.
    async fn sweep_claims(&self) {
        let until = clock::now() + CONNECT_MAX;
        let Ok(lease) = self.pool.lease(Purpose::Read, until).await else { return };
        let Some(connection) = lease.connection() else { return };
        let ids = Mutex::new(Ids::default());
        let mut driver = PostgresDriver::new(connection, &ids, self.session.pooling, Stage::Due);
        let statement_max = Duration::from_millis(self.session.statement_ms_max);
        // Without randomness the next sweep tries again.
        let Ok(epoch) = getrandom::u64() else { return };
        match claims::sweep(&mut driver, statement_max, epoch).await {
            Ok(()) => lease.keep(),
            Err(failure) => {
                let cause = failure.words().to_owned();
                let message = "used nonces could not be swept";
                self.log.event(Level::Warning, message, &[("cause", &cause)]);
            }
        }
    }

    /// Runs one step of the sweep. Returns the delay until the next one.
    async fn sweep(&self) -> Duration {
        crate::fault::point("sweep");
        let failed = |cause: &dyn Debug| {
            sweep::failed(&self.log, cause);
            SWEEP_EVERY
        };
        let until = clock::now() + CONNECT_MAX;
        let lease = match self.pool.lease(Purpose::Read, until).await {
            Ok(lease) => lease,
            Err(error) => return failed(&error),
        };
        let Some(connection) = lease.connection() else { return SWEEP_EVERY };
        let ids = Mutex::new(Ids::default());
        let mut driver = PostgresDriver::new(connection, &ids, self.session.pooling, Stage::Due);
        match self.sweep_step(&mut driver).await {
            Ok(step) => {
                lease.keep();
                self.metrics.changes_swept.add(step.changes);
                self.doubts.tell(&self.log, &step);
                sweep::pause(step.changes + step.keys)
            }
            Err(failure) => failed(&failure),
        }
    }

    /// Uses the database's clock: that of one server must not decide for all of them.
    async fn sweep_step(&self, driver: &mut PostgresDriver<'_>) -> Result<Step, Failure> {
        let read = |row: &dyn Columns| Ok((row.boolean(0)? == Some(true), row.moment(1)?));
        let asked = clock::now();
        let step = match driver.rows(SWEEP_LOCK, &[], read).await?.pop() {
            Some((is_ours, Some(now))) => {
                driver.read_clock(asked, clock::now(), now);
                match is_ours {
                    true => sweep::step(driver, &self.context, now).await?,
                    false => Step::default(),
                }
            }
            _ => Step::default(),
        };
        driver.finish(&[]).await.map_err(|stopped| stopped.failure)?;
        Ok(step)
    }
}
