//! `refs`: the ids of items of another resource, each once, in the order in which they were sent.
//!
//! The value is a list. The store also keeps a link for each id, for lookups by target.

use std::collections::HashSet;

use super::read::{read, refuse};
use crate::json::{self, Json};
use crate::model::field::{FieldType, MandatoryKey, StorageClass};
use crate::problem::FaultCode;
use crate::value::Value;

/// The most references of one field of an item, unless the model says less.
pub const REFERENCES_MAX: usize = 1000;

pub static REFERENCES: FieldType = FieldType {
    keys: &["to", "on_delete", "min_items", "max_items"],
    mandatory_keys: &[MandatoryKey {
        key: "to",
        missing: "refs need `to`",
        help: "name the resource that they refer to: to = \"tag\"",
    }],
    key_refusal: |key| {
        (key == "default").then_some((
            "does not fit refs",
            "ids are made by the server and not known beforehand; take it out",
        ))
    },
    replacement_when_nested: Some(
        "use a list of `uuid` or `integer` here: the ids are kept, but nobody checks that the items exist",
    ),
    expression_hint: Some("use `count(refs)`"),
    synonyms: &["references", "many_to_many", "m2m"],
    ..FieldType::new(
        "refs",
        "a list of ids of other items",
        StorageClass::Json,
        |field, json, faults| {
            let Json::List(elements) = json else {
                return refuse(faults, FaultCode::Type, "a list of ids", json.type_name());
            };
            if elements.len() > REFERENCES_MAX {
                let expected = format!("at most {REFERENCES_MAX} ids");
                return refuse(faults, FaultCode::Items, &expected, &elements.len().to_string());
            }
            let of = field.rules.element.as_deref()?;
            let mut values: Vec<Value> = Vec::with_capacity(elements.len());
            let mut seen = HashSet::with_capacity(elements.len());
            for (index, element) in elements.iter().enumerate() {
                faults.within(&index.to_string(), |faults| match read(of, element, faults) {
                    Some(value) if !seen.insert(json::value_to_text(&value)) => {
                        faults.add(
                            FaultCode::Items,
                            "expected each id once, got this one twice".to_owned(),
                        );
                    }
                    value => values.extend(value),
                });
            }
            (values.len() == elements.len()).then_some(Value::List(values))
        },
    )
};
