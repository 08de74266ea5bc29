//! `state`: the state of an item in its declared state machine. Only the word is checked here; `plan::decide`
//! checks transitions against the stored item.

use super::{FieldType, Need, Refusal, expect_text};
use crate::json::{Json, quoted};
use crate::model::{Class, Field};
use crate::problem::{Code, Faults};
use crate::value::Value;

#[derive(Debug)]
pub(super) struct State;

impl FieldType for State {
    fn name(&self) -> &'static str {
        "state"
    }

    fn about(&self) -> &'static str {
        "a state"
    }

    fn class(&self, _field: &Field) -> Class {
        Class::Text
    }

    fn keys(&self) -> &'static [&'static str] {
        &["initial", "next"]
    }

    fn needs(&self) -> &'static [Need] {
        &[
            Need {
                key: "initial",
                missing: "a state field needs `initial`",
                help: "name the state of a new item: initial = \"open\"",
            },
            Need {
                key: "next",
                missing: "a state field needs `next`",
                help: "list each state with those that may follow it: next = { open = [\"closed\"], closed = [] }",
            },
        ]
    }

    fn refuses(&self, key: &str) -> Option<Refusal> {
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

    fn instead_inside(&self) -> Option<&'static str> {
        Some("use `text` with `one_of` here")
    }

    fn instead_twice(&self) -> Option<&'static str> {
        Some("make one of them a `text` with `one_of`")
    }

    fn read(&self, field: &Field, json: &Json<'_>, faults: &mut Faults) -> Option<Value> {
        let text = expect_text(json, self.about(), faults)?;
        let states = field.rules.states.as_ref()?;
        if states.next.iter().any(|(state, _)| &**state == text) {
            return Some(Value::text(text));
        }
        let known: Vec<String> = states.next.iter().map(|(state, _)| quoted(state)).collect();
        faults.add(
            Code::OneOf,
            format!("expected one of {}, got {}", known.join(", "), quoted(text)),
        );
        None
    }
}
