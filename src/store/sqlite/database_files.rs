//! The files of a database, checked before SQLite opens them.
//!
//! SQLite treats an empty file, and one of a single byte, as a new database, and deletes the write-ahead log
//! beside it. So these checks run before SQLite opens anything.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::partial_file::folder_of;
use crate::store::error::OpenError;

/// The suffix of the lock file.
pub const LOCK_SUFFIX: &str = "-lock";
/// The magic bytes of a database, and the size of its header.
const MAGIC: &[u8] = b"SQLite format 3\0";
const HEADER_BYTES: u64 = 100;
/// Owner only: the database holds password hashes.
pub const FILE_MODE: u32 = 0o600;

/// The database file and the files beside it. SQLite follows a symbolic link to the database and keeps the
/// other files beside its target; so do we.
#[derive(Debug)]
pub struct DatabaseFiles {
    /// The path as the operator wrote it, for messages.
    pub display_path: String,
    pub real_path: PathBuf,
}

impl DatabaseFiles {
    pub const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

    pub fn find(path: &Path) -> Result<Self, OpenError> {
        let shown = path.display().to_string();
        if path.is_dir() {
            return Err(OpenError::new(format!(
                "{shown} is a folder; name a file in it: --database sqlite:{shown}/nouns.db"
            )));
        }
        let target = resolve_links(path);
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let name = target.file_name().ok_or_else(|| {
            OpenError::new(format!("{shown} names no file; name one: --database sqlite:nouns.db"))
        })?;
        let real = folder.canonicalize().map_err(|error| {
            let folder = folder.display();
            OpenError::new(match error.kind() {
                ErrorKind::NotFound => {
                    format!(
                        "the folder {folder} does not exist; create it, or name another --database"
                    )
                }
                _ => format!(
                    "cannot look into the folder {folder} ({error}); name another --database"
                ),
            })
        })?;
        let real = real.join(name);
        Ok(Self { display_path: shown, real_path: real.canonicalize().unwrap_or(real) })
    }

    pub fn sibling(&self, end: &str) -> PathBuf {
        let mut name = self.real_path.as_os_str().to_owned();
        name.push(end);
        name.into()
    }

    /// Whether a path leads to the database or a file beside it that belongs to it, or would if it existed.
    pub fn has_file(&self, path: &Path) -> bool {
        let suffixes = Self::SUFFIXES.into_iter().chain([LOCK_SUFFIX]);
        suffixes.map(|suffix| self.sibling(suffix)).any(|own| is_same_place(&own, path))
    }

    /// Whether the database file is missing or empty.
    pub fn is_empty(&self) -> bool {
        fs::metadata(&self.real_path).map_or(true, |metadata| metadata.len() == 0)
    }

    /// Creates the file of a new database with mode 0600. SQLite gives the files beside it the same mode.
    pub fn create_private(&self) -> io::Result<()> {
        match OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&self.real_path)
        {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The file's mode, if other users of this machine can read or write the database.
    pub fn mode_for_others(&self) -> Option<u32> {
        let mode = fs::metadata(&self.real_path).ok()?.mode() & 0o777;
        (mode & 0o007 != 0).then_some(mode)
    }

    /// Refuses files that SQLite would misinterpret, with a remedy. Opens and changes nothing.
    pub fn check(&self) -> Result<(), OpenError> {
        self.refuse_orphaned_wal()?;
        let Ok(metadata) = fs::metadata(&self.real_path) else { return Ok(()) };
        self.refuse_hard_links(&metadata)?;
        self.refuse_truncated(&metadata)
    }

    /// SQLite finds the WAL and its locks by the file's name: a hard link would have another WAL and locks.
    fn refuse_hard_links(&self, metadata: &Metadata) -> Result<(), OpenError> {
        match metadata.nlink() {
            0 | 1 => Ok(()),
            count => Err(OpenError::new(format!(
                "{shown} is one file under {count} names (hard links), and under each of them another server \
                 could write it; remove the others (find / -xdev -samefile {shown} shows them), or copy it: \
                 cp {shown} new.db",
                shown = self.display_path
            ))),
        }
    }

    /// A file shorter than a database header was truncated, unless the first start was killed before it had
    /// written a page.
    fn refuse_truncated(&self, metadata: &Metadata) -> Result<(), OpenError> {
        let bytes = metadata.len();
        if !(1..HEADER_BYTES).contains(&bytes)
            || is_journal_of_empty_database(&self.sibling("-journal"))
        {
            return Ok(());
        }
        let shown = &self.display_path;
        let kept = match has_bytes(&self.sibling("-wal")) {
            true => format!(", and keep {shown}-wal, which holds answered writes"),
            false => String::new(),
        };
        Err(OpenError::new(format!(
            "{shown} is damaged (it is truncated: {bytes} bytes are left); restore it from a backup{kept}, \
             or name another --database"
        )))
    }

    /// Whether the folder has another database that a server has opened: its lock file is there.
    pub fn has_neighbour(&self) -> bool {
        let has_lock = |path: &PathBuf| {
            let mut lock = path.as_os_str().to_owned();
            lock.push(LOCK_SUFFIX);
            Path::new(&lock).exists()
        };
        self.neighbours().iter().any(has_lock)
    }

    /// Other databases in the folder, in order; some may be copies.
    pub fn neighbours(&self) -> Vec<PathBuf> {
        let is_other = |path: &PathBuf| *path != self.real_path && begins_with_magic(path);
        let folder = self.real_path.parent().and_then(|folder| fs::read_dir(folder).ok());
        let paths = folder.into_iter().flatten().flatten().map(|entry| entry.path());
        let mut others: Vec<PathBuf> = paths.filter(is_other).collect();
        others.sort();
        others
    }

    /// A WAL without its database holds acknowledged writes; SQLite would delete it.
    fn refuse_orphaned_wal(&self) -> Result<(), OpenError> {
        let is_empty = self.is_empty();
        let stray = ["-wal", "-journal"].into_iter().find(|end| {
            let path = self.sibling(end);
            has_bytes(&path) && !(*end == "-journal" && is_journal_of_empty_database(&path))
        });
        match stray {
            Some(end) if is_empty => Err(OpenError::new(format!(
                "{shown}{end} is here, but the database it belongs to is not; put {shown} back, or move {shown}{end} away",
                shown = self.display_path
            ))),
            _ => Ok(()),
        }
    }
}

/// Whether a rollback journal restores an empty database, as when the first start was killed before it wrote
/// a page: such a journal holds no data. The page count is at byte 16 of its header.
fn is_journal_of_empty_database(journal: &Path) -> bool {
    let mut head = [0; 20];
    let read = File::open(journal).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head.ends_with(&[0; 4])
}

fn has_bytes(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0)
}

fn begins_with_magic(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == MAGIC
}

/// Whether a file is a database, or the beginning of one.
pub fn is_database_or_empty(file: &File) -> io::Result<bool> {
    let mut head = Vec::new();
    file.take(u64::try_from(MAGIC.len()).unwrap_or(0)).read_to_end(&mut head)?;
    // An interrupted copy may have zeros in the place of its first page.
    Ok(MAGIC.starts_with(&head) || head.iter().all(|byte| *byte == 0))
}

/// Whether two paths name the same file, or would if it existed.
pub fn is_same_place(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let resolved = resolve_links(path);
        let folder = folder_of(&resolved).canonicalize().ok()?;
        Some(folder.join(resolved.file_name()?))
    };
    place(one).is_some_and(|place_of_one| place(other) == Some(place_of_one))
        || is_same_file(one, other)
}

pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let (one, other) = (fs::metadata(one), fs::metadata(other));
    one.ok()
        .zip(other.ok())
        .is_some_and(|(one, other)| (one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// The limit of the Linux kernel on symbolic links in one path.
const SYMLINKS_MAX: usize = 40;

/// Resolves symbolic links. A dangling link resolves to the path it names, where a file can be created.
pub fn resolve_links(path: &Path) -> PathBuf {
    let mut target = path.to_owned();
    for _ in 0..SYMLINKS_MAX {
        let Ok(to) = fs::read_link(&target) else { break };
        target = target.parent().unwrap_or(Path::new("")).join(to);
    }
    target
}
