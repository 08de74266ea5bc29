//! Backups and restores killed with SIGKILL at each call that makes something durable or visible.
//!
//! strace kills the process when it enters the call, so every state between two of them is seen.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{ANN, BEA, customers, files, run, stopped_store};
use crate::harness::{Backend, EXECUTABLE, Folder, Process, Server, Setup};

const CALLS: &str =
    "fsync,fdatasync,?rename,?renameat,?renameat2,?unlink,?unlinkat,ftruncate,pwrite64";
/// Runs end when nothing was left to kill; a run has far fewer calls.
const RUNS_MAX: usize = 2_000;

/// Runs a command, killed at its call number `at`. Returns whether it ended by itself.
fn run_killed(folder: &Path, args: &[&str], at: usize) -> bool {
    let mut command = Command::new("strace");
    let inject = format!("inject={CALLS}:signal=KILL:when={at}");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={CALLS}"), "-e", &inject]);
    command.arg(EXECUTABLE).args(args).env_clear().current_dir(folder);
    let ended = Process::spawn(&mut command).end();
    match ended.code {
        Some(0) => true,
        // strace ends by the signal that ended its child.
        None => false,
        Some(_) => panic!("{ended:?}"),
    }
}

/// Calls `check` after a kill at each call, with whether the command was killed; `prepare` makes the folder.
fn kill_at_each_call(
    args: &[&str],
    prepare: impl Fn() -> Folder,
    check: impl Fn(&Folder, bool),
) -> usize {
    for at in 1..RUNS_MAX {
        let folder = prepare();
        let is_done = run_killed(folder.path(), args, at);
        check(&folder, !is_done);
        if is_done {
            return at - 1;
        }
    }
    panic!("it was killed {RUNS_MAX} times and not done");
}

/// A copy of a folder's files.
fn copy_of(files: &std::collections::BTreeMap<String, Vec<u8>>) -> Folder {
    let folder = Folder::new();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

#[test]
fn backup_killed_at_each_call_leaves_no_file_or_a_whole_one() {
    let original = files(stopped_store().path());
    let kills = kill_at_each_call(
        &["backup", "copy.db"],
        || copy_of(&original),
        |folder, _| {
            let left = files(folder.path());
            if left.contains_key("copy.db") {
                let place = Folder::new();
                let file = folder.path().join("copy.db");
                run(place.path(), &["restore", file.to_str().unwrap()]);
                assert_eq!(customers(place.path()), "Ann ");
            } else {
                // The next attempt succeeds beside the files that the killed one has left.
                run(folder.path(), &["backup", "copy.db"]);
                assert!(!folder.path().join("copy.db.part").exists());
            }
            assert_eq!(customers(folder.path()), "Ann ");
        },
    );
    assert!(kills > 5, "{kills}");
}

/// The database is the old one, with all answered writes of a killed server, or the restored one.
#[test]
fn restore_killed_at_each_call_leaves_the_old_database_or_the_new_one() {
    let server = Server::on(Backend::Sqlite);
    server.create("/customers", ANN);
    run(server.folder(), &["backup", "copy.db"]);
    server.create("/customers", BEA);
    let original = files(server.kill().path());
    assert!(!original["nouns.db-wal"].is_empty());
    let kills = kill_at_each_call(
        &["restore", "copy.db", "--force"],
        || copy_of(&original),
        |folder, is_killed| {
            let stored = Setup::new(Backend::Sqlite).start_in(copy_of(&files(folder.path())));
            let list = stored.get("/customers").json();
            let names: Vec<_> =
                list["customers"].as_array().unwrap().iter().map(|item| &item["name"]).collect();
            match names.as_slice() {
                [ann] => assert_eq!(*ann, "Ann"),
                [ann, bea] => assert!(is_killed && *ann == "Ann" && *bea == "Bea", "{names:?}"),
                _ => panic!("{names:?}"),
            }
            // The next attempt succeeds beside the files that the killed one has left.
            run(folder.path(), &["restore", "copy.db", "--force"]);
            assert_eq!(customers(folder.path()), "Ann ");
        },
    );
    assert!(kills > 10, "{kills}");
}
