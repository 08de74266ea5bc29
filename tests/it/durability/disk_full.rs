//! A disk that fills up during a burst of 64 connections, and has room again.
//!
//! The disk is a small tmpfs in a mount namespace of the server's own.
//! The files are read through `/proc/PID/root` while the process is stopped, since the mount vanishes
//! with the process; a stopped process leaves the same files as one killed at that point.

use std::fs;
use std::path::{Path, PathBuf};

use super::ledger::Ledger;
use super::seeded_random::print_seed;
use super::serving::{judge_running_server, run_burst, setup, start};
use crate::harness::{Folder, Server, wait_until};

/// Mounts over the folder `$1` and runs the rest. Root may mount directly, and in a chroot cannot have
/// a user namespace.
const ON_A_SMALL_DISK: &str = r#"
    if unshare --mount true 2>/dev/null; then user=; else user=--map-root-user; fi
    exec unshare $user --mount sh -ec 'mount -t tmpfs -o size=6m none "$1"; shift; exec "$@"' sh "$@"
"#;
const FILLER_BYTES: usize = 3 << 20;

fn start_on_a_small_disk() -> Server {
    let folder = Folder::new();
    let path = folder.path().display().to_string();
    setup().run_under(&["sh", "-ec", ON_A_SMALL_DISK, "sh", &path]).start_in(folder)
}

/// The small disk, as seen from outside.
fn disk(server: &Server) -> PathBuf {
    let root = Path::new("/proc").join(server.process_id().to_string()).join("root");
    root.join(server.folder().strip_prefix("/").unwrap())
}

/// Kills the server and returns a copy of its disk.
fn kill(server: Server) -> Folder {
    server.pause();
    let folder = Folder::new();
    for entry in fs::read_dir(disk(&server)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if name.to_str().unwrap().starts_with("nouns.db") {
            fs::copy(&path, folder.path().join(name)).unwrap();
        }
    }
    drop(server);
    folder
}

/// Fills the disk by requests.
fn fill(server: &Server, ledger: &mut Ledger) {
    let turned_away = ledger.count_responses(503);
    wait_until("the disk is full", || {
        run_burst(server, ledger, 8);
        (ledger.count_responses(503) > turned_away + 200).then_some(())
    });
    assert_eq!(server.get("/customers?limit=5").status, 200);
    assert_eq!(server.get("/-/ready").status, 200);
    wait_until("the log has the cause", || {
        server.log().contains("database or disk is full").then_some(())
    });
}

#[test]
fn disk_full_and_kill_lose_nothing() {
    let mut ledger = Ledger::new(print_seed("full"));
    let server = start_on_a_small_disk();
    fs::write(disk(&server).join("filler"), vec![0; FILLER_BYTES]).unwrap();
    fill(&server, &mut ledger);
    let server = start(kill(server));
    let verdict = judge_running_server(&server, &mut ledger, "a full disk");
    assert!(verdict.open.is_empty(), "nobody is left without an answer: {verdict:?}");
    run_burst(&server, &mut ledger, 1);
    judge_running_server(&server, &mut ledger, "after a full disk");
}

#[test]
fn disk_full_then_freed_writes_resume() {
    let mut ledger = Ledger::new(print_seed("full"));
    let server = start_on_a_small_disk();
    let filler = disk(&server).join("filler");
    for round in 0..3 {
        // From the second time on there is less room than that, and all of it is used.
        drop(fs::write(&filler, vec![0; FILLER_BYTES]));
        fill(&server, &mut ledger);
        fs::remove_file(&filler).unwrap();
        let turned_away = ledger.count_responses(503);
        run_burst(&server, &mut ledger, 1);
        assert_eq!(ledger.count_responses(503), turned_away, "round {round}: there is room again");
    }
    let verdict = judge_running_server(&start(kill(server)), &mut ledger, "a disk that was full");
    println!("full disk: {} answered, {} turned away", verdict.answered, verdict.unavailable);
    assert!(verdict.open.is_empty(), "{verdict:?}");
}
