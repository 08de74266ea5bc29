//! `json`: any JSON value, stored as canonical text. Numbers keep their text, and a number that a double
//! cannot represent exactly is refused: most JSON parsers would change it.

use super::FieldType;
use crate::json::{self, Json};
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::{Value, truncate_for_message};

#[derive(Debug)]
pub struct JsonType;

impl FieldType for JsonType {
    fn name(&self) -> &'static str {
        "json"
    }

    fn about(&self) -> &'static str {
        "any JSON value"
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Json
    }

    fn keys(&self) -> &'static [&'static str] {
        &[]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let exact = check_json(json, faults);
        let mut text = Vec::new();
        json::write(&mut text, json);
        let text = String::from_utf8(text).ok()?;
        exact.then_some(Value::Json(text.into()))
    }
}

fn check_json(json: &Json<'_>, faults: &mut FaultCollector) -> bool {
    match json {
        Json::Null | Json::Boolean(_) => true,
        Json::Number(text) => {
            let exact = json::number_exact(text).is_some();
            if !exact {
                faults.add(
                    FaultCode::Range,
                    format!(
                        "expected a number that a double holds without loss, got {}",
                        truncate_for_message(text)
                    ),
                );
            }
            exact
        }
        Json::Text(text) => check_text(text, faults),
        Json::List(elements) => {
            elements.iter().enumerate().fold(true, |exact, (index, element)| {
                let mark = faults.enter(&index.to_string());
                let element_exact = check_json(element, faults);
                faults.leave(mark);
                exact && element_exact
            })
        }
        Json::Object(members) => members.iter().fold(true, |exact, (name, member)| {
            let mark = faults.enter(name);
            let member_exact = check_text(name, faults) & check_json(member, faults);
            faults.leave(mark);
            exact && member_exact
        }),
    }
}

fn check_text(text: &str, faults: &mut FaultCollector) -> bool {
    let clean = !text.contains('\0');
    if !clean {
        faults.add(FaultCode::Format, "expected a text without the NUL character");
    }
    clean
}
