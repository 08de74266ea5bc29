//! The limit of open files, and the number of connections it allows.
//!
//! Most systems give a process a soft limit far below its hard limit, so the server raises it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::log::{Level, Logger};

/// Files reserved for the database, its WAL and the pool of readers, the listeners, and the log; and for
/// connections that are being refused.
const RESERVED_FILES: usize = 160;

/// Raises the limit of open files as far as possible; returns how many connections that allows.
pub(super) fn connections_max(wanted: usize, log: &Logger) -> usize {
    let given = getrlimit(Resource::Nofile);
    // `None` is no limit at all.
    let asked = Rlimit { current: given.maximum, maximum: given.maximum };
    let files = match setrlimit(Resource::Nofile, asked) {
        Ok(()) => given.maximum,
        Err(_) => given.current,
    };
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    let possible = connections_for_files(files);
    if possible < wanted {
        log.event(
            Level::Warning,
            "fewer connections than connections_max: the system allows too few open files",
            &[("connections_max", &wanted), ("connections", &possible), ("files", &files)],
        );
    }
    wanted.min(possible)
}

/// How many connections the limit of open files allows a server that this process would be.
pub fn connections_allowed() -> usize {
    let files = getrlimit(Resource::Nofile).maximum;
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    connections_for_files(files)
}

/// The number of connections for this number of files: half of it, if there are hardly any files.
fn connections_for_files(files: usize) -> usize {
    files.saturating_sub(RESERVED_FILES).max(files / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_limit_reserves_files_for_the_server_itself() {
        for (files, expected) in
            [(20_000, 20_000 - RESERVED_FILES), (1_024, 1_024 - RESERVED_FILES), (256, 128), (1, 0)]
        {
            assert_eq!(connections_for_files(files), expected, "{files}");
        }
    }
}
