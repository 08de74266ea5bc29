//! `nouns backup` and `nouns restore`, and the commands of PostgreSQL that they name.

mod disk;
mod interrupted;
mod refusals;
mod replaced;
mod settings;
mod under_load;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use expect_test::expect;
use rusqlite::Connection;

use crate::harness::{ANN, Backend, FinishedProcess, Folder, Server, Setup, run_nouns, run_sql};

const BEA: &str = r#"{"customer":{"name":"Bea","email":"bea@example.com"}}"#;

/// Runs a command that must succeed, and returns its output and its messages.
fn run(folder: &Path, args: &[&str]) -> String {
    let ended = run_nouns(folder, args);
    assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
    format!("{}{}", ended.stdout, ended.stderr)
}

/// Runs a command that must be refused, and returns its message.
fn refuse(folder: &Path, args: &[&str]) -> String {
    let FinishedProcess { code, stdout, stderr } = run_nouns(folder, args);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{args:?}: {stderr}");
    stderr.replace(folder.to_str().unwrap(), "FOLDER")
}

/// The files of a folder with their bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let entries = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let read = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    entries.map(read).collect()
}

/// A folder in which a store with one customer, Ann, was served and stopped.
fn stopped_store() -> Folder {
    let server = Server::on(Backend::Sqlite);
    server.create("/customers", ANN);
    server.stop()
}

/// Writes the model of a folder.
fn edit_model(folder: &Path, text: &str) {
    fs::write(folder.join("nouns.toml"), text).unwrap();
}

/// Overwrites a page of the table of customers.
pub(crate) fn damage(file: &Path) {
    let connection = Connection::open(file).unwrap();
    let sql = "SELECT rootpage FROM sqlite_master WHERE name = 'customers'";
    let page: u32 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    let page = page as usize;
    connection.close().unwrap();
    let mut bytes = fs::read(file).unwrap();
    bytes[(page - 1) * 4096 + 3..page * 4096].fill(0xAA);
    fs::write(file, bytes).unwrap();
}

/// The names of the stored customers.
fn customers(folder: &Path) -> String {
    run_sql(Backend::Sqlite, folder, "SELECT name FROM customers ORDER BY name").replace('\n', " ")
}

/// Users, the key's fingerprint and the change log are in the backup; the key is not.
#[test]
fn backup_of_a_running_server_is_restored_and_served() {
    let server = Setup::new(Backend::Sqlite).with_authentication().start();
    let admin = server.admin();
    let authorization = [("Authorization", admin.basic())];
    let headers: Vec<_> =
        authorization.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let created = server.request("POST /customers", &headers, ANN);
    assert_eq!(created.status, 201, "{created:?}");
    expect![[r#"
        nouns: wrote copy.db, 0.2 MB, verified, with the changes up to 2; the key is not in it: keep a copy of nouns.key in another place
    "#]]
    .assert_eq(&run(server.folder(), &["backup", "copy.db"]));
    let copy = server.folder().join("copy.db");
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let key = fs::read_to_string(server.key_file()).unwrap();
    let bytes = fs::read(&copy).unwrap();
    assert!(
        !bytes.windows(40).any(|window| window == &key.as_bytes()[..40]),
        "the key is in the copy"
    );
    assert_eq!(server.request("POST /customers", &headers, BEA).status, 201);

    let place = Folder::new();
    let file = copy.to_str().unwrap();
    let said = run(place.path(), &["restore", file]).replace(file, "FILE");
    let fingerprint = regex::Regex::new("fingerprint [0-9a-f]+").unwrap();
    expect![[r#"
        nouns: restored nouns.db from FILE, 0.2 MB, verified, with the changes up to 2
        nouns: warning: there is no key file nouns.key, and this database has one, of fingerprint …; put it back, or name it with --key-file; if it is lost: nouns key rotate --lost
    "#]]
    .assert_eq(&fingerprint.replace(&said, "fingerprint …"));
    assert_eq!(files(place.path()).into_keys().collect::<Vec<_>>(), ["nouns.db", "nouns.db-lock"]);
    fs::copy(server.key_file(), place.path().join("nouns.key")).unwrap();
    let said = run(place.path(), &["restore", file, "--force"]).replace(file, "FILE");
    expect![[r#"
        nouns: restored nouns.db from FILE, 0.2 MB, verified, with the changes up to 2; the key in nouns.key fits it
    "#]]
    .assert_eq(&said);

    let restored = Setup::new(Backend::Sqlite).with_authentication().start_in(place);
    let list = restored.request("GET /customers", &headers, "").json();
    assert_eq!(list["customers"], serde_json::json!([created.json()["customer"]]));
    // The Digest credentials are sealed by the key.
    let digest = admin.log_in(&restored, "/customers").request(&restored, "GET /customers", "");
    assert_eq!((digest.status, digest.json()), (200, list));
}

/// A model file names the database and the key.
#[test]
fn backup_and_restore_follow_the_model_file() {
    let folder = Folder::new();
    let model = "title = \"Notes\"\n[server]\ndatabase = \"sqlite:data.db\"\nkey_file = \"secret.key\"\n\
                 [resources.note.fields]\ntext = { type = \"text\" }\n";
    let server = Setup::new(Backend::Sqlite)
        .model(model)
        .database("data.db")
        .key_file("secret.key".into())
        .start_in(folder);
    expect![[r#"
        nouns: wrote copy.db, 0.2 MB, verified, with the changes up to 1; the key is not in it: keep a copy of secret.key in another place
    "#]]
    .assert_eq(&run(server.folder(), &["backup", "copy.db", "model.toml"]));
    let folder = server.stop();
    expect![[r#"
        nouns: restored data.db from copy.db, 0.2 MB, verified, with the changes up to 1; the key in secret.key fits it
    "#]]
    .assert_eq(&run(folder.path(), &["restore", "copy.db", "model.toml", "--force"]));
}

/// It reads the database without changing it, or anything beside it.
#[test]
fn backup_of_a_stopped_or_killed_server_changes_nothing() {
    let stopped = stopped_store();
    let server = Server::on(Backend::Sqlite);
    server.create("/customers", ANN);
    let killed = server.kill();
    assert!(!fs::read(killed.path().join("nouns.db-wal")).unwrap().is_empty());
    for folder in [stopped, killed] {
        let before = files(folder.path());
        let backups = Folder::new();
        let copy = backups.path().join("copy.db");
        run(folder.path(), &["backup", copy.to_str().unwrap()]);
        let mut after = files(folder.path());
        // The index of the WAL has the marks of its readers.
        let index = after.remove("nouns.db-shm").is_some();
        assert_eq!(index, before.contains_key("nouns.db-shm"));
        let before: BTreeMap<_, _> =
            before.into_iter().filter(|(name, _)| name != "nouns.db-shm").collect();
        assert!(after == before, "{:?} were {:?}", after.keys(), before.keys());
        assert_eq!(files(backups.path()).into_keys().collect::<Vec<_>>(), ["copy.db"]);
        fs::rename(copy, backups.path().join("nouns.db")).unwrap();
        assert_eq!(customers(backups.path()), "Ann ");
    }
}

/// A copy that another program's mistake is in is better than none.
#[test]
fn backup_with_broken_references_warns() {
    let server = Server::on(Backend::Sqlite);
    let customer = server.create("/customers", ANN);
    server.create(
        &format!("{customer}/orders"),
        r#"{"order":{"items":[{"product":"tea","unit_price":3}]}}"#,
    );
    run_sql(
        Backend::Sqlite,
        server.folder(),
        "PRAGMA foreign_keys = off; DELETE FROM customers; SELECT 1",
    );
    expect![[r#"
        nouns: wrote copy.db, 0.2 MB, verified, with the changes up to 2
        nouns: warning: 1 rows refer to rows that do not exist, which another program has caused; the copy has them too; list them with: sqlite3 -readonly nouns.db 'PRAGMA foreign_key_check'
    "#]]
    .assert_eq(&run(server.folder(), &["backup", "copy.db"]));
}
