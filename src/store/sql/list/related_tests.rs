//! Related items: that the first children of many parents are found by the index of the parent, and other items by their
//! ids.

use expect_test::expect;

use super::test_plans::{
    NamedStatement, flat, flat_list, postgres_plans, role_scope, sqlite_plans,
};
use super::*;
use crate::model::{self, ResourceIndex};
use crate::store::sql::dialect::{POSTGRES, SQLITE};

const MODEL: &str = r#"
title = "Houses"
[resources.house]
id = "integer"
[resources.house.fields]
street = { type = "text", filter = true }
[resources.room]
parent = "house"
[resources.room.fields]
name = { type = "text", filter = true, max_length = 40 }
size = { type = "integer", filter = true, required = true }
[roles.tenant]
house = { verbs = ["get"], where = "street = $user" }
room = { verbs = ["get"], where = "size > 3" }
"#;

const ROOMS: ResourceIndex = ResourceIndex(1);

fn statements(model: &Model, dialect: &'static Dialect) -> Vec<NamedStatement> {
    let mut all = Vec::new();
    for (who, scope) in [("all", AccessScope::default()), ("tenant", role_scope(model, "tenant"))] {
        let collection = flat(ROOMS, scope);
        let mut push = |what: &str, statement: Statement<'_>| {
            all.push(NamedStatement::new(format!("{who} {what}"), statement));
        };
        for query in ["", "sort=-id", "sort=-size", "sort=name", "size=5"] {
            let list = flat_list(model, ROOMS, query);
            let listing = ListStatements::new(model, dialect, &collection, &list, SelectedBy::Key);
            let parents = [Id::Integer(1), Id::Integer(2)];
            push(
                query,
                match dialect.has_lateral {
                    true => listing.of_parents(&parents, 51),
                    false => listing.of_parent(parents[0], 51),
                },
            );
        }
        let list = flat_list(model, ROOMS, "");
        let listing = ListStatements::located(model, dialect, &collection, &list, SelectedBy::Key);
        let id = IdKind::Uuid.parse("01890a5d-ac96-774b-bcce-b302099a8057").unwrap();
        push("by id", listing.with_ids(&[id, id]));
    }
    all
}

#[test]
fn related_items_on_sqlite_are_found_by_index() {
    let model = model::read("related.toml", MODEL).unwrap();
    let all = sqlite_plans(&model, &statements(&model, &SQLITE));
    expect![[r#"
        all : SEARCH t0 USING INDEX nouns.rooms.parent (house_id=?)
        all sort=-id: SEARCH t0 USING INDEX nouns.rooms.parent (house_id=?)
        all sort=-size: SEARCH t0 USING INDEX nouns.rooms.filter.size (house_id=?)
        all sort=name: SEARCH t0 USING INDEX nouns.rooms.filter.name (house_id=?)
        all size=5: SEARCH t0 USING INDEX nouns.rooms.filter.size (house_id=? AND size=?)
        all by id: SEARCH t0 USING PRIMARY KEY (id=?)
        tenant : SEARCH t1 USING INTEGER PRIMARY KEY (rowid=?); SEARCH t0 USING INDEX nouns.rooms.filter.size (house_id=? AND size>?); USE TEMP B-TREE FOR ORDER BY
        tenant sort=-id: SEARCH t1 USING INTEGER PRIMARY KEY (rowid=?); SEARCH t0 USING INDEX nouns.rooms.filter.size (house_id=? AND size>?); USE TEMP B-TREE FOR ORDER BY
        tenant sort=-size: SEARCH t1 USING INTEGER PRIMARY KEY (rowid=?); SEARCH t0 USING INDEX nouns.rooms.filter.size (house_id=? AND size>?)
        tenant sort=name: SEARCH t1 USING INTEGER PRIMARY KEY (rowid=?); SEARCH t0 USING INDEX nouns.rooms.filter.size (house_id=? AND size>?); USE TEMP B-TREE FOR ORDER BY
        tenant size=5: SEARCH t1 USING INTEGER PRIMARY KEY (rowid=?); SEARCH t0 USING INDEX nouns.rooms.filter.size (house_id=? AND size=?)
        tenant by id: SEARCH t0 USING PRIMARY KEY (id=?); SEARCH t1 USING INTEGER PRIMARY KEY (rowid=?)
    "#]].assert_eq(&all);
}

/// The same on PostgreSQL, with enough rows that a sequential scan would be slower.
#[test]
fn related_items_on_postgres_are_found_by_index() {
    let model = model::read("related.toml", MODEL).unwrap();
    let rows = "INSERT INTO houses SELECT n, now(), now(), 1, 's' || n FROM generate_series(1, 500) n;
         INSERT INTO rooms SELECT gen_random_uuid(), 1 + n % 500, now(), now(), 1, 'r' || n, n % 100 FROM generate_series(1, 50000) n;
         ANALYZE;\n";
    let plans = postgres_plans("related_item_plans", &model, rows, &statements(&model, &POSTGRES));
    assert!(!plans.contains("Seq Scan"), "{plans}");
    // Each list of a parent ends at its limit, in the order of its index; only the result is sorted.
    assert_eq!(plans.matches("        ->  Limit\n").count(), 10, "{plans}");
    assert_eq!(plans.matches("Sort Key:").count(), 10, "{plans}");
    for expected in [
        "Index Scan using \"nouns.rooms.parent\" on rooms t0\n                    Index Cond: (house_id = \"*VALUES*\".column1)",
        "Index Scan Backward using \"nouns.rooms.filter.size\" on rooms t0",
        "Index Scan using \"nouns.rooms.filter.name\" on rooms t0",
        "Bitmap Index Scan on rooms_pkey",
    ] {
        assert!(plans.contains(expected), "{expected}: {plans}");
    }
}
