//! Which keys a field allows: by its type, by its position, and by its other keys.
//!
//! Only names are checked here. The JSON Schema uses the same functions as the reader, so that an editor
//! suggests what the reader accepts.

use super::keys;
use super::toml_tree::TomlTable;
use crate::model::field::{FieldType, KeyRefusal};
use crate::model::report::{Mistakes, join_with_and};

/// The position of a field. Each position allows fewer keys than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldPosition {
    Resource,
    /// `in_list`: the object is inside a list, at any level.
    Object {
        in_list: bool,
    },
    /// The element of a list.
    Element,
}

impl FieldPosition {
    /// The position of the fields of an object at this position.
    pub fn inside_object(self) -> Self {
        let in_list = match self {
            Self::Resource => false,
            Self::Object { in_list } => in_list,
            Self::Element => true,
        };
        Self::Object { in_list }
    }
}

/// Whether a type is allowed at a position.
pub fn is_type_allowed(place: FieldPosition, kind: &FieldType) -> bool {
    place == FieldPosition::Resource || kind.replacement_when_nested.is_none()
}

/// Whether a field of a type allows a key at a position.
pub fn is_key_allowed(place: FieldPosition, kind: &FieldType, key: &str) -> bool {
    has_key(kind, key) && position_refusal(key, kind, false, place).is_none()
}

fn has_key(kind: &FieldType, key: &str) -> bool {
    keys::FIELD_COMMON.contains(&key) || kind.keys.contains(&key)
}

/// Adds a mistake for every key of a field that is not allowed.
pub fn check(
    table: &TomlTable<'_>,
    kind: &FieldType,
    place: FieldPosition,
    mistakes: &mut Mistakes,
) {
    let computed = table.find("computed").is_some();
    let name = kind.name;
    for entry in table.entries() {
        let (key, span) = (entry.key, entry.key_span.clone());
        if let Some(help) = keys::reserved_key_help(key) {
            mistakes.add_reserved(span, key, help);
            continue;
        }
        let reason = if has_key(kind, key) {
            position_refusal(key, kind, computed, place)
        } else {
            (kind.key_refusal)(key)
        };
        let known = keys::FIELD_COMMON.iter().chain(kind.keys).copied();
        if let Some((message, help)) = reason {
            mistakes.add_with_help(span, format!("`{key}` {message}"), help);
        } else if has_key(kind, key) {
            continue;
        } else if keys::names(keys::FIELD).any(|known| known == key) {
            let help = format!(
                "a field of type `{name}` takes {}",
                join_with_and(&known.collect::<Vec<_>>())
            );
            mistakes.add_with_help(
                span,
                format!("`{key}` does not fit a field of type `{name}`"),
                help,
            );
        } else {
            let message = format!("unknown key `{key}`: a field of type `{name}` has no such key");
            mistakes.add_unknown(span, message, key, known);
        }
    }
}

/// Adds a mistake for every key that no field has, when the type of this one is unknown.
pub fn check_without_type(table: &TomlTable<'_>, mistakes: &mut Mistakes) {
    let known = || keys::names(keys::FIELD);
    for entry in table.entries() {
        let (key, span) = (entry.key, entry.key_span.clone());
        if let Some(help) = keys::reserved_key_help(key) {
            mistakes.add_reserved(span, key, help);
        } else if !known().any(|name| name == key) {
            let message = format!("unknown key `{key}`: no field has such a key");
            mistakes.add_unknown(span, message, key, known());
        }
    }
}

/// Why a key that the type allows is not allowed at this position.
fn position_refusal(
    key: &str,
    kind: &FieldType,
    computed: bool,
    place: FieldPosition,
) -> Option<KeyRefusal> {
    match (place, key) {
        (
            FieldPosition::Element,
            "required" | "nullable" | "default" | "deprecated" | "unique" | "filter",
        ) => Some((
            "says nothing about an element of a list",
            "elements are always there and never null; take it out",
        )),
        (FieldPosition::Element | FieldPosition::Object { .. }, "computed") => Some((
            "works on fields of the resource itself",
            "compute it there, with `sum` where a list is involved",
        )),
        (FieldPosition::Object { .. }, "unique") => Some((
            "works on fields of the resource itself",
            "move the field out of the object, or take this out",
        )),
        (FieldPosition::Object { in_list: true }, "filter") => Some((
            "cannot reach into a list",
            "only fields of the resource and of objects in it can be filtered",
        )),
        (_, "required" | "default" | "min" | "max" | "one_of") if computed => Some((
            "does not fit a computed field",
            "the server makes its value, nobody sends it; take it out",
        )),
        (_, key) => (kind.key_refusal)(key),
    }
}
