//! The store beside a server that may have it open: for the command line, one call after another.
//!
//! It reads and writes by the same code as a server, each row with its entry in the change log, and has
//! no threads, queue or pool. It never makes a database: that is a server's.

use std::sync::Arc;

use super::{Database, OpenError, RoleGroup, StoreError, postgres, sqlite};
use crate::model::Model;
use crate::plan::{Outcome, Read, Write};

/// A store for one caller, who waits for each answer.
#[derive(Debug)]
pub enum Beside {
    Sqlite(sqlite::Beside),
    Postgres(postgres::Beside),
}

impl Beside {
    pub fn open(database: &Database, model: &Arc<Model>) -> Result<Self, OpenError> {
        Self::find(database, model)?.ok_or_else(|| database.is_missing())
    }

    /// `None`: there is no such database, or no table in it.
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

    /// When it answers, the disk has it.
    pub fn write(&mut self, write: Write) -> Result<Outcome, StoreError> {
        match self {
            Self::Sqlite(beside) => beside.write(write),
            Self::Postgres(beside) => beside.write(&write),
        }
    }

    /// The word that the database keeps under a name.
    pub fn recall(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        match self {
            Self::Sqlite(beside) => beside.recall(name),
            Self::Postgres(beside) => beside.recall(name),
        }
    }

    /// Keeps a word unless there is one; the one that is there then.
    pub fn remember_first(&mut self, name: &str, value: &str) -> Result<String, StoreError> {
        match self {
            Self::Sqlite(beside) => beside.remember_first(name, value),
            Self::Postgres(beside) => beside.remember_first(name, value),
        }
    }

    /// The users by their roles.
    pub fn role_groups(&mut self) -> Result<Vec<RoleGroup>, StoreError> {
        match self {
            Self::Sqlite(beside) => beside.role_groups(),
            Self::Postgres(beside) => beside.role_groups(),
        }
    }

    /// Keeps a word of our own in the database.
    pub fn remember(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(beside) => beside.remember(name, value),
            Self::Postgres(beside) => beside.remember(name, value),
        }
    }
}

#[cfg(test)]
mod tests;
