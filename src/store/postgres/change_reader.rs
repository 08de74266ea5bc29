//! Change-log reader for CLI commands, which runs beside the servers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use crate::clock;
use crate::model::settings::Pooling;
use crate::store::change_log;
use crate::store::error::OpenError;
use crate::store::postgres::connect::SessionSettings;
use crate::store::postgres::connection_url::address::PostgresUrl;
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::open;
use crate::store::postgres::pool::{ConnectionPool, DatabaseConnection};
use crate::store::sql::dialect::POSTGRES;
use crate::store::uuid_v7::UuidGenerator;
use crate::value::Change;

const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection that only reads, and its runtime.
pub struct PostgresChangeReader {
    // Dropped before the runtime that drives it.
    connection: Box<DatabaseConnection>,
    runtime: LocalRuntime,
    pooling: Pooling,
    display_url: String,
}

impl std::fmt::Debug for PostgresChangeReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresChangeReader")
            .field("display_url", &self.display_url)
            .finish_non_exhaustive()
    }
}

impl PostgresChangeReader {
    /// `None`: the database has none of our tables.
    pub fn find(address: &Arc<PostgresUrl>, pooling: Pooling) -> Result<Option<Self>, OpenError> {
        let display_url = address.to_string();
        let millis = u64::try_from(READ_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        let session = SessionSettings {
            pooling,
            statement_ms_max: millis,
            lock_ms_max: millis,
            idle_in_transaction_ms_max: millis,
        };
        let pool = ConnectionPool::new(Arc::clone(address), session, 1, Arc::default());
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime = runtime.map_err(|error| OpenError(format!("cannot start: {error}")))?;
        let connection = runtime.block_on(pool.open_connection(clock::now() + READ_TIMEOUT));
        let connection = connection.map_err(|error| OpenError(error.to_string()))?;
        if !runtime.block_on(open::has_tables(&connection, pooling, &display_url))? {
            return Ok(None);
        }
        Ok(Some(Self { connection, runtime, pooling, display_url }))
    }

    pub fn read_after(&mut self, sequence: i64) -> Result<Vec<Change>, OpenError> {
        let ids = Mutex::new(UuidGenerator::default());
        let mut driver =
            PostgresDriver::new(&self.connection, &ids, self.pooling, TransactionStage::Autocommit);
        let read = self.runtime.block_on(change_log::read_batch(&mut driver, &POSTGRES, sequence));
        read.map_err(|failure| {
            let shown = &self.display_url;
            OpenError(format!("cannot read the change log of {shown} ({})", failure.message()))
        })
    }
}
