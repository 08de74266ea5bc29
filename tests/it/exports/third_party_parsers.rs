//! Exports read by third-party parsers.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::{CSV, NDJSON};
use crate::harness::{Backend, Process, Server, Setup};

/// Texts that a careless writer encodes wrongly.
const TRICKY_TEXTS: [&str; 14] = [
    "plain",
    "",
    " ",
    ",",
    "\"",
    "\"\"",
    "a,\"b\",c",
    "line\nline",
    "line\r\nline",
    "\r",
    "=cmd()",
    "ä € 𝄞",
    "\u{1}\u{7f}\u{2028}",
    "ends with \"",
];

const MODEL: &str = "title = \"Notes\"\n[resources.note.fields]\ntext = { type = \"text\" }\n\
     tags = { type = \"list\", of = { type = \"text\" } }\n";

const PYTHON: &str = "import csv, json, sys\n\
     with open('export.csv', encoding='utf-8', newline='') as file:\n\
     \x20   json.dump(list(csv.DictReader(file, strict=True)), sys.stdout)\n";

fn start_with_notes(backend: Backend) -> Server {
    let server = Setup::new(backend).model(MODEL).start();
    let notes: Vec<Value> =
        TRICKY_TEXTS.iter().map(|text| json!({"text": text, "tags": [text, "x"]})).collect();
    let answer = server.post("/notes", json!({"notes": notes}).to_string());
    assert_eq!(answer.status, 201, "{answer:?}");
    server
}

on_every_backend! {
    fn export_read_by_other_parsers_equals_the_stored_data(backend: Backend) {
        let server = start_with_notes(backend);
        let get = |accept| server.request("GET /notes", &[("Accept", accept)], "");
        let table = get(CSV);
        let stored = server.get("/notes").json();
        let stored = stored["notes"].as_array().unwrap();
        let row = |note: &Value| -> Vec<String> {
            let text = |name: &str| note[name].as_str().unwrap().to_owned();
            vec![text("id"), text("text"), note["tags"].to_string(), text("created_at"), text("updated_at"), note["version"].to_string()]
        };
        let rows: Vec<Vec<String>> = stored.iter().map(row).collect();

        // A parser in Rust.
        let mut reader = csv::Reader::from_reader(table.body.as_slice());
        let read: Vec<Vec<String>> = reader.records().map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect();
        assert_eq!(read, rows);
        let names: Vec<_> = reader.headers().unwrap().iter().collect();
        assert_eq!(names, ["id", "text", "tags", "created_at", "updated_at", "version"]);

        // A parser in Python.
        fs::write(server.folder().join("export.csv"), &table.body).unwrap();
        let ended = Process::spawn(Command::new("python3").args(["-c", PYTHON]).current_dir(server.folder())).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let read: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
        let read: Vec<Vec<String>> = read.iter().map(|row| names.iter().map(|name| row[name].as_str().unwrap().to_owned()).collect()).collect();
        assert_eq!(read, rows);

        let lines = get(NDJSON);
        let read: Vec<Value> = lines.text().split_terminator('\n').map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(&read, stored);
    }
}
