//! The built-in resource of the webhooks: who is told of which changes, by signed requests.

use super::text_field;
use crate::model::field::FieldType;
use crate::model::{
    ChangeLogDetail, Field, FieldRules, OnDelete, RealmIndex, Resource, ResourceIndex,
    UniqueConflict, types,
};
use crate::value::{IdKind, Value};

/// Indices of the fields of a webhook.
pub const URL: usize = 0;
pub const EVENTS: usize = 1;
pub const FILTER: usize = 2;
pub const ENABLED: usize = 3;
pub const SECRET: usize = 4;
pub const PREVIOUS_SECRET_EXPIRES: usize = 5;
pub const DISABLED_REASON: usize = 6;

const EVENTS_MAX: usize = 100;
const EVENT_CHARS_MAX: usize = 100;
const FILTER_CHARS_MAX: usize = 2000;

/// The resource of the webhooks. `deliveries` is the resource of their deliveries.
pub fn webhooks_resource(
    index: ResourceIndex,
    deliveries: ResourceIndex,
    realm: RealmIndex,
) -> Resource {
    Resource {
        index,
        name: "webhook".into(),
        plural: "webhooks".into(),
        is_builtin: true,
        is_server_made: false,
        is_retained: false,
        table: "nouns_webhooks".into(),
        label: "-/webhook".into(),
        parent: None,
        parent_key: None,
        ancestor_keys: Vec::new(),
        flat: None,
        children: vec![deliveries],
        referrers: Vec::new(),
        depth: 0,
        on_delete: OnDelete::Restrict,
        id: IdKind::Uuid,
        realm,
        fields: fields(),
        unique: Vec::new(),
        conflict: UniqueConflict::Silent,
        checks: Vec::new(),
        require_if_match: false,
        changes: ChangeLogDetail::Values,
        deprecated: None,
        renamed_from: None,
    }
}

/// A pattern of events.
static EVENT_PATTERN: FieldType = FieldType { example: Some("*"), ..types::TEXT };

/// The query of a list; which ones are valid depends on the events, so that documents have no example.
static EVENT_FILTER: FieldType = FieldType { example: Some(""), ..types::TEXT };

fn fields() -> Vec<Field> {
    let url = Field { required: true, ..Field::new("url", &types::WEBHOOK_URL) };
    let filter =
        Field { kind: &EVENT_FILTER, nullable: true, ..text_field("filter", FILTER_CHARS_MAX) };
    let enabled = Field {
        default: Some(Value::Boolean(true)),
        filter: true,
        ..Field::new("enabled", &types::BOOLEAN)
    };
    // Null asks for a new one.
    let secret =
        Field { secret: true, nullable: true, ..Field::new("secret", &types::WEBHOOK_SECRET) };
    let expires = Field {
        server_set: true,
        nullable: true,
        ..Field::new("previous_secret_expires", &types::TIMESTAMP)
    };
    let reason =
        Field { server_set: true, nullable: true, ..Field::new("disabled_reason", &types::TEXT) };
    vec![url, events_field(), filter, enabled, secret, expires, reason]
}

/// The names in the patterns are checked against the model by `plan`.
fn events_field() -> Field {
    let rules = FieldRules {
        element: Some(Box::new(Field {
            kind: &EVENT_PATTERN,
            ..text_field("of", EVENT_CHARS_MAX)
        })),
        min_items: Some(1),
        max_items: Some(EVENTS_MAX),
        ..FieldRules::default()
    };
    Field { required: true, rules, ..Field::new("events", &types::LIST) }
}
