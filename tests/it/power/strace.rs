//! The parser of strace's log: a server's operations on files and sockets.
//!
//! It parses the calls it was asked to log and no others; the comparison of the derived files with the
//! real ones shows whether these were all that matter.
//! A call has two positions in the log. It may have taken effect from the first on, and has certainly
//! done so only from the second on; calls of several threads overlap.

use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Every call that changes a file or a folder, or sends to a client.
pub const CALLS: &str = "open,openat,openat2,creat,write,pwrite64,writev,pwritev,pwritev2,sendto,\
    sendmsg,sendmmsg,sendfile,copy_file_range,splice,truncate,ftruncate,fallocate,fsync,fdatasync,sync_file_range,\
    syncfs,sync,msync,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,\
    io_uring_enter";

/// The effect of a call. Files are named relative to the folder, so that logs of several folders are
/// alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TracedCall {
    /// Creates the file when it does not exist.
    Create(String),
    Write {
        file: String,
        offset: usize,
        bytes: Vec<u8>,
    },
    /// Truncates the file, or extends it with zeros.
    Resize {
        file: String,
        length: usize,
    },
    Sync(String),
    /// A sync that strace made fail.
    SyncFailed(String),
    SyncFolder,
    Remove(String),
    /// Bytes sent to a client.
    Send(Vec<u8>),
}

/// One event in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceStep {
    /// From here on the call may have taken effect.
    Begin(usize),
    /// From here on it has.
    End(usize),
}

/// A log, in the order of its events.
#[derive(Debug, Default)]
pub struct TraceLog {
    pub calls: Vec<TracedCall>,
    pub steps: Vec<TraceStep>,
    /// Syncs that strace answered in place of the kernel: nothing was synced.
    pub syncs_left_out: usize,
}

/// A call in the log, assembled from its one or two lines.
struct TraceEntry<'log> {
    name: &'log str,
    arguments: String,
    /// Empty when the process was killed in the middle of the call.
    result: &'log str,
    began: usize,
    ended: Option<usize>,
}

impl TraceLog {
    /// Adds the events of `text` about the files in `folder`. The calls of a second server on the same
    /// files follow those of the first.
    pub fn read(&mut self, text: &str, folder: &Path) {
        let mut steps = Vec::new();
        for entry in entries(text) {
            let (failed, injected) =
                (entry.result.starts_with("-1"), entry.result.contains("(INJECTED)"));
            if injected {
                assert!(matches!(entry.name, "fsync" | "fdatasync"), "{} injected", entry.name);
                self.syncs_left_out += usize::from(!failed);
            }
            if failed != injected {
                continue;
            }
            let call = match parse_call(&entry, folder) {
                None => continue,
                Some(TracedCall::Sync(file)) if failed => TracedCall::SyncFailed(file),
                Some(call) => call,
            };
            let number = self.calls.len();
            self.calls.push(call);
            steps.push((entry.began, TraceStep::Begin(number)));
            steps.extend(entry.ended.map(|ended| (ended, TraceStep::End(number))));
        }
        // A stable sort: the two events of a call on one line stay in their order.
        steps.sort_by_key(|(line, _)| *line);
        self.steps.extend(steps.into_iter().map(|(_, step)| step));
    }

    /// Removes calls without an end from this step on, as if they had not been made.
    pub fn remove_unfinished(&mut self, from: usize) {
        let steps = self.steps.split_off(from);
        let ended: HashSet<usize> = steps
            .iter()
            .filter_map(|step| match step {
                TraceStep::End(call) => Some(*call),
                TraceStep::Begin(_) => None,
            })
            .collect();
        let was_made = |step: &TraceStep| match step {
            TraceStep::Begin(call) => {
                ended.contains(call) || matches!(self.calls[*call], TracedCall::Send(_))
            }
            TraceStep::End(_) => true,
        };
        self.steps.extend(steps.into_iter().filter(was_made));
    }
}

/// The calls of a log; those of a killed thread have no end.
fn entries(text: &str) -> Vec<TraceEntry<'_>> {
    let mut found: Vec<TraceEntry<'_>> = Vec::new();
    // For each thread, the call that waits for its second line.
    let mut open: HashMap<&str, usize> = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        let (thread, line) = line.split_once(' ').unwrap_or_else(|| panic!("no thread: {line:?}"));
        let line = line.trim_start();
        if line.starts_with("+++") || line.starts_with("---") {
            continue;
        }
        if let Some(rest) = line.strip_prefix("<... ") {
            let (_, rest) = rest.split_once(" resumed>").unwrap();
            let index = open.remove(thread).unwrap_or_else(|| panic!("no beginning of {line:.99}"));
            let (arguments, result) = split_result(rest);
            found[index].arguments.push_str(arguments);
            found[index].result = result;
            // A thread that is killed in a call leaves a second line without a result.
            found[index].ended = (result != "?").then_some(number);
            continue;
        }
        let (name, rest) = line.split_once('(').unwrap_or_else(|| panic!("no call: {line:.99}"));
        let new = |arguments: &str, result, ended| TraceEntry {
            name,
            arguments: arguments.to_owned(),
            result,
            began: number,
            ended,
        };
        match rest.strip_suffix("<unfinished ...>") {
            Some(arguments) => {
                open.insert(thread, found.len());
                found.push(new(arguments.trim_end(), "", None));
            }
            None => {
                let (arguments, result) = split_result(rest);
                found.push(new(arguments, result, (result != "?").then_some(number)));
            }
        }
    }
    found
}

/// Arguments and result of `…) = 0`. No string has a parenthesis: all are in hexadecimal.
fn split_result(text: &str) -> (&str, &str) {
    let (arguments, result) =
        text.rsplit_once(" = ").unwrap_or_else(|| panic!("no result: {text:.99}"));
    let arguments = arguments.trim_end();
    (arguments.strip_suffix(')').unwrap_or_else(|| panic!("no end: {text:.99}")), result)
}

/// The effect of a call on the files in `folder` or on a client; `None` when it concerns neither.
fn parse_call(entry: &TraceEntry<'_>, folder: &Path) -> Option<TracedCall> {
    let arguments = entry.arguments.as_str();
    let place = call_target(entry, folder)?;
    let length = |index: usize| -> usize {
        let text = arguments.rsplit(", ").nth(index).unwrap();
        text.parse().unwrap_or_else(|_| panic!("no number: {text} in {}", entry.name))
    };
    // The effect of a killed call is unknown: it may be complete.
    let done = entry.result.split(' ').next().unwrap().parse::<usize>().ok();
    let bytes = || {
        let mut bytes = strings(arguments).concat();
        bytes.truncate(done.unwrap_or(usize::MAX));
        bytes
    };
    match (entry.name, place) {
        ("write" | "writev" | "sendto" | "sendmsg", CallTarget::Socket) => {
            Some(TracedCall::Send(bytes()))
        }
        ("open" | "openat" | "creat", CallTarget::File(_)) if !arguments.contains("O_CREAT") => {
            None
        }
        ("open" | "openat" | "creat", CallTarget::File(file)) => {
            assert!(!arguments.contains("O_TRUNC"), "{file} is opened with O_TRUNC");
            Some(TracedCall::Create(file))
        }
        ("open" | "openat", CallTarget::Folder) => None,
        ("pwrite64", CallTarget::File(file)) => {
            let call = TracedCall::Write { file, offset: length(0), bytes: bytes() };
            assert!(!arguments.contains("\"..."), "strace cut the bytes of a write off");
            Some(call)
        }
        ("ftruncate", CallTarget::File(file)) => {
            Some(TracedCall::Resize { file, length: length(0) })
        }
        ("fsync" | "fdatasync", CallTarget::File(file)) => Some(TracedCall::Sync(file)),
        ("fsync" | "fdatasync", CallTarget::Folder) => Some(TracedCall::SyncFolder),
        ("unlink", CallTarget::File(file)) => Some(TracedCall::Remove(file)),
        (name, place) => panic!("{name} of {place:?} is not in the model"),
    }
}

#[derive(Debug)]
enum CallTarget {
    Socket,
    Folder,
    File(String),
}

/// The target of a call; `None` when it is not of interest. The WAL index is rebuilt at each start, and
/// the lock file is empty: neither holds data.
fn call_target(entry: &TraceEntry<'_>, folder: &Path) -> Option<CallTarget> {
    let arguments = &entry.arguments;
    let path = match entry.name {
        "open" | "openat" | "creat" | "unlink" | "unlinkat" | "rename" | "renameat"
        | "renameat2" | "truncate" | "link" | "linkat" | "symlink" | "symlinkat" => {
            String::from_utf8(strings(arguments).into_iter().next()?).unwrap()
        }
        "sync" | "syncfs" | "io_uring_enter" => panic!("{} is not in the model", entry.name),
        _ => {
            let (_, rest) = arguments.split_once('<')?;
            String::from_utf8(unescape(rest.split_once('>').unwrap().0)).unwrap()
        }
    };
    if path.starts_with("socket:") || path.starts_with("TCP:") {
        return Some(CallTarget::Socket);
    }
    let path = Path::new(&path);
    if path == folder {
        return Some(CallTarget::Folder);
    }
    let name = path.strip_prefix(folder).ok()?.to_str().unwrap();
    (name.starts_with("nouns.db") && !name.ends_with("-shm") && !name.ends_with("-lock"))
        .then(|| CallTarget::File(name.to_owned()))
}

/// The strings among the arguments.
fn strings(arguments: &str) -> Vec<Vec<u8>> {
    arguments.split('"').skip(1).step_by(2).map(unescape).collect()
}

/// `\x6e\x6f` as bytes; unescaped characters stand for themselves.
fn unescape(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => byte - b'0',
        _ => byte - b'a' + 10,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4);
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = match after {
            [b'x', high, low, after @ ..] if first == b'\\' => {
                bytes.push(digit(*high) << 4 | digit(*low));
                after
            }
            _ => {
                bytes.push(first);
                after
            }
        };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{TraceLog, TraceStep, TracedCall};

    #[test]
    fn strace_log_overlapping_calls_have_two_positions() {
        let text = r#"7 pwrite64(5</d/nouns.db-wal>, "\x61\x62", 2, 32) = 2
7 fsync(5</d/nouns.db-wal> <unfinished ...>
8 writev(9<socket:[1]>, [{iov_base="\x48\x49", iov_len=2}, {iov_base="\x4a", iov_len=1}], 2) = 3
7 <... fsync resumed>)              = 0
8 write(3<anon_inode:[eventfd]>, "\x01", 1) = 1
7 fsync(5</d/nouns.db-wal>) = 0 (INJECTED)
7 fsync(5</d/nouns.db-wal>) = -1 EIO (x) (INJECTED)
7 openat(AT_FDCWD</d>, "\x2f\x64\x2f\x6e\x6f\x75\x6e\x73\x2e\x64\x62", O_RDWR|O_CREAT, 0644) = -1 EROFS (x)
7 ftruncate(5</d/nouns.db>, 4096 <unfinished ...>
8 fsync(5</d>)                      = ?
7 <... ftruncate resumed>)          = ?
7 +++ killed by SIGKILL +++
"#;
        let mut log = TraceLog::default();
        log.read(text, Path::new("/d"));
        let wal = || "nouns.db-wal".to_owned();
        let calls = [
            TracedCall::Write { file: wal(), offset: 32, bytes: b"ab".to_vec() },
            TracedCall::Sync(wal()),
            TracedCall::Send(b"HIJ".to_vec()),
            TracedCall::SyncFailed(wal()),
            TracedCall::Resize { file: "nouns.db".to_owned(), length: 4096 },
            TracedCall::SyncFolder,
        ];
        assert_eq!(log.calls, calls);
        use TraceStep::{Begin, End};
        let steps = [
            Begin(0),
            End(0),
            Begin(1),
            Begin(2),
            End(2),
            End(1),
            Begin(3),
            End(3),
            Begin(4),
            Begin(5),
        ];
        assert_eq!(log.steps, steps);
        assert_eq!(log.syncs_left_out, 1);
    }
}
