//! The name of a user: no type of the model file, since only the server's own users have one.
//!
//! A name has one spelling, because digests are made of its bytes: clients and RFC 7616 §3.4.4 send
//! the composed form (NFC), so no other can be stored.

use unicode_normalization::is_nfc;

use super::{FieldType, expect_text};
use crate::json::Json;
use crate::model::{Class, Field};
use crate::problem::{Code, Faults};
use crate::value::Value;

/// What the log and the change log call those who are no users.
const RESERVED: &[&str] = &["-", "anyone", "command line", "nouns", "open"];

#[derive(Debug)]
pub(super) struct UserName;

impl FieldType for UserName {
    fn name(&self) -> &'static str {
        "user_name"
    }

    fn about(&self) -> &'static str {
        "a text"
    }

    fn class(&self, _field: &Field) -> Class {
        Class::Text
    }

    fn keys(&self) -> &'static [&'static str] {
        &[]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut Faults) -> Option<Value> {
        let text = expect_text(json, self.about(), faults)?;
        let fault = if text.contains(':') {
            // RFC 7617 §2: it stands between the name and the password.
            "expected a name without a colon"
        } else if text.chars().any(char::is_control) {
            "expected a name without control characters"
        } else if RESERVED.contains(&text) {
            "expected another name: this one stands for something else in the log"
        } else if !is_nfc(text) {
            "expected a name in composed Unicode (NFC)"
        } else {
            return Some(Value::text(text));
        };
        faults.add(Code::Format, fault);
        None
    }
}
