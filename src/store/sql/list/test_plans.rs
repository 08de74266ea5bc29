//! For tests: the query plans of statements, on both engines.

use std::sync::Arc;

use rusqlite::Connection;

use super::*;
use crate::intent::{self, Intent, PathIds, RequestVerb, ResourcePath, Route, RouteTarget};
use crate::model::{GrantVerb, ResourceIndex};
use crate::permit::{Caller, Rights};
use crate::store::sql::ddl::{create_table, indexes};
use crate::store::sql::dialect::{POSTGRES, SQLITE};
use crate::store::test_stores::psql;

/// A statement with a name and example values.
pub struct NamedStatement {
    pub name: String,
    pub sql: String,
    pub values: Vec<String>,
}

impl NamedStatement {
    pub fn new(name: String, statement: Statement<'_>) -> Self {
        let values = statement.binds.iter().map(literal).collect();
        Self { name, sql: statement.sql.into_owned(), values }
    }
}

/// The query of a list, of a flat one if the resource is nested.
pub fn flat_list(model: &Model, resource: ResourceIndex, query: &str) -> ListQuery {
    let (form, ids) = (PathForm::Flat, Some(PathIds::default()));
    parse_list(model, ResourcePath { resource, form, ids }, query)
}

pub fn parse_list(model: &Model, path: ResourcePath, query: &str) -> ListQuery {
    let route = Route { verb: RequestVerb::Get, target: RouteTarget::Collection(path) };
    match intent::read(model, route, (Some(query), &intent::AllReadable), b"") {
        Ok(Intent::List(_, list)) => ListQuery::clone(&list),
        other => panic!("{query}: {other:?}"),
    }
}

/// The scope of GET of a user named elm with one role.
pub fn role_scope(model: &Model, role: &str) -> AccessScope {
    let rights = Rights::of_roles(model, [role].into_iter());
    AccessScope::new(&Caller::user("elm".into(), Arc::new(rights)), GrantVerb::Get)
}

pub fn flat(resource: ResourceIndex, scope: AccessScope) -> Collection {
    Collection { resource, form: PathForm::Flat, ancestors: Vec::new(), scope }
}

/// An empty SQLite database with the tables and indexes of a model.
pub fn open_empty(model: &Model) -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    for resource in model.declared() {
        connection.execute_batch(&create_table(model, resource, &SQLITE)).unwrap();
        for index in indexes(resource, &SQLITE) {
            connection.execute_batch(&index.create).unwrap();
        }
    }
    connection
}

/// SQLite's query plan for a statement.
pub fn plan(connection: &Connection, text: &str) -> String {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
    // Unbound parameters are NULL, which changes no plan.
    let mut rows = statement.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        lines.push(row.get::<_, String>(3).unwrap());
    }
    lines.join("; ")
}

/// SQLite's plans, each in a line after its name.
pub fn sqlite_plans(model: &Model, statements: &[NamedStatement]) -> String {
    let connection = open_empty(model);
    let line = |one: &NamedStatement| format!("{}: {}\n", one.name, plan(&connection, &one.sql));
    statements.iter().map(line).collect()
}

/// PostgreSQL's plans, each after its name, with the rows that a script inserts.
pub fn postgres_plans(
    database: &str,
    model: &Model,
    rows: &str,
    statements: &[NamedStatement],
) -> String {
    let mut script = String::new();
    for resource in model.declared() {
        script.push_str(&format!("{};\n", create_table(model, resource, &POSTGRES)));
        for index in indexes(resource, &POSTGRES) {
            script.push_str(&format!("{};\n", index.create));
        }
    }
    script.push_str(rows);
    for (number, NamedStatement { name, sql, values }) in statements.iter().enumerate() {
        script.push_str(&format!(
            "PREPARE p{number} AS {sql};\nSELECT '{name}:';\nEXPLAIN (COSTS OFF) EXECUTE p{number} ({});\n",
            values.join(", ")
        ));
    }
    psql(database, &script)
}

/// A parameter as an SQL literal.
pub fn literal(bind: &Bind<'_>) -> String {
    match bind {
        Bind::Null => "NULL".to_owned(),
        Bind::Boolean(boolean) => boolean.to_string(),
        Bind::Integer(number) | Bind::Id(Id::Integer(number)) => number.to_string(),
        Bind::Real(number) => number.to_string(),
        Bind::Text(text) => format!("'{text}'"),
        Bind::Moment(moment) | Bind::MomentText(moment) => format!("'{moment}'"),
        Bind::Id(id @ Id::Uuid(_)) => format!("'{id}'"),
        Bind::Derived(derivation, text) => format!("'{}'", derivation.derive(text)),
    }
}
