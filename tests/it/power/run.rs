//! A run of the real server under strace: what it did to its files, and what it answered when.
//!
//! It judges nothing but itself: the files that follow from the log must be those on disk.
//! The one surprising thing: an answer counts from the moment at which the server began to send it,
//! in the same log as its writes and syncs, so at no point is it open what had been answered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::disk::{Disk, Survives};
use super::strace::{CALLS, Call, Log};
use crate::durability::chance::Chance;
use crate::durability::ledger::{Entry, Ledger, Outcome};
use crate::durability::serving::{self, burst};
use crate::harness::{Folder, Setup, wait_until};

pub type Files = BTreeMap<String, Vec<u8>>;

/// Whether the disk does what it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syncs {
    Done,
    /// Answered with success, and not done.
    LeftOut,
}

/// What is to be run.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub seed: u64,
    pub begin: Begin,
    pub connections: usize,
    /// Of each connection, of each of the servers.
    pub requests_each: usize,
    pub syncs: Syncs,
}

/// What is there when the log begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    Nothing,
    /// A database whose log file will soon be brought into it.
    Grown,
}

/// From 2,000 frames on the server brings the log file into the database.
const GROWN_BYTES: u64 = 1_850 * 4_120;

/// Everything that is known of a run.
#[derive(Debug)]
pub struct Run {
    pub before: Files,
    pub log: Log,
    pub ledger: Ledger,
    /// The calls that sent the answers, by their request ids.
    answers: HashMap<String, usize>,
    /// Those that were answered before the log began.
    answered_before: BTreeSet<String>,
}

impl Run {
    /// Three servers, one after the other on one database, of which the second is stopped in peace.
    pub fn record(work: Work) -> Self {
        let mut ledger = Ledger::of(work.seed, work.connections);
        let mut folder = match work.begin {
            Begin::Nothing => Folder::new(),
            Begin::Grown => grown(&mut ledger),
        };
        let before = files_in(folder.path());
        let answered_before: BTreeSet<_> = answered(&ledger).map(str::to_owned).collect();
        let mut log = Log::default();
        for is_stopped in [false, true, false] {
            let trace = Trace::new();
            let server = trace.setup(work.syncs).start_in(folder);
            burst(&server, &mut ledger, work.requests_each);
            folder = if is_stopped { server.stop() } else { server.kill() };
            let (steps_before, after) = (log.steps.len(), files_in(folder.path()));
            log.read(&trace.text(), &folder.path().canonicalize().unwrap());
            // A call that was about to begin when its thread was killed may not have been made.
            if difference(&before, &log, &after).is_some() {
                log.forget_unfinished(steps_before);
            }
            assert_eq!(difference(&before, &log, &after), None);
        }
        let answers = answers(&log);
        let unknown = |id: &&str| !answers.contains_key(*id) && !answered_before.contains(*id);
        assert_eq!(answered(&ledger).find(unknown), None, "an answer is not in the log");
        assert_eq!(answers.len() + answered_before.len(), answered(&ledger).count());
        Self { before, log, ledger, answers, answered_before }
    }

    /// How many requests the log has.
    pub fn requests(&self) -> usize {
        self.answers.len()
    }

    /// How many answers had been sent when this call had begun, and no later one.
    pub fn answered(&self, last: usize) -> usize {
        self.answers.values().filter(|call| **call <= last).count()
    }

    /// The book as it stood then.
    pub fn book(&self, last: usize) -> Vec<(&Entry, &Outcome)> {
        self.ledger.as_of(|id| {
            self.answered_before.contains(id)
                || self.answers.get(id).is_some_and(|call| *call <= last)
        })
    }
}

/// What a server left whose log file had grown.
fn grown(ledger: &mut Ledger) -> Folder {
    let server = serving::start(Folder::new());
    let log = server.folder().join("nouns.db-wal");
    while fs::metadata(&log).unwrap().len() < GROWN_BYTES {
        burst(&server, ledger, 1);
    }
    server.kill()
}

/// The ids of the requests that were answered.
fn answered(ledger: &Ledger) -> impl Iterator<Item = &str> {
    ledger.entries().filter_map(|entry| match &entry.outcome {
        Outcome::Answered(answered) => Some(answered.request_id.as_str()),
        _ => None,
    })
}

/// Where strace writes.
#[derive(Debug)]
struct Trace(Folder);

impl Trace {
    fn new() -> Self {
        Self(Folder::new())
    }

    fn setup(&self, syncs: Syncs) -> Setup {
        let log = self.0.path().join("log");
        let (calls, log) = (format!("trace={CALLS}"), log.to_str().unwrap());
        // -D: strace is the child of the server, and not the other way round. The bytes of each write
        // are wanted whole.
        let mut program =
            vec!["strace", "-D", "-f", "-y", "-xx", "-s", "67108864", "--seccomp-bpf"];
        program.extend(["-e", &calls, "-o", log]);
        if syncs == Syncs::LeftOut {
            program.extend(["-e", "inject=fsync,fdatasync:retval=0"]);
        }
        serving::setup().under(&program)
    }

    /// The log, once it has the end of the process: strace may still be writing when that is gone.
    fn text(self) -> String {
        let path = self.0.path().join("log");
        wait_until("strace has logged the end", || {
            let file = File::open(&path).unwrap();
            let (begin, end) =
                (line_at(&file, 0)?, line_at(&file, file.metadata().unwrap().len())?);
            // The first thread is the last to end.
            let thread = begin.split(' ').next()?;
            (end.ends_with("+++") && end.starts_with(thread)).then_some(())
        });
        fs::read_to_string(path).unwrap()
    }
}

/// The line at the beginning of a file, or that before `end`; short ones only.
fn line_at(file: &File, end: u64) -> Option<String> {
    let mut bytes = [0; 100];
    let count = file.read_at(&mut bytes, end.saturating_sub(100)).unwrap();
    let text = String::from_utf8_lossy(&bytes[..count]);
    let line = if end == 0 { text.lines().next() } else { text.trim_end().lines().last() };
    line.map(str::to_owned)
}

/// The files of a database, without those that hold nothing.
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

/// Where the log leads to something else than what is really there, byte for byte: something was
/// overlooked.
fn difference(before: &Files, log: &Log, after: &Files) -> Option<String> {
    let mut disk = Disk::new(before.clone());
    for step in &log.steps {
        disk.step(*step, &log.calls);
    }
    let files = disk.files(&disk.cut(Survives::All, &mut Chance::new(0)));
    let (logged, real) = (files.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    if logged != real {
        return Some(format!("there are {real:?}, by the log {logged:?}"));
    }
    let (name, bytes) = after.iter().find(|(name, bytes)| files[*name] != **bytes)?;
    let same = bytes.iter().zip(&files[name]).take_while(|(one, other)| one == other).count();
    let (length, logged) = (bytes.len(), files[name].len());
    Some(format!("{name} has {length} bytes, by the log {logged}; they differ from byte {same} on"))
}

/// The calls that began to send an answer, by its request id.
fn answers(log: &Log) -> HashMap<String, usize> {
    let mut found = HashMap::new();
    for (number, call) in log.calls.iter().enumerate() {
        let Call::Send(bytes) = call else { continue };
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|end| &bytes[..end]);
        let Some(Ok(head)) = head.map(std::str::from_utf8) else { continue };
        let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
        found.extend(id.map(|id| (id.to_owned(), number)));
    }
    found
}
