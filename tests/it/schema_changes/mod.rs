//! Schema changes: who may change tables and rules, when, and the effect on other servers.
//!
//! `src/model/diff/` computes the difference of two models; `replicas/models.rs` tests a start that
//! adds.

mod commands;
mod empty;
mod live_servers;
mod locks;
mod references;
mod rollback;
mod unfinished;

use crate::harness::{Backend, FinishedProcess, Folder, Setup};

/// A rule that the database enforces, and an index.
const STRICT: &str = "title = \"Notes\"\n[resources.note.fields]\n\
    text = { type = \"text\", filter = true }\ncode = { type = \"text\", unique = true }\n";

/// Without the rule.
const LOOSE: &str = "title = \"Notes\"\n[resources.note.fields]\n\
    text = { type = \"text\", filter = true }\ncode = { type = \"text\" }\n";

fn note(code: &str) -> String {
    format!(r#"{{"note":{{"text":"tea","code":"{code}"}}}}"#)
}

/// The result of a start on a shared database that must fail.
fn start_refused(address: &str, model: &str) -> FinishedProcess {
    let setup = Setup::replica(address.to_owned()).model(model);
    match setup.try_start_in(Folder::new()) {
        Ok(server) => panic!("it serves at {}", server.address),
        Err((ended, _)) => ended,
    }
}

/// Tables, columns, indexes and the stored model.
pub fn schema(backend: Backend, folder: &std::path::Path) -> String {
    let tables = match backend {
        Backend::Sqlite => "SELECT name, coalesce(sql, '') FROM sqlite_master ORDER BY name",
        Backend::Postgres => {
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() UNION ALL \
             SELECT table_name, column_name || ' ' || data_type FROM information_schema.columns \
             WHERE table_schema = current_schema() ORDER BY 1, 2"
        }
    };
    let model = "SELECT value FROM nouns_system WHERE name = 'model'";
    crate::harness::run_sql(backend, folder, tables)
        + &crate::harness::run_sql(backend, folder, model)
}
