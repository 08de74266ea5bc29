//! The tables of an SQLite database of another program, from its pragmas.

use std::path::Path;

use rusqlite::{Connection, Row};

use crate::model::database_tables::{
    ColumnDefinition, ColumnKind, DatabaseTables, DeleteAction, TableDefinition, TableEngine,
    TableReference,
};
use crate::model::infer::sql_text::find_checks;
use crate::store::error::OpenError;
use crate::store::sqlite::connection::{CACHE_KIB, explain_error, open_for_reading};
use crate::store::sqlite::database_files::DatabaseFiles;

/// Tables, views and the like, in the order of their names.
const RELATIONS: &str = "SELECT name, type FROM pragma_table_list \
     WHERE schema = 'main' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name";
/// 1: the table. `hidden` is 2 or 3 for generated columns.
const COLUMNS: &str = "SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?1) \
     WHERE hidden <> 1 ORDER BY cid";
/// 1: the table.
const CREATE_TABLE: &str = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?1";
/// 1: the table.
const FOREIGN_KEYS: &str = "SELECT id, \"table\", \"from\", \"to\", on_delete FROM pragma_foreign_key_list(?1) \
     ORDER BY id, seq";
/// 1: the table. The origin is `pk` for the primary key.
const INDEXES: &str = "SELECT name, \"unique\", partial FROM pragma_index_list(?1) WHERE origin <> 'pk' ORDER BY name";
/// 1: the index. A column that is an expression has no name.
const INDEX_COLUMNS: &str =
    "SELECT name, coll FROM pragma_index_xinfo(?1) WHERE key ORDER BY seqno";

pub fn read_tables(path: &Path) -> Result<DatabaseTables, OpenError> {
    let files = DatabaseFiles::find(path)?;
    let shown = &files.display_path;
    if files.is_empty() {
        return Err(OpenError::new(format!("there is no database {shown}; name one with tables")));
    }
    let connection = open_for_reading(&files.real_path, CACHE_KIB);
    let read = connection.and_then(|connection| read_catalogue(&connection));
    let (tables, other_relations) = read.map_err(|error| explain_error(shown, &error))?;
    let name = path.file_stem().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    Ok(DatabaseTables { engine: TableEngine::Sqlite, name, tables, other_relations })
}

type Catalogue = (Vec<TableDefinition>, Vec<(String, &'static str)>);

fn read_catalogue(connection: &Connection) -> rusqlite::Result<Catalogue> {
    let (mut tables, mut others) = (Vec::new(), Vec::new());
    let relations = query(connection, RELATIONS, None, |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    })?;
    for (name, kind) in relations {
        match &*kind {
            "table" => tables.push(read_table(connection, name)?),
            "view" => others.push((name, "a view")),
            "virtual" => others.push((name, "a virtual table")),
            // Tables in which a virtual table stores its data.
            _ => {}
        }
    }
    resolve_references(&mut tables);
    Ok((tables, others))
}

fn query<T>(
    connection: &Connection,
    sql: &str,
    parameter: Option<&str>,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection
        .prepare_cached(sql)?
        .query_map(rusqlite::params_from_iter(parameter), read)?
        .collect()
}

fn read_table(connection: &Connection, name: String) -> rusqlite::Result<TableDefinition> {
    let mut key: Vec<(i64, String)> = Vec::new();
    let columns = query(connection, COLUMNS, Some(&name), |row| {
        let (column, declared): (String, String) = (row.get(0)?, row.get(1)?);
        let position: i64 = row.get(4)?;
        if position > 0 {
            key.push((position, column.clone()));
        }
        Ok(ColumnDefinition {
            kind: column_kind(&declared),
            is_required: row.get::<_, bool>(2)? || position > 0,
            default: row.get(3)?,
            is_generated: row.get::<_, i64>(5)? > 1,
            ignores_case: false,
            name: column,
            declared,
        })
    })?;
    key.sort();
    let create: Vec<Option<String>> =
        query(connection, CREATE_TABLE, Some(&name), |row| row.get(0))?;
    let mut table = TableDefinition {
        columns,
        primary_key: key.into_iter().map(|(_, column)| column).collect(),
        foreign_keys: read_foreign_keys(connection, &name)?,
        checks: create.iter().flatten().flat_map(|sql| find_checks(sql)).collect(),
        name,
        ..TableDefinition::default()
    };
    read_indexes(connection, &mut table)?;
    Ok(table)
}

fn read_indexes(connection: &Connection, table: &mut TableDefinition) -> rusqlite::Result<()> {
    let indexes = query(connection, INDEXES, Some(&table.name), |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?, row.get::<_, bool>(2)?))
    })?;
    for (index, is_unique, is_partial) in indexes {
        let columns: Vec<(Option<String>, String)> =
            query(connection, INDEX_COLUMNS, Some(&index), |row| Ok((row.get(0)?, row.get(1)?)))?;
        for (name, _) in columns.iter().filter(|(_, coll)| is_unique && coll == "NOCASE") {
            let named =
                table.columns.iter_mut().filter(|column| Some(&column.name) == name.as_ref());
            named.for_each(|column| column.ignores_case = true);
        }
        let columns: Vec<Option<String>> = columns.into_iter().map(|(name, _)| name).collect();
        let first = columns.first().cloned().flatten();
        match columns.into_iter().collect::<Option<Vec<_>>>() {
            Some(columns) if is_unique && !is_partial => table.unique.push(columns),
            _ if is_unique => table.other_rules.push(format!(
                "the unique index {index} is about expressions or some rows only; a model cannot have it"
            )),
            _ => table.indexed.extend(first),
        }
    }
    Ok(())
}

fn read_foreign_keys(
    connection: &Connection,
    table: &str,
) -> rusqlite::Result<Vec<TableReference>> {
    let rows = query(connection, FOREIGN_KEYS, Some(table), |row| {
        let column: (String, Option<String>) = (row.get(2)?, row.get(3)?);
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, column, row.get::<_, String>(4)?))
    })?;
    let mut keys: Vec<(i64, TableReference)> = Vec::new();
    for (id, target, (from, to), on_delete) in rows {
        let column = (from, to.unwrap_or_default());
        match keys.last_mut().filter(|(last, _)| *last == id) {
            Some((_, key)) => key.columns.push(column),
            None => {
                let on_delete = match &*on_delete.to_ascii_lowercase() {
                    "cascade" => DeleteAction::Cascade,
                    "set null" => DeleteAction::SetNull,
                    "set default" => DeleteAction::SetDefault,
                    _ => DeleteAction::Refuse,
                };
                keys.push((id, TableReference { columns: vec![column], target, on_delete }));
            }
        }
    }
    Ok(keys.into_iter().map(|(_, key)| key).collect())
}

/// Gives references the names of the tables and columns that they mean: SQLite ignores the case, and the columns of a
/// primary key can be left out.
fn resolve_references(tables: &mut [TableDefinition]) {
    let known: Vec<(String, Vec<String>, Vec<String>)> = tables
        .iter()
        .map(|table| {
            let columns = table.columns.iter().map(|column| column.name.clone()).collect();
            (table.name.clone(), table.primary_key.clone(), columns)
        })
        .collect();
    for table in tables {
        let own: Vec<String> = table.columns.iter().map(|column| column.name.clone()).collect();
        for key in &mut table.foreign_keys {
            let target = known.iter().find(|(name, ..)| name.eq_ignore_ascii_case(&key.target));
            let Some((name, primary_key, columns)) = target else { continue };
            key.target.clone_from(name);
            for (at, (from, to)) in key.columns.iter_mut().enumerate() {
                if to.is_empty() {
                    *to = primary_key.get(at).cloned().unwrap_or_default();
                }
                for (column, all) in [(from, &own), (to, columns)] {
                    if let Some(found) = all.iter().find(|one| one.eq_ignore_ascii_case(column)) {
                        column.clone_from(found);
                    }
                }
            }
        }
    }
}

/// The kind of a declared type, by the words that databases and frameworks use.
fn column_kind(declared: &str) -> ColumnKind {
    let upper = declared.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| upper.contains(word));
    let numbers = numbers(&upper);
    match () {
        () if has(&["BOOL"]) => ColumnKind::Boolean,
        () if has(&["POINT", "INTERVAL"]) => ColumnKind::Other,
        () if has(&["INT"]) => ColumnKind::Integer,
        () if has(&["DATETIME", "TIMESTAMP"]) => ColumnKind::Timestamp { has_zone: false },
        () if has(&["DATE"]) => ColumnKind::Date,
        () if has(&["UUID", "GUID"]) => ColumnKind::Uuid,
        () if has(&["JSON"]) => ColumnKind::Json,
        () if has(&["CHAR", "CLOB", "TEXT", "STRING"]) => {
            let chars_max = numbers.first().and_then(|number| u64::try_from(*number).ok());
            ColumnKind::Text { chars_max, is_padded: false }
        }
        () if has(&["DECIMAL", "NUMERIC", "MONEY", "NUMBER"]) => {
            let scale = numbers.get(1).copied().unwrap_or(0);
            ColumnKind::Numeric(numbers.first().map(|precision| (*precision, scale)))
        }
        () if has(&["REAL", "FLOA", "DOUB"]) => ColumnKind::Real,
        () if has(&["BLOB", "BINARY"]) => ColumnKind::Binary,
        () => ColumnKind::Other,
    }
}

/// The numbers in the parentheses of a type.
fn numbers(declared: &str) -> Vec<i64> {
    let inner = declared.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')'));
    inner.split(',').filter_map(|number| number.trim().parse().ok()).collect()
}
