//! Lease handover: how a block of nonce counts passes from the server that has leased it to the others.
//!
//! A server that wants the block inserts a request into a table; the holder polls that table, and writes
//! back the counts it has used.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::ours::Place;
use super::place_of;
use super::tables::{WANT, WANT_NO_MORE, WANTED};
use crate::store::StoreError;
use crate::store::driver::{Bind, Columns};
use crate::store::postgres::Inner;

/// How often the holder polls for requests.
const WATCH_EVERY: Duration = Duration::from_millis(100);

impl Inner {
    pub(super) async fn want(&self, place: Place, bucket: i64) -> Result<(), StoreError> {
        self.tell(WANT, place, Some(bucket)).await
    }

    pub(super) async fn want_no_more(&self, place: Place) -> Result<(), StoreError> {
        self.tell(WANT_NO_MORE, place, None).await
    }

    /// Runs a statement about a block: 1 its nonce, 2 its number, 3 an argument of the statement.
    async fn tell(&self, sql: &str, place: Place, more: Option<i64>) -> Result<(), StoreError> {
        let nonce = Uuid::from_u128(place.nonce).to_string();
        let binds = [Bind::Text(&nonce), Bind::Integer(place.part.into())];
        let binds: Vec<_> = binds.into_iter().chain(more.map(Bind::Integer)).collect();
        self.ask(sql, &binds, |_| Ok(())).await.map(|_| ())
    }

    /// Polls for handover requests for as long as a recent lease may be valid.
    pub(super) fn watch(self: &Arc<Self>) {
        if !self.claims.begin_watch() {
            return;
        }
        let inner = Arc::clone(self);
        tokio::task::spawn_local(async move {
            while inner.claims.goes_on_watching() {
                tokio::time::sleep(WATCH_EVERY).await;
                // On failure, the server that waits reports the nonce as stale in the end.
                let _ = inner.give_up_wanted().await;
            }
        });
    }

    pub(super) async fn give_up_wanted(&self) -> Result<(), StoreError> {
        let read = |row: &dyn Columns| Ok(place_of(row)?.zip(row.integer(2)?));
        let (wanted, _) = self.ask(WANTED, &[], read).await?;
        for (place, bucket) in wanted.into_iter().flatten() {
            let Some(bits) = self.claims.ours.give_up(place) else { continue };
            let sql = &self.claims.sql(bucket)?.give_up;
            self.tell(sql, place, Some(bits.cast_signed())).await?;
        }
        Ok(())
    }
}
