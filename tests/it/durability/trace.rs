//! Fault injection by strace between the server and its disk: it can kill the server at a call, fail
//! the call, or delay it.
//!
//! The kernel does the rest, and the executable is not modified.
//! Each thread has its own count of calls. The main thread creates and upgrades the tables, the
//! writer thread writes requests, so `when=7` is the first seventh call of either.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{Folder, Process, Server, Setup, wait_until};

/// The files of a database, by their suffixes.
pub const DATABASE: &[&str] = &[""];
pub const WAL: &[&str] = &["-wal"];
pub const BOTH: &[&str] = &["", "-wal"];
/// Any file, also temporary ones.
pub const ANY: &[&str] = &[];

/// Either, depending on SQLite's build; one executable uses one of them, for files and folders.
pub const SYNC: &str = "fsync,fdatasync";
/// The system calls by which the store changes files.
pub const CHANGES: [&str; 4] = ["pwrite64", SYNC, "ftruncate", "unlink"];

/// The file to which strace writes the traced calls.
const OUTPUT: &str = "calls.txt";

/// A fault at a system call.
#[derive(Debug, Clone)]
pub struct Injection<'a> {
    /// Such as `pwrite64`.
    pub calls: &'a str,
    pub files: &'a [&'a str],
    /// Such as `error=EIO`.
    pub effect: &'a str,
    /// Such as `7`, or `7+` for this and all that follow.
    pub when: String,
}

impl Injection<'_> {
    /// A server with this injection. The tracer is not its parent, so the server stays our child.
    pub fn set_up(&self, setup: Setup, folder: &Folder) -> Setup {
        let mut words = self.strace_arguments(folder.path());
        words.extend(["-D", "-qq"].map(str::to_owned));
        // With `--seccomp-bpf` only the traced system calls stop the server, which is faster. strace
        // cannot inject signals in this mode.
        if !self.effect.starts_with("signal") {
            words.push("--seccomp-bpf".to_owned());
        }
        setup.run_under(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Attaches this injection to a running server. Calls are counted from here.
    pub fn attach(&self, server: &Server) -> Process {
        let words = self.strace_arguments(server.folder());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["-p", &server.process_id().to_string()]);
        let tracer = Process::spawn(&mut command);
        wait_until("strace is attached", || tracer.stderr().contains("attached").then_some(()));
        tracer
    }

    fn strace_arguments(&self, folder: &Path) -> Vec<String> {
        let Self { calls, files, effect: what, when } = self;
        let trace = format!("trace={}", CHANGES.join(","));
        let inject = format!("inject={calls}:{what}:when={when}");
        let output = folder.join(OUTPUT).display().to_string();
        let words = ["strace", "-f", "-y", "-o", &output, "-e", &trace, "-e", &inject];
        let mut words: Vec<_> = words.map(str::to_owned).into();
        for end in *files {
            let path = folder.join(format!("nouns.db{end}")).display().to_string();
            words.extend(["-P".to_owned(), path]);
        }
        words
    }

    /// The call that has failed by now, with the path of its file.
    pub fn failed_call(folder: &Path) -> Option<String> {
        let text = fs::read_to_string(folder.join(OUTPUT)).unwrap_or_default();
        text.lines().find(|line| line.contains("(INJECTED)")).map(str::to_owned)
    }

    /// How many bytes of the WAL were synced, as long as it only grew.
    pub fn log_bytes_synced(folder: &Path) -> u64 {
        let (mut written, mut synced) = (0, 0);
        for line in fs::read_to_string(folder.join(OUTPUT)).unwrap().lines() {
            let Some((call, done)) = line.rsplit_once(" = ") else { continue };
            // A delayed call is followed by `(DELAYED)`.
            let result = done.split(' ').next().unwrap_or_default();
            // The last call may be incomplete.
            let Ok(count) = result.parse::<u64>() else { continue };
            if call.contains("sync(") {
                synced = written;
            } else if call.contains(" pwrite64(") && call.contains("-wal>") {
                let at = call.rsplit_once(", ").unwrap().1.trim_end().trim_end_matches(')');
                let at: u64 = at.parse().unwrap();
                assert!(at >= written, "the log file began anew: {line}");
                written = at + count;
            }
        }
        synced
    }
}
