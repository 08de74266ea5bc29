//! `nouns doctor`: a line for each check, and the faults that it finds on real databases and machines.
//!
//! Each planted fault must change the exit code and be the only line that is not `ok`.

mod machine;
mod postgres;

use std::fs::{self, File};
use std::path::Path;

use expect_test::{Expect, expect};
use rusqlite::Connection;

use crate::backups::damage;
use crate::harness::{Backend, FinishedProcess, Folder, Server, Setup, run_nouns, run_sql};

/// A server with a user, whose first password was changed: nothing is wrong with it.
fn start_healthy(backend: Backend) -> Server {
    let server = Setup::new(backend).with_authentication().start();
    fs::remove_file(server.password_file()).unwrap();
    server
}

/// Runs it for a server's database.
fn examine(server: &Server, args: &[&str]) -> FinishedProcess {
    let (database, key) = (server.database(), server.key_file());
    let settings = ["doctor", "--database", &database, "--key-file", key.to_str().unwrap()];
    run_nouns(server.folder(), &[&settings, args].concat())
}

/// Runs it in the folder of a stopped server on SQLite.
fn examine_folder(folder: &Path) -> FinishedProcess {
    run_nouns(folder, &["doctor"])
}

/// The lines that are not `ok`, with numbers, fingerprints and folders masked. The shared PostgreSQL of the
/// tests does not sync, which is a fault of every database there.
fn findings(ended: &FinishedProcess, folder: &Path) -> String {
    let bad = ended.stdout.lines().filter(|line| !line.starts_with("ok "));
    let bad = bad.filter(|line| !line.starts_with("fault    durability "));
    let text: String = bad.map(|line| format!("{line}\n")).collect();
    mask(&text, folder)
}

fn mask(text: &str, folder: &Path) -> String {
    let mut text = text.replace(folder.to_str().unwrap(), "FOLDER");
    for (pattern, with) in [
        ("[0-9a-f]{32}", "<fingerprint>"),
        (r"--database (sqlite:|postgres://)[^ ;\n]+", "--database <database>"),
        (r"postgres://\S+?(: |; |\n)", "<url>$1"),
        (r"nouns_test_\d+_\d+", "nouns"),
        (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "<time>"),
        (r"\b\d+( bytes| MB)", "<n>$1"),
        (r"(Tree|page) \d+", "$1 <n>"),
    ] {
        text = regex::Regex::new(pattern).unwrap().replace_all(&text, with).into_owned();
    }
    text
}

/// Compares the findings, and the exit code with the worst of them.
fn assert_findings(ended: &FinishedProcess, folder: &Path, expected: &Expect) {
    let found = findings(ended, folder);
    expected.assert_eq(&found);
    assert_eq!(ended.stderr, "");
    let worst = match ended.stdout {
        ref text if text.lines().any(|line| line.starts_with("fault ")) => 2,
        ref text if text.lines().any(|line| line.starts_with("warning ")) => 1,
        _ => 0,
    };
    assert_eq!(ended.code, Some(worst), "{ended:?}");
}

/// Every file of a folder with its bytes.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn doctor_of_a_healthy_server_prints_a_line_for_each_check() {
    let server = start_healthy(Backend::Sqlite);
    let ended = examine(&server, &[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    expect![[r#"
        ok       model        the built-in store: 2 resources with 7 fields and 2 roles
        ok       database     FOLDER/nouns.db: <n> bytes, no page is damaged
        ok       permissions  only this user and its group can use the files of the database
        ok       disk         <n> MB are free on the disk of FOLDER
        ok       key          FOLDER/nouns.key fits the database
        ok       stored model the stored data fits the model
        ok       users        an enabled user has the role admin
        ok       clock        no change is in the future
        ok       open files   enough for 10000 connections
    "#]]
    .assert_eq(&mask(&ended.stdout, server.folder()));
    let json = examine(&server, &["--json"]);
    assert_eq!(json.code, Some(0));
    let lines: Vec<serde_json::Value> =
        json.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts = |name: &str| -> Vec<String> {
        lines.iter().map(|line| line[name].as_str().unwrap().to_owned()).collect()
    };
    assert!(texts("status").iter().all(|status| status == "ok"));
    for ((line, check), message) in ended.stdout.lines().zip(texts("check")).zip(texts("message")) {
        let shown = |text: &str| mask(text, server.folder());
        assert_eq!(shown(line), shown(&format!("ok       {check:<12} {message}")));
    }
    // A stopped one, without a change to any file.
    let folder = server.stop();
    let before = contents(folder.path());
    assert_eq!(examine_folder(folder.path()).code, Some(0));
    assert!(contents(folder.path()) == before);
}

on_every_backend! {
    fn doctor_finds_faults_of_keys(backend: Backend) {
        let server = start_healthy(backend);
        let key = server.key_file();
        let right = fs::read_to_string(&key).unwrap();
        let other = Setup::new(Backend::Sqlite).with_authentication().start();
        let other = fs::read_to_string(other.key_file()).unwrap();
        let plant = |text: &str| fs::write(&key, text).unwrap();
        let check = |expected: &Expect| assert_findings(&examine(&server, &[]), server.folder(), expected);
        plant(&other);
        check(&expect![[r#"
            fault    key          the key in FOLDER/nouns.key has the fingerprint <fingerprint>, and this database belongs to <fingerprint>; put the right key there, or name it with --key-file; if it is lost: nouns key rotate --lost --database <database> --key-file FOLDER/nouns.key
        "#]]);
        plant("no key");
        check(&expect![[r#"
            fault    key          FOLDER/nouns.key holds no key: expected base64; put the right key there (a new one for a new database: openssl rand -base64 32)
        "#]]);
        plant(&format!("{other}{right}"));
        check(&expect![[r#"
            warning  key          FOLDER/nouns.key holds two keys: a rotation has begun; finish it with: nouns key rotate --database <database> --key-file FOLDER/nouns.key
        "#]]);
        plant(&right);
        set_mode(&key, 0o644);
        check(&expect![[r#"
            fault    key          others on this machine can read or change the key file FOLDER/nouns.key (mode 644); revoke that with: chmod 600 FOLDER/nouns.key
        "#]]);
        fs::remove_file(&key).unwrap();
        check(&expect![[r#"
            fault    key          there is no key file FOLDER/nouns.key, and this database has one, of fingerprint <fingerprint>; put it back, or name it with --key-file; if it is lost: nouns key rotate --lost --database <database> --key-file FOLDER/nouns.key
        "#]]);
        plant(&right);
        set_mode(&key, 0o600);
        check(&expect![""]);
    }

    fn doctor_finds_models_that_do_not_fit(backend: Backend) {
        let server = start_healthy(backend);
        let init = run_nouns(server.folder(), &["init"]);
        assert_eq!(init.code, Some(0));
        let file = server.folder().join("nouns.toml");
        let store = fs::read_to_string(&file).unwrap();
        let check = |text: &str, expected: &Expect| {
            fs::write(&file, text).unwrap();
            let ended = examine(&server, &[]);
            assert_findings(&ended, server.folder(), expected);
            mask(ended.stdout.lines().find(|line| line.contains("stored model")).unwrap(), server.folder())
        };
        let more = format!("{store}\n[resources.note.fields]\ntext = {{ type = \"text\" }}\n");
        expect!["ok       stored model the next start applies what the model adds (1 resources and fields)"].assert_eq(&check(&more, &expect![[r#""#]]));
        let other = store.replace("type = \"email\"", "type = \"text\"");
        check(&other, &expect![[r#"
            fault    stored model the stored data is of another model: customer.email: the type changed from email to text; see the steps with: nouns plan --database <database>; apply them with: nouns migrate --database <database>
        "#]]);
        fs::write(&file, "title = 1").unwrap();
        let ended = examine(&server, &[]);
        expect![[r#"
            fault    model        it cannot be used; correct its mistakes: nouns check; the checks below need nothing else of it
        "#]].assert_eq(&findings(&ended, server.folder()));
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
    }

    fn doctor_finds_tables_columns_and_indexes_that_were_dropped(backend: Backend) {
        let server = start_healthy(backend);
        let check = |statement: &str, expected: &Expect| {
            run_sql(backend, server.folder(), statement);
            let ended = examine(&server, &[]);
            let lines: Vec<_> = ended.stdout.lines().filter(|line| line.contains("stored model") || line.contains("indexes")).collect();
            expected.assert_eq(&lines.join("\n"));
        };
        check("DROP INDEX \"nouns.orders.parent\"", &expect![[r#"
            warning  indexes      indexes are missing or not complete (nouns.orders.parent); the next start of nouns serve creates them
            ok       stored model the stored data fits the model"#]]);
        check("ALTER TABLE orders DROP COLUMN total", &expect![[r#"
            warning  indexes      indexes are missing or not complete (nouns.orders.parent); the next start of nouns serve creates them
            fault    stored model tables or columns were dropped (orders.total), and their values with them; restore a backup"#]]);
        check("DROP TABLE orders", &expect![[r#"
            warning  indexes      indexes are missing or not complete (nouns.orders.parent, nouns.orders.filter.status, nouns.orders.flat_filter.status); the next start of nouns serve creates them
            fault    stored model tables or columns were dropped (orders), and their values with them; restore a backup"#]]);
    }

    fn doctor_finds_a_unique_rule_without_its_index(backend: Backend) {
        let model = "title = \"Notes\"\n[resources.note.fields]\ncode = { type = \"text\", unique = true }";
        let server = Setup::new(backend).model(model).start();
        run_sql(backend, server.folder(), "DROP INDEX \"nouns.notes.unique.code\"");
        let ended = examine(&server, &["model.toml"]);
        assert!(ended.stdout.contains("fault    indexes      indexes are missing or not complete (nouns.notes.unique.code)"), "{ended:?}");
    }

    fn doctor_finds_users_passwords_and_clocks(backend: Backend) {
        let server = start_healthy(backend);
        let check = |expected: &Expect| assert_findings(&examine(&server, &[]), server.folder(), expected);
        fs::write(server.password_file(), "secret").unwrap();
        check(&expect![[r#"
            warning  password     FOLDER/nouns.admin-password holds the first password of admin in clear text; set another one, which removes the file: nouns user passwd admin --database <database> --key-file FOLDER/nouns.key
        "#]]);
        fs::remove_file(server.password_file()).unwrap();
        let sql = |text: &str| run_sql(backend, server.folder(), text);
        sql("UPDATE nouns_users SET roles = '[\"auditor\"]'");
        check(&expect![[r#"
            warning  users        users (1) have roles that the model does not declare (auditor), such as admin; set others with: nouns user roles --database <database> --key-file FOLDER/nouns.key
            warning  users        no enabled user has the role admin; add one with: nouns user add NAME --role admin --database <database> --key-file FOLDER/nouns.key
        "#]]);
        sql("UPDATE nouns_users SET roles = '[\"admin\"]'");
        sql("UPDATE nouns_changes SET time = '2099-01-01T00:00:00.000000Z' WHERE sequence = 1");
        check(&expect![[r#"
            warning  clock        the newest change, 1, is of <time>, which is in the future: the clock was ahead, or is behind now; let it be set by NTP
        "#]]);
        sql("DELETE FROM nouns_system WHERE name = 'model'");
        check(&expect![[r#"
            fault    stored model the database does not record its model; restore a backup
            warning  clock        the newest change, 1, is of <time>, which is in the future: the clock was ahead, or is behind now; let it be set by NTP
        "#]]);
    }
}

fn set_mode(file: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs statements on the file of a stopped server, as another program would.
fn edit(folder: &Path, statements: &str) {
    let connection = Connection::open(folder.join("nouns.db")).unwrap();
    connection.execute_batch(statements).unwrap();
}

/// The files of a healthy server on SQLite that was stopped.
struct StoppedServer(Vec<(String, Vec<u8>)>);

impl StoppedServer {
    fn new() -> Self {
        Self(contents(start_healthy(Backend::Sqlite).stop().path()))
    }

    /// Plants a fault into a copy of the files, and compares what is found.
    fn check(&self, plant: impl Fn(&Path), expected: &Expect) {
        let folder = Folder::new();
        for (name, bytes) in &self.0 {
            fs::write(folder.path().join(name), bytes).unwrap();
            set_mode(&folder.path().join(name), 0o600);
        }
        plant(folder.path());
        assert_findings(&examine_folder(folder.path()), folder.path(), expected);
    }
}

#[test]
fn doctor_finds_faults_of_sqlite_files() {
    let stopped = StoppedServer::new();
    stopped.check(|_| {}, &expect![""]);
    stopped.check(
        |folder| set_mode(&folder.join("nouns.db"), 0o644),
        &expect![[r#"
        warning  permissions  other users of this machine can read FOLDER/nouns.db, which holds password hashes (mode 644); revoke that with: chmod 600 FOLDER/nouns.db
    "#]],
    );
    stopped.check(
        |folder| fs::write(folder.join("nouns.db.part"), "a text of somebody").unwrap(),
        &expect![""],
    );
    stopped.check(
        |folder| fs::write(folder.join("nouns.db.part"), "").unwrap(),
        &expect![[r#"
        warning  leftover     FOLDER/nouns.db.part is left by a restore that was killed; remove it
    "#]],
    );
    stopped.check(
        |folder| damage(&folder.join("nouns.db")),
        &expect![[r#"
            fault    database     nouns.db is damaged (Tree <n> page <n>: btreeInitPage() returns error code 11); stop the server, and restore a backup: nouns restore FILE --force
        "#]],
    );
    stopped.check(
        |folder| {
            let bytes = fs::read(folder.join("nouns.db")).unwrap();
            fs::write(folder.join("nouns.db"), &bytes[..60]).unwrap();
        },
        &expect![[r#"
            fault    database     nouns.db is damaged (it is truncated: <n> bytes are left); restore it from a backup, or name another --database
        "#]],
    );
    stopped.check(
        |folder| fs::write(folder.join("nouns.db"), "a letter ".repeat(99)).unwrap(),
        &expect![[r#"
            fault    database     nouns.db is not an SQLite database; name another --database
        "#]],
    );
}

/// Regression: a mistake in the model hid all other faults.
#[test]
fn doctor_with_a_model_that_has_mistakes_checks_the_rest() {
    let server = start_healthy(Backend::Sqlite);
    let folder = server.stop();
    let path = folder.path();
    fs::write(path.join("nouns.toml"), "title = 7\n").unwrap();
    let ended = examine_folder(path);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("expected a text in quotes"), "{ended:?}");
    expect![[r#"
        fault    model        it cannot be used; correct its mistakes: nouns check; the checks below need nothing else of it
        ok       database     nouns.db: <n> bytes, no page is damaged
        ok       permissions  only this user and its group can use the files of the database
        ok       disk         <n> MB are free on the disk of .
        ok       key          nouns.key fits the database
        ok       clock        no change is in the future
    "#]].assert_eq(&mask(&ended.stdout, path));
    fs::write(path.join("nouns.toml"), "title = \n").unwrap();
    fs::remove_file(path.join("nouns.key")).unwrap();
    expect![[r#"
        fault    model        it cannot be used; correct its mistakes: nouns check; name the database with --database to check the rest
    "#]].assert_eq(&mask(&examine_folder(path).stdout, path));
    let ended = run_nouns(path, &["doctor", "--database", "sqlite:nouns.db"]);
    expect![[r#"
        fault    model        it cannot be used; correct its mistakes: nouns check; the checks below need nothing else of it
        ok       database     nouns.db: <n> bytes, no page is damaged
        ok       permissions  only this user and its group can use the files of the database
        ok       disk         <n> MB are free on the disk of .
        fault    key          there is no key file nouns.key, and this database has one, of fingerprint <fingerprint>; put it back, or name it with --key-file; if it is lost: nouns key rotate --lost --database <database>
        ok       clock        no change is in the future
    "#]].assert_eq(&mask(&ended.stdout, path));
}

#[test]
fn doctor_finds_sqlite_files_of_others_and_lost_ones() {
    let stopped = StoppedServer::new();
    stopped.check(
        |folder| File::create(folder.join("nouns.db-wal")).unwrap().set_len(300 << 20).unwrap(),
        &expect![[r#"
            warning  wal          the write-ahead log has <n> bytes: a backup or an export has let it grow, or another process reads the database without a pause (fuser nouns.db shows it); afterwards it shrinks by 2 MiB at each reset, and at a restart of the server
            warning  permissions  other users of this machine can read FOLDER/nouns.db-wal, which holds password hashes (mode 644); revoke that with: chmod 600 FOLDER/nouns.db-wal
        "#]],
    );
    stopped.check(
        |folder| edit(folder, "PRAGMA user_version = 9999"),
        &expect![[r#"
        fault    database     nouns.db was written by a newer nouns (format 9999, this one supports 1); use that version, or name another --database
    "#]],
    );
    stopped.check(
        |folder| edit(folder, "PRAGMA application_id = 1"),
        &expect![[r#"
        fault    database     nouns.db is a database of another program; name another --database
    "#]],
    );
    stopped.check(
        |folder| fs::remove_file(folder.join("nouns.db")).unwrap(),
        &expect![[r#"
        fault    database     there is no database nouns.db, but nouns.key, which a server makes after it: the database was lost or moved; put it back, or restore it from a backup; if a new one is meant, move nouns.key away, or name the key with --key-file
    "#]],
    );
    stopped.check(
        |folder| {
            fs::remove_file(folder.join("nouns.db")).unwrap();
            fs::remove_file(folder.join("nouns.key")).unwrap();
        },
        &expect![[r#"
            warning  database     there is no database nouns.db yet; create it with: nouns serve
        "#]],
    );
    stopped.check(
        |folder| {
            edit(
                folder,
                "PRAGMA foreign_keys = off; INSERT INTO orders (id, customer_id, created_at, updated_at, version, \
                 items, status) VALUES ('01a1e49c-88d1-7a24-91dd-01e0a26dddfc', \
                 '01a1e49c-88d1-7a24-91dd-01e0a26dddfd', '2026-01-01T00:00:00.000000Z', \
                 '2026-01-01T00:00:00.000000Z', 1, '[]', 'placed')",
            );
        },
        &expect![[r#"
            warning  references   rows of orders refer to rows of customers that do not exist, which another program has caused; list them with: sqlite3 -readonly nouns.db 'PRAGMA foreign_key_check'
        "#]],
    );
}
