//! References to other resources, and addresses of items that are in the way.

use expect_test::expect;

use super::{ModelChange, check};
use crate::harness::Backend;

on_every_backend! {
    fn migrate_reference_removed_with_its_target(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
text = { type = "text" }
to = { type = "ref", to = "note" }
"#,
            after: r#"[resources.link]
id = "integer"
[resources.link.fields]
text = { type = "text" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/links", r#"{"to":1,"text":"x"}"#)],
            flags: &["--allow-loss", "note", "--allow-loss", "link.to"],
            collections: &["/links"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 2 steps

              remove   note     the resource was removed, but the database keeps its items
                                1 item; deletes its table, about 1 s; cannot be undone
                                values of 1 item are lost: needs --allow-loss note

              remove   link.to  the field was removed, but the database keeps values for it
                                1 item; deletes its values, about 1 s; cannot be undone
                                values of 1 item are lost: needs --allow-loss link.to

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss note --allow-loss link.to
            Or change nothing: nouns serve starts with this model too; it keeps what is removed here, and hides it.
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (2 steps)

            {"id":1,"text":"x"}
        "#]]);
    }

    fn migrate_reference_to_another_resource(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.other]
id = "integer"
[resources.other.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "note" }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.other]
id = "integer"
[resources.other.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "other" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/others", r#"{"text":"x"}"#), ("/links", r#"{"to":1}"#)],
            flags: &["--allow-loss", "link.to"],
            collections: &["/links"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  link.to  the ref points to another resource, where its numbers are other items
                                1 item; rewrites its table, about 1 s; cannot be undone
                                values of 1 item are lost: needs --allow-loss link.to

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss link.to
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"to":1}
        "#]]);
    }

    fn migrate_reference_to_another_resource_without_targets(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.other]
id = "integer"
[resources.other.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "note" }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.other]
id = "integer"
[resources.other.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "other" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/links", r#"{"to":1}"#)],
            flags: &["--allow-loss", "link.to"],
            collections: &["/links"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  link.to  the ref points to another resource, where its numbers are other items
                                1 item; rewrites its table, about 1 s; cannot be undone
                                values of 1 item are lost: needs --allow-loss link.to

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE --allow-loss link.to
            --- plan: exit 1
            nouns: DATABASE: the migration was not made, because stored items are in the way:
            {"id":1,"to":1}
        "#]]);
    }

    fn migrate_integer_becomes_a_reference(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "integer" }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "note" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/links", r#"{"to":1}"#)],
            flags: &[],
            collections: &["/links"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  link.to  the type changed from integer to ref
                                1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: migrated DATABASE to model.toml (1 step)

            {"id":1,"to":1}
        "#]]);
    }

    fn migrate_integer_becomes_a_reference_without_target(backend: Backend) {
        let change = ModelChange {
            before: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "integer" }
"#,
            after: r#"[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.link]
id = "integer"
[resources.link.fields]
to = { type = "ref", to = "note" }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/links", r#"{"to":7}"#)],
            flags: &[],
            collections: &["/links"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              rewrite  link.to  the type changed from integer to ref
                                1 item; rewrites its table, about 1 s; cannot be undone

            Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
            --- plan: exit 1
            nouns: DATABASE: the migration was not made, because stored items are in the way:
            {"id":1,"to":7}
        "#]]);
    }

    fn migrate_broken_items_of_a_nested_resource_have_addresses(backend: Backend) {
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
[resources.page]
id = "integer"
parent = "note"
[resources.page.fields]
line = { type = "text", max_length = 2 }
"#,
            items: &[("/notes", r#"{"text":"tea"}"#), ("/notes", r#"{"text":"two"}"#), ("/notes/2/pages", r#"{"line":"one"}"#)],
            flags: &[],
            collections: &["/notes/2/pages"],
        };
        check(backend, &change, &expect![[r#"
            From the model in DATABASE to model.toml: 1 step

              check    page.line  max_length is stricter now, and values that are there may break it
                                  1 item; reads its table, about 1 s; can be undone
                                  1 item is in the way: /notes/2/pages/1 (expected at most 2 characters, got 3)

            It cannot be applied yet: change the items that are in the way, or the model.
            --- plan: exit 1
            nouns: the migration was not made, and nothing was changed
            {"id":1,"note_id":2,"line":"one"}
        "#]]);
    }
}
