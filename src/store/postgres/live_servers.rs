//! Which servers run on the database, and with which model: a start asks before it takes something away
//! that another server relies on.
//!
//! Each server has a row, written in the transaction of its start, renewed once a minute by the keeper, and
//! removed when it stops. One whose row was not renewed for `LIVE_SECONDS` counts as gone.
//! Rows in place of locks of a session, because behind a pooling proxy a server has no session.

use super::driver::PostgresDriver;
use crate::model::{self, Model};
use crate::store::driver::{Bind, Columns, Driver, Failure};
use crate::store::schema::Mismatch;

/// Two renewals may fail.
const LIVE_SECONDS: i64 = 150;

const PRESENT: &str = "SELECT to_regclass('nouns_servers') IS NOT NULL";
const CREATE: &str = "CREATE TABLE nouns_servers (
  id text COLLATE \"C\" NOT NULL PRIMARY KEY, model text NOT NULL, seen timestamptz NOT NULL
)";
/// 1: id, 2: model.
const REGISTER: &str = "INSERT INTO nouns_servers (id, model, seen) VALUES ($1, $2, clock_timestamp()) \
    ON CONFLICT (id) DO UPDATE SET seen = excluded.seen";
/// 1: id. The model is long, and known.
const RENEW: &str = "UPDATE nouns_servers SET seen = clock_timestamp() WHERE id = $1";
/// 1: id.
const REMOVE: &str = "DELETE FROM nouns_servers WHERE id = $1";
/// 1: for how many seconds a row counts.
const FORGET: &str =
    "DELETE FROM nouns_servers WHERE seen < clock_timestamp() - make_interval(secs => $1::bigint)";
/// 1: id, 2: model. Gives the models of others, each once.
const OTHERS: &str = "SELECT DISTINCT model FROM nouns_servers WHERE id <> $1 AND model <> $2";

/// One server, from its start to its end.
#[derive(Debug)]
pub(super) struct LiveServer {
    id: String,
}

impl LiveServer {
    pub(super) fn new() -> Self {
        // Without randomness nothing else works either.
        let number = || getrandom::u64().unwrap_or(0);
        Self { id: format!("{:016x}{:016x}", number(), number()) }
    }

    /// The other models that servers run with. Called under the lock of starts, so that none comes
    /// meanwhile.
    pub(super) async fn others(
        &self,
        driver: &mut PostgresDriver<'_>,
        model: &Model,
    ) -> Result<Vec<Model>, Mismatch> {
        let present = driver.rows(PRESENT, &[], |row| row.boolean(0)).await?;
        if present.first() != Some(&Some(true)) {
            driver.execute(CREATE, &[]).await?;
            return Ok(Vec::new());
        }
        driver.execute(FORGET, &[Bind::Integer(LIVE_SECONDS)]).await?;
        let binds = [Bind::Text(&self.id), Bind::Text(&model.shape)];
        let read = |row: &dyn Columns| Ok(row.text(0)?.unwrap_or("").to_owned());
        let shapes = driver.rows(OTHERS, &binds, read).await?;
        let models = shapes.iter().map(|shape| model::read_shape(shape));
        models.collect::<Result<_, _>>().map_err(|_| {
            let line = "a server of a newer version is running, whose model this one cannot read";
            Mismatch::InUse(vec![line.to_owned()])
        })
    }

    /// In the transaction of the start, and again where the row was lost.
    pub(super) async fn register(
        &self,
        driver: &mut PostgresDriver<'_>,
        model: &Model,
    ) -> Result<(), Failure> {
        let binds = [Bind::Text(&self.id), Bind::Text(&model.shape)];
        driver.execute(REGISTER, &binds).await.map(drop)
    }

    /// Says that the server is still there. False: it had been given up for gone.
    pub(super) async fn renew(
        &self,
        driver: &mut PostgresDriver<'_>,
        model: &Model,
    ) -> Result<bool, Failure> {
        if driver.execute(RENEW, &[Bind::Text(&self.id)]).await? > 0 {
            return Ok(true);
        }
        self.register(driver, model).await?;
        Ok(false)
    }

    pub(super) async fn remove(&self, driver: &mut PostgresDriver<'_>) -> Result<(), Failure> {
        driver.execute(REMOVE, &[Bind::Text(&self.id)]).await.map(drop)
    }
}
