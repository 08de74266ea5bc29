//! The statements of the webhooks and their deliveries that are not those of every resource.

use crate::model::StorageClass;
use crate::store::sql::dialect::Dialect;

pub const COUNT: &str = "SELECT count(*) FROM nouns_webhooks";

/// The id, the sealed secret and the version of each webhook.
pub const SECRETS: &str = "SELECT id, secret, version FROM nouns_webhooks ORDER BY id";

/// 1: the id, 2: the sealed secret, 3: its new text.
pub fn replace_sealed(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!("UPDATE nouns_webhooks SET secret = {p}3 WHERE id = {p}1 AND secret = {p}2")
}

/// Makes a delivery due again, or lets it wait for the other pending deliveries of its item. 1: its id, 2: the time.
pub fn queue_again(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    let moment = (dialect.column_type)(StorageClass::Moment);
    let is_blocked = "EXISTS (SELECT 1 FROM nouns_delivery_queue e \
         WHERE e.webhook_id = nouns_delivery_queue.webhook_id AND e.subject = nouns_delivery_queue.subject \
         AND e.delivery_id <> nouns_delivery_queue.delivery_id AND (e.due IS NOT NULL OR e.waiting))";
    format!(
        "UPDATE nouns_delivery_queue SET claim_token = NULL, tries = 0, waiting = {is_blocked}, \
         due = CASE WHEN {is_blocked} THEN NULL ELSE CAST({p}2 AS {moment}) END WHERE delivery_id = {p}1"
    )
}

/// Deletes deliveries of one webhook that does not exist any more. Finds the webhooks in steps along the index, because
/// a scan would read all deliveries. 1: how many at most.
pub fn sweep_orphans(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "WITH RECURSIVE owners (id) AS (\
         SELECT (SELECT webhook_id FROM nouns_deliveries ORDER BY webhook_id LIMIT 1) UNION ALL \
         SELECT (SELECT webhook_id FROM nouns_deliveries WHERE webhook_id > owners.id ORDER BY webhook_id LIMIT 1) \
         FROM owners WHERE owners.id IS NOT NULL) \
         DELETE FROM nouns_deliveries WHERE id IN (SELECT id FROM nouns_deliveries WHERE webhook_id = (\
         SELECT id FROM owners WHERE id IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM nouns_webhooks WHERE nouns_webhooks.id = owners.id) LIMIT 1) LIMIT {p}1)"
    )
}
