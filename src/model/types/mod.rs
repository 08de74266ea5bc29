//! The field types: one file each, one line each in `ALL`.
//!
//! A type parses the syntax of a value; `read` in this file checks null and the declared rules, in the same
//! way for all types. Nothing here knows where a value is stored or who sent it. `canonicalize` and
//! `parse_canonical` convert lists and objects to canonical JSON text and back, because the store keeps that
//! text and responses show it.

mod boolean;
mod date;
mod decimal;
mod email;
mod integer;
mod json_;
mod list;
mod number;
mod object;
mod password;
mod ref_;
mod rules;
mod canonical;
mod state;
mod text;
mod timestamp;
mod url;
mod user_name;
mod uuid_;

use std::fmt;

use super::{Field, StorageClass};
use crate::json::Json;
use crate::problem::{FaultCode, FaultCollector};
use crate::value::Value;
pub use canonical::{canonicalize, parse_canonical};
pub use date::is_date;
pub use object::{add_required, add_unknown};
pub use password::PASSWORD_BYTES_MAX;
pub use url::invalid_escape_position;
pub use url::{is_port, is_url};

/// A field type.
pub trait FieldType: fmt::Debug + Sync {
    /// Its name in the model file.
    fn name(&self) -> &'static str;

    /// One line for editors and documentation.
    fn about(&self) -> &'static str;

    /// The storage class of its values.
    fn class(&self, field: &Field) -> StorageClass;

    /// The keys it allows in the model file, in addition to those of every field.
    fn keys(&self) -> &'static [&'static str];

    /// The mandatory ones among its keys.
    fn mandatory_keys(&self) -> &'static [MandatoryKey] {
        &[]
    }

    /// Why a key is not allowed, if a specific message helps.
    fn key_refusal(&self, _key: &str) -> Option<KeyRefusal> {
        None
    }

    /// The type to use instead inside lists and objects, if only fields of a resource can have this type.
    fn replacement_when_nested(&self) -> Option<&'static str> {
        None
    }

    /// The type to use instead for a second field, if only one field of a resource can have this type.
    fn replacement_when_repeated(&self) -> Option<&'static str> {
        None
    }

    /// The key that implies this type for the elements of a list without a `type`.
    fn implying_key(&self) -> Option<&'static str> {
        None
    }

    /// How an expression accesses a single value; for a type without one.
    fn expression_hint(&self) -> Option<&'static str> {
        None
    }

    /// Its names in other systems.
    fn synonyms(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether its values are texts that can be searched by prefix and substring.
    fn is_searchable_text(&self) -> bool {
        false
    }

    /// The maximum length of its texts, if the type itself limits it.
    fn chars_max(&self) -> Option<usize> {
        None
    }

    /// Parses a value that is not null; syntax faults go to `faults`. The function `read` checks null and the
    /// declared rules for all types.
    fn read(&self, field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value>;

    /// Further checks for new values. Stored values are exempt.
    fn refuse_new(&self, _value: &Value) -> Option<String> {
        None
    }
}

/// A mandatory key of a type.
#[derive(Debug)]
pub struct MandatoryKey {
    pub key: &'static str,
    /// The message if it is missing.
    pub missing: &'static str,
    pub help: &'static str,
}

/// The message after the name of a key that is not allowed, and the help.
pub type KeyRefusal = (&'static str, &'static str);

pub static ALL: &[&dyn FieldType] = &[
    &text::TextType,
    &email::EmailType,
    &url::UrlType,
    &integer::IntegerType,
    &number::NumberType,
    &decimal::DecimalType,
    &boolean::BooleanType,
    &date::DateType,
    &timestamp::TimestampType,
    &uuid_::UuidType,
    &ref_::ReferenceType,
    &state::StateType,
    &list::ListType,
    &object::ObjectType,
    &json_::JsonType,
];

/// The types that the built-in resources use.
pub static BOOLEAN: &dyn FieldType = &boolean::BooleanType;
pub static LIST: &dyn FieldType = &list::ListType;
pub static TEXT: &dyn FieldType = &text::TextType;
pub static USER_NAME: &dyn FieldType = &user_name::UserNameType;
pub static PASSWORD: &dyn FieldType = &password::PasswordType;

/// Finds a type by its name in the model file.
pub fn find(name: &str) -> Option<&'static dyn FieldType> {
    ALL.iter().copied().find(|kind| kind.name() == name)
}

/// Parses one value of one field: null, then the syntax of its type, then the declared rules.
pub fn read(field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
    if matches!(json, Json::Null) {
        if !field.nullable {
            faults.add(FaultCode::Null, format!("expected {}, got null", field.kind.about()));
            return None;
        }
        return Some(Value::Null);
    }
    let value = field.kind.read(field, json, faults)?;
    rules::check(field, &value, faults).then_some(value)
}

/// Parses one value of a new item.
pub fn read_new(field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
    let value = read(field, json, faults)?;
    match field.kind.refuse_new(&value) {
        None => Some(value),
        Some(fault) => {
            faults.add(FaultCode::Format, fault);
            None
        }
    }
}

/// A JSON string without NUL, for all types whose values are texts.
fn expect_text<'j>(
    json: &'j Json<'_>,
    expected: &str,
    faults: &mut FaultCollector,
) -> Option<&'j str> {
    let Json::Text(text) = json else {
        faults.add(FaultCode::Type, format!("expected {expected}, got {}", json.type_name()));
        return None;
    };
    if text.contains('\0') {
        faults.add(FaultCode::Format, "expected a text without the NUL character");
        return None;
    }
    Some(text)
}

#[cfg(test)]
mod tests;
