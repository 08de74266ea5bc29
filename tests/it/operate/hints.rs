//! The commands that messages recommend: with the model and the database that the operator named.

use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::{Expect, expect};

use crate::harness::{Backend, EXECUTABLE, Folder, Process, Setup, run_nouns};

const FIRST: &str = "title = \"Shop\"\n[resources.cup.fields]\nsize = { type = \"integer\" }\n";
const SECOND: &str = "title = \"Shop\"\n[resources.cup.fields]\nsize = { type = \"text\" }\n";
const THIRD: &str = "title = \"Shop\"\n[resources.cup.fields]\nsize = { type = \"integer\" }\nname = { type = \"text\" }\n";

/// A folder with the files of a server of the first model, which has an item, and other models.
fn stopped_shop() -> Folder {
    let server = Setup::new(Backend::Sqlite).model(FIRST).database("my data.db").start();
    server.create("/cups", r#"{"cup":{"size":1}}"#);
    let folder = server.stop();
    fs::write(folder.path().join("second model.toml"), SECOND).unwrap();
    fs::write(folder.path().join("third.toml"), THIRD).unwrap();
    folder
}

fn check(folder: &Path, args: &[&str], expected: &Expect) {
    let ended = run_nouns(folder, args);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let shown = format!("{}{}", ended.stdout, ended.stderr);
    let lines = shown.lines().filter(|line| !line.starts_with("ok ") && line.contains("nouns "));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    expected.assert_eq(&text.replace(folder.to_str().unwrap(), "FOLDER"));
}

#[test]
fn hints_of_serve_have_its_model_and_database() {
    let folder = stopped_shop();
    let open = ["serve", "--open", "--listen", "127.0.0.1:0"];
    let serve = |more: &[&str], expected: &Expect| {
        check(folder.path(), &[&open, more].concat(), expected);
    };
    serve(
        &["second model.toml", "--database", "sqlite:my data.db"],
        &expect![[r#"
        nothing was changed; see what would be done with: nouns plan 'second model.toml' --database 'sqlite:my data.db'; do it with: nouns migrate 'second model.toml' --database 'sqlite:my data.db'; or take these changes back
    "#]],
    );
    let shop = fs::read(folder.path().join("my data.db")).unwrap();
    fs::write(folder.path().join("nouns.db"), shop).unwrap();
    fs::rename(folder.path().join("second model.toml"), folder.path().join("nouns.toml")).unwrap();
    // The defaults need no arguments.
    serve(
        &[],
        &expect![[r#"
        nothing was changed; see what would be done with: nouns plan; do it with: nouns migrate; or take these changes back
    "#]],
    );
}

#[test]
fn hints_of_doctor_have_its_model_and_database() {
    let folder = stopped_shop();
    let doctor = |more: &[&str], expected: &Expect| {
        check(folder.path(), &[&["doctor"], more].concat(), expected);
    };
    doctor(
        &["second model.toml", "--database", "sqlite:my data.db"],
        &expect![[r#"
        fault    stored model the stored data is of another model: cup.size: the type changed from integer to text; see the steps with: nouns plan 'second model.toml' --database 'sqlite:my data.db'; apply them with: nouns migrate 'second model.toml' --database 'sqlite:my data.db'
        warning  users        no enabled user has the role admin; add one with: nouns user add NAME --role admin --model 'second model.toml' --database 'sqlite:my data.db'
    "#]],
    );
    fs::write(folder.path().join("nouns.key"), "no key").unwrap();
    doctor(
        &["third.toml", "--database", "sqlite:other.db", "--key-file", "nouns.key"],
        &expect![[r#"
            warning  database     there is no database other.db yet; create it with: nouns serve third.toml --database sqlite:other.db --key-file nouns.key
        "#]],
    );
}

#[test]
fn hints_of_export_and_import_name_migrate_where_the_model_needs_it() {
    let folder = stopped_shop();
    fs::write(folder.path().join("cups.csv"), "size\r\n7\r\n").unwrap();
    for (model, expected) in [
        (
            "second model.toml",
            expect![[r#"
                nouns: the tables of my data.db belong to another model; name its file with --model, or apply this one first: nouns migrate 'second model.toml' --database 'sqlite:my data.db'
            "#]],
        ),
        (
            "third.toml",
            expect![[r#"
                nouns: the tables of my data.db belong to another model; name its file with --model, or start a server with this one first: nouns serve third.toml --database 'sqlite:my data.db'
            "#]],
        ),
    ] {
        for command in [&["export", "cup"][..], &["import", "cup", "cups.csv"]] {
            let source = ["--model", model, "--database", "sqlite:my data.db"];
            check(folder.path(), &[command, &source].concat(), &expected);
        }
    }
}

/// Regression: `nouns plan` printed the address in `NOUNS_DATABASE` with its password.
#[test]
fn hints_never_show_the_password_of_the_environment_on_postgres() {
    let server = Setup::new(Backend::Postgres).model(FIRST).start();
    server.create("/cups", r#"{"cup":{"size":1}}"#);
    let database = server.database();
    let folder = server.folder();
    fs::write(folder.join("second.toml"), SECOND).unwrap();
    let (front, rest) = database.split_once('@').unwrap();
    let address = format!("{front}:hunter2@{rest}");
    for (args, hint) in [
        (&["plan", "second.toml"][..], "nouns migrate second.toml"),
        (&["doctor", "second.toml"], "nouns migrate second.toml"),
        (
            &["serve", "second.toml", "--open", "--listen", "127.0.0.1:0"],
            "nouns migrate second.toml",
        ),
    ] {
        let mut command = Command::new(EXECUTABLE);
        command.args(args).env_clear().env("NOUNS_DATABASE", &address).current_dir(folder);
        let ended = Process::spawn(&mut command).end();
        let shown = format!("{}{}", ended.stdout, ended.stderr);
        assert!(!shown.contains("hunter2"), "{args:?}: {shown}");
        assert!(shown.contains(hint) && !shown.contains("--database"), "{args:?}: {shown}");
    }
}
