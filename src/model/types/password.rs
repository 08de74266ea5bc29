//! The password of a user; not available in model files, since only the built-in users have one.
//!
//! Fault messages never contain any part of the password.

use super::read::expect_text;
use crate::model::field::{FieldType, StorageClass};
use crate::problem::FaultCode;
use crate::value::Value;

/// The maximum size. A longer password is refused, never truncated.
pub const PASSWORD_BYTES_MAX: usize = 4096;

pub static PASSWORD: FieldType = FieldType {
    json_format: Some("password"),
    json_pattern: Some(r"^[^\u0000-\u001f\u007f-\u009f]*$"),
    example: Some("correct horse battery"),
    ..FieldType::new("password", "a text", StorageClass::Text, |_, json, faults| {
        let text = expect_text(json, "a text", faults)?;
        if text.len() > PASSWORD_BYTES_MAX {
            faults.add(FaultCode::Length, format!("expected at most {PASSWORD_BYTES_MAX} bytes"));
        } else if text.chars().any(char::is_control) {
            // RFC 7617 §2.
            faults.add(FaultCode::Format, "expected no control characters");
        } else {
            return Some(Value::text(text));
        }
        None
    })
};
