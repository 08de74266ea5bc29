//! Stricter rules, states, and the parts of objects and lists.

use expect_test::expect;

use super::{FieldsChange, ModelChange, check, check_fields};
use crate::harness::Backend;

on_every_backend! {
    fn migrate_rule_max_length_is_kept(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "text", max_length = 3 }"#,
            items: &[r#"{"v":"tea"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.v  max_length is stricter now, and values that are there may break it
                               1 item; reads its table, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"tea"}
        "#]]);
    }

    fn migrate_rule_max_length_is_broken(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "text", max_length = 3 }"#,
            items: &[r#"{"v":"coffee"}"#, r#"{"v":"tea"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.v  max_length is stricter now, and values that are there may break it
                               2 items; reads its table, about 1 s; can be undone
                               1 item is in the way: /notes/1 (expected at most 3 characters, got 6)

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":"coffee"}
            {"id":2,"v":"tea"}
        "#]]);
    }

    fn migrate_rule_min_and_max_are_broken(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "integer" }"#,
            after: r#"v = { type = "integer", min = 2, max = 8 }"#,
            items: &[r#"{"v":1}"#, r#"{"v":9}"#, r#"{"v":5}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              check    note.v  min is stricter now, and values that are there may break it
                               3 items; reads its table, about 1 s; can be undone
                               2 items are in the way: /notes/1 (expected at least 2, got 1), /notes/2 (expected at most 8, got 9)

              check    note.v  max is stricter now, and values that are there may break it
                               3 items; reads its table, about 1 s; can be undone

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":1}
            {"id":2,"v":9}
            {"id":3,"v":5}
        "#]]);
    }

    fn migrate_rule_check_is_broken(backend: Backend) {
        let change = ModelChange {
            before: "[resources.span]\nid = \"integer\"\n[resources.span.fields]\nlow = { type = \"integer\" }\nhigh = { type = \"integer\" }",
            after: "[resources.span]\nid = \"integer\"\ncheck = [{ that = \"low <= high\", message = \"low is above high\" }]\n[resources.span.fields]\nlow = { type = \"integer\" }\nhigh = { type = \"integer\" }",
            items: &[("/spans", r#"{"low":1,"high":2}"#), ("/spans", r#"{"low":2,"high":1}"#), ("/spans", r#"{"low":3}"#)],
            flags: &[],
            collections: &["/spans"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    span.low+high  the check `low <= high` is new, and items that are there may break it
                                      3 items; reads its table, about 1 s; can be undone
                                      1 item is in the way: /spans/2 (low is above high)

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"low":1,"high":2}
            {"id":2,"low":2,"high":1}
            {"id":3,"low":3}
        "#]]);
    }

    /// A check that stays is evaluated for the values that the migration writes.
    fn migrate_rule_check_is_broken_by_converted_values(backend: Backend) {
        let change = ModelChange {
            before: "[resources.span]\nid = \"integer\"\ncheck = [{ that = \"low <= high\", message = \"low is above high\" }]\n[resources.span.fields]\nlow = { type = \"text\" }\nhigh = { type = \"text\" }",
            after: "[resources.span]\nid = \"integer\"\ncheck = [{ that = \"low <= high\", message = \"low is above high\" }]\n[resources.span.fields]\nlow = { type = \"integer\" }\nhigh = { type = \"integer\" }",
            items: &[("/spans", r#"{"low":"1","high":"2"}"#), ("/spans", r#"{"low":"10","high":"9"}"#)],
            flags: &[],
            collections: &["/spans"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              rewrite  span.low   the type changed from text to integer
                                  2 items; rewrites its table, about 1 s; cannot be undone

              rewrite  span.high  the type changed from text to integer
                                  2 items; rewrites its table, about 1 s; cannot be undone
                                  1 item is in the way: /spans/2 (low is above high)

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"low":"1","high":"2"}
            {"id":2,"low":"10","high":"9"}
        "#]]);
    }

    fn migrate_rule_check_is_kept(backend: Backend) {
        let change = ModelChange {
            before: "[resources.span]\nid = \"integer\"\n[resources.span.fields]\nlow = { type = \"integer\" }\nhigh = { type = \"integer\" }",
            after: "[resources.span]\nid = \"integer\"\ncheck = [{ that = \"low <= high\", message = \"low is above high\" }]\n[resources.span.fields]\nlow = { type = \"integer\" }\nhigh = { type = \"integer\" }",
            items: &[("/spans", r#"{"low":1,"high":2}"#), ("/spans", r#"{"low":3}"#)],
            flags: &[],
            collections: &["/spans"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    span.low+high  the check `low <= high` is new, and items that are there may break it
                                      2 items; reads its table, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"low":1,"high":2}
            {"id":2,"low":3}
        "#]]);
    }

    fn migrate_rule_pattern_is_broken(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "text", pattern = "^t" }"#,
            items: &[r#"{"v":"tea"}"#, r#"{"v":"milk"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.v  pattern is stricter now, and values that are there may break it
                               2 items; reads its table, about 1 s; can be undone
                               1 item is in the way: /notes/2 (expected a text that matches ^t, got "milk")

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":"tea"}
            {"id":2,"v":"milk"}
        "#]]);
    }

    fn migrate_rule_one_of_is_broken(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "text", one_of = ["tea"] }"#,
            items: &[r#"{"v":"tea"}"#, r#"{"v":"milk"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.v  one_of is stricter now, and values that are there may break it
                               2 items; reads its table, about 1 s; can be undone
                               1 item is in the way: /notes/2 (expected one of "tea", got "milk")

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":"tea"}
            {"id":2,"v":"milk"}
        "#]]);
    }

    fn migrate_rule_unique_is_kept(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "text", unique = true }"#,
            items: &[r#"{"v":"tea"}"#, r#"{"v":"milk"}"#, r#"{}"#, r#"{}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.v  the values are unique now, but those that are there may not be
                               4 items; reads its table, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"tea"}
            {"id":2,"v":"milk"}
            {"id":3}
            {"id":4}
        "#]]);
    }

    fn migrate_rule_unique_is_broken(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "text", unique = true }"#,
            items: &[r#"{"v":"tea"}"#, r#"{"v":"tea"}"#, r#"{"v":"milk"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.v  the values are unique now, but those that are there may not be
                               3 items; reads its table, about 1 s; can be undone
                               2 items are in the way: /notes/1 (another item has the same value), …

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":"tea"}
            {"id":2,"v":"tea"}
            {"id":3,"v":"milk"}
        "#]]);
    }

    fn migrate_rule_unique_is_broken_by_converted_values(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "text" }"#,
            after: r#"v = { type = "integer", unique = true }"#,
            items: &[r#"{"v":"1"}"#, r#"{"v":"1.0"}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              rewrite  note.v  the type changed from text to integer
                               2 items; rewrites its table, about 1 s; cannot be undone

              check    note.v  the values are unique now, but those that are there may not be
                               2 items; reads its table, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: DATABASE: the migration was not made, because stored items are in the way:
            {"id":1,"v":"1"}
            {"id":2,"v":"1.0"}
        "#]]);
    }

    fn migrate_state_removed_without_items(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "state", initial = "open", next = { open = ["lost"], lost = [] } }"#,
            after: r#"v = { type = "state", initial = "open", next = { open = [] } }"#,
            items: &[r#"{}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.v  the state lost was removed, but items may be in it; say where they go with moved_to
                               1 item; reads its table, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"open"}
        "#]]);
    }

    fn migrate_state_removed_with_items(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "state", initial = "lost", next = { lost = ["open"], open = [] } }"#,
            after: r#"v = { type = "state", initial = "open", next = { open = [] } }"#,
            items: &[r#"{}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.v  the state lost was removed, but items may be in it; say where they go with moved_to
                               1 item; reads its table, about 1 s; can be undone
                               1 item is in the way: /notes/1 (expected one of "open", got "lost")

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":"lost"}
        "#]]);
    }

    fn migrate_state_removed_and_its_items_moved(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "state", initial = "lost", next = { lost = ["open"], open = [] } }"#,
            after: r#"v = { type = "state", initial = "open", next = { open = [] }, moved_to = { lost = "open" } }"#,
            items: &[r#"{}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the state lost was removed, but items may be in it; they move to open
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"open"}
        "#]]);
    }

    fn migrate_member_renamed(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "object", fields = { a = { type = "text" }, b = { type = "integer" } } }"#,
            after: r#"v = { type = "object", fields = { c = { type = "text", renamed_from = "a" }, b = { type = "integer" } } }"#,
            items: &[r#"{"v":{"a":"tea","b":2}}"#, r#"{}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v.c  the field was renamed from a
                                 2 items; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":{"c":"tea","b":2}}
            {"id":2}
        "#]]);
    }

    fn migrate_member_removed_without_the_flag(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "object", fields = { a = { type = "text" }, b = { type = "integer" } } }"#,
            after: r#"v = { type = "object", fields = { b = { type = "integer" } } }"#,
            items: &[r#"{"v":{"a":"tea","b":2}}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              remove   note.v.a  the field was removed, but stored objects may have it
                                 1 item; deletes its values, about 1 s; cannot be undone
                                 values of 1 item are lost: needs --allow-loss note.v.a

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss note.v.a
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":{"a":"tea","b":2}}
        "#]]);
    }

    fn migrate_member_removed(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "object", fields = { a = { type = "text" }, b = { type = "integer" } } }"#,
            after: r#"v = { type = "object", fields = { b = { type = "integer" } } }"#,
            items: &[r#"{"v":{"a":"tea","b":2}}"#],
            flags: &["--allow-loss", "note.v.a"],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              remove   note.v.a  the field was removed, but stored objects may have it
                                 1 item; deletes its values, about 1 s; cannot be undone
                                 values of 1 item are lost: needs --allow-loss note.v.a

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss note.v.a
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":{"b":2}}
        "#]]);
    }

    fn migrate_member_new_with_a_default(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "object", fields = { a = { type = "text" } } }"#,
            after: r#"v = { type = "object", fields = { a = { type = "text" }, b = { type = "integer", default = 3 } } }"#,
            items: &[r#"{"v":{"a":"tea"}}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v.b  the new field has a default, but stored objects do not have it
                                 1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":{"a":"tea","b":3}}
        "#]]);
    }

    fn migrate_member_new_and_required_with_a_fill(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "list", of = { fields = { a = { type = "text" } } } }"#,
            after: r#"v = { type = "list", of = { fields = { a = { type = "text" }, b = { type = "integer", required = true, fill = 3 } } } }"#,
            items: &[r#"{"v":[{"a":"tea"},{}]}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v[].b  the new field has a fill, but stored objects do not have it
                                   1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":[{"a":"tea","b":3},{"b":3}]}
        "#]]);
    }

    fn migrate_elements_of_another_type(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "list", of = { type = "text" } }"#,
            after: r#"v = { type = "list", of = { type = "integer" }, max_items = 2 }"#,
            items: &[r#"{"v":["1","2"]}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              check    note.v    max_items is stricter now, and values that are there may break it
                                 1 item; reads its table, about 1 s; can be undone

              rewrite  note.v[]  the type changed from text to integer
                                 1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"v":[1,2]}
        "#]]);
    }

    fn migrate_elements_of_a_list_that_is_too_long(backend: Backend) {
        let change = FieldsChange {
            before: r#"v = { type = "list", of = { type = "text" } }"#,
            after: r#"v = { type = "list", of = { type = "text" }, max_items = 1 }"#,
            items: &[r#"{"v":["1","2"]}"#],
            flags: &[],
        };
        check_fields(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    note.v  max_items is stricter now, and values that are there may break it
                               1 item; reads its table, about 1 s; can be undone
                               1 item is in the way: /notes/1 (expected at most 1 item, got 2)

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":["1","2"]}
        "#]]);
    }
}
