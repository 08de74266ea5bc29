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
    /// The tables every database of ours has.
    pub(super) system_tables: &'static [&'static str],
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
    system_tables: &[
    "CREATE TABLE nouns_system (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    // Without AUTOINCREMENT, which costs two more rows an entry: the newest entry always stays, so
    // no number is given twice.
    "CREATE TABLE nouns_changes (
  sequence INTEGER NOT NULL PRIMARY KEY,
  time TEXT NOT NULL, resource TEXT NOT NULL, id TEXT NOT NULL, parent_id TEXT, subject TEXT NOT NULL,
  kind TEXT NOT NULL, actor TEXT NOT NULL, request_id TEXT NOT NULL, changed TEXT, before TEXT, after TEXT
) STRICT",
    ],
    index_names: "SELECT name FROM sqlite_master WHERE type = 'index' AND substr(name, 1, 6) = 'nouns.'",
};

/// Whether the database answers at all.
pub(super) const READY: &str = "SELECT 1 FROM nouns_system";

/// The last id given in a table with integer keys. 1: the table.
pub(super) const SQLITE_LAST_ID: &str = "SELECT seq FROM sqlite_sequence WHERE name = ?1";

/// The statements of a model in one dialect.
#[derive(Debug)]
pub(super) struct Sql {
    tables: Vec<Table>,
    pub(super) log: String,
    /// 1: the time before which entries go, 2: how many at most.
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
    /// The start and the end of an update.
    update: [String; 2],
    placeholder: char,
    /// 1: id.
    pub(super) delete: String,
    pub(super) links: Vec<Link>,
}

impl Table {
    /// Sets what changed and nothing else: an index is touched only when its own columns are set.
    /// 1: id, 2: the version it had, 3: updated_at, 4: version, then the fields.
    pub(super) fn update(&self, resource: &Resource, changed: &[usize]) -> String {
        let [start, end] = &self.update;
        let mut text = String::with_capacity(start.len() + end.len() + 24 * changed.len());
        text.push_str(start);
        let fields = changed.iter().filter_map(|index| resource.fields.get(*index));
        for (field, number) in fields.zip(5..) {
            let _ = write!(text, ", {} = {}{number}", quoted(&field.name), self.placeholder);
        }
        text.push_str(end);
        text
    }
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
            // Sequence is the true order; a clock that was wrong for a while must not hold it up.
            // The newest entry stays: the next one is numbered after it.
            sweep: format!(
                "DELETE FROM nouns_changes WHERE sequence <= (SELECT max(sequence) FROM \
                 (SELECT sequence, time FROM nouns_changes ORDER BY sequence LIMIT {p}2) AS oldest WHERE time < {p}1) \
                 AND sequence < (SELECT max(sequence) FROM nouns_changes)"
            ),
        }
    }

    /// Every statement there is.
    #[cfg(any(fuzzing, test))]
    pub(super) fn texts(&self, model: &Model) -> Vec<String> {
        let mut all = vec![self.log.clone(), self.sweep.clone()];
        for (table, resource) in self.tables.iter().zip(&model.resources) {
            let Table { item, exists, exists_anywhere, page, page_after, .. } = table;
            let Table { insert, delete, links, .. } = table;
            let fixed = [item, exists, exists_anywhere, page, page_after, insert, delete];
            all.extend(fixed.into_iter().cloned());
            all.push(table.update(resource, &Vec::from_iter(0..resource.fields.len())));
            all.extend(links.iter().map(|link| link.dependents.clone()));
        }
        all
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

/// The columns of a table in their one order: id, parent, times, version, fields.
fn columns(resource: &Resource) -> Vec<String> {
    let own = ["created_at", "updated_at", "version"].map(str::to_owned);
    let fields = resource.fields.iter().map(|field| field.name.to_string());
    ["id".to_owned()]
        .into_iter()
        .chain(resource.parent_key.as_deref().map(str::to_owned))
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
    let columns = columns(resource);
    let listed = |prefix: &str| {
        let columns = columns.iter().map(|column| format!("{prefix}{}", quoted(column)));
        columns.collect::<Vec<_>>().join(", ")
    };
    let chain = Chain::new(model, resource);
    let from = &chain.from;
    let (select, insert) = (listed("t0."), listed(""));
    let by_id = chain.condition(&format!("t0.\"id\" = {p}1"), p, 2);
    let whole = chain.condition("", p, 2);
    let after = chain.condition(&format!("t0.\"id\" > {p}2"), p, 3);
    let values = placeholders(dialect, 1, columns.len());
    Table {
        item: format!("SELECT {select} FROM {from}{by_id}"),
        exists: format!("SELECT 1 FROM {from}{by_id}"),
        exists_anywhere: format!("SELECT 1 FROM {name} WHERE \"id\" = {p}1"),
        page: format!("SELECT {select} FROM {from}{whole} ORDER BY t0.\"id\" LIMIT {p}1"),
        page_after: format!("SELECT {select} FROM {from}{after} ORDER BY t0.\"id\" LIMIT {p}1"),
        insert: format!("INSERT INTO {name} ({insert}) VALUES ({values})"),
        update: [
            format!("UPDATE {name} SET \"updated_at\" = {p}3, \"version\" = {p}4"),
            format!(" WHERE \"id\" = {p}1 AND \"version\" = {p}2"),
        ],
        placeholder: p,
        delete: format!("DELETE FROM {name} WHERE \"id\" = {p}1 RETURNING {insert}"),
        links: links(model, resource, p),
    }
}

/// How a row is tied to the ids in its path: by its own parent column, and those of its ancestors.
struct Chain {
    from: String,
    /// The nearest first.
    columns: Vec<String>,
}

impl Chain {
    fn new(model: &Model, resource: &Resource) -> Self {
        let mut chain =
            Self { from: format!("{} t0", quoted(&resource.plural)), columns: Vec::new() };
        let mut level = resource;
        for depth in 0.. {
            let (Some(key), Some(parent)) = (&level.parent_key, level.parent) else { break };
            let (column, parent) = (format!("t{depth}.{}", quoted(key)), model.resource(parent));
            // The last ancestor's own row is not needed: the foreign key says that it is there.
            if parent.parent.is_some() {
                let (above, table) = (depth + 1, quoted(&parent.plural));
                let _ = write!(chain.from, " JOIN {table} t{above} ON t{above}.\"id\" = {column}");
            }
            chain.columns.push(column);
            level = parent;
        }
        chain
    }

    /// Each column with its parameter, numbered from `first`, and one more condition before them.
    fn condition(&self, other: &str, p: char, first: usize) -> String {
        let tied = self
            .columns
            .iter()
            .zip(first..)
            .map(|(column, number)| format!("{column} = {p}{number}"));
        let other = Some(other.to_owned()).filter(|other| !other.is_empty());
        let terms: Vec<String> = other.into_iter().chain(tied).collect();
        if terms.is_empty() { String::new() } else { format!(" WHERE {}", terms.join(" AND ")) }
    }
}

fn links(model: &Model, resource: &Resource, p: char) -> Vec<Link> {
    let children = resource.children.iter().filter_map(|index| {
        let child = model.resource(*index);
        Some((child, child.parent_key.as_deref()?, child.on_delete))
    });
    let referrers = resource.referrers.iter().filter_map(|referrer| {
        let by = model.resource(referrer.resource);
        Some((by, &*by.fields.get(referrer.field)?.name, referrer.on_delete))
    });
    let link = |(by, column, on_delete): (&Resource, &str, OnDelete)| {
        let Chain { from, columns } = Chain::new(model, by);
        let ids =
            ["t0.\"id\"".to_owned()].into_iter().chain(columns).collect::<Vec<_>>().join(", ");
        let column = quoted(column);
        let dependents = format!(
            "SELECT {ids} FROM {from} WHERE t0.{column} = {p}1 ORDER BY t0.\"id\" LIMIT {p}2"
        );
        Link { resource: by.index, on_delete, dependents }
    };
    children.chain(referrers).map(link).collect()
}

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
    let parent = resource.parent.map(|index| model.resource(index));
    if let (Some(parent), Some(key)) = (parent, &resource.parent_key) {
        let column = quoted(key);
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
    let default = field.default.clone().map(types::seal);
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
pub(super) fn indexes(resource: &Resource) -> Vec<Index> {
    let table = &resource.plural;
    let parent = &resource.parent_key;
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
        if field.filter {
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
pub(super) fn unique_by_columns<'a>(resource: &'a Resource, message: &str) -> Option<&'a Unique> {
    let (_, list) = message.split_once(": ")?;
    let clashing: Vec<&str> =
        list.split(", ").filter_map(|name| name.split_once('.')).map(|(_, c)| c).collect();
    let parent = &resource.parent_key;
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
