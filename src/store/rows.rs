//! Mapping between items and rows.
//!
//! The columns are in the order of `sql::columns`: id, parent, times, version, fields.

use std::borrow::Cow;

use crate::fault::OrBug;
use crate::model::{Field, Model, Resource, StorageClass, UniqueRule, UniqueScope, types};
use crate::store::error::InternalError;
use crate::store::sql::derived::{DerivedColumn, changed_derived, derived_columns};
use crate::store::sql::insert::ENTRY_BINDS;
use crate::store::statement::{Bind, Columns};
use crate::value::{Decimal, Id, IdKind, Item, Value};

/// The parameters of an INSERT, with capacity for a change log entry after them.
pub fn insert_binds<'a>(resource: &Resource, item: &'a Item) -> Vec<Bind<'a>> {
    let mut binds = Vec::with_capacity(item.values.len() + 5 + ENTRY_BINDS);
    binds.push(Bind::Id(item.id));
    binds.extend(item.parent.map(Bind::Id));
    binds.extend([
        Bind::Moment(item.created_at),
        Bind::Moment(item.updated_at),
        Bind::Integer(item.version),
    ]);
    binds.extend(
        item.values.iter().zip(&resource.fields).map(|(value, field)| bind_field(field, value)),
    );
    binds.extend(derived_columns(resource).map(|derived| bind_derived(derived, &item.values)));
    binds
}

/// The text that is derived from a value of an item.
pub fn bind_derived<'a>(derived: DerivedColumn<'_>, values: &'a [Value]) -> Bind<'a> {
    match values.get(derived.at) {
        Some(Value::Text(text)) => Bind::Derived(derived.derivation, text),
        _ => Bind::Null,
    }
}

/// The parameters of an UPDATE, with capacity for a change log entry after them.
pub fn update_binds<'a>(
    resource: &Resource,
    before: &Item,
    after: &'a Item,
    changed: &[usize],
) -> Vec<Bind<'a>> {
    let mut binds = Vec::with_capacity(changed.len() + 4 + ENTRY_BINDS);
    binds.extend([Bind::Id(after.id), Bind::Integer(before.version)]);
    binds.extend([Bind::Moment(after.updated_at), Bind::Integer(after.version)]);
    binds.extend(changed.iter().map(|index| bind_value(resource, after, *index)));
    let derived = changed_derived(resource, changed);
    binds.extend(derived.map(|derived| bind_derived(derived, &after.values)));
    binds
}

/// The parameters of a unique rule's columns, in order; `None` if one of them is null.
pub fn unique_binds<'a>(
    resource: &Resource,
    unique: &UniqueRule,
    item: &'a Item,
) -> Option<Vec<Bind<'a>>> {
    let parent = match unique.scope {
        UniqueScope::Resource => None,
        UniqueScope::Parent => item.parent.map(Bind::Id),
    };
    let mut binds = Vec::from_iter(parent);
    for at in &unique.fields {
        match bind_value(resource, item, *at) {
            Bind::Null => return None,
            value => binds.push(value),
        }
    }
    Some(binds)
}

/// A value of an item, by the index of its field.
fn bind_value<'a>(resource: &Resource, item: &'a Item, at: usize) -> Bind<'a> {
    let value = resource.fields.get(at).zip(item.values.get(at));
    let (field, value) = value.or_bug("an item has a value for each field of its resource");
    bind_field(field, value)
}

/// A reference is stored as an id, not as text.
pub fn bind_field<'a>(field: &Field, value: &'a Value) -> Bind<'a> {
    match value {
        Value::Text(text) if field.rules.reference.is_some() => {
            IdKind::Uuid.parse(text).map_or(Bind::Text(text), Bind::Id)
        }
        value => Bind::value(value),
    }
}

/// Decodes a row into an item. The error of a damaged row names its id.
pub fn read_item(
    model: &Model,
    resource: &Resource,
    row: &dyn Columns,
) -> Result<Item, InternalError> {
    read_columns(model, resource, row).map_err(|InternalError(cause)| {
        damaged_item(resource, row.id(0, resource.id).unwrap_or_default(), &cause)
    })
}

/// The item with its invalid JSON texts as strings: what another program has damaged must not damage the change
/// log too.
pub fn with_valid_json(item: &Item) -> Cow<'_, Item> {
    let is_invalid =
        |value: &Value| matches!(value, Value::Json(text) if !types::is_valid_json(text));
    if !item.values.iter().any(is_invalid) {
        return Cow::Borrowed(item);
    }
    let values = item.values.iter().map(|value| match value {
        Value::Json(text) if is_invalid(value) => Value::Text(text.clone()),
        value => value.clone(),
    });
    Cow::Owned(Item { values: values.collect(), ..item.clone() })
}

/// Checks the lists and objects of an item that a decision depends on. Other reads copy their text unchanged;
/// a decision parses it, and must not take a damaged value for null and store that.
pub fn check_lists_and_objects(resource: &Resource, item: &Item) -> Result<(), InternalError> {
    for (field, value) in resource.fields.iter().zip(&item.values) {
        let is_text = matches!(value, Value::Json(_));
        if is_text && types::try_parse_canonical(field, value.clone()).is_err() {
            let cause = format!("{}: expected the type {}", field.name, field.kind.name);
            return Err(damaged_item(resource, Some(item.id), &cause));
        }
    }
    Ok(())
}

pub fn damaged_item(resource: &Resource, id: Option<Id>, cause: &str) -> InternalError {
    let name = &resource.name;
    InternalError(match id {
        Some(id) => format!("the stored {name} {id} is damaged: {cause}"),
        None => format!("a stored {name} is damaged: {cause}"),
    })
}

fn read_columns(
    model: &Model,
    resource: &Resource,
    row: &dyn Columns,
) -> Result<Item, InternalError> {
    let mut columns = 0;
    let mut next = || {
        columns += 1;
        columns - 1
    };
    let id = required_column("id", row.id(next(), resource.id))?;
    let parent = match resource.parent {
        Some(parent) => {
            with_column_name("the id of its parent", row.id(next(), model.resource(parent).id))?
        }
        None => None,
    };
    let created_at = required_column("created_at", row.moment(next()))?;
    let updated_at = required_column("updated_at", row.moment(next()))?;
    let version = required_column("version", row.integer(next()))?;
    let values = resource
        .fields
        .iter()
        .map(|field| with_column_name(&field.name, read_value(field, row, next())))
        .collect::<Result<_, _>>()?;
    Ok(Item { id, parent, created_at, updated_at, version, values })
}

/// Adds the column's name to an error.
fn with_column_name<T>(column: &str, read: Result<T, InternalError>) -> Result<T, InternalError> {
    read.map_err(|InternalError(cause)| InternalError(format!("{column}: {cause}")))
}

fn required_column<T>(
    column: &str,
    read: Result<Option<T>, InternalError>,
) -> Result<T, InternalError> {
    with_column_name(column, read)?.ok_or_else(|| InternalError(format!("{column} has no value")))
}

fn read_value(field: &Field, row: &dyn Columns, at: usize) -> Result<Value, InternalError> {
    if let Some(target) = field.rules.reference {
        let id = row.id(at, target.id)?;
        return Ok(match id {
            None => Value::Null,
            Some(Id::Integer(number)) => Value::Integer(number),
            Some(id) => Value::text(&id.to_string()),
        });
    }
    let value = match field.storage_class() {
        StorageClass::Text => row.text(at)?.map(Value::text),
        StorageClass::Json => row.text(at)?.map(|text| Value::Json(text.into())),
        StorageClass::Integer => row.integer(at)?.map(Value::Integer),
        StorageClass::Decimal => row
            .integer(at)?
            .map(|units| Value::Decimal(Decimal { units, scale: field.rules.scale })),
        StorageClass::Real => row.real(at)?.map(Value::Number),
        StorageClass::Boolean => row.boolean(at)?.map(Value::Boolean),
        StorageClass::Moment => row.moment(at)?.map(Value::Moment),
    };
    Ok(value.unwrap_or(Value::Null))
}
