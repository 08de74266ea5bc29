//! PostgreSQL URLs: unreachable, malformed, or with a password on the command line.

use std::process::Command;

use expect_test::{Expect, expect};

use super::check_refusal;
use crate::harness::{Ended, Folder, NOUNS, Process};

const SERVE: [&str; 4] = ["serve", "--open", "--listen", "127.0.0.1:0"];

/// Starts with these arguments and variables, and compares the message. Nothing listens at port 1.
fn refused(arguments: &[&str], variables: &[(&str, &str)], model: Option<&str>, message: &Expect) {
    let folder = Folder::new();
    let mut command = Command::new(NOUNS);
    command.args(SERVE).args(arguments).current_dir(folder.path());
    command.env_clear().envs(variables.iter().copied());
    if let Some(text) = model {
        std::fs::write(folder.path().join("nouns.toml"), text).unwrap();
    }
    let ended: Ended = Process::spawn(&mut command).end();
    assert!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
    check_refusal(&ended, folder.path(), message);
}

#[test]
fn database_url_unreachable_fails_the_start() {
    refused(
        &["--database", "postgres://ann@127.0.0.1:1/shop"],
        &[],
        None,
        &expect![[r#"
        nouns: cannot reach PostgreSQL at 127.0.0.1:1 (connection refused); start it, or check --database; with --wait it is tried again
    "#]],
    );
}

#[test]
fn database_url_with_a_password_argument_is_refused() {
    let address = "postgres://ann:hunter2@127.0.0.1:1/shop";
    let message = &expect![[r#"
        nouns: a password in --database can be read by everyone on this machine; leave it out there, and set NOUNS_DATABASE to the whole address, PGPASSWORD to the password, or put it into ~/.pgpass
    "#]];
    refused(&["--database", address], &[], None, message);
    refused(&[&format!("--database={address}")], &[], None, message);
    // The same URL in the environment does not permit it on the command line.
    refused(&["--database", address], &[("NOUNS_DATABASE", address)], None, message);
}

#[test]
fn database_password_outside_the_command_line_is_accepted() {
    let address = "postgres://ann:hunter2@127.0.0.1:1/shop";
    let message = &expect![[r#"
        nouns: cannot reach PostgreSQL at 127.0.0.1:1 (connection refused); start it, or check --database; with --wait it is tried again
    "#]];
    refused(&[], &[("NOUNS_DATABASE", address)], None, message);
    let model = format!(
        "title = \"Shop\"\n[server]\ndatabase = \"{address}\"\n[resources.cup.fields]\nsize = {{ type = \"integer\" }}\n"
    );
    refused(&[], &[], Some(&model), message);
    let plain = "postgres://ann@127.0.0.1:1/shop";
    refused(&["--database", plain], &[("PGPASSWORD", "hunter2")], None, message);
}

#[test]
fn database_url_malformed_is_refused() {
    refused(
        &["--database", "postgres://127.0.0.1/shop"],
        &[],
        None,
        &expect![[r#"
        nouns: database: no user is named: write postgres://USER@HOST/NAME, or set PGUSER
    "#]],
    );
    refused(
        &["--database", "postgres://127.0.0.1/shop?sslmod=require"],
        &[("PGUSER", "ann")],
        None,
        &expect![[r#"
            nouns: database: there is no parameter "sslmod"; did you mean "sslmode"?
        "#]],
    );
    refused(
        &["--database", "postgres://ann@127.0.0.1/shop?passfile=/there/is/none"],
        &[],
        None,
        &expect![[r#"
            nouns: database: cannot read the passfile /there/is/none (No such file or directory (os error 2))
        "#]],
    );
    refused(
        &[],
        &[("NOUNS_DATABASE", "postgres://ann:hunter2/x@127.0.0.1/shop")],
        None,
        &expect![[r#"
            nouns: database: cannot read the address; in its user name and password write each of / ? # @ : % as %2F %3F %23 %40 %3A %25
        "#]],
    );
}
