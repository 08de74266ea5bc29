//! The label of an item, and the columns of a table of items.

use super::json_view::cut;
use super::source::{id_of, member, text_of};
use crate::intent::PathForm;
use crate::json::Json;
use crate::model::{Field, Resource, StorageClass};
use crate::openapi::Viewer;

/// The most columns that a page chooses by itself.
const COLUMNS_MAX: usize = 7;
/// Texts that may be longer than this are on the item's page only.
const COLUMN_CHARS_MAX: usize = 500;
const LABEL_CHARS_MAX: usize = 80;
/// An id is abbreviated to its last characters: UUIDv7 ids of the same time have the same beginning.
const ID_CHARS_SHOWN: usize = 6;

/// A column of a table, or a member of an item.
#[derive(Debug, Clone, Copy)]
pub enum Column<'a> {
    Id,
    /// The id of the parent, by the name of the member.
    Parent(&'a str),
    Field(&'a Field),
    /// `created_at` or `updated_at`.
    Time(&'static str),
    Version,
}

impl<'a> Column<'a> {
    /// The name of the member.
    pub fn name(&self) -> &'a str {
        match self {
            Self::Id => "id",
            Self::Parent(name) => name,
            Self::Field(field) => &field.name,
            Self::Time(name) => name,
            Self::Version => "version",
        }
    }
}

/// The field whose value names an item: the first required text, else the first unique text, else the first
/// e-mail address or address.
pub fn label_field<'a>(viewer: &Viewer<'a>, resource: &'a Resource) -> Option<&'a Field> {
    let fields: Vec<(usize, &Field)> = viewer.readable_fields(resource).collect();
    let is_text = |field: &Field| matches!(field.kind.name, "text" | "user_name");
    let is_unique = |at: usize| resource.unique.iter().any(|rule| rule.fields == [at]);
    let mut fields_by = [
        fields.iter().find(|(_, field)| is_text(field) && field.required),
        fields.iter().find(|(at, field)| is_text(field) && is_unique(*at)),
        fields.iter().find(|(_, field)| field.kind.name == "email"),
        fields.iter().find(|(_, field)| field.kind.name == "url" && field.required),
    ]
    .into_iter()
    .flatten();
    fields_by.next().map(|(_, field)| *field)
}

/// The label of an item; the end of its id if it has none.
pub fn item_label(label: Option<&Field>, item: &Json<'_>) -> String {
    let text = label.and_then(|field| text_of(member(item, &field.name)));
    match text.filter(|text| !text.trim().is_empty()) {
        Some(text) => cut(text, LABEL_CHARS_MAX),
        None => short_id(id_of(item)),
    }
}

/// The end of an id.
pub fn short_id(id: &str) -> String {
    match id.char_indices().rev().nth(ID_CHARS_SHOWN - 1) {
        Some((at, _)) if at > 0 => format!("…{}", id.split_at(at).1),
        _ => id.to_owned(),
    }
}

/// The columns that `fields` selects, or those that fit.
pub fn choose<'a>(
    viewer: &Viewer<'a>,
    (resource, form): (&'a Resource, PathForm),
    selected: Option<&str>,
) -> Vec<Column<'a>> {
    if let Some(names) = selected {
        return select(viewer, resource, names);
    }
    let label = label_field(viewer, resource);
    let mut columns = vec![label.map_or(Column::Id, Column::Field)];
    // Under one parent, it is the same for all rows.
    let parent = resource.parent_key.as_deref().filter(|_| form == PathForm::Flat);
    columns.extend(parent.map(Column::Parent));
    let fields: Vec<&Field> = viewer.readable_fields(resource).map(|(_, field)| field).collect();
    let is_label = |field: &Field| label.is_some_and(|label| label.name == field.name);
    let fits = |field: &&&Field| {
        let is_long = field.rules.max_length.is_some_and(|chars| chars > COLUMN_CHARS_MAX);
        !is_label(field) && field.kind.name != "json" && !is_long
    };
    let rank = |field: &Field| match () {
        () if field.rules.states.is_some() => 0,
        () if field.filter => 1,
        () => 2,
    };
    let mut others: Vec<&Field> = fields.iter().filter(fits).copied().collect();
    others.sort_by_key(|field| rank(field));
    let room = COLUMNS_MAX - 1 - columns.len();
    columns.extend(others.into_iter().take(room).map(Column::Field));
    columns.push(Column::Time("created_at"));
    columns
}

fn select<'a>(viewer: &Viewer<'a>, resource: &'a Resource, names: &str) -> Vec<Column<'a>> {
    let all = members(viewer, resource);
    let find = |name: &str| all.iter().find(|column| column.name() == name).copied();
    let mut columns: Vec<Column<'_>> = names.split(',').filter_map(find).collect();
    // The first column is the link to the item.
    let label = label_field(viewer, resource);
    let is_label = |column: &Column<'_>| label.is_some_and(|label| *label.name == *column.name());
    match columns.iter().position(is_label) {
        Some(at) => columns.swap(0, at),
        None => {
            columns.retain(|column| !matches!(column, Column::Id));
            columns.insert(0, Column::Id);
        }
    }
    columns
}

/// All members of an item that the caller sees.
pub fn members<'a>(viewer: &Viewer<'a>, resource: &'a Resource) -> Vec<Column<'a>> {
    let fields = viewer.readable_fields(resource).map(|(_, field)| Column::Field(field));
    let own = [Column::Time("created_at"), Column::Time("updated_at"), Column::Version];
    let parent = resource.parent_key.as_deref().map(Column::Parent);
    [Column::Id].into_iter().chain(parent).chain(fields).chain(own).collect()
}

/// Whether the values of a field are right-aligned numbers.
pub fn is_number(field: &Field) -> bool {
    field.rules.reference.is_none()
        && matches!(
            field.storage_class(),
            StorageClass::Integer | StorageClass::Real | StorageClass::Decimal
        )
}

/// Whether the values of a field are texts of any length, which share the room that is left.
pub fn is_wide_text(field: &Field) -> bool {
    let has_objects = field.rules.element.as_ref().is_some_and(|one| !one.rules.fields.is_empty());
    let is_text =
        has_objects || matches!(field.kind.name, "text" | "user_name" | "email" | "url" | "object");
    let is_short = field.rules.max_length.is_some_and(|chars| chars <= 12)
        || !field.rules.one_of.is_empty()
        || field.rules.pattern.is_some() && field.rules.max_length.is_none_or(|chars| chars <= 40);
    is_text && !is_short
}
