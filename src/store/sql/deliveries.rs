//! Statements of the delivery queue of webhooks.
//!
//! A row of `nouns_delivery_queue` is pending if it is due at some time (`due`) or waits for an earlier pending row of
//! the same item (`waiting`). A claim is a token, and `due` is then the end of the lease. Rows that are neither hold the
//! body of a delivery that was delivered or is dead.

use crate::model::StorageClass;
use crate::plan::PENDING_COUNTED_MAX;
use crate::store::sql::dialect::Dialect;

const IS_PENDING: &str = "(due IS NOT NULL OR waiting)";

/// The position and the queue of each webhook.
pub fn queues() -> String {
    format!(
        "SELECT w.id, p.position, p.active, \
         (SELECT min(q.due) FROM nouns_delivery_queue q WHERE q.webhook_id = w.id AND q.due IS NOT NULL), \
         (SELECT count(*) FROM (SELECT 1 FROM nouns_delivery_queue q WHERE q.webhook_id = w.id \
         AND (q.due IS NOT NULL OR q.waiting) LIMIT {PENDING_COUNTED_MAX}) AS counted), \
         (SELECT d.created_at FROM nouns_deliveries d WHERE d.id = (SELECT q.delivery_id FROM nouns_delivery_queue q \
         WHERE q.webhook_id = w.id AND (q.due IS NOT NULL OR q.waiting) ORDER BY q.delivery_id LIMIT 1)) \
         FROM nouns_webhooks w LEFT JOIN nouns_webhook_positions p ON p.webhook_id = w.id"
    )
}

/// Records the first position of a webhook that exists. 1: webhook, 2: position, 3: whether it is active.
pub fn insert_position(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    let [integer, boolean] =
        [StorageClass::Integer, StorageClass::Boolean].map(dialect.column_type);
    format!(
        "INSERT INTO nouns_webhook_positions (webhook_id, position, active) \
         SELECT id, CAST({p}2 AS {integer}), CAST({p}3 AS {boolean}) FROM nouns_webhooks WHERE id = {p}1 \
         ON CONFLICT (webhook_id) DO NOTHING"
    )
}

/// Moves the position of a webhook, unless it has moved. 1: webhook, 2: from, 3: to, 4: whether it is active there.
pub fn move_position(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "UPDATE nouns_webhook_positions SET position = {p}3, active = {p}4 \
         WHERE webhook_id = {p}1 AND position = {p}2"
    )
}

/// Locks the queue of a webhook against fan-outs and completions of other servers. 1: webhook.
pub fn lock_queue(dialect: &Dialect) -> String {
    let (p, lock) = (dialect.placeholder, dialect.lock_for_update);
    format!("SELECT 1 FROM nouns_webhook_positions AS t0 WHERE t0.webhook_id = {p}1{lock}")
}

/// 1: id, 2: webhook, 3: now, 4: sequence, 5: type, 6: subject.
pub fn insert_delivery(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "INSERT INTO nouns_deliveries (id, webhook_id, created_at, updated_at, version, sequence, type, subject, status, \
         attempts) VALUES ({p}1, {p}2, {p}3, {p}3, 1, {p}4, {p}5, {p}6, 'pending', 0)"
    )
}

/// Due at once, or waiting for earlier deliveries of the item.
/// 1: id, 2: webhook, 3: subject, 4: sequence, 5: body, 6: now.
pub fn insert_queue_row(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    let moment = (dialect.column_type)(StorageClass::Moment);
    let is_blocked = format!(
        "EXISTS (SELECT 1 FROM nouns_delivery_queue WHERE webhook_id = {p}2 AND subject = {p}3 AND sequence < {p}4 \
         AND {IS_PENDING})"
    );
    format!(
        "INSERT INTO nouns_delivery_queue (delivery_id, webhook_id, subject, sequence, body, tries, waiting, due) \
         VALUES ({p}1, {p}2, {p}3, {p}4, {p}5, 0, {is_blocked}, \
         CASE WHEN {is_blocked} THEN NULL ELSE CAST({p}6 AS {moment}) END)"
    )
}

/// Claims due deliveries. 1: webhook, 2: token, 3: the end of the lease, 4: now, 5: how many.
pub fn claim(dialect: &Dialect) -> String {
    let (p, lock) = (dialect.placeholder, dialect.skip_locked);
    format!(
        "WITH claimable AS MATERIALIZED (SELECT delivery_id AS id FROM nouns_delivery_queue \
         WHERE webhook_id = {p}1 AND due <= {p}4 ORDER BY due LIMIT {p}5{lock}) \
         UPDATE nouns_delivery_queue SET claim_token = {p}2, due = {p}3 FROM claimable WHERE delivery_id = claimable.id \
         RETURNING delivery_id, sequence, subject, body, tries"
    )
}

/// When the next delivery is due, or the next lease ends. 1: webhook.
pub fn next_due(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!("SELECT min(due) FROM nouns_delivery_queue WHERE webhook_id = {p}1 AND due IS NOT NULL")
}

/// Ends a claim for ever. 1: id, 2: token.
pub fn finish(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "UPDATE nouns_delivery_queue SET claim_token = NULL, due = NULL \
         WHERE delivery_id = {p}1 AND claim_token = {p}2"
    )
}

/// Ends a claim until the next attempt. 1: id, 2: token, 3: when it is due, 4: how many tries to add.
pub fn postpone(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "UPDATE nouns_delivery_queue SET claim_token = NULL, due = {p}3, tries = tries + {p}4 \
         WHERE delivery_id = {p}1 AND claim_token = {p}2"
    )
}

/// Records an attempt. 1: id, 2: status, 3: the next attempt, 4: the status of the answer, 5: the error, 6: now.
pub fn record_attempt(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "UPDATE nouns_deliveries SET status = {p}2, attempts = attempts + 1, next_attempt = {p}3, \
         response_status = {p}4, error = {p}5, updated_at = {p}6, version = version + 1 WHERE id = {p}1"
    )
}

/// Makes the next delivery of an item due, unless one of the item is. 1: webhook, 2: subject, 3: now.
pub fn make_next_due(dialect: &Dialect) -> String {
    let (p, [no, _]) = (dialect.placeholder, dialect.booleans);
    format!(
        "UPDATE nouns_delivery_queue SET due = {p}3, waiting = {no} WHERE waiting AND delivery_id = \
         (SELECT delivery_id FROM nouns_delivery_queue WHERE webhook_id = {p}1 AND subject = {p}2 AND {IS_PENDING} \
         ORDER BY sequence LIMIT 1) \
         AND NOT EXISTS (SELECT 1 FROM nouns_delivery_queue WHERE webhook_id = {p}1 AND subject = {p}2 \
         AND due IS NOT NULL)"
    )
}

/// Removes a delivery from the queue; returns the subject. 1: its id.
pub fn remove_queue_row(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!("DELETE FROM nouns_delivery_queue WHERE delivery_id = {p}1 RETURNING subject")
}

/// The position of a webhook, and when a delivery is due. 1: webhook.
pub fn progress(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "SELECT p.position, p.active, \
         (SELECT min(q.due) FROM nouns_delivery_queue q WHERE q.webhook_id = p.webhook_id AND q.due IS NOT NULL) \
         FROM nouns_webhook_positions p WHERE p.webhook_id = {p}1"
    )
}

/// The key in `nouns_system` of the last sweep of the deliveries with this status, as with `CHANGES_CLOCK`.
pub const DELIVERED_CLOCK: &str = "delivered_clock";
pub const DEAD_CLOCK: &str = "dead_clock";

/// The statements that sweep the deliveries with one status. The status is part of the text, because the index is one
/// of the rows with this status.
#[derive(Debug)]
pub struct EndedDeliveries {
    /// Whether some have expired. 1: the cutoff time, 2: how many.
    pub due: String,
    /// When the last one ended.
    pub newest: String,
    /// 1: the cutoff time, 2: how many at most.
    pub sweep: String,
}

impl EndedDeliveries {
    pub fn new(dialect: &Dialect, status: &str) -> Self {
        let p = dialect.placeholder;
        let expired = format!(
            "FROM nouns_deliveries WHERE status = '{status}' AND updated_at < {p}1 ORDER BY updated_at LIMIT {p}2"
        );
        Self {
            due: format!("SELECT 1 {expired}"),
            newest: format!(
                "SELECT max(updated_at) FROM nouns_deliveries WHERE status = '{status}'"
            ),
            sweep: format!("DELETE FROM nouns_deliveries WHERE id IN (SELECT id {expired})"),
        }
    }
}

/// Ends all leases. 1: now.
pub fn end_leases(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "UPDATE nouns_delivery_queue SET claim_token = NULL, due = {p}1 WHERE claim_token IS NOT NULL AND due IS NOT NULL"
    )
}
