//! Rotation of the encryption key: while servers run, interrupted at each step, begun on one machine
//! and finished on another.

use super::{DEBUG, Desk, PASSWORD, Serving, end};
use crate::harness::{Backend, Ended};

/// `nouns key rotate` with an injected panic.
fn interrupted(desk: &Desk, fault: &str) -> Ended {
    let command = desk.with_key(&["key", "rotate"]);
    // Only a debug build has injected faults.
    let mut debug = std::process::Command::new(DEBUG);
    debug.args(command.get_args()).env_clear().current_dir(desk.folder.path());
    debug.env("NOUNS_FAULT", fault);
    end(&mut debug, "")
}

fn assert_both_let_in(server: &Serving) {
    for name in ["ann", "bob"] {
        assert_eq!(server.status("--digest", name, PASSWORD), "200", "{name}");
    }
}

/// Kills the server, and starts it again on the same database.
fn restarted(desk: &Desk, server: Serving) -> Serving {
    drop(server);
    desk.serve()
}

/// The old key decrypts nothing in the database any more.
fn assert_old_is_useless(desk: &Desk, old: &str) {
    let new = desk.key_text();
    assert!(!new.contains(old.trim()) && new.lines().count() == 1, "the old key is gone");
    desk.write_key(old);
    let said = desk.refused(&["user", "passwd", "ann", "--password-stdin"], PASSWORD);
    assert!(said.starts_with("the key in nouns.key has the fingerprint "), "{said}");
    desk.write_key(&new);
}

on_every_backend! {
    fn key_rotation_leaves_running_servers_working(backend: Backend) {
        let desk = Desk::on(backend);
        desk.add("ann");
        desk.add("bob");
        let server = desk.serve();
        assert_both_let_in(&server);
        let (old, before) = (desk.key_text(), desk.fingerprint());
        let said = desk.done(&["key", "rotate"], "");
        assert_eq!(said, "nouns: rotated the key in nouns.key; sealed anew for 2 users\n");
        assert_ne!(desk.fingerprint(), before);
        assert_both_let_in(&server);
        assert_old_is_useless(&desk, &old);
        let server = restarted(&desk, server);
        assert_both_let_in(&server);
        let again = desk.done(&["key", "rotate"], "");
        assert!(again.ends_with("sealed anew for 2 users\n"), "{again}");
        assert_both_let_in(&server);
    }

    /// The command is killed at every step in turn; logins work all the time, and the next run
    /// finishes.
    fn key_rotation_interrupted_at_any_step_is_finished_by_the_next_run(backend: Backend) {
        let desk = Desk::on(backend);
        desk.add("ann");
        desk.add("bob");
        let mut steps = 0;
        let mut server = desk.serve();
        for fault in (1..).map(|step| format!("rotate:{step}")).take(20) {
            let (old, before) = (desk.key_text(), desk.fingerprint());
            let ended = interrupted(&desk, &fault);
            assert_both_let_in(&server);
            if ended.code == Some(0) {
                break;
            }
            steps += 1;
            assert!(ended.stderr.contains("planted at rotate"), "{ended:?}");
            // A server that starts just now accepts both logins too.
            if steps % 3 == 0 {
                server = restarted(&desk, server);
                assert_both_let_in(&server);
            }
            desk.done(&["key", "rotate"], "");
            assert_both_let_in(&server);
            assert_ne!(desk.fingerprint(), before);
            assert_old_is_useless(&desk, &old);
        }
        assert_eq!(steps, 8);
        for fault in ["key_written:1", "key_written:2"] {
            assert_eq!(interrupted(&desk, fault).code, Some(1));
            assert_both_let_in(&server);
        }
        desk.done(&["key", "rotate"], "");
        assert_both_let_in(&server);
        let names = std::fs::read_dir(desk.folder.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(!names.contains(&"nouns.key.new".to_owned()), "{names:?}");
    }

    /// Each of two machines has a copy of the key file.
    fn key_rotation_begin_writes_both_keys_for_other_machines(backend: Backend) {
        let desk = Desk::on(backend);
        desk.add("ann");
        desk.add("bob");
        let (old, before) = (desk.key_text(), desk.fingerprint());
        let said = desk.done(&["key", "rotate", "--begin"], "");
        assert!(said.starts_with("nouns: nouns.key holds the new key and the old one; copy it"), "{said}");
        let both = desk.key_text();
        assert_eq!((both.lines().count(), both.lines().nth(1)), (2, old.lines().next()));
        assert_eq!(desk.fingerprint(), before);
        // The other machine still has the old file, and must not begin a rotation of its own.
        desk.write_key(&old);
        let other = desk.refused(&["key", "rotate"], "");
        assert!(other.starts_with("a rotation to the key of fingerprint "), "{other}");
        assert_eq!(desk.key_text(), old);
        let server = desk.serve();
        assert_both_let_in(&server);
        desk.write_key(&both);
        desk.done(&["key", "rotate"], "");
        assert_eq!(desk.key_text().lines().next(), both.lines().next(), "the key that was begun with");
        assert_both_let_in(&server);
    }
}

/// Two rotations at once on one machine.
#[test]
fn key_rotation_concurrent_is_refused() {
    let desk = Desk::on(Backend::Sqlite);
    desk.add("ann");
    let folder = std::fs::File::open(desk.folder.path()).unwrap();
    folder.lock().unwrap();
    let said = desk.refused(&["key", "rotate"], "");
    assert_eq!(
        said,
        "another nouns is writing the key file nouns.key; try again when it has ended"
    );
    drop(folder);
    desk.done(&["key", "rotate"], "");
}

#[test]
fn key_rotation_without_a_key_is_refused() {
    let desk = Desk::bare(Backend::Sqlite);
    let said = desk.refused(&["key", "rotate"], "");
    assert!(said.starts_with("there is no database "), "{said}");
    // A server under `--open` makes a database without a key.
    desk.make(&desk.database());
    let said = desk.refused(&["key", "rotate"], "");
    assert!(said.starts_with("this database has no key yet; "), "{said}");
    assert!(!desk.key_file().exists());
}
