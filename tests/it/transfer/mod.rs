//! `nouns export` and `nouns import`: files, faults with their lines, round trips, interrupted imports.

mod export;
mod import;
mod integer_ids;
mod interrupted;
mod repeated_ids;
mod round_trip;
mod upsert;
mod wal;

use std::fs;
use std::process::Command;

use crate::harness::{
    Backend, EXECUTABLE, FinishedProcess, Process, Server, Setup, run_nouns, run_sql,
};

/// Each kind of field that an import has to restore, at three levels.
const MODEL: &str = r#"
title = "Shop"

[resources.customer.fields]
name = { type = "text", required = true, max_length = 40, filter = true, match = true }
email = { type = "email", unique = true }
vip = { type = "boolean", default = false }

[resources.order]
parent = "customer"
[resources.order.fields]
status = { type = "state", initial = "placed", next = { placed = ["paid"], paid = ["shipped"], shipped = [] } }
price = { type = "decimal", scale = 2, required = true }
count = { type = "integer", default = 1 }
total = { type = "decimal", scale = 2, computed = "price * count" }
tags = { type = "list", of = { type = "text" } }
due = { type = "date" }

[resources.parcel]
parent = "order"
id = "integer"
[resources.parcel.fields]
code = { type = "text", required = true, unique = "parent" }
weight = { type = "number" }
note = { type = "json", nullable = true }

[resources.review.fields]
customer = { type = "ref", to = "customer", required = true }
after = { type = "ref", to = "review" }
text = { type = "text" }
"#;

/// A server with the model above; its files are in its folder.
struct Shop {
    server: Server,
}

impl Shop {
    fn on(backend: Backend) -> Self {
        Self { server: Setup::new(backend).model(MODEL).start() }
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.server.folder().join(file), text).unwrap();
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.server.folder().join(file)).unwrap()
    }

    fn exists(&self, file: &str) -> bool {
        self.server.folder().join(file).exists()
    }

    fn arguments(&self, arguments: &[&str]) -> Vec<String> {
        let database = self.server.database();
        let more = ["--model", "model.toml", "--database", &database];
        arguments.iter().chain(&more).map(|&word| word.to_owned()).collect()
    }

    /// Runs `nouns` to its end.
    fn run(&self, arguments: &[&str]) -> FinishedProcess {
        let arguments = self.arguments(arguments);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run_nouns(self.server.folder(), &arguments)
    }

    fn spawn(&self, arguments: &[&str]) -> Process {
        let mut command = Command::new(EXECUTABLE);
        command.args(self.arguments(arguments)).env_clear().current_dir(self.server.folder());
        Process::spawn(&mut command)
    }

    /// Runs `nouns`, which prints this and nothing else.
    #[track_caller]
    fn succeeds(&self, arguments: &[&str], printed: &str) {
        let ended = self.run(arguments);
        let expected = (Some(0), format!("{printed}\n"), String::new());
        assert_eq!((ended.code, ended.stdout, ended.stderr), expected);
    }

    /// Runs `nouns`, which refuses with this message.
    #[track_caller]
    fn refuses(&self, arguments: &[&str], message: &str) {
        let ended = self.run(arguments);
        let expected = (Some(2), String::new(), format!("{message}\n"));
        assert_eq!((ended.code, ended.stdout, ended.stderr), expected);
    }

    fn sql(&self, text: &str) -> String {
        run_sql(self.server.backend(), self.server.folder(), text).trim_end().to_owned()
    }

    fn count(&self, table: &str) -> usize {
        self.sql(&format!("SELECT count(*) FROM {table}")).parse().unwrap()
    }

    fn customer(&self, name: &str) -> String {
        let email = format!("{name}@example.com");
        self.server.create(
            "/customers",
            format!(r#"{{"customer":{{"name":"{name}","email":"{email}"}}}}"#),
        )
    }
}

/// A file with this many customers.
fn customers(count: usize) -> String {
    let rows = (0..count).map(|at| format!("Name {at},n{at}@example.com\n"));
    ["name,email\n".to_owned()].into_iter().chain(rows).collect()
}
