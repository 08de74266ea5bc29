//! Registry of running servers and their models: before a start removes something from the schema, it
//! checks whether another server relies on it.
//!
//! Each server has a row, written in the transaction of its start, renewed every `RENEW_EVERY`, also while it
//! builds indexes or sweeps, and removed when it stops. A server whose row was not renewed for `LIVE_SECONDS`
//! counts as stopped. A server that was suspended for longer finds its row deleted, and checks what changed
//! in the meantime.
//! Rows are used instead of session-level locks, because behind a pooling proxy a server has no session.

use std::cell::Cell;
use std::time::Duration;

use crate::model::diff::{Difference, compare};
use crate::model::loosened::loosened_rules;
use crate::model::{self, Model};
use crate::store::driver::Driver;
use crate::store::error::{MigrationError, StatementError};
use crate::store::postgres::driver::PostgresDriver;
use crate::store::statement::Bind;
use crate::store::system_values;

/// The lifetime of a row: six renewals may fail.
const LIVE_SECONDS: i64 = 150;
pub const RENEW_EVERY: Duration = Duration::from_secs(20);
const TABLE_PRESENT: &str = "SELECT to_regclass('nouns_servers') IS NOT NULL";
const CREATE_TABLE: &str = "CREATE TABLE nouns_servers (
  id text COLLATE \"C\" NOT NULL PRIMARY KEY, model text NOT NULL, seen timestamptz NOT NULL
)";
/// Registers a server. 1: id, 2: model.
const REGISTER: &str = "INSERT INTO nouns_servers (id, model, seen) VALUES ($1, $2, clock_timestamp()) \
    ON CONFLICT (id) DO UPDATE SET seen = excluded.seen";
/// 1: id. The model is long, and known. The renewal waits for no standby: after a failover the row is a
/// little older.
const RENEW: &str = "WITH setting AS (SELECT set_config('synchronous_commit', 'local', true)) \
    UPDATE nouns_servers SET seen = clock_timestamp() FROM setting WHERE id = $1";
/// Removes a registration. 1: id.
const REMOVE: &str = "DELETE FROM nouns_servers WHERE id = $1";
/// Deletes expired registrations. 1: the lifetime of a row in seconds.
const DELETE_EXPIRED: &str =
    "DELETE FROM nouns_servers WHERE seen < clock_timestamp() - make_interval(secs => $1::bigint)";
/// 1: id, 2: model. Returns the distinct models of other servers.
const SELECT_OTHER_MODELS: &str =
    "SELECT DISTINCT model FROM nouns_servers WHERE id <> $1 AND model <> $2";
/// Whether there are other servers. 1: id, 2: the lifetime of a row in seconds.
const HAS_OTHERS: &str = "SELECT EXISTS (SELECT FROM nouns_servers WHERE id <> $1 \
    AND seen >= clock_timestamp() - make_interval(secs => $2::bigint))";
/// True for the one server that may start now. The first number is the namespace of our advisory locks.
pub const START_LOCK: &str = "pg_try_advisory_xact_lock(1313821262, 1)";
/// True for the one server that may sweep now, and the time by which it sweeps.
pub const SWEEP_LOCK: &str = "SELECT pg_try_advisory_xact_lock(1313821262, 2), now()";

/// This server's registration, from its start to its shutdown.
#[derive(Debug)]
pub struct ServerRegistration {
    id: String,
    /// Whether its row should exist.
    is_registered: Cell<bool>,
}

/// The result of a renewal.
#[derive(Debug, PartialEq, Eq)]
pub enum Renewal {
    Done,
    /// Another server is starting: to be retried.
    Delayed,
    /// The registration had expired, and the server is registered again.
    Returned {
        /// The rules of its model that others dropped in the meantime, one line each.
        lost: Vec<String>,
        /// Whether there are models that this version cannot read, which may have dropped more.
        has_unreadable: bool,
    },
}

/// Whether servers are running. Changes nothing, and needs no table. The caller holds the start lock.
pub async fn has_servers(driver: &mut PostgresDriver<'_>) -> Result<bool, StatementError> {
    if !driver.query_is_true(TABLE_PRESENT).await? {
        return Ok(false);
    }
    has_servers_beside(driver, "").await
}

async fn has_servers_beside(
    driver: &mut PostgresDriver<'_>,
    id: &str,
) -> Result<bool, StatementError> {
    let binds = [Bind::Text(id), Bind::Integer(LIVE_SECONDS)];
    Ok(driver.query_one(HAS_OTHERS, &binds, |row| row.boolean(0)).await?.flatten() == Some(true))
}

/// The models of other servers.
#[derive(Debug, Default)]
pub struct OtherModels {
    models: Vec<Model>,
    /// Whether there are others, of newer versions, that this one cannot read.
    has_unreadable: bool,
}

impl OtherModels {
    fn add(&mut self, shape: &str) {
        match model::read_shape(shape) {
            Ok(model) => self.models.push(model),
            Err(_) => self.has_unreadable = true,
        }
    }

    /// For a start, which must know what the others rely on.
    pub fn require_readable(self) -> Result<Vec<Model>, MigrationError> {
        if self.has_unreadable {
            let line = "a server of a newer version is running, whose model this one cannot read";
            return Err(MigrationError::InUse(vec![line.to_owned()]));
        }
        Ok(self.models)
    }
}

/// The parts of a server's model that a migration has changed since, one line each.
fn migrated_parts(model: &Model, stored: &Model) -> Vec<String> {
    let changes = compare(model, stored).into_iter().filter_map(|difference| match difference {
        Difference::Change(change) => Some(change.describe()),
        _ => None,
    });
    changes.collect()
}

impl ServerRegistration {
    pub fn new() -> Result<Self, getrandom::Error> {
        let id = format!("{:016x}{:016x}", getrandom::u64()?, getrandom::u64()?);
        Ok(Self { id, is_registered: Cell::new(false) })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The other models that servers run with. The caller holds the start lock, so that no server starts
    /// meanwhile.
    pub async fn other_models(
        &self,
        driver: &mut PostgresDriver<'_>,
        model: &Model,
    ) -> Result<OtherModels, MigrationError> {
        let mut others = OtherModels::default();
        if !driver.query_is_true(TABLE_PRESENT).await? {
            driver.execute(CREATE_TABLE, &[]).await?;
            return Ok(others);
        }
        driver.execute(DELETE_EXPIRED, &[Bind::Integer(LIVE_SECONDS)]).await?;
        let binds = [Bind::Text(&self.id), Bind::Text(&model.shape)];
        let shapes = driver.query(SELECT_OTHER_MODELS, &binds, |row| row.required_text(0)).await?;
        shapes.iter().for_each(|shape| others.add(shape));
        Ok(others)
    }

    /// Records whether the row exists, once the transaction that writes or removes it has ended.
    pub fn set_registered(&self, is_registered: bool) {
        self.is_registered.set(is_registered);
    }

    /// Writes the row: in the transaction of the start, and again if the row was lost.
    pub async fn register(
        &self,
        driver: &mut PostgresDriver<'_>,
        model: &Model,
    ) -> Result<(), StatementError> {
        let binds = [Bind::Text(&self.id), Bind::Text(&model.shape)];
        driver.execute(REGISTER, &binds).await.map(drop)
    }

    /// Renews the row (heartbeat) in a single-statement transaction. False: the row does not exist any more.
    pub async fn renew(&self, driver: &mut PostgresDriver<'_>) -> Result<bool, StatementError> {
        let is_there = driver.execute(RENEW, &[Bind::Text(&self.id)]).await? > 0;
        // A failed start has removed its row itself.
        Ok(is_there || !self.is_registered.get())
    }

    pub async fn has_others(
        &self,
        driver: &mut PostgresDriver<'_>,
    ) -> Result<bool, StatementError> {
        has_servers_beside(driver, &self.id).await
    }

    pub fn is_registered(&self) -> bool {
        self.is_registered.get()
    }

    /// Registers the server again and checks what others have changed meanwhile, in a transaction, which this
    /// function ends.
    pub async fn register_again(
        &self,
        driver: &mut PostgresDriver<'_>,
        model: &Model,
    ) -> Result<Renewal, MigrationError> {
        let begin = format!("SELECT {START_LOCK}, set_config('synchronous_commit', 'local', true)");
        if !driver.query_is_true(&begin).await? {
            return Ok(Renewal::Delayed);
        }
        let mut others = self.other_models(driver, model).await?;
        // A server that dropped a rule may have stopped since.
        let stored = system_values::read(driver, "model").await?;
        let mut changed = Vec::new();
        if let Some(Ok(stored)) = stored.as_deref().map(model::read_shape) {
            changed = migrated_parts(model, &stored);
        }
        stored.iter().for_each(|shape| others.add(shape));
        self.register(driver, model).await?;
        driver.commit().await?;
        let mut lost: Vec<String> =
            others.models.iter().flat_map(|other| loosened_rules(model, other)).collect();
        lost.extend(changed);
        lost.sort();
        lost.dedup();
        Ok(Renewal::Returned { lost, has_unreadable: others.has_unreadable })
    }

    pub async fn remove(&self, driver: &mut PostgresDriver<'_>) -> Result<(), StatementError> {
        driver.execute(REMOVE, &[Bind::Text(&self.id)]).await.map(drop)
    }
}
