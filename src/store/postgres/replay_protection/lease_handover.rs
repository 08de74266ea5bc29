//! Lease handover: how a block of nonce counts passes from the server that has leased it to the others.
//!
//! A server that wants the block inserts a request into a table; the holder polls that table, and writes
//! back the counts it has used.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::block_from_row;
use super::nonce_lease::CountBlock;
use super::tables::{DELETE_HANDOVER_REQUEST, INSERT_HANDOVER_REQUEST, SELECT_HANDOVER_REQUESTS};
use crate::store::StoreError;
use crate::store::driver::{Bind, Columns};
use crate::store::postgres::PostgresWorkerState;

/// How often the holder polls for requests.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

impl PostgresWorkerState {
    pub(super) async fn request_handover(
        &self,
        place: CountBlock,
        bucket: i64,
    ) -> Result<(), StoreError> {
        self.execute_for_block(INSERT_HANDOVER_REQUEST, place, Some(bucket)).await
    }

    pub(super) async fn withdraw_handover_request(
        &self,
        place: CountBlock,
    ) -> Result<(), StoreError> {
        self.execute_for_block(DELETE_HANDOVER_REQUEST, place, None).await
    }

    /// Runs a statement about a block: 1 its nonce, 2 its number, 3 an argument of the statement.
    async fn execute_for_block(
        &self,
        sql: &str,
        place: CountBlock,
        more: Option<i64>,
    ) -> Result<(), StoreError> {
        let nonce = Uuid::from_u128(place.nonce).to_string();
        let binds = [Bind::Text(&nonce), Bind::Integer(place.index.into())];
        let binds: Vec<_> = binds.into_iter().chain(more.map(Bind::Integer)).collect();
        self.query_with_retry(sql, &binds, |_| Ok(())).await.map(|_| ())
    }

    /// Polls for handover requests for as long as a recent lease may be valid.
    pub(super) fn start_handover_watch(self: &Arc<Self>) {
        if !self.claims.start_watch() {
            return;
        }
        let inner = Arc::clone(self);
        tokio::task::spawn_local(async move {
            while inner.claims.should_keep_watching() {
                tokio::time::sleep(WATCH_INTERVAL).await;
                // On failure, the server that waits reports the nonce as stale in the end.
                let _ = inner.hand_over_requested().await;
            }
        });
    }

    pub(super) async fn hand_over_requested(&self) -> Result<(), StoreError> {
        let read = |row: &dyn Columns| Ok(block_from_row(row)?.zip(row.integer(2)?));
        let (wanted, _) = self.query_with_retry(SELECT_HANDOVER_REQUESTS, &[], read).await?;
        for (place, bucket) in wanted.into_iter().flatten() {
            let Some(bits) = self.claims.leases.revoke(place) else { continue };
            let sql = &self.claims.statements_for(bucket)?.release_lease;
            self.execute_for_block(sql, place, Some(bits.cast_signed())).await?;
        }
        Ok(())
    }
}
