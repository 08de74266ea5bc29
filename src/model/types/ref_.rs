//! `ref`: the id of an item of another resource. The store checks whether that item exists.

use super::{FieldType, KeyRefusal, MandatoryKey, expect_text, uuid_};
use crate::json::{self, Json, quote_for_message};
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::{IdKind, Value, truncate_for_message};

#[derive(Debug)]
pub struct ReferenceType;

/// The kind of id that the field contains.
fn id_kind(field: &Field) -> IdKind {
    field.rules.reference.map_or(IdKind::Uuid, |target| target.id)
}

impl FieldType for ReferenceType {
    fn name(&self) -> &'static str {
        "ref"
    }

    fn about(&self) -> &'static str {
        "the id of another item"
    }

    fn class(&self, field: &Field) -> StorageClass {
        match id_kind(field) {
            IdKind::Uuid => StorageClass::Text,
            IdKind::Integer => StorageClass::Integer,
        }
    }

    fn keys(&self) -> &'static [&'static str] {
        &["to", "on_delete", "unique", "filter"]
    }

    fn mandatory_keys(&self) -> &'static [MandatoryKey] {
        &[MandatoryKey {
            key: "to",
            missing: "a ref needs `to`",
            help: "name the resource that it refers to: to = \"customer\"",
        }]
    }

    fn key_refusal(&self, key: &str) -> Option<KeyRefusal> {
        (key == "default").then_some((
            "does not fit a ref",
            "ids are made by the server and not known beforehand; take it out",
        ))
    }

    fn replacement_when_nested(&self) -> Option<&'static str> {
        Some("use `uuid` or `integer` here: the id is kept, but nobody checks that the item exists")
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["reference"]
    }

    fn read(&self, field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        match id_kind(field) {
            IdKind::Uuid => {
                let text = expect_text(json, "an id as a text", faults)?;
                let id = uuid_::canonical(text);
                if id.is_none() {
                    faults.add(
                        FaultCode::Format,
                        format!("expected an id, which is a UUID, got {}", quote_for_message(text)),
                    );
                }
                id
            }
            IdKind::Integer => {
                let Json::Number(text) = json else {
                    faults.add(
                        FaultCode::Type,
                        format!("expected an id as a number, got {}", json.type_name()),
                    );
                    return None;
                };
                let id = json::integer(text).filter(|id| *id > 0);
                if id.is_none() {
                    faults.add(
                        FaultCode::Format,
                        format!(
                            "expected an id, which is a positive integer, got {}",
                            truncate_for_message(text)
                        ),
                    );
                }
                id.map(Value::Integer)
            }
        }
    }
}
