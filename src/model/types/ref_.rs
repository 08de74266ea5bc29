//! `ref`: the id of an item of another resource. The store checks whether that item exists.

use super::read::{expect_number, expect_text, refuse};
use super::uuid_;
use crate::json::{self, quote_for_message};
use crate::model::field::{FieldType, MandatoryKey, StorageClass};
use crate::problem::FaultCode;
use crate::value::{Value, truncate_for_message};

/// Its class depends on the kind of id: `Field::storage_class`.
pub static REFERENCE: FieldType = FieldType {
    keys: &["to", "on_delete", "where", "unique", "filter"],
    mandatory_keys: &[MandatoryKey {
        key: "to",
        missing: "a ref needs `to`",
        help: "name the resource that it refers to: to = \"customer\"",
    }],
    key_refusal: |key| {
        (key == "default").then_some((
            "does not fit a ref",
            "ids are made by the server and not known beforehand; take it out",
        ))
    },
    replacement_when_nested: Some(
        "use `uuid` or `integer` here: the id is kept, but nobody checks that the item exists",
    ),
    synonyms: &["reference"],
    ..FieldType::new("ref", "the id of another item", StorageClass::Text, |field, json, faults| {
        if field.storage_class() == StorageClass::Integer {
            let text = expect_number(json, "an id as a number", faults)?;
            return json::parse_integer(text).filter(|id| *id > 0).map(Value::Integer).or_else(
                || {
                    let expected = "an id, which is a positive integer";
                    refuse(faults, FaultCode::Format, expected, &truncate_for_message(text))
                },
            );
        }
        let text = expect_text(json, "an id as a text", faults)?;
        uuid_::canonical(text).or_else(|| {
            let expected = "an id, which is a UUID";
            refuse(faults, FaultCode::Format, expected, &quote_for_message(text))
        })
    })
};
