//! Fields whose values the server computes.

use expect_test::expect;

use super::{FieldsChange, check_fields};
use crate::harness::Backend;

on_every_backend! {
    fn migrate_field_new_and_computed(backend: Backend) {
        let change = FieldsChange {
            before: r#"price = { type = "decimal" }"#,
            after: r#"price = { type = "decimal" }
twice = { type = "decimal", computed = "price * 2" }"#,
            items: &[r#"{"price":"1.50"}"#, r#"{}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.twice  the new field is computed, but the items that are there have no value for it
                                   2 items; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"price":"1.50","twice":"3.00"}
            {"id":2}
        "#]]);
    }

    fn migrate_field_computed_by_another_expression(backend: Backend) {
        let change = FieldsChange {
            before: r#"price = { type = "decimal" }
sum = { type = "decimal", computed = "price * 2" }"#,
            after: r#"price = { type = "decimal" }
sum = { type = "decimal", computed = "price * 3" }"#,
            items: &[r#"{"price":"1.50"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.sum  the expression changed, but the values that are there were computed by the old one
                                 1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"price":"1.50","sum":"4.50"}
        "#]]);
    }

    fn migrate_field_computed_from_a_converted_one(backend: Backend) {
        let change = FieldsChange {
            before: r#"price = { type = "text" }"#,
            after: r#"price = { type = "integer" }
sum = { type = "integer", computed = "price + 1" }"#,
            items: &[r#"{"price":"41"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              rewrite  note.price  the type changed from text to integer
                                   1 item; rewrites its table, about 1 s; cannot be undone

              rewrite  note.sum    the new field is computed, but the items that are there have no value for it
                                   1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"price":41,"sum":42}
        "#]]);
    }

    fn migrate_field_computed_now_without_the_flag(backend: Backend) {
        let change = FieldsChange {
            before: r#"price = { type = "decimal" }
sum = { type = "decimal" }"#,
            after: r#"price = { type = "decimal" }
sum = { type = "decimal", computed = "price * 2" }"#,
            items: &[r#"{"price":"1.50","sum":"9.00"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.sum  the field is computed now, but the values that are there were sent
                                 1 item; rewrites its table, about 1 s; cannot be undone
                                 values of 1 item are lost: needs --allow-loss note.sum

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss note.sum
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"price":"1.50","sum":"9.00"}
        "#]]);
    }

    fn migrate_field_computed_now(backend: Backend) {
        let change = FieldsChange {
            before: r#"price = { type = "decimal" }
sum = { type = "decimal" }"#,
            after: r#"price = { type = "decimal" }
sum = { type = "decimal", computed = "price * 2" }"#,
            items: &[r#"{"price":"1.50","sum":"9.00"}"#],
            flags: &["--allow-loss", "note.sum"],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.sum  the field is computed now, but the values that are there were sent
                                 1 item; rewrites its table, about 1 s; cannot be undone
                                 values of 1 item are lost: needs --allow-loss note.sum

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss note.sum
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"price":"1.50","sum":"3.00"}
        "#]]);
    }

    fn migrate_field_no_longer_computed(backend: Backend) {
        let change = FieldsChange {
            before: r#"price = { type = "decimal" }
sum = { type = "decimal", computed = "price * 2" }"#,
            after: r#"price = { type = "decimal" }
sum = { type = "decimal", max = 5 }"#,
            items: &[r#"{"price":"1.50"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              check    note.sum  the field is no longer computed, but its values were
                                 1 item; reads its table, about 1 s; can be undone

              check    note.sum  max is stricter now, and values that are there may break it
                                 1 item; reads its table, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"price":"1.50","sum":"3.00"}
        "#]]);
    }
}
