//! Faults of PostgreSQL servers.

use expect_test::expect;

use super::{assert_findings, examine, findings, mask, start_healthy};
use crate::harness::{Backend, FakeClock, Folder, OwnPostgres, Setup, run_nouns};

/// A server that syncs, unlike the shared one of the tests.
#[test]
fn doctor_of_a_healthy_server_on_postgres() {
    let postgres = OwnPostgres::start();
    postgres.sql("postgres", "CREATE DATABASE healthy");
    let address = postgres.database_url("healthy");
    let server = Setup::replica(address).with_authentication().start();
    std::fs::remove_file(server.password_file()).unwrap();
    let ended = examine(&server, &[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    let version = regex::Regex::new("PostgreSQL .*").unwrap();
    let shown = mask(&ended.stdout, server.folder());
    expect![[r#"
        ok       model        the built-in store: 2 resources with 7 fields and 2 roles
        ok       database     <url>: PostgreSQL <version>
        ok       durability   fsync and full_page_writes are on
        ok       key          FOLDER/nouns.key fits the database
        ok       stored model the stored data fits the model
        ok       users        an enabled user has the role admin
        ok       clock        no change is in the future
        ok       open files   enough for 10000 connections
    "#]]
    .assert_eq(&version.replace(&shown, "PostgreSQL <version>"));
}

#[test]
fn doctor_finds_faults_of_a_server_on_postgres() {
    let server = start_healthy(Backend::Postgres);
    let folder = server.folder();
    let ended = examine(&server, &[]);
    assert_eq!(ended.code, Some(2));
    let line = ended.stdout.lines().find(|line| line.contains(" durability ")).unwrap();
    expect!["fault    durability   fsync = off, full_page_writes = off: a crash of its machine loses or damages committed data; set it to on in postgresql.conf"].assert_eq(line);
    std::fs::write(
        folder.join("nouns.toml"),
        "title = \"Store\"\n[server.limits]\ndatabase_connections_max = 1000\n[resources.note.fields]\ntext = { type = \"text\" }\n",
    )
    .unwrap();
    let ended = examine(&server, &[]);
    let found = findings(&ended, folder);
    assert_eq!(found.lines().count(), 2, "{found}");
    expect!["warning  connections  PostgreSQL allows 397 connections, and one server uses up to 1000; raise max_connections, or lower database_connections_max"].assert_eq(found.lines().next().unwrap());
    // Without a key, and without tables.
    let empty = Folder::new();
    let database = Backend::Postgres.database(&empty, "nouns.db");
    let ended = run_nouns(empty.path(), &["doctor", "--database", &database]);
    assert_findings(
        &ended,
        empty.path(),
        &expect![[r#"
            fault    database     there are no tables of nouns in <url>; name another --database, or create them with: nouns serve --database <database>
            fault    key          with PostgreSQL the key has to be named, because every server needs the same one; name its file with --key-file, or set NOUNS_KEY (a new key: openssl rand -base64 32)
        "#]],
    );
    // No server listens on port 1.
    let ended = run_nouns(
        empty.path(),
        &["doctor", "--database", "postgres://nouns@127.0.0.1:1/shop", "--key-file", "nouns.key"],
    );
    assert_findings(
        &ended,
        empty.path(),
        &expect![[r#"
        fault    database     cannot reach PostgreSQL at 127.0.0.1:1 (connection refused); start it, or check --database
    "#]],
    );
}

#[test]
fn doctor_finds_the_clock_of_a_server_on_postgres() {
    let clock = FakeClock::new(86_400);
    let postgres = OwnPostgres::start_under_clock(&clock);
    postgres.sql("postgres", "CREATE DATABASE late");
    let server = Setup::replica(postgres.database_url("late")).with_authentication().start();
    std::fs::remove_file(server.password_file()).unwrap();
    let ended = examine(&server, &[]);
    let seconds = regex::Regex::new("by [0-9]+ s").unwrap();
    let found = findings(&ended, server.folder());
    expect![[r#"
        warning  clock        the clocks of this machine and of PostgreSQL differ by <n> s; let both be set by NTP
    "#]].assert_eq(&seconds.replace(&found, "by <n> s"));
    assert_eq!(ended.code, Some(1));
}
