//! The thread beside the workers: opens the database, then sweeps the change log and the kept answers, and
//! says that the server is still there.
//!
//! Of several servers one sweeps at a time.

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
use super::live_servers::LiveServer;
use super::open::{START_MAX, SWEEP_LOCK, Start, Unopened};
use super::pool::{Pool, Purpose};
use super::{Address, claims};
use crate::clock;
use crate::log::{Level, Log};
use crate::metrics::Metrics;
use crate::store::OpenError;
use crate::store::driver::{Columns, Driver, Failure};
use crate::store::ids::Ids;
use crate::store::sweep::{self, DoubtLog, SWEEP_EVERY, Step};
use crate::store::transaction::Context;

/// Between two tries to reach a database that is not there yet.
const PATIENT_PAUSE: Duration = Duration::from_secs(1);
/// How long one connection is waited for.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The end of a server does not wait longer for its row to go.
const REMOVE_MAX: Duration = Duration::from_secs(2);

/// One step of a sweep takes no longer, unless the network hangs.
const SWEEP_MAX: Duration = Duration::from_secs(3 * 60);

/// The thread's handle.
#[derive(Debug)]
pub(super) struct Keeper {
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    /// For all connections of the server.
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
    /// When it last did what it does once in a while.
    rounds: Cell<Option<Instant>>,
    doubts: DoubtLog,
}

impl Keeper {
    /// Opens the database on a thread of its own, which stays.
    pub(super) fn start(
        address: Arc<Address>,
        context: Arc<Context>,
        session: Session,
        (log, metrics): (&Log, &Arc<Metrics>),
        is_patient: bool,
    ) -> Result<Self, OpenError> {
        let shown = address.to_string();
        // Tables with much in them take longer to change than a request may.
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
            // It ended without a word: a panic, which is the caller's from here on.
            Err(_) => match thread.join() {
                Ok(()) => Err(OpenError("the start ended without a word".to_owned())),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }

    pub(super) fn stop(self) {
        // It may have ended already.
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
        let is_open = self.open(is_patient).await;
        let goes_on = is_open.is_ok();
        let _ = opened.send(is_open);
        if !goes_on {
            return;
        }
        // The log may have grown old while nobody served it.
        let mut pause = Duration::ZERO;
        let work = Rc::new(self);
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                () = tokio::time::sleep(pause) => {}
            }
            let work = Rc::clone(&work);
            // A task of its own: one that panics is not the end of all sweeps.
            let step = tokio::task::spawn_local(async move {
                work.do_round().await;
                work.sweep().await
            });
            let abort = step.abort_handle();
            // A database that hangs does not hold up the end.
            let swept = tokio::select! {
                biased;
                _ = &mut stopped => {
                    abort.abort();
                    break;
                }
                swept = tokio::time::timeout(SWEEP_MAX, step) => swept,
            };
            abort.abort();
            pause = swept.ok().and_then(Result::ok).unwrap_or(SWEEP_EVERY);
        }
        work.remove_server().await;
    }

    async fn open(&self, is_patient: bool) -> Result<(), OpenError> {
        let start = Start {
            pool: &self.pool,
            model: &self.context.model,
            pooling: self.session.pooling,
            server: &self.server,
            log: &self.log,
            shown: &self.shown,
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

    /// What is done once in a while: what fails is tried again then.
    async fn do_round(&self) {
        let now = clock::now();
        if self.rounds.get().is_some_and(|last| now < last + SWEEP_EVERY) {
            return;
        }
        self.rounds.set(Some(now));
        self.sweep_claims().await;
        self.renew_server().await;
    }

    /// Says that the server is still there.
    async fn renew_server(&self) {
        let (model, server) = (&self.context.model, &self.server);
        let renewed = self.with_driver(async |driver| server.renew(driver, model).await).await;
        match renewed {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => {
                let message = "this server was silent for so long that others took it for gone; \
                               if another model was started meanwhile, start this one again";
                self.log.event(Level::Warning, message, &[]);
            }
            Some(Err(failure)) => {
                let cause = failure.words().to_owned();
                let message = "could not tell other servers that this one is there";
                self.log.event(Level::Warning, message, &[("cause", &cause)]);
            }
        }
    }

    /// The server ends.
    async fn remove_server(&self) {
        let remove = self.with_driver(async |driver| self.server.remove(driver).await);
        // What stays counts for a while, and then no more.
        let _ = tokio::time::timeout(REMOVE_MAX, remove).await;
    }

    /// Statements that are transactions of their own; nothing when there is no connection.
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

    /// Old claims go.
    async fn sweep_claims(&self) {
        let until = clock::now() + CONNECT_MAX;
        let Ok(lease) = self.pool.lease(Purpose::Read, until).await else { return };
        let Some(connection) = lease.connection() else { return };
        let ids = Mutex::new(Ids::default());
        let mut driver = PostgresDriver::new(connection, &ids, self.session.pooling, Stage::Due);
        let statement_max = Duration::from_millis(self.session.statement_ms_max);
        // Without randomness, at the next time.
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

    /// One step of the sweep. Says how long the next one can wait.
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

    /// By the database's clock: that of one server must not decide for all of them.
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
