//! PostgreSQL URLs: unreachable, malformed, or with a password on the command line.

use std::process::Command;

use expect_test::{Expect, expect};

use super::check_failed_start;
use crate::harness::{EXECUTABLE, FinishedProcess, Folder, Process};

const SERVE: [&str; 4] = ["serve", "--open", "--listen", "127.0.0.1:0"];

/// Starts with these arguments and variables, and compares the message. Nothing listens at port 1.
fn assert_start_fails(
    arguments: &[&str],
    variables: &[(&str, &str)],
    model: Option<&str>,
    message: &Expect,
) {
    let folder = Folder::new();
    let mut command = Command::new(EXECUTABLE);
    command.args(SERVE).args(arguments).current_dir(folder.path());
    command.env_clear().envs(variables.iter().copied());
    if let Some(text) = model {
        std::fs::write(folder.path().join("nouns.toml"), text).unwrap();
    }
    let ended: FinishedProcess = Process::spawn(&mut command).end();
    assert!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
    check_failed_start(&ended, folder.path(), message);
}

#[test]
fn database_url_unreachable_fails_the_start() {
    assert_start_fails(
        &["--database", "postgres://ann@127.0.0.1:1/shop"],
        &[],
        None,
        &expect![[r#"
        nouns: cannot reach PostgreSQL at 127.0.0.1:1 (connection refused); start it, or check --database; start with --wait to retry
    "#]],
    );
}

#[test]
fn database_url_with_a_password_argument_is_refused() {
    let address = "postgres://ann:hunter2@127.0.0.1:1/shop";
    let message = &expect![[r#"
        nouns: a password in --database can be read by everyone on this machine; leave it out there, and set NOUNS_DATABASE to the whole address, PGPASSWORD to the password, or put it into ~/.pgpass
    "#]];
    assert_start_fails(&["--database", address], &[], None, message);
    assert_start_fails(&[&format!("--database={address}")], &[], None, message);
    // The same URL in the environment does not permit it on the command line.
    assert_start_fails(&["--database", address], &[("NOUNS_DATABASE", address)], None, message);
}

#[test]
fn database_password_outside_the_command_line_is_accepted() {
    let address = "postgres://ann:hunter2@127.0.0.1:1/shop";
    let message = &expect![[r#"
        nouns: cannot reach PostgreSQL at 127.0.0.1:1 (connection refused); start it, or check --database; start with --wait to retry
    "#]];
    assert_start_fails(&[], &[("NOUNS_DATABASE", address)], None, message);
    let model = format!(
        "title = \"Shop\"\n[server]\ndatabase = \"{address}\"\n[resources.cup.fields]\nsize = {{ type = \"integer\" }}\n"
    );
    assert_start_fails(&[], &[], Some(&model), message);
    let plain = "postgres://ann@127.0.0.1:1/shop";
    assert_start_fails(&["--database", plain], &[("PGPASSWORD", "hunter2")], None, message);
}

#[test]
fn database_url_malformed_is_refused() {
    assert_start_fails(
        &["--database", "postgres://127.0.0.1/shop"],
        &[],
        None,
        &expect![[r#"
        nouns: database: no user is named: write postgres://USER@HOST/NAME, or set PGUSER
    "#]],
    );
    assert_start_fails(
        &["--database", "postgres://127.0.0.1/shop?sslmod=require"],
        &[("PGUSER", "ann")],
        None,
        &expect![[r#"
            nouns: database: there is no parameter "sslmod"; did you mean "sslmode"?
        "#]],
    );
    assert_start_fails(
        &["--database", "postgres://ann@127.0.0.1/shop?passfile=/there/is/none"],
        &[],
        None,
        &expect![[r#"
            nouns: database: cannot read the passfile /there/is/none (No such file or directory (os error 2))
        "#]],
    );
    assert_start_fails(
        &[],
        &[("NOUNS_DATABASE", "postgres://ann:hunter2/x@127.0.0.1/shop")],
        None,
        &expect![[r#"
            nouns: database: cannot read the address; in its user name and password write each of / ? # @ : % as %2F %3F %23 %40 %3A %25
        "#]],
    );
}
