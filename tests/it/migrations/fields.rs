//! Fields that are added, renamed, removed, computed or filled in.

use expect_test::expect;

use super::{FieldsChange, ModelChange, check, check_fields};
use crate::harness::Backend;

on_every_backend! {
    /// A made default is for new items: those that are there need a `fill`.
    fn migrate_field_required_with_a_made_default_needs_a_fill(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: "v = { type = \"text\" }\nday = { type = \"date\", required = true, default = { from = \"now\" } }",
            items: &[r#"{"v":"tea"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.day  the new field is required, but the items that are there have no value for it; give it a fill, or a default instead
                                 1 item; reads its table, about 1 s; can be undone
                                 1 item is in the way: /notes/1 (expected a date such as "2026-11-15", got nothing)

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":"tea"}
        "#]]);
    }

    fn migrate_field_required_with_a_made_default_gets_its_fill(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: "v = { type = \"text\" }\nday = { type = \"date\", required = true, default = { from = \"now\" }, fill = \"2001-02-03\" }\nowner = { type = \"text\", default = { from = \"user\" } }",
            items: &[r#"{"v":"tea"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              add      note.owner  the field is new

              rewrite  note.day    the new field has a fill, but the items that are there have no value for it
                                   1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"v":"tea","day":"2001-02-03"}
        "#]]);
    }

    /// A declared field of the name becomes the one that `created_by = true` adds.
    fn migrate_field_of_users_that_was_declared(backend: Backend) {
        let change = ModelChange {
            before: "[resources.note]\nid = \"integer\"\n[resources.note.fields]\ncreated_by = { type = \"text\", max_length = 50 }",
            after: "[resources.note]\nid = \"integer\"\ncreated_by = true\nupdated_by = true\n[resources.note.fields]",
            items: &[("/notes", r#"{"created_by":"ann"}"#)],
            flags: &[],
            collections: &["/notes"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              add      note.updated_by  the field is new

            nouns serve makes these changes when it starts.
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"created_by":"ann"}
        "#]]);
    }

    fn migrate_field_renamed(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }"#,
            after: r#"title = { type = "text", renamed_from = "text" }"#,
            items: &[r#"{"text":"tea"}"#, r#"{}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rename   note.title  the field was renamed from text
                                   2 items; changes names only, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"title":"tea"}
            {"id":2}
        "#]]);
    }

    fn migrate_field_renamed_with_indexes(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text", filter = true, unique = true }"#,
            after: r#"title = { type = "text", filter = true, unique = true, renamed_from = "text" }"#,
            items: &[r#"{"text":"tea"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rename   note.title  the field was renamed from text
                                   1 item; changes names only, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"title":"tea"}
        "#]]);
    }

    fn migrate_field_renamed_whose_former_name_is_declared(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }"#,
            after: r#"title = { type = "text", renamed_from = "text" }
text = { type = "integer", default = 7 }"#,
            items: &[r#"{"text":"tea"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            --- plan: exit 2error: `text` is declared too, so it was not renamed
             --> model.toml:5:41
              |
            5 | title = { type = "text", renamed_from = "text" }
              |                                         ^^^^^^
              |
              = help: a former name is not in the model any more: take this out, or the declaration of that name

            error: `text` is declared too, so it was not renamed
            {"id":1,"text":"tea"}
        "#]]);
    }

    fn migrate_field_removed_beside_another(backend: Backend) {
        let change = FieldsChange {
            before: r#"a = { type = "text" }
b = { type = "text" }"#,
            after: r#"b = { type = "text" }"#,
            items: &[r#"{"a":"1","b":"2"}"#],
            flags: &["--allow-loss", "note.a"],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              remove   note.a  the field was removed, but the database keeps values for it
                               1 item; deletes its values, about 1 s; cannot be undone
                               values of 1 item are lost: needs --allow-loss note.a

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss note.a
            Or change nothing: nouns serve starts with this model too; it keeps what is removed here, and hides it.
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"b":"2"}
        "#]]);
    }

    fn migrate_field_renamed_and_converted(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }"#,
            after: r#"count = { type = "integer", renamed_from = "text" }"#,
            items: &[r#"{"text":"12"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              rename   note.count  the field was renamed from text
                                   1 item; changes names only, about 1 s; can be undone

              rewrite  note.count  the type changed from text to integer
                                   1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"count":12}
        "#]]);
    }

    fn migrate_field_removed_without_the_flag(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }
age = { type = "integer" }"#,
            after: r#"text = { type = "text" }"#,
            items: &[r#"{"text":"tea","age":3}"#, r#"{"text":"two"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              remove   note.age  the field was removed, but the database keeps values for it
                                 2 items; deletes its values, about 1 s; cannot be undone
                                 values of 1 item are lost: needs --allow-loss note.age

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss note.age
            Or change nothing: nouns serve starts with this model too; it keeps what is removed here, and hides it.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"text":"tea","age":3}
            {"id":2,"text":"two"}
        "#]]);
    }

    fn migrate_field_removed(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }
age = { type = "integer", filter = true }"#,
            after: r#"text = { type = "text" }"#,
            items: &[r#"{"text":"tea","age":3}"#],
            flags: &["--allow-loss", "note.age"],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              remove   note.age  the field was removed, but the database keeps values for it
                                 1 item; deletes its values, about 1 s; cannot be undone
                                 values of 1 item are lost: needs --allow-loss note.age

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss note.age
            Or change nothing: nouns serve starts with this model too; it keeps what is removed here, and hides it.
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"text":"tea"}
        "#]]);
    }

    fn migrate_field_removed_that_no_item_has(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }
age = { type = "integer" }"#,
            after: r#"text = { type = "text" }"#,
            items: &[r#"{"text":"tea"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              remove   note.age  the field was removed, but the database keeps values for it
                                 1 item; deletes its values, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            Or change nothing: nouns serve starts with this model too; it keeps what is removed here, and hides it.
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"text":"tea"}
        "#]]);
    }

    fn migrate_field_removed_with_a_flag_for_another(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }
age = { type = "integer" }"#,
            after: r#"text = { type = "text" }"#,
            items: &[r#"{"text":"tea","age":3}"#],
            flags: &["--allow-loss", "note.text"],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              remove   note.age  the field was removed, but the database keeps values for it
                                 1 item; deletes its values, about 1 s; cannot be undone
                                 values of 1 item are lost: needs --allow-loss note.age

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss note.age
            Or change nothing: nouns serve starts with this model too; it keeps what is removed here, and hides it.
            --- plan: exit 1
            nouns: --allow-loss note.text: no step of the plan is about that; nothing was changed
            {"id":1,"text":"tea","age":3}
        "#]]);
    }

    fn migrate_field_new_and_required_with_a_fill(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }"#,
            after: r#"text = { type = "text" }
age = { type = "integer", required = true, fill = 18, filter = true }"#,
            items: &[r#"{"text":"tea"}"#, r#"{"text":"two"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.age  the new field has a fill, but the items that are there have no value for it
                                 2 items; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"text":"tea","age":18}
            {"id":2,"text":"two","age":18}
        "#]]);
    }

    fn migrate_field_new_and_required_without_a_fill(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }"#,
            after: r#"text = { type = "text" }
age = { type = "integer", required = true }"#,
            items: &[r#"{"text":"tea"}"#, r#"{"text":"two"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.age  the new field is required, but the items that are there have no value for it; give it a fill, or a default instead
                                 2 items; reads its table, about 1 s; can be undone
                                 2 items are in the way: /notes/1 (expected an integer, got nothing), /notes/2 (expected an integer, got nothing)

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"text":"tea"}
            {"id":2,"text":"two"}
        "#]]);
    }

    fn migrate_field_new_and_optional_with_a_fill(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }"#,
            after: r#"text = { type = "text" }
tags = { type = "list", of = { type = "text" }, fill = ["old"] }"#,
            items: &[r#"{"text":"tea"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.tags  the new field has a fill, but the items that are there have no value for it
                                  1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"text":"tea","tags":["old"]}
        "#]]);
    }

    fn migrate_field_required_now_and_all_have_it(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }"#,
            after: r#"text = { type = "text", required = true }"#,
            items: &[r#"{"text":"tea"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.text  the field is required now, but items may be without it; give it a fill, or a default instead
                                  1 item; reads its table, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"text":"tea"}
        "#]]);
    }

    fn migrate_field_required_now_and_some_lack_it(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }"#,
            after: r#"text = { type = "text", required = true }"#,
            items: &[r#"{"text":"tea"}"#, r#"{}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.text  the field is required now, but items may be without it; give it a fill, or a default instead
                                  2 items; reads its table, about 1 s; can be undone
                                  1 item is in the way: /notes/2 (expected a text, got nothing)

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"text":"tea"}
            {"id":2}
        "#]]);
    }

    fn migrate_field_required_now_with_a_fill(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text" }"#,
            after: r#"text = { type = "text", required = true, fill = "none" }"#,
            items: &[r#"{"text":"tea"}"#, r#"{}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.text  the field is required now, but items may be without it; they get its fill
                                  2 items; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"text":"tea"}
            {"id":2,"text":"none"}
        "#]]);
    }

    fn migrate_field_with_a_looser_rule_and_a_filter(backend: Backend) {
        let change = FieldsChange {
            before: r#"text = { type = "text", max_length = 5 }"#,
            after: r#"text = { type = "text", max_length = 9, filter = true }"#,
            items: &[r#"{"text":"tea"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            model.toml changes no stored data; nouns serve applies it when it starts, and builds indexes then
            --- plan: exit 0
            nouns: model.toml changes no stored data; nouns serve applies it when it starts

            {"id":1,"text":"tea"}
        "#]]);
    }

    /// The field has the values of its own name or those of its former name: only the author knows which.
    fn migrate_field_renamed_to_a_stored_name(backend: Backend) {
        let change = FieldsChange {
            before: r#"a = { type = "text" }
b = { type = "text" }"#,
            after: r#"b = { type = "text", renamed_from = "a" }"#,
            items: &[r#"{"a":"1","b":"2"}"#],
            flags: &["--allow-loss", "note.a"],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              refuse   note.b  the field was renamed from a, but b is stored too; remove b in a migration of its own, or take out renamed_from
                               cannot be done while there are items (1 item); export them, and import them into a new database

              remove   note.a  the field was removed, but the database keeps values for it
                               1 item; deletes its values, about 1 s; cannot be undone
                               values of 1 item are lost: needs --allow-loss note.a

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"a":"1","b":"2"}
        "#]]);
    }
}
