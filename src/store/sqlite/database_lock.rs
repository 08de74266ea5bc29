//! The lock file of a database: one process at a time recovers, replaces or serves it.
//!
//! A server holds the lock as long as it runs. A command holds it while it recovers the WAL of a killed server, or
//! replaces the database. A lock does not say who holds it, so the file does: a command and a server that is starting are
//! worth waiting for.
//!
//! A command needs no lock to write beside a server, but a sound WAL. After a failed sync, frames that a
//! checkpoint has taken for copied may be lost, and only a start repairs that. So a server whose writer has stopped says
//! so in the file too, and no command writes beside it.
//!
//! The lock is on a separate file, because closing any handle on the database file would release SQLite's own locks.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use crate::clock;
use crate::store::error::OpenError;
use crate::store::sqlite::connection::disk_full_message;
use crate::store::sqlite::database_files::{DatabaseFiles, FILE_MODE, LOCK_SUFFIX};

/// How long to wait for a command or a starting server that holds the lock.
const WAIT_MAX: Duration = Duration::from_secs(10);
const WAIT_POLL: Duration = Duration::from_millis(20);

/// Who holds the lock of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockHolder {
    /// A command, or a server that is starting.
    Command,
    Server,
    /// A server whose writer has stopped.
    StoppedServer,
}

impl LockHolder {
    /// For messages.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Command => "a command, or a server that is starting,",
            Self::Server | Self::StoppedServer => "a server",
        }
    }

    const ALL: [Self; 3] = [Self::Command, Self::Server, Self::StoppedServer];

    fn word(self) -> &'static str {
        match self {
            Self::Command => "not serving",
            Self::Server => "serving",
            Self::StoppedServer => "writer stopped",
        }
    }

    fn read(files: &DatabaseFiles) -> Self {
        let text = fs::read_to_string(files.sibling(LOCK_SUFFIX)).unwrap_or_default();
        let found = Self::ALL.into_iter().find(|holder| holder.word() == text.trim_end());
        found.unwrap_or(Self::Command)
    }
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct DatabaseLock {
    file: File,
    /// Whether the file was not there before.
    pub is_new: bool,
}

impl Drop for DatabaseLock {
    fn drop(&mut self) {
        // If it fails, the next process that takes the lock overwrites the old word.
        let _ = self.announce(LockHolder::Command);
    }
}

impl DatabaseLock {
    /// Takes the lock; returns its holder if a server has it, or a command for longer than is worth waiting.
    pub fn acquire(files: &DatabaseFiles) -> Result<Result<Self, LockHolder>, OpenError> {
        let until = clock::now() + WAIT_MAX;
        let mut before = None;
        loop {
            match Self::try_acquire(files)? {
                Err(LockHolder::Command) if clock::now() >= until => {
                    return Ok(Err(LockHolder::Command));
                }
                // A process that has just taken the lock may not have overwritten the word of a killed server yet.
                Err(holder) if holder == LockHolder::Command || before != Some(holder) => {
                    before = Some(holder);
                    std::thread::sleep(WAIT_POLL);
                }
                done => return Ok(done),
            }
        }
    }

    /// Tries once: takes the lock, or returns its holder.
    pub fn try_acquire(files: &DatabaseFiles) -> Result<Result<Self, LockHolder>, OpenError> {
        let path = files.sibling(LOCK_SUFFIX);
        let shown = &files.display_path;
        loop {
            let is_new = path.symlink_metadata().is_err();
            let mut options = File::options();
            let open = options.create(true).truncate(false).write(true).mode(FILE_MODE).open(&path);
            let file = open.map_err(|error| {
                OpenError::new(match error.kind() {
                    ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => format!(
                        "cannot write beside {shown} ({error}); make the folder writable, or name another --database"
                    ),
                    ErrorKind::StorageFull => disk_full_message(shown),
                    _ => format!(
                        "cannot open {shown}{LOCK_SUFFIX} ({error}); name another --database"
                    ),
                })
            })?;
            match file.try_lock() {
                // A server that failed to start may have removed the file in the meantime.
                Ok(()) if !is_same_file(&file, &path) => {}
                Ok(()) => {
                    let lock = Self { file, is_new };
                    if let Err(error) = lock.announce(LockHolder::Command) {
                        if is_new {
                            let _ = fs::remove_file(&path);
                        }
                        return Err(write_error(shown, &error));
                    }
                    return Ok(Ok(lock));
                }
                Err(TryLockError::WouldBlock) => return Ok(Err(LockHolder::read(files))),
                Err(TryLockError::Error(error)) => {
                    return Err(OpenError::new(format!(
                        "cannot lock {shown}{LOCK_SUFFIX} ({error}); file locks do not work in a network folder: name another --database"
                    )));
                }
            }
        }
    }

    #[cfg(test)]
    pub fn of_no_file() -> Self {
        Self { file: File::options().write(true).open("/dev/null").unwrap(), is_new: false }
    }

    /// Says that the server has started.
    pub fn announce_server(&self, files: &DatabaseFiles) -> Result<(), OpenError> {
        let done = self.announce(LockHolder::Server);
        done.map_err(|error| write_error(&files.display_path, &error))
    }

    /// Says who holds the lock. All words have one length, so that a full disk has room for another one.
    pub fn announce(&self, holder: LockHolder) -> io::Result<()> {
        self.file.write_all_at(format!("{:<15}\n", holder.word()).as_bytes(), 0)
    }
}

fn write_error(shown: &str, error: &io::Error) -> OpenError {
    OpenError::new(match error.kind() {
        ErrorKind::StorageFull => disk_full_message(shown),
        _ => format!("cannot write {shown}{LOCK_SUFFIX} ({error}); check the disk"),
    })
}

/// Refuses to write beside a server that does not write any more.
pub fn refuse_stopped_server(files: &DatabaseFiles) -> Result<(), OpenError> {
    match LockHolder::read(files) {
        LockHolder::StoppedServer => Err(stopped_server_error(files)),
        LockHolder::Command | LockHolder::Server => Ok(()),
    }
}

pub fn stopped_server_error(files: &DatabaseFiles) -> OpenError {
    OpenError::new(format!(
        "the server that uses {} has stopped writing after a failure of the disk; check the disk, and restart the \
         server first",
        files.display_path
    ))
}

fn is_same_file(file: &File, path: &Path) -> bool {
    let (held, named) = (file.metadata(), path.metadata());
    held.ok()
        .zip(named.ok())
        .is_some_and(|(held, named)| (held.dev(), held.ino()) == (named.dev(), named.ino()))
}
