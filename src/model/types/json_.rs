//! `json`: any JSON value, stored as canonical text. Numbers keep their text, and a number that a double
//! cannot represent exactly is refused: most JSON parsers would change it.

use super::read::{expect_exact_number, expect_no_nul};
use crate::json::{self, Json};
use crate::model::field::{FieldType, StorageClass};
use crate::problem::FaultCollector;
use crate::value::Value;

pub static JSON: FieldType =
    FieldType::new("json", "any JSON value", StorageClass::Json, |_, json, faults| {
        check_json(json, faults).then(|| Value::Json(json::to_text(json).into()))
    });

/// Reports every fault, so nothing short-circuits.
fn check_json(json: &Json<'_>, faults: &mut FaultCollector) -> bool {
    match json {
        Json::Null | Json::Boolean(_) => true,
        Json::Number(text) => expect_exact_number(text, faults).is_some(),
        Json::Text(text) => expect_no_nul(text, faults).is_some(),
        Json::List(elements) => {
            elements.iter().enumerate().fold(true, |is_valid, (index, element)| {
                let is_element_valid =
                    faults.within(&index.to_string(), |faults| check_json(element, faults));
                is_valid && is_element_valid
            })
        }
        Json::Object(members) => members.iter().fold(true, |is_valid, (name, member)| {
            let is_member_valid = faults.within(name, |faults| {
                expect_no_nul(name, faults).is_some() & check_json(member, faults)
            });
            is_valid && is_member_valid
        }),
    }
}
