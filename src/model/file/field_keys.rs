//! Which keys a field allows: by its type, by its position, and by its other keys.
//!
//! Only names are checked here. The JSON Schema uses the same functions as the reader, so that an editor
//! suggests what the reader accepts.

use super::keys;
use super::toml_tree::{TomlEntry, TomlTable};
use crate::model::field::{FieldType, KeyRefusal};
use crate::model::report::join_with_and;

/// The key of the version of the texts that are derived from a field, in the stored model only.
pub const DERIVED_VERSION_KEY: &str = "derived_version";

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
        let in_list = matches!(self, Self::Element | Self::Object { in_list: true });
        Self::Object { in_list }
    }
}

/// Whether a type is allowed at a position.
pub fn is_type_allowed(position: FieldPosition, kind: &FieldType) -> bool {
    position == FieldPosition::Resource || kind.replacement_when_nested.is_none()
}

/// Whether a field of a type allows a key at a position.
pub fn is_key_allowed(position: FieldPosition, kind: &FieldType, key: &str) -> bool {
    has_key(kind, key) && position_refusal(key, kind, false, position).is_none()
}

pub fn has_key(kind: &FieldType, key: &str) -> bool {
    keys::FIELD_COMMON.contains(&key) || kind.keys.contains(&key)
}

/// Adds a mistake for every key of a field that is not allowed.
pub fn check(table: &TomlTable<'_>, kind: &FieldType, position: FieldPosition) {
    let is_computed = table.find("computed").is_some();
    let name = kind.name;
    let known = keys::FIELD_COMMON.iter().chain(kind.keys).copied();
    for TomlEntry { key, .. } in
        table.entries.iter().filter(|entry| !entry.key.refuse_reserved_key())
    {
        let word = key.value;
        if word == DERIVED_VERSION_KEY && key.is_in_shape() {
            continue;
        }
        let reason = match has_key(kind, word) {
            true => position_refusal(word, kind, is_computed, position),
            false => (kind.key_refusal)(word),
        };
        if let Some((message, help)) = reason {
            key.refuse_with_help(format!("`{word}` {message}"), help);
        } else if has_key(kind, word) {
            continue;
        } else if keys::FIELD.names().any(|known| known == word) {
            let message = format!("`{word}` does not fit a field of type `{name}`");
            let takes = join_with_and(&known.clone().collect::<Vec<_>>());
            key.refuse_with_help(message, format!("a field of type `{name}` takes {takes}"));
        } else {
            let message = format!("unknown key `{word}`: a field of type `{name}` has no such key");
            key.refuse_unknown(message, known.clone());
        }
    }
}

/// Adds a mistake for every key that no field has, when the type of this one is unknown.
pub fn check_without_type(table: &TomlTable<'_>) {
    table.refuse_unknown_keys("no field has such a key", &keys::FIELD.names());
}

/// Why a key that the type allows is not allowed at this position.
fn position_refusal(
    key: &str,
    kind: &FieldType,
    is_computed: bool,
    position: FieldPosition,
) -> Option<KeyRefusal> {
    match (position, key) {
        (
            FieldPosition::Element,
            "required" | "nullable" | "default" | "deprecated" | "unique" | "filter" | "match"
            | "order" | "renamed_from" | "fill",
        ) => Some((
            "says nothing about an element of a list",
            "elements are always there and never null; take it out",
        )),
        (FieldPosition::Element | FieldPosition::Object { .. }, "computed") => Some((
            "works on fields of the resource itself",
            "compute it there, with `sum` where a list is involved",
        )),
        (FieldPosition::Object { .. }, "unique" | "match" | "order") => Some((
            "works on fields of the resource itself",
            "move the field out of the object, or take this out",
        )),
        (FieldPosition::Object { in_list: true }, "filter") => Some((
            "cannot reach into a list",
            "only fields of the resource and of objects in it can be filtered",
        )),
        (
            _,
            "required" | "default" | "min" | "max" | "min_length" | "max_length" | "pattern"
            | "one_of" | "fill",
        ) if is_computed => Some((
            "does not fit a computed field",
            "the server makes its value, nobody sends it; take it out",
        )),
        (_, key) => (kind.key_refusal)(key),
    }
}
