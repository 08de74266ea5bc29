//! Opening the database for serving: whose it is, and its tables brought up to the model.
//!
//! What changes tables is in one transaction under one lock, so that of several servers that start together
//! one makes the tables, and the others wait, look, and serve or refuse. Indexes of tables that are in use
//! are built after it (`index_build`).
//! The one surprising thing: whoever waits for a table holds up all who come after, so no table is waited
//! for longer than `TABLE_LOCK_MS`. What does not get its locks is undone and tried again, with pauses, for
//! as long as a start may take.

use std::sync::Mutex;
use std::time::Duration;

use super::claims;
use super::connect::ConnectError;
use super::driver::{PostgresDriver, Stage};
use super::failure::Trouble;
use super::index_build::Builder;
use super::live_servers::LiveServer;
use super::pool::{Connection, Pool};
use crate::clock;
use crate::log::Log;
use crate::model::Model;
use crate::model::settings::Pooling;
use crate::store::OpenError;
use crate::store::driver::{Bind, Columns, Driver, Failure};
use crate::store::ids::Ids;
use crate::store::schema::{self, Mismatch};
use crate::store::sql::{Index, POSTGRES};
use crate::store::users::STAMP;

/// The form of our own tables; a larger one was written by a newer version.
const FORMAT: i64 = 1;

/// Servers that start wait for each other here. The first number is ours, for no other purpose.
const START_LOCK: &str = "SELECT pg_advisory_xact_lock(1313821262, 1)::text";
/// True for the one server that may sweep now, and the time by which it sweeps.
pub(super) const SWEEP_LOCK: &str = "SELECT pg_try_advisory_xact_lock(1313821262, 2), now()";

/// How long a start waits for a table while others queue behind it.
const TABLE_LOCK_MS: u32 = 200;
/// How long a start tries to get its tables.
const TRY_MAX: Duration = Duration::from_secs(20);
/// How long it waits for the lock of another server that starts.
pub(super) const START_MAX: Duration = Duration::from_secs(60);
/// How long one connection is waited for.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Between two tries: a random time up to this, less for the first ones.
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Finds our own table, and any of the tables that we would make. 1: their names, with commas.
const INSPECT: &str = "SELECT to_regclass('nouns_system') IS NOT NULL, \
    (SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class \
     WHERE relnamespace = current_schema()::regnamespace \
     AND relname = ANY (string_to_array($1, ',')))";

const HAS_TABLES: &str = "SELECT to_regclass('nouns_system') IS NOT NULL";

/// Why the database was not opened.
#[derive(Debug)]
pub(super) enum Unopened {
    /// The connection broke, or others were in the way: it may go the next time.
    Lost(OpenError),
    /// There was no connection, and there may be one the next time.
    Unreachable(OpenError),
    Refused(OpenError),
}

/// Why one try came to nothing.
#[derive(Debug)]
enum StartError {
    /// A table or the lock of starts was not to be had in time.
    Locked,
    Mismatch(Mismatch),
    Open(OpenError),
}

impl From<Mismatch> for StartError {
    fn from(mismatch: Mismatch) -> Self {
        match mismatch {
            Mismatch::Failed(Failure::Locked) => Self::Locked,
            mismatch => Self::Mismatch(mismatch),
        }
    }
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> Self {
        Mismatch::Failed(failure).into()
    }
}

/// The start of one server.
pub(super) struct Start<'a> {
    pub(super) pool: &'a Pool,
    pub(super) model: &'a Model,
    pub(super) pooling: Pooling,
    pub(super) server: &'a LiveServer,
    pub(super) log: &'a Log,
    /// The database, for messages.
    pub(super) shown: &'a str,
}

impl Start<'_> {
    /// Brings the tables up to the model. It writes in any case, so that a server that cannot be written to
    /// shows itself now.
    pub(super) async fn run(&self) -> Result<(), Unopened> {
        let until = clock::now() + TRY_MAX;
        let mut pause = PAUSE_MIN;
        let indexes = loop {
            match self.try_once().await? {
                Some(indexes) => break indexes,
                None if clock::now() >= until => return Err(Unopened::Lost(self.locked_out())),
                None => tokio::time::sleep(jittered(pause)).await,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        };
        let Self { pool, pooling, log, shown, .. } = *self;
        let built = Builder { pool, pooling, log, shown }.run(&indexes).await;
        if built.is_err() {
            self.withdraw().await;
        }
        built.map_err(Unopened::Refused)
    }

    /// The server is not there after all. What fails here is mended by time.
    async fn withdraw(&self) {
        let Ok(connection) = self.pool.connection(clock::now() + CONNECT_MAX).await else { return };
        let ids = Mutex::new(Ids::default());
        let mut driver = PostgresDriver::new(&connection, &ids, self.pooling, Stage::None);
        let _ = self.server.remove(&mut driver).await;
    }

    fn locked_out(&self) -> OpenError {
        OpenError(format!(
            "{}: cannot make its tables fit the model, because others hold locks on them, such as an export \
             or a tool, and still did after {} seconds; nothing was changed, and nobody was held up: wait \
             until they are done and start again, or start with --wait",
            self.shown,
            TRY_MAX.as_secs()
        ))
    }

    /// The indexes to build; nothing when others were in the way, and nothing was done.
    async fn try_once(&self) -> Result<Option<Vec<Index>>, Unopened> {
        let connection = self.pool.connection(clock::now() + CONNECT_MAX).await;
        let connection = connection.map_err(|error| match error {
            ConnectError::Lasting(message) => Unopened::Refused(OpenError(message)),
            ConnectError::Passing(message) => Unopened::Unreachable(OpenError(message)),
        })?;
        let ids = Mutex::new(Ids::default());
        let mut driver = PostgresDriver::new(&connection, &ids, self.pooling, Stage::Due);
        let done = self.in_transaction(&mut driver).await;
        let trouble = driver.trouble();
        let error = match done {
            Ok(indexes) => return Ok(Some(indexes)),
            Err(error) => error,
        };
        driver.abandon().await;
        match (error, trouble) {
            (StartError::Locked, _) | (_, Some(Trouble::Again)) => Ok(None),
            (StartError::Open(error), _) => Err(Unopened::Refused(error)),
            (StartError::Mismatch(mismatch), Some(Trouble::Lost)) => {
                Err(Unopened::Lost(mismatch.describe(self.shown)))
            }
            // They may stop.
            (StartError::Mismatch(mismatch @ Mismatch::InUse(_)), None) => {
                Err(Unopened::Lost(mismatch.describe(self.shown)))
            }
            (StartError::Mismatch(mismatch), None) => {
                Err(Unopened::Refused(mismatch.describe(self.shown)))
            }
        }
    }

    async fn in_transaction(
        &self,
        driver: &mut PostgresDriver<'_>,
    ) -> Result<Vec<Index>, StartError> {
        driver.rows(START_LOCK, &[], |_| Ok(())).await?;
        driver.execute(&format!("SET LOCAL lock_timeout = {TABLE_LOCK_MS}"), &[]).await?;
        let is_ours = look_whose(driver, self.model, self.shown).await?;
        let others = self.server.others(driver, self.model).await?;
        let indexes = match is_ours {
            true => schema::extend(driver, self.model, &POSTGRES, &others).await?,
            false => {
                schema::create(driver, self.model, &POSTGRES).await?;
                schema::remember(driver, &POSTGRES, "format", &FORMAT.to_string()).await?;
                Vec::new()
            }
        };
        claims::create(driver).await?;
        self.server.register(driver, self.model).await?;
        let now = driver.now().to_string();
        schema::remember(driver, &POSTGRES, "started_at", &now).await?;
        driver.finish(&[]).await.map_err(|stopped| stopped.failure)?;
        Ok(indexes)
    }
}

/// Half of it, and up to another half.
fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    let millis = u64::try_from(half.as_millis()).unwrap_or(1).max(1);
    half + Duration::from_millis(getrandom::u64().unwrap_or(0) % millis)
}

/// Whether the database has our own table. Nothing is locked for it.
pub(super) async fn has_tables(
    connection: &Connection,
    pooling: Pooling,
    shown: &str,
) -> Result<bool, OpenError> {
    let ids = Mutex::new(Ids::default());
    let mut driver = PostgresDriver::new(connection, &ids, pooling, Stage::None);
    let found = driver.rows(HAS_TABLES, &[], |row| row.boolean(0)).await;
    let found = found.map_err(|failure| Mismatch::Failed(failure).describe(shown))?;
    Ok(found.first() == Some(&Some(true)))
}

/// For a command beside the servers, where our own table is there: looks that those it needs are, and
/// changes nothing. The model may be another one than that of the servers: the users are in none.
pub(super) async fn check(
    connection: &Connection,
    pooling: Pooling,
    shown: &str,
) -> Result<(), OpenError> {
    let ids = Mutex::new(Ids::default());
    let mut driver = PostgresDriver::new(connection, &ids, pooling, Stage::None);
    let explain = |failure: Failure| Mismatch::Failed(failure).describe(shown);
    if let Some(newer) = newer_format(&mut driver, shown).await.map_err(explain)? {
        return Err(newer);
    }
    let stamp = schema::recall(&mut driver, &POSTGRES, STAMP).await.map_err(explain)?;
    stamp.map(drop).ok_or_else(|| schema::without_users(shown))
}

/// Why what was written by a newer version is left alone.
async fn newer_format(
    driver: &mut PostgresDriver<'_>,
    shown: &str,
) -> Result<Option<OpenError>, Failure> {
    let stored = schema::recall(driver, &POSTGRES, "format").await?;
    let format = stored.and_then(|text| text.parse::<i64>().ok()).unwrap_or(FORMAT);
    Ok((format > FORMAT).then(|| schema::newer(shown, format, FORMAT)))
}

/// Whose database it is: false when it holds nothing yet, and refused when it is not for us.
async fn look_whose(
    driver: &mut PostgresDriver<'_>,
    model: &Model,
    shown: &str,
) -> Result<bool, StartError> {
    let ours = ["nouns_system", "nouns_changes", "nouns_keys"];
    let tables = model.resources.iter().map(|resource| &*resource.table);
    let names = ours.into_iter().chain(tables).collect::<Vec<_>>().join(",");
    let read = |row: &dyn Columns| {
        let is_ours = row.boolean(0)?.unwrap_or(false);
        Ok((is_ours, row.text(1)?.map(str::to_owned)))
    };
    match driver.rows(INSPECT, &[Bind::Text(&names)], read).await?.pop() {
        Some((true, _)) => {}
        Some((false, Some(tables))) => {
            return Err(StartError::Open(OpenError(format!(
                "{shown} holds tables of another program ({tables}); name another --database, or a schema of its own: …?options=-c%20search_path%3DNAME"
            ))));
        }
        Some((false, None)) | None => return Ok(false),
    }
    newer_format(driver, shown).await?.map_or(Ok(true), |newer| Err(StartError::Open(newer)))
}
