//! Ids and parents, which stay while there are items; and many changes at once.

use expect_test::expect;

use super::{ModelChange, check};
use crate::harness::Backend;

on_every_backend! {
    fn migrate_ids_of_another_kind_with_items(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
"#,
            after: r#"[resources.note]
id = "uuid"
[resources.note.fields]
text = { type = "text" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#)],
            flags: &[],
            collections: &["/notes"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              refuse   note  the kind of id changed from integer to uuid, but ids never change
                             cannot be done while there are items (1 item); export them, and import them into a new database

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"text":"tea"}
        "#]]);
    }

    fn migrate_ids_of_another_kind_without_items(backend: Backend) {
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
id = "uuid"
[resources.note.fields]
text = { type = "text" }
[resources.other]
id = "integer"
[resources.other.fields]
words = { type = "text", renamed_from = "text" }
"#,
            items: &[("/others", r#"{"text":"x"}"#)],
            flags: &[],
            collections: &["/notes", "/others"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              rebuild  note         the kind of id changed from integer to uuid, but ids never change
                                    there are no items: its table is made anew

              rename   other.words  the field was renamed from text
                                    1 item; changes names only, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"words":"x"}
        "#]]);
    }

    fn migrate_parent_changed_with_items(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.other]
id = "integer"
[resources.other.fields]
text = { type = "text" }
[resources.page]
id = "integer"
parent = "note"
[resources.page.fields]
line = { type = "text" }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.other]
id = "integer"
[resources.other.fields]
text = { type = "text" }
[resources.page]
id = "integer"
parent = "other"
[resources.page.fields]
line = { type = "text" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/notes/1/pages", r#"{"line":"one"}"#)],
            flags: &[],
            collections: &["/notes/1/pages"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              refuse   page  the parent changed from note to other, but the items belong where they are
                             cannot be done while there are items (1 item); export them, and import them into a new database

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"note_id":1,"line":"one"}
        "#]]);
    }

    fn migrate_many_changes_at_once(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.page]
id = "integer"
parent = "note"
[resources.page.fields]
line = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "note" }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
title = { type = "text", required = true, fill = "untitled", renamed_from = "text" }
length = { type = "integer", default = 0 }
[resources.other]
id = "integer"
[resources.other.fields]
text = { type = "text" }
[resources.page]
id = "integer"
parent = "note"
[resources.page.fields]
line = { type = "integer" }
[resources.link]
id = "integer"
[resources.link.fields]
note = { type = "ref", to = "note", renamed_from = "to", filter = true }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/notes", r#"{}"#), ("/notes/2/pages", r#"{"line":"11"}"#), ("/links", r#"{"to":2}"#)],
            flags: &[],
            collections: &["/notes", "/notes/2/pages", "/links", "/others"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 6 steps

              add      note.length  the field is new

              add      other        the resource is new

              rename   note.title   the field was renamed from text
                                    2 items; changes names only, about 1 s; can be undone

              rewrite  note.title   the field is required now, but items may be without it; they get its fill
                                    2 items; rewrites its table, about 1 s; cannot be undone

              rewrite  page.line    the type changed from text to integer
                                    1 item; rewrites its table, about 1 s; cannot be undone

              rename   link.note    the field was renamed from to
                                    1 item; changes names only, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (6 steps)

            {"id":1,"title":"tea","length":0}
            {"id":2,"title":"untitled","length":0}
            {"id":1,"note_id":2,"line":11}
            {"id":1,"note":2}
        "#]]);
    }
}
