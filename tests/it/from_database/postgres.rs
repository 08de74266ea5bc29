//! Types and constraints that only PostgreSQL has.

use expect_test::expect;

use super::*;

fn things() -> OtherDatabase {
    OtherDatabase::new(Backend::Postgres, schemas::POSTGRES_TYPES)
}

#[test]
fn init_from_types_of_postgresql() {
    let file = things().infer();
    expect![[r##"
        # Made by nouns init --from-database. Lines with "note:" say what does not fit, or is not as it was.
        #
        # To copy the rows, export the SELECT after "rows of" as CSV, and import it with: nouns import RESOURCE FILE
        # Those after "references of" come last, with: nouns import RESOURCE FILE --upsert id
        # import order: thing part


        # The table parts
        [resources.part]
        id = "integer"

        [resources.part.fields]
        thing = { type = "ref", to = "thing", on_delete = "cascade", required = true, unique = true }
        name = { type = "text" }

        # The table things
        # note: an import keeps UUIDs of version 7; the SELECT changes others into that form, also in references
        # note: part_of_day: time without time zone is a text in the model
        # note: took: interval is a text in the model
        # note: address: inet is a text in the model
        # note: raw: nouns stores no bytea; it is left out
        # note: span: int4range is a text in the model
        # note: doubled: the database computes it; it is left out (see computed)
        # note: email: it is unique there without regard to case; here case counts (see lower, in computed fields)
        [resources.thing]

        [resources.thing.fields]
        feeling = { type = "text", one_of = ["sad", "it's ok"], default = "sad" }
        feelings = { type = "list", of = { type = "text", one_of = ["sad", "it's ok"] } }
        tags = { type = "list", of = { type = "text", max_length = 10 }, required = true }
        grid = { type = "json" }
        amount = { type = "decimal", scale = 2 }
        size = { type = "integer", required = true, min = 1 }
        ratio = { type = "number" }
        big = { type = "number" }
        data = { type = "json" }
        at = { type = "timestamp" }
        local = { type = "timestamp" }
        day = { type = "date" }
        part_of_day = { type = "text" }
        took = { type = "text" }
        address = { type = "text" }
        padded = { type = "text", max_length = 4 }
        span = { type = "text" }
        other = { type = "uuid" }
        flag = { type = "boolean" }
        seen = { type = "timestamp" }
        email = { type = "text", unique = true }
    "##]].assert_eq(&without_statements(&file));
}

#[test]
fn init_from_types_of_postgresql_and_import_of_their_values() {
    let other = things();
    let server = other.infer().import_all(&other);
    let things = server.get("/things").json()["things"].clone();
    let thing = things[0]["id"].as_str().unwrap();
    let thing = item(&server, &format!("/things/{thing}"));
    expect![[r#"
        {
          "id": "000f6c1e-9a44-7c39-8f0a-0e8b2d3f4a5b",
          "feeling": "it's ok",
          "feelings": [
            "sad",
            "it's ok"
          ],
          "tags": [
            "a",
            "b, c"
          ],
          "grid": [
            [
              1,
              2
            ],
            [
              3,
              4
            ]
          ],
          "amount": "12.50",
          "size": 3,
          "ratio": 0.1,
          "big": 1e+300,
          "data": {
            "a": [
              1,
              null
            ]
          },
          "at": "2026-11-15T02:28:14.123456Z",
          "local": "2026-11-15T02:28:14.500000Z",
          "day": "2026-11-15",
          "part_of_day": "10:30:00",
          "took": "1 day",
          "address": "10.0.0.1/32",
          "padded": "ab",
          "span": "[1,5)",
          "other": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
          "flag": false,
          "seen": "2026-11-15T02:28:14.123456Z",
          "email": "Ann@example.com"
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&thing).unwrap());
    // Version 4 becomes version 7, in the id and in references to it.
    let part = item(&server, "/parts/1");
    assert_eq!(part, json!({"id": 1, "thing": thing["id"]}));
    let again = json!({"part": {"thing": thing["id"]}});
    assert_eq!(server.post("/parts", again.to_string()).problem(), "taken");
}

/// Tables of another schema than the first one of the search path.
#[test]
fn init_from_another_schema_is_named_by_the_search_path() {
    let tables = "CREATE SCHEMA shop; CREATE TABLE shop.items (id int PRIMARY KEY, name text)";
    let other = OtherDatabase::new(Backend::Postgres, tables);
    let place = Folder::new();
    let ended = other.init(place.path());
    expect![[r#"
        nouns: the first schema of the search path of DATABASE has no tables; there are some in shop: name one with ?options=-c%20search_path%3Dshop
    "#]]
    .assert_eq(&ended.stderr.replace(&other.url(), "DATABASE"));
    let url = format!("{}?options=-c%20search_path%3Dshop", other.url());
    let ended = run_nouns(place.path(), &["init", "--from-database", &url]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
