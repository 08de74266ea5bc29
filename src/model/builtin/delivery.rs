//! The built-in resource of the deliveries: each event that a webhook sends, and how far it got.
//!
//! The server makes the items. A client reads and deletes them, and sends one again by setting its status to
//! `pending`.

use crate::model::{
    AncestorKey, ChangeLogDetail, Field, FieldRules, OnDelete, RealmIndex, Resource, ResourceIndex,
    StateMachine, UniqueConflict, types,
};
use crate::value::{IdKind, Value};

/// Indices of fields of a delivery.
pub const STATUS: usize = 3;
pub const ATTEMPTS: usize = 4;
pub const NEXT_ATTEMPT: usize = 5;

/// The states of a delivery.
pub const PENDING: &str = "pending";
pub const DELIVERED: &str = "delivered";
pub const DEAD: &str = "dead";

/// The resource of the deliveries. `webhooks` is the resource of their parents.
pub fn deliveries_resource(
    index: ResourceIndex,
    webhooks: ResourceIndex,
    realm: RealmIndex,
) -> Resource {
    Resource {
        index,
        name: "delivery".into(),
        plural: "deliveries".into(),
        is_builtin: true,
        is_server_made: true,
        is_retained: false,
        table: "nouns_deliveries".into(),
        label: "-/delivery".into(),
        parent: Some(webhooks),
        parent_key: Some("webhook_id".into()),
        ancestor_keys: vec![AncestorKey { name: "webhook_id".into(), id: IdKind::Uuid }],
        flat: None,
        children: Vec::new(),
        referrers: Vec::new(),
        depth: 1,
        on_delete: OnDelete::DeleteLater,
        id: IdKind::Uuid,
        realm,
        fields: fields(),
        unique: Vec::new(),
        conflict: UniqueConflict::Silent,
        checks: Vec::new(),
        require_if_match: false,
        changes: ChangeLogDetail::Ids,
        deprecated: None,
        renamed_from: None,
    }
}

fn fields() -> Vec<Field> {
    let set = |name: &str, kind| Field { server_set: true, ..Field::new(name, kind) };
    let nullable = |name: &str, kind| Field { nullable: true, ..set(name, kind) };
    vec![
        set("sequence", &types::INTEGER),
        set("type", &types::TEXT),
        set("subject", &types::TEXT),
        status_field(),
        set("attempts", &types::INTEGER),
        nullable("next_attempt", &types::TIMESTAMP),
        nullable("response_status", &types::INTEGER),
        nullable("error", &types::TEXT),
    ]
}

/// The transitions are those of a client; the server sets every state.
fn status_field() -> Field {
    let again = || vec![PENDING.into()];
    let states = StateMachine {
        initial: PENDING.into(),
        next: vec![
            (PENDING.into(), Vec::new()),
            (DELIVERED.into(), again()),
            (DEAD.into(), again()),
        ],
        limits: Vec::new(),
        moved_to: Vec::new(),
    };
    let rules = FieldRules { states: Some(states), ..FieldRules::default() };
    Field {
        filter: true,
        default: Some(Value::text(PENDING)),
        rules,
        ..Field::new("status", &types::STATE)
    }
}
