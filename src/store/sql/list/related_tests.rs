//! Related items: that the first children of many parents are found by the index of the parent, and other items by their
//! ids.

use std::sync::Arc;

use expect_test::expect;
use rusqlite::Connection;

use super::tests::literal;
use super::*;
use crate::intent::{
    self, Intent, PathForm, PathIds, RequestVerb, ResourcePath, Route, RouteTarget,
};
use crate::model::{self, GrantVerb, ResourceIndex};
use crate::permit::{Caller, Rights};
use crate::store::sql::ddl::{create_table, indexes};
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

fn list(model: &Model, query: &str) -> ListQuery {
    let (form, ids) = (PathForm::Flat, Some(PathIds::default()));
    let target = RouteTarget::Collection(ResourcePath { resource: ROOMS, form, ids });
    let route = Route { verb: RequestVerb::Get, target };
    match intent::read(model, route, (Some(query), &intent::AllReadable), b"") {
        Ok(Intent::List(_, list)) => ListQuery::clone(&list),
        other => panic!("{query}: {other:?}"),
    }
}

/// Each statement with a name and example values.
fn statements(model: &Model, dialect: &'static Dialect) -> Vec<(String, String, Vec<String>)> {
    let rights = Rights::of_roles(model, ["tenant"].into_iter());
    let tenant = Caller::user("elm".into(), Arc::new(rights));
    let scopes =
        [("all", AccessScope::default()), ("tenant", AccessScope::new(&tenant, GrantVerb::Get))];
    let mut all = Vec::new();
    for (who, scope) in scopes {
        let resource = ROOMS;
        let collection =
            Collection { resource, form: PathForm::Flat, ancestors: Vec::new(), scope };
        let mut push = |what: &str, statement: Statement<'_>| {
            let binds = statement.binds.iter().map(literal).collect();
            all.push((format!("{who} {what}"), statement.sql.into_owned(), binds));
        };
        for query in ["", "sort=-id", "sort=-size", "sort=name", "size=5"] {
            let list = list(model, query);
            let listing = ListStatements::new(model, dialect, &collection, &list);
            let parents = [Id::Integer(1), Id::Integer(2)];
            push(
                query,
                match dialect.has_lateral {
                    true => listing.of_parents(&parents, 51),
                    false => listing.of_parent(parents[0], 51),
                },
            );
        }
        let list = list(model, "");
        let listing = ListStatements::located(model, dialect, &collection, &list);
        let id = IdKind::Uuid.parse("01890a5d-ac96-774b-bcce-b302099a8057").unwrap();
        push("by id", listing.with_ids(&[id, id]));
    }
    all
}

#[test]
fn related_items_on_sqlite_are_found_by_index() {
    let model = model::read("related.toml", MODEL).unwrap();
    let connection = Connection::open_in_memory().unwrap();
    for resource in model.declared() {
        connection.execute_batch(&create_table(&model, resource, &SQLITE)).unwrap();
        for index in indexes(resource, &SQLITE) {
            connection.execute_batch(&index.create).unwrap();
        }
    }
    let mut all = String::new();
    for (name, sql, _) in statements(&model, &SQLITE) {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let lines = statement.raw_query().mapped(|row| row.get::<_, String>(3));
        let lines: Vec<String> = lines.map(Result::unwrap).collect();
        all.push_str(&format!("{name}: {}\n", lines.join("; ")));
    }
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
    let mut script = String::new();
    for resource in model.declared() {
        script.push_str(&format!("{};\n", create_table(&model, resource, &POSTGRES)));
        for index in indexes(resource, &POSTGRES) {
            script.push_str(&format!("{};\n", index.create));
        }
    }
    script.push_str(
        "INSERT INTO houses SELECT n, now(), now(), 1, 's' || n FROM generate_series(1, 500) n;
         INSERT INTO rooms SELECT gen_random_uuid(), 1 + n % 500, now(), now(), 1, 'r' || n, n % 100 FROM generate_series(1, 50000) n;
         ANALYZE;\n",
    );
    for (number, (name, sql, binds)) in statements(&model, &POSTGRES).into_iter().enumerate() {
        script.push_str(&format!(
            "PREPARE p{number} AS {sql};\nSELECT '{name}:';\nEXPLAIN (COSTS OFF) EXECUTE p{number} ({});\n",
            binds.join(", ")
        ));
    }
    let plans = crate::store::test_stores::psql("related_item_plans", &script);
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
