//! Filters over relations: their SQL, and that the related items are found by an index and the items by another.

use expect_test::expect;

use super::test_plans::{
    NamedStatement, flat, flat_list, postgres_plans, role_scope, sqlite_plans,
};
use super::*;
use crate::model::{self, ResourceIndex};
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

/// The first page of each list for a caller with all rights, and for a clerk.
fn statements(model: &Model, dialect: &'static Dialect) -> Vec<NamedStatement> {
    let mut all = Vec::new();
    for (who, scope) in [("all", AccessScope::default()), ("clerk", role_scope(model, "clerk"))] {
        let collection = flat(ORDERS, scope);
        for query in QUERIES {
            let list = flat_list(model, ORDERS, query);
            let listing =
                ListStatements::new(model, dialect, &collection, &list, SelectedBy::Condition);
            let statement = listing.page(listing.sections()[0], 51);
            all.push(NamedStatement::new(format!("{who} {query}"), statement));
        }
    }
    all
}

#[test]
fn relation_filter_sql_matches_snapshot() {
    let model = model::read("related.toml", MODEL).unwrap();
    let mut all = String::new();
    for NamedStatement { name, sql, values } in statements(&model, &POSTGRES) {
        let (_, condition) = sql.split_once(" WHERE ").unwrap();
        let (condition, _) = condition.rsplit_once(" ORDER BY ").unwrap();
        all.push_str(&format!("{name}\n    {condition}\n    {}\n", values.join(", ")));
    }
    expect![[r#"
        all customer.email=a@example.com
            t0."customer_id" IN (SELECT r1."id" FROM "customers" r1 WHERE left(r1."email", 256) = $1::text COLLATE "C")
            'a@example.com', 51
        all customer.email=a@example.com&total=5&sort=-total
            t0."customer_id" IN (SELECT r1."id" FROM "customers" r1 WHERE left(r1."email", 256) = $1::text COLLATE "C") AND t0."total" = $2::bigint
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
            ((t1."region" IN (SELECT r1."id" FROM "regions" r1 WHERE (left(r1."owner", 256) = left($1::text COLLATE "C", 256) AND (r1."owner" = $1::text COLLATE "C"))))) AND t0."customer_id" IN (SELECT r2."id" FROM "customers" r2 WHERE ((r2."region" IN (SELECT r3."id" FROM "regions" r3 WHERE (left(r3."owner", 256) = left($2::text COLLATE "C", 256) AND (r3."owner" = $2::text COLLATE "C"))))) AND left(r2."email", 256) = $3::text COLLATE "C")
            'elm', 'elm', 'a@example.com', 51
        clerk customer.email=a@example.com&total=5&sort=-total
            ((t1."region" IN (SELECT r1."id" FROM "regions" r1 WHERE (left(r1."owner", 256) = left($1::text COLLATE "C", 256) AND (r1."owner" = $1::text COLLATE "C"))))) AND t0."customer_id" IN (SELECT r2."id" FROM "customers" r2 WHERE ((r2."region" IN (SELECT r3."id" FROM "regions" r3 WHERE (left(r3."owner", 256) = left($2::text COLLATE "C", 256) AND (r3."owner" = $2::text COLLATE "C"))))) AND left(r2."email", 256) = $3::text COLLATE "C") AND t0."total" = $4::bigint
            'elm', 'elm', 'a@example.com', 5, 51
        clerk customer.region.owner=ann
            ((t1."region" IN (SELECT r1."id" FROM "regions" r1 WHERE (left(r1."owner", 256) = left($1::text COLLATE "C", 256) AND (r1."owner" = $1::text COLLATE "C"))))) AND t0."customer_id" IN (SELECT r2."id" FROM "customers" r2 WHERE ((r2."region" IN (SELECT r3."id" FROM "regions" r3 WHERE (left(r3."owner", 256) = left($2::text COLLATE "C", 256) AND (r3."owner" = $2::text COLLATE "C"))))) AND r2."region" IN (SELECT r4."id" FROM "regions" r4 WHERE ((left(r4."owner", 256) = left($3::text COLLATE "C", 256) AND (r4."owner" = $3::text COLLATE "C"))) AND left(r4."owner", 256) = $4::text COLLATE "C"))
            'elm', 'elm', 'elm', 'ann', 51
        clerk depot.size=7
            ((t1."region" IN (SELECT r1."id" FROM "regions" r1 WHERE (left(r1."owner", 256) = left($1::text COLLATE "C", 256) AND (r1."owner" = $1::text COLLATE "C"))))) AND t0."depot" IN (SELECT r2."id" FROM "depots" r2 WHERE r2."region_id" IN (SELECT r3."id" FROM "regions" r3 WHERE ((left(r3."owner", 256) = left($2::text COLLATE "C", 256) AND (r3."owner" = $2::text COLLATE "C")))) AND r2."size" = $3::bigint)
            'elm', 'elm', 7, 51
        clerk depot.size:exists=false
            ((t1."region" IN (SELECT r1."id" FROM "regions" r1 WHERE (left(r1."owner", 256) = left($1::text COLLATE "C", 256) AND (r1."owner" = $1::text COLLATE "C"))))) AND (t0."depot" IS NULL OR t0."depot" IN (SELECT r2."id" FROM "depots" r2 WHERE r2."region_id" IN (SELECT r3."id" FROM "regions" r3 WHERE ((left(r3."owner", 256) = left($2::text COLLATE "C", 256) AND (r3."owner" = $2::text COLLATE "C")))) AND r2."size" IS NULL))
            'elm', 'elm', 51
        clerk not=(depot.size=7)
            ((t1."region" IN (SELECT r1."id" FROM "regions" r1 WHERE (left(r1."owner", 256) = left($1::text COLLATE "C", 256) AND (r1."owner" = $1::text COLLATE "C"))))) AND (t0."depot" IS NULL OR t0."depot" IN (SELECT r2."id" FROM "depots" r2 WHERE r2."region_id" IN (SELECT r3."id" FROM "regions" r3 WHERE ((left(r3."owner", 256) = left($2::text COLLATE "C", 256) AND (r3."owner" = $2::text COLLATE "C")))) AND (r2."size" = $3::bigint) IS NOT TRUE))
            'elm', 'elm', 7, 51
        clerk any=(depot.size=7;total=5)
            ((t1."region" IN (SELECT r1."id" FROM "regions" r1 WHERE (left(r1."owner", 256) = left($1::text COLLATE "C", 256) AND (r1."owner" = $1::text COLLATE "C"))))) AND (t0."depot" IN (SELECT r2."id" FROM "depots" r2 WHERE r2."region_id" IN (SELECT r3."id" FROM "regions" r3 WHERE ((left(r3."owner", 256) = left($2::text COLLATE "C", 256) AND (r3."owner" = $2::text COLLATE "C")))) AND r2."size" = $3::bigint) OR t0."total" = $4::bigint)
            'elm', 'elm', 7, 5, 51
    "#]].assert_eq(&all);
}

#[test]
fn relation_filter_on_sqlite_uses_the_indexes_of_both_items() {
    let model = model::read("related.toml", MODEL).unwrap();
    let all = sqlite_plans(&model, &statements(&model, &SQLITE));
    expect![[r#"
        all customer.email=a@example.com: SEARCH t0 USING INDEX nouns.orders.parent (customer_id=?); LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.customers.filter.email (email=?); USE TEMP B-TREE FOR ORDER BY
        all customer.email=a@example.com&total=5&sort=-total: SEARCH t0 USING INDEX nouns.orders.flat_filter.total (total=?); LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.customers.filter.email (email=?); CREATE BLOOM FILTER
        all customer.region.owner=ann: SEARCH t0 USING INDEX nouns.orders.parent (customer_id=?); LIST SUBQUERY 2; SEARCH r1 USING COVERING INDEX nouns.customers.ref.region (region=?); LIST SUBQUERY 1; SEARCH r2 USING COVERING INDEX nouns.regions.start.owner (<expr>=?); USE TEMP B-TREE FOR ORDER BY
        all depot.size=7: SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.depots.flat_filter.size (size=?); USE TEMP B-TREE FOR ORDER BY
        all depot.size:exists=false: MULTI-INDEX OR; INDEX 1; SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); INDEX 2; LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.depots.flat_filter.size (size=?); SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); USE TEMP B-TREE FOR ORDER BY
        all not=(depot.size=7): MULTI-INDEX OR; INDEX 1; SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); INDEX 2; LIST SUBQUERY 1; SCAN r1 USING COVERING INDEX nouns.depots.flat_filter.size; SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); USE TEMP B-TREE FOR ORDER BY
        all any=(depot.size=7;total=5): MULTI-INDEX OR; INDEX 1; LIST SUBQUERY 1; SEARCH r1 USING COVERING INDEX nouns.depots.flat_filter.size (size=?); SEARCH t0 USING INDEX nouns.orders.ref.depot (depot=?); INDEX 2; SEARCH t0 USING INDEX nouns.orders.flat_filter.total (total=?); USE TEMP B-TREE FOR ORDER BY
        clerk customer.email=a@example.com: SEARCH t1 USING COVERING INDEX nouns.customers.ref.region (region=? AND id=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.regions.start.owner (<expr>=?); LIST SUBQUERY 3; SEARCH r2 USING INDEX nouns.customers.filter.email (email=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); CREATE BLOOM FILTER; REUSE LIST SUBQUERY 3; SEARCH t0 USING INDEX nouns.orders.parent (customer_id=?); USE TEMP B-TREE FOR ORDER BY
        clerk customer.email=a@example.com&total=5&sort=-total: SEARCH t0 USING INDEX nouns.orders.flat_filter.total (total=?); LIST SUBQUERY 3; SEARCH r2 USING INDEX nouns.customers.filter.email (email=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); CREATE BLOOM FILTER; CREATE BLOOM FILTER; SEARCH t1 USING COVERING INDEX nouns.customers.ref.region (region=? AND id=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.regions.start.owner (<expr>=?)
        clerk customer.region.owner=ann: SEARCH t1 USING COVERING INDEX nouns.customers.ref.region (region=? AND id=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.regions.start.owner (<expr>=?); LIST SUBQUERY 4; SEARCH r2 USING COVERING INDEX nouns.customers.ref.region (region=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); LIST SUBQUERY 3; SEARCH r4 USING INDEX nouns.regions.start.owner (<expr>=?); CREATE BLOOM FILTER; REUSE LIST SUBQUERY 4; SEARCH t0 USING INDEX nouns.orders.parent (customer_id=?); USE TEMP B-TREE FOR ORDER BY
        clerk depot.size=7: SEARCH t1 USING COVERING INDEX nouns.customers.ref.region (region=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.regions.start.owner (<expr>=?); SEARCH t0 USING INDEX nouns.orders.parent (customer_id=?); LIST SUBQUERY 3; SEARCH r2 USING COVERING INDEX nouns.depots.filter.size (region_id=? AND size=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); CREATE BLOOM FILTER; USE TEMP B-TREE FOR ORDER BY
        clerk depot.size:exists=false: SEARCH t1 USING COVERING INDEX nouns.customers.ref.region (region=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.regions.start.owner (<expr>=?); SEARCH t0 USING INDEX nouns.orders.parent (customer_id=?); LIST SUBQUERY 3; SEARCH r2 USING COVERING INDEX nouns.depots.filter.size (region_id=? AND size=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); CREATE BLOOM FILTER; USE TEMP B-TREE FOR ORDER BY
        clerk not=(depot.size=7): SEARCH t1 USING COVERING INDEX nouns.customers.ref.region (region=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.regions.start.owner (<expr>=?); SEARCH t0 USING INDEX nouns.orders.parent (customer_id=?); LIST SUBQUERY 3; SEARCH r2 USING COVERING INDEX nouns.depots.filter.size (region_id=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); CREATE BLOOM FILTER; USE TEMP B-TREE FOR ORDER BY
        clerk any=(depot.size=7;total=5): SEARCH t1 USING COVERING INDEX nouns.customers.ref.region (region=?); LIST SUBQUERY 1; SEARCH r1 USING INDEX nouns.regions.start.owner (<expr>=?); SEARCH t0 USING INDEX nouns.orders.parent (customer_id=?); LIST SUBQUERY 3; SEARCH r2 USING COVERING INDEX nouns.depots.filter.size (region_id=? AND size=?); LIST SUBQUERY 2; SEARCH r3 USING INDEX nouns.regions.start.owner (<expr>=?); CREATE BLOOM FILTER; USE TEMP B-TREE FOR ORDER BY
    "#]].assert_eq(&all);
}

/// The same on PostgreSQL, with enough rows that a sequential scan would be slower.
#[test]
fn relation_filter_on_postgres_uses_the_indexes_of_both_items() {
    let model = model::read("related.toml", MODEL).unwrap();
    let rows = "INSERT INTO regions SELECT n, now(), now(), 1, 'o' || n FROM generate_series(1, 2000) n;
         INSERT INTO customers SELECT gen_random_uuid(), now(), now(), 1, 'c' || n || '@example.com', 1 + n % 2000 FROM generate_series(1, 10000) n;
         INSERT INTO depots SELECT gen_random_uuid(), 1 + n % 2000, now(), now(), 1, n FROM generate_series(1, 2000) n;
         INSERT INTO orders SELECT gen_random_uuid(), id, now(), now(), 1, n, NULL FROM customers, generate_series(1, 4) n;
         ANALYZE;\n";
    let mut statements = statements(&model, &POSTGRES);
    statements.retain(|one| !one.name.contains('(') && !one.name.contains("exists"));
    let plans = postgres_plans("relation_filter_plans", &model, rows, &statements);
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
