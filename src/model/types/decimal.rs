//! `decimal`: an exact number with a fixed number of decimal places, at most 18 digits; a string in JSON.
//!
//! It may be sent as a string or as a number, and is parsed from its text, never through a double.

use super::read::refuse;
use crate::json::{self, Json, quote_for_message};
use crate::model::field::{FieldType, StorageClass};
use crate::problem::FaultCode;
use crate::value::{Decimal, Value, truncate_for_message};

pub static DECIMAL: FieldType = FieldType {
    keys: &["scale", "min", "max", "one_of", "unique", "filter", "computed"],
    synonyms: &["currency", "money"],
    ..FieldType::new("decimal", "a decimal number", StorageClass::Decimal, |field, json, faults| {
        let expected = "a decimal number such as \"1.50\"";
        let text = match json {
            Json::Number(text) => text,
            Json::Text(text) if json::is_number(text) => text.as_ref(),
            Json::Text(text) => {
                return refuse(faults, FaultCode::Format, expected, &quote_for_message(text));
            }
            Json::Null | Json::Boolean(_) | Json::List(_) | Json::Object(_) => {
                return refuse(faults, FaultCode::Type, expected, json.type_name());
            }
        };
        let scale = field.rules.scale;
        let units = json::parse_decimal_units(text, scale);
        units.map(|units| Value::Decimal(Decimal { units, scale })).or_else(|| {
            let plural = if scale == 1 { "" } else { "s" };
            let expected = format!("at most 18 digits and {scale} decimal{plural}");
            refuse(faults, FaultCode::Range, &expected, &truncate_for_message(text))
        })
    })
};
