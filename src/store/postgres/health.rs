//! The health of a PostgreSQL server, for `nouns doctor`: its version and the settings that durability needs.

use crate::clock;
use crate::store::driver::Driver;
use crate::store::error::{InternalError, StatementError};
use crate::store::postgres::database_clock::DATABASE_MICROS;
use crate::store::postgres::driver::PostgresDriver;

/// The oldest version that the tests run with.
const VERSION_MIN: i64 = 130_000;
/// Settings without which a crash of the machine loses or damages committed data.
const DURABILITY: [&str; 2] = ["fsync", "full_page_writes"];

/// The state of a PostgreSQL server.
#[derive(Debug)]
pub struct PostgresHealth {
    /// As it is shown: `15.4`.
    pub version: String,
    pub is_supported: bool,
    /// The settings that are off and must not be.
    pub unsafe_settings: Vec<&'static str>,
    /// Connections that are left for users without special rights.
    pub connections_max: i64,
    /// How far its clock is ahead of this machine's, in microseconds, and the error of that.
    pub clock_ahead_micros: i64,
    pub clock_error_micros: i64,
}

pub async fn examine(driver: &mut PostgresDriver<'_>) -> Result<PostgresHealth, StatementError> {
    let sql = format!(
        "SELECT current_setting('server_version'), current_setting('server_version_num')::bigint, \
         current_setting('fsync'), current_setting('full_page_writes'), \
         current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint, \
         {DATABASE_MICROS}"
    );
    let before = clock::moment().micros();
    let row = driver
        .query_one(&sql, &[], |row| {
            let number = |at: usize| {
                row.integer(at)?.ok_or_else(|| InternalError(format!("setting {at} is missing")))
            };
            let is_off = |at: usize| Ok::<_, InternalError>(row.required_text(at)? == "off");
            let [fsync, page_writes] = DURABILITY;
            let unsafe_settings =
                [(2, fsync), (3, page_writes)].map(|(at, name)| Ok(is_off(at)?.then_some(name)));
            let unsafe_settings =
                unsafe_settings.into_iter().collect::<Result<Vec<_>, InternalError>>()?;
            Ok(PostgresHealth {
                version: row.required_text(0)?,
                is_supported: number(1)? >= VERSION_MIN,
                unsafe_settings: unsafe_settings.into_iter().flatten().collect(),
                connections_max: number(4)?,
                clock_ahead_micros: number(5)?,
                clock_error_micros: 0,
            })
        })
        .await?;
    let after = clock::moment().micros();
    let health =
        row.ok_or_else(|| StatementError::Internal(InternalError("no settings".into())))?;
    let error = after.saturating_sub(before) / 2;
    Ok(PostgresHealth {
        clock_ahead_micros: health.clock_ahead_micros.saturating_sub(before.saturating_add(error)),
        clock_error_micros: error,
        ..health
    })
}
