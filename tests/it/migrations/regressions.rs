//! Changes that once left a table unlike its model, or values unlike those that were sent.

use expect_test::expect;

use super::{ModelChange, check};
use crate::harness::Backend;

on_every_backend! {
    fn migrate_field_new_required_and_nullable(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
age = { type = "integer", required = true, nullable = true }
old = { type = "text", fill = "yes" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#)],
            flags: &[],
            collections: &["/notes"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              add      note.age  the field is new

              rewrite  note.old  the new field has a fill, but the items that are there have no value for it
                                 1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"text":"tea","age":null,"old":"yes"}
        "#]]);
    }

    fn migrate_field_new_and_required_without_items(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.other]
id = "integer"
[resources.other.fields]
text = { type = "text" }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
age = { type = "integer", required = true }
[resources.other]
id = "integer"
[resources.other.fields]
title = { type = "text", renamed_from = "text" }
"#,
            items: &[("/others", r#"{"text":"x"}"#)],
            flags: &[],
            collections: &["/notes", "/others"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              check    note.age     the new field is required, but the items that are there have no value for it; give it a fill, or a default instead
                                    0 items; reads its table, about 1 s; can be undone

              rename   other.title  the field was renamed from text
                                    1 item; changes names only, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"title":"x"}
        "#]]);
    }

    fn migrate_ids_of_another_kind_with_an_empty_child_and_references(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.page]
id = "integer"
parent = "note"
[resources.page.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "note" }
text = { type = "text" }
"#,
            after: r#"[resources.note]
[resources.note.fields]
text = { type = "text" }
[resources.page]
id = "integer"
parent = "note"
[resources.page.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "note" }
title = { type = "text", renamed_from = "text" }
"#,
            items: &[("/links", r#"{"text":"x"}"#)],
            flags: &[],
            collections: &["/notes", "/links"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 4 steps

              rebuild  note        the kind of id changed from integer to uuid, but ids never change
                                   there are no items: its table is made anew

              rebuild  page        the kind of id of its parent changed, but ids never change
                                   there are no items: its table is made anew

              rewrite  link.to     the kind of id of its target changed, but the stored ids did not
                                   1 item; rewrites its table, about 1 s; cannot be undone

              rename   link.title  the field was renamed from text
                                   1 item; changes names only, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (4 steps)

            {"id":1,"title":"x"}
        "#]]);
    }

    fn migrate_field_computed_now_and_of_another_type(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
price = { type = "integer" }
sum = { type = "integer" }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
price = { type = "integer" }
sum = { type = "decimal", computed = "price * 2" }
"#,
            items: &[("/notes", r#"{"price":2,"sum":9}"#)],
            flags: &[],
            collections: &["/notes"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              rewrite  note.sum  the field is computed now, but the values that are there were sent
                                 1 item; rewrites its table, about 1 s; cannot be undone
                                 values of 1 item are lost: needs --allow-loss note.sum

              rewrite  note.sum  the type changed from integer to decimal
                                 1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss note.sum
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"price":2,"sum":9}
        "#]]);
    }

    fn migrate_texts_that_are_nearly_numbers(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
v = { type = "text" }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
v = { type = "decimal" }
"#,
            items: &[("/notes", r#"{"v":"1.0.0"}"#), ("/notes", r#"{"v":"1."}"#), ("/notes", r#"{"v":"1.500"}"#)],
            flags: &[],
            collections: &["/notes"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from text to decimal
                               3 items; rewrites its table, about 1 s; cannot be undone
                               2 items are in the way: /notes/1 (expected a decimal number, got "1.0.0"), /notes/2 (expected a decimal number, got "1.")

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"v":"1.0.0"}
            {"id":2,"v":"1."}
            {"id":3,"v":"1.500"}
        "#]]);
    }

    fn migrate_fill_of_a_known_field_has_no_effect(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
v = { type = "integer", fill = 0 }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
v = { type = "decimal", fill = 0 }
"#,
            items: &[("/notes", r#"{}"#), ("/notes", r#"{"v":3}"#)],
            flags: &[],
            collections: &["/notes"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from integer to decimal
                               2 items; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1}
            {"id":2,"v":"3.00"}
        "#]]);
    }

    fn migrate_text_to_state_of_an_item_without_it(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
v = { type = "text" }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
v = { type = "state", initial = "open", next = { open = ["closed"], closed = [] } }
"#,
            items: &[("/notes", r#"{}"#)],
            flags: &[],
            collections: &["/notes"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  note.v  the type changed from text to state
                               1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"v":"open"}
        "#]]);
    }

    fn migrate_unique_field_of_another_type(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
v = { type = "text", unique = true }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
v = { type = "integer", unique = true }
"#,
            items: &[("/notes", r#"{"v":"1"}"#), ("/notes", r#"{"v":"1.0"}"#)],
            flags: &[],
            collections: &["/notes"],
        };
        check(backend, &change, &expect![[r#"
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

    fn migrate_plurals_swapped_and_a_reference_retargeted(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
plural = "notes"
[resources.note.fields]
text = { type = "text" }
[resources.memo]
id = "integer"
plural = "memos"
[resources.memo.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "note" }
"#,
            after: r#"[resources.note]
id = "integer"
plural = "memos"
[resources.note.fields]
text = { type = "text" }
[resources.memo]
id = "integer"
plural = "notes"
[resources.memo.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "memo" }
"#,
            items: &[("/notes", r#"{"text":"a note"}"#), ("/memos", r#"{"text":"a memo"}"#), ("/links", r#"{"to":1}"#)],
            flags: &["--allow-loss", "link.to"],
            collections: &["/notes", "/memos", "/links"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 3 steps

              rename   note     the plural changed from notes to memos, but it is the name of the table
                                1 item; changes names only, about 1 s; can be undone

              rename   memo     the plural changed from memos to notes, but it is the name of the table
                                1 item; changes names only, about 1 s; can be undone

              rewrite  link.to  the ref points to another resource, where its numbers are other items
                                1 item; rewrites its table, about 1 s; cannot be undone
                                values of 1 item are lost: needs --allow-loss link.to

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss link.to
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (3 steps)

            {"id":1,"text":"a memo"}
            {"id":1,"text":"a note"}
            {"id":1,"to":1}
        "#]]);
    }

    fn migrate_reference_of_a_resource_to_itself(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
next = { type = "ref", to = "note" }
"#,
            after: r#"[resources.memo]
id = "integer"
renamed_from = "note"
[resources.memo.fields]
text = { type = "text" }
next = { type = "ref", to = "memo" }
last = { type = "ref", to = "memo" }
"#,
            items: &[("/notes", r#"{"text":"a"}"#), ("/notes", r#"{"text":"b","next":1}"#)],
            flags: &[],
            collections: &["/memos"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 3 steps

              add      memo.last  the field is new

              rename   memo       the resource was renamed from note
                                  2 items; changes names only, about 1 s; can be undone

              rename   memo       the plural changed from notes to memos, but it is the name of the table
                                  2 items; changes names only, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (3 steps)

            {"id":1,"text":"a"}
            {"id":2,"text":"b","next":1}
        "#]]);
    }

    fn migrate_grandparent_renamed(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.page]
id = "integer"
parent = "note"
[resources.page.fields]
text = { type = "text" }
[resources.line]
id = "integer"
parent = "page"
[resources.line.fields]
text = { type = "text", unique = "parent" }
"#,
            after: r#"[resources.memo]
id = "integer"
renamed_from = "note"
[resources.memo.fields]
text = { type = "text" }
[resources.page]
id = "integer"
parent = "memo"
[resources.page.fields]
text = { type = "text" }
[resources.line]
id = "integer"
parent = "page"
[resources.line.fields]
text = { type = "text", unique = "parent", filter = true }
"#,
            items: &[("/notes", r#"{"text":"a"}"#), ("/notes/1/pages", r#"{"text":"b"}"#), ("/notes/1/pages/1/lines", r#"{"text":"c"}"#)],
            flags: &[],
            collections: &["/memos", "/memos/1/pages", "/memos/1/pages/1/lines"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 3 steps

              rename   memo  the resource was renamed from note
                             1 item; changes names only, about 1 s; can be undone

              rename   memo  the plural changed from notes to memos, but it is the name of the table
                             1 item; changes names only, about 1 s; can be undone

              rename   page  the parent was renamed from note to memo
                             1 item; changes names only, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (3 steps)

            {"id":1,"text":"a"}
            {"id":1,"memo_id":1,"text":"b"}
            {"id":1,"page_id":1,"text":"c"}
        "#]]);
    }

    fn migrate_member_with_a_filter_renamed(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
v = { type = "object", fields = { a = { type = "text", filter = true } } }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
w = { type = "object", renamed_from = "v", fields = { b = { type = "text", filter = true, renamed_from = "a" } } }
"#,
            items: &[("/notes", r#"{"v":{"a":"x"}}"#)],
            flags: &[],
            collections: &["/notes"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              rename   note.w    the field was renamed from v
                                 1 item; changes names only, about 1 s; can be undone

              rewrite  note.w.b  the field was renamed from a
                                 1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"w":{"b":"x"}}
        "#]]);
    }
}
