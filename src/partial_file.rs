//! Files that appear whole or not at all: written under another name, synced, then renamed.
//!
//! `NAME.part` is locked while it is written. One that a killed process has left is replaced by the next
//! attempt; a failed attempt removes its own. Whatever else has this name is left alone: a link, a pipe, a file
//! that somebody writes, a file that the caller does not take for a left one.
//!
//! A lock belongs to a file, not to its name. Between opening and locking it, another process may have replaced
//! the file and unlocked the old one; so a lock counts only if the name still leads to the locked file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

const SUFFIX: &str = ".part";

/// A file under construction, removed when dropped unless it was published.
#[derive(Debug)]
pub struct PartialFile {
    /// Open until the end. SQLite's own locks on the file do not matter: no other process knows its name.
    pub file: File,
    pub path: PathBuf,
    is_published: bool,
}

/// Why a file cannot be created.
#[derive(Debug)]
pub enum PartialFileError {
    /// Another process writes it.
    InUse,
    /// A link, a folder, a pipe or a device has its name.
    NotAFile,
    /// A file has its name that the caller does not replace.
    Foreign,
    Io(io::Error),
}

impl From<io::Error> for PartialFileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl PartialFile {
    pub fn path_of(target: &Path) -> PathBuf {
        let mut path = target.as_os_str().to_owned();
        path.push(SUFFIX);
        path.into()
    }

    /// Creates it beside `target` with these permissions, which the process's mask may restrict. A file of its name is
    /// replaced if nobody writes it and `is_left` takes it for one that a killed process has left.
    pub fn create(
        target: &Path,
        mode: u32,
        is_left: impl FnOnce(&File) -> io::Result<bool>,
    ) -> Result<Self, PartialFileError> {
        let path = Self::path_of(target);
        // Locked until the new file is: no other process replaces that one in between.
        let left = open_existing(&path)?;
        if let Some(left) = &left {
            lock(left, &path)?;
            if !is_left(left)? {
                return Err(PartialFileError::Foreign);
            }
            fs::remove_file(&path)?;
        }
        let mut options = OpenOptions::new();
        let created = options.read(true).write(true).create_new(true).mode(mode).open(&path);
        let file = match created {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(PartialFileError::InUse);
            }
            created => created?,
        };
        // Where this fails, another process has found the file before it was locked.
        lock(&file, &path)?;
        Ok(Self { file, path, is_published: false })
    }

    /// Gives the synced file its name, durably.
    pub fn publish(mut self, target: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, target)?;
        self.is_published = true;
        sync_folder(target).map_err(|error| {
            let cause = format!("the file is in place, but a power cut may undo that: {error}");
            io::Error::new(error.kind(), cause)
        })
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_published && is_at(&self.file, &self.path).unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The file with this name, if there is one. Neither follows a link nor waits for the other end of a pipe.
fn open_existing(path: &Path) -> Result<Option<File>, PartialFileError> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(found) if !found.is_file() => return Err(PartialFileError::NotAFile),
        found => found?,
    };
    // It may have become something else meanwhile.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
        Ok(_) => Err(PartialFileError::NotAFile),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A file system without locks protects from nothing, and refuses nothing.
fn lock(file: &File, path: &Path) -> Result<(), PartialFileError> {
    let is_locked = !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    match is_locked && is_at(file, path)? {
        true => Ok(()),
        false => Err(PartialFileError::InUse),
    }
}

/// Whether the name leads to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match path.symlink_metadata() {
        Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the names in the folder of a file durable.
pub fn sync_folder(file: &Path) -> io::Result<()> {
    File::open(folder_of(file))?.sync_all()
}

pub fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    /// A folder of its own for a test, removed when dropped.
    struct TestFolder(PathBuf);

    impl TestFolder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("nouns-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn create(target: &Path) -> Result<PartialFile, PartialFileError> {
        PartialFile::create(target, 0o600, |_| Ok(true))
    }

    #[test]
    fn partial_file_is_replaced_when_left_and_refused_when_in_use() {
        let folder = TestFolder::new("partial");
        let target = folder.0.join("copy.db");
        let first = create(&target).unwrap();
        assert!(matches!(create(&target), Err(PartialFileError::InUse)));
        assert!(first.path.exists(), "the refused attempt leaves it alone");
        drop(first);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
        fs::write(folder.0.join("copy.db.part"), "left by a kill").unwrap();
        let refused = PartialFile::create(&target, 0o600, |_| Ok(false));
        assert!(matches!(refused, Err(PartialFileError::Foreign)));
        assert_eq!(fs::read(folder.0.join("copy.db.part")).unwrap(), b"left by a kill");
        let third = create(&target).unwrap();
        assert_eq!(fs::read(&third.path).unwrap(), b"");
        third.publish(&target).unwrap();
        let names = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["copy.db"]);
    }

    /// Regression: a process that had opened a left file before another one replaced it removed the new one.
    #[test]
    fn partial_file_opened_before_it_was_replaced_is_in_use() {
        let folder = TestFolder::new("replaced");
        let target = folder.0.join("copy.db");
        let path = PartialFile::path_of(&target);
        fs::write(&path, "left by a kill").unwrap();
        let opened = open_existing(&path).unwrap().unwrap();
        let winner = create(&target).unwrap();
        assert!(matches!(lock(&opened, &path), Err(PartialFileError::InUse)));
        drop(opened);
        assert!(is_at(&winner.file, &path).unwrap());
        // A file that is no longer its own is not removed.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "of somebody else").unwrap();
        drop(winner);
        assert_eq!(fs::read(&path).unwrap(), b"of somebody else");
    }

    /// Many processes at once: never do two of them own the file.
    #[test]
    fn partial_file_of_concurrent_attempts_has_one_owner() {
        let folder = TestFolder::new("concurrent");
        let target = folder.0.join("copy.db");
        let path = PartialFile::path_of(&target);
        let owners = AtomicUsize::new(0);
        let wins = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        match create(&target) {
                            Ok(mut part) => {
                                let before = owners.fetch_add(1, Ordering::SeqCst);
                                assert_eq!(before, 0, "two own it");
                                assert!(is_at(&part.file, &path).unwrap(), "it is another one");
                                wins.fetch_add(1, Ordering::SeqCst);
                                owners.fetch_sub(1, Ordering::SeqCst);
                                // As a kill leaves it.
                                part.is_published = true;
                            }
                            Err(PartialFileError::InUse) => {}
                            Err(other) => panic!("{other:?}"),
                        }
                    }
                });
            }
        });
        assert!(wins.into_inner() > 0);
    }
}
