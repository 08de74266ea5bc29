//! Files that appear whole or not at all: written under another name, synced, then renamed.
//!
//! `NAME.part` is locked while it is written. One that a killed process has left is replaced by the next
//! attempt; a failed attempt removes its own.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::store::sqlite::database_files::FILE_MODE;

const SUFFIX: &str = ".part";

/// A file under construction, removed when dropped unless it was published.
#[derive(Debug)]
pub struct PartialFile {
    /// Open until the end. SQLite's own locks on the file do not matter: no other process knows its name.
    pub file: File,
    pub path: PathBuf,
    is_published: bool,
}

impl PartialFile {
    /// Creates it beside `target`, readable by its owner only. The error kind `WouldBlock`: another process
    /// writes it.
    pub fn create(target: &Path) -> io::Result<Self> {
        let mut path = target.as_os_str().to_owned();
        path.push(SUFFIX);
        let path = PathBuf::from(path);
        match OpenOptions::new().write(true).open(&path) {
            Ok(left) => {
                lock(&left)?;
                fs::remove_file(&path)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(FILE_MODE);
        let file = options.open(&path)?;
        // Where this fails, the file belongs to a process that has found it before it was locked.
        lock(&file)?;
        Ok(Self { file, path, is_published: false })
    }

    /// Gives the synced file its name, durably.
    pub fn publish(mut self, target: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, target)?;
        self.is_published = true;
        sync_folder(target)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file system without locks protects from nothing, and refuses nothing.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(ErrorKind::WouldBlock.into()),
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
    use super::*;

    #[test]
    fn partial_file_is_replaced_when_left_and_refused_when_in_use() {
        let folder = std::env::temp_dir().join(format!("nouns-partial-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let target = folder.join("copy.db");
        let first = PartialFile::create(&target).unwrap();
        let second = PartialFile::create(&target).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::WouldBlock);
        assert!(first.path.exists(), "the refused attempt leaves it alone");
        drop(first);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::write(folder.join("copy.db.part"), "left by a kill").unwrap();
        let third = PartialFile::create(&target).unwrap();
        assert_eq!(fs::read(&third.path).unwrap(), b"");
        third.publish(&target).unwrap();
        let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["copy.db"]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
