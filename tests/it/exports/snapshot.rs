//! Snapshot isolation of exports: an export shows the data as it was at its start.

use serde_json::{Value, json};

use super::{Export, ExportEnd, NDJSON, start_with_entries};
use crate::harness::{Backend, run_sql};

const ROWS: usize = 40_000;

on_every_backend! {
    fn export_excludes_concurrent_writes(backend: Backend) {
        let server = start_with_entries(backend, ROWS, "");
        let mut export = Export::begin(&server, NDJSON);
        assert_eq!(export.status(), 200);
        // Over HTTP, where the writes are answered, and by SQL all over the table.
        let new: Vec<Value> = (0..100).map(|number| json!({"number": number})).collect();
        assert_eq!(server.post("/entries", json!({"entries": new}).to_string()).status, 201);
        let last = format!("/entries/{ROWS}");
        assert_eq!(server.put(&last, r#"{"entry":{"text":"changed"}}"#).status, 200);
        assert_eq!(server.delete(&format!("/entries/{}", ROWS - 1)).status, 204);
        run_sql(backend, server.folder(), "UPDATE entries SET number = -1; DELETE FROM entries WHERE id % 7 = 0");
        let (body, end) = export.rest();
        assert_eq!(end, ExportEnd::Complete);
        let body = String::from_utf8(body).unwrap();
        let mut lines = 0;
        for (line, number) in body.lines().zip(1..) {
            let item: Value = serde_json::from_str(line).unwrap();
            assert_eq!((&item["id"], &item["number"], &item["version"]), (&json!(number), &json!(number), &json!(1)));
            lines += 1;
        }
        assert_eq!(lines, ROWS);
        // The next export includes all of it.
        let (body, end) = Export::begin(&server, NDJSON).rest();
        assert_eq!(end, ExportEnd::Complete);
        let count = run_sql(backend, server.folder(), "SELECT count(*) FROM entries");
        assert_eq!(String::from_utf8(body).unwrap().lines().count().to_string(), count.trim());
    }
}
