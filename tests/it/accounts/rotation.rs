//! Rotation of the encryption key: while servers run, interrupted at each step, begun on one machine
//! and finished on another.

use super::{AccountsFixture, AuthenticatedServer, DEBUG_EXECUTABLE, PASSWORD, run_to_end};
use crate::harness::{Backend, FinishedProcess};

/// `nouns key rotate` with an injected panic.
fn rotate_with_fault(desk: &AccountsFixture, fault: &str) -> FinishedProcess {
    let command = desk.with_key(&["key", "rotate"]);
    // Only a debug build has injected faults.
    let mut debug = std::process::Command::new(DEBUG_EXECUTABLE);
    debug.args(command.get_args()).env_clear().current_dir(desk.folder.path());
    debug.env("NOUNS_FAULT", fault);
    run_to_end(&mut debug, "")
}

fn assert_logins_work(server: &AuthenticatedServer) {
    for name in ["ann", "bob"] {
        assert_eq!(server.status("--digest", name, PASSWORD), "200", "{name}");
    }
}

/// Kills the server, and starts it again on the same database.
fn kill_and_restart(desk: &AccountsFixture, server: AuthenticatedServer) -> AuthenticatedServer {
    drop(server);
    desk.serve()
}

/// The old key decrypts nothing in the database any more.
fn assert_old_key_decrypts_nothing(desk: &AccountsFixture, old: &str) {
    let new = desk.key_text();
    assert!(!new.contains(old.trim()) && new.lines().count() == 1, "the old key is gone");
    desk.write_key(old);
    let said = desk.run_to_failure(&["user", "passwd", "ann", "--password-stdin"], PASSWORD);
    assert!(said.starts_with("the key in nouns.key has the fingerprint "), "{said}");
    desk.write_key(&new);
}

on_every_backend! {
    fn key_rotation_leaves_running_servers_working(backend: Backend) {
        let desk = AccountsFixture::on(backend);
        desk.add("ann");
        desk.add("bob");
        let server = desk.serve();
        assert_logins_work(&server);
        let (old, before) = (desk.key_text(), desk.fingerprint());
        let said = desk.run_to_success(&["key", "rotate"], "");
        assert_eq!(said, "nouns: rotated the key in nouns.key; resealed the credentials of 2 users\n");
        assert_ne!(desk.fingerprint(), before);
        assert_logins_work(&server);
        assert_old_key_decrypts_nothing(&desk, &old);
        let server = kill_and_restart(&desk, server);
        assert_logins_work(&server);
        let again = desk.run_to_success(&["key", "rotate"], "");
        assert!(again.ends_with("resealed the credentials of 2 users\n"), "{again}");
        assert_logins_work(&server);
    }

    /// The command is killed at every step in turn; logins work all the time, and the next run
    /// finishes.
    fn key_rotation_interrupted_at_any_step_is_finished_by_the_next_run(backend: Backend) {
        let desk = AccountsFixture::on(backend);
        desk.add("ann");
        desk.add("bob");
        let mut steps = 0;
        let mut server = desk.serve();
        for fault in (1..).map(|step| format!("rotate:{step}")).take(20) {
            let (old, before) = (desk.key_text(), desk.fingerprint());
            let ended = rotate_with_fault(&desk, &fault);
            assert_logins_work(&server);
            if ended.code == Some(0) {
                break;
            }
            steps += 1;
            assert!(ended.stderr.contains("planted at rotate"), "{ended:?}");
            // A server that starts just now accepts both logins too.
            if steps % 3 == 0 {
                server = kill_and_restart(&desk, server);
                assert_logins_work(&server);
            }
            desk.run_to_success(&["key", "rotate"], "");
            assert_logins_work(&server);
            assert_ne!(desk.fingerprint(), before);
            assert_old_key_decrypts_nothing(&desk, &old);
        }
        assert_eq!(steps, 8);
        for fault in ["key_written:1", "key_written:2"] {
            assert_eq!(rotate_with_fault(&desk, fault).code, Some(1));
            assert_logins_work(&server);
        }
        desk.run_to_success(&["key", "rotate"], "");
        assert_logins_work(&server);
        let names = std::fs::read_dir(desk.folder.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(!names.contains(&"nouns.key.new".to_owned()), "{names:?}");
    }

    /// Each of two machines has a copy of the key file.
    fn key_rotation_begin_writes_both_keys_for_other_machines(backend: Backend) {
        let desk = AccountsFixture::on(backend);
        desk.add("ann");
        desk.add("bob");
        let (old, before) = (desk.key_text(), desk.fingerprint());
        let said = desk.run_to_success(&["key", "rotate", "--begin"], "");
        assert!(said.starts_with("nouns: nouns.key holds the new key and the old one; copy it"), "{said}");
        let both = desk.key_text();
        assert_eq!((both.lines().count(), both.lines().nth(1)), (2, old.lines().next()));
        assert_eq!(desk.fingerprint(), before);
        // The other machine still has the old file, and must not begin a rotation of its own.
        desk.write_key(&old);
        let other = desk.run_to_failure(&["key", "rotate"], "");
        assert!(other.starts_with("a rotation to the key of fingerprint "), "{other}");
        assert_eq!(desk.key_text(), old);
        let server = desk.serve();
        assert_logins_work(&server);
        desk.write_key(&both);
        desk.run_to_success(&["key", "rotate"], "");
        assert_eq!(desk.key_text().lines().next(), both.lines().next(), "the key that was begun with");
        assert_logins_work(&server);
    }
}

/// Two rotations at once on one machine.
#[test]
fn key_rotation_concurrent_is_refused() {
    let desk = AccountsFixture::on(Backend::Sqlite);
    desk.add("ann");
    let folder = std::fs::File::open(desk.folder.path()).unwrap();
    folder.lock().unwrap();
    let said = desk.run_to_failure(&["key", "rotate"], "");
    assert_eq!(
        said,
        "another nouns is writing the key file nouns.key; try again when it has ended"
    );
    drop(folder);
    desk.run_to_success(&["key", "rotate"], "");
}

#[test]
fn key_rotation_without_a_key_is_refused() {
    let desk = AccountsFixture::without_database(Backend::Sqlite);
    let said = desk.run_to_failure(&["key", "rotate"], "");
    assert!(said.starts_with("there is no database "), "{said}");
    // A server under `--open` makes a database without a key.
    desk.create_tables(&desk.database());
    let said = desk.run_to_failure(&["key", "rotate"], "");
    assert!(said.starts_with("this database has no key yet; "), "{said}");
    assert!(!desk.key_file().exists());
}
