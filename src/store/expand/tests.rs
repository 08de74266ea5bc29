//! The statements of expanded reads: one for each relation, apart from children on SQLite.

use std::sync::Arc;

use rusqlite::Connection;

use super::*;
use crate::intent::{self, PathIds, RequestVerb, ResourcePath, Route, RouteTarget};
use crate::model;
use crate::permit::Caller;
use crate::plan::{self, Plan, ReadPlan};
use crate::store::driver::poll_once;
use crate::store::fault_injection::{FaultyDriver, inject, steps_since_inject};
use crate::store::sql::ddl::{create_table, indexes};
use crate::store::sql::dialect::SQLITE;
use crate::store::sqlite::driver::SqliteDriver;

const MODEL: &str = r#"
title = "Shop"
[resources.product]
id = "integer"
[resources.product.fields]
name = { type = "text" }
[resources.customer]
id = "integer"
[resources.customer.fields]
name = { type = "text" }
[resources.order]
parent = "customer"
id = "integer"
[resources.order.fields]
product = { type = "ref", to = "product" }
"#;

/// Fifty customers with sixty orders each.
const ROWS: &str = "
INSERT INTO products WITH n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 7) \
  SELECT n, '2026-11-18T00:00:00.000000Z', '2026-11-18T00:00:00.000000Z', 1, 'p' FROM n;
INSERT INTO customers WITH n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 50) \
  SELECT n, '2026-11-18T00:00:00.000000Z', '2026-11-18T00:00:00.000000Z', 1, 'c' FROM n;
INSERT INTO orders WITH n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 3000) \
  SELECT n, 1 + n % 50, '2026-11-18T00:00:00.000000Z', '2026-11-18T00:00:00.000000Z', 1, 1 + n % 7 FROM n;
";

const CUSTOMERS: ResourceIndex = ResourceIndex(1);
const ORDERS: ResourceIndex = ResourceIndex(2);

/// The outcome of a GET of a top-level or flat collection, or of an item in it, and its statements.
fn read(
    connection: &Connection,
    context: &StoreContext,
    (resource, item): (ResourceIndex, Option<i64>),
    query: &str,
) -> (ExpandedPage, Vec<String>) {
    let (model, caller) = (&context.model, Caller::open(&context.model));
    let form = if resource == ORDERS { PathForm::Flat } else { PathForm::Nested };
    let ids = PathIds { ancestors: Vec::new(), item: item.map(Id::Integer) };
    let path = ResourcePath { resource, form, ids: Some(ids) };
    let target = match item {
        Some(_) => RouteTarget::Item(path),
        None => RouteTarget::Collection(path),
    };
    let route = Route { verb: RequestVerb::Get, target };
    let intent = intent::read(model, route, (Some(query), &caller), b"").unwrap();
    let plan = plan::make(model, intent, &caller, || panic!("no write")).unwrap();
    let Plan::Read(ReadPlan::Expanded(read)) = plan else { panic!("{plan:?}") };
    inject(None);
    let mut driver = FaultyDriver(SqliteDriver { connection });
    let outcome = poll_once(read_expanded(&mut driver, context, &read)).unwrap().unwrap();
    let (Outcome::ExpandedItem(_, expanded) | Outcome::ExpandedPage(expanded)) = outcome else {
        panic!("{outcome:?}");
    };
    (expanded, steps_since_inject())
}

#[test]
fn expanded_reads_have_one_statement_for_each_relation_or_parent() {
    let model = Arc::new(model::read("expand.toml", MODEL).unwrap());
    let connection = Connection::open_in_memory().unwrap();
    for text in SQLITE.system_tables {
        connection.execute_batch(text).unwrap();
    }
    for resource in model.declared() {
        connection.execute_batch(&create_table(&model, resource, &SQLITE)).unwrap();
        for index in indexes(resource, &SQLITE) {
            connection.execute_batch(&index.create).unwrap();
        }
    }
    connection.execute_batch(ROWS).unwrap();
    let context = StoreContext::new(&model, &SQLITE, Arc::default());
    // The first statement reads the position in the change log, and each of the customers has one for its orders.
    for (what, query, statements) in [
        ((CUSTOMERS, None), "expand=orders", 2 + 50),
        ((CUSTOMERS, None), "expand=orders.product", 3 + 50),
        ((CUSTOMERS, Some(1)), "expand=orders,orders.product", 4),
        ((ORDERS, None), "expand=customer,product", 4),
        ((ORDERS, None), "limit=500&expand=product", 3),
        ((ORDERS, None), "expand=customer.orders(limit=1)", 3 + 50),
    ] {
        let (expanded, steps) = read(&connection, &context, what, query);
        assert_eq!(steps.len(), statements, "{query}: {steps:?}");
        assert!(steps.iter().all(|step| step == "SELECT" || step.starts_with("WITH")), "{steps:?}");
        assert!(!expanded.page.items.is_empty(), "{query}");
    }
    let (expanded, _) = read(&connection, &context, (CUSTOMERS, None), "expand=orders");
    let groups = &expanded.related[0].groups;
    assert_eq!((expanded.page.items.len(), groups.len()), (50, 50));
    assert!(groups.values().all(|group| group.items.len() == 50 && group.next.is_some()));
}
