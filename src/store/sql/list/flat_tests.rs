//! Lists across parents: that a page by id uses the primary key, and a filter by an ancestor the index of the parent.

use expect_test::expect;

use super::test_plans::{
    NamedStatement, flat, flat_list, literal, postgres_plans, role_scope, sqlite_plans,
};
use super::*;
use crate::model::{self, ResourceIndex};
use crate::store::sql::dialect::{POSTGRES, SQLITE};
use crate::store::sql::read_statements::ReadStatements;

const MODEL: &str = r#"
title = "Houses"
[resources.house]
id = "integer"
[resources.house.fields]
street = { type = "text", filter = true }
[resources.room]
parent = "house"
[resources.room.fields]
name = { type = "text", filter = true }
[resources.lamp]
parent = "room"
[resources.lamp.fields]
watts = { type = "integer", filter = true }
[roles.tenant]
house = { verbs = ["get"], where = "street = $user" }
"*" = ["get"]
"#;

const ROOMS: ResourceIndex = ResourceIndex(1);
const LAMPS: ResourceIndex = ResourceIndex(2);
const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn model() -> Model {
    model::read("flat.toml", MODEL).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The statements of flat lists and items.
fn statements(model: &Model, dialect: &'static Dialect) -> Vec<NamedStatement> {
    let mut all = Vec::new();
    for (who, scope) in [("all", AccessScope::default()), ("tenant", role_scope(model, "tenant"))] {
        for resource in [ROOMS, LAMPS] {
            let declared = model.resource(resource);
            let read = ReadStatements::new(model, dialect, declared, &scope);
            let conditions = read.condition_binds(&scope).map(|bind| literal(&bind));
            let conditions: Vec<String> = conditions.collect();
            let fixed = read.flat.as_ref().unwrap();
            let (id, limit) = (format!("'{ID}'"), "51".to_owned());
            for (what, sql, first) in [
                ("item", &fixed.item, vec![id.clone()]),
                ("page", &fixed.page, vec![limit.clone()]),
                ("page after", &fixed.page_after, vec![limit, id]),
            ] {
                let values = first.into_iter().chain(conditions.iter().cloned()).collect();
                let name = format!("{who} {} {what}", declared.name);
                all.push(NamedStatement { name, sql: sql.clone(), values });
            }
            let of_room = format!("room_id={ID}");
            let queries = match resource {
                ROOMS => ["house_id=1", "house_id:in=1,2", "name=r7", "sort=name"],
                _ => ["house_id=1&sort=-id", &of_room, "watts=7", "watts:gt=7&sort=-watts"],
            };
            for query in queries {
                let (list, collection) =
                    (flat_list(model, resource, query), flat(resource, scope.clone()));
                let listing =
                    ListStatements::new(model, dialect, &collection, &list, SelectedBy::Condition);
                for section in listing.sections() {
                    let name = format!("{who} {} {query}", declared.name);
                    all.push(NamedStatement::new(name, listing.page(section, 51)));
                }
            }
        }
    }
    all
}

#[test]
fn flat_list_on_sqlite_uses_the_primary_key_or_an_index() {
    let model = model();
    let all = sqlite_plans(&model, &statements(&model, &SQLITE));
    expect![[r#"
        all room item: SEARCH t0 USING PRIMARY KEY (id=?)
        all room page: SCAN t0
        all room page after: SEARCH t0 USING PRIMARY KEY (id>?)
        all room house_id=1: SEARCH t0 USING INDEX nouns.rooms.parent (house_id=?)
        all room house_id:in=1,2: SEARCH t0 USING INDEX nouns.rooms.parent (house_id=?); USE TEMP B-TREE FOR ORDER BY
        all room name=r7: SEARCH t0 USING INDEX nouns.rooms.flat_start.name (<expr>=?)
        all room sort=name: SCAN t0 USING INDEX nouns.rooms.flat_start.name
        all room sort=name: SEARCH t0 USING INDEX nouns.rooms.flat_start.name (<expr>=?)
        all lamp item: SEARCH t0 USING PRIMARY KEY (id=?); SEARCH t1 USING PRIMARY KEY (id=?)
        all lamp page: SCAN t0
        all lamp page after: SEARCH t0 USING PRIMARY KEY (id>?)
        all lamp house_id=1&sort=-id: SEARCH t1 USING COVERING INDEX nouns.rooms.start.name (house_id=?); SEARCH t0 USING INDEX nouns.lamps.parent (room_id=?); USE TEMP B-TREE FOR ORDER BY
        all lamp room_id=01890a5d-ac96-774b-bcce-b302099a8057: SEARCH t0 USING INDEX nouns.lamps.parent (room_id=?)
        all lamp watts=7: SEARCH t0 USING INDEX nouns.lamps.flat_filter.watts (watts=?)
        all lamp watts:gt=7&sort=-watts: SEARCH t0 USING INDEX nouns.lamps.flat_filter.watts (watts>?)
        tenant room item: SEARCH t0 USING PRIMARY KEY (id=?); SEARCH t1 USING INTEGER PRIMARY KEY (rowid=?)
        tenant room page: SEARCH t1 USING INDEX nouns.houses.start.street (<expr>=?); SEARCH t0 USING INDEX nouns.rooms.parent (house_id=?); USE TEMP B-TREE FOR ORDER BY
        tenant room page after: SEARCH t1 USING INDEX nouns.houses.start.street (<expr>=?); SEARCH t0 USING INDEX nouns.rooms.parent (house_id=? AND id>?); USE TEMP B-TREE FOR ORDER BY
        tenant room house_id=1: SEARCH t1 USING INTEGER PRIMARY KEY (rowid=?); SEARCH t0 USING INDEX nouns.rooms.parent (house_id=?)
        tenant room house_id:in=1,2: SEARCH t1 USING INTEGER PRIMARY KEY (rowid=?); SEARCH t0 USING INDEX nouns.rooms.parent (house_id=?); USE TEMP B-TREE FOR ORDER BY
        tenant room name=r7: SEARCH t0 USING INDEX nouns.rooms.flat_start.name (<expr>=?); SEARCH t1 USING INTEGER PRIMARY KEY (rowid=?)
        tenant room sort=name: SEARCH t1 USING INDEX nouns.houses.start.street (<expr>=?); SEARCH t0 USING INDEX nouns.rooms.parent (house_id=?); USE TEMP B-TREE FOR ORDER BY
        tenant room sort=name: SEARCH t0 USING INDEX nouns.rooms.flat_start.name (<expr>=?); SEARCH t1 USING INTEGER PRIMARY KEY (rowid=?)
        tenant lamp item: SEARCH t0 USING PRIMARY KEY (id=?); SEARCH t1 USING PRIMARY KEY (id=?); SEARCH t2 USING INTEGER PRIMARY KEY (rowid=?)
        tenant lamp page: SEARCH t2 USING INDEX nouns.houses.start.street (<expr>=?); SEARCH t1 USING COVERING INDEX nouns.rooms.start.name (house_id=?); SEARCH t0 USING INDEX nouns.lamps.parent (room_id=?); USE TEMP B-TREE FOR ORDER BY
        tenant lamp page after: SEARCH t2 USING INDEX nouns.houses.start.street (<expr>=?); SEARCH t1 USING COVERING INDEX nouns.rooms.start.name (house_id=?); SEARCH t0 USING INDEX nouns.lamps.parent (room_id=? AND id>?); USE TEMP B-TREE FOR ORDER BY
        tenant lamp house_id=1&sort=-id: SEARCH t2 USING INTEGER PRIMARY KEY (rowid=?); SEARCH t1 USING COVERING INDEX nouns.rooms.start.name (house_id=?); SEARCH t0 USING INDEX nouns.lamps.parent (room_id=?); USE TEMP B-TREE FOR ORDER BY
        tenant lamp room_id=01890a5d-ac96-774b-bcce-b302099a8057: SEARCH t1 USING PRIMARY KEY (id=?); SEARCH t2 USING INTEGER PRIMARY KEY (rowid=?); SEARCH t0 USING INDEX nouns.lamps.parent (room_id=?)
        tenant lamp watts=7: SEARCH t0 USING INDEX nouns.lamps.flat_filter.watts (watts=?); SEARCH t1 USING PRIMARY KEY (id=?); SEARCH t2 USING INTEGER PRIMARY KEY (rowid=?)
        tenant lamp watts:gt=7&sort=-watts: SEARCH t2 USING INDEX nouns.houses.start.street (<expr>=?); SEARCH t1 USING COVERING INDEX nouns.rooms.start.name (house_id=?); SEARCH t0 USING INDEX nouns.lamps.filter.watts (room_id=? AND watts>?); USE TEMP B-TREE FOR ORDER BY
    "#]].assert_eq(&all);
}

/// The same on PostgreSQL, with enough rows that a sequential scan would be slower.
#[test]
fn flat_list_on_postgres_uses_the_primary_key_or_an_index() {
    let model = model();
    let rows = "INSERT INTO houses SELECT n, now(), now(), 1, 's' || n FROM generate_series(1, 2000) n;
         INSERT INTO rooms SELECT gen_random_uuid(), 1 + n % 2000, now(), now(), 1, 'r' || n FROM generate_series(1, 10000) n;
         INSERT INTO lamps SELECT gen_random_uuid(), id, now(), now(), 1, (random() * 1000)::int FROM rooms, generate_series(1, 3);
         ANALYZE;\n";
    let plans = postgres_plans("flat_list_plans", &model, rows, &statements(&model, &POSTGRES));
    assert!(!plans.contains("Seq Scan"), "{plans}");
    for expected in [
        "all room page:\nLimit\n  ->  Index Scan using rooms_pkey on rooms t0\n",
        "all lamp page:\nLimit\n  ->  Index Scan using lamps_pkey on lamps t0\n",
        "Index Cond: (house_id = '1'::bigint)",
        "Index Cond: (room_id = '01890a5d-ac96-774b-bcce-b302099a8057'::uuid)",
        "Index Cond: (room_id = t1.id)",
        "Bitmap Index Scan on \"nouns.lamps.flat_filter.watts\"",
        "Index Scan Backward using \"nouns.lamps.flat_filter.watts\" on lamps t0",
        "Index Scan using \"nouns.rooms.flat_filter.name\" on rooms t0",
    ] {
        assert!(plans.contains(expected), "{expected}: {plans}");
    }
}
