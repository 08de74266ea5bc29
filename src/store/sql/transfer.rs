//! The statements of `nouns export` and `nouns import`: whole tables, items by id or by a unique value, and the
//! ancestors of an item.

use crate::model::{Model, Resource, UniqueRule};
use crate::store::sql::columns::{AncestorJoin, select_list};
use crate::store::sql::dialect::Dialect;
use crate::store::sql::unique::{equals_parameter, unique_columns};

/// The first page of a table, in the order of ids. 1: the limit.
pub fn table_page(resource: &Resource, dialect: &Dialect) -> String {
    let (all, table) = (select_list(resource, "t0."), AncestorJoin::table(resource));
    format!("SELECT {all} FROM {table} ORDER BY t0.\"id\" LIMIT {}1", dialect.placeholder)
}

/// A further page of a table (keyset pagination). 1: the limit, 2: after which id.
pub fn table_page_after(resource: &Resource, dialect: &Dialect) -> String {
    let (all, table) = (select_list(resource, "t0."), AncestorJoin::table(resource));
    let p = dialect.placeholder;
    format!("SELECT {all} FROM {table} WHERE t0.\"id\" > {p}2 ORDER BY t0.\"id\" LIMIT {p}1")
}

/// Reads an item under any parent, and locks its row. 1: id.
pub fn locked_item(resource: &Resource, dialect: &Dialect) -> String {
    let (all, table) = (select_list(resource, "t0."), AncestorJoin::table(resource));
    let Dialect { placeholder: p, lock_for_update, .. } = dialect;
    format!("SELECT {all} FROM {table} WHERE t0.\"id\" = {p}1{lock_for_update}")
}

/// Reads the item with these values, and locks its row. The parameters are the columns of the unique rule.
pub fn locked_item_by_rule(resource: &Resource, rule: &UniqueRule, dialect: &Dialect) -> String {
    let (all, table) = (select_list(resource, "t0."), AncestorJoin::table(resource));
    let columns = unique_columns(resource, rule).into_iter().zip(1..);
    let terms =
        columns.map(|(column, at)| equals_parameter(resource, ("t0.", column), at, dialect));
    let terms = terms.collect::<Vec<_>>().join(" AND ");
    format!("SELECT {all} FROM {table} WHERE {terms}{}", dialect.lock_for_update)
}

/// The ids of an item's ancestors, from the nearest; no row if there is no such item. 1: id.
pub fn ancestor_ids(model: &Model, resource: &Resource, dialect: &Dialect) -> String {
    let AncestorJoin { from, columns } = AncestorJoin::of_ids(model, resource);
    let ids = ["t0.\"id\"".to_owned()].into_iter().chain(columns).collect::<Vec<_>>().join(", ");
    format!("SELECT {ids} FROM {from} WHERE t0.\"id\" = {}1", dialect.placeholder)
}

/// Locks a value of `nouns_system` until the transaction ends, if it exists. 1: name.
pub fn lock_system_value(dialect: &Dialect) -> String {
    format!("UPDATE nouns_system SET value = value WHERE name = {}1", dialect.placeholder)
}
