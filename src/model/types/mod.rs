//! The field types: one file each, one line each in `ALL`.
//!
//! A type parses the syntax of a value; `read` checks null and the declared rules, in the same
//! way for all types. Nothing here knows where a value is stored or who sent it. `canonicalize` and
//! `parse_canonical` convert lists and objects to canonical JSON text and back, because the store keeps that
//! text and responses show it.

mod boolean;
mod canonical;
mod date;
mod decimal;
mod email;
mod integer;
mod json_;
mod list;
mod number;
mod object;
mod password;
mod read;
mod refs;
mod ref_;
mod rules;
mod state;
mod text;
mod timestamp;
mod url;
mod user_name;
mod uuid_;
mod webhook_address;
mod webhook_secret;
mod webhook_url;

use super::field::FieldType;
pub use boolean::BOOLEAN;
pub use canonical::{
    canonicalize, is_valid_json, parse_canonical, try_parse_canonical, value_from_json,
};
pub use date::is_date;
pub use integer::INTEGER;
pub use list::LIST;
pub use password::{PASSWORD, PASSWORD_BYTES_MAX};
pub use read::{add_required, add_unknown, read, read_new};
pub use ref_::REFERENCE;
pub use refs::{REFERENCES, REFERENCES_MAX};
pub use rules::compare;
pub use state::STATE;
pub use text::TEXT;
pub use timestamp::TIMESTAMP;
pub use url::{invalid_escape_position, is_origin_url};
pub use user_name::USER_NAME;
pub use webhook_address::AddressPolicy;
pub use webhook_secret::{WEBHOOK_SECRET, decode_webhook_secret, encode_webhook_secret};
pub use webhook_url::{WEBHOOK_URL, find_url_fault, is_host_refused};

/// The types of model files.
pub static ALL: &[&FieldType] = &[
    &TEXT,
    &email::EMAIL,
    &url::URL,
    &INTEGER,
    &number::NUMBER,
    &decimal::DECIMAL,
    &BOOLEAN,
    &date::DATE,
    &TIMESTAMP,
    &uuid_::UUID,
    &REFERENCE,
    &REFERENCES,
    &STATE,
    &LIST,
    &object::OBJECT,
    &json_::JSON,
];

/// Finds a type by its name in the model file.
pub fn find(name: &str) -> Option<&'static FieldType> {
    ALL.iter().copied().find(|kind| kind.name == name)
}

#[cfg(test)]
mod tests;
