//! Rotation of the encryption key: while servers run, interrupted at each step, begun on one machine
//! and finished on another.

use super::{AccountsFixture, AuthenticatedServer, DEBUG_EXECUTABLE, PASSWORD, run_to_end};
use crate::harness::{Backend, FinishedProcess};

/// `nouns key rotate` with an injected panic.
fn rotate_with_fault(accounts: &AccountsFixture, fault: &str) -> FinishedProcess {
    let command = accounts.with_key(&["key", "rotate"]);
    // Only a debug build has injected faults.
    let mut debug = std::process::Command::new(DEBUG_EXECUTABLE);
    debug.args(command.get_args()).env_clear().current_dir(accounts.folder.path());
    debug.env("NOUNS_FAULT", fault);
    run_to_end(&mut debug, "")
}

fn assert_logins_work(server: &AuthenticatedServer) {
    for name in ["ann", "bob"] {
        assert_eq!(server.status("--digest", name, PASSWORD), "200", "{name}");
    }
}

/// Kills the server, and starts it again on the same database.
fn kill_and_restart(
    accounts: &AccountsFixture,
    server: AuthenticatedServer,
) -> AuthenticatedServer {
    drop(server);
    accounts.serve()
}

/// The old key decrypts nothing in the database any more.
fn assert_old_key_decrypts_nothing(accounts: &AccountsFixture, old: &str) {
    let new = accounts.key_text();
    assert!(!new.contains(old.trim()) && new.lines().count() == 1, "the old key is gone");
    accounts.write_key(old);
    let message = accounts.run_to_failure(&["user", "passwd", "ann", "--password-stdin"], PASSWORD);
    assert!(message.starts_with("the key in nouns.key has the fingerprint "), "{message}");
    accounts.write_key(&new);
}

on_every_backend! {
    fn key_rotation_leaves_running_servers_working(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        accounts.add("ann");
        accounts.add("bob");
        let server = accounts.serve();
        assert_logins_work(&server);
        let (old, before) = (accounts.key_text(), accounts.fingerprint());
        let output = accounts.run_to_success(&["key", "rotate"], "");
        assert_eq!(output, "nouns: rotated the key in nouns.key; resealed the credentials of 2 users\n");
        assert_ne!(accounts.fingerprint(), before);
        assert_logins_work(&server);
        assert_old_key_decrypts_nothing(&accounts, &old);
        let server = kill_and_restart(&accounts, server);
        assert_logins_work(&server);
        let again = accounts.run_to_success(&["key", "rotate"], "");
        assert!(again.ends_with("resealed the credentials of 2 users\n"), "{again}");
        assert_logins_work(&server);
    }

    /// The command is killed at every step in turn; logins work all the time, and the next run
    /// finishes.
    fn key_rotation_interrupted_at_any_step_is_finished_by_the_next_run(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        accounts.add("ann");
        accounts.add("bob");
        let mut steps = 0;
        let mut server = accounts.serve();
        for fault in (1..).map(|step| format!("rotate:{step}")).take(20) {
            let (old, before) = (accounts.key_text(), accounts.fingerprint());
            let ended = rotate_with_fault(&accounts, &fault);
            assert_logins_work(&server);
            if ended.code == Some(0) {
                break;
            }
            steps += 1;
            assert!(ended.stderr.contains("planted at rotate"), "{ended:?}");
            // A server that starts just now accepts both logins too.
            if steps % 3 == 0 {
                server = kill_and_restart(&accounts, server);
                assert_logins_work(&server);
            }
            accounts.run_to_success(&["key", "rotate"], "");
            assert_logins_work(&server);
            assert_ne!(accounts.fingerprint(), before);
            assert_old_key_decrypts_nothing(&accounts, &old);
        }
        assert_eq!(steps, 8);
        for fault in ["key_written:1", "key_written:2"] {
            assert_eq!(rotate_with_fault(&accounts, fault).code, Some(1));
            assert_logins_work(&server);
        }
        accounts.run_to_success(&["key", "rotate"], "");
        assert_logins_work(&server);
        let names = std::fs::read_dir(accounts.folder.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(!names.contains(&"nouns.key.new".to_owned()), "{names:?}");
    }

    /// Each of two machines has a copy of the key file.
    fn key_rotation_begin_writes_both_keys_for_other_machines(backend: Backend) {
        let accounts = AccountsFixture::on(backend);
        accounts.add("ann");
        accounts.add("bob");
        let (old, before) = (accounts.key_text(), accounts.fingerprint());
        let output = accounts.run_to_success(&["key", "rotate", "--begin"], "");
        assert!(output.starts_with("nouns: nouns.key holds the new key and the old one; copy it"), "{output}");
        let both = accounts.key_text();
        assert_eq!((both.lines().count(), both.lines().nth(1)), (2, old.lines().next()));
        assert_eq!(accounts.fingerprint(), before);
        // The other machine still has the old file, and must not begin a rotation of its own.
        accounts.write_key(&old);
        let other = accounts.run_to_failure(&["key", "rotate"], "");
        assert!(other.starts_with("a rotation to the key of fingerprint "), "{other}");
        assert_eq!(accounts.key_text(), old);
        let server = accounts.serve();
        assert_logins_work(&server);
        accounts.write_key(&both);
        accounts.run_to_success(&["key", "rotate"], "");
        assert_eq!(accounts.key_text().lines().next(), both.lines().next(), "the key that was begun with");
        assert_logins_work(&server);
    }
}

/// Two rotations at once on one machine.
#[test]
fn key_rotation_concurrent_is_refused() {
    let accounts = AccountsFixture::on(Backend::Sqlite);
    accounts.add("ann");
    let folder = std::fs::File::open(accounts.folder.path()).unwrap();
    folder.lock().unwrap();
    let message = accounts.run_to_failure(&["key", "rotate"], "");
    assert_eq!(
        message,
        "another nouns is writing the key file nouns.key; try again when it has ended"
    );
    // A process that another test has just forked may have the folder open for a moment longer.
    folder.unlock().unwrap();
    accounts.run_to_success(&["key", "rotate"], "");
}

#[test]
fn key_rotation_without_a_key_is_refused() {
    let accounts = AccountsFixture::without_database(Backend::Sqlite);
    let message = accounts.run_to_failure(&["key", "rotate"], "");
    assert!(message.starts_with("there is no database "), "{message}");
    // A server under `--open` makes a database without a key.
    accounts.create_tables(&accounts.database());
    let message = accounts.run_to_failure(&["key", "rotate"], "");
    assert!(message.starts_with("this database has no key yet; "), "{message}");
    assert!(!accounts.key_file().exists());
}
