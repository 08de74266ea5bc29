//! The encryption key: where it is found, when it is created, and which keys are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{AccountsFixture, PASSWORD, run_to_end, run_to_failure};
use crate::harness::Backend;

const ADD: [&str; 4] = ["user", "add", "ann", "--password-stdin"];

on_every_backend! {
    fn key_is_created_with_the_first_user_with_owner_only_permissions(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        assert!(!accounts.key_file().exists());
        accounts.run_to_success(&ADD, PASSWORD);
        let mode = fs::metadata(accounts.key_file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let key = accounts.key_text();
        assert_eq!((key.len(), key.ends_with("=\n")), (45, true));
        assert_eq!(accounts.fingerprint().len(), 32);
        accounts.run_to_success(&["user", "add", "bob", "--password-stdin"], PASSWORD);
        assert_eq!(accounts.key_text(), key, "made once");
        assert_eq!(accounts.serve().statuses_by_both_schemes("bob", PASSWORD), ["403", "403"], "proved, without a role");
        assert_eq!(accounts.key_text(), key);
    }

    /// The message names the remedy, and nothing is changed.
    fn key_of_another_database_is_refused(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        accounts.add("ann");
        let (key, stored) = (accounts.key_text(), accounts.fingerprint());
        let all = "SELECT * FROM nouns_users";
        let before = accounts.sql(all);
        let check = |expected: &str| {
            for args in [&["user", "add", "bob", "--password-stdin"][..], &["user", "passwd", "ann", "--password-stdin"], &["serve", "--listen", "127.0.0.1:0"], &["key", "rotate"]] {
                let message = accounts.run_to_failure(args, PASSWORD);
                assert!(message.starts_with(expected), "{args:?}: {message}");
                assert!(!message.contains(key.trim()) && !message.contains(AccountsFixture::foreign_key().trim()));
            }
            assert_eq!((accounts.sql(all), accounts.fingerprint()), (before.clone(), stored.clone()));
            // Commands that need no key still work.
            assert!(accounts.run_to_success(&["user", "list"], "").contains("ann"));
        };
        fs::remove_file(accounts.key_file()).unwrap();
        check("there is no key file nouns.key, and this database has one, of fingerprint ");
        assert!(!accounts.key_file().exists());
        accounts.write_key(AccountsFixture::foreign_key());
        check("the key in nouns.key has the fingerprint 84baa24011f6d103bbfd198463ae16f9, and this database belongs to ");
        accounts.write_key("c2hvcnQ=");
        check("nouns.key holds no key: expected 32 bytes in base64, got 5; ");
        accounts.write_key(&key);
        fs::set_permissions(accounts.key_file(), fs::Permissions::from_mode(0o644)).unwrap();
        check("others on this machine can read or change the key file nouns.key (mode 644); ");
        fs::set_permissions(accounts.key_file(), fs::Permissions::from_mode(0o640)).unwrap();
        accounts.add("bob");
    }

    fn key_in_the_environment_is_used(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        let foreign = AccountsFixture::foreign_key();
        run_to_end(accounts.command(&ADD).env("NOUNS_KEY", foreign), PASSWORD);
        assert_eq!(accounts.fingerprint(), "84baa24011f6d103bbfd198463ae16f9");
        assert!(!accounts.key_file().exists(), "no file is made beside it");
        let both = run_to_failure(accounts.with_key(&ADD).env("NOUNS_KEY", foreign), PASSWORD);
        assert_eq!(both, "two keys are named, NOUNS_KEY and the key file nouns.key; leave one of them out");
        let rotated = run_to_failure(accounts.command(&["key", "rotate"]).env("NOUNS_KEY", foreign), "");
        assert!(rotated.starts_with("the key in NOUNS_KEY cannot be rotated, "), "{rotated}");
        // The same key as a file.
        accounts.write_key(foreign);
        accounts.run_to_success(&["user", "passwd", "ann", "--password-stdin"], "Hakuna Matata");
    }

    /// The key was lost with its disk: replacing it drops the sealed secrets and keeps the users.
    fn key_lost_can_be_replaced(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        accounts.add("ann");
        let here = accounts.run_to_failure(&["key", "rotate", "--lost"], "");
        assert_eq!(here, "nouns.key holds the key of this database: it is not lost");
        let old = accounts.key_text();
        accounts.write_key(AccountsFixture::foreign_key());
        let foreign = accounts.run_to_failure(&["key", "rotate", "--lost"], "");
        assert!(foreign.starts_with("nouns.key holds the key of another database, "), "{foreign}");
        assert_eq!(accounts.key_text(), AccountsFixture::foreign_key());
        fs::remove_file(accounts.key_file()).unwrap();
        let output = accounts.run_to_success(&["key", "rotate", "--lost"], "");
        assert_eq!(output, "nouns: wrote a new key to nouns.key in place of the lost one; dropped the Digest credentials of 1 user, who can use Digest again after their next login by Basic, where their realm offers it, or with a new password: nouns user passwd NAME\n");
        assert_ne!(accounts.key_text(), old);
        let server = accounts.serve();
        assert_eq!(server.status("--digest", "ann", PASSWORD), "401");
        assert_eq!(server.status("--basic", "ann", PASSWORD), "200");
        accounts.run_to_success(&["user", "passwd", "ann", "--password-stdin"], PASSWORD);
        assert_eq!(server.status("--digest", "ann", PASSWORD), "200");
    }
}

/// PostgreSQL has no folder that every server sees.
#[test]
fn key_file_with_postgres_must_be_given() {
    let accounts = AccountsFixture::without_database(Backend::Postgres);
    for args in [&ADD[..], &["serve", "--listen", "127.0.0.1:0"]] {
        let message = run_to_failure(&mut accounts.command(args), PASSWORD);
        assert!(message.starts_with("with PostgreSQL the key has to be named, "), "{message}");
        assert!(message.contains("--key-file") && message.contains("NOUNS_KEY"), "{message}");
    }
    assert!(!accounts.key_file().exists());
    assert_eq!(
        accounts.sql("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'nouns%'").trim(),
        "0"
    );
}

#[test]
fn key_file_not_given_is_next_to_the_sqlite_file() {
    let accounts = AccountsFixture::on(Backend::Sqlite);
    fs::create_dir(accounts.folder.path().join("data")).unwrap();
    let database = format!("sqlite:{}/data/my.db", accounts.folder.path().display());
    accounts.create_tables(&database);
    let add = |name: &str| {
        let mut command = accounts.command(&["user", "add", name, "--password-stdin"]);
        command.env("NOUNS_DATABASE", &database);
        command
    };
    // The flag takes precedence over the environment: the folder's own database.
    assert_eq!(run_to_end(&mut add("ann"), PASSWORD).code, Some(0));
    assert!(accounts.key_file().exists());
    let mut command = std::process::Command::new(crate::harness::EXECUTABLE);
    command.args(["user", "add", "ann", "--password-stdin", "--database", &database]);
    let ended = run_to_end(command.env_clear(), PASSWORD);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(accounts.folder.path().join("data/nouns.key").exists());
}

/// A mistake in the key must not leave an empty database behind.
#[test]
fn key_malformed_is_refused_before_anything_is_created() {
    let accounts = AccountsFixture::without_database(Backend::Sqlite);
    accounts.write_key("no key");
    let message = accounts.run_to_failure(&ADD, PASSWORD);
    assert!(message.starts_with("nouns.key holds no key: expected base64; "), "{message}");
    let no_folder =
        run_to_failure(accounts.command(&ADD).args(["--key-file", "nowhere/nouns.key"]), PASSWORD);
    assert_eq!(
        no_folder,
        "the folder nowhere does not exist; create it, or name another --key-file"
    );
    let list = accounts.run_to_failure(&["user", "list"], "");
    assert!(list.starts_with("there is no database "), "{list}");
    let names: Vec<_> = fs::read_dir(accounts.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["nouns.key"]);
}
