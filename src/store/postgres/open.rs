//! Opening the database for serving: whose it is, and its tables brought up to the model.
//!
//! All of it in one transaction under one lock, so that of several servers that start together one makes
//! the tables, and the others wait, look, and serve or refuse.

use std::sync::Mutex;

use super::claims;
use super::driver::{PostgresDriver, Stage};
use super::pool::Connection;
use crate::model::Model;
use crate::model::settings::Pooling;
use crate::store::OpenError;
use crate::store::driver::{Bind, Columns, Driver, Failure};
use crate::store::ids::Ids;
use crate::store::schema::{self, Mismatch};
use crate::store::sql::POSTGRES;

/// The form of our own tables; a larger one was written by a newer version.
const FORMAT: i64 = 1;

/// Servers that start wait for each other here. The first number is ours, for no other purpose.
const START_LOCK: &str = "SELECT pg_advisory_xact_lock(1313821262, 1)::text";
/// True for the one server that may sweep now, and the time by which it sweeps.
pub(super) const SWEEP_LOCK: &str = "SELECT pg_try_advisory_xact_lock(1313821262, 2), now()";

/// Finds our own table, and any of the tables that we would make. 1: their names, with commas.
const INSPECT: &str = "SELECT to_regclass('nouns_system') IS NOT NULL, \
    (SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class \
     WHERE relnamespace = current_schema()::regnamespace \
     AND relname = ANY (string_to_array($1, ',')))";

const HAS_TABLES: &str = "SELECT to_regclass('nouns_system') IS NOT NULL";

/// Brings the tables up to the model. It writes in any case, so that a server that cannot be written to
/// shows itself now.
pub(super) async fn bring_up(
    connection: &Connection,
    model: &Model,
    pooling: Pooling,
    shown: &str,
) -> Result<(), Unopened> {
    let ids = Mutex::new(Ids::default());
    let mut driver = PostgresDriver::new(connection, &ids, pooling, Stage::Due);
    let done = in_transaction(&mut driver, model, shown).await;
    let is_lost = driver.trouble().is_some();
    if done.is_err() {
        driver.abandon().await;
    }
    done.map_err(|error| if is_lost { Unopened::Lost(error) } else { Unopened::Refused(error) })
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

/// Why the database was not opened.
#[derive(Debug)]
pub(super) enum Unopened {
    /// The connection broke, or another transaction came in between: it may go the next time.
    Lost(OpenError),
    Refused(OpenError),
}

async fn in_transaction(
    driver: &mut PostgresDriver<'_>,
    model: &Model,
    shown: &str,
) -> Result<(), OpenError> {
    let explain = |failure: Failure| Mismatch::Failed(failure).describe(shown);
    driver.rows(START_LOCK, &[], |_| Ok(())).await.map_err(explain)?;
    match inspect(driver, model).await.map_err(explain)? {
        Found::Nothing => {
            schema::create(driver, model, &POSTGRES).await.map_err(|no| no.describe(shown))?;
            let format = FORMAT.to_string();
            let noted = schema::remember(driver, &POSTGRES, "format", &format).await;
            noted.map_err(explain)?;
        }
        Found::Strange(tables) => {
            return Err(OpenError(format!(
                "{shown} holds tables of another program ({tables}); name another --database, or a schema of its own: …?options=-c%20search_path%3DNAME"
            )));
        }
        Found::Ours => {
            let stored = schema::recall(driver, &POSTGRES, "format").await.map_err(explain)?;
            let format = stored.and_then(|text| text.parse::<i64>().ok()).unwrap_or(FORMAT);
            if format > FORMAT {
                return Err(schema::newer(shown, format, FORMAT));
            }
            schema::extend(driver, model, &POSTGRES).await.map_err(|no| no.describe(shown))?;
        }
    }
    claims::create(driver).await.map_err(explain)?;
    let now = driver.now().to_string();
    schema::remember(driver, &POSTGRES, "started_at", &now).await.map_err(explain)?;
    driver.finish(&[]).await.map_err(|stopped| explain(stopped.failure))
}

/// Whose database it is.
enum Found {
    Nothing,
    Ours,
    Strange(String),
}

async fn inspect(driver: &mut PostgresDriver<'_>, model: &Model) -> Result<Found, Failure> {
    let ours = ["nouns_system", "nouns_changes", "nouns_keys"];
    let tables = model.resources.iter().map(|resource| &*resource.table);
    let names = ours.into_iter().chain(tables).collect::<Vec<_>>().join(",");
    let read = |row: &dyn Columns| {
        let is_ours = row.boolean(0)?.unwrap_or(false);
        Ok((is_ours, row.text(1)?.map(str::to_owned)))
    };
    let found = driver.rows(INSPECT, &[Bind::Text(&names)], read).await?.pop();
    Ok(match found {
        Some((true, _)) => Found::Ours,
        Some((false, Some(tables))) => Found::Strange(tables),
        Some((false, None)) | None => Found::Nothing,
    })
}
