//! DDL: tables, columns and indexes of a model; and the statements of the key-value table `nouns_system`.

use std::fmt::Write;

use crate::fault::{self, OrBug};
use crate::model::derivation::Derivation;
use crate::model::{Field, Model, OnDelete, Resource, StorageClass, types};
use crate::store::sql::columns::{placeholders, quote_name};
use crate::store::sql::derived::{DerivedColumn, derived_columns, derived_from};
use crate::store::sql::dialect::Dialect;
use crate::store::sql::operand::index_expression;
use crate::store::sql::unique::{
    NAME_BYTES_MAX, index_prefix, is_text_column, truncate_name, unique_columns, unique_index_name,
};
use crate::value::{IdKind, Value};

/// Writes a value. 1: name, 2: value.
pub fn upsert_system_value(dialect: &Dialect) -> String {
    let values = placeholders(dialect, 1, 2);
    format!(
        "INSERT INTO nouns_system (name, value) VALUES ({values}) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    )
}

/// Writes a value, unless there is one. 1: name, 2: value.
pub fn insert_system_value_if_absent(dialect: &Dialect) -> String {
    let values = placeholders(dialect, 1, 2);
    format!(
        "INSERT INTO nouns_system (name, value) VALUES ({values}) ON CONFLICT (name) DO NOTHING"
    )
}

/// Deletes a value. 1: name.
pub fn delete_system_value(dialect: &Dialect) -> String {
    format!("DELETE FROM nouns_system WHERE name = {}1", dialect.placeholder)
}

/// Reads a value. 1: name.
pub fn select_system_value(dialect: &Dialect) -> String {
    format!("SELECT value FROM nouns_system WHERE name = {}1", dialect.placeholder)
}

pub fn drop_index(name: &str) -> String {
    format!("DROP INDEX {}", quote_name(name))
}

pub fn drop_table(name: &str) -> String {
    format!("DROP TABLE {}", quote_name(name))
}

pub fn rename_table(from: &str, to: &str) -> String {
    format!("ALTER TABLE {} RENAME TO {}", quote_name(from), quote_name(to))
}

pub fn drop_column(table: &str, column: &str) -> String {
    format!("ALTER TABLE {} DROP COLUMN {}", quote_name(table), quote_name(column))
}

/// `table` is quoted already.
pub fn drop_constraint(table: &str, name: &str) -> String {
    format!("ALTER TABLE {table} DROP CONSTRAINT {}", quote_name(name))
}

pub fn create_table(model: &Model, resource: &Resource, dialect: &Dialect) -> String {
    let (key, table) = match resource.id {
        IdKind::Uuid => (dialect.uuid_key, dialect.uuid_table_options),
        IdKind::Integer => (dialect.integer_key, dialect.integer_table_options),
    };
    let moment = (dialect.column_type)(StorageClass::Moment);
    let version = (dialect.column_type)(StorageClass::Integer);
    let mut text = format!("CREATE TABLE {} (\n  \"id\" {key}", quote_name(&resource.table));
    let parent = resource.parent.map(|index| model.resource(index));
    if let (Some(parent), Some(key)) = (parent, &resource.parent_key) {
        let (column, kind) = (quote_name(key), id_column_type(parent.id, dialect));
        let _ = write!(text, ",\n  {column} {kind} NOT NULL");
        if !dialect.has_separate_foreign_keys && resource.on_delete != OnDelete::DeleteLater {
            text.push_str(&references_clause(parent));
        }
    }
    let _ = write!(
        text,
        ",\n  \"created_at\" {moment} NOT NULL,\n  \"updated_at\" {moment} NOT NULL,\n  \"version\" {version} NOT NULL"
    );
    for field in &resource.fields {
        let _ = write!(text, ",\n  {}", column_definition(model, &field.name, field, dialect));
    }
    for derived in derived_columns(resource) {
        let _ = write!(text, ",\n  {}", derived_definition(derived, dialect));
    }
    text.push_str("\n)");
    text.push_str(table);
    text
}

/// The types of a table's columns, in their canonical order.
pub fn column_types(model: &Model, resource: &Resource, dialect: &Dialect) -> Vec<&'static str> {
    let [moment, version] = [StorageClass::Moment, StorageClass::Integer].map(dialect.column_type);
    let parent = resource.parent.map(|index| id_column_type(model.resource(index).id, dialect));
    let fields = resource.fields.iter().map(|field| field_column_type(field, dialect));
    [id_column_type(resource.id, dialect)]
        .into_iter()
        .chain(parent)
        .chain([moment, moment, version])
        .chain(fields)
        .chain(derived_columns(resource).map(|_| (dialect.column_type)(StorageClass::Text)))
        .collect()
}

fn derived_definition(derived: DerivedColumn<'_>, dialect: &Dialect) -> String {
    format!("{} {}", quote_name(&derived.name()), (dialect.column_type)(StorageClass::Text))
}

/// Adds the column of a derived text, without values.
pub fn add_derived_column(table: &str, derived: DerivedColumn<'_>, dialect: &Dialect) -> String {
    let definition = derived_definition(derived, dialect);
    format!("ALTER TABLE {} ADD COLUMN {definition}", quote_name(table))
}

/// The server enforces the rules of a field, the table does not, so that loosening a rule needs no migration. A
/// foreign key is checked at commit.
pub fn column_definition(model: &Model, name: &str, field: &Field, dialect: &Dialect) -> String {
    let (name, kind) = (quote_name(name), field_column_type(field, dialect));
    match field.rules.reference {
        Some(target) if !dialect.has_separate_foreign_keys => {
            let references = references_clause(model.resource(target.resource));
            format!("{name} {kind}{references}{DEFERRED}")
        }
        _ => format!("{name} {kind}"),
    }
}

/// Items that refer to each other can be deleted together.
const DEFERRED: &str = " DEFERRABLE INITIALLY DEFERRED";

fn references_clause(to: &Resource) -> String {
    format!(" REFERENCES {} (\"id\")", quote_name(&to.table))
}

/// A foreign key that is added to an existing table.
#[derive(Debug, PartialEq, Eq)]
pub struct ForeignKey {
    pub name: String,
    table: String,
    add: String,
}

impl ForeignKey {
    /// The statement for a table without rows.
    pub fn add(&self) -> &str {
        &self.add
    }

    /// The statement for a table with rows: only later writes are checked, existing rows are not (`NOT
    /// VALID`).
    pub fn add_unvalidated(&self) -> String {
        format!("{} NOT VALID", self.add)
    }

    /// The statement that validates the existing rows. Reads and writes are not blocked.
    pub fn validate(&self) -> String {
        format!("ALTER TABLE {} VALIDATE CONSTRAINT {}", self.table, quote_name(&self.name))
    }
}

/// The name of the foreign key of a column, and the name that PostgreSQL chose in earlier versions, which
/// gave it no name.
pub fn foreign_key_names(resource: &Resource, column: &str) -> [String; 2] {
    let name = truncate_name(format!("{}.foreign_key.{column}", index_prefix(resource)));
    [name, postgres_foreign_key_name(&resource.table, column)]
}

/// PostgreSQL truncates the longer of both until the name fits (`makeObjectName`). Names are ASCII.
fn postgres_foreign_key_name(table: &str, column: &str) -> String {
    const END: &str = "_fkey";
    let bytes_max = NAME_BYTES_MAX - END.len() - 1;
    let (mut table, mut column) = (table.to_owned(), column.to_owned());
    while table.len() + column.len() > bytes_max {
        let longer = if table.len() > column.len() { &mut table } else { &mut column };
        longer.pop();
    }
    format!("{table}_{column}{END}")
}

/// The foreign keys of a new table, or of one new field, where they are added separately from their tables.
pub fn foreign_keys(
    model: &Model,
    resource: &Resource,
    field: Option<&Field>,
    dialect: &Dialect,
) -> Vec<ForeignKey> {
    if !dialect.has_separate_foreign_keys {
        return Vec::new();
    }
    let has_parent_key = field.is_none() && resource.on_delete != OnDelete::DeleteLater;
    let parent = resource.parent.filter(|_| has_parent_key).zip(resource.parent_key.as_deref());
    let parent = parent.map(|(parent, key)| (key, parent, ""));
    let fields = resource.fields.iter().filter(|one| field.is_none_or(|new| new.name == one.name));
    let targets = fields.filter_map(|field| Some((&*field.name, field.rules.reference?, DEFERRED)));
    let targets = targets.map(|(name, target, when)| (name, target.resource, when));
    let key = |(column, to, when): (&str, _, _)| {
        let [name, _] = foreign_key_names(resource, column);
        let (table, quoted_name, column) =
            (quote_name(&resource.table), quote_name(&name), quote_name(column));
        let references = references_clause(model.resource(to));
        let add = format!(
            "ALTER TABLE {table} ADD CONSTRAINT {quoted_name} FOREIGN KEY ({column}){references}{when}"
        );
        ForeignKey { name, table, add }
    };
    parent.into_iter().chain(targets).map(key).collect()
}

fn field_column_type(field: &Field, dialect: &Dialect) -> &'static str {
    match field.rules.reference {
        None => (dialect.column_type)(field.storage_class()),
        Some(target) => id_column_type(target.id, dialect),
    }
}

pub fn id_column_type(kind: IdKind, dialect: &Dialect) -> &'static str {
    match kind {
        IdKind::Uuid => dialect.uuid_column,
        IdKind::Integer => (dialect.column_type)(StorageClass::Integer),
    }
}

/// The statements that add the columns of a field. Existing rows get the default.
pub fn add_columns(
    model: &Model,
    resource: &Resource,
    field: &Field,
    dialect: &Dialect,
) -> Vec<String> {
    let derived = derived_from(0, field).map(|derived| {
        let default = match &field.default {
            Some(Value::Text(text)) => {
                let text = Value::text(&derived.derivation.derive(text));
                format!(" DEFAULT {}", literal(&text, dialect))
            }
            _ => String::new(),
        };
        add_derived_column(&resource.table, derived, dialect) + &default
    });
    [add_column(model, resource, field, dialect)].into_iter().chain(derived).collect()
}

/// The statement that adds the column of a field, without its derived columns. Existing rows get the default.
pub fn add_column(model: &Model, resource: &Resource, field: &Field, dialect: &Dialect) -> String {
    let default = field.default.clone().map(types::canonicalize);
    let default =
        default.map_or_else(String::new, |value| format!(" DEFAULT {}", literal(&value, dialect)));
    let table = quote_name(&resource.table);
    let column = column_definition(model, &field.name, field, dialect);
    format!("ALTER TABLE {table} ADD COLUMN {column}{default}")
}

/// A constant of the model as an SQL literal: the only value that is not bound, because DDL has no
/// parameters.
pub fn literal(value: &Value, dialect: &Dialect) -> String {
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match value {
        Value::Null => "NULL".to_owned(),
        Value::List(_) | Value::Object(_) | Value::ClearText(_) => {
            fault::bug("a default is canonical, and no secret has one")
        }
        Value::Boolean(boolean) => {
            let [no, yes] = dialect.booleans;
            if *boolean { yes } else { no }.to_owned()
        }
        Value::Integer(number) => number.to_string(),
        Value::Decimal(decimal) => decimal.units.to_string(),
        Value::Number(number) => format!("{number:e}"),
        Value::Text(value) | Value::Json(value) => text(value),
        Value::Moment(moment) => text(&moment.to_string()),
    }
}

/// An index that the model asks for. Its name states its whole definition, so that a different index has a
/// different name.
#[derive(Debug, PartialEq, Eq)]
pub struct IndexDefinition {
    pub name: String,
    pub create: String,
}

/// All indexes of a resource: for its parent, filters, references and unique rules.
pub fn indexes(resource: &Resource, dialect: &Dialect) -> Vec<IndexDefinition> {
    let mut indexes = Vec::new();
    push_list_indexes(&mut indexes, resource, IndexScope::Nested, dialect);
    // Also with `flat = false`: row filters and filters by related items search across parents too.
    if resource.parent.is_some() && !resource.is_builtin {
        push_list_indexes(&mut indexes, resource, IndexScope::Flat, dialect);
    }
    let references = resource.fields.iter().filter(|field| field.rules.reference.is_some());
    for field in references {
        let columns = [&*field.name, "id"].map(quote_name);
        let name = format!("{}.ref.{}", index_prefix(resource), field.name);
        indexes.push(index_definition(resource, ("", name), &columns));
    }
    for unique in &resource.unique {
        let name = unique_index_name(resource, unique);
        let column = |column: &str| match is_text_column(resource, column) {
            true => (dialect.unique_expression)(&quote_name(column)),
            false => quote_name(column),
        };
        let columns: Vec<String> =
            unique_columns(resource, unique).into_iter().map(column).collect();
        indexes.push(index_definition(resource, ("UNIQUE ", name), &columns));
    }
    indexes
}

/// Whose lists an index serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexScope {
    /// The collection below a parent, or that of a resource without one.
    Nested,
    /// The items of all parents.
    Flat,
}

/// Columns are quoted.
fn index_definition(
    resource: &Resource,
    (unique, name): (&str, String),
    columns: &[String],
) -> IndexDefinition {
    let (name, columns) = (truncate_name(name), columns.join(", "));
    let (quoted_name, table) = (quote_name(&name), quote_name(&resource.table));
    IndexDefinition {
        create: format!("CREATE {unique}INDEX {quoted_name} ON {table} ({columns})"),
        name,
    }
}

/// The indexes for filtering and sorting.
fn push_list_indexes(
    indexes: &mut Vec<IndexDefinition>,
    resource: &Resource,
    scope: IndexScope,
    dialect: &Dialect,
) {
    let parent = resource.parent_key.as_deref().filter(|_| scope == IndexScope::Nested);
    let parent = parent.map(quote_name);
    let flat = if scope == IndexScope::Flat { "flat_" } else { "" };
    let (prefix, id) = (index_prefix(resource), quote_name("id"));
    let mut push = |rest: &str, column: Option<String>| {
        let columns = parent.iter().cloned().chain(column).chain([id.clone()]);
        let columns: Vec<String> = columns.collect();
        indexes.push(index_definition(resource, ("", format!("{prefix}.{flat}{rest}")), &columns));
    };
    if parent.is_some() {
        push("parent", None);
    }
    // A UUIDv7 sorts by creation time, so it needs no such index.
    if !resource.is_builtin && resource.id == IdKind::Integer {
        push("created", Some(quote_name("created_at")));
    }
    // The unique index on the name serves lookups of users, and there are few webhooks.
    if !resource.is_builtin || resource.parent.is_some() {
        for field in &resource.fields {
            push_filter_indexes(&mut push, (field, &mut Vec::new()), dialect);
        }
    }
    for derived in derived_columns(resource).filter(|one| one.derivation == Derivation::SortKey) {
        push(&format!("order.{}", derived.field.name), Some(quote_name(&derived.name())));
    }
}

/// The indexes of a field and its nested fields.
fn push_filter_indexes(
    push: &mut impl FnMut(&str, Option<String>),
    (column, inner): (&Field, &mut Vec<Box<str>>),
    dialect: &Dialect,
) {
    let field = column.inner(inner).or_bug("the path was made from the fields");
    for next in &field.rules.fields {
        inner.push(next.name.clone());
        push_filter_indexes(push, (column, &mut *inner), dialect);
        inner.pop();
    }
    let found = index_expression(dialect, column, inner).filter(|_| field.filter);
    let Some((found, is_cut)) = found else { return };
    let word = if is_cut { dialect.sort_prefix_word } else { "filter" };
    let names = [&column.name].into_iter().chain(inner.iter());
    let names = names.map(|name| &**name).collect::<Vec<_>>().join(".");
    push(&format!("{word}.{names}"), Some(found));
}

/// The name of the link table of a field of type `refs`. No resource has a name with a dot.
pub fn link_table(resource: &Resource, field: &Field) -> String {
    truncate_name(format!("{}.{}", resource.table, field.name))
}

fn is_link_table_of(resource: &Resource, table: &str) -> bool {
    let mut linked = resource.fields.iter().filter(|field| field.many_references().is_some());
    linked.any(|field| link_table(resource, field) == table)
}

/// Whether a foreign key has the name of one that the model asks for.
pub fn is_declared_foreign_key(model: &Model, table: &str, key: &str) -> bool {
    if model.declared().any(|resource| is_link_table_of(resource, table)) {
        return true;
    }
    let Some(resource) = model.declared().find(|resource| &*resource.table == table) else {
        return false;
    };
    let fields = resource.fields.iter().filter(|field| field.rules.reference.is_some());
    let mut columns =
        resource.parent_key.as_deref().into_iter().chain(fields.map(|field| &*field.name));
    columns.any(|column| foreign_key_names(resource, column).iter().any(|name| name == key))
}
