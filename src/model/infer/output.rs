//! The text of the model file, with its comments.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::field::{id_value, one_line, quote, shorten};
use super::relations::{ImportOrder, InferredId};
use super::resource::InferredResource;
use crate::model::database_tables::{DatabaseTables, TableEngine};
use crate::model::file::shape::toml_string;

const TITLE_CHARS_MAX: usize = 100;

/// How much the comments of the file say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentDetail {
    /// Also how the rows are exported.
    Exports,
    Notes,
    Nothing,
}

pub fn write(
    tables: &DatabaseTables,
    (resources, order): (&[InferredResource<'_>], &ImportOrder),
    (notes, detail): (&[String], CommentDetail),
) -> String {
    let mut out = String::from(
        "# Made by nouns init --from-database. Lines with \"note:\" say what does not fit, or is not as it was.\n",
    );
    if detail == CommentDetail::Exports {
        let names = order.tables.iter().filter_map(|at| resources.get(*at)).map(|one| &*one.name);
        let names: Vec<&str> = names.collect();
        let _infallible = write!(
            out,
            "#\n# To copy the rows, export the SELECT after \"rows of\" as CSV, and import it with: nouns import RESOURCE FILE\n\
             # Those after \"references of\" come last, with: nouns import RESOURCE FILE --upsert id\n\
             # import order: {}\n",
            names.join(" ")
        );
    }
    for note in notes.iter().filter(|_| detail != CommentDetail::Nothing) {
        let _infallible = writeln!(out, "# note: {note}");
    }
    let _infallible = write!(out, "\ntitle = {}\n", toml_string(&title(&tables.name)));
    for (at, resource) in resources.iter().enumerate() {
        out.push('\n');
        if detail != CommentDetail::Nothing {
            let _infallible = writeln!(out, "# The table {}", shorten(&resource.table.name));
        }
        if detail == CommentDetail::Exports {
            write_exports(&mut out, resource, (tables.engine, &deferred(order, at)));
        }
        let parent =
            resource.relations.parent.as_ref().filter(|_| detail != CommentDetail::Nothing);
        if let Some(parent) = parent {
            let column = shorten(&parent.column);
            let _infallible = writeln!(
                out,
                "# {column} names the parent: a row cannot be without it, and is deleted with it"
            );
        }
        for note in resource.notes.iter().filter(|_| detail != CommentDetail::Nothing) {
            let _infallible = writeln!(out, "# note: {note}");
        }
        write_resource(&mut out, resource);
    }
    out
}

fn title(name: &str) -> String {
    let name: String = one_line(name).trim().chars().take(TITLE_CHARS_MAX).collect();
    if name.is_empty() { "Database".to_owned() } else { name }
}

/// The columns of a table whose values are imported last.
fn deferred(order: &ImportOrder, table: usize) -> BTreeSet<&str> {
    let own = order.deferred.iter().filter(|(at, _)| *at == table);
    own.map(|(_, column)| &**column).collect()
}

fn write_resource(out: &mut String, resource: &InferredResource<'_>) {
    let name = &resource.name;
    let _infallible = writeln!(out, "[resources.{name}]");
    if let Some(parent) = &resource.parent_name {
        let _infallible =
            writeln!(out, "parent = {}\non_delete = \"cascade\"", toml_string(parent));
    }
    if resource.relations.id == InferredId::Integer {
        out.push_str("id = \"integer\"\n");
    }
    if !resource.unique.is_empty() {
        let group = |names: &Vec<String>| {
            let names: Vec<String> = names.iter().map(|name| toml_string(name)).collect();
            format!("[{}]", names.join(", "))
        };
        let groups: Vec<String> = resource.unique.iter().map(group).collect();
        let _infallible = writeln!(out, "unique = [{}]", groups.join(", "));
    }
    let _infallible = write!(out, "\n[resources.{name}.fields]\n");
    for field in &resource.fields {
        let _infallible = writeln!(out, "{} = {}", field.name, field.to_toml());
    }
}

/// An expression with its name in the export, which may be a word of SQL.
fn named(expression: &str, name: &str) -> String {
    let name = quote(name);
    match expression == name {
        true => name,
        false => format!("{expression} AS {name}"),
    }
}

fn write_exports(
    out: &mut String,
    resource: &InferredResource<'_>,
    (engine, deferred): (TableEngine, &BTreeSet<&str>),
) {
    let (name, table) = (&resource.name, resource.table);
    let relations = &resource.relations;
    let value = |column: &str| table.column(column).map(|column| id_value(column, engine));
    let key = table.primary_key.first().filter(|_| relations.id != InferredId::New);
    let id = key.and_then(|key| Some(named(&value(key)?, "id")));
    let parent = relations.parent.as_ref().zip(resource.parent_name.as_deref());
    let parent =
        parent.and_then(|(one, name)| Some(named(&value(&one.column)?, &format!("{name}_id"))));
    let field = |is_last: bool| {
        let fields = resource.fields.iter();
        let fields = fields.filter(move |field| deferred.contains(&*field.column) == is_last);
        fields.map(|field| named(&field.select, &field.name))
    };
    let rows: Vec<String> = id.iter().cloned().chain(parent).chain(field(false)).collect();
    let last: Vec<String> = id.into_iter().chain(field(true)).collect();
    let table = quote(&table.name);
    let is_in_one_line = |text: &str| one_line(text) == text;
    for (word, columns, is_needed) in
        [("rows", rows, true), ("references", last, !deferred.is_empty())]
    {
        let select = format!("SELECT {} FROM {table}", columns.join(", "));
        if !is_needed || columns.is_empty() {
            continue;
        }
        let _infallible = match is_in_one_line(&select) {
            true => writeln!(out, "# {word} of {name}: {select}"),
            false => writeln!(
                out,
                "# note: a name has line breaks, so that the SELECT of its rows is not here"
            ),
        };
    }
}
