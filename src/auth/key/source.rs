//! Sources of the keys: the key file (found, read, created and replaced) or `NOUNS_KEY`.
//!
//! Every message says what is wrong and how to fix it, and shows nothing of a key. The one surprising
//! thing: a file is never written in place. It is written beside, synced and renamed, so that at every
//! moment either the old keys or the new ones are there, complete.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::Keys;
use crate::clock;
use crate::store::{Database, follow_links};

const FILE: &str = "nouns.key";
/// Far more than a key file has.
const FILE_BYTES_MAX: u64 = 4096;
/// The group may not write, others may not access it at all.
const OTHERS: u32 = 0o027;

/// How long the lock of a folder is waited for, and how often it is tried: whoever has it writes small files.
const LOCK_MAX: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Why there are no keys: what is wrong and the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyError(pub String);

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KeyError {}

/// Where the keys come from.
#[derive(Clone)]
pub enum Source {
    File(PathBuf),
    /// The text of `NOUNS_KEY`.
    Environment(String),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Environment(_) => f.write_str("Environment(…)"),
        }
    }
}

/// Waits for the lock of a folder, which is held until the file is closed. A file system without locks has to
/// do without.
pub fn wait_for_lock(folder: &File, path: &Path) -> Result<(), KeyError> {
    let until = clock::now() + LOCK_MAX;
    loop {
        match folder.try_lock() {
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
            Err(TryLockError::WouldBlock) if clock::now() < until => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
                return Err(KeyError(format!(
                    "another process has held the lock of the folder {} for {} seconds, which nouns holds only \
                     while it writes a key or the first password; end it, and start again",
                    path.display(),
                    LOCK_MAX.as_secs()
                )));
            }
        }
    }
}

/// Keys that fit the database.
#[derive(Debug)]
pub struct Settled {
    pub keys: Keys,
    /// The file was created just now.
    pub is_made: bool,
    /// The fingerprint to store before anything is sealed: the database had none yet.
    pub remember: Option<String>,
}

/// An exclusive lock on the key file: other writers wait or are refused.
#[derive(Debug)]
pub struct Held {
    _folder: File,
}

impl Source {
    /// The named file, or the text of `NOUNS_KEY`, or else `nouns.key` beside the SQLite file.
    pub fn choose(
        named: Option<&Path>,
        environment: Option<String>,
        database: &Database,
    ) -> Result<Self, KeyError> {
        match (named, environment, database) {
            (Some(path), Some(_), _) => Err(KeyError(format!(
                "two keys are named, NOUNS_KEY and the key file {}; leave one of them out",
                path.display()
            ))),
            (Some(path), None, _) => Ok(Self::File(path.to_owned())),
            (None, Some(text), _) => Ok(Self::Environment(text)),
            (None, None, Database::Sqlite(path)) => Ok(Self::File(beside(path))),
            (None, None, Database::Postgres(_)) => Err(KeyError(
                "with PostgreSQL the key has to be named, because every server needs the same one; \
                 name its file with --key-file, or set NOUNS_KEY (a new key: openssl rand -base64 32)"
                    .to_owned(),
            )),
        }
    }

    /// The folder of the file; the current one where there is none.
    pub fn folder(&self) -> PathBuf {
        match self {
            Self::File(path) => path.parent().unwrap_or(Path::new("")).to_owned(),
            Self::Environment(_) => PathBuf::new(),
        }
    }

    /// Its name in messages.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Environment(_) => "NOUNS_KEY".to_owned(),
        }
    }

    /// Finds keys that match the stored fingerprint. Creates a missing file when no fingerprint is stored
    /// yet.
    pub fn settle(&self, stored: Option<&str>) -> Result<Settled, KeyError> {
        let settled = |keys: Keys, is_made| {
            let remember = stored.is_none().then(|| keys.fingerprint());
            Settled { keys, is_made, remember }
        };
        match (self.read()?, stored) {
            (Some(keys), Some(fingerprint)) if !keys.has(fingerprint) => {
                Err(self.misfit(&keys, fingerprint))
            }
            (Some(keys), _) => Ok(settled(keys, false)),
            (None, Some(fingerprint)) => Err(KeyError(format!(
                "there is no key file {}, and this database has one, of fingerprint {fingerprint}; \
                 put it back, or name it with --key-file; if it is lost: nouns key rotate --lost",
                self.name()
            ))),
            (None, None) => {
                let folder = self.open_folder()?;
                wait_for_lock(&folder, &self.folder())?;
                let held = Held { _folder: folder };
                match self.read()? {
                    Some(keys) => Ok(settled(keys, false)),
                    None => {
                        let keys = Keys::random().map_err(|cause| self.cannot("make", &cause))?;
                        self.write(&held, &keys)?;
                        Ok(settled(keys, true))
                    }
                }
            }
        }
    }

    pub fn misfit(&self, keys: &Keys, fingerprint: &str) -> KeyError {
        KeyError(format!(
            "the key in {} has the fingerprint {}, and this database belongs to {fingerprint}; \
             put the right key there, or name it with --key-file; if it is lost: nouns key rotate --lost",
            self.name(),
            keys.fingerprint(),
        ))
    }

    /// Checks that there are keys, or a folder for them.
    pub fn check(&self) -> Result<(), KeyError> {
        match self.read()? {
            Some(_) => Ok(()),
            None => self.open_folder().map(drop),
        }
    }

    /// The keys as they are now; `None` when there is no such file.
    pub fn read(&self) -> Result<Option<Keys>, KeyError> {
        let text = match self {
            Self::Environment(text) => text.clone(),
            Self::File(path) => match self.read_file(path)? {
                Some((text, _)) => text,
                None => return Ok(None),
            },
        };
        Keys::parse(&text).map(Some).map_err(|cause| {
            KeyError(format!(
                "{} holds no key: {cause}; put the right key there (a new one for a new database: \
                 openssl rand -base64 32)",
                self.name()
            ))
        })
    }

    fn read_file(&self, path: &Path) -> Result<Option<(String, Stamp)>, KeyError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.cannot("read", &error)),
        };
        let metadata = file.metadata().map_err(|error| self.cannot("read", &error))?;
        let mode = metadata.mode() & 0o777;
        if metadata.is_file() && mode & OTHERS != 0 {
            return Err(KeyError(format!(
                "others on this machine can read or change the key file {name} (mode {mode:03o}); \
                 take that away with: chmod 600 {name}",
                name = self.name()
            )));
        }
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| self.cannot("read", &error))?;
        Ok(Some((text, Stamp::of(&metadata))))
    }

    /// Locks the file for a rotation, until the lock is dropped.
    pub fn lock(&self) -> Result<Held, KeyError> {
        let folder = self.open_folder()?;
        match folder.try_lock() {
            Ok(()) => Ok(Held { _folder: folder }),
            Err(TryLockError::WouldBlock) => Err(KeyError(format!(
                "another nouns is writing the key file {}; try again when it has ended",
                self.name()
            ))),
            // A file system without locks.
            Err(TryLockError::Error(_)) => Ok(Held { _folder: folder }),
        }
    }

    /// Replaces the keys atomically (write, sync, rename).
    pub fn write(&self, _held: &Held, keys: &Keys) -> Result<(), KeyError> {
        let Self::File(path) = self else {
            return Err(self.cannot("write", &"it is a variable of the environment"));
        };
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let written = (|| {
            // Left behind by an interrupted run.
            match fs::remove_file(&beside) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(keys.text().as_bytes())?;
            file.sync_all()?;
            crate::fault::point("key_written");
            fs::rename(&beside, path)
        })();
        if let Err(error) = written {
            let _ = fs::remove_file(&beside);
            return Err(self.cannot("write", &error));
        }
        // The file is in place; syncing the folder makes it survive a power cut.
        let folder = self.open_folder()?;
        folder.sync_all().map_err(|error| self.cannot("sync", &error))
    }

    /// Removes a file that was created in vain.
    pub fn unmake(&self) {
        if let Self::File(path) = self {
            let _ = fs::remove_file(path);
        }
    }

    fn open_folder(&self) -> Result<File, KeyError> {
        let folder = match self {
            Self::File(path) => path.parent().filter(|folder| !folder.as_os_str().is_empty()),
            Self::Environment(_) => None,
        };
        let folder = folder.unwrap_or(Path::new("."));
        File::open(folder).map_err(|error| {
            KeyError(match error.kind() {
                ErrorKind::NotFound => format!(
                    "the folder {} does not exist; create it, or name another --key-file",
                    folder.display()
                ),
                _ => format!(
                    "cannot look into the folder {} ({error}); name another --key-file",
                    folder.display()
                ),
            })
        })
    }

    fn cannot(&self, what: &str, cause: &dyn fmt::Display) -> KeyError {
        KeyError(format!(
            "cannot {what} the key file {} ({cause}); mend that, or name another --key-file",
            self.name()
        ))
    }
}

/// `nouns.key` in the folder of the database. SQLite follows links to its file, and so do we.
fn beside(database: &Path) -> PathBuf {
    follow_links(database).with_file_name(FILE)
}

/// Identifies a version of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self { inode: metadata.ino(), changed: (metadata.ctime(), metadata.ctime_nsec()) }
    }
}

/// The keys of a running server: reloaded when the file has changed.
#[derive(Debug)]
pub struct Keyring {
    source: Source,
    now: Mutex<(Arc<Keys>, Option<Stamp>)>,
}

impl Keyring {
    pub fn new(source: Source, keys: Keys) -> Self {
        // Without a version the first check reads the file.
        Self { source, now: Mutex::new((Arc::new(keys), None)) }
    }

    /// The keys that were read last.
    pub fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.now.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Reloads the file if it has changed; the check is cheap, and runs before something is sealed, and
    /// when a key id is unknown. A file that cannot be read or holds no key is ignored, and so is one that
    /// shares no key with the present ones.
    pub fn look_again(&self) -> Arc<Keys> {
        self.look_for(|_| false)
    }

    /// The same, but accepts keys that share none with the present ones, if `fits` confirms them: the old
    /// key is gone when a rotation has ended.
    pub fn look_for(&self, fits: impl Fn(&Keys) -> bool) -> Arc<Keys> {
        let Source::File(path) = &self.source else { return self.keys() };
        let stamp = fs::metadata(path).ok().map(|metadata| Stamp::of(&metadata));
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp.is_some() && stamp != now.1 {
            let read = self.source.read_file(path).ok().flatten();
            if let Some((text, stamp)) = read
                && let Ok(keys) = Keys::parse(&text)
                && (keys.shares(&now.0) || fits(&keys))
            {
                *now = (Arc::new(keys), Some(stamp));
            }
        }
        Arc::clone(&now.0)
    }
}

#[cfg(test)]
mod tests;
