//! Fields of another type.

use expect_test::expect;

use super::{FieldsChange, check_fields};
use crate::harness::Backend;

on_every_backend! {
    fn migrate_type_integer_to_text(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "integer" }"#,
            after: r#"v = { type = "text", filter = true }"#,
            items: &[r#"{"v":12}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from integer to text
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"12"}
        "#]]);
    }

    fn migrate_type_integer_to_decimal(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "integer" }"#,
            after: r#"v = { type = "decimal", scale = 2 }"#,
            items: &[r#"{"v":12}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from integer to decimal
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"12.00"}
        "#]]);
    }

    fn migrate_type_integer_to_number(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "integer" }"#,
            after: r#"v = { type = "number" }"#,
            items: &[r#"{"v":12}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from integer to number
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":12.0}
        "#]]);
    }

    fn migrate_type_decimal_to_integer(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "decimal" }"#,
            after: r#"v = { type = "integer" }"#,
            items: &[r#"{"v":"12.00"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from decimal to integer
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":12}
        "#]]);
    }

    fn migrate_type_decimal_to_integer_with_a_fraction(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "decimal" }"#,
            after: r#"v = { type = "integer" }"#,
            items: &[r#"{"v":"12.50"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from decimal to integer
                               1 item; rewrites its table, about 1 s; cannot be undone
                               1 item is in the way: /notes/1 (expected an integer within ±9007199254740991, got 12.50)

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":"12.50"}
        "#]]);
    }

    fn migrate_type_decimal_to_text(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "decimal" }"#,
            after: r#"v = { type = "text" }"#,
            items: &[r#"{"v":"12.50"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from decimal to text
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"12.50"}
        "#]]);
    }

    fn migrate_type_decimal_with_more_places(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "decimal", scale = 2 }"#,
            after: r#"v = { type = "decimal", scale = 4 }"#,
            items: &[r#"{"v":"12.50"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the scale changed from 2 to 4
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"12.5000"}
        "#]]);
    }

    fn migrate_type_decimal_with_fewer_places(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "decimal", scale = 4 }"#,
            after: r#"v = { type = "decimal", scale = 2 }"#,
            items: &[r#"{"v":"12.5000"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the scale changed from 4 to 2
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"12.50"}
        "#]]);
    }

    fn migrate_type_decimal_with_too_few_places(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "decimal", scale = 4 }"#,
            after: r#"v = { type = "decimal", scale = 2 }"#,
            items: &[r#"{"v":"12.5001"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the scale changed from 4 to 2
                               1 item; rewrites its table, about 1 s; cannot be undone
                               1 item is in the way: /notes/1 (expected at most 18 digits and 2 decimals, got 12.5001)

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":"12.5001"}
        "#]]);
    }

    fn migrate_type_number_to_integer(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "number" }"#,
            after: r#"v = { type = "integer" }"#,
            items: &[r#"{"v":3.0}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from number to integer
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":3}
        "#]]);
    }

    fn migrate_type_boolean_to_text(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "boolean" }"#,
            after: r#"v = { type = "text" }"#,
            items: &[r#"{"v":true}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from boolean to text
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"true"}
        "#]]);
    }

    fn migrate_type_boolean_to_date_has_no_conversion(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "boolean" }"#,
            after: r#"v = { type = "date" }"#,
            items: &[r#"{"v":true}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              refuse   note.v  the type changed from boolean to date, and there is no conversion
                               cannot be done while there are items (1 item); export them, and import them into a new database

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":true}
        "#]]);
    }

    fn migrate_type_date_to_timestamp(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "date" }"#,
            after: r#"v = { type = "timestamp" }"#,
            items: &[r#"{"v":"2026-01-31"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from date to timestamp
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"2026-01-31T00:00:00.000000Z"}
        "#]]);
    }

    fn migrate_type_json_to_object(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "json" }"#,
            after: r#"v = { type = "object", fields = { a = { type = "integer" } } }"#,
            items: &[r#"{"v":{"a":1}}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from json to object
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":{"a":1}}
        "#]]);
    }

    fn migrate_type_object_to_json(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "object", fields = { a = { type = "integer" } } }"#,
            after: r#"v = { type = "json" }"#,
            items: &[r#"{"v":{"a":1}}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from object to json
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":{"a":1}}
        "#]]);
    }
}
