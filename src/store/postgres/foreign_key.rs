//! Foreign keys that refuse a delete although this server's model declares no such reference.
//!
//! A server with a newer model may have added a child resource or a `ref` field to the same database, and
//! an operator may have other tables that refer to ours. The lookup before a delete does not know
//! them, but PostgreSQL's error names the constraint. A constraint that the model declares is violated only
//! by a concurrent transaction, and then the write is retried.

use std::time::Instant;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::driver::{PostgresDriver, TransactionStage};
use super::pool::LeasePurpose;
use super::{PostgresWorkerState, no_connection};
use crate::model::{Model, Resource};
use crate::plan::{WriteAction, WritePlan};
use crate::store::StoreError;
use crate::store::driver::{Bind, Columns, DatabaseDriver};

/// The column of a foreign key in our schema. 1: the schema, 2: the table, 3: the constraint.
const FOREIGN_KEY_COLUMN: &str = "SELECT attname::text FROM pg_constraint \
     JOIN pg_class ON pg_class.oid = conrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace \
     JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1] \
     WHERE contype = 'f' AND nspname = current_schema() \
     AND nspname::text = $1 AND relname::text = $2 AND conname::text = $3";

/// A foreign key as an error names it. `table` is the referencing table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PostgresForeignKey {
    schema: String,
    table: String,
    constraint: String,
}

impl PostgresForeignKey {
    /// The foreign key that a statement violated.
    pub(super) fn from_error(error: &Error) -> Option<Self> {
        let error = error.as_db_error()?;
        if *error.code() != SqlState::FOREIGN_KEY_VIOLATION {
            return None;
        }
        let [schema, table, constraint] =
            [error.schema(), error.table(), error.constraint()].map(|name| name.map(str::to_owned));
        Some(Self { schema: schema?, table: table?, constraint: constraint? })
    }
}

impl PostgresWorkerState {
    /// Whether a foreign key refuses a write permanently: the write is a delete, and the model declares no
    /// such reference. If the lookup fails, the write is retried.
    pub(super) async fn is_delete_refused(
        &self,
        write: &WritePlan,
        key: &PostgresForeignKey,
        until: Instant,
    ) -> bool {
        matches!(write.action, WriteAction::Remove { .. })
            && self.is_undeclared(key, until).await.unwrap_or(false)
    }

    /// Whether the model declares no reference for a foreign key.
    async fn is_undeclared(
        &self,
        key: &PostgresForeignKey,
        until: Instant,
    ) -> Result<bool, StoreError> {
        let lease = self.pool.lease(LeasePurpose::Read, until).await?;
        let connection = lease.connection().ok_or_else(no_connection)?;
        let mut driver =
            PostgresDriver::new(connection, &self.ids, self.pooling, TransactionStage::Autocommit);
        let binds = [&key.schema, &key.table, &key.constraint].map(|name| Bind::Text(name));
        let read = |row: &dyn Columns| Ok(row.text(0)?.map(str::to_owned));
        let columns = driver.query(FOREIGN_KEY_COLUMN, &binds, read).await?;
        lease.return_to_pool();
        let column = columns.into_iter().flatten().next();
        Ok(!column
            .is_some_and(|column| declares_reference(&self.context.model, &key.table, &column)))
    }
}

fn declares_reference(model: &Model, table: &str, column: &str) -> bool {
    let refers = |resource: &Resource| {
        let mut fields = resource.fields.iter().filter(|field| field.rules.reference.is_some());
        resource.parent_key.as_deref() == Some(column) || fields.any(|field| &*field.name == column)
    };
    model.resources.iter().any(|resource| &*resource.table == table && refers(resource))
}
