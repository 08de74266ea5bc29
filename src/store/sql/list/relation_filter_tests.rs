//! Filters over relations: their SQL, and that the related items are found by an index and the items by another.

use std::sync::Arc;

use expect_test::expect;

use super::tests::{literal, open_empty, plan};
use super::*;
use crate::intent::{
    self, Intent, PathForm, PathIds, RequestVerb, ResourcePath, Route, RouteTarget,
};
use crate::model::{self, GrantVerb, ResourceIndex};
use crate::permit::{Caller, Rights};
use crate::store::sql::ddl::{create_table, indexes};
use crate::store::sql::dialect::{POSTGRES, SQLITE};

const MODEL: &str = r#"
title = "Orders"
[resources.region]
id = "integer"
[resources.region.fields]
owner = { type = "text", filter = true }
[resources.customer.fields]
email = { type = "email", filter = true }
region = { type = "ref", to = "region" }
[resources.depot]
parent = "region"
[resources.depot.fields]
size = { type = "integer", filter = true }
[resources.order]
parent = "customer"
[resources.order.fields]
total = { type = "integer", filter = true }
depot = { type = "ref", to = "depot" }
[roles.clerk]
region = { verbs = ["get"], where = "owner = $user" }
customer = { verbs = ["get"], where = "region.owner = $user" }
"*" = ["get"]
"#;

const ORDERS: ResourceIndex = ResourceIndex(3);

const QUERIES: &[&str] = &[
    "customer.email=a@example.com",
    "customer.email=a@example.com&total=5&sort=-total",
    "customer.region.owner=ann",
    "depot.size=7",
    "depot.size:exists=false",
    "not=(depot.size=7)",
    "any=(depot.size=7;total=5)",
];

fn list(model: &Model, query: &str) -> ListQuery {
    let (form, ids) = (PathForm::Flat, Some(PathIds::default()));
    let target = RouteTarget::Collection(ResourcePath { resource: ORDERS, form, ids });
    let route = Route { verb: RequestVerb::Get, target };
    match intent::read(model, route, (Some(query), &intent::AllReadable), b"") {
        Ok(Intent::List(_, list)) => ListQuery::clone(&list),
        other => panic!("{query}: {other:?}"),
    }
}

/// The first page of each list for a caller with all rights, and for a clerk, with example values.
fn statements(model: &Model, dialect: &'static Dialect) -> Vec<(String, String, Vec<String>)> {
    let rights = Rights::of_roles(model, ["clerk"].into_iter());
    let clerk = Caller::user("ann".into(), Arc::new(rights));
    let clerk = AccessScope::new(&clerk, GrantVerb::Get);
    let mut all = Vec::new();
    for (who, scope) in [("all", AccessScope::default()), ("clerk", clerk)] {
        let (resource, form) = (ORDERS, PathForm::Flat);
        let collection = Collection { resource, form, ancestors: Vec::new(), scope };
        for query in QUERIES {
            let list = list(model, query);
            let listing = ListStatements::new(model, dialect, &collection, &list);
            let statement = listing.page(listing.sections()[0], 51);
            let binds = statement.binds.iter().map(literal).collect();
            all.push((format!("{who} {query}"), statement.sql.into_owned(), binds));
        }
    }
    all
}

#[test]
fn relation_filter_sql_matches_snapshot() {
    let model = model::read("related.toml", MODEL).unwrap();
    let mut all = String::new();
    for (name, sql, binds) in statements(&model, &POSTGRES) {
        let (_, condition) = sql.split_once(" WHERE ").unwrap();
        let (condition, _) = condition.rsplit_once(" ORDER BY ").unwrap();
        all.push_str(&format!("{name}\n    {condition}\n    {}\n", binds.join(", ")));
    }
    expect![[r#"
        all customer.email=a@example.com
            t0."customer_id" IN (SELECT r1."id" FROM "customers" r1 WHERE left(r1."email", 256) = $1::text COLLATE "C")
            'a@example.com', 51
        all customer.email=a@example.com&total=5&sort=-total
            t0."customer_id" IN (SELECT r1."id" FROM "customers" r1 WHERE left(r1."email", 256) = $1::text COLLATE "C") AND t0."total" = $2::bigint AND t0."total" IS NULL
            'a@example.com', 5, 51
        all customer.region.owner=ann
            t0."customer_id" IN (SELECT r1."id" FROM "customers" r1 WHERE r1."region" IN (SELECT r2."id" FROM "regions" r2 WHERE left(r2."owner", 256) = $1::text COLLATE "C"))
            'ann', 51
        all depot.size=7
            t0."depot" IN (SELECT r1."id" FROM "depots" r1 WHERE r1."size" = $1::bigint)
            7, 51
        all depot.size:exists=false
            (t0."depot" IS NULL OR t0."depot" IN (SELECT r1."id" FROM "depots" r1 WHERE r1."size" IS NULL))
            51
        all not=(depot.size=7)
            (t0."depot" IS NULL OR t0."depot" IN (SELECT r1."id" FROM "depots" r1 WHERE (r1."size" = $1::bigint) IS NOT TRUE))
            7, 51
        all any=(depot.size=7;total=5)
            (t0."depot" IN (SELECT r1."id" FROM "depots" r1 WHERE r1."size" = $1::bigint) OR t0."total" = $2::bigint)
            7, 5, 51
        clerk customer.email=a@example.com
            (((SELECT r1."owner" FROM "regions" r1 WHERE r1."id" = t1."region") = $1::text COLLATE "C")) AND t0."customer_id" IN (SELECT r2."id" FROM "customers" r2 WHERE (((SELECT r3."owner" FROM "regions" r3 WHERE r3."id" = r2."region") = $2::text COLLATE "C")) AND left(r2."email", 256) = $3::text COLLATE "C")
            'ann', 'ann', 'a@example.com', 51
        clerk customer.email=a@example.com&total=5&sort=-total
            (((SELECT r1."owner" FROM "regions" r1 WHERE r1."id" = t1."region") = $1::text COLLATE "C")) AND t0."customer_id" IN (SELECT r2."id" FROM "customers" r2 WHERE (((SELECT r3."owner" FROM "regions" r3 WHERE r3."id" = r2."region") = $2::text COLLATE "C")) AND left(r2."email", 256) = $3::text COLLATE "C") AND t0."total" = $4::bigint AND t0."total" IS NULL
            'ann', 'ann', 'a@example.com', 5, 51
        clerk customer.region.owner=ann
            (((SELECT r1."owner" FROM "regions" r1 WHERE r1."id" = t1."region") = $1::text COLLATE "C")) AND t0."customer_id" IN (SELECT r2."id" FROM "customers" r2 WHERE (((SELECT r3."owner" FROM "regions" r3 WHERE r3."id" = r2."region") = $2::text COLLATE "C")) AND r2."region" IN (SELECT r4."id" FROM "regions" r4 WHERE ((left(r4."owner", 256) = left($3::text COLLATE "C", 256) AND (r4."owner" = $3::text COLLATE "C"))) AND left(r4."owner", 256) = $4::text COLLATE "C"))
            'ann', 'ann', 'ann', 'ann', 51
        clerk depot.size=7
            (((SELECT r1."owner" FROM "regions" r1 WHERE r1."id" = t1."region") = $1::text COLLATE "C")) AND t0."depot" IN (SELECT r2."id" FROM "depots" r2 WHERE r2."region_id" IN (SELECT r3."id" FROM "regions" r3 WHERE ((left(r3."owner", 256) = left($2::text COLLATE "C", 256) AND (r3."owner" = $2::text COLLATE "C")))) AND r2."size" = $3::bigint)
            'ann', 'ann', 7, 51
        clerk depot.size:exists=false
            (((SELECT r1."owner" FROM "regions" r1 WHERE r1."id" = t1."region") = $1::text COLLATE "C")) AND (t0."depot" IS NULL OR t0."depot" IN (SELECT r2."id" FROM "depots" r2 WHERE r2."region_id" IN (SELECT r3."id" FROM "regions" r3 WHERE ((left(r3."owner", 256) = left($2::text COLLATE "C", 256) AND (r3."owner" = $2::text COLLATE "C")))) AND r2."size" IS NULL))
            'ann', 'ann', 51
        clerk not=(depot.size=7)
            (((SELECT r1."owner" FROM "regions" r1 WHERE r1."id" = t1."region") = $1::text COLLATE "C")) AND (t0."depot" IS NULL OR t0."depot" IN (SELECT r2."id" FROM "depots" r2 WHERE r2."region_id" IN (SELECT r3."id" FROM "regions" r3 WHERE ((left(r3."owner", 256) = left($2::text COLLATE "C", 256) AND (r3."owner" = $2::text COLLATE "C")))) AND (r2."size" = $3::bigint) IS NOT TRUE))
            'ann', 'ann', 7, 51
        clerk any=(depot.size=7;total=5)
            (((SELECT r1."owner" FROM "regions" r1 WHERE r1."id" = t1."region") = $1::text COLLATE "C")) AND (t0."depot" IN (SELECT r2."id" FROM "depots" r2 WHERE r2."region_id" IN (SELECT r3."id" FROM "regions" r3 WHERE ((left(r3."owner", 256) = left($2::text COLLATE "C", 256) AND (r3."owner" = $2::text COLLATE "C")))) AND r2."size" = $3::bigint) OR t0."total" = $4::bigint)
            'ann', 'ann', 7, 5, 51
    "#]].assert_eq(&all);
}

#[test]
fn relation_filter_on_sqlite_uses_the_indexes_of_both_items() {
    let model = model::read("related.toml", MODEL).unwrap();
    let connection = open_empty(&model);
    let mut all = String::new();
    for (name, sql, _) in statements(&model, &SQLITE) {
        all.push_str(&format!("{name}: {}\n", plan(&connection, &sql)));
    }
    expect![[r#"
        all customer.email=a@example.com: SEARCH t0 USING INDEX nouns.orders.parent (customer_id=?); LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.customers.filter.email (email=?); USE TEMP B-TREE FOR ORDER BY
        all customer.email=a@example.com&total=5&sort=-total: SEARCH t0 USING INDEX nouns.orders.filter.total (customer_id=? AND total=?); LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.customers.filter.email (email=?); USE TEMP B-TREE FOR ORDER BY
        all customer.region.owner=ann: SEARCH t0 USING INDEX nouns.orders.parent (customer_id=?); LIST SUBQUERY 2; SEARCH r1 USING COVERING INDEX nouns.customers.ref.region (region=?); LIST SUBQUERY 1; SEARCH r2 USING COVERING INDEX nouns.regions.start.owner (<expr>=?); USE TEMP B-TREE FOR ORDER BY
        all depot.size=7: SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); LIST SUBQUERY 1; SCAN r1 USING COVERING INDEX nouns.depots.filter.size; USE TEMP B-TREE FOR ORDER BY
        all depot.size:exists=false: MULTI-INDEX OR; INDEX 1; SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); INDEX 2; LIST SUBQUERY 1; SCAN r1 USING COVERING INDEX nouns.depots.filter.size; SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); USE TEMP B-TREE FOR ORDER BY
        all not=(depot.size=7): MULTI-INDEX OR; INDEX 1; SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); INDEX 2; LIST SUBQUERY 1; SCAN r1 USING COVERING INDEX nouns.depots.filter.size; SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); USE TEMP B-TREE FOR ORDER BY
        all any=(depot.size=7;total=5): SCAN t0; LIST SUBQUERY 1; SCAN r1 USING COVERING INDEX nouns.depots.filter.size; CREATE BLOOM FILTER
        clerk customer.email=a@example.com: SEARCH t1 USING PRIMARY KEY (id=?); LIST SUBQUERY 3; SEARCH r2 USING INDEX nouns.customers.filter.email (email=?); CORRELATED SCALAR SUBQUERY 2; SEARCH r3 USING INTEGER PRIMARY KEY (rowid=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r1 USING INTEGER PRIMARY KEY (rowid=?); REUSE LIST SUBQUERY 3; SEARCH t0 USING INDEX nouns.orders.parent (customer_id=?); USE TEMP B-TREE FOR ORDER BY
        clerk customer.email=a@example.com&total=5&sort=-total: SEARCH t1 USING PRIMARY KEY (id=?); LIST SUBQUERY 3; SEARCH r2 USING INDEX nouns.customers.filter.email (email=?); CORRELATED SCALAR SUBQUERY 2; SEARCH r3 USING INTEGER PRIMARY KEY (rowid=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r1 USING INTEGER PRIMARY KEY (rowid=?); REUSE LIST SUBQUERY 3; SEARCH t0 USING INDEX nouns.orders.filter.total (customer_id=? AND total=?); USE TEMP B-TREE FOR ORDER BY
        clerk customer.region.owner=ann: SEARCH t1 USING PRIMARY KEY (id=?); LIST SUBQUERY 4; SEARCH r2 USING COVERING INDEX nouns.customers.ref.region (region=?); LIST SUBQUERY 3; SEARCH r4 USING INDEX nouns.regions.start.owner (<expr>=?); CORRELATED SCALAR SUBQUERY 2; SEARCH r3 USING INTEGER PRIMARY KEY (rowid=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r1 USING INTEGER PRIMARY KEY (rowid=?); REUSE LIST SUBQUERY 4; SEARCH t0 USING INDEX nouns.orders.parent (customer_id=?); USE TEMP B-TREE FOR ORDER BY
        clerk depot.size=7: SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); LIST SUBQUERY 3; SEARCH r2 USING COVERING INDEX nouns.depots.filter.size (region_id=? AND size=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); SEARCH t1 USING PRIMARY KEY (id=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r1 USING INTEGER PRIMARY KEY (rowid=?); USE TEMP B-TREE FOR ORDER BY
        clerk depot.size:exists=false: MULTI-INDEX OR; INDEX 1; SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); INDEX 2; LIST SUBQUERY 3; SEARCH r2 USING COVERING INDEX nouns.depots.filter.size (region_id=? AND size=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); LIST SUBQUERY 3; SEARCH r2 USING COVERING INDEX nouns.depots.filter.size (region_id=? AND size=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); CREATE BLOOM FILTER; SEARCH t1 USING PRIMARY KEY (id=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r1 USING INTEGER PRIMARY KEY (rowid=?); USE TEMP B-TREE FOR ORDER BY
        clerk not=(depot.size=7): MULTI-INDEX OR; INDEX 1; SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); INDEX 2; LIST SUBQUERY 3; SEARCH r2 USING COVERING INDEX nouns.depots.filter.size (region_id=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); LIST SUBQUERY 3; SEARCH r2 USING COVERING INDEX nouns.depots.filter.size (region_id=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); CREATE BLOOM FILTER; SEARCH t1 USING PRIMARY KEY (id=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r1 USING INTEGER PRIMARY KEY (rowid=?); USE TEMP B-TREE FOR ORDER BY
        clerk any=(depot.size=7;total=5): SCAN t0; LIST SUBQUERY 3; SEARCH r2 USING COVERING INDEX nouns.depots.filter.size (region_id=? AND size=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); CREATE BLOOM FILTER; SEARCH t1 USING PRIMARY KEY (id=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r1 USING INTEGER PRIMARY KEY (rowid=?)
    "#]].assert_eq(&all);
}

/// The same on PostgreSQL, with enough rows that a sequential scan would be slower.
#[test]
fn relation_filter_on_postgres_uses_the_indexes_of_both_items() {
    let model = model::read("related.toml", MODEL).unwrap();
    let mut script = String::new();
    for resource in model.declared() {
        script.push_str(&format!("{};\n", create_table(&model, resource, &POSTGRES)));
        for index in indexes(resource, &POSTGRES) {
            script.push_str(&format!("{};\n", index.create));
        }
    }
    script.push_str(
        "INSERT INTO regions SELECT n, now(), now(), 1, 'o' || n FROM generate_series(1, 2000) n;
         INSERT INTO customers SELECT gen_random_uuid(), now(), now(), 1, 'c' || n || '@example.com', 1 + n % 2000 FROM generate_series(1, 10000) n;
         INSERT INTO depots SELECT gen_random_uuid(), 1 + n % 2000, now(), now(), 1, n FROM generate_series(1, 2000) n;
         INSERT INTO orders SELECT gen_random_uuid(), id, now(), now(), 1, n, NULL FROM customers, generate_series(1, 4) n;
         ANALYZE;\n",
    );
    let statements = statements(&model, &POSTGRES).into_iter();
    let by_equality = |(name, ..): &(String, _, _)| !name.contains('(') && !name.contains("exists");
    for (number, (name, sql, binds)) in statements.filter(by_equality).enumerate() {
        script.push_str(&format!(
            "PREPARE p{number} AS {sql};\nSELECT '{name}:';\nEXPLAIN (COSTS OFF) EXECUTE p{number} ({});\n",
            binds.join(", ")
        ));
    }
    let plans = crate::store::test_stores::psql("relation_filter_plans", &script);
    for expected in [
        "using \"nouns.customers.filter.email\" on customers r1",
        "using \"nouns.orders.ref.depot\" on orders t0",
        "Index Cond: (customer_id = r1.id)",
    ] {
        assert!(plans.contains(expected), "{expected}: {plans}");
    }
    let scans = plans.lines().filter(|line| line.contains("Seq Scan")).collect::<Vec<_>>();
    assert!(scans.iter().all(|line| line.contains(" on depots ")), "{plans}");
}
