//! Every kind of statement, in both dialects.

use expect_test::{Expect, expect};

use crate::intent::LogFilter;
use crate::model::{self, Model, ResourceIndex, UniqueRule, UniqueScope};
use crate::store::sql::changes::{LogRange, creation_entry, entries_in_range, item_statements};
use crate::store::sql::ddl::{add_column, create_table, foreign_key_names, indexes, literal};
use crate::store::sql::dialect::{Dialect, POSTGRES, SQLITE};
use crate::store::sql::read_statements::ReadStatements;
use crate::store::sql::statements::{SqlStatements, USERS_STAMP, role_groups_query};
use crate::store::sql::unique::violated_unique_rule;
use crate::value::Value;

const BOTH: [&Dialect; 2] = [&SQLITE, &POSTGRES];

const SHELVES: &str = r#"
title = "Shelves"

[resources.room.fields]
name = { type = "text", required = true, unique = true }

[resources.shelf]
parent = "room"
plural = "shelves"
id = "integer"
on_delete = "cascade"
unique = [["side", "number"]]

[resources.shelf.fields]
side = { type = "text", required = true }
number = { type = "integer", required = true, filter = true }

[resources.book]
parent = "shelf"

[resources.book.fields]
title = { type = "text", required = true, unique = "parent" }
price = { type = "decimal", default = "9.90" }
sequel_to = { type = "ref", to = "book", on_delete = "cascade" }
tags = { type = "list", of = { type = "text" } }
"#;

fn shelves() -> Model {
    model::read("shelves.toml", SHELVES).unwrap_or_else(|errors| panic!("{errors}"))
}

fn check(lines: impl IntoIterator<Item = String>, expected: &Expect) {
    expected.assert_eq(&lines.into_iter().map(|line| line + "\n").collect::<String>());
}

#[test]
fn sql_of_a_top_level_resource_has_no_join() {
    let model = shelves();
    let lines = BOTH.into_iter().flat_map(|dialect| {
        let sql = SqlStatements::new(&model, dialect);
        let table = sql.table_statements(ResourceIndex(0));
        let ReadStatements { item, item_for_update, item_for_delete, .. } = &table.read;
        let ReadStatements { exists, exists_anywhere, page, page_after, .. } = &table.read;
        let lines =
            [item, item_for_update, item_for_delete, exists, exists_anywhere, page, page_after];
        lines.into_iter().chain(&table.read.unique_conflicts).cloned().collect::<Vec<_>>()
    });
    check(
        lines,
        &expect![[r#"
            SELECT t0."id", t0."created_at", t0."updated_at", t0."version", t0."name" FROM "rooms" t0 WHERE t0."id" = ?1
            SELECT t0."id", t0."created_at", t0."updated_at", t0."version", t0."name" FROM "rooms" t0 WHERE t0."id" = ?1
            SELECT t0."id", t0."created_at", t0."updated_at", t0."version", t0."name" FROM "rooms" t0 WHERE t0."id" = ?1
            SELECT 1 FROM "rooms" t0 WHERE t0."id" = ?1
            SELECT 1 FROM "rooms" t0 WHERE t0."id" = ?1
            SELECT t0."id", t0."created_at", t0."updated_at", t0."version", t0."name" FROM "rooms" t0 ORDER BY t0."id" LIMIT ?1
            SELECT t0."id", t0."created_at", t0."updated_at", t0."version", t0."name" FROM "rooms" t0 WHERE t0."id" > ?2 ORDER BY t0."id" LIMIT ?1
            SELECT 1 FROM "rooms" t0 WHERE t0."id" <> ?1 AND t0."name" = ?2 LIMIT 1
            SELECT t0."id", t0."created_at", t0."updated_at", t0."version", t0."name" FROM "rooms" t0 WHERE t0."id" = $1
            SELECT t0."id", t0."created_at", t0."updated_at", t0."version", t0."name" FROM "rooms" t0 WHERE t0."id" = $1 FOR NO KEY UPDATE OF t0
            SELECT t0."id", t0."created_at", t0."updated_at", t0."version", t0."name" FROM "rooms" t0 WHERE t0."id" = $1 FOR UPDATE OF t0
            SELECT 1 FROM "rooms" t0 WHERE t0."id" = $1
            SELECT 1 FROM "rooms" t0 WHERE t0."id" = $1
            SELECT t0."id", t0."created_at", t0."updated_at", t0."version", t0."name" FROM "rooms" t0 ORDER BY t0."id" LIMIT $1
            SELECT t0."id", t0."created_at", t0."updated_at", t0."version", t0."name" FROM "rooms" t0 WHERE t0."id" > $2 ORDER BY t0."id" LIMIT $1
            SELECT 1 FROM "rooms" t0 WHERE t0."id" <> $1 AND t0."name" = $2 AND nouns_digest(t0."name") = nouns_digest($2) LIMIT 1
        "#]],
    );
}

#[test]
fn sql_of_a_nested_resource_checks_every_id_in_its_path() {
    let model = shelves();
    let lines = BOTH.into_iter().flat_map(|dialect| {
        let sql = SqlStatements::new(&model, dialect);
        let table = sql.table_statements(ResourceIndex(2));
        let ReadStatements { item_for_update, exists, exists_anywhere, .. } = &table.read;
        let ReadStatements { page, page_after, unique_conflicts, .. } = &table.read;
        let lines = [item_for_update, exists, exists_anywhere, page, page_after];
        lines.into_iter().chain(unique_conflicts).cloned().collect::<Vec<_>>()
    });
    check(
        lines,
        &expect![[r#"
            SELECT t0."id", t0."shelf_id", t0."created_at", t0."updated_at", t0."version", t0."title", t0."price", t0."sequel_to", t0."tags" FROM "books" t0 JOIN "shelves" t1 ON t1."id" = t0."shelf_id" WHERE t0."id" = ?1 AND t0."shelf_id" = ?2 AND t1."room_id" = ?3
            SELECT 1 FROM "books" t0 JOIN "shelves" t1 ON t1."id" = t0."shelf_id" WHERE t0."id" = ?1 AND t0."shelf_id" = ?2 AND t1."room_id" = ?3
            SELECT 1 FROM "books" t0 WHERE t0."id" = ?1
            SELECT t0."id", t0."shelf_id", t0."created_at", t0."updated_at", t0."version", t0."title", t0."price", t0."sequel_to", t0."tags" FROM "books" t0 JOIN "shelves" t1 ON t1."id" = t0."shelf_id" WHERE t0."shelf_id" = ?2 AND t1."room_id" = ?3 ORDER BY t0."id" LIMIT ?1
            SELECT t0."id", t0."shelf_id", t0."created_at", t0."updated_at", t0."version", t0."title", t0."price", t0."sequel_to", t0."tags" FROM "books" t0 JOIN "shelves" t1 ON t1."id" = t0."shelf_id" WHERE t0."id" > ?2 AND t0."shelf_id" = ?3 AND t1."room_id" = ?4 ORDER BY t0."id" LIMIT ?1
            SELECT 1 FROM "books" t0 WHERE t0."id" <> ?1 AND t0."shelf_id" = ?2 AND t0."title" = ?3 LIMIT 1
            SELECT t0."id", t0."shelf_id", t0."created_at", t0."updated_at", t0."version", t0."title", t0."price", t0."sequel_to", t0."tags" FROM "books" t0 JOIN "shelves" t1 ON t1."id" = t0."shelf_id" WHERE t0."id" = $1 AND t0."shelf_id" = $2 AND t1."room_id" = $3 FOR NO KEY UPDATE OF t0
            SELECT 1 FROM "books" t0 JOIN "shelves" t1 ON t1."id" = t0."shelf_id" WHERE t0."id" = $1 AND t0."shelf_id" = $2 AND t1."room_id" = $3
            SELECT 1 FROM "books" t0 WHERE t0."id" = $1
            SELECT t0."id", t0."shelf_id", t0."created_at", t0."updated_at", t0."version", t0."title", t0."price", t0."sequel_to", t0."tags" FROM "books" t0 JOIN "shelves" t1 ON t1."id" = t0."shelf_id" WHERE t0."shelf_id" = $2 AND t1."room_id" = $3 ORDER BY t0."id" LIMIT $1
            SELECT t0."id", t0."shelf_id", t0."created_at", t0."updated_at", t0."version", t0."title", t0."price", t0."sequel_to", t0."tags" FROM "books" t0 JOIN "shelves" t1 ON t1."id" = t0."shelf_id" WHERE t0."id" > $2 AND t0."shelf_id" = $3 AND t1."room_id" = $4 ORDER BY t0."id" LIMIT $1
            SELECT 1 FROM "books" t0 WHERE t0."id" <> $1 AND t0."shelf_id" = $2 AND t0."title" = $3 AND nouns_digest(t0."title") = nouns_digest($3) LIMIT 1
        "#]],
    );
}

#[test]
fn sql_writes_rows_by_id_and_version() {
    let model = shelves();
    let shelf = model.resource(ResourceIndex(1));
    let lines = BOTH.into_iter().flat_map(|dialect| {
        let sql = SqlStatements::new(&model, dialect);
        let table = sql.table_statements(ResourceIndex(1));
        let updates = [table.update_statement(shelf, &[1]), table.update_statement(shelf, &[0, 1])];
        let lines = [&table.insert, &table.delete, &sql.entry, &sql.sweep];
        let lines = lines.into_iter().chain(&table.insert_batch);
        lines.cloned().chain(updates).collect::<Vec<_>>()
    });
    check(
        lines,
        &expect![[r#"
            INSERT INTO "shelves" ("id", "room_id", "created_at", "updated_at", "version", "side", "number") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
            DELETE FROM "shelves" WHERE "id" = ?1 RETURNING "id", "room_id", "created_at", "updated_at", "version", "side", "number"
            INSERT INTO nouns_changes (time, resource, id, parent_id, subject, kind, actor, request_id, changed, before, after) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
            DELETE FROM nouns_changes WHERE sequence <= ?1
            UPDATE "shelves" SET "updated_at" = ?3, "version" = ?4, "number" = ?5 WHERE "id" = ?1 AND "version" = ?2
            UPDATE "shelves" SET "updated_at" = ?3, "version" = ?4, "side" = ?5, "number" = ?6 WHERE "id" = ?1 AND "version" = ?2
            WITH written AS (INSERT INTO "shelves" ("id", "room_id", "created_at", "updated_at", "version", "side", "number") VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING 1) INSERT INTO nouns_changes (sequence, time, resource, id, parent_id, subject, kind, actor, request_id, changed, before, after) SELECT nouns_next_change($19), $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18 FROM written
            DELETE FROM "shelves" WHERE "id" = $1 RETURNING "id", "room_id", "created_at", "updated_at", "version", "side", "number"
            INSERT INTO nouns_changes (sequence, time, resource, id, parent_id, subject, kind, actor, request_id, changed, before, after) VALUES (nouns_next_change($12), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
            DELETE FROM nouns_changes WHERE sequence <= $1
            WITH given AS (SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::bigint[], $6::text[], $7::bigint[], $8::timestamptz[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[]) WITH ORDINALITY AS given (c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c18, at)), written AS (INSERT INTO "shelves" ("id", "room_id", "created_at", "updated_at", "version", "side", "number") SELECT c1, c2, c3, c4, c5, c6, c7 FROM given RETURNING 1) INSERT INTO nouns_changes (sequence, time, resource, id, parent_id, subject, kind, actor, request_id, changed, before, after) SELECT nouns_next_change(at = 1), c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c18 FROM given WHERE (SELECT count(*) FROM written) > 0
            WITH written AS (UPDATE "shelves" SET "updated_at" = $3, "version" = $4, "number" = $5 WHERE "id" = $1 AND "version" = $2 RETURNING 1) INSERT INTO nouns_changes (sequence, time, resource, id, parent_id, subject, kind, actor, request_id, changed, before, after) SELECT nouns_next_change($17), $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16 FROM written
            WITH written AS (UPDATE "shelves" SET "updated_at" = $3, "version" = $4, "side" = $5, "number" = $6 WHERE "id" = $1 AND "version" = $2 RETURNING 1) INSERT INTO nouns_changes (sequence, time, resource, id, parent_id, subject, kind, actor, request_id, changed, before, after) SELECT nouns_next_change($18), $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17 FROM written
        "#]],
    );
}

#[test]
fn sql_collection_version_is_one_index_lookup() {
    let versions = BOTH.into_iter().flat_map(|dialect| dialect.collection_versions);
    check(
        versions.map(str::to_owned),
        &expect![[r#"
            SELECT coalesce((SELECT sequence FROM nouns_changes WHERE resource = ?2 AND parent_id IS NULL ORDER BY sequence DESC LIMIT 1), (SELECT min(sequence) FROM nouns_changes), 0), ?1
            SELECT coalesce((SELECT sequence FROM nouns_changes WHERE resource = ?2 AND parent_id = ?3 ORDER BY sequence DESC LIMIT 1), (SELECT min(sequence) FROM nouns_changes), 0), ?1
            SELECT at, CASE WHEN at > $1 THEN nouns_settled_change() ELSE $1 END FROM (SELECT coalesce((SELECT sequence FROM nouns_changes WHERE resource COLLATE "C" = $2 AND coalesce(parent_id, '') COLLATE "C" = '' ORDER BY - sequence LIMIT 1), (SELECT min(sequence) FROM nouns_changes), 0) AS at OFFSET 0) AS found
            SELECT at, CASE WHEN at > $1 THEN nouns_settled_change() ELSE $1 END FROM (SELECT coalesce((SELECT sequence FROM nouns_changes WHERE resource COLLATE "C" = $2 AND coalesce(parent_id, '') COLLATE "C" = $3 ORDER BY - sequence LIMIT 1), (SELECT min(sequence) FROM nouns_changes), 0) AS at OFFSET 0) AS found
        "#]],
    );
    for text in SQLITE.collection_versions {
        let steps = sqlite_plan(text);
        let is_used = |step: &String| step.contains("USING COVERING INDEX nouns_changes_place");
        assert!(steps.iter().any(is_used), "{steps:?}");
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:?}");
    }
}

/// The steps of SQLite's query plan for a statement about the change log.
fn sqlite_plan(statement: &str) -> Vec<String> {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    let indexes = SQLITE.log_indexes.iter().map(|index| &index.create);
    let define = SQLITE.system_tables.iter().chain(indexes);
    define.for_each(|text| connection.execute_batch(text).unwrap());
    let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
    let count = plan.parameter_count();
    let steps = plan.query_map(rusqlite::params_from_iter(vec![""; count]), |row| row.get(3));
    steps.unwrap().map(Result::unwrap).collect()
}

/// The entries of an item are found by their index, and need no sort.
#[test]
fn sql_entries_of_an_item_are_found_by_their_index() {
    for (text, _) in item_statements(&SQLITE) {
        let steps = sqlite_plan(&text);
        assert_eq!(steps.len(), 1, "{text}: {steps:?}");
        assert!(steps[0].contains("USING INDEX nouns_changes_item"), "{text}: {steps:?}");
    }
}

/// The entries of a range, and the one of a creation, are found by their numbers: other indexes have entries of the
/// whole log.
#[test]
fn sql_entries_of_a_range_are_found_by_their_numbers() {
    let filter = LogFilter { resources: Some(vec!["order".into()]), ..LogFilter::default() };
    let range = LogRange { after: 0, up_to: 9, is_descending: true, entries_max: 5 };
    let entries = entries_in_range(&SQLITE, &filter, None, range).sql.into_owned();
    for text in [entries, creation_entry(&SQLITE)] {
        let steps = sqlite_plan(&text);
        assert_eq!(steps.len(), 1, "{text}: {steps:?}");
        assert!(steps[0].contains("USING INTEGER PRIMARY KEY"), "{text}: {steps:?}");
    }
}

#[test]
fn sql_dependents_are_selected_with_their_ancestors() {
    let model = shelves();
    let sql = SqlStatements::new(&model, &SQLITE);
    let incoming = (0..3).flat_map(|index| &sql.table_statements(ResourceIndex(index)).incoming);
    check(
        incoming.map(|link| format!("{:?} {}", link.on_delete, link.dependents)),
        &expect![[r#"
        Cascade SELECT t0."id", t0."room_id" FROM "shelves" t0 WHERE t0."room_id" = ?1 ORDER BY t0."id" LIMIT ?2
        Restrict SELECT t0."id", t0."shelf_id", t1."room_id" FROM "books" t0 JOIN "shelves" t1 ON t1."id" = t0."shelf_id" WHERE t0."shelf_id" = ?1 ORDER BY t0."id" LIMIT ?2
        Cascade SELECT t0."id", t0."shelf_id", t1."room_id" FROM "books" t0 JOIN "shelves" t1 ON t1."id" = t0."shelf_id" WHERE t0."sequel_to" = ?1 ORDER BY t0."id" LIMIT ?2
    "#]],
    );
}

#[test]
fn ddl_tables_have_types_and_no_rules() {
    let model = shelves();
    let tables = BOTH.into_iter().flat_map(|dialect| {
        let tables = model.declared();
        tables.map(|resource| create_table(&model, resource, dialect)).collect::<Vec<_>>()
    });
    check(
        tables,
        &expect![[r#"
            CREATE TABLE "rooms" (
              "id" TEXT NOT NULL PRIMARY KEY,
              "created_at" TEXT NOT NULL,
              "updated_at" TEXT NOT NULL,
              "version" INTEGER NOT NULL,
              "name" TEXT
            ) STRICT, WITHOUT ROWID
            CREATE TABLE "shelves" (
              "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
              "room_id" TEXT NOT NULL REFERENCES "rooms" ("id"),
              "created_at" TEXT NOT NULL,
              "updated_at" TEXT NOT NULL,
              "version" INTEGER NOT NULL,
              "side" TEXT,
              "number" INTEGER
            ) STRICT
            CREATE TABLE "books" (
              "id" TEXT NOT NULL PRIMARY KEY,
              "shelf_id" INTEGER NOT NULL REFERENCES "shelves" ("id"),
              "created_at" TEXT NOT NULL,
              "updated_at" TEXT NOT NULL,
              "version" INTEGER NOT NULL,
              "title" TEXT,
              "price" INTEGER,
              "sequel_to" TEXT REFERENCES "books" ("id") DEFERRABLE INITIALLY DEFERRED,
              "tags" TEXT
            ) STRICT, WITHOUT ROWID
            CREATE TABLE "rooms" (
              "id" uuid NOT NULL PRIMARY KEY,
              "created_at" timestamptz NOT NULL,
              "updated_at" timestamptz NOT NULL,
              "version" bigint NOT NULL,
              "name" text COLLATE "C"
            )
            CREATE TABLE "shelves" (
              "id" bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
              "room_id" uuid NOT NULL,
              "created_at" timestamptz NOT NULL,
              "updated_at" timestamptz NOT NULL,
              "version" bigint NOT NULL,
              "side" text COLLATE "C",
              "number" bigint
            )
            CREATE TABLE "books" (
              "id" uuid NOT NULL PRIMARY KEY,
              "shelf_id" bigint NOT NULL,
              "created_at" timestamptz NOT NULL,
              "updated_at" timestamptz NOT NULL,
              "version" bigint NOT NULL,
              "title" text COLLATE "C",
              "price" bigint,
              "sequel_to" uuid,
              "tags" json
            )
        "#]],
    );
}

/// Lookups by name use the unique index, and startup does not reconcile the indexes of the users.
#[test]
fn sql_of_users() {
    let model = shelves();
    let users = model.resource(model.users);
    let texts = BOTH.into_iter().flat_map(|dialect| {
        let indexes = indexes(users, dialect).into_iter().map(|index| index.create);
        let sql = SqlStatements::new(&model, dialect);
        let table = create_table(&model, users, dialect);
        [table].into_iter().chain(indexes).chain([
            sql.user,
            USERS_STAMP.to_owned(),
            sql.other_admin,
            role_groups_query(users),
        ])
    });
    check(
        texts,
        &expect![[r#"
            CREATE TABLE "nouns_users" (
              "id" TEXT NOT NULL PRIMARY KEY,
              "created_at" TEXT NOT NULL,
              "updated_at" TEXT NOT NULL,
              "version" INTEGER NOT NULL,
              "name" TEXT,
              "roles" TEXT,
              "disabled" INTEGER,
              "password" TEXT
            ) STRICT, WITHOUT ROWID
            CREATE UNIQUE INDEX "nouns_users.unique.name" ON "nouns_users" ("name")
            SELECT "id", "created_at", "updated_at", "version", "name", "roles", "disabled", "password" FROM "nouns_users" WHERE "name" = ?1
            SELECT CAST(value AS bigint) FROM nouns_system WHERE name = 'users_stamp'
            SELECT 1 FROM "nouns_users" WHERE "id" <> ?1 AND "disabled" IS NOT TRUE AND CAST("roles" AS text) LIKE '%"admin"%' LIMIT 1
            SELECT CAST("roles" AS text), CAST(CASE WHEN "disabled" THEN 1 ELSE 0 END AS bigint), count(*), min("name") FROM "nouns_users" GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 1000
            CREATE TABLE "nouns_users" (
              "id" uuid NOT NULL PRIMARY KEY,
              "created_at" timestamptz NOT NULL,
              "updated_at" timestamptz NOT NULL,
              "version" bigint NOT NULL,
              "name" text COLLATE "C",
              "roles" json,
              "disabled" boolean,
              "password" text COLLATE "C"
            )
            CREATE UNIQUE INDEX "nouns_users.unique.name" ON "nouns_users" (nouns_digest("name"))
            SELECT "id", "created_at", "updated_at", "version", "name", "roles", "disabled", "password" FROM "nouns_users" WHERE "name" = $1 AND nouns_digest("name") = nouns_digest($1)
            SELECT CAST(value AS bigint) FROM nouns_system WHERE name = 'users_stamp'
            SELECT 1 FROM "nouns_users" WHERE "id" <> $1 AND "disabled" IS NOT TRUE AND CAST("roles" AS text) LIKE '%"admin"%' LIMIT 1
            SELECT CAST("roles" AS text), CAST(CASE WHEN "disabled" THEN 1 ELSE 0 END AS bigint), count(*), min("name") FROM "nouns_users" GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 1000
        "#]],
    );
}

#[test]
fn ddl_index_name_contains_table_purpose_and_columns() {
    let model = shelves();
    let indexes = BOTH.into_iter().flat_map(|dialect| {
        let indexes = model.declared().flat_map(|resource| indexes(resource, dialect));
        indexes.map(|index| index.create).collect::<Vec<_>>()
    });
    check(
        indexes,
        &expect![[r#"
            CREATE UNIQUE INDEX "nouns.rooms.unique.name" ON "rooms" ("name")
            CREATE INDEX "nouns.shelves.parent" ON "shelves" ("room_id", "id")
            CREATE INDEX "nouns.shelves.created" ON "shelves" ("room_id", "created_at", "id")
            CREATE INDEX "nouns.shelves.filter.number" ON "shelves" ("room_id", "number", "id")
            CREATE INDEX "nouns.shelves.flat_created" ON "shelves" ("created_at", "id")
            CREATE INDEX "nouns.shelves.flat_filter.number" ON "shelves" ("number", "id")
            CREATE UNIQUE INDEX "nouns.shelves.unique.side.number" ON "shelves" ("side", "number")
            CREATE INDEX "nouns.books.parent" ON "books" ("shelf_id", "id")
            CREATE INDEX "nouns.books.ref.sequel_to" ON "books" ("sequel_to", "id")
            CREATE UNIQUE INDEX "nouns.books.unique_in_parent.title" ON "books" ("shelf_id", "title")
            CREATE UNIQUE INDEX "nouns.rooms.unique.name" ON "rooms" (nouns_digest("name"))
            CREATE INDEX "nouns.shelves.parent" ON "shelves" ("room_id", "id")
            CREATE INDEX "nouns.shelves.created" ON "shelves" ("room_id", "created_at", "id")
            CREATE INDEX "nouns.shelves.filter.number" ON "shelves" ("room_id", "number", "id")
            CREATE INDEX "nouns.shelves.flat_created" ON "shelves" ("created_at", "id")
            CREATE INDEX "nouns.shelves.flat_filter.number" ON "shelves" ("number", "id")
            CREATE UNIQUE INDEX "nouns.shelves.unique.side.number" ON "shelves" (nouns_digest("side"), "number")
            CREATE INDEX "nouns.books.parent" ON "books" ("shelf_id", "id")
            CREATE INDEX "nouns.books.ref.sequel_to" ON "books" ("sequel_to", "id")
            CREATE UNIQUE INDEX "nouns.books.unique_in_parent.title" ON "books" ("shelf_id", nouns_digest("title"))
        "#]],
    );
}

#[test]
fn ddl_new_column_has_its_default() {
    let model = shelves();
    let book = model.resource(ResourceIndex(2));
    let columns = BOTH.into_iter().flat_map(|dialect| {
        let fields = book.fields.iter();
        fields.map(|field| add_column(&model, book, field, dialect)).collect::<Vec<_>>()
    });
    check(
        columns,
        &expect![[r#"
            ALTER TABLE "books" ADD COLUMN "title" TEXT
            ALTER TABLE "books" ADD COLUMN "price" INTEGER DEFAULT 990
            ALTER TABLE "books" ADD COLUMN "sequel_to" TEXT REFERENCES "books" ("id") DEFERRABLE INITIALLY DEFERRED
            ALTER TABLE "books" ADD COLUMN "tags" TEXT
            ALTER TABLE "books" ADD COLUMN "title" text COLLATE "C"
            ALTER TABLE "books" ADD COLUMN "price" bigint DEFAULT 990
            ALTER TABLE "books" ADD COLUMN "sequel_to" uuid
            ALTER TABLE "books" ADD COLUMN "tags" json
        "#]],
    );
}

#[test]
fn ddl_literal_is_escaped() {
    assert_eq!(literal(&Value::text("it's; --"), &SQLITE), "'it''s; --'");
    assert_eq!(literal(&Value::text("it's; --"), &POSTGRES), "'it''s; --'");
}

#[test]
fn unique_violation_names_its_rule() {
    let model = shelves();
    let found = |resource: usize, columns: &str| {
        let message = format!("UNIQUE constraint failed: {columns}");
        violated_unique_rule(model.resource(ResourceIndex(resource)), &message).cloned()
    };
    assert_eq!(
        found(0, "rooms.name"),
        Some(UniqueRule { fields: vec![0], scope: UniqueScope::Resource })
    );
    assert_eq!(
        found(1, "shelves.side, shelves.number"),
        Some(UniqueRule { fields: vec![0, 1], scope: UniqueScope::Resource })
    );
    assert_eq!(
        found(2, "books.shelf_id, books.title"),
        Some(UniqueRule { fields: vec![0], scope: UniqueScope::Parent })
    );
    assert_eq!(found(2, "books.id"), None);
    // PostgreSQL reports the name of the index.
    let index = "nouns.shelves.unique.side.number";
    let found = violated_unique_rule(model.resource(ResourceIndex(1)), index).cloned();
    assert_eq!(found, Some(UniqueRule { fields: vec![0, 1], scope: UniqueScope::Resource }));
}

/// The second name of each pair is the one that PostgreSQL 15 gives to an unnamed foreign key.
#[test]
fn foreign_key_names_are_ours_and_those_of_postgresql() {
    let text = "title = \"T\"\n[resources.thing]\nplural = \"abcdefghijklmnopqrstuvwxyz_abcdefghijklm\"\n\
        [resources.thing.fields]\nc = { type = \"text\" }\n";
    let model = model::read("t.toml", text).unwrap();
    let thing = model.declared().next().unwrap();
    let columns = ["c", "abcdefghijklmnopqrstuvwxyz_abcd"];
    let [[ours, theirs], [long, cut]] = columns.map(|column| foreign_key_names(thing, column));
    assert_eq!(ours, "nouns.abcdefghijklmnopqrstuvwxyz_abcdefghijklm.foreign_key.c");
    assert_eq!(theirs, "abcdefghijklmnopqrstuvwxyz_abcdefghijklm_c_fkey");
    assert_eq!(long.len(), 63);
    assert_eq!(cut, "abcdefghijklmnopqrstuvwxyz_ab_abcdefghijklmnopqrstuvwxyz_a_fkey");
}

#[test]
fn ddl_long_index_name_is_truncated_and_stays_unique() {
    let (long, other) =
        ("a_very_long_name_of_a_field_that_goes_on", "a_very_long_name_of_a_field_that_goes_by");
    let text = format!(
        "title = \"T\"\n[resources.a_long_resource_as_well.fields]\n{long} = {{ type = \"text\", unique = true }}\n{other} = {{ type = \"text\", unique = true }}\n"
    );
    let model = model::read("long.toml", &text).unwrap();
    let resource = model.resource(ResourceIndex(0));
    let names = indexes(resource, &POSTGRES).into_iter().map(|index| index.name);
    let names: Vec<_> = names.filter(|name| name.contains(".unique.")).collect();
    assert!(names.iter().all(|name| name.len() == 63), "{names:?}");
    assert_ne!(names[0], names[1]);
    assert_eq!(violated_unique_rule(resource, &names[1]).map(|unique| unique.fields[0]), Some(1));
}
