//! `nouns move`: copies a database that no server uses to an empty one, of the same or the other engine.
//!
//! The source is only read, under the locks of a server, so that no server can start on it meanwhile. The target is one
//! transaction, or a file that gets its name at the end: a move that fails or is killed leaves it empty.

pub mod copy;
mod rows;

use tokio::runtime::{Builder, LocalOptions};

use crate::model::Model;
use crate::store::database::Database;
use crate::store::driver::Driver;
use crate::store::error::OpenError;
use crate::store::postgres::database_move as postgres;
use crate::store::sqlite::database_files::DatabaseFiles;
use crate::store::sqlite::database_move as sqlite;
use copy::{MoveError, MoveSummary, ReportMove};

/// A move that an operator asks for.
pub struct MoveRequest<'a> {
    pub source: &'a Database,
    pub target: &'a Database,
    /// For the settings of the sessions. The tables are those of the stored model.
    pub model: &'a Model,
    pub report: ReportMove<'a>,
}

pub fn move_database(request: MoveRequest<'_>) -> Result<MoveSummary, OpenError> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = runtime.map_err(|error| OpenError::new(format!("cannot start: {error}")))?;
    let (source, target) = (request.source.to_string(), request.target.to_string());
    if is_same(request.source, request.target) {
        return Err(OpenError::new(format!("{target} is the source itself; name another --to")));
    }
    let moved = runtime.block_on(async {
        match request.source {
            Database::Sqlite(path) => {
                sqlite::read_source(path, async |driver| write_to(driver, request).await).await
            }
            Database::Postgres(address) => {
                let place = (address, &request.model.server);
                postgres::read_source(place, async |driver| write_to(driver, request).await).await
            }
        }
    });
    moved.map_err(|error| error.describe(&source, &target))
}

/// Whether two databases are the same one, as far as their names tell.
fn is_same(one: &Database, other: &Database) -> bool {
    match (one, other) {
        (Database::Sqlite(one), Database::Sqlite(other)) => {
            let files = [one, other].map(|path| DatabaseFiles::find(path));
            matches!(files, [Ok(one), Ok(other)] if one.real_path == other.real_path)
        }
        (Database::Postgres(one), Database::Postgres(other)) => {
            one.to_string() == other.to_string()
        }
        (Database::Sqlite(_), Database::Postgres(_))
        | (Database::Postgres(_), Database::Sqlite(_)) => false,
    }
}

async fn write_to<S: Driver>(
    source: &mut S,
    MoveRequest { target, model, report, .. }: MoveRequest<'_>,
) -> Result<MoveSummary, MoveError> {
    match target {
        Database::Sqlite(path) => {
            sqlite::write_target(path, async |target| copy::run(source, target, report).await).await
        }
        Database::Postgres(address) => {
            let place = (address, &model.server);
            postgres::write_target(place, async |target| copy::run(source, target, report).await)
                .await
        }
    }
}
