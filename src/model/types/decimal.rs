//! `decimal`: an exact number with a fixed number of decimal places, at most 18 digits; a string in JSON.
//!
//! It may be sent as a string or as a number, and is parsed from its text, never through a double.

use super::FieldType;
use crate::json::{self, Json, quote_for_message};
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::{self, Value, truncate_for_message};

#[derive(Debug)]
pub struct DecimalType;

impl FieldType for DecimalType {
    fn name(&self) -> &'static str {
        "decimal"
    }

    fn about(&self) -> &'static str {
        "a decimal number"
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Decimal
    }

    fn keys(&self) -> &'static [&'static str] {
        &["scale", "min", "max", "one_of", "unique", "filter", "computed"]
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["currency", "money"]
    }

    fn read(&self, field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let text = match json {
            Json::Number(text) => text,
            Json::Text(text) if json::is_number(text) => text.as_ref(),
            Json::Text(text) => {
                faults.add(
                    FaultCode::Format,
                    format!(
                        "expected a decimal number such as \"1.50\", got {}",
                        quote_for_message(text)
                    ),
                );
                return None;
            }
            Json::Null | Json::Boolean(_) | Json::List(_) | Json::Object(_) => {
                faults.add(
                    FaultCode::Type,
                    format!("expected a decimal number such as \"1.50\", got {}", json.type_name()),
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
                FaultCode::Range,
                format!(
                    "expected at most 18 digits and {decimals}, got {}",
                    truncate_for_message(text)
                ),
            );
        }
        units.map(|units| Value::Decimal(value::Decimal { units, scale }))
    }
}
