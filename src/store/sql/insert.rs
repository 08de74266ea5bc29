//! INSERT statements: new rows, each with its change log entry.
//!
//! Where one statement writes both, a batch of rows with their entries is one statement as well. Its
//! parameters are arrays, one for each column, so that the statement is the same for any number of rows.
//!
//! The invariant: an entry is numbered after its row was written. A row waits at a unique index for the
//! transaction that frees the value, and that transaction numbers its own entry before it commits. If the
//! number were drawn before the wait, "created B with X" would precede "deleted A with X" in the log.
//! PostgreSQL runs a data-modifying CTE that nothing reads after the main query, so the entry has to read
//! from it.

use crate::model::{Model, Resource, StorageClass};
use crate::store::sql::columns::{columns, placeholders, quote_name, select_list};
use crate::store::sql::ddl::column_types;
use crate::store::sql::derived::derived_columns;
use crate::store::sql::dialect::Dialect;

pub fn insert_row(resource: &Resource, dialect: &Dialect) -> String {
    let count = columns(resource).count() + derived_columns(resource).count();
    let into = insert_into(resource);
    let values = placeholders(dialect, 1, count);
    let row = format!("{into} VALUES ({values})");
    match dialect.next_change_function {
        None => row,
        Some(_) => {
            let entry = entry_insert_sql(dialect, count + 1, Some("written"));
            format!("WITH written AS ({row} RETURNING 1) {entry}")
        }
    }
}

pub fn insert_rows(model: &Model, resource: &Resource, dialect: &Dialect) -> Option<String> {
    let next_change = dialect.next_change_function?;
    let own = column_types(model, resource, dialect);
    let types = own.iter().copied().chain(entry_types(dialect));
    let arrays = types.zip(1..).map(|(kind, number)| {
        // The element type of an array has no collation.
        let kind = kind.split(" COLLATE ").next().unwrap_or(kind);
        format!("{}{number}::{kind}[]", dialect.placeholder)
    });
    let arrays = arrays.collect::<Vec<_>>().join(", ");
    let names: Vec<_> = (1..=own.len() + ENTRY_BINDS).map(|number| format!("c{number}")).collect();
    let (of_row, of_entry) = names.split_at_checked(own.len())?;
    let (all, of_row, of_entry) = (names.join(", "), of_row.join(", "), of_entry.join(", "));
    let into = insert_into(resource);
    Some(format!(
        "WITH given AS (SELECT * FROM unnest({arrays}) WITH ORDINALITY AS given ({all}, at)), \
         written AS ({into} SELECT {of_row} FROM given RETURNING 1) \
         INSERT INTO nouns_changes (sequence, {ENTRY_COLUMNS}) SELECT {next_change}(at = 1), {of_entry} FROM given \
         WHERE (SELECT count(*) FROM written) > 0"
    ))
}

fn insert_into(resource: &Resource) -> String {
    let mut columns = select_list(resource, "");
    for derived in derived_columns(resource) {
        columns.push_str(", ");
        columns.push_str(&quote_name(&derived.name()));
    }
    format!("INSERT INTO {} ({columns})", quote_name(&resource.table))
}

/// The types of the columns of an entry: a time, then texts.
fn entry_types(dialect: &Dialect) -> impl Iterator<Item = &'static str> {
    let (time, text) =
        ((dialect.column_type)(StorageClass::Moment), (dialect.column_type)(StorageClass::Text));
    [time].into_iter().chain(std::iter::repeat_n(text, ENTRY_BINDS - 1))
}

/// The number of parameters of a change log entry: its columns without the sequence.
pub const ENTRY_BINDS: usize = 11;

pub const ENTRY_COLUMNS: &str =
    "time, resource, id, parent_id, subject, kind, actor, request_id, changed, before, after";

/// Inserts a change log entry; its parameters are numbered from `first`. With `from`, one entry for each row
/// of that relation. Where the engine has a function for the next number, its parameter comes last.
pub fn entry_insert_sql(dialect: &Dialect, first: usize, from: Option<&str>) -> String {
    let mut columns = ENTRY_COLUMNS.to_owned();
    let mut values = placeholders(dialect, first, ENTRY_BINDS);
    if let Some(next_change) = dialect.next_change_function {
        columns.insert_str(0, "sequence, ");
        let is_first = first + ENTRY_BINDS;
        values.insert_str(0, &format!("{next_change}({}{is_first}), ", dialect.placeholder));
    }
    match from {
        None => format!("INSERT INTO nouns_changes ({columns}) VALUES ({values})"),
        Some(from) => format!("INSERT INTO nouns_changes ({columns}) SELECT {values} FROM {from}"),
    }
}
