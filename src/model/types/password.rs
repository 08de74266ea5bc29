//! The password of a user; not available in model files, since only the built-in users have one.
//!
//! Fault messages never contain any part of the password.

use super::{FieldType, expect_text};
use crate::json::Json;
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::Value;

/// The maximum size. A longer password is refused, never truncated.
pub const PASSWORD_BYTES_MAX: usize = 4096;

#[derive(Debug)]
pub struct PasswordType;

impl FieldType for PasswordType {
    fn name(&self) -> &'static str {
        "password"
    }

    fn about(&self) -> &'static str {
        "a text"
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Text
    }

    fn keys(&self) -> &'static [&'static str] {
        &[]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let text = expect_text(json, self.about(), faults)?;
        if text.len() > PASSWORD_BYTES_MAX {
            faults.add(FaultCode::Length, format!("expected at most {PASSWORD_BYTES_MAX} bytes"));
        } else if text.chars().any(char::is_control) {
            // RFC 7617 §2.
            faults.add(FaultCode::Format, "expected no control characters");
        } else {
            return Some(Value::text(text));
        }
        None
    }
}
