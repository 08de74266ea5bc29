//! Texts that follow from a field, for `match` and `order`: made, made anew and removed.

use std::fs;

use expect_test::expect;

use super::{FieldsChange, ModelChange, Run, check, check_fields};
use crate::harness::{Backend, EXECUTABLE, Setup, run_sql};

on_every_backend! {
    fn migration_of_match_and_order_makes_their_texts(backend: Backend) {
        check(
            backend,
            &ModelChange {
                before: "[resources.note]\nid = \"integer\"\n[resources.note.fields]\ntitle = { type = \"text\", filter = true }\n",
                after: "[resources.note]\nid = \"integer\"\n[resources.note.fields]\ntitle = { type = \"text\", filter = true, match = true, order = \"unicode\" }\n",
                items: &[
                    ("/notes", r#"{"title":"zebra"}"#),
                    ("/notes", r#"{"title":"Äpfel"}"#),
                    ("/notes", r#"{"title":"Banane"}"#),
                    ("/notes", "{}"),
                ],
                flags: &[],
                collections: &["/notes?title~=APF&fields=title", "/notes?sort=title&fields=title"],
            },
            &expect![[r#"
                From the model in DATABASE to model.toml: 1 step

                  derive   note.title  match or order changed, and with it the texts that are stored for it
                                       4 items; rewrites its table, about 1 s; can be undone

                Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
                --- plan: exit 1
                nouns: migrated DATABASE to model.toml (1 step)

                {"id":2,"title":"Äpfel"}
                {"id":2,"title":"Äpfel"}
                {"id":3,"title":"Banane"}
                {"id":1,"title":"zebra"}
                {"id":4}
            "#]],
        );
    }

    fn migration_without_match_and_order_removes_their_texts(backend: Backend) {
        check_fields(
            backend,
            &FieldsChange {
                before: r#"title = { type = "text", filter = true, match = true, order = "unicode" }"#,
                after: r#"title = { type = "text", filter = true }"#,
                items: &[r#"{"title":"Äpfel"}"#, r#"{"title":"zebra"}"#],
                flags: &[],
            },
            &expect![[r#"
                From the model in DATABASE to model.toml: 1 step

                  derive   note.title  match or order changed, and with it the texts that are stored for it
                                       2 items; rewrites its table, about 1 s; can be undone

                Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
                --- plan: exit 1
                nouns: migrated DATABASE to model.toml (1 step)

                {"id":1,"title":"Äpfel"}
                {"id":2,"title":"zebra"}
            "#]],
        );
    }

    /// The field is renamed and written anew, and so are its texts; another one is new.
    fn migration_of_a_matched_field_makes_its_texts_anew(backend: Backend) {
        check(
            backend,
            &ModelChange {
                before: "[resources.note]\nid = \"integer\"\n[resources.note.fields]\ntitle = { type = \"text\", filter = true, match = true }\n",
                after: "[resources.note]\nid = \"integer\"\n[resources.note.fields]\nname = { type = \"text\", filter = true, match = true, required = true, fill = \"Ohne\", renamed_from = \"title\" }\n\
                    more = { type = \"text\", default = \"Mehr Ä\", filter = true, match = true }\n",
                items: &[("/notes", r#"{"title":"Äpfel"}"#), ("/notes", "{}")],
                flags: &[],
                collections: &["/notes?name~=APF", "/notes?name~=ohne", "/notes?more~=MEHR%20A"],
            },
            &expect![[r#"
                From the model in DATABASE to model.toml: 3 steps

                  add      note.more  the field is new

                  rename   note.name  the field was renamed from title
                                      2 items; changes names only, about 1 s; can be undone

                  rewrite  note.name  the field is required now, but items may be without it; they get its fill
                                      2 items; rewrites its table, about 1 s; cannot be undone

                Stop the servers, and apply it with: nouns migrate model.toml --database DATABASE
                --- plan: exit 1
                nouns: migrated DATABASE to model.toml (3 steps)

                {"id":1,"name":"Äpfel","more":"Mehr Ä"}
                {"id":2,"name":"Ohne","more":"Mehr Ä"}
                {"id":1,"name":"Äpfel","more":"Mehr Ä"}
                {"id":2,"name":"Ohne","more":"Mehr Ä"}
            "#]],
        );
    }

    /// Its texts are stored under another name, and are not computed again: a changed one stays.
    fn migration_that_renames_a_matched_field_keeps_its_texts(backend: Backend) {
        let model = |field: &str| {
            let rules = "type = \"text\", filter = true, match = true, order = \"unicode\"";
            format!("title = \"T\"\n[resources.note.fields]\n{field}{rules} }}\n")
        };
        let server = Setup::new(backend).model(&model("title = { ")).start();
        server.create("/notes", r#"{"note":{"title":"Äpfel"}}"#);
        let database = server.database();
        let folder = server.stop();
        run_sql(backend, folder.path(), "UPDATE notes SET \"nouns.folded.title\" = 'marked'");
        let after = model("name = { renamed_from = \"title\", ");
        fs::write(folder.path().join("model.toml"), &after).unwrap();
        let run = Run { backend, folder: folder.path(), database: &database };
        let ended = run.nouns(EXECUTABLE, &["migrate", "--no-backup"], "");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let server = Setup::new(backend).model(&after).start_in(folder);
        let found = |query: &str| server.get(&format!("/notes?{query}")).json()["notes"].as_array().unwrap().len();
        assert_eq!((found("name~=marked"), found("name~=apfel"), found("sort=name")), (1, 0, 1));
    }
}
