//! `state`: the state of an item in its declared state machine. Only the word is checked here; `plan::decide`
//! checks transitions against the stored item.

use super::read::{expect_text, refuse};
use crate::json::quote_for_message;
use crate::model::field::{FieldType, MandatoryKey, StorageClass};
use crate::problem::FaultCode;
use crate::value::Value;

pub static STATE: FieldType = FieldType {
    keys: &["initial", "next", "moved_to"],
    mandatory_keys: &[
        MandatoryKey {
            key: "initial",
            missing: "a state field needs `initial`",
            help: "name the state of a new item: initial = \"open\"",
        },
        MandatoryKey {
            key: "next",
            missing: "a state field needs `next`",
            help: "list each state with those that may follow it: next = { open = [\"closed\"], closed = [] }",
        },
    ],
    key_refusal: |key| match key {
        "required" | "nullable" | "default" | "fill" => Some((
            "does not fit a state",
            "a state always has a value and begins with its `initial` one; take it out",
        )),
        "filter" => Some((
            "says nothing about a state",
            "a state can be filtered by without saying so; take it out",
        )),
        _ => None,
    },
    replacement_when_nested: Some("use `text` with `one_of` here"),
    replacement_when_repeated: Some("make one of them a `text` with `one_of`"),
    ..FieldType::new("state", "a state", StorageClass::Text, |field, json, faults| {
        let text = expect_text(json, "a state", faults)?;
        // The declaration of its states is wrong, which the reader of the model reports. Such a model is not
        // served, and its expressions are checked all the same, so that one run names all mistakes.
        let Some(states) = &field.rules.states else {
            return Some(Value::text(text));
        };
        if states.next.iter().any(|(state, _)| &**state == text) {
            return Some(Value::text(text));
        }
        let known: Vec<String> =
            states.next.iter().map(|(state, _)| quote_for_message(state)).collect();
        let expected = format!("one of {}", known.join(", "));
        refuse(faults, FaultCode::OneOf, &expected, &quote_for_message(text))
    })
};
