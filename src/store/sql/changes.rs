//! Statements that read the change log: by number, by item, by time.

use std::fmt::Write as _;

use crate::intent::LogFilter;
use crate::store::sql::dialect::Dialect;
use crate::store::statement::{Bind, Statement};
use crate::value::EventKind;

const COLUMNS: &str =
    "sequence, time, resource, id, subject, kind, actor, request_id, changed, before, after";

/// An item as the change log identifies it.
#[derive(Debug)]
pub struct LogItem<'a> {
    /// The name of its resource in the log.
    pub resource: &'a str,
    pub id: String,
}

/// Entries with numbers above `after` and up to `up_to`.
#[derive(Debug, Clone, Copy)]
pub struct LogRange {
    pub after: i64,
    pub up_to: i64,
    pub is_descending: bool,
    pub entries_max: i64,
}

/// The entries of a range that a filter selects, and perhaps more: the reader's rights decide the rest. Of an
/// item's entries, `created` is left out, which is not in the index.
pub fn entries_in_range<'a>(
    dialect: &Dialect,
    filter: &'a LogFilter,
    item: Option<&'a LogItem<'a>>,
    range: LogRange,
) -> Statement<'a> {
    let p = dialect.placeholder;
    let mut binds = vec![Bind::Integer(range.after), Bind::Integer(range.up_to)];
    let by_number = if item.is_none() { dialect.log_by_number } else { "" };
    let mut sql = format!(
        "SELECT {COLUMNS} FROM nouns_changes{by_number} WHERE sequence > {p}1 AND sequence <= {p}2"
    );
    if let Some(item) = item {
        binds.extend([Bind::Text(item.resource), Bind::Text(&item.id)]);
        let _ = write!(sql, " AND {}", item_condition(dialect, 3));
    }
    let mut any_of = |column: &str, values: Option<Vec<&'a str>>| {
        let Some(values) = values else { return };
        if values.is_empty() {
            return sql.push_str(" AND 1 = 0");
        }
        let first = binds.len() + 1;
        let numbers = (first..first + values.len()).map(|number| format!("{p}{number}"));
        let _ = write!(sql, " AND {column} IN ({})", numbers.collect::<Vec<_>>().join(", "));
        binds.extend(values.into_iter().map(Bind::Text));
    };
    let texts = |all: &'a Option<Vec<Box<str>>>| {
        all.as_ref().map(|all| all.iter().map(|text| &**text).collect())
    };
    any_of("resource", texts(&filter.resources));
    any_of("kind", filter.kinds.as_deref().map(stored_kinds));
    any_of("actor", texts(&filter.actors));
    for (sign, bound) in [(">=", filter.from), ("<=", filter.until)] {
        if let Some(bound) = bound {
            binds.push(Bind::Moment(bound));
            let _ = write!(sql, " AND time {sign} {p}{}", binds.len());
        }
    }
    binds.push(Bind::Integer(range.entries_max));
    let direction = if range.is_descending { " DESC" } else { "" };
    let _ = write!(sql, " ORDER BY sequence{direction} LIMIT {p}{}", binds.len());
    Statement::uncached(sql, binds)
}

/// The stored kinds of entries that readers may see as these kinds.
fn stored_kinds(kinds: &[EventKind]) -> Vec<&'static str> {
    let stored = kinds.iter().map(|kind| match kind {
        // The item was changed so that the reader does not see it any more.
        EventKind::Left => EventKind::Updated.as_str(),
        kind => kind.as_str(),
    });
    stored.collect()
}

/// The entries of an item, but the one of its creation. `first`: the number of the first parameter; 1: the
/// resource, 2: the id.
fn item_condition(dialect: &Dialect, first: usize) -> String {
    let (p, collation) = (dialect.placeholder, dialect.log_collation);
    let second = first + 1;
    format!(
        "resource{collation} = {p}{first} AND id{collation} = {p}{second} AND kind <> 'created'"
    )
}

/// The first entry of an item after a number, without that of its creation. 1: the resource, 2: the id, 3: the
/// number.
pub fn next_item_entry(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "SELECT {COLUMNS} FROM nouns_changes WHERE {} AND sequence > {p}3 ORDER BY sequence LIMIT 1",
        item_condition(dialect, 1)
    )
}

/// The deletions of an item: several if it was imported again with its id. 1: the resource, 2: the id, 3: the limit.
pub fn item_deletions(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "SELECT {COLUMNS} FROM nouns_changes WHERE {} AND kind = 'deleted' ORDER BY sequence LIMIT {p}3",
        item_condition(dialect, 1)
    )
}

/// The last entry of an item up to a number, or one before it, without that of its creation. 1: the resource, 2:
/// the id, 3: the number, 4: how many entries are between.
pub fn earlier_item_entry(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "SELECT {COLUMNS} FROM nouns_changes WHERE {} AND sequence <= {p}3 \
         ORDER BY sequence DESC LIMIT 1 OFFSET {p}4",
        item_condition(dialect, 1)
    )
}

/// The first entry of an item after a time, without that of its creation. 1: the resource, 2: the id, 3: the time.
pub fn next_item_entry_by_time(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "SELECT {COLUMNS} FROM nouns_changes WHERE {} AND time > {p}3 ORDER BY sequence LIMIT 1",
        item_condition(dialect, 1)
    )
}

/// The entry of an item's creation in a range. 1: the first number, 2: the last one, 3: the resource, 4: the id.
pub fn creation_entry(dialect: &Dialect) -> String {
    let (p, by_number) = (dialect.placeholder, dialect.log_by_number);
    format!(
        "SELECT {COLUMNS} FROM nouns_changes{by_number} WHERE sequence >= {p}1 AND sequence <= {p}2 \
         AND resource = {p}3 AND id = {p}4 AND kind = 'created' ORDER BY sequence LIMIT 1"
    )
}

/// The number and the time of the first entry from a number on. 1: the number.
pub fn entry_time(dialect: &Dialect) -> String {
    let p = dialect.placeholder;
    format!(
        "SELECT sequence, time FROM nouns_changes WHERE sequence >= {p}1 ORDER BY sequence LIMIT 1"
    )
}

/// The statements that find entries of one item, with the values of their parameters.
#[cfg(test)]
pub fn item_statements(dialect: &Dialect) -> [(String, &'static str); 6] {
    let item = LogItem { resource: "order", id: "7".to_owned() };
    let range = |is_descending| LogRange { after: 0, up_to: 9, is_descending, entries_max: 5 };
    let filter = LogFilter::default();
    let entries = |is_descending| {
        let statement = entries_in_range(dialect, &filter, Some(&item), range(is_descending));
        statement.sql.into_owned()
    };
    [
        (next_item_entry(dialect), "'order', '7', 9"),
        (item_deletions(dialect), "'order', '7', 9"),
        (earlier_item_entry(dialect), "'order', '7', 29000, 3"),
        (next_item_entry_by_time(dialect), "'order', '7', '2026-11-17T03:20:01Z'"),
        (entries(false), "0, 29000, 'order', '7', 5"),
        (entries(true), "0, 29000, 'order', '7', 5"),
    ]
}
