//! The admin store: a second connection for CLI commands, which may run while a server has the database open.
//!
//! It uses the same code as a server, so each row is written with its change log entry; it has no threads,
//! queue or pool. It never creates a database: only a server does.

use std::sync::Arc;

use super::{Database, OpenError, RoleGroup, StoreError, postgres, sqlite};
use crate::model::Model;
use crate::plan::{Outcome, Read, Write};

/// A store for one caller, with blocking calls.
#[derive(Debug)]
pub enum Beside {
    Sqlite(sqlite::Beside),
    Postgres(postgres::Beside),
}

impl Beside {
    pub fn open(database: &Database, model: &Arc<Model>) -> Result<Self, OpenError> {
        Self::find(database, model)?.ok_or_else(|| database.is_missing())
    }

    /// `None` if there is no such database, or it has no tables.
    pub fn find(database: &Database, model: &Arc<Model>) -> Result<Option<Self>, OpenError> {
        Ok(match database {
            Database::Sqlite(path) => sqlite::Beside::find(path, model)?.map(Self::Sqlite),
            Database::Postgres(address) => {
                postgres::Beside::find(address, model)?.map(Self::Postgres)
            }
        })
    }

    pub fn read(&mut self, read: &Read) -> Result<Outcome, StoreError> {
        match self {
            Self::Sqlite(beside) => beside.read(read),
            Self::Postgres(beside) => beside.read(read),
        }
    }

    /// Returns after the commit is durable.
    pub fn write(&mut self, write: Write) -> Result<Outcome, StoreError> {
        match self {
            Self::Sqlite(beside) => beside.write(write),
            Self::Postgres(beside) => beside.write(&write),
        }
    }

    /// Reads a value of the key-value table `nouns_system`.
    pub fn recall(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        match self {
            Self::Sqlite(beside) => beside.recall(name),
            Self::Postgres(beside) => beside.recall(name),
        }
    }

    /// Writes a value unless the key exists; returns the value that is stored then.
    pub fn remember_first(&mut self, name: &str, value: &str) -> Result<String, StoreError> {
        match self {
            Self::Sqlite(beside) => beside.remember_first(name, value),
            Self::Postgres(beside) => beside.remember_first(name, value),
        }
    }

    /// Groups the users by their roles.
    pub fn role_groups(&mut self) -> Result<Vec<RoleGroup>, StoreError> {
        match self {
            Self::Sqlite(beside) => beside.role_groups(),
            Self::Postgres(beside) => beside.role_groups(),
        }
    }

    /// Writes a value into the key-value table `nouns_system`.
    pub fn remember(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(beside) => beside.remember(name, value),
            Self::Postgres(beside) => beside.remember(name, value),
        }
    }
}

#[cfg(test)]
mod tests;
