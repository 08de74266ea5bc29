//! Statements of migrations: columns and tables that get other names, and rows that are rewritten.

use crate::model::{Field, Model, Resource};
use crate::store::sql::columns::{placeholders, quote_name, select_list};
use crate::store::sql::ddl;
use crate::store::sql::dialect::Dialect;

/// The name of a column until the column that it replaces is dropped. No field has such a name.
pub fn temporary_column(field: &Field) -> String {
    format!("nouns.new.{}", field.name)
}

/// The name of a table until all tables have left their former names.
pub fn temporary_table(table: &str) -> String {
    format!("nouns.renamed.{table}")
}

/// Adds the column of a field under its temporary name, without values.
pub fn add_temporary_column(
    model: &Model,
    table: &str,
    field: &Field,
    dialect: &Dialect,
) -> String {
    let column = ddl::column_definition(model, &temporary_column(field), field, dialect);
    format!("ALTER TABLE {} ADD COLUMN {column}", quote_name(table))
}

pub fn rename_column(table: &str, from: &str, to: &str) -> String {
    let (table, from, to) = (quote_name(table), quote_name(from), quote_name(to));
    format!("ALTER TABLE {table} RENAME COLUMN {from} TO {to}")
}

pub fn drop_index_if_exists(name: &str) -> String {
    format!("DROP INDEX IF EXISTS {}", quote_name(name))
}

pub fn drop_constraint_if_exists(table: &str, name: &str) -> String {
    format!("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}", quote_name(table), quote_name(name))
}

pub fn count_rows(table: &str) -> String {
    format!("SELECT count(*) FROM {}", quote_name(table))
}

/// Counts the rows that have a value in a column.
pub fn count_values(table: &str, column: &str) -> String {
    format!("SELECT count({}) FROM {}", quote_name(column), quote_name(table))
}

/// The rows of a resource in its table after an id, in the order of ids. 1: the id, unless it is the first batch.
pub fn select_batch(
    (resource, table): (&Resource, &str),
    is_first: bool,
    limit: usize,
    dialect: &Dialect,
) -> String {
    let (columns, table) = (select_list(resource, ""), quote_name(table));
    let after = match is_first {
        true => String::new(),
        false => format!(" WHERE \"id\" > {}1", dialect.placeholder),
    };
    format!("SELECT {columns} FROM {table}{after} ORDER BY \"id\" LIMIT {limit}")
}

/// Writes some columns of a row. 1: the id, then the values.
pub fn update_columns(table: &str, columns: &[String], dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    let set =
        columns.iter().zip(2..).map(|(column, at)| format!("{} = {p}{at}", quote_name(column)));
    let (table, set) = (quote_name(table), set.collect::<Vec<_>>().join(", "));
    format!("UPDATE {table} SET {set} WHERE \"id\" = {p}1")
}

/// Counts the rows whose values in these columns other rows have too, and returns one id of the first few groups.
pub fn select_duplicates(table: &str, columns: &[String], limit: usize) -> String {
    let columns: Vec<String> = columns.iter().map(|column| quote_name(column)).collect();
    let present = columns.iter().map(|column| format!("{column} IS NOT NULL"));
    let (present, columns) = (present.collect::<Vec<_>>().join(" AND "), columns.join(", "));
    let groups = format!(
        "SELECT count(*) AS items, min(CAST(\"id\" AS text)) AS example FROM {} WHERE {present} GROUP BY {columns} \
         HAVING count(*) > 1",
        quote_name(table)
    );
    format!(
        "SELECT example, (SELECT CAST(sum(items) AS bigint) FROM ({groups}) AS all_groups) FROM ({groups}) AS some_groups \
         ORDER BY example LIMIT {limit}"
    )
}

/// Counts the rows whose reference has no target, and returns the first few ids.
pub fn select_dangling(table: &str, column: &str, target: &str, limit: usize) -> String {
    let (table, column, target) = (quote_name(table), quote_name(column), quote_name(target));
    let dangling = format!(
        "FROM {table} AS t0 WHERE t0.{column} IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM {target} AS target WHERE target.\"id\" = t0.{column})"
    );
    format!(
        "SELECT CAST(t0.\"id\" AS text), (SELECT count(*) {dangling}) {dangling} ORDER BY t0.\"id\" LIMIT {limit}"
    )
}

/// Changes the name of a resource in the change log. 1: the new name, 2: the old name.
pub fn rename_in_log(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!("UPDATE nouns_changes SET resource = {p}1 WHERE resource = {p}2")
}

/// Changes a plural in the paths of the change log, except in those of built-in resources, which may have the same
/// plurals. 1: the old plural with its slashes, 2: the new one.
pub fn rename_in_subjects(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "UPDATE nouns_changes SET subject = replace(subject, {p}1, {p}2) WHERE subject LIKE '%' || {p}1 || '%' \
         AND subject NOT LIKE '/-/%'"
    )
}

/// The entries of a resource after a number. 1: the resource, 2: the number.
pub fn select_log_batch(limit: usize, dialect: &Dialect) -> String {
    let (p, by_number) = (dialect.placeholder, dialect.log_by_number);
    format!(
        "SELECT sequence, changed, before, after FROM nouns_changes{by_number} \
         WHERE resource = {p}1 AND sequence > {p}2 ORDER BY sequence LIMIT {limit}"
    )
}

/// Replaces the texts of an entry. 1: the number, 2 to 4: the texts.
pub fn update_log_entry(dialect: &Dialect) -> String {
    let [sequence, changed, before, after] = [1, 2, 3, 4].map(|at| placeholders(dialect, at, 1));
    format!(
        "UPDATE nouns_changes SET changed = {changed}, before = {before}, after = {after} WHERE sequence = {sequence}"
    )
}
