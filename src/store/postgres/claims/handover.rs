//! How a part of a nonce goes from the server that has it to itself to the others.
//!
//! Who wants it says so in a table; who has it looks there from time to time, and writes what was used.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::ours::Place;
use super::place_of;
use super::tables::{WANT, WANT_NO_MORE, WANTED};
use crate::store::StoreError;
use crate::store::driver::{Bind, Columns};
use crate::store::postgres::Inner;

/// How often a server looks for what others want of it.
const WATCH_EVERY: Duration = Duration::from_millis(100);

impl Inner {
    pub(super) async fn want(&self, place: Place, bucket: i64) -> Result<(), StoreError> {
        self.tell(WANT, place, Some(bucket)).await
    }

    pub(super) async fn want_no_more(&self, place: Place) -> Result<(), StoreError> {
        self.tell(WANT_NO_MORE, place, None).await
    }

    /// Runs a statement about a part: 1 its nonce, 2 its number, 3 what else it wants to know.
    async fn tell(&self, sql: &str, place: Place, more: Option<i64>) -> Result<(), StoreError> {
        let nonce = Uuid::from_u128(place.nonce).to_string();
        let binds = [Bind::Text(&nonce), Bind::Integer(place.part.into())];
        let binds: Vec<_> = binds.into_iter().chain(more.map(Bind::Integer)).collect();
        self.ask(sql, &binds, |_| Ok(())).await.map(|_| ())
    }

    /// Looks for what others want, as long as something was taken lately.
    pub(super) fn watch(self: &Arc<Self>) {
        if !self.claims.begin_watch() {
            return;
        }
        let inner = Arc::clone(self);
        tokio::task::spawn_local(async move {
            while inner.claims.goes_on_watching() {
                tokio::time::sleep(WATCH_EVERY).await;
                // Whoever waits for it has a nonce that is stale in the end.
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
