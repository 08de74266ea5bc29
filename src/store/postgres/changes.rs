//! Change-log reader for CLI commands, which runs beside the servers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use super::Address;
use super::connect::Session;
use super::driver::{PostgresDriver, Stage};
use super::open;
use super::pool::{Connection, Pool};
use crate::clock;
use crate::model::settings::Pooling;
use crate::store::OpenError;
use crate::store::changes;
use crate::store::ids::Ids;
use crate::store::sql::POSTGRES;
use crate::value::Change;

const READ_MAX: Duration = Duration::from_secs(30);

/// A connection that only reads, and its runtime.
pub struct Changes {
    // Dropped before the runtime that drives it.
    connection: Box<Connection>,
    runtime: LocalRuntime,
    pooling: Pooling,
    shown: String,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl Changes {
    /// `None`: the database has none of our tables.
    pub(in crate::store) fn find(
        address: &Arc<Address>,
        pooling: Pooling,
    ) -> Result<Option<Self>, OpenError> {
        let shown = address.to_string();
        let millis = u64::try_from(READ_MAX.as_millis()).unwrap_or(u64::MAX);
        let session = Session {
            pooling,
            statement_ms_max: millis,
            lock_ms_max: millis,
            idle_in_transaction_ms_max: millis,
        };
        let pool = Pool::new(Arc::clone(address), session, 1, Arc::default());
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime = runtime.map_err(|error| OpenError(format!("cannot start: {error}")))?;
        let connection = runtime.block_on(pool.connection(clock::now() + READ_MAX));
        let connection = connection.map_err(|error| OpenError(error.to_string()))?;
        if !runtime.block_on(open::has_tables(&connection, pooling, &shown))? {
            return Ok(None);
        }
        Ok(Some(Self { connection, runtime, pooling, shown }))
    }

    pub(in crate::store) fn after(&mut self, sequence: i64) -> Result<Vec<Change>, OpenError> {
        let ids = Mutex::new(Ids::default());
        let mut driver = PostgresDriver::new(&self.connection, &ids, self.pooling, Stage::None);
        let read = self.runtime.block_on(changes::read(&mut driver, &POSTGRES, sequence));
        read.map_err(|failure| {
            let shown = &self.shown;
            OpenError(format!("cannot read the change log of {shown} ({})", failure.words()))
        })
    }
}
