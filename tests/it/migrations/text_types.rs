//! Texts that become values of another type.

use expect_test::expect;

use super::{FieldsChange, check_fields};
use crate::harness::Backend;

on_every_backend! {
    fn migrate_type_text_to_integer(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "integer" }"#,
            items: &[r#"{"v":"12"}"#, r#"{"v":"-3"}"#, r#"{}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from text to integer
                               3 items; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":12}
            {"id":2,"v":-3}
            {"id":3}
        "#]]);
    }

    fn migrate_type_text_to_integer_with_other_words(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "integer" }"#,
            items: &[r#"{"v":"12"}"#, r#"{"v":"tea"}"#, r#"{"v":"1.5"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from text to integer
                               3 items; rewrites its table, about 1 s; cannot be undone
                               2 items are in the way: /notes/2 (expected an integer, got "tea"), /notes/3 (expected an integer within ±9007199254740991, got 1.5)

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":"12"}
            {"id":2,"v":"tea"}
            {"id":3,"v":"1.5"}
        "#]]);
    }

    fn migrate_type_text_to_decimal(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "decimal" }"#,
            items: &[r#"{"v":"12.5"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from text to decimal
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"12.50"}
        "#]]);
    }

    fn migrate_type_text_to_number(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "number" }"#,
            items: &[r#"{"v":"1e3"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from text to number
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":1000.0}
        "#]]);
    }

    fn migrate_type_text_to_boolean(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "boolean" }"#,
            items: &[r#"{"v":"true"}"#, r#"{"v":"false"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from text to boolean
                               2 items; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":true}
            {"id":2,"v":false}
        "#]]);
    }

    fn migrate_type_text_to_date(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "date" }"#,
            items: &[r#"{"v":"2026-01-31"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from text to date
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"2026-01-31"}
        "#]]);
    }

    fn migrate_type_text_to_email_with_a_bad_one(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "email" }"#,
            items: &[r#"{"v":"ann@example.com"}"#, r#"{"v":"ann"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from text to email
                               2 items; rewrites its table, about 1 s; cannot be undone
                               1 item is in the way: /notes/2 (expected an e-mail address, got "ann")

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":"ann@example.com"}
            {"id":2,"v":"ann"}
        "#]]);
    }

    fn migrate_type_text_to_uuid(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "uuid" }"#,
            items: &[r#"{"v":"6f1f2f7e-3a52-4d1c-9d9e-3a6d5c1f0a11"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from text to uuid
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"6f1f2f7e-3a52-4d1c-9d9e-3a6d5c1f0a11"}
        "#]]);
    }

    fn migrate_type_text_to_state(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "state", initial = "open", next = { open = ["closed"], closed = [] } }"#,
            items: &[r#"{"v":"closed"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from text to state
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"closed"}
        "#]]);
    }

    fn migrate_type_text_to_list(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "list", of = { type = "text" } }"#,
            items: &[r#"{"v":"tea"}"#, r#"{}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from text to list
                               2 items; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":["tea"]}
            {"id":2}
        "#]]);
    }
}
