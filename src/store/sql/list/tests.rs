//! Statements of lists: their text, and that the common ones use an index instead of a sort.

use expect_test::expect_file;

use super::test_plans::{NamedStatement, open_empty, parse_list, plan, postgres_plans};
use super::*;
use crate::intent::{self, PathIds, ResourcePath};
use crate::model::{self, ResourceIndex};
use crate::store::sql::dialect::{POSTGRES, SQLITE};
use crate::value::Moment;

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
code = { type = "text", max_length = 9, filter = true }
"#;

const SHELVES: ResourceIndex = ResourceIndex(0);
const BOOKS: ResourceIndex = ResourceIndex(1);

fn model() -> Model {
    model::read("lists.toml", MODEL).unwrap()
}

fn list(model: &Model, resource: ResourceIndex, query: &str) -> ListQuery {
    let ancestors = if resource == BOOKS { vec![Id::Integer(1)] } else { Vec::new() };
    parse_list(model, ResourcePath::nested(resource, PathIds { ancestors, item: None }), query)
}

/// The list after a cursor with these values.
fn behind(mut list: ListQuery, id: Id, values: &[Value]) -> ListQuery {
    list.after = Some(intent::cursor::CursorPosition { id, values: values.to_vec() });
    list
}

fn texts(
    model: &Model,
    dialect: &'static Dialect,
    resource: ResourceIndex,
    list: &ListQuery,
) -> Vec<String> {
    let ancestors = if resource == BOOKS { vec![Id::Integer(1)] } else { Vec::new() };
    let collection = Collection::nested(resource, ancestors, AccessScope::default());
    let listing = ListStatements::new(model, dialect, &collection, list, SelectedBy::Condition);
    let sections = listing.sections();
    sections.iter().map(|section| listing.page(*section, 51).sql.into_owned()).collect()
}

fn uuid() -> Id {
    IdKind::Uuid.parse("01890a5d-ac96-774b-bcce-b302099a8057").unwrap()
}

#[test]
fn list_sql_matches_snapshot_in_both_dialects() {
    let model = model();
    let shown = |resource, list: &ListQuery| {
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
    expect_file!["statements.txt"].assert_eq(&all);
}

/// The lists that an index must serve: by their query, from the first page, and after an item with the sort
/// key and one without.
fn sorted_lists(model: &Model) -> Vec<(ResourceIndex, &'static str, ListQuery)> {
    let queries = [
        (SHELVES, "sort=label", Value::text("l500")),
        (SHELVES, "sort=-label", Value::text("l500")),
        (SHELVES, "sort=place.city", Value::text("c50")),
        (
            SHELVES,
            "sort=-created_at",
            Value::Moment(Moment::parse("2026-11-15T02:28:14Z").unwrap()),
        ),
        (BOOKS, "sort=title", Value::text("t1")),
        (BOOKS, "sort=-title", Value::text("t1")),
        (BOOKS, "sort=pages", Value::Integer(250)),
        (BOOKS, "sort=-pages", Value::Integer(250)),
        (BOOKS, "sort=code", Value::text("c2")),
        (BOOKS, "sort=-code", Value::text("c2")),
    ];
    let mut lists = Vec::new();
    for (resource, query, value) in queries {
        let first = list(model, resource, query);
        let id = if resource == BOOKS { uuid() } else { Id::Integer(10_000) };
        lists.push((resource, query, first.clone()));
        if first.sort[0].attribute.can_be_null(model.resource(resource)) {
            lists.push((resource, query, behind(first.clone(), id, &[Value::Null])));
        }
        lists.push((resource, query, behind(first, id, &[value])));
    }
    lists
}

#[test]
fn list_on_sqlite_sorts_by_an_index() {
    let model = model();
    let connection = open_empty(&model);
    let mut all = String::new();
    for (resource, query, list) in sorted_lists(&model) {
        for text in texts(&model, &SQLITE, resource, &list) {
            let plan = plan(&connection, &text);
            assert!(!plan.contains("TEMP B-TREE"), "{text}: {plan}");
            assert!(plan.contains("USING INDEX"), "{text}: {plan}");
            all.push_str(&format!("{query}: {plan}\n"));
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
    expect_file!["plans.txt"].assert_eq(&all);
}

/// The same on PostgreSQL, with enough rows that the planner avoids a sequential scan.
#[test]
fn list_on_postgres_sorts_by_an_index() {
    let model = model();
    let mut statements = Vec::new();
    for (resource, query, list) in &sorted_lists(&model) {
        let ancestors = if *resource == BOOKS { vec![Id::Integer(1)] } else { Vec::new() };
        let collection = Collection::nested(*resource, ancestors, AccessScope::default());
        let listing =
            ListStatements::new(&model, &POSTGRES, &collection, list, SelectedBy::Condition);
        let pages = listing.sections().into_iter().map(|section| {
            NamedStatement::new(format!("{query} {section:?}"), listing.page(section, 51))
        });
        statements.extend(pages);
    }
    let rows = "INSERT INTO shelves SELECT n, '2026-11-15T02:28:14Z', '2026-11-15T02:28:14Z', 1,
           CASE WHEN n % 9 > 0 THEN 'l' || n % 1000 END, json_build_object('city', 'c' || n % 100) FROM generate_series(1, 20000) n;
         INSERT INTO books SELECT gen_random_uuid(), 1 + n % 2, '2026-11-15T02:28:14Z', '2026-11-15T02:28:14Z', 1,
           't' || n % 3, CASE WHEN n % 9 > 0 THEN n % 500 END, 'c' || n % 5 FROM generate_series(1, 20000) n;
         ANALYZE;
         -- Whether a sort is worth it depends on the numbers; that none is needed does not.
         SET enable_bitmapscan = off;
         SET enable_seqscan = off;\n";
    let plans = postgres_plans("list_plans", &model, rows, &statements);
    for word in ["Sort", "Seq Scan", "Bitmap"] {
        assert!(!plans.contains(word), "{plans}");
    }
    // A row comparison of key and id is one index condition.
    assert!(plans.contains("ROW("), "{plans}");
    assert!(plans.matches("Index Scan").count() >= statements.len(), "{plans}");
}
