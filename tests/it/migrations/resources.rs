//! Resources that are added, renamed or removed, with their children and the references to them.

use expect_test::expect;

use super::{ModelChange, check};
use crate::harness::Backend;

on_every_backend! {
    fn migrate_resource_renamed(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
"#,
            after: r#"[resources.memo]
renamed_from = "note"
id = "integer"
[resources.memo.fields]
text = { type = "text" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#)],
            flags: &[],
            collections: &["/memos", "/notes"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              rename   memo  the resource was renamed from note
                             1 item; changes names only, about 1 s; can be undone

              rename   memo  the plural changed from notes to memos, but it is the name of the table
                             1 item; changes names only, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"text":"tea"}
            /notes: 404
        "#]]);
    }

    fn migrate_resource_renamed_with_children(backend: Backend) {
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
"#,
            after: r#"[resources.memo]
renamed_from = "note"
id = "integer"
[resources.memo.fields]
text = { type = "text" }
[resources.page]
id = "integer"
parent = "memo"
[resources.page.fields]
line = { type = "text" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/notes/1/pages", r#"{"line":"one"}"#)],
            flags: &[],
            collections: &["/memos", "/memos/1/pages"],
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

            {"id":1,"text":"tea"}
            {"id":1,"memo_id":1,"line":"one"}
        "#]]);
    }

    fn migrate_resource_renamed_with_references(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "note" }
"#,
            after: r#"[resources.memo]
renamed_from = "note"
id = "integer"
[resources.memo.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "memo" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/links", r#"{"to":1}"#)],
            flags: &[],
            collections: &["/memos", "/links"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              rename   memo  the resource was renamed from note
                             1 item; changes names only, about 1 s; can be undone

              rename   memo  the plural changed from notes to memos, but it is the name of the table
                             1 item; changes names only, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"text":"tea"}
            {"id":1,"to":1}
        "#]]);
    }

    fn migrate_plural_changed(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
"#,
            after: r#"[resources.note]
id = "integer"
plural = "scraps"
[resources.note.fields]
text = { type = "text" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#)],
            flags: &[],
            collections: &["/scraps", "/notes"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rename   note  the plural changed from notes to scraps, but it is the name of the table
                             1 item; changes names only, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"text":"tea"}
            /notes: 404
        "#]]);
    }

    fn migrate_plurals_swapped(backend: Backend) {
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
"#,
            items: &[("/notes", r#"{"text":"a note"}"#), ("/memos", r#"{"text":"a memo"}"#)],
            flags: &[],
            collections: &["/notes", "/memos"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              rename   note  the plural changed from notes to memos, but it is the name of the table
                             1 item; changes names only, about 1 s; can be undone

              rename   memo  the plural changed from memos to notes, but it is the name of the table
                             1 item; changes names only, about 1 s; can be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"text":"a memo"}
            {"id":1,"text":"a note"}
        "#]]);
    }

    fn migrate_resource_removed_without_the_flag(backend: Backend) {
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
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/notes/1/pages", r#"{"line":"one"}"#)],
            flags: &[],
            collections: &["/notes"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              remove   page  the resource was removed, but the database keeps its items
                             1 item; deletes its table, about 1 s; cannot be undone
                             values of 1 item are lost: needs --allow-loss page

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss page
            Or change nothing: nouns serve starts with this model too; it keeps what is removed here, and hides it.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"text":"tea"}
        "#]]);
    }

    fn migrate_resource_removed(backend: Backend) {
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
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/notes/1/pages", r#"{"line":"one"}"#)],
            flags: &["--allow-loss", "page"],
            collections: &["/notes", "/notes/1/pages"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              remove   page  the resource was removed, but the database keeps its items
                             1 item; deletes its table, about 1 s; cannot be undone
                             values of 1 item are lost: needs --allow-loss page

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss page
            Or change nothing: nouns serve starts with this model too; it keeps what is removed here, and hides it.
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"text":"tea"}
            /notes/1/pages: 404
        "#]]);
    }

    fn migrate_resource_removed_with_its_children(backend: Backend) {
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
[resources.other]
id = "integer"
[resources.other.fields]
text = { type = "text" }
"#,
            after: r#"[resources.other]
id = "integer"
[resources.other.fields]
text = { type = "text" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/notes/1/pages", r#"{"line":"one"}"#), ("/others", r#"{"text":"x"}"#)],
            flags: &["--allow-loss", "note", "--allow-loss", "page"],
            collections: &["/others", "/notes"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              remove   note  the resource was removed, but the database keeps its items
                             1 item; deletes its table, about 1 s; cannot be undone
                             values of 1 item are lost: needs --allow-loss note

              remove   page  the resource was removed, but the database keeps its items
                             1 item; deletes its table, about 1 s; cannot be undone
                             values of 1 item are lost: needs --allow-loss page

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss note --allow-loss page
            Or change nothing: nouns serve starts with this model too; it keeps what is removed here, and hides it.
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"text":"x"}
            /notes: 404
        "#]]);
    }
}
