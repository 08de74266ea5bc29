//! PostgreSQL's query plans for a collection's version and for the entries of an item, in a large change log.
//! SQLite's plans are in `sql/tests.rs`.

use crate::store::postgres::connect::tests::cluster::TestCluster;
use crate::store::sql::changes::item_statements;
use crate::store::sql::dialect::POSTGRES;

/// Entries of customers, of their orders, and one that is older than all of them.
const FILL: &str = "INSERT INTO nouns_changes (sequence, time, resource, id, parent_id, subject, kind, actor, request_id)
    SELECT i, now(), CASE WHEN i = 1 THEN 'colour' WHEN i % 3 = 0 THEN 'customer' ELSE 'order' END, i::text,
    CASE WHEN i = 1 OR i % 3 = 0 THEN NULL ELSE (i % 500)::text END, '/x', 'created', 'open', 'r'
    FROM generate_series(1, 30000) AS i; ANALYZE nouns_changes";

/// A top-level collection needed a sort of all its entries: the planner does not know that the rows that IS
/// NULL finds in an index are in order.
#[test]
fn collection_version_on_postgres_is_one_index_scan() {
    let cluster = TestCluster::start();
    let indexes = POSTGRES.log_indexes.iter().map(|index| &index.create);
    POSTGRES.system_tables.iter().chain(indexes).for_each(|text| {
        cluster.sql(text);
    });
    cluster.sql(FILL);
    let [top, nested] = POSTGRES.collection_versions;
    for (place, values) in [
        (top, "30000, 'customer'"),
        (top, "30000, 'colour'"),
        (top, "30000, 'nothing'"),
        (nested, "30000, 'order', '7'"),
        (nested, "30000, 'order', 'none'"),
    ] {
        let show = |how: &str| {
            cluster.sql(&format!("SET plan_cache_mode = {how}; PREPARE place AS {place}; EXPLAIN EXECUTE place({values})"))
        };
        for plan in [show("force_generic_plan"), show("force_custom_plan")] {
            assert!(plan.contains("Index Scan using nouns_changes_place"), "{values}: {plan}");
            assert!(!plan.contains("Sort") && !plan.contains("Seq Scan"), "{values}: {plan}");
        }
    }
}

/// Every third entry is an update of one of 500 items.
#[test]
fn entries_of_an_item_on_postgres_are_one_index_scan() {
    let cluster = TestCluster::start();
    let indexes = POSTGRES.log_indexes.iter().map(|index| &index.create);
    POSTGRES.system_tables.iter().chain(indexes).for_each(|text| {
        cluster.sql(text);
    });
    cluster.sql(FILL);
    cluster.sql("UPDATE nouns_changes SET kind = 'updated', id = (sequence % 500)::text WHERE sequence % 3 = 1");
    cluster.sql("VACUUM ANALYZE nouns_changes");
    for (text, values) in item_statements(&POSTGRES) {
        let show = |how: &str| {
            cluster.sql(&format!("SET plan_cache_mode = {how}; PREPARE entry AS {text}; EXPLAIN EXECUTE entry({values})"))
        };
        for plan in [show("force_generic_plan"), show("force_custom_plan")] {
            let scans = [
                "Index Scan using nouns_changes_item",
                "Index Scan Backward using nouns_changes_item",
            ];
            assert!(scans.iter().any(|scan| plan.contains(scan)), "{text}: {plan}");
            assert!(!plan.contains("Sort") && !plan.contains("Seq Scan"), "{text}: {plan}");
        }
    }
}
