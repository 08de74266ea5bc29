//! Where `nouns backup` and `nouns restore` find the database and the key, also when the model has mistakes.

use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::expect;

use super::{customers, edit_model, files, refuse, run, stopped_store};
use crate::harness::{Backend, EXECUTABLE, Folder, Process, Setup, run_sql};

/// Runs a command with a variable that must succeed, and returns its output and its messages.
fn run_with(folder: &Path, args: &[&str], (name, value): (&str, &str)) -> String {
    let mut command = Command::new(EXECUTABLE);
    command.args(args).env_clear().env(name, value).current_dir(folder);
    let ended = Process::spawn(&mut command).end();
    assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
    format!("{}{}", ended.stdout, ended.stderr)
}

/// A folder in which a server with the key `secret.key` was served and stopped.
fn stopped_with_key() -> Folder {
    Setup::new(Backend::Sqlite).key_file("secret.key".into()).start().stop()
}

/// Regression: it named `nouns.key`, whatever the variable said.
#[test]
fn backup_names_the_key_of_the_environment() {
    let folder = stopped_with_key();
    let key = ("NOUNS_KEY_FILE", "secret.key");
    expect![[r#"
        nouns: wrote copy.db, 0.2 MB, verified, with the changes up to 1; the key is not in it: keep a copy of secret.key in another place
    "#]]
    .assert_eq(&run_with(folder.path(), &["backup", "copy.db"], key));
    // And does not overwrite it.
    let mut command = Command::new(EXECUTABLE);
    command.args(["backup", "secret.key", "--force"]).env_clear().env(key.0, key.1);
    let ended = Process::spawn(command.current_dir(folder.path())).end();
    let expected = "nouns: secret.key is the key, and is not overwritten; name another file\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), expected));
}

/// Regression: the copy was complete, and the exit code said that there is none.
#[test]
fn backup_and_restore_succeed_when_the_fingerprint_cannot_be_read() {
    let folder = stopped_with_key();
    run_sql(
        Backend::Sqlite,
        folder.path(),
        "UPDATE nouns_system SET value = CAST(x'ff' AS TEXT) WHERE name = 'key_fingerprint'",
    );
    let changed = run_sql(
        Backend::Sqlite,
        folder.path(),
        "SELECT hex(value) FROM nouns_system WHERE name = 'key_fingerprint'",
    );
    assert_eq!(changed, "FF\n");
    let mut said = run(folder.path(), &["backup", "copy.db"]);
    said += &run(folder.path(), &["restore", "copy.db", "--force"]);
    let cause = regex::Regex::new(r"\([^()]*\)").unwrap();
    expect![[r#"
        nouns: wrote copy.db, 0.2 MB, verified, with the changes up to 1
        nouns: warning: it is not known which key belongs to copy.db (CAUSE)
        nouns: restored nouns.db from copy.db, 0.2 MB, verified, with the changes up to 1
        nouns: warning: it is not known which key belongs to nouns.db (CAUSE)
    "#]]
    .assert_eq(&cause.replace_all(&said, "(CAUSE)"));
}

/// A model whose `[server]` table can be read, and one of which nothing can.
#[test]
fn backup_and_restore_with_a_model_that_has_mistakes_work() {
    let folder = stopped_store();
    let path = folder.path();
    fs::rename(path.join("nouns.db"), path.join("data.db")).unwrap();
    edit_model(
        path,
        "title = 7\n[server]\ndatabase = \"sqlite:data.db\"\n[resources.customer.feilds]\n",
    );
    expect![[r#"
        nouns: wrote copy.db, 0.2 MB, verified, with the changes up to 1
        nouns: warning: the model nouns.toml has mistakes, which nouns check lists; only its database and key are used
    "#]].assert_eq(&run(path, &["backup", "copy.db"]));
    expect![[r#"
        nouns: restored data.db from copy.db, 0.2 MB, verified, with the changes up to 1
        nouns: warning: the model nouns.toml has mistakes, which nouns check lists; only its database and key are used
    "#]].assert_eq(&run(path, &["restore", "copy.db", "--force"]));
    edit_model(path, "title = \n");
    let before = files(path);
    let mut messages = refuse(path, &["backup", "second.db"]);
    messages += &refuse(path, &["restore", "copy.db", "--force"]);
    assert!(files(path) == before);
    expect![[r#"
        error: not valid TOML: string values must be quoted, expected literal string
         --> nouns.toml:1:9
          |
        1 | title = 
          |         ^

        nouns: the model nouns.toml cannot be read; correct it, or name the database with --database
        error: not valid TOML: string values must be quoted, expected literal string
         --> nouns.toml:1:9
          |
        1 | title = 
          |         ^

        nouns: the model nouns.toml cannot be read; correct it, or name the database with --database
    "#]]
    .assert_eq(&messages);
    expect![[r#"
        nouns: wrote second.db, 0.2 MB, verified, with the changes up to 1
        nouns: warning: the model nouns.toml cannot be read, and is not used; nouns check lists its mistakes
    "#]]
        .assert_eq(&run(path, &["backup", "second.db", "--database", "sqlite:data.db"]));
    run(path, &["restore", "second.db", "--database", "sqlite:nouns.db"]);
    assert_eq!(customers(path), "Ann ");
}
