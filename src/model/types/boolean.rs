//! `boolean`: true or false.

use super::read::refuse;
use crate::json::Json;
use crate::model::field::{FieldType, StorageClass};
use crate::problem::FaultCode;
use crate::value::Value;

pub static BOOLEAN: FieldType =
    FieldType {
        keys: &["filter", "computed"],
        synonyms: &["bool"],
        ..FieldType::new("boolean", "true or false", StorageClass::Boolean, |_, json, faults| {
            match json {
                Json::Boolean(value) => Some(Value::Boolean(*value)),
                _ => refuse(faults, FaultCode::Type, "true or false", json.type_name()),
            }
        })
    };
