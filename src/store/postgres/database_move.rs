//! `nouns move` on PostgreSQL: the transactions that read one database and write the other, each under the lock of
//! starts.

use std::sync::Arc;
use std::time::Duration;

use crate::model::settings::ServerTable;
use crate::store::database::Database;
use crate::store::database_move::copy::{MoveError, not_empty_message};
use crate::store::driver::Driver as _;
use crate::store::error::StatementError;
use crate::store::postgres::connection_url::address::PostgresUrl;
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::open::{self, FORMAT};
use crate::store::postgres::server_registry::{START_LOCK, has_servers};
use crate::store::system_values;

/// How long a move waits for the lock of a table, such as one that a command or another program holds.
const TABLE_LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// Tables and views of the schema, except those of extensions.
const RELATIONS: &str = "SELECT relname::text FROM pg_class \
     WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f') \
     AND NOT EXISTS (SELECT 1 FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e') \
     ORDER BY relname COLLATE \"C\"";

/// The address of a database, and the settings of the sessions.
pub type DatabasePlace<'a> = (&'a Arc<PostgresUrl>, &'a ServerTable);

/// Reads a database that no server uses.
pub async fn read_source<T>(
    place: DatabasePlace<'_>,
    work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, MoveError>,
) -> Result<T, MoveError> {
    let shown = place.0.to_string();
    let connection = open::connect_once(place.0, place.1).await?;
    if !open::has_tables(&connection, &shown).await? {
        return Err(Database::Postgres(Arc::clone(place.0)).missing_error().into());
    }
    open::check_admin_tables(&connection, &shown).await?;
    let mut driver = PostgresDriver::new(&connection, TransactionStage::BeginPending);
    let done = read_locked(&mut driver, &shown, work).await;
    // Nothing was written; closing the connection ends the transaction too.
    driver.rollback_uncommitted().await;
    done
}

async fn read_locked<T>(
    driver: &mut PostgresDriver<'_>,
    shown: &str,
    work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, MoveError>,
) -> Result<T, MoveError> {
    if !begin(driver).await.map_err(MoveError::Source)? {
        return Err(MoveError::Refused(format!(
            "a server is starting on {shown}, or another command has locked it; try again when it has ended"
        )));
    }
    if has_servers(driver).await.map_err(MoveError::Source)? {
        return Err(MoveError::Refused(format!(
            "servers are running on {shown}; stop them first, and move again (one that was killed counts for some minutes)"
        )));
    }
    work(driver).await
}

/// Writes an empty database, in one transaction.
pub async fn write_target<T>(
    place: DatabasePlace<'_>,
    work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, MoveError>,
) -> Result<T, MoveError> {
    let connection = open::connect_once(place.0, place.1)
        .await
        .map_err(|error| MoveError::about_target(&error))?;
    let mut driver = PostgresDriver::new(&connection, TransactionStage::BeginPending);
    let done = write_locked(&mut driver, &place.0.to_string(), work).await;
    if done.is_err() {
        driver.rollback_uncommitted().await;
    }
    done
}

async fn write_locked<T>(
    driver: &mut PostgresDriver<'_>,
    shown: &str,
    work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, MoveError>,
) -> Result<T, MoveError> {
    if !begin(driver).await.map_err(MoveError::Target)? {
        return Err(MoveError::Refused(format!(
            "a server is starting on {shown}, or another command has locked it, or it is a schema of the source's own \
             database, which cannot be the target; try again when it has ended, or name another --to"
        )));
    }
    let relations = driver.query(RELATIONS, &[], |row| row.required_text(0)).await;
    let relations = relations.map_err(MoveError::Target)?;
    if !relations.is_empty() {
        return Err(MoveError::Refused(not_empty_message(shown, &relations)));
    }
    let done = work(driver).await?;
    let format = FORMAT.to_string();
    system_values::write(driver, "format", &format).await.map_err(MoveError::Target)?;
    crate::fault::point("move");
    driver.commit().await.map_err(|failure| match failure {
        StatementError::Storage(cause) => MoveError::CommitUnknown(cause),
        failure => MoveError::Target(failure),
    })?;
    crate::fault::point("move");
    Ok(done)
}

/// Begins a transaction under the lock of starts; false if another session has it.
async fn begin(driver: &mut PostgresDriver<'_>) -> Result<bool, StatementError> {
    let lock_ms = TABLE_LOCK_TIMEOUT.as_millis();
    let begin = format!(
        "SELECT {START_LOCK}, set_config('lock_timeout', '{lock_ms}', true), \
         set_config('statement_timeout', '0', true), \
         set_config('idle_in_transaction_session_timeout', '0', true)"
    );
    driver.query_is_true(&begin).await
}
