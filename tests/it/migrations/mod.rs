//! `nouns plan` and `nouns migrate`: each change of a model with its plan, on a filled database; every value that
//! stays is compared. A migration is also aborted at each of its steps: then the database is as it was.

mod commands;
mod computed;
mod condition_fields;
mod derived_texts;
mod fields;
mod references;
mod regressions;
mod renamed_fields;
mod resources;
mod reverse;
mod rules;
mod several;
mod text_types;
mod types;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::Expect;

use crate::harness::{
    Backend, DEBUG_EXECUTABLE, EXECUTABLE, FinishedProcess, Process, Server, Setup, run_sql,
    wait_until,
};

/// A change of the fields of one resource, `note`, whose ids are numbers.
struct FieldsChange<'a> {
    before: &'a str,
    after: &'a str,
    /// The members of the items.
    items: &'a [&'a str],
    flags: &'a [&'a str],
}

/// A change of a model.
struct ModelChange<'a> {
    before: &'a str,
    after: &'a str,
    /// Collections, each with the members of an item, in the order of their creation.
    items: &'a [(&'a str, &'a str)],
    flags: &'a [&'a str],
    /// The collections to compare.
    collections: &'a [&'a str],
}

fn check_fields(backend: Backend, change: &FieldsChange<'_>, expected: &Expect) {
    let model = |fields: &str| {
        format!("[resources.note]\nid = \"integer\"\n[resources.note.fields]\n{fields}\n")
    };
    let items: Vec<(&str, &str)> = change.items.iter().map(|body| ("/notes", *body)).collect();
    let change = ModelChange {
        before: &model(change.before),
        after: &model(change.after),
        items: &items,
        flags: change.flags,
        collections: &["/notes"],
    };
    check(backend, &change, expected);
}

/// Compares the plan, the result of the migration, and the items after it.
fn check(backend: Backend, change: &ModelChange<'_>, expected: &Expect) {
    let titled = |text: &str| format!("title = \"T\"\n{text}");
    let (before, after) = (titled(change.before), titled(change.after));
    let server = Setup::new(backend).model(&before).start();
    for (path, members) in change.items {
        let name = singular(path);
        server.create(path, format!("{{\"{name}\":{members}}}"));
    }
    let database = server.database();
    let folder = server.stop();
    fs::write(folder.path().join("model.toml"), &after).unwrap();
    let run = Run { backend, folder: folder.path(), database: &database };
    let plan = run.nouns(EXECUTABLE, &["plan"], "");
    let mut seen = run.mask(&plan.stdout);
    let _ = writeln!(seen, "--- plan: exit {}{}", plan.code.unwrap_or(-1), run.mask(&plan.stderr));
    let flags: Vec<&str> = ["migrate", "--no-backup"].iter().chain(change.flags).copied().collect();
    let dump = run.dump();
    let ended = run.migrate_with_aborts(&flags, || {
        assert_eq!(run.dump(), dump, "an aborted migration has changed something");
        let again = run.nouns(EXECUTABLE, &["plan"], "");
        assert_eq!(run.mask(&again.stdout), run.mask(&plan.stdout));
    });
    let is_done = ended.code == Some(0);
    let refusal = ended.stderr.lines().next().unwrap_or_default();
    let _ = writeln!(seen, "{}{}", run.mask(&ended.stdout), run.mask(refusal));
    let model = if is_done { after } else { before };
    if !is_done {
        assert_eq!((ended.code, run.dump()), (Some(2), dump), "a refusal changes nothing");
    }
    if ended.stdout.contains("migrated") {
        let fresh = Setup::new(backend).model(&model).start().stop();
        assert_eq!(table_layout(backend, folder.path()), table_layout(backend, fresh.path()));
    }
    let server = Setup::new(backend).model(&model).start_in(folder);
    for path in change.collections {
        write_items(&server, path, &mut seen);
    }
    expected.assert_eq(&seen);
}

/// The name of an item of a collection in these tests: without the `s`.
fn singular(path: &str) -> &str {
    path.rsplit('/').next().unwrap().trim_end_matches('s')
}

/// Writes the items of a collection, or the status if it does not exist.
fn write_items(server: &Server, path: &str, seen: &mut String) {
    let answer = server.get(path);
    if answer.status != 200 {
        let _ = writeln!(seen, "{path}: {}", answer.status);
        return;
    }
    let name = path.rsplit('/').next().unwrap().split('?').next().unwrap();
    for item in answer.json()[name].as_array().unwrap() {
        let mut item = item.as_object().unwrap().clone();
        for name in ["created_at", "updated_at", "version"] {
            item.remove(name);
        }
        let _ = writeln!(seen, "{}", serde_json::Value::Object(item));
    }
}

/// Commands on one database, while no server runs.
struct Run<'a> {
    backend: Backend,
    folder: &'a Path,
    database: &'a str,
}

impl Run<'_> {
    fn nouns(&self, executable: &str, words: &[&str], fault: &str) -> FinishedProcess {
        let mut command = Command::new(executable);
        command.args(words).args(["model.toml", "--database", self.database]);
        command.env_clear().current_dir(self.folder);
        if !fault.is_empty() {
            command.env("NOUNS_FAULT", fault);
        }
        Process::spawn(&mut command).end()
    }

    /// Migrates with an abort at the first step, then at the second, until it ends by itself.
    fn migrate_with_aborts(&self, flags: &[&str], after_abort: impl Fn()) -> FinishedProcess {
        for step in 1.. {
            let ended = wait_until("the database has noticed the abort", || {
                let ended = self.nouns(DEBUG_EXECUTABLE, flags, &format!("migrate:{step}!"));
                (!ended.stderr.contains("a server is starting")).then_some(ended)
            });
            if ended.code.is_some() {
                return ended;
            }
            after_abort();
        }
        unreachable!()
    }

    fn mask(&self, text: &str) -> String {
        let address = self.database.strip_prefix("sqlite:").unwrap_or(self.database);
        text.replace(self.database, "DATABASE").replace(address, "DATABASE")
    }

    /// All tables and their rows.
    fn dump(&self) -> String {
        let mut all = crate::schema_changes::schema(self.backend, self.folder);
        let sql = |text: &str| run_sql(self.backend, self.folder, text);
        if self.backend == Backend::Postgres {
            // One statement, since each is a process.
            all += &sql(
                "SELECT table_name, query_to_xml(format('SELECT * FROM %I ORDER BY 1', table_name), true, true, '') \
                FROM information_schema.tables \
                WHERE table_schema = current_schema() AND table_name <> 'nouns_servers' ORDER BY 1",
            );
            return all;
        }
        for table in
            sql("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").lines()
        {
            let rows = sql(&format!("SELECT * FROM \"{table}\" ORDER BY 1"));
            let _ = writeln!(all, "{table}\n{rows}");
        }
        all
    }
}

/// Columns, indexes and foreign keys of the items' tables, in an order that does not depend on their history.
fn table_layout(backend: Backend, folder: &Path) -> String {
    let sql = match backend {
        Backend::Sqlite => {
            "SELECT m.name, c.name, c.type, c.\"notnull\", c.pk FROM sqlite_master m, pragma_table_info(m.name) c \
             WHERE m.type = 'table' AND m.name NOT LIKE 'nouns%' AND m.name NOT LIKE 'sqlite%' UNION ALL \
             SELECT m.name, k.\"table\", k.\"from\", k.\"to\", '' FROM sqlite_master m, pragma_foreign_key_list(m.name) k \
             WHERE m.type = 'table' AND m.name NOT LIKE 'nouns%' UNION ALL \
             SELECT name, tbl_name, sql, '', '' FROM sqlite_master WHERE type = 'index' AND name LIKE 'nouns.%' ORDER BY 1, 2, 3"
        }
        Backend::Postgres => {
            "SELECT table_name::text, column_name::text, data_type::text, is_nullable::text, collation_name::text \
             FROM information_schema.columns WHERE table_schema = current_schema() AND table_name NOT LIKE 'nouns%' UNION ALL \
             SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid), convalidated::text, '' FROM pg_constraint \
             WHERE contype = 'f' AND connamespace = current_schema()::regnamespace UNION ALL \
             SELECT tablename::text, indexname::text, indexdef, '', '' FROM pg_indexes \
             WHERE schemaname = current_schema() AND indexname LIKE 'nouns.%' ORDER BY 1, 2, 3"
        }
    };
    run_sql(backend, folder, sql).replace("public.", "")
}
