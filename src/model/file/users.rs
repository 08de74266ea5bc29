//! The declared fields of users: `[users.fields]`. Row filters compare them as `$user.tenant`.

use super::field::{self, FieldContext};
use super::field_keys::FieldPosition;
use super::keys;
use super::resource_names::{ResourceNames, SYSTEM_COLUMNS, SYSTEM_FIELDS};
use super::toml_tree::TomlTable;
use crate::model::builtin::OWN_USER_FIELDS;
use crate::model::field::{Field, StorageClass};

/// Keys of fields that those of users cannot have: any user may be without a value, and only admins look for users.
const REFUSED_KEYS: [&str; 7] =
    ["required", "default", "filter", "unique", "computed", "renamed_from", "deprecated"];

pub fn read<'t>(root: &TomlTable<'t>, names: &ResourceNames<'t>) -> Vec<Field> {
    let Some(table) = root.table("users") else { return Vec::new() };
    table.check(&keys::USERS);
    let Some(entry) = table.find("fields") else { return Vec::new() };
    let position = FieldPosition::Object { in_list: false };
    let (fields, _) =
        field::read_all(entry, FieldContext { names, user_fields: &[], position, level: 0 });
    let entries = entry.table().unwrap_or_default().entries;
    for entry in &entries {
        let name = entry.key.value;
        let mut reserved = OWN_USER_FIELDS.iter().chain(SYSTEM_FIELDS).chain(SYSTEM_COLUMNS);
        if reserved.any(|one| *one == name) {
            let message = format!("`{name}` cannot be a field of users: they have it already");
            entry.key.refuse_with_help(message, "choose another name");
        }
        let Some(table) = entry.table() else { continue };
        for key in REFUSED_KEYS.iter().filter_map(|key| table.find(key)) {
            let message = format!("`{}` is not for fields of users", key.key.value);
            key.key.refuse_with_help(message, "take it out: any user may be without a value");
        }
    }
    for field in fields.iter().filter(|field| field.storage_class() == StorageClass::Json) {
        if let Some(entry) = entries.iter().find(|entry| entry.key.value == &*field.name) {
            let message = format!("a field of users has one value, not a `{}`", field.kind.name);
            entry.key.refuse(message);
        }
    }
    fields
}
