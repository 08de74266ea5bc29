//! A run of the real server under strace: its system calls on files, and the times of its responses.
//!
//! It only checks itself: the files derived from the trace must equal those on disk.
//! A response counts from the moment at which the server began to send it, in the same trace as its
//! writes and syncs, so that it is known at every point what had been answered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::disk::{SimulatedDisk, Survivors};
use super::strace::{CALLS, TraceLog, TracedCall};
use crate::durability::judge::{DatabaseContents, judge};
use crate::durability::ledger::{
    CHECKPOINT_PAGES, FRAME_BYTES, Ledger, LedgerEntry, RequestOutcome,
};
use crate::durability::seeded_random::SeededRandom;
use crate::durability::serving::{self, run_burst};
use crate::harness::{Folder, Process, Server, wait_until};

pub type Files = BTreeMap<String, Vec<u8>>;

/// Whether the disk syncs as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncBehaviour {
    Done,
    /// Reported as done, and not done.
    Skipped,
    /// The sync with this number fails, at a server that already runs, counted from the beginning of
    /// the trace. Another server then continues.
    Fails(usize),
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunParameters {
    pub seed: u64,
    pub initial_state: InitialState,
    pub connections: usize,
    /// Requests of each connection, of each of the servers.
    pub requests_each: usize,
    pub syncs: SyncBehaviour,
}

/// The state at the beginning of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialState {
    Nothing,
    /// A running server, with a WAL of at least this many bytes.
    Running {
        log_bytes: u64,
    },
}

impl InitialState {
    /// The server will soon checkpoint the WAL.
    pub const GROWN: Self = Self::Running { log_bytes: CHECKPOINT_PAGES * 9 / 10 * FRAME_BYTES };
}

/// How a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerEnd {
    Kill,
    Stop,
}

/// The record of a run.
#[derive(Debug)]
pub struct RecordedRun {
    pub before: Files,
    pub log: TraceLog,
    pub ledger: Ledger,
    /// The calls that sent the responses, by their request ids.
    answers: HashMap<String, usize>,
    /// Requests that were answered before the trace began.
    answered_before: BTreeSet<String>,
    /// The call after which the outcomes of the requests without a response were known.
    outcomes_known_from: usize,
}

impl RecordedRun {
    /// Several servers, one after the other on one database.
    pub fn record(work: RunParameters) -> Self {
        let mut ledger = Ledger::with_connection_count(work.seed, work.connections);
        let (mut traced, before) = match work.initial_state {
            InitialState::Nothing => {
                let folder = Folder::new();
                let before = files_in(folder.path());
                (TracedServer::start(folder, work.syncs), before)
            }
            InitialState::Running { log_bytes } => {
                TracedServer::attach(start_with_large_wal(&mut ledger, log_bytes), work.syncs)
            }
        };
        let answered_before: BTreeSet<_> =
            answered_request_ids(&ledger).map(str::to_owned).collect();
        let (mut log, mut settled_from) = (TraceLog::default(), usize::MAX);
        let ends: &[ServerEnd] = match work.syncs {
            SyncBehaviour::Done | SyncBehaviour::Skipped => {
                &[ServerEnd::Kill, ServerEnd::Stop, ServerEnd::Kill]
            }
            SyncBehaviour::Fails(_) => &[ServerEnd::Kill, ServerEnd::Kill],
        };
        for (number, end) in ends.iter().enumerate() {
            run_burst(&traced.server, &mut ledger, work.requests_each);
            let (steps_before, calls_before) = (log.steps.len(), log.calls.len());
            let folder = traced.end(*end, &mut log);
            let after = files_in(folder.path());
            // A call that was about to begin when its thread was killed may not have been made.
            if difference(&before, &log, &after).is_some() {
                log.remove_unfinished(steps_before);
            }
            assert_eq!(difference(&before, &log, &after), None);
            if number > 0 && matches!(work.syncs, SyncBehaviour::Fails(_)) {
                let sent = log.calls.iter().skip(calls_before);
                let first = sent.take_while(|call| !matches!(call, TracedCall::Send(_))).count();
                settled_from = calls_before + first;
            }
            if number + 1 == ends.len() {
                break;
            }
            traced = TracedServer::start(
                folder,
                if let SyncBehaviour::Fails(_) = work.syncs {
                    SyncBehaviour::Done
                } else {
                    work.syncs
                },
            );
            if let SyncBehaviour::Fails(_) = work.syncs {
                determine_outcomes(&traced.server, &mut ledger);
            }
        }
        let mut answers = response_calls(&log);
        let unknown = |id: &&str| !answers.contains_key(*id) && !answered_before.contains(*id);
        assert_eq!(
            answered_request_ids(&ledger).find(unknown),
            None,
            "an answer is not in the log"
        );
        if let SyncBehaviour::Fails(_) = work.syncs {
            // Requests that were answered with an unknown outcome are open in the ledger.
            let known: BTreeSet<_> = answered_request_ids(&ledger).collect();
            answers.retain(|id, _| known.contains(id.as_str()));
        }
        assert_eq!(answers.len() + answered_before.len(), answered_request_ids(&ledger).count());
        Self { before, log, ledger, answers, answered_before, outcomes_known_from: settled_from }
    }

    /// How many requests the trace has.
    pub fn requests(&self) -> usize {
        self.answers.len()
    }

    /// How many responses had been sent when this call had begun, and no later one.
    pub fn answered_count(&self, last: usize) -> usize {
        self.answers.values().filter(|call| **call <= last).count()
    }

    /// The ledger as it was then.
    pub fn ledger_at(&self, last: usize) -> Vec<(&LedgerEntry, &RequestOutcome)> {
        let is_answered = |id: &str| {
            self.answered_before.contains(id)
                || self.answers.get(id).is_some_and(|call| *call <= last)
        };
        self.ledger.as_of(is_answered, self.outcomes_known_from <= last)
    }
}

/// An idle server, with a WAL of at least this many bytes.
fn start_with_large_wal(ledger: &mut Ledger, log_bytes: u64) -> Server {
    let server = serving::start(Folder::new());
    let log = server.folder().join("nouns.db-wal");
    while fs::metadata(&log).unwrap().len() < log_bytes {
        run_burst(&server, ledger, 1);
    }
    server
}

/// Determines the outcomes of the requests without a response.
fn determine_outcomes(server: &Server, ledger: &mut Ledger) {
    let found = DatabaseContents::read(server.folder()).unwrap();
    let verdict = judge(&ledger.now(), &found);
    verdict.assert_sound("the page cache");
    ledger.record_outcomes(&verdict.open, &found.stored());
}

/// The ids of the requests that were answered.
fn answered_request_ids(ledger: &Ledger) -> impl Iterator<Item = &str> {
    ledger.entries().filter_map(|entry| match &entry.outcome {
        RequestOutcome::Answered(answered) => Some(answered.request_id.as_str()),
        _ => None,
    })
}

/// A server, and its trace.
#[derive(Debug)]
struct TracedServer {
    server: Server,
    /// The strace process, where it is not the child of the server.
    tracer: Option<Process>,
    output: Folder,
}

/// The arguments that make strace log every call, with all bytes of each write.
fn strace_arguments(output: &Folder, syncs: SyncBehaviour) -> Vec<String> {
    let log = output.path().join("log").display().to_string();
    let calls = format!("trace={CALLS}");
    let words = ["strace", "-f", "-y", "-xx", "-s", "67108864", "-e", &calls, "-o", &log];
    let mut words: Vec<_> = words.map(str::to_owned).into();
    let inject = match syncs {
        SyncBehaviour::Done => return words,
        SyncBehaviour::Skipped => "retval=0".to_owned(),
        SyncBehaviour::Fails(number) => format!("error=EIO:when={number}"),
    };
    words.extend(["-e".to_owned(), format!("inject=fsync,fdatasync:{inject}")]);
    words
}

impl TracedServer {
    /// From its first call on. -D: strace is the child of the server, and not the other way round.
    fn start(folder: Folder, syncs: SyncBehaviour) -> Self {
        let output = Folder::new();
        let mut words = strace_arguments(&output, syncs);
        words.extend(["-D".to_owned(), "--seccomp-bpf".to_owned()]);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let server = serving::setup().run_under(&words).start_in(folder);
        Self { server, tracer: None, output }
    }

    /// From now on; also returns the files at the beginning. The server may have work of its own to do after its
    /// start: then the trace begins anew.
    fn attach(server: Server, syncs: SyncBehaviour) -> (Self, Files) {
        loop {
            let before = files_in(server.folder());
            let output = Folder::new();
            let words = strace_arguments(&output, syncs);
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).args(["-p", &server.process_id().to_string()]);
            let tracer = Process::spawn(&mut command);
            wait_until("strace is attached", || tracer.stderr().contains("attached").then_some(()));
            if files_in(server.folder()) == before {
                return (Self { server, tracer: Some(tracer), output }, before);
            }
        }
    }

    /// Ends the server, and adds its calls to the log.
    fn end(self, end: ServerEnd, log: &mut TraceLog) -> Folder {
        let path = self.output.path().join("log");
        let thread = format!("{} ", self.server.process_id());
        let folder = match end {
            ServerEnd::Kill => self.server.kill(),
            ServerEnd::Stop => self.server.stop(),
        };
        // strace may still be writing when the server is gone. The first thread is the last to end.
        wait_until("strace has logged the end", || {
            let last = last_line(&File::open(&path).unwrap())?;
            (last.ends_with("+++") && last.starts_with(&thread)).then_some(())
        });
        log.read(&fs::read_to_string(path).unwrap(), &folder.path().canonicalize().unwrap());
        drop(self.tracer);
        folder
    }
}

/// The last line of a file, when it is a short one.
fn last_line(file: &File) -> Option<String> {
    let mut bytes = [0; 100];
    let end = file.metadata().unwrap().len();
    let count = file.read_at(&mut bytes, end.saturating_sub(100)).unwrap();
    let text = String::from_utf8_lossy(&bytes[..count]);
    text.trim_end().lines().last().map(str::to_owned)
}

/// The files of a database, without empty ones.
fn files_in(folder: &Path) -> Files {
    let mut files = Files::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("nouns.db") && !name.ends_with("-shm") && !name.ends_with("-lock") {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    files
}

/// The first difference between the files derived from the trace and the real ones: a call was
/// overlooked.
fn difference(before: &Files, log: &TraceLog, after: &Files) -> Option<String> {
    let mut disk = SimulatedDisk::new(before.clone());
    for step in &log.steps {
        disk.apply_step(*step, &log.calls);
    }
    let files = disk.files(&disk.power_cut(Survivors::All, &mut SeededRandom::new(0)));
    let (logged, real) = (files.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    if logged != real {
        return Some(format!("there are {real:?}, by the log {logged:?}"));
    }
    let (name, bytes) = after.iter().find(|(name, bytes)| files[*name] != **bytes)?;
    let same = bytes.iter().zip(&files[name]).take_while(|(one, other)| one == other).count();
    let (length, logged) = (bytes.len(), files[name].len());
    Some(format!("{name} has {length} bytes, by the log {logged}; they differ from byte {same} on"))
}

/// The calls that began to send a response, by its request id.
fn response_calls(log: &TraceLog) -> HashMap<String, usize> {
    let mut found = HashMap::new();
    for (number, call) in log.calls.iter().enumerate() {
        let TracedCall::Send(bytes) = call else { continue };
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|end| &bytes[..end]);
        let Some(Ok(head)) = head.map(std::str::from_utf8) else { continue };
        let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
        found.extend(id.map(|id| (id.to_owned(), number)));
    }
    found
}
