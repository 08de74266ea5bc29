//! Tables in memory: whether the engine takes what a model asks for. For tests and fuzzing alone.

use rusqlite::Connection;

use super::driver::SqliteDriver;
use crate::model::Model;
use crate::store::driver::at_once;
use crate::store::ids::Ids;
use crate::store::schema::{self, Mismatch};
use crate::store::sql::{SQLITE, Sql};

/// Makes the tables of one model and brings them up to another. False when that is refused.
/// Then has every statement of the model that is served prepared.
pub(in crate::store) fn rehearse(before: &Model, after: &Model) -> Result<bool, String> {
    let failed = |error: rusqlite::Error| error.to_string();
    let connection = Connection::open_in_memory().map_err(failed)?;
    super::open::prepare(&connection, 1_000).map_err(failed)?;
    let ids = Ids::default();
    let mut driver = SqliteDriver { connection: &connection, ids: &ids };
    connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    let made = at_once(schema::create(&mut driver, before, &SQLITE));
    if !matches!(made, Some(Ok(()))) {
        return Err(format!("{made:?}"));
    }
    let is_applied = match at_once(schema::extend(&mut driver, after, &SQLITE)) {
        Some(Ok(())) => true,
        Some(Err(Mismatch::Refused(_))) => false,
        other => return Err(format!("{other:?}")),
    };
    connection.execute_batch("COMMIT").map_err(failed)?;
    let served = if is_applied { after } else { before };
    for sql in Sql::new(served, &SQLITE).texts(served) {
        connection.prepare(&sql).map_err(failed)?;
    }
    Ok(is_applied)
}
