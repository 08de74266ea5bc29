//! `nouns import` of items whose ids are numbers: ids of the file, and those that the server allocates.

use super::*;

const MODEL: &str = r#"
title = "Notes"
[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text", required = true, filter = true }
"#;

struct Notes(Shop);

impl Notes {
    fn on(backend: Backend) -> Self {
        Self(Shop { server: Setup::new(backend).model(MODEL).start() })
    }

    fn create(&self) -> String {
        self.0.server.create("/notes", r#"{"note":{"text":"made"}}"#)
    }

    /// The ids of the notes with this text.
    fn ids(&self, text: &str) -> String {
        let list = self.0.server.get(&format!("/notes?text={text}")).json();
        let ids = list["notes"].as_array().unwrap().iter().map(|note| note["id"].to_string());
        ids.collect::<Vec<_>>().join(" ")
    }
}

on_every_backend! {
    /// Regression: on PostgreSQL the sequence was raised, which no rollback undoes.
    fn import_in_a_dry_run_leaves_integer_ids_to_new_items(notes: Notes) {
        let Notes(shop) = &notes;
        assert_eq!(notes.create(), "/notes/1");
        shop.write("new.csv", "id,text\n500,a\n,b\n5000,c\n,d\n");
        for flags in [&[][..], &["--resumable"]] {
            let arguments = [&["import", "note", "new.csv", "--dry-run"], flags].concat();
            shop.succeeds(&arguments, "nouns: would create 4 notes from new.csv; nothing was written");
        }
        assert_eq!(notes.create(), "/notes/2");
    }

    /// Regression: after the largest integer of JSON there was no id for a new item.
    fn import_of_an_integer_id_that_leaves_none_for_new_items_is_refused(notes: Notes) {
        let Notes(shop) = &notes;
        shop.write("new.csv", "id,text\n1,a\n9000000000000001,b\n9007199254740991,c\n9007199254740992,d\n");
        shop.refuses(
            &["import", "note", "new.csv"],
            "nouns: new.csv: 3 faults, nothing was imported
  line 3: id: expected at most 9000000000000000, so that new items can have larger ids, got 9000000000000001
  line 4: id: expected at most 9000000000000000, so that new items can have larger ids, got 9007199254740991
  line 5: id: expected a positive integer, got 9007199254740992",
        );
        shop.write("new.csv", "id,text\n9000000000000000,a\n");
        shop.succeeds(&["import", "note", "new.csv"], "nouns: created 1 note from new.csv");
        assert_eq!(notes.create(), "/notes/9000000000000001");
    }

    /// Regression: SQLite refused the second row, whose id the first one had got.
    fn import_of_rows_with_and_without_integer_ids_gives_the_others_larger_ids(notes: Notes) {
        let Notes(shop) = &notes;
        shop.write("new.csv", "id,text\n,a\n1,b\n3,b\n,a\n");
        shop.succeeds(&["import", "note", "new.csv"], "nouns: created 4 notes from new.csv");
        assert_eq!([notes.ids("a"), notes.ids("b")], ["4 5", "1 3"]);
        // Also where the rows are in different batches, which have transactions of their own.
        let rows = ",c\n".repeat(1_000);
        shop.write("more.csv", &format!("id,text\n{rows}7,d\n2000,d\n,d\n"));
        shop.succeeds(&["import", "note", "more.csv", "--resumable"], "nouns: created 1,003 notes from more.csv");
        assert_eq!(notes.ids("d"), "7 2000 3001");
        assert_eq!(notes.create(), "/notes/3002");
    }
}
