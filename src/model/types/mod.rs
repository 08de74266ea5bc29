//! The field types: one file each, one line each in `ALL`.
//!
//! A type reads the form of a value; `read` here looks at null and at the declared rules, which are
//! the same for all types. Nothing here knows where a value is stored or who sent it.
//! The one surprising thing: `seal` and `unseal` turn lists and objects into their canonical JSON
//! text and back, because that text is what a store keeps and what the wire shows.

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
mod seal;
mod state;
mod text;
mod timestamp;
mod url;
mod user_name;
mod uuid_;

use std::fmt;

use super::{Class, Field};
use crate::json::Json;
use crate::problem::{Code, Faults};
use crate::value::Value;
pub(in crate::model) use date::is_date;
pub use object::{add_required, add_unknown};
pub use password::PASSWORD_BYTES_MAX;
pub use seal::{seal, unseal};
pub use url::broken_escape;
pub(in crate::model) use url::{is_port, is_url};

/// What a type of field has to say for itself.
pub trait FieldType: fmt::Debug + Sync {
    /// The word in the model file.
    fn name(&self) -> &'static str;

    /// One line for editors and documents.
    fn about(&self) -> &'static str;

    /// How its values are kept.
    fn class(&self, field: &Field) -> Class;

    /// The keys it takes in the model file beyond those every field has.
    fn keys(&self) -> &'static [&'static str];

    /// Those of its keys that it cannot do without.
    fn needs(&self) -> &'static [Need] {
        &[]
    }

    /// Why a key does not fit, where there is more to say than that.
    fn refuses(&self, _key: &str) -> Option<Refusal> {
        None
    }

    /// What to use inside lists and objects; for a type that only a field of the resource itself has.
    fn instead_inside(&self) -> Option<&'static str> {
        None
    }

    /// What to use for a second field; for a type that only one field of a resource has.
    fn instead_twice(&self) -> Option<&'static str> {
        None
    }

    /// The key that makes the elements of a list values of this type without a `type`.
    fn implied_by(&self) -> Option<&'static str> {
        None
    }

    /// How an expression gets at a single value; for a type that has none itself.
    fn in_expressions(&self) -> Option<&'static str> {
        None
    }

    /// What it is called elsewhere.
    fn synonyms(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether its values are words, of which one may look for a part.
    fn is_words(&self) -> bool {
        false
    }

    /// The length of its longest text, where the type itself sets one.
    fn chars_max(&self) -> Option<usize> {
        None
    }

    /// Reads a value that is not null; what is wrong with its form goes to `faults`.
    /// Null and the declared rules are looked at by `read`, for all types alike.
    fn read(&self, field: &Field, json: &Json<'_>, faults: &mut Faults) -> Option<Value>;

    /// What is wrong with a value that is new, beside what `read` finds. What is stored already may stay.
    fn refuse_new(&self, _value: &Value) -> Option<String> {
        None
    }
}

/// A key that a field of some type cannot do without.
#[derive(Debug)]
pub struct Need {
    pub key: &'static str,
    /// What to say when it is not there.
    pub missing: &'static str,
    pub help: &'static str,
}

/// What is wrong with a key, said after its name, and what to do about it.
pub type Refusal = (&'static str, &'static str);

pub static ALL: &[&dyn FieldType] = &[
    &text::Text,
    &email::Email,
    &url::Url,
    &integer::Integer,
    &number::Number,
    &decimal::Decimal,
    &boolean::Boolean,
    &date::Date,
    &timestamp::Timestamp,
    &uuid_::Uuid,
    &ref_::Ref,
    &state::State,
    &list::List,
    &object::Object,
    &json_::AnyJson,
];

/// Those that the server's own resources are made of.
pub(in crate::model) static BOOLEAN: &dyn FieldType = &boolean::Boolean;
pub(in crate::model) static LIST: &dyn FieldType = &list::List;
pub(in crate::model) static TEXT: &dyn FieldType = &text::Text;
pub(in crate::model) static USER_NAME: &dyn FieldType = &user_name::UserName;
pub(in crate::model) static PASSWORD: &dyn FieldType = &password::Password;

/// Finds a type by its word in the model file.
pub fn find(name: &str) -> Option<&'static dyn FieldType> {
    ALL.iter().copied().find(|kind| kind.name() == name)
}

/// Reads one value of one field: null, then the form of its type, then the declared rules.
pub fn read(field: &Field, json: &Json<'_>, faults: &mut Faults) -> Option<Value> {
    if matches!(json, Json::Null) {
        if !field.nullable {
            faults.add(Code::Null, format!("expected {}, got null", field.kind.about()));
            return None;
        }
        return Some(Value::Null);
    }
    let value = field.kind.read(field, json, faults)?;
    rules::check(field, &value, faults).then_some(value)
}

/// Reads one value of a new item.
pub fn read_new(field: &Field, json: &Json<'_>, faults: &mut Faults) -> Option<Value> {
    let value = read(field, json, faults)?;
    match field.kind.refuse_new(&value) {
        None => Some(value),
        Some(fault) => {
            faults.add(Code::Format, fault);
            None
        }
    }
}

/// A JSON text without NUL, for all types whose values are texts.
fn expect_text<'j>(json: &'j Json<'_>, expected: &str, faults: &mut Faults) -> Option<&'j str> {
    let Json::Text(text) = json else {
        faults.add(Code::Type, format!("expected {expected}, got {}", json.kind()));
        return None;
    };
    if text.contains('\0') {
        faults.add(Code::Format, "expected a text without the NUL character");
        return None;
    }
    Some(text)
}

#[cfg(test)]
mod tests;
