//! Sources of the keys: the key file (found, read, created and replaced) or `NOUNS_KEY`.
//!
//! Every error message names the fault and its correction, and contains no key material. The key file is
//! replaced atomically: the new keys are written to a file beside it, which is synced and renamed.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::key::KeySet;
use crate::clock;
use crate::store::{Database, resolve_links};

const DEFAULT_FILE_NAME: &str = "nouns.key";
/// The maximum size of a key file, far more than one needs.
const FILE_BYTES_MAX: u64 = 4096;
/// Mode bits that a key file must not have: the group may not write it, others may not access it at all.
const FORBIDDEN_MODE_BITS: u32 = 0o027;

/// The timeout for the lock of a folder, and the retry interval: its holder only writes small files.
const LOCK_MAX: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The message for keys that cannot be used: the cause and its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyError(pub String);

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KeyError {}

/// The source of the keys.
#[derive(Clone)]
pub enum KeySource {
    File(PathBuf),
    /// The text of `NOUNS_KEY`.
    Environment(String),
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Environment(_) => f.write_str("Environment(…)"),
        }
    }
}

/// Creates a file that only its owner can read, in place of one that an interrupted run has left behind, and
/// syncs it. `prepare` runs before anything secret is in it.
pub fn create_private_file(
    path: &Path,
    text: &str,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    prepare(&file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Gives a new key file the owner of the one it replaces: root may rotate the key of a server that runs as
/// another user, and that server must still be able to read it.
fn keep_owner(new: &File, replaced: &Path) -> io::Result<()> {
    match fs::metadata(replaced) {
        Ok(old) if old.uid() != new.metadata()?.uid() => {
            fchown(new, Some(old.uid()), Some(old.gid()))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Waits for the lock of a folder, which is held until the file is closed. On a file system without locks it
/// returns without one.
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
pub struct ResolvedKeys {
    pub keys: KeySet,
    /// Whether `resolve` has just created the file.
    pub is_new_file: bool,
    /// The fingerprint to store before anything is sealed: the database had none yet.
    pub fingerprint_to_store: Option<String>,
}

/// An exclusive lock on the key file: other writers wait or are refused.
#[derive(Debug)]
pub struct KeyFileLock {
    _folder: File,
}

impl KeySource {
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
            (None, None, Database::Sqlite(path)) => Ok(Self::File(default_path(path))),
            (None, None, Database::Postgres(_)) => Err(KeyError(
                "with PostgreSQL the key has to be named, because every server needs the same one; \
                 name its file with --key-file, or set NOUNS_KEY (a new key: openssl rand -base64 32)"
                    .to_owned(),
            )),
        }
    }

    /// The folder of the key file; the current folder for `NOUNS_KEY`.
    pub fn folder(&self) -> PathBuf {
        match self {
            Self::File(path) => path.parent().unwrap_or(Path::new("")).to_owned(),
            Self::Environment(_) => PathBuf::new(),
        }
    }

    /// The name of the source in messages.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Environment(_) => "NOUNS_KEY".to_owned(),
        }
    }

    /// Finds keys that match the stored fingerprint. Creates a missing file when no fingerprint is stored
    /// yet.
    pub fn resolve(&self, stored: Option<&str>) -> Result<ResolvedKeys, KeyError> {
        let settled = |keys: KeySet, is_made| {
            let remember = stored.is_none().then(|| keys.fingerprint());
            ResolvedKeys { keys, is_new_file: is_made, fingerprint_to_store: remember }
        };
        match (self.read()?, stored) {
            (Some(keys), Some(fingerprint)) if !keys.has_fingerprint(fingerprint) => {
                Err(self.fingerprint_mismatch(&keys, fingerprint))
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
                let held = KeyFileLock { _folder: folder };
                match self.read()? {
                    Some(keys) => Ok(settled(keys, false)),
                    None => {
                        let keys =
                            KeySet::random().map_err(|cause| self.io_error("make", &cause))?;
                        self.write(&held, &keys)?;
                        Ok(settled(keys, true))
                    }
                }
            }
        }
    }

    pub fn fingerprint_mismatch(&self, keys: &KeySet, fingerprint: &str) -> KeyError {
        KeyError(format!(
            "the key in {} has the fingerprint {}, and this database belongs to {fingerprint}; \
             put the right key there, or name it with --key-file; if it is lost: nouns key rotate --lost",
            self.name(),
            keys.fingerprint(),
        ))
    }

    /// Checks that keys exist, or a folder to create them in.
    pub fn check(&self) -> Result<(), KeyError> {
        match self.read()? {
            Some(_) => Ok(()),
            None => self.open_folder().map(drop),
        }
    }

    /// The keys as they are now; `None` when there is no such file.
    pub fn read(&self) -> Result<Option<KeySet>, KeyError> {
        let text = match self {
            Self::Environment(text) => text.clone(),
            Self::File(path) => match self.read_file(path)? {
                Some((text, _)) => text,
                None => return Ok(None),
            },
        };
        KeySet::parse(&text).map(Some).map_err(|cause| {
            KeyError(format!(
                "{} holds no key: {cause}; put the right key there (a new one for a new database: \
                 openssl rand -base64 32)",
                self.name()
            ))
        })
    }

    fn read_file(&self, path: &Path) -> Result<Option<(String, FileVersion)>, KeyError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io_error("read", &error)),
        };
        let metadata = file.metadata().map_err(|error| self.io_error("read", &error))?;
        let mode = metadata.mode() & 0o777;
        if metadata.is_file() && mode & FORBIDDEN_MODE_BITS != 0 {
            return Err(KeyError(format!(
                "others on this machine can read or change the key file {name} (mode {mode:03o}); \
                 revoke that with: chmod 600 {name}",
                name = self.name()
            )));
        }
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| self.io_error("read", &error))?;
        Ok(Some((text, FileVersion::from_metadata(&metadata))))
    }

    /// Locks the file for a rotation, until the lock is dropped.
    pub fn lock(&self) -> Result<KeyFileLock, KeyError> {
        let folder = self.open_folder()?;
        match folder.try_lock() {
            Ok(()) => Ok(KeyFileLock { _folder: folder }),
            Err(TryLockError::WouldBlock) => Err(KeyError(format!(
                "another nouns is writing the key file {}; try again when it has ended",
                self.name()
            ))),
            // A file system without locks.
            Err(TryLockError::Error(_)) => Ok(KeyFileLock { _folder: folder }),
        }
    }

    /// Replaces the keys atomically (write, sync, rename).
    pub fn write(&self, _held: &KeyFileLock, keys: &KeySet) -> Result<(), KeyError> {
        let Self::File(path) = self else {
            return Err(self.io_error("write", &"it is a variable of the environment"));
        };
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        let temporary = PathBuf::from(temporary);
        let written =
            create_private_file(&temporary, &keys.file_text(), |file| keep_owner(file, path))
                .and_then(|()| {
                    crate::fault::point("key_written");
                    fs::rename(&temporary, path)
                });
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            return Err(self.io_error("write", &error));
        }
        // The file is in place; syncing the folder makes it survive a power cut.
        let folder = self.open_folder()?;
        folder.sync_all().map_err(|error| self.io_error("sync", &error))
    }

    /// Removes a key file that was just created and cannot be used.
    pub fn remove_key_file(&self) {
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

    fn io_error(&self, what: &str, cause: &dyn fmt::Display) -> KeyError {
        KeyError(format!(
            "cannot {what} the key file {} ({cause}); fix that, or name another --key-file",
            self.name()
        ))
    }
}

/// `nouns.key` in the folder of the database. SQLite follows links to its file, and so do we.
fn default_path(database: &Path) -> PathBuf {
    resolve_links(database).with_file_name(DEFAULT_FILE_NAME)
}

/// Identifies a version of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    changed: (i64, i64),
}

impl FileVersion {
    fn from_metadata(metadata: &Metadata) -> Self {
        Self { inode: metadata.ino(), changed: (metadata.ctime(), metadata.ctime_nsec()) }
    }
}

/// The keys of a running server: reloaded when the file has changed.
#[derive(Debug)]
pub struct Keyring {
    source: KeySource,
    current: Mutex<(Arc<KeySet>, Option<FileVersion>)>,
}

impl Keyring {
    pub fn new(source: KeySource, keys: KeySet) -> Self {
        // Without a version the first check reads the file.
        Self { source, current: Mutex::new((Arc::new(keys), None)) }
    }

    /// The keys that were read last.
    pub fn keys(&self) -> Arc<KeySet> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Reloads the file if it has changed. The check is cheap; it runs before something is sealed, and when a
    /// key id is unknown. A file that cannot be read or holds no key is ignored, and so is one that shares no
    /// key with the present ones.
    pub fn reload_if_changed(&self) -> Arc<KeySet> {
        self.reload_accepting(|_| false)
    }

    /// As `reload_if_changed`, but also accepts keys that share none with the present ones, if `fits`
    /// confirms them: the old key is gone when a rotation has ended.
    pub fn reload_accepting(&self, fits: impl Fn(&KeySet) -> bool) -> Arc<KeySet> {
        let KeySource::File(path) = &self.source else { return self.keys() };
        let stamp = fs::metadata(path).ok().map(|metadata| FileVersion::from_metadata(&metadata));
        let mut now = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp.is_some() && stamp != now.1 {
            let read = self.source.read_file(path).ok().flatten();
            if let Some((text, stamp)) = read
                && let Ok(keys) = KeySet::parse(&text)
                && (keys.shares_key_with(&now.0) || fits(&keys))
            {
                *now = (Arc::new(keys), Some(stamp));
            }
        }
        Arc::clone(&now.0)
    }
}

#[cfg(test)]
mod tests;
