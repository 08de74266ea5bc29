//! Third-party programs: validators of OpenAPI, an independent validator of JSON Schema that performs every
//! operation, and schemathesis.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{
    Backend, FinishedProcess, Folder, Person, Process, Server, Setup, is_soak, run_nouns,
};

const STRANGE: &str = include_str!("../models/strange.toml");
const LIBRARY: &str = include_str!("../../../examples/library/nouns.toml");

/// Generators, compilers and long tests take minutes on a busy machine.
pub(super) const PROGRAM_LIMIT: Duration = Duration::from_secs(3600);

pub(super) fn clients() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients")
}

pub(super) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openapi")
}

pub(super) fn python(program: &str) -> Command {
    Command::new(clients().join("python/bin").join(program))
}

/// The documents of several models and roles, as files.
fn write_documents(folder: &Folder) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (name, model, roles) in [
        ("store", None, &["", "shopper", "clerk"][..]),
        ("library", Some(LIBRARY), &["", "reader", "librarian"]),
        ("strange", Some(STRANGE), &["", "keeper", "dropper", "anyone"]),
    ] {
        let model_file = folder.path().join(format!("{name}.toml"));
        if let Some(model) = model {
            fs::write(&model_file, model).unwrap();
        }
        for role in roles {
            let mut args = vec!["openapi"];
            if model.is_some() {
                args.push(model_file.to_str().unwrap());
            }
            if !role.is_empty() {
                args.extend(["--role", role]);
            }
            let ended = run_nouns(folder.path(), &args);
            assert_eq!(ended.code, Some(0), "{ended:?}");
            let file = folder.path().join(format!("{name}-{role}.json"));
            fs::write(&file, ended.stdout).unwrap();
            files.push(file);
        }
    }
    files
}

pub(super) fn assert_success(ended: &FinishedProcess) {
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
}

#[test]
fn openapi_documents_are_valid_for_openapi_spec_validator() {
    let folder = Folder::new();
    let mut command = python("openapi-spec-validator");
    command.args(["--schema", "3.1"]).args(write_documents(&folder));
    assert_success(&Process::spawn(&mut command).end_within(PROGRAM_LIMIT));
}

#[test]
fn openapi_documents_pass_redocly_lint_without_errors() {
    let folder = Folder::new();
    let files = write_documents(&folder);
    let redocly = clients().join("node_modules/@redocly/cli/bin/cli.js");
    let mut command = Command::new("node");
    command.arg(redocly).arg("lint").args(&files).current_dir(folder.path());
    // It looks for newer versions of itself otherwise, and counts its users.
    command.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
    assert_success(&Process::spawn(&mut command).end_within(PROGRAM_LIMIT));
}

/// Performs every operation of the document with its examples.
fn walk(server: &Server, authorization: Option<&str>, document: &str) {
    let mut command = python("python3");
    command.arg(scripts().join("walk.py")).arg(format!("http://{}", server.address));
    let header = authorization
        .map_or_else(|| "X-Nobody: 1".to_owned(), |login| format!("Authorization: {login}"));
    command.arg(header).arg(document);
    let ended = Process::spawn(command.current_dir(server.folder())).end_within(PROGRAM_LIMIT);
    assert_success(&ended);
    assert!(ended.stdout.lines().count() > 20, "{}", ended.stdout);
}

/// A run of schemathesis with all checks: the examples of the document and a few random requests for each
/// operation, or with `NOUNS_SOAK` more than 10,000 requests of all phases, `examples` for each operation.
fn check_with_schemathesis(server: &Server, document: &str, examples: u32) {
    let is_long = is_soak();
    let (examples, phases, cases_min) = match is_long {
        true => (examples, "examples,coverage,fuzzing,stateful", 10_000),
        false => (3, "examples,fuzzing", 150),
    };
    let mut command = python("schemathesis");
    command.arg("--config-file").arg(scripts().join("schemathesis.toml"));
    command.args(["run", "--checks", "all", "--phases", phases, "--seed", "20261115"]);
    command.args(["--no-color", "--max-failures", "40", "--generation-database", "none"]);
    command.args(["--suppress-health-check", "all"]);
    command.arg("--max-examples").arg(examples.to_string());
    command.arg(format!("http://{}{document}", server.address));
    // The module hooks.py in the folder of the scripts.
    command.env("SCHEMATHESIS_HOOKS", "hooks").env("PYTHONPATH", scripts());
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = Process::spawn(command.current_dir(server.folder())).end_within(PROGRAM_LIMIT);
    assert_success(&ended);
    let cases = generated_cases(&ended.stdout);
    assert!(cases >= cases_min, "{cases} of {cases_min} cases\n{}", ended.stdout);
}

/// The number before the word in `11463 generated, 11463 passed`.
fn generated_cases(output: &str) -> u32 {
    let line = output.lines().find(|line| line.contains(" generated,")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

on_every_backend! {
    fn openapi_operations_of_the_store_do_as_described(server: Server) {
        walk(&server, None, "/-/openapi.json");
    }

    fn openapi_operations_of_a_strange_model_do_as_described(backend: Backend) {
        let server = Setup::new(backend).model(STRANGE).start();
        walk(&server, None, "/api/v1/-/openapi.json");
    }

    fn openapi_operations_of_a_role_do_as_described(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let clerk = Person::new("cleo", "a long password");
        server.add_user(&clerk, &["clerk"]);
        walk(&server, Some(&clerk.basic()), "/-/openapi.json");
    }

    fn schemathesis_finds_nothing_in_the_store(server: Server) {
        check_with_schemathesis(&server, "/-/openapi.json", 150);
    }

    fn schemathesis_finds_nothing_in_a_strange_model(backend: Backend) {
        let server = Setup::new(backend).model(STRANGE).start();
        check_with_schemathesis(&server, "/api/v1/-/openapi.json", 25);
    }
}
