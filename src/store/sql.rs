//! Every statement there is: the only place that writes SQL.
//!
//! Texts are made once, at start, from the model: names come from it alone and are quoted, values
//! are always bound. What differs between engines is data in a `Dialect`. Parameters are numbered,
//! and each statement says in its comment what they are.

use std::fmt::Write;

use crate::model::{
    Class, Field, Model, OnDelete, Resource, ResourceIndex, Unique, UniqueScope, types,
};
use crate::value::{IdKind, Value};

/// How an engine's SQL differs.
#[derive(Debug)]
pub(super) struct Dialect {
    pub(super) placeholder: char,
    pub(super) column: fn(Class) -> &'static str,
    pub(super) uuid_key: &'static str,
    pub(super) integer_key: &'static str,
    /// What stands behind a table with each kind of key.
    pub(super) uuid_table: &'static str,
    pub(super) integer_table: &'static str,
    /// Lists the indexes that are ours.
    pub(super) index_names: &'static str,
}

pub(super) static SQLITE: Dialect = Dialect {
    placeholder: '?',
    column: |class| match class {
        Class::Text | Class::Moment | Class::Json => "TEXT",
        Class::Integer | Class::Decimal | Class::Boolean => "INTEGER",
        Class::Real => "REAL",
    },
    uuid_key: "TEXT NOT NULL PRIMARY KEY",
    // AUTOINCREMENT: an id is never given twice, not even after its item is deleted.
    integer_key: "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
    uuid_table: "STRICT, WITHOUT ROWID",
    integer_table: "STRICT",
    index_names: "SELECT name FROM sqlite_master WHERE type = 'index' AND substr(name, 1, 6) = 'nouns.'",
};

/// The last id given in a table with integer keys. 1: the table.
pub(super) const SQLITE_LAST_ID: &str = "SELECT seq FROM sqlite_sequence WHERE name = ?1";

/// The statements of a model in one dialect.
#[derive(Debug)]
pub(super) struct Sql {
    tables: Vec<Table>,
    pub(super) log: String,
    /// 1: the time before which entries go.
    pub(super) sweep: String,
}

/// The statements of one resource. "chain" stands for the ids of the ancestors, the nearest first.
#[derive(Debug)]
pub(super) struct Table {
    /// 1: id, then the chain.
    pub(super) item: String,
    /// 1: id, then the chain.
    pub(super) exists: String,
    /// 1: id.
    pub(super) exists_anywhere: String,
    /// 1: how many, then the chain.
    pub(super) page: String,
    /// 1: how many, 2: after which id, then the chain.
    pub(super) page_after: String,
    /// The columns in the order of `columns`.
    pub(super) insert: String,
    /// 1: id, 2: the version it had, 3: updated_at, 4: version, then the fields.
    pub(super) update: String,
    /// 1: id.
    pub(super) delete: String,
    pub(super) links: Vec<Link>,
}

/// Where items may depend on an item of a table: as its children, or by a `ref` field.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) resource: ResourceIndex,
    pub(super) on_delete: OnDelete,
    /// 1: id, 2: how many. Gives the id of each dependent, then its chain.
    pub(super) dependents: String,
}

impl Sql {
    pub(super) fn new(model: &Model, dialect: &Dialect) -> Self {
        let p = dialect.placeholder;
        let columns = "time, resource, id, parent_id, subject, kind, actor, request_id, changed, before, after";
        Self {
            tables: model
                .resources
                .iter()
                .map(|resource| table(model, resource, dialect))
                .collect(),
            log: format!(
                "INSERT INTO nouns_changes ({columns}) VALUES ({})",
                placeholders(dialect, 1, 11)
            ),
            sweep: format!(
                "DELETE FROM nouns_changes WHERE time < {p}1 AND sequence IN \
                 (SELECT sequence FROM nouns_changes ORDER BY sequence LIMIT 1000)"
            ),
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "one table for each resource of the model, made in new"
    )]
    pub(super) fn table(&self, index: ResourceIndex) -> &Table {
        &self.tables[index.0]
    }
}

/// A name as SQL writes it. Names hold no quotes: the model has checked them.
fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

pub(super) fn parent_column(model: &Model, resource: &Resource) -> Option<String> {
    resource.parent.map(|parent| format!("{}_id", model.resource(parent).name))
}

/// The columns of a table in their one order: id, parent, times, version, fields.
fn columns(model: &Model, resource: &Resource) -> Vec<String> {
    let own = ["created_at", "updated_at", "version"].map(str::to_owned);
    let fields = resource.fields.iter().map(|field| field.name.to_string());
    ["id".to_owned()]
        .into_iter()
        .chain(parent_column(model, resource))
        .chain(own)
        .chain(fields)
        .collect()
}

fn placeholders(dialect: &Dialect, from: usize, count: usize) -> String {
    let all = (from..from + count).map(|number| format!("{}{number}", dialect.placeholder));
    all.collect::<Vec<_>>().join(", ")
}

fn table(model: &Model, resource: &Resource, dialect: &Dialect) -> Table {
    let p = dialect.placeholder;
    let name = quoted(&resource.plural);
    let columns = columns(model, resource);
    let listed = |prefix: &str| {
        columns
            .iter()
            .map(|column| format!("{prefix}{}", quoted(column)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let chain_1 = chain(model, resource, p, 2);
    let select = format!("SELECT {} FROM {}", listed("t0."), chain_1.from);
    let (first, after) = (chain(model, resource, p, 2), chain(model, resource, p, 3));
    let fields = resource.fields.iter().zip(5..);
    let fields: String = fields.fold(String::new(), |mut text, (field, number)| {
        let _ = write!(text, ", {} = {p}{number}", quoted(&field.name));
        text
    });
    let and = |terms: &[String]| {
        terms.iter().fold(String::new(), |text, term| format!("{text} AND {term}"))
    };
    let only = |terms: &[String]| match terms {
        [] => String::new(),
        terms => format!(" WHERE {}", terms.join(" AND ")),
    };
    Table {
        item: format!("{select} WHERE t0.\"id\" = {p}1{}", and(&chain_1.terms)),
        exists: format!(
            "SELECT 1 FROM {} WHERE t0.\"id\" = {p}1{}",
            chain_1.from,
            and(&chain_1.terms)
        ),
        exists_anywhere: format!("SELECT 1 FROM {name} WHERE \"id\" = {p}1"),
        page: format!("{select}{} ORDER BY t0.\"id\" LIMIT {p}1", only(&first.terms)),
        page_after: format!(
            "{select} WHERE t0.\"id\" > {p}2{} ORDER BY t0.\"id\" LIMIT {p}1",
            and(&after.terms)
        ),
        insert: format!(
            "INSERT INTO {name} ({}) VALUES ({})",
            listed(""),
            placeholders(dialect, 1, columns.len())
        ),
        update: format!(
            "UPDATE {name} SET \"updated_at\" = {p}3, \"version\" = {p}4{fields} WHERE \"id\" = {p}1 AND \"version\" = {p}2"
        ),
        delete: format!("DELETE FROM {name} WHERE \"id\" = {p}1 RETURNING {}", listed("")),
        links: links(model, resource, p),
    }
}

/// How a row is tied to the ids in its path: its own parent column, and those of its ancestors.
struct Chain {
    from: String,
    terms: Vec<String>,
}

fn chain(model: &Model, resource: &Resource, p: char, first: usize) -> Chain {
    let mut chain = Chain { from: format!("{} t0", quoted(&resource.plural)), terms: Vec::new() };
    let mut level = resource;
    for depth in 0.. {
        let Some(parent) = level.parent.map(|index| model.resource(index)) else { break };
        let column = quoted(&format!("{}_id", parent.name));
        chain.terms.push(format!("t{depth}.{column} = {p}{}", first + depth));
        // The last ancestor's own row is not needed: the foreign key says that it is there.
        if parent.parent.is_some() {
            let above = depth + 1;
            let _ = write!(
                chain.from,
                " JOIN {} t{above} ON t{above}.\"id\" = t{depth}.{column}",
                quoted(&parent.plural)
            );
        }
        level = parent;
    }
    chain
}

fn links(model: &Model, resource: &Resource, p: char) -> Vec<Link> {
    let children = resource.children.iter().map(|index| {
        let child = model.resource(*index);
        (child, format!("{}_id", resource.name), child.on_delete)
    });
    let referrers = resource.referrers.iter().filter_map(|referrer| {
        let by = model.resource(referrer.resource);
        Some((by, by.fields.get(referrer.field)?.name.to_string(), referrer.on_delete))
    });
    let link = |(by, column, on_delete): (&Resource, String, OnDelete)| {
        let chain = chain(model, by, p, 2);
        let ids =
            chain.terms.iter().filter_map(|term| term.split_once(" = ")).map(|(column, _)| column);
        let ids = ids.fold("t0.\"id\"".to_owned(), |text, column| format!("{text}, {column}"));
        let dependents = format!(
            "SELECT {ids} FROM {} WHERE t0.{} = {p}1 ORDER BY t0.\"id\" LIMIT {p}2",
            chain.from,
            quoted(&column)
        );
        Link { resource: by.index, on_delete, dependents }
    };
    children.chain(referrers).map(link).collect()
}

/// The tables every database of ours has.
pub(super) const SYSTEM_TABLES: &[&str] = &[
    "CREATE TABLE nouns_system (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE nouns_changes (
  sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  time TEXT NOT NULL, resource TEXT NOT NULL, id TEXT NOT NULL, parent_id TEXT, subject TEXT NOT NULL,
  kind TEXT NOT NULL, actor TEXT NOT NULL, request_id TEXT NOT NULL, changed TEXT, before TEXT, after TEXT
) STRICT",
];

/// 1: name, 2: value.
pub(super) fn remember(dialect: &Dialect) -> String {
    let values = placeholders(dialect, 1, 2);
    format!(
        "INSERT INTO nouns_system (name, value) VALUES ({values}) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    )
}

/// 1: name.
pub(super) fn recall(dialect: &Dialect) -> String {
    format!("SELECT value FROM nouns_system WHERE name = {}1", dialect.placeholder)
}

pub(super) fn drop_index(name: &str) -> String {
    format!("DROP INDEX {}", quoted(name))
}

pub(super) fn create_table(model: &Model, resource: &Resource, dialect: &Dialect) -> String {
    let id_column = |kind| match kind {
        IdKind::Uuid => (dialect.column)(Class::Text),
        IdKind::Integer => (dialect.column)(Class::Integer),
    };
    let (key, table) = match resource.id {
        IdKind::Uuid => (dialect.uuid_key, dialect.uuid_table),
        IdKind::Integer => (dialect.integer_key, dialect.integer_table),
    };
    let moment = (dialect.column)(Class::Moment);
    let version = (dialect.column)(Class::Integer);
    let mut text = format!("CREATE TABLE {} (\n  \"id\" {key}", quoted(&resource.plural));
    if let Some(parent) = resource.parent.map(|index| model.resource(index)) {
        let column = quoted(&format!("{}_id", parent.name));
        let to = quoted(&parent.plural);
        let _ = write!(
            text,
            ",\n  {column} {} NOT NULL REFERENCES {to} (\"id\")",
            id_column(parent.id)
        );
    }
    let _ = write!(
        text,
        ",\n  \"created_at\" {moment} NOT NULL,\n  \"updated_at\" {moment} NOT NULL,\n  \"version\" {version} NOT NULL"
    );
    for field in &resource.fields {
        let _ = write!(text, ",\n  {}", column(model, field, dialect));
    }
    let _ = write!(text, "\n) {table}");
    text
}

/// Rules are kept by our code, not by the table: a rule that is loosened needs no new table.
/// A reference is checked at commit, since items that refer to each other may go together.
fn column(model: &Model, field: &Field, dialect: &Dialect) -> String {
    let references = field.rules.to.map_or_else(String::new, |target| {
        let to = quoted(&model.resource(target.resource).plural);
        format!(" REFERENCES {to} (\"id\") DEFERRABLE INITIALLY DEFERRED")
    });
    format!("{} {}{references}", quoted(&field.name), (dialect.column)(field.class()))
}

/// Rows that are there already get the default.
pub(super) fn add_column(
    model: &Model,
    resource: &Resource,
    field: &Field,
    dialect: &Dialect,
) -> String {
    let initial = field.rules.states.as_ref().map(|states| Value::Text(states.initial.clone()));
    let default = initial.or_else(|| field.default.clone()).map(types::seal);
    let default = default.map_or_else(String::new, |value| format!(" DEFAULT {}", literal(&value)));
    let (table, column) = (quoted(&resource.plural), column(model, field, dialect));
    format!("ALTER TABLE {table} ADD COLUMN {column}{default}")
}

/// A constant of the model as SQL: the one place where a value is not bound, since DDL takes none.
fn literal(value: &Value) -> String {
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match value {
        Value::Null | Value::List(_) | Value::Object(_) => "NULL".to_owned(),
        Value::Boolean(boolean) => i32::from(*boolean).to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Decimal(decimal) => decimal.units.to_string(),
        Value::Number(number) => format!("{number:e}"),
        Value::Text(value) | Value::Json(value) => text(value),
        Value::Moment(moment) => text(&moment.to_string()),
    }
}

/// An index that the model asks for. Its name says all that it is, so that another one has another name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) name: String,
    pub(super) create: String,
}

/// All indexes of a resource: for its place under its parent, filters, references and uniqueness.
pub(super) fn indexes(model: &Model, resource: &Resource) -> Vec<Index> {
    let table = &resource.plural;
    let parent = parent_column(model, resource);
    let index = |unique: &str, name: String, columns: Vec<&str>| {
        let columns: Vec<String> = columns.into_iter().map(quoted).collect();
        let (quoted_name, columns) = (quoted(&name), columns.join(", "));
        Index {
            create: format!("CREATE {unique}INDEX {quoted_name} ON {} ({columns})", quoted(table)),
            name,
        }
    };
    let mut indexes = Vec::new();
    if let Some(parent) = &parent {
        indexes.push(index("", format!("nouns.{table}.parent"), vec![parent, "id"]));
    }
    for field in &resource.fields {
        if field.filter || field.rules.states.is_some() {
            let columns = parent.as_deref().into_iter().chain([&*field.name, "id"]).collect();
            indexes.push(index("", format!("nouns.{table}.filter.{}", field.name), columns));
        }
        if field.rules.to.is_some() {
            indexes.push(index(
                "",
                format!("nouns.{table}.ref.{}", field.name),
                vec![&field.name, "id"],
            ));
        }
    }
    for unique in &resource.unique {
        let names: Vec<&str> = unique
            .fields
            .iter()
            .filter_map(|at| resource.fields.get(*at))
            .map(|field| &*field.name)
            .collect();
        let (word, within) = match unique.scope {
            UniqueScope::Resource => ("unique", None),
            UniqueScope::Parent => ("unique_in_parent", parent.as_deref()),
        };
        let name = format!("nouns.{table}.{word}.{}", names.join("."));
        indexes.push(index("UNIQUE ", name, within.into_iter().chain(names).collect()));
    }
    indexes
}

/// Which unique rule an engine means by naming its columns, as SQLite does (`orders.a, orders.b`).
pub(super) fn unique_by_columns<'a>(
    model: &Model,
    resource: &'a Resource,
    message: &str,
) -> Option<&'a Unique> {
    let (_, list) = message.split_once(": ")?;
    let clashing: Vec<&str> =
        list.split(", ").filter_map(|name| name.split_once('.')).map(|(_, c)| c).collect();
    let parent = parent_column(model, resource);
    resource.unique.iter().find(|unique| {
        let fields = unique
            .fields
            .iter()
            .filter_map(|at| resource.fields.get(*at))
            .map(|field| &*field.name);
        let within = match unique.scope {
            UniqueScope::Resource => None,
            UniqueScope::Parent => parent.as_deref(),
        };
        within.into_iter().chain(fields).eq(clashing.iter().copied())
    })
}

#[cfg(test)]
mod tests;
