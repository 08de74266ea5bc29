//! The tables of a PostgreSQL database of another program, from its catalogue: those of the first schema of the search
//! path.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::runtime::{Builder, LocalOptions};

use crate::model::database_tables::{
    ColumnDefinition, ColumnKind, DatabaseTables, DeleteAction, TableDefinition, TableEngine,
    TableReference,
};
use crate::model::settings::ServerTable;
use crate::store::driver::Driver as _;
use crate::store::error::{OpenError, StatementError};
use crate::store::postgres::connection_url::address::PostgresUrl;
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::open;
use crate::store::statement::Columns;

/// Tables, views and the like, except those of extensions, and the partitions of tables.
const RELATIONS: &str = "SELECT relname::text, relkind::text FROM pg_class \
     WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT relispartition \
     AND NOT EXISTS (SELECT 1 FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e') \
     ORDER BY relname COLLATE \"C\"";

/// The columns of tables. The type of a domain is that which it is based on.
const COLUMNS: &str = "SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), \
     a.attnotnull OR t.typnotnull, pg_get_expr(d.adbin, d.adrelid), a.attgenerated <> '', \
     CASE WHEN b.typcategory = 'A' THEN format_type(b.typelem, m.modifier) ELSE format_type(b.oid, m.modifier) END, \
     b.typcategory = 'A', greatest(a.attndims, t.typndims) > 1, \
     format_type(b.oid, NULL) = 'citext' OR l.collisdeterministic IS FALSE \
     FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid \
     JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END \
     CROSS JOIN LATERAL (SELECT CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS modifier) m \
     LEFT JOIN pg_collation l ON l.oid = a.attcollation LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
     WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped \
     ORDER BY c.oid, a.attnum";

/// The values of enumerations, by the name of their type.
const ENUMS: &str = "SELECT format_type(enumtypid, NULL), enumlabel::text FROM pg_enum ORDER BY enumtypid, enumsortorder";

/// The conditions of domains, by the name of their type; the value is called VALUE.
const DOMAIN_CHECKS: &str = "SELECT format_type(contypid, NULL), pg_get_expr(conbin, 0) FROM pg_constraint \
     WHERE contypid <> 0 AND contype = 'c' ORDER BY oid";

/// A row for each column of a constraint; one row if it has none.
const CONSTRAINTS: &str = "SELECT con.oid::text, con.contype::text, c.relname::text, a.attname::text, \
     CASE WHEN f.relnamespace = c.relnamespace THEN f.relname::text ELSE f.oid::regclass::text END, fa.attname::text, \
     con.confdeltype::text, pg_get_expr(con.conbin, con.conrelid), con.conname::text \
     FROM pg_constraint con JOIN pg_class c ON c.oid = con.conrelid \
     LEFT JOIN LATERAL unnest(con.conkey) WITH ORDINALITY AS k (number, at) ON true \
     LEFT JOIN pg_attribute a ON a.attrelid = con.conrelid AND a.attnum = k.number \
     LEFT JOIN pg_class f ON f.oid = con.confrelid \
     LEFT JOIN pg_attribute fa ON fa.attrelid = con.confrelid AND fa.attnum = con.confkey[k.at] \
     WHERE c.relnamespace = current_schema()::regnamespace AND con.contype IN ('p', 'f', 'c', 'x') \
     ORDER BY con.oid, k.at";

/// A row for each key column of an index, except those of primary keys. A column that is an expression has no name.
const INDEXES: &str = "SELECT i.indexrelid::text, c.relname::text, a.attname::text, i.indisunique, i.indpred IS NOT NULL, \
     x.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_class x ON x.oid = i.indexrelid \
     JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, at) ON k.at <= i.indnkeyatts \
     LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number AND k.number > 0 \
     WHERE c.relnamespace = current_schema()::regnamespace AND NOT i.indisprimary AND NOT i.indisexclusion \
     ORDER BY i.indexrelid, k.at";

/// Schemas with tables, for the message of an empty one.
const OTHER_SCHEMAS: &str = "SELECT DISTINCT table_schema::text FROM information_schema.tables \
     WHERE table_schema NOT IN ('pg_catalog', 'information_schema', coalesce(current_schema(), '')) ORDER BY 1 LIMIT 5";

pub fn read_tables(address: &Arc<PostgresUrl>) -> Result<DatabaseTables, OpenError> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = runtime.map_err(|error| OpenError::new(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let connection = open::connect_once(address, &ServerTable::default()).await?;
        let mut driver = PostgresDriver::new(&connection, TransactionStage::Autocommit);
        let explain = |failure: StatementError| {
            OpenError::new(format!("cannot read the tables of {address} ({})", failure.message()))
        };
        let mut tables = read_catalogue(&mut driver).await.map_err(explain)?;
        if tables.tables.is_empty() {
            let schemas = driver.query(OTHER_SCHEMAS, &[], |row| row.required_text(0)).await.map_err(explain)?;
            if !schemas.is_empty() {
                return Err(OpenError::new(format!(
                    "the first schema of the search path of {address} has no tables; there are some in {}: name one with \
                     ?options=-c%20search_path%3D{}",
                    schemas.join(", "),
                    schemas.first().map_or("NAME", String::as_str)
                )));
            }
        }
        tables.name = address.database_name().to_owned();
        Ok(tables)
    })
}

async fn read_catalogue(driver: &mut PostgresDriver<'_>) -> Result<DatabaseTables, StatementError> {
    let read = |row: &dyn Columns| Ok((row.required_text(0)?, row.required_text(1)?));
    let relations = driver.query(RELATIONS, &[], read).await?;
    let mut tables = BTreeMap::new();
    let mut other_relations = Vec::new();
    for (name, kind) in relations {
        let what = match &*kind {
            "v" => "a view",
            "m" => "a materialized view",
            "f" => "a foreign table",
            _ => {
                let table = TableDefinition { name: name.clone(), ..TableDefinition::default() };
                tables.insert(name, table);
                continue;
            }
        };
        other_relations.push((name, what));
    }
    read_columns(driver, &mut tables).await?;
    read_constraints(driver, &mut tables).await?;
    read_indexes(driver, &mut tables).await?;
    let tables = tables.into_values().collect();
    Ok(DatabaseTables {
        engine: TableEngine::Postgres,
        name: String::new(),
        tables,
        other_relations,
    })
}

type TablesByName = BTreeMap<String, TableDefinition>;

async fn read_columns(
    driver: &mut PostgresDriver<'_>,
    tables: &mut TablesByName,
) -> Result<(), StatementError> {
    let read = |row: &dyn Columns| Ok((row.required_text(0)?, row.required_text(1)?));
    let mut enums: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, label) in driver.query(ENUMS, &[], read).await? {
        enums.entry(name).or_default().push(label);
    }
    let read = |row: &dyn Columns| {
        let kind = column_kind(&row.required_text(6)?, &enums);
        let is_list = row.boolean(7)? == Some(true);
        // PostgreSQL does not enforce the declared number of dimensions.
        let has_lists = row.boolean(8)? == Some(true);
        let list = |kind| ColumnKind::List(Box::new(kind));
        let column = ColumnDefinition {
            name: row.required_text(1)?,
            declared: row.required_text(2)?,
            is_required: row.boolean(3)? == Some(true),
            default: row.optional_text(4)?,
            is_generated: row.boolean(5)? == Some(true),
            ignores_case: row.boolean(9)? == Some(true),
            kind: match (is_list, has_lists) {
                (true, true) => list(list(kind)),
                (true, false) => list(kind),
                (false, _) => kind,
            },
        };
        Ok((row.required_text(0)?, column))
    };
    let columns = driver.query(COLUMNS, &[], read).await?;
    let read = |row: &dyn Columns| Ok((row.required_text(0)?, row.required_text(1)?));
    let domain_checks = driver.query(DOMAIN_CHECKS, &[], read).await?;
    for (table, column) in columns {
        if let Some(table) = tables.get_mut(&table) {
            let own = domain_checks.iter().filter(|(domain, _)| *domain == column.declared);
            table.checks.extend(own.map(|(_, check)| check_of_column(check, &column.name)));
            table.columns.push(column);
        }
    }
    Ok(())
}

/// The condition of a domain as one of a column. Every second part is a text in quotes.
fn check_of_column(check: &str, column: &str) -> String {
    let column = format!("\"{}\"", column.replace('"', "\"\""));
    let parts = check.split('\'').enumerate().map(|(at, part)| match at % 2 {
        0 => part.replace("VALUE", &column),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("'")
}

/// A column of a constraint.
struct ConstraintColumn {
    id: String,
    kind: String,
    table: String,
    column: Option<String>,
    target: Option<String>,
    target_column: Option<String>,
    on_delete: DeleteAction,
    condition: Option<String>,
    name: String,
}

async fn read_constraints(
    driver: &mut PostgresDriver<'_>,
    tables: &mut TablesByName,
) -> Result<(), StatementError> {
    let read = |row: &dyn Columns| {
        Ok(ConstraintColumn {
            id: row.required_text(0)?,
            kind: row.required_text(1)?,
            table: row.required_text(2)?,
            column: row.optional_text(3)?,
            target: row.optional_text(4)?,
            target_column: row.optional_text(5)?,
            on_delete: match &*row.required_text(6)? {
                "c" => DeleteAction::Cascade,
                "n" => DeleteAction::SetNull,
                "d" => DeleteAction::SetDefault,
                _ => DeleteAction::Refuse,
            },
            condition: row.optional_text(7)?,
            name: row.required_text(8)?,
        })
    };
    let mut last = String::new();
    for row in driver.query(CONSTRAINTS, &[], read).await? {
        let is_first = std::mem::replace(&mut last, row.id.clone()) != row.id;
        let Some(table) = tables.get_mut(&row.table) else { continue };
        match &*row.kind {
            "p" => table.primary_key.extend(row.column),
            "c" if is_first => table.checks.extend(row.condition),
            "x" if is_first => {
                let name = row.name;
                table
                    .other_rules
                    .push(format!("the exclusion constraint {name} cannot be in a model"));
            }
            "f" => {
                let column =
                    (row.column.unwrap_or_default(), row.target_column.unwrap_or_default());
                let target = row.target.unwrap_or_default();
                match table.foreign_keys.last_mut().filter(|_| !is_first) {
                    Some(key) => key.columns.push(column),
                    None => table.foreign_keys.push(TableReference {
                        columns: vec![column],
                        target,
                        on_delete: row.on_delete,
                    }),
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// An index with its columns.
struct TableIndex {
    id: String,
    name: String,
    table: String,
    columns: Vec<Option<String>>,
    is_unique: bool,
    is_partial: bool,
}

async fn read_indexes(
    driver: &mut PostgresDriver<'_>,
    tables: &mut TablesByName,
) -> Result<(), StatementError> {
    let read = |row: &dyn Columns| {
        Ok(TableIndex {
            id: row.required_text(0)?,
            table: row.required_text(1)?,
            columns: vec![row.optional_text(2)?],
            is_unique: row.boolean(3)? == Some(true),
            is_partial: row.boolean(4)? == Some(true),
            name: row.required_text(5)?,
        })
    };
    let mut indexes: Vec<TableIndex> = Vec::new();
    for row in driver.query(INDEXES, &[], read).await? {
        match indexes.last_mut().filter(|last| last.id == row.id) {
            Some(index) => index.columns.extend(row.columns),
            None => indexes.push(row),
        }
    }
    for TableIndex { name, table, columns, is_unique, is_partial, .. } in indexes {
        let Some(table) = tables.get_mut(&table) else { continue };
        let first = columns.first().cloned().flatten();
        match columns.into_iter().collect::<Option<Vec<_>>>() {
            Some(columns) if is_unique && !is_partial => table.unique.push(columns),
            _ if is_unique => table.other_rules.push(format!(
                "the unique index {name} is about expressions or some rows only; a model cannot have it"
            )),
            _ => table.indexed.extend(first),
        }
    }
    Ok(())
}

/// The kind of a type, by the name that `format_type` gives it.
fn column_kind(declared: &str, enums: &BTreeMap<String, Vec<String>>) -> ColumnKind {
    if let Some(labels) = enums.get(declared) {
        return ColumnKind::Choice(labels.clone());
    }
    let (name, arguments) = declared.split_once('(').unwrap_or((declared, ""));
    let arguments = arguments.split(')').next().unwrap_or_default();
    let numbers: Vec<i64> =
        arguments.split(',').filter_map(|number| number.trim().parse().ok()).collect();
    let length = numbers.first().and_then(|number| u64::try_from(*number).ok());
    match name.trim_end() {
        "boolean" => ColumnKind::Boolean,
        "smallint" | "integer" | "bigint" => ColumnKind::Integer,
        "real" | "double precision" => ColumnKind::Real,
        "numeric" => {
            let scale = numbers.get(1).copied().unwrap_or(0);
            ColumnKind::Numeric(numbers.first().map(|precision| (*precision, scale)))
        }
        // The digits that a model can have.
        "money" => ColumnKind::Numeric(Some((18, 2))),
        "text" | "citext" | "name" | "character varying" => {
            ColumnKind::Text { chars_max: length, is_padded: false }
        }
        "character" | "bpchar" => ColumnKind::Text { chars_max: length, is_padded: true },
        "date" => ColumnKind::Date,
        name if name.starts_with("timestamp") => {
            ColumnKind::Timestamp { has_zone: declared.ends_with(" with time zone") }
        }
        "uuid" => ColumnKind::Uuid,
        "json" | "jsonb" => ColumnKind::Json,
        "bytea" => ColumnKind::Binary,
        _ => ColumnKind::Other,
    }
}
