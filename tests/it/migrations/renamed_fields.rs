//! A renamed field whose model does not name its former name: the plan asks.

use expect_test::expect;

use super::{FieldsChange, check_fields};
use crate::harness::Backend;

on_every_backend! {
    fn migrate_field_renamed_without_saying_so(backend: Backend) {
        let change = FieldsChange {
            before: r#"name = { type = "text" }"#,
            after: r#"full_name = { type = "text" }"#,
            items: &[r#"{"name":"tea"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              add      note.full_name  the field is new

              remove   note.name       the field was removed, but the database keeps values for it
                                       1 item; deletes its values, about 1 s; cannot be undone
                                       values of 1 item are lost: needs --allow-loss note.name
                                       if note.full_name is its new name, add renamed_from = "name" there, and nothing is lost

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss note.name
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"name":"tea"}
        "#]]);
    }

    fn migrate_required_field_renamed_without_saying_so(backend: Backend) {
        let change = FieldsChange {
            before: r#"name = { type = "text", required = true }"#,
            after: r#"full_name = { type = "text", required = true }"#,
            items: &[r#"{"name":"tea"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              check    note.full_name  the new field is required, but the items that are there have no value for it; give it a fill, or a default instead
                                       1 item; reads its table, about 1 s; can be undone
                                       1 item is in the way: /notes/1 (expected a text, got nothing)

              remove   note.name       the field was removed, but the database keeps values for it
                                       1 item; deletes its values, about 1 s; cannot be undone
                                       values of 1 item are lost: needs --allow-loss note.name
                                       if note.full_name is its new name, add renamed_from = "name" there, and nothing is lost

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"name":"tea"}
        "#]]);
    }
}
