//! `email`: an address as the HTML standard defines it for `<input type=email>`, at most 254 characters.
//!
//! Deliberately narrower than RFC 5322: no comments, no quoted local parts, no domain literals. Any accepted
//! address can be typed into a form and mailed to.

use super::{FieldType, expect_text};
use crate::json::{Json, quote_for_message};
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::Value;

// RFC 5321 §4.5.3.1.3: a path has at most 256 octets, two of which are the angle brackets.
const EMAIL_BYTES_MAX: usize = 254;

#[derive(Debug)]
pub struct EmailType;

impl FieldType for EmailType {
    fn name(&self) -> &'static str {
        "email"
    }

    fn about(&self) -> &'static str {
        "an e-mail address"
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Text
    }

    fn is_searchable_text(&self) -> bool {
        true
    }

    fn chars_max(&self) -> Option<usize> {
        Some(EMAIL_BYTES_MAX)
    }

    fn keys(&self) -> &'static [&'static str] {
        &["min_length", "max_length", "pattern", "one_of", "unique", "filter"]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let text = expect_text(json, self.about(), faults)?;
        if is_email(text) {
            return Some(Value::text(text));
        }
        faults.add(
            FaultCode::Format,
            format!("expected an e-mail address, got {}", quote_for_message(text)),
        );
        None
    }
}

// HTML Living Standard, "valid e-mail address".
fn is_email(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some(at) = bytes.iter().position(|b| *b == b'@') else { return false };
    let (local, domain) = (bytes.get(..at).unwrap_or_default(), bytes.get(at + 1..));
    let local_byte = |b: &u8| b.is_ascii_alphanumeric() || b".!#$%&'*+/=?^_`{|}~-".contains(b);
    bytes.len() <= EMAIL_BYTES_MAX
        && !local.is_empty()
        && local.iter().all(local_byte)
        && domain.unwrap_or_default().split(|b| *b == b'.').all(is_label)
}

// RFC 1034 §3.5 as the HTML standard uses it: letters, digits and inner hyphens, at most 63.
fn is_label(label: &[u8]) -> bool {
    (1..=63).contains(&label.len())
        && label.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
        && !label.starts_with(b"-")
        && !label.ends_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::is_email;

    #[test]
    fn is_email_agrees_with_html_forms() {
        let long = |local: usize| format!("{}@example.com", "a".repeat(local));
        for good in
            ["ann@example.com", "a.b+c@x", "o'neil@mail.example.org", ".a.@b-c.d", &long(242)]
        {
            assert!(is_email(good), "{good}");
        }
        for bad in [
            "",
            "ann",
            "@b",
            "a@",
            "a@b@c",
            "a b@c",
            "a@b..c",
            "a@-b",
            "a@b-",
            "a@b.",
            "ä@b",
            "a@ä",
            "\"a\"@b",
            "a@[::1]",
            &long(243),
            &format!("a@{}", "b".repeat(64)),
        ] {
            assert!(!is_email(bad), "{bad}");
        }
    }
}
