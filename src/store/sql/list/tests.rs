//! The statements of lists: how they read, and that an index answers the usual ones without a sort.

use expect_test::expect;
use rusqlite::Connection;

use super::*;
use crate::intent::{self, Address, Ids, Intent, Place, Route, Verb};
use crate::model::{self, ResourceIndex};
use crate::store::sql::{POSTGRES, SQLITE, create_table, indexes};

const MODEL: &str = r#"
title = "Lists"
[resources.shelf]
plural = "shelves"
id = "integer"
[resources.shelf.fields]
label = { type = "text", filter = true }
place = { type = "object", fields = { city = { type = "text", filter = true }, since = { type = "timestamp", filter = true }, area = { type = "decimal", filter = true } } }

[resources.book]
parent = "shelf"
[resources.book.fields]
title = { type = "text", required = true, filter = true }
pages = { type = "integer", filter = true }
"#;

const SHELVES: ResourceIndex = ResourceIndex(0);
const BOOKS: ResourceIndex = ResourceIndex(1);

fn model() -> Model {
    model::read("lists.toml", MODEL).unwrap()
}

fn list(model: &Model, resource: ResourceIndex, query: &str) -> List {
    let ancestors = if resource == BOOKS { vec![Id::Integer(1)] } else { Vec::new() };
    let address = Address { resource, ids: Some(Ids { ancestors, item: None }) };
    let route = Route { verb: Verb::Get, place: Place::Collection(address) };
    match intent::read(model, route, (Some(query), &[]), b"") {
        Ok(Intent::List(_, list)) => list,
        other => panic!("{query}: {other:?}"),
    }
}

/// The list behind an item with these values.
fn behind(mut list: List, id: Id, values: &[Value]) -> List {
    list.after = Some(intent::cursor::After { id, values: values.to_vec() });
    list
}

fn texts(
    model: &Model,
    dialect: &'static Dialect,
    resource: ResourceIndex,
    list: &List,
) -> Vec<String> {
    let ancestors: &[Id] = if resource == BOOKS { &[Id::Integer(1)] } else { &[] };
    let reach = Reach::default();
    let listing = Listing::new(model, dialect, (model.resource(resource), ancestors), &reach, list);
    let sections = listing.sections();
    sections.iter().map(|section| listing.page(*section, 51).sql.into_owned()).collect()
}

fn uuid() -> Id {
    IdKind::Uuid.parse("01890a5d-ac96-774b-bcce-b302099a8057").unwrap()
}

#[test]
fn how_they_read() {
    let model = model();
    let shown = |resource, list: &List| {
        let mut all = String::new();
        for dialect in [&SQLITE, &POSTGRES] {
            for text in texts(&model, dialect, resource, list) {
                let (_, text) = text.split_once(" FROM ").unwrap();
                all.push_str(&format!("{text}\n"));
            }
        }
        all
    };
    let long = "x".repeat(256);
    let lists = [
        (
            SHELVES,
            list(
                &model,
                SHELVES,
                "label=a&label:prefix=b&label:contains=c&label:exists=true&sort=-id",
            ),
        ),
        (
            SHELVES,
            list(
                &model,
                SHELVES,
                &format!(
                    "label={long}&label:lt={long}&label:ne={long}&label:in=a,{long}&label:prefix={long}&sort=-id"
                ),
            ),
        ),
        (
            SHELVES,
            list(
                &model,
                SHELVES,
                "place.city:in=a,b&place.since:gt=2026-11-15T02:28:14Z&place.area:lte=1.5&sort=-id",
            ),
        ),
        (SHELVES, list(&model, SHELVES, "sort=label")),
        (
            SHELVES,
            behind(list(&model, SHELVES, "sort=-label"), Id::Integer(1), &[Value::text("a")]),
        ),
        (SHELVES, behind(list(&model, SHELVES, "sort=label"), Id::Integer(1), &[Value::Null])),
        (BOOKS, behind(list(&model, BOOKS, "sort=title"), uuid(), &[Value::text("a")])),
        (
            BOOKS,
            behind(
                list(&model, BOOKS, "sort=-title,pages"),
                uuid(),
                &[Value::text("a"), Value::Integer(1)],
            ),
        ),
        (
            BOOKS,
            behind(
                list(&model, BOOKS, "sort=title,-pages,-id"),
                uuid(),
                &[Value::text("a"), Value::Null],
            ),
        ),
    ];
    let all: String = lists.iter().map(|(resource, list)| shown(*resource, list) + "\n").collect();
    expect![[r#"
        "shelves" t0 WHERE substr(t0."label", 1, 256) = ?1 AND (substr(t0."label", 1, 256) >= ?2 AND substr(t0."label", 1, 256) < ?3) AND instr(t0."label", ?4) > 0 AND substr(t0."label", 1, 256) IS NOT NULL ORDER BY t0."id" DESC LIMIT ?5
        "shelves" t0 WHERE left(t0."label", 256) = $1::text COLLATE "C" AND (left(t0."label", 256) >= $2::text COLLATE "C" AND left(t0."label", 256) < $3::text COLLATE "C") AND strpos(t0."label", $4::text COLLATE "C") > 0 AND left(t0."label", 256) IS NOT NULL ORDER BY t0."id" DESC LIMIT $5::bigint

        "shelves" t0 WHERE (substr(t0."label", 1, 256) = ?2 AND t0."label" = ?1) AND (substr(t0."label", 1, 256) <= ?4 AND t0."label" < ?3) AND t0."label" <> ?5 AND (substr(t0."label", 1, 256) IN (?8, ?9) AND t0."label" IN (?6, ?7)) AND (substr(t0."label", 1, 256) = ?10 AND t0."label" >= ?11 AND t0."label" < ?12) ORDER BY t0."id" DESC LIMIT ?13
        "shelves" t0 WHERE (left(t0."label", 256) = $2::text COLLATE "C" AND t0."label" = $1::text COLLATE "C") AND (left(t0."label", 256) <= $4::text COLLATE "C" AND t0."label" < $3::text COLLATE "C") AND t0."label" <> $5::text COLLATE "C" AND (left(t0."label", 256) IN ($8::text COLLATE "C", $9::text COLLATE "C") AND t0."label" IN ($6::text COLLATE "C", $7::text COLLATE "C")) AND (left(t0."label", 256) = $10::text COLLATE "C" AND t0."label" >= $11::text COLLATE "C" AND t0."label" < $12::text COLLATE "C") ORDER BY t0."id" DESC LIMIT $13::bigint

        "shelves" t0 WHERE substr((CASE json_type(t0."place", '$.city') WHEN 'text' THEN json_extract(t0."place", '$.city') END), 1, 256) IN (?1, ?2) AND (CASE json_type(t0."place", '$.since') WHEN 'text' THEN json_extract(t0."place", '$.since') END) > ?3 AND (CASE json_type(t0."place", '$.area') WHEN 'text' THEN CAST(replace(json_extract(t0."place", '$.area'), '.', '') AS INTEGER) END) <= ?4 ORDER BY t0."id" DESC LIMIT ?5
        "shelves" t0 WHERE left((CASE WHEN json_typeof(t0."place" #> '{city}') = 'string' THEN (t0."place" #>> '{city}') COLLATE "C" END), 256) IN ($1::text COLLATE "C", $2::text COLLATE "C") AND (CASE WHEN json_typeof(t0."place" #> '{since}') = 'string' THEN (t0."place" #>> '{since}') COLLATE "C" END) > $3::text COLLATE "C" AND (CASE WHEN json_typeof(t0."place" #> '{area}') = 'string' THEN ((t0."place" #>> '{area}')::numeric * 100) END) <= $4::bigint ORDER BY t0."id" DESC LIMIT $5::bigint

        "shelves" t0 WHERE substr(t0."label", 1, 256) IS NOT NULL ORDER BY substr(t0."label", 1, 256), t0."id" LIMIT ?1
        "shelves" t0 WHERE substr(t0."label", 1, 256) IS NULL ORDER BY t0."id" LIMIT ?1
        "shelves" t0 WHERE left(t0."label", 256) IS NOT NULL ORDER BY left(t0."label", 256), t0."id" LIMIT $1::bigint
        "shelves" t0 WHERE left(t0."label", 256) IS NULL ORDER BY left(t0."label", 256), t0."id" LIMIT $1::bigint

        "shelves" t0 WHERE substr(t0."label", 1, 256) = ?1 AND t0."id" < ?2 ORDER BY t0."id" DESC LIMIT ?3
        "shelves" t0 WHERE substr(t0."label", 1, 256) < ?1 ORDER BY substr(t0."label", 1, 256) DESC, t0."id" DESC LIMIT ?2
        "shelves" t0 WHERE left(t0."label", 256) IS NOT NULL AND (left(t0."label", 256), t0."id") < ($1::text COLLATE "C", $2::bigint) ORDER BY left(t0."label", 256) DESC, t0."id" DESC LIMIT $3::bigint

        "shelves" t0 WHERE substr(t0."label", 1, 256) IS NULL AND t0."id" > ?1 ORDER BY t0."id" LIMIT ?2
        "shelves" t0 WHERE left(t0."label", 256) IS NULL AND t0."id" > $1::bigint ORDER BY left(t0."label", 256), t0."id" LIMIT $2::bigint

        "books" t0 WHERE t0."shelf_id" = ?1 AND substr(t0."title", 1, 256) = ?2 AND t0."id" > ?3 ORDER BY t0."id" LIMIT ?4
        "books" t0 WHERE t0."shelf_id" = ?1 AND substr(t0."title", 1, 256) > ?2 ORDER BY substr(t0."title", 1, 256), t0."id" LIMIT ?3
        "books" t0 WHERE t0."shelf_id" = $1 AND (left(t0."title", 256), t0."id") > ($2::text COLLATE "C", $3::uuid) ORDER BY left(t0."title", 256), t0."id" LIMIT $4::bigint

        "books" t0 WHERE t0."shelf_id" = ?1 AND substr(t0."title", 1, 256) <= ?2 AND (substr(t0."title", 1, 256) < ?3 OR (substr(t0."title", 1, 256) = ?4 AND (t0."pages" > ?5 OR t0."pages" IS NULL OR (t0."pages" = ?6 AND t0."id" > ?7)))) ORDER BY substr(t0."title", 1, 256) DESC, t0."pages" NULLS LAST, t0."id" LIMIT ?8
        "books" t0 WHERE t0."shelf_id" = $1 AND left(t0."title", 256) <= $2::text COLLATE "C" AND (left(t0."title", 256) < $3::text COLLATE "C" OR (left(t0."title", 256) = $4::text COLLATE "C" AND (t0."pages" > $5::bigint OR t0."pages" IS NULL OR (t0."pages" = $6::bigint AND t0."id" > $7::uuid)))) ORDER BY left(t0."title", 256) DESC, t0."pages" NULLS LAST, t0."id" LIMIT $8::bigint

        "books" t0 WHERE t0."shelf_id" = ?1 AND substr(t0."title", 1, 256) >= ?2 AND (substr(t0."title", 1, 256) > ?3 OR (substr(t0."title", 1, 256) = ?4 AND (t0."pages" IS NOT NULL OR (t0."pages" IS NULL AND t0."id" < ?5)))) ORDER BY substr(t0."title", 1, 256), t0."pages" DESC NULLS FIRST, t0."id" DESC LIMIT ?6
        "books" t0 WHERE t0."shelf_id" = $1 AND left(t0."title", 256) >= $2::text COLLATE "C" AND (left(t0."title", 256) > $3::text COLLATE "C" OR (left(t0."title", 256) = $4::text COLLATE "C" AND (t0."pages" IS NOT NULL OR (t0."pages" IS NULL AND t0."id" < $5::uuid)))) ORDER BY left(t0."title", 256), t0."pages" DESC NULLS FIRST, t0."id" DESC LIMIT $6::bigint

    "#]].assert_eq(&all);
}

/// SQLite's own words for how it goes about a statement.
fn plan(connection: &Connection, text: &str) -> String {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
    // Parameters that are not bound are NULL, which changes no plan.
    let mut rows = statement.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        lines.push(row.get::<_, String>(3).unwrap());
    }
    lines.join("; ")
}

#[test]
fn sqlite_sorts_by_an_index() {
    let model = model();
    let connection = Connection::open_in_memory().unwrap();
    for resource in model.declared() {
        connection.execute_batch(&create_table(&model, resource, &SQLITE)).unwrap();
        for index in indexes(resource, &SQLITE) {
            connection.execute_batch(&index.create).unwrap();
        }
    }
    let mut all = String::new();
    let values = |query: &str| match query {
        "sort=pages" | "sort=-pages" => Value::Integer(3),
        _ => Value::text("a"),
    };
    let queries = [
        (SHELVES, "sort=label"),
        (SHELVES, "sort=-label"),
        (SHELVES, "sort=place.city"),
        (BOOKS, "sort=title"),
        (BOOKS, "sort=-title"),
        (BOOKS, "sort=pages"),
        (BOOKS, "sort=-pages"),
    ];
    for (resource, query) in queries {
        let first = list(&model, resource, query);
        let id = if resource == BOOKS { uuid() } else { Id::Integer(1) };
        let lists = [
            first.clone(),
            behind(first.clone(), id, &[values(query)]),
            behind(first, id, &[Value::Null]),
        ];
        for list in lists {
            for text in texts(&model, &SQLITE, resource, &list) {
                let plan = plan(&connection, &text);
                assert!(
                    !plan.contains("TEMP B-TREE") && plan.contains("USING INDEX"),
                    "{text}: {plan}"
                );
                all.push_str(&format!("{query}: {plan}\n"));
            }
        }
    }
    for query in [
        "label=a",
        "label:gt=a",
        "label:prefix=a",
        "label:in=a,b",
        "place.city=Bonn",
        "place.since:gte=2026-11-15T02:28:14Z",
        "place.area=1.5",
        "label:exists=false",
    ] {
        for text in texts(&model, &SQLITE, SHELVES, &list(&model, SHELVES, query)) {
            all.push_str(&format!("{query}: {}\n", plan(&connection, &text)));
        }
    }
    expect![[r#"
        sort=label: SCAN t0 USING INDEX nouns.shelves.start.label
        sort=label: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr>=?)
        sort=label: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr>=? AND id>?)
        sort=label: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr>>?)
        sort=label: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr>=?)
        sort=label: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr>=? AND id>?)
        sort=-label: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr>=?)
        sort=-label: SCAN t0 USING INDEX nouns.shelves.start.label
        sort=-label: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr>=? AND id<?)
        sort=-label: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr><?)
        sort=-label: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr>=? AND id<?)
        sort=-label: SCAN t0 USING INDEX nouns.shelves.start.label
        sort=place.city: SCAN t0 USING INDEX nouns.shelves.start.place.city
        sort=place.city: SEARCH t0 USING INDEX nouns.shelves.start.place.city (<expr>=?)
        sort=place.city: SEARCH t0 USING INDEX nouns.shelves.start.place.city (<expr>=? AND id>?)
        sort=place.city: SEARCH t0 USING INDEX nouns.shelves.start.place.city (<expr>>?)
        sort=place.city: SEARCH t0 USING INDEX nouns.shelves.start.place.city (<expr>=?)
        sort=place.city: SEARCH t0 USING INDEX nouns.shelves.start.place.city (<expr>=? AND id>?)
        sort=title: SEARCH t0 USING INDEX nouns.books.start.title (shelf_id=?)
        sort=title: SEARCH t0 USING INDEX nouns.books.start.title (shelf_id=? AND <expr>=? AND id>?)
        sort=title: SEARCH t0 USING INDEX nouns.books.start.title (shelf_id=? AND <expr>>?)
        sort=title: SEARCH t0 USING INDEX nouns.books.start.title (shelf_id=?)
        sort=-title: SEARCH t0 USING INDEX nouns.books.start.title (shelf_id=?)
        sort=-title: SEARCH t0 USING INDEX nouns.books.start.title (shelf_id=? AND <expr>=? AND id<?)
        sort=-title: SEARCH t0 USING INDEX nouns.books.start.title (shelf_id=? AND <expr><?)
        sort=-title: SEARCH t0 USING INDEX nouns.books.start.title (shelf_id=?)
        sort=pages: SEARCH t0 USING INDEX nouns.books.filter.pages (shelf_id=? AND pages>?)
        sort=pages: SEARCH t0 USING INDEX nouns.books.filter.pages (shelf_id=? AND pages=?)
        sort=pages: SEARCH t0 USING INDEX nouns.books.filter.pages (shelf_id=? AND (pages,id)>(?,?))
        sort=pages: SEARCH t0 USING INDEX nouns.books.filter.pages (shelf_id=? AND pages=?)
        sort=pages: SEARCH t0 USING INDEX nouns.books.filter.pages (shelf_id=? AND pages=? AND id>?)
        sort=-pages: SEARCH t0 USING INDEX nouns.books.filter.pages (shelf_id=? AND pages=?)
        sort=-pages: SEARCH t0 USING INDEX nouns.books.filter.pages (shelf_id=? AND pages>?)
        sort=-pages: SEARCH t0 USING INDEX nouns.books.filter.pages (shelf_id=? AND pages>? AND (pages,id)<(?,?))
        sort=-pages: SEARCH t0 USING INDEX nouns.books.filter.pages (shelf_id=? AND pages=? AND id<?)
        sort=-pages: SEARCH t0 USING INDEX nouns.books.filter.pages (shelf_id=? AND pages>?)
        label=a: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr>=?)
        label:gt=a: SCAN t0
        label:prefix=a: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr>>? AND <expr><?); USE TEMP B-TREE FOR ORDER BY
        label:in=a,b: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr>=?); USE TEMP B-TREE FOR ORDER BY
        place.city=Bonn: SEARCH t0 USING INDEX nouns.shelves.start.place.city (<expr>=?)
        place.since:gte=2026-11-15T02:28:14Z: SCAN t0
        place.area=1.5: SEARCH t0 USING INDEX nouns.shelves.filter.place.area (<expr>=?)
        label:exists=false: SEARCH t0 USING INDEX nouns.shelves.start.label (<expr>=?)
    "#]].assert_eq(&all);
}
