//! Names, column lists and joins of a table, as SQL.

use std::fmt::Write;

use crate::model::{Model, OnDelete, Resource};
use crate::permit::AccessScope;
use crate::store::sql::dialect::Dialect;

/// A quoted name. Names contain no quotes: the model has checked them.
pub fn quote_name(name: &str) -> String {
    format!("\"{name}\"")
}

/// The columns of a table in their canonical order: id, parent, times, version, fields.
pub fn columns(resource: &Resource) -> impl Iterator<Item = &str> {
    let fields = resource.fields.iter().map(|field| &*field.name);
    let own = ["created_at", "updated_at", "version"];
    ["id"].into_iter().chain(resource.parent_key.as_deref()).chain(own).chain(fields)
}

/// The select list of all columns, each with a prefix. Every list makes it, so it is one string from the beginning.
pub fn select_list(resource: &Resource, before: &str) -> String {
    let mut list = String::with_capacity(24 * (resource.fields.len() + 5));
    for column in columns(resource) {
        list.push_str(if list.is_empty() { "" } else { ", " });
        list.push_str(before);
        list.push('"');
        list.push_str(column);
        list.push('"');
    }
    list
}

pub fn placeholders(dialect: &Dialect, from: usize, count: usize) -> String {
    let all = (from..from + count).map(|number| format!("{}{number}", dialect.placeholder));
    all.collect::<Vec<_>>().join(", ")
}

/// The join of a row to the ids in its path: its own parent column, and those of its ancestors.
pub struct AncestorJoin {
    pub from: String,
    /// From the nearest ancestor.
    pub columns: Vec<String>,
}

impl AncestorJoin {
    /// With the ids of all ancestors. The row of the topmost one is not joined: the foreign key proves that it exists.
    pub fn of_ids(model: &Model, resource: &Resource) -> Self {
        Self::new(model, resource, resource.depth.saturating_sub(1))
    }

    /// With the rows of all ancestors.
    pub fn of_rows(model: &Model, resource: &Resource) -> Self {
        Self::new(model, resource, resource.depth)
    }

    /// Joins the rows of the first `joined` ancestors, from the nearest.
    fn new(model: &Model, resource: &Resource, joined: usize) -> Self {
        let mut chain = Self { from: Self::table(resource), columns: Vec::new() };
        let mut level = resource;
        for depth in 0.. {
            let (Some(key), Some(parent)) = (&level.parent_key, level.parent) else { break };
            let (column, parent) =
                (format!("t{depth}.{}", quote_name(key)), model.resource(parent));
            if depth < joined {
                let (above, table) = (depth + 1, quote_name(&parent.table));
                let _ = write!(chain.from, " JOIN {table} t{above} ON t{above}.\"id\" = {column}");
            }
            // The column of an ancestor's parent is known where the ancestor is joined.
            if depth <= joined {
                chain.columns.push(column);
            }
            level = parent;
        }
        chain
    }

    /// The table alone.
    pub fn table(resource: &Resource) -> String {
        format!("{} t0", quote_name(&resource.table))
    }

    /// The condition of each column; the parameters are numbered from `first`.
    pub fn terms(&self, p: char, first: usize) -> impl Iterator<Item = String> {
        let columns = self.columns.iter().zip(first..);
        columns.map(move |(column, number)| format!("{column} = {p}{number}"))
    }
}

pub fn where_clause(terms: &[String]) -> String {
    if terms.is_empty() { String::new() } else { format!(" WHERE {}", terms.join(" AND ")) }
}

/// The join that proves the ids of all ancestors.
pub fn ancestor_join(model: &Model, resource: &Resource, scope: &AccessScope) -> AncestorJoin {
    // Without a foreign key, a row does not prove that its parent exists.
    let is_unproved = resource.on_delete == OnDelete::DeleteLater;
    match is_unproved || filters_ancestors(model, resource, scope) {
        true => AncestorJoin::of_rows(model, resource),
        false => AncestorJoin::of_ids(model, resource),
    }
}

/// The join of items under any parents: with all ancestors where row filters apply to them, else with those whose
/// columns a list filters by.
pub fn flat_join(
    model: &Model,
    resource: &Resource,
    scope: &AccessScope,
    filtered: usize,
) -> AncestorJoin {
    match filters_ancestors(model, resource, scope) {
        true => AncestorJoin::of_rows(model, resource),
        false => AncestorJoin::new(model, resource, filtered),
    }
}

/// Whether row filters apply to the ancestors.
pub fn filters_ancestors(model: &Model, resource: &Resource, scope: &AccessScope) -> bool {
    let mut above = model.lineage(resource.index);
    above.pop();
    above.iter().any(|above| !scope.read_access(above.index).row_filters.is_empty())
}
