//! The admin store: a second connection for CLI commands, which may run while a server has the database open.
//!
//! It uses the same code as a server, so each row is written with its change log entry; it has no threads,
//! queue or pool. It never creates a database: only a server does.

use std::sync::Arc;

use crate::model::Model;
use crate::plan::{Outcome, ReadPlan, WritePlan};
use crate::store::database::Database;
use crate::store::error::{OpenError, StoreError};
use crate::store::postgres::admin::PostgresAdminStore;
use crate::store::sqlite::admin::SqliteAdminStore;
use crate::store::users::RoleGroup;

const DATABASE_ID: &str = "database_id";

/// A store for one caller, with blocking calls.
#[derive(Debug)]
pub enum AdminStore {
    Sqlite(SqliteAdminStore),
    Postgres(PostgresAdminStore),
}

impl AdminStore {
    pub fn open(database: &Database, model: &Arc<Model>) -> Result<Self, OpenError> {
        Self::find(database, model)?.ok_or_else(|| database.missing_error())
    }

    /// `None` if there is no such database, or it has no tables.
    pub fn find(database: &Database, model: &Arc<Model>) -> Result<Option<Self>, OpenError> {
        Ok(match database {
            Database::Sqlite(path) => SqliteAdminStore::find(path, model)?.map(Self::Sqlite),
            Database::Postgres(address) => {
                PostgresAdminStore::find(address, model)?.map(Self::Postgres)
            }
        })
    }

    pub fn read(&mut self, read: &ReadPlan) -> Result<Outcome, StoreError> {
        match self {
            Self::Sqlite(store) => store.read(read),
            Self::Postgres(store) => store.read(read),
        }
    }

    /// Returns after the commit is durable.
    pub fn write(&mut self, write: WritePlan) -> Result<Outcome, StoreError> {
        match self {
            Self::Sqlite(store) => store.write(write),
            Self::Postgres(store) => store.write(&write),
        }
    }

    /// Reads a value of the key-value table `nouns_system`.
    pub fn read_system_value(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        match self {
            Self::Sqlite(store) => store.read_system_value(name),
            Self::Postgres(store) => store.read_system_value(name),
        }
    }

    /// Writes a value unless the key exists; returns the value that is stored then.
    pub fn write_system_value_if_absent(
        &mut self,
        name: &str,
        value: &str,
    ) -> Result<String, StoreError> {
        match self {
            Self::Sqlite(store) => store.write_system_value_if_absent(name, value),
            Self::Postgres(store) => store.write_system_value_if_absent(name, value),
        }
    }

    /// A random id of this database, which tells it from others of the same name; created at first use.
    pub fn ensure_database_id(&mut self) -> Result<String, StoreError> {
        let random = getrandom::u64()
            .map_err(|error| StoreError::Unavailable(format!("no randomness: {error}")))?;
        self.write_system_value_if_absent(DATABASE_ID, &format!("{random:016x}"))
    }

    /// `None` before its first use.
    pub fn database_id(&mut self) -> Result<Option<String>, StoreError> {
        self.read_system_value(DATABASE_ID)
    }

    /// Groups the users by their roles.
    pub fn role_groups(&mut self) -> Result<Vec<RoleGroup>, StoreError> {
        match self {
            Self::Sqlite(store) => store.role_groups(),
            Self::Postgres(store) => store.role_groups(),
        }
    }

    /// Writes a value into the key-value table `nouns_system`.
    pub fn write_system_value(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.write_system_value(name, value),
            Self::Postgres(store) => store.write_system_value(name, value),
        }
    }
}

#[cfg(test)]
mod tests;
