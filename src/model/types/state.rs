//! `state`: where an item is in its declared life. Only the word is read here; which state may follow
//! which is decided with the stored item at hand.

use super::{FieldType, expect_text, quoted};
use crate::json::Json;
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
