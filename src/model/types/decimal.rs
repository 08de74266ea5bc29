//! `decimal`: an exact number with a fixed number of decimal places, at most 18 digits; a string in JSON.
//!
//! It may be sent as a string or as a number, and is parsed from its text, never through a double.

use super::FieldType;
use crate::json::{self, Json, quoted};
use crate::model::{Class, Field};
use crate::problem::{Code, Faults};
use crate::value::{self, Value, cut};

#[derive(Debug)]
pub(super) struct Decimal;

impl FieldType for Decimal {
    fn name(&self) -> &'static str {
        "decimal"
    }

    fn about(&self) -> &'static str {
        "a decimal number"
    }

    fn class(&self, _field: &Field) -> Class {
        Class::Decimal
    }

    fn keys(&self) -> &'static [&'static str] {
        &["scale", "min", "max", "one_of", "unique", "filter", "computed"]
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["currency", "money"]
    }

    fn read(&self, field: &Field, json: &Json<'_>, faults: &mut Faults) -> Option<Value> {
        let text = match json {
            Json::Number(text) => text,
            Json::Text(text) if json::is_number(text) => text.as_ref(),
            Json::Text(text) => {
                faults.add(
                    Code::Format,
                    format!("expected a decimal number such as \"1.50\", got {}", quoted(text)),
                );
                return None;
            }
            Json::Null | Json::Boolean(_) | Json::List(_) | Json::Object(_) => {
                faults.add(
                    Code::Type,
                    format!("expected a decimal number such as \"1.50\", got {}", json.kind()),
                );
                return None;
            }
        };
        let scale = field.rules.scale;
        let units = json::decimal_units(text, scale);
        if units.is_none() {
            let decimals =
                if scale == 1 { "1 decimal".to_owned() } else { format!("{scale} decimals") };
            faults.add(
                Code::Range,
                format!("expected at most 18 digits and {decimals}, got {}", cut(text)),
            );
        }
        units.map(|units| Value::Decimal(value::Decimal { units, scale }))
    }
}
