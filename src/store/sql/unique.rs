//! Unique rules as SQL: their columns, the names of their indexes, and the rule that an error names.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::fault::OrBug;
use crate::model::{Resource, StorageClass, UniqueRule, UniqueScope};
use crate::store::sql::columns::quote_name;
use crate::store::sql::dialect::Dialect;

/// PostgreSQL truncates longer names, and two of them could collide.
pub const NAME_BYTES_MAX: usize = 63;

/// The prefix of an index's name. The indexes of built-in tables have another one: startup does not reconcile
/// them, and an older program that does not know the table leaves them alone.
pub fn index_prefix(resource: &Resource) -> String {
    let ours = if resource.is_builtin { "" } else { "nouns." };
    format!("{ours}{}", resource.table)
}

/// Whether a column holds text of any length.
pub fn is_text_column(resource: &Resource, column: &str) -> bool {
    let mut fields = resource.fields.iter();
    fields.any(|field| {
        &*field.name == column
            && field.storage_class() == StorageClass::Text
            && field.rules.reference.is_none()
    })
}

/// The condition that a column equals a parameter, in the form that the index of a unique rule can serve.
/// `table` is the prefix of the column's name.
pub fn equals_parameter(
    resource: &Resource,
    (table, column): (&str, &str),
    number: usize,
    dialect: &Dialect,
) -> String {
    let name = format!("{table}{}", quote_name(column));
    let parameter = format!("{}{number}", dialect.placeholder);
    let digest = (dialect.unique_expression)(&name);
    if digest == name || !is_text_column(resource, column) {
        return format!("{name} = {parameter}");
    }
    format!("{name} = {parameter} AND {digest} = {}", (dialect.unique_expression)(&parameter))
}

/// The columns of a unique rule: its fields, and before them the parent, if the rule is scoped to one.
pub fn unique_columns<'a>(resource: &'a Resource, unique: &UniqueRule) -> Vec<&'a str> {
    let within = match unique.scope {
        UniqueScope::Resource => None,
        UniqueScope::Parent => resource.parent_key.as_deref(),
    };
    let name = |at: &usize| {
        &*resource.fields.get(*at).or_bug("a unique rule has fields of its resource").name
    };
    within.into_iter().chain(unique.fields.iter().map(name)).collect()
}

pub fn unique_index_name(resource: &Resource, unique: &UniqueRule) -> String {
    let (word, skipped) = match unique.scope {
        UniqueScope::Resource => ("unique", 0),
        UniqueScope::Parent => ("unique_in_parent", 1),
    };
    let columns = unique_columns(resource, unique);
    let names = columns.get(skipped..).unwrap_or_default().join(".");
    format!("{}.{word}.{names}", index_prefix(resource))
}

/// Truncates a long name and appends a digest of it.
pub fn truncate_name(name: String) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    let digest = Sha256::digest(name.as_bytes());
    let mut text = name;
    text.truncate(NAME_BYTES_MAX - 17);
    text.push('~');
    for byte in digest.iter().take(8) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The unique rule of an error message: PostgreSQL names the index, SQLite its columns (`orders.a,
/// orders.b`).
pub fn violated_unique_rule<'a>(resource: &'a Resource, message: &str) -> Option<&'a UniqueRule> {
    let list = message.split_once(": ").map_or("", |(_, list)| list);
    let clashing: Vec<&str> =
        list.split(", ").filter_map(|name| name.split_once('.')).map(|(_, c)| c).collect();
    resource.unique.iter().find(|unique| {
        truncate_name(unique_index_name(resource, unique)) == message
            || unique_columns(resource, unique) == clashing
    })
}

/// Whether a PostgreSQL index belongs to a unique rule of the resource, in this model or another one.
pub fn is_unique_index(resource: &Resource, index: &str) -> bool {
    let rule = index.strip_prefix(&index_prefix(resource)).and_then(|rest| rest.strip_prefix('.'));
    rule.is_some_and(|rule| rule.starts_with("unique"))
}
