//! `state`: the state of an item in its declared state machine. Only the word is checked here; `plan::decide`
//! checks transitions against the stored item.

use super::{FieldType, KeyRefusal, MandatoryKey, expect_text};
use crate::json::{Json, quote_for_message};
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::Value;

#[derive(Debug)]
pub struct StateType;

impl FieldType for StateType {
    fn name(&self) -> &'static str {
        "state"
    }

    fn about(&self) -> &'static str {
        "a state"
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Text
    }

    fn keys(&self) -> &'static [&'static str] {
        &["initial", "next"]
    }

    fn mandatory_keys(&self) -> &'static [MandatoryKey] {
        &[
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
        ]
    }

    fn key_refusal(&self, key: &str) -> Option<KeyRefusal> {
        match key {
            "required" | "nullable" | "default" => Some((
                "does not fit a state",
                "a state always has a value and begins with its `initial` one; take it out",
            )),
            "filter" => Some((
                "says nothing about a state",
                "a state can be filtered by without saying so; take it out",
            )),
            _ => None,
        }
    }

    fn replacement_when_nested(&self) -> Option<&'static str> {
        Some("use `text` with `one_of` here")
    }

    fn replacement_when_repeated(&self) -> Option<&'static str> {
        Some("make one of them a `text` with `one_of`")
    }

    fn read(&self, field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let text = expect_text(json, self.about(), faults)?;
        let states = field.rules.states.as_ref()?;
        if states.next.iter().any(|(state, _)| &**state == text) {
            return Some(Value::text(text));
        }
        let known: Vec<String> =
            states.next.iter().map(|(state, _)| quote_for_message(state)).collect();
        faults.add(
            FaultCode::OneOf,
            format!("expected one of {}, got {}", known.join(", "), quote_for_message(text)),
        );
        None
    }
}
