//! Tables of items.

use askama::Template;
use askama::filters::HtmlSafe;

use super::columns::{self, Column, item_label, label_field};
use super::query_link::QueryLink;
use super::related::PageSource;
use super::source::{id_of, member, text_of};
use super::time_element::TimeElement;
use super::value::ShownValue;
use crate::intent::{PathForm, VisibleResource, format_path};
use crate::json::Json;
use crate::model::Resource;

#[derive(Template)]
#[template(path = "table.html")]
pub struct Table<'a> {
    caption: String,
    heads: Vec<Head<'a>>,
    rows: Vec<Row<'a>>,
}

struct Head<'a> {
    class: &'static str,
    name: &'a str,
    /// The value of `aria-sort`, or nothing.
    order: &'static str,
    /// The address of the list in another order.
    address: Option<String>,
}

struct Row<'a> {
    id: &'a str,
    cells: Vec<Cell>,
}

struct Cell {
    class: &'static str,
    value: ShownValue,
}

impl HtmlSafe for Table<'_> {}

/// The list that a table shows.
#[derive(Clone, Copy)]
pub struct TableSource<'s, 'a> {
    pub resource: &'a Resource,
    pub form: PathForm,
    pub path: &'s str,
    pub items: &'a [Json<'a>],
    pub columns: &'s [Column<'a>],
    /// The parameters of the list, where the headings are links that sort it.
    pub sort: Option<&'s [(String, String)]>,
}

impl<'a> Table<'a> {
    pub fn new(page: &PageSource<'a>, source: TableSource<'_, 'a>, caption: String) -> Self {
        let TableSource { items, columns, .. } = source;
        let classes = column_classes(columns);
        let with_class = || columns.iter().zip(classes.iter().copied());
        let cells = |item: &Json<'_>| {
            let cell = |(at, (column, class))| {
                let value = match at {
                    0 => link(page, source, column, item),
                    _ => value(page, source, column, item),
                };
                Cell { class, value }
            };
            with_class().enumerate().map(cell).collect()
        };
        Self {
            caption,
            heads: with_class().map(|(column, class)| head(page, source, column, class)).collect(),
            rows: items.iter().map(|item| Row { id: id_of(item), cells: cells(item) }).collect(),
        }
    }
}

/// Classes by which the stylesheet lays out a row: on a phone it has two lines.
fn column_classes(columns: &[Column<'_>]) -> Vec<&'static str> {
    let is_wide = |column: &Column<'_>| matches!(column, Column::Field(field) if columns::is_wide_text(field));
    let is_number =
        |column: &Column<'_>| matches!(column, Column::Field(field) if columns::is_number(field));
    let (mut has_side, mut has_second, mut has_time) = (false, false, false);
    let others = columns.iter().skip(1).map(|column| match column {
        Column::Time(_) if !has_time => {
            has_time = true;
            "side-cell low"
        }
        column if is_wide(column) && !has_second => {
            has_second = true;
            "text"
        }
        column if is_wide(column) => "text more",
        column if !has_side => {
            has_side = true;
            if is_number(column) { "side-cell num" } else { "side-cell" }
        }
        column if is_number(column) => "num more",
        _ => "more",
    });
    let first = if matches!(columns.first(), Some(Column::Id)) { "id name" } else { "name" };
    [first].into_iter().chain(others).collect()
}

fn head<'a>(
    page: &PageSource<'_>,
    TableSource { resource, form, path, sort, .. }: TableSource<'_, '_>,
    column: &Column<'a>,
    class: &'static str,
) -> Head<'a> {
    let name = column.name();
    let class = class.trim_start_matches("side-cell").trim_start_matches(" low").trim_start();
    let known = VisibleResource { resource, hidden: page.viewer.hidden(resource.index), form };
    let Some(parameters) = sort.filter(|_| known.find(name).is_ok()) else {
        return Head { class, name, order: "", address: None };
    };
    let sorted = parameters.iter().find(|(name, _)| name == "sort").map(|(_, value)| &**value);
    let link = QueryLink::new(path, parameters).without("cursor");
    // Ascending at first, then descending, then as before.
    let descending = format!("-{name}");
    let (order, next) = match sorted {
        Some(key) if key == name => ("ascending", link.with("sort", &descending)),
        Some(key) if key == descending => ("descending", link.without("sort")),
        _ => ("", link.with("sort", name)),
    };
    Head { class, name, order, address: Some(next.address()) }
}

/// The link to the item of a row.
fn link(
    page: &PageSource<'_>,
    source: TableSource<'_, '_>,
    column: &Column<'_>,
    item: &Json<'_>,
) -> ShownValue {
    let id = id_of(item);
    let field = match column {
        Column::Id => None,
        _ => label_field(page.viewer, source.resource),
    };
    let label = item_label(field, item);
    let is_id = label == columns::short_id(id);
    let address = nested_path(page, source, item);
    let address = address.unwrap_or_else(|| format!("{}/{id}", source.path));
    ShownValue::Item { address, label, is_id }
}

/// The path of an item of a flat collection under its parent, if the row tells it: the path of a deeper one is found
/// when it is opened.
fn nested_path(
    page: &PageSource<'_>,
    TableSource { resource, form, .. }: TableSource<'_, '_>,
    item: &Json<'_>,
) -> Option<String> {
    if form == PathForm::Nested || resource.depth > 1 {
        return None;
    }
    let model = page.context.model;
    let parent = model.resource(resource.parent?);
    let key = text_of(member(item, resource.parent_key.as_deref()?))?;
    let (key, id) = (parent.id.parse(key)?, resource.id.parse(id_of(item))?);
    Some(format_path(model, resource.index, &[key], Some(id)))
}

fn value(
    page: &PageSource<'_>,
    source: TableSource<'_, '_>,
    column: &Column<'_>,
    item: &Json<'_>,
) -> ShownValue {
    let value = member(item, column.name());
    let text = || text_of(value).unwrap_or_default();
    match column {
        Column::Field(field) => ShownValue::short(page, field, value),
        Column::Time(_) => ShownValue::Time(TimeElement::time(text())),
        Column::Parent(_) if source.form == PathForm::Flat => {
            ShownValue::Reference(page.related.parent(page.viewer, source.resource, text()))
        }
        Column::Id | Column::Parent(_) => ShownValue::id(text()),
        Column::Version => ShownValue::Text(text().to_owned()),
    }
}
