//! `ref`: the id of an item of another resource. The store checks whether that item exists.

use super::{FieldType, Need, Refusal, expect_text, uuid_};
use crate::json::{self, Json, quoted};
use crate::model::{Class, Field};
use crate::problem::{Code, Faults};
use crate::value::{IdKind, Value, cut};

#[derive(Debug)]
pub(super) struct Ref;

/// The kind of id that the field contains.
fn id_kind(field: &Field) -> IdKind {
    field.rules.to.map_or(IdKind::Uuid, |target| target.id)
}

impl FieldType for Ref {
    fn name(&self) -> &'static str {
        "ref"
    }

    fn about(&self) -> &'static str {
        "the id of another item"
    }

    fn class(&self, field: &Field) -> Class {
        match id_kind(field) {
            IdKind::Uuid => Class::Text,
            IdKind::Integer => Class::Integer,
        }
    }

    fn keys(&self) -> &'static [&'static str] {
        &["to", "on_delete", "unique", "filter"]
    }

    fn needs(&self) -> &'static [Need] {
        &[Need {
            key: "to",
            missing: "a ref needs `to`",
            help: "name the resource that it refers to: to = \"customer\"",
        }]
    }

    fn refuses(&self, key: &str) -> Option<Refusal> {
        (key == "default").then_some((
            "does not fit a ref",
            "ids are made by the server and not known beforehand; take it out",
        ))
    }

    fn instead_inside(&self) -> Option<&'static str> {
        Some("use `uuid` or `integer` here: the id is kept, but nobody checks that the item exists")
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["reference"]
    }

    fn read(&self, field: &Field, json: &Json<'_>, faults: &mut Faults) -> Option<Value> {
        match id_kind(field) {
            IdKind::Uuid => {
                let text = expect_text(json, "an id as a text", faults)?;
                let id = uuid_::canonical(text);
                if id.is_none() {
                    faults.add(
                        Code::Format,
                        format!("expected an id, which is a UUID, got {}", quoted(text)),
                    );
                }
                id
            }
            IdKind::Integer => {
                let Json::Number(text) = json else {
                    faults.add(
                        Code::Type,
                        format!("expected an id as a number, got {}", json.kind()),
                    );
                    return None;
                };
                let id = json::integer(text).filter(|id| *id > 0);
                if id.is_none() {
                    faults.add(
                        Code::Format,
                        format!("expected an id, which is a positive integer, got {}", cut(text)),
                    );
                }
                id.map(Value::Integer)
            }
        }
    }
}
