//! The secret of a webhook, in the form of Standard Webhooks; not available in model files.
//!
//! Fault messages never contain any part of the secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::read::expect_text;
use crate::model::field::{FieldType, StorageClass};
use crate::problem::FaultCode;
use crate::value::Value;

const PREFIX: &str = "whsec_";
const BYTES_MIN: usize = 24;
const BYTES_MAX: usize = 64;
const ABOUT: &str = "whsec_ and 24 to 64 bytes in base64";

pub static WEBHOOK_SECRET: FieldType = FieldType {
    json_pattern: Some("^whsec_[A-Za-z0-9+/]+=*$"),
    ..FieldType::new("secret", ABOUT, StorageClass::Text, |_, json, faults| {
        let text = expect_text(json, ABOUT, faults)?;
        if decode_webhook_secret(text).is_none() {
            faults.add(FaultCode::Format, format!("expected {ABOUT}"));
            return None;
        }
        Some(Value::text(text))
    })
};

/// The bytes of a secret; `None` if the text is not one.
pub fn decode_webhook_secret(text: &str) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
    (BYTES_MIN..=BYTES_MAX).contains(&bytes.len()).then_some(bytes)
}

/// The text of a secret with these bytes.
pub fn encode_webhook_secret(bytes: &[u8]) -> String {
    format!("{PREFIX}{}", STANDARD.encode(bytes))
}
