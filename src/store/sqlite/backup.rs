//! Backups on SQLite: a copy of one snapshot of the database, while servers write, verified before it gets its
//! name.
//!
//! SQLite's online backup copies the database page by page. Alone it starts again whenever another process
//! commits, and beside a busy server it would never end; so it runs inside one read transaction, whose
//! snapshot no commit changes. The copy is the state after some commit, and the writer commits before it
//! answers: every write that was acknowledged before the copy began is in it, and the writes in it are a
//! prefix of the change log. `VACUUM INTO` would have one snapshot too, but it decodes and writes every row
//! again, which holds the snapshot several times longer, and it cannot be synced in parts.
//!
//! Effect on writers: while the snapshot is held, the WAL cannot be reset, so each write makes it longer. The
//! copy is synced every few megabytes, so that a commit's fsync never waits for a whole database in the
//! kernel's write-back queue. Memory is constant: small page caches, and no journal of the copy.
//!
//! The copy is in rollback-journal mode, so that it is one file, also while it is read and on a read-only
//! medium; a server enables the WAL when it opens it.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::partial_file::{PartialFile, PartialFileError, folder_of};
use crate::store::error::OpenError;
use crate::store::sql::columns::quote_name;
use crate::store::sql::dialect::SQLITE;
use crate::store::sqlite::connection::{
    DatabaseOrigin, explain_error, identify_origin, inspect, open_for_reading,
};
use crate::store::sqlite::database_files::{DatabaseFiles, FILE_MODE, is_database_or_empty};

/// The pages that are copied between two syncs of the copy (8 MiB).
const STEP_PAGES: i32 = 2_048;
/// The page cache of a connection for copies: a copy reads and writes every page once.
pub const CACHE_KIB: u32 = 2_000;
/// The place of the file format versions (write and read) in the header of a database, and their value for
/// rollback-journal mode.
const VERSIONS_OFFSET: u64 = 18;
const ROLLBACK_VERSIONS: [u8; 2] = [1, 1];

/// Whether a backup replaces an existing file of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingFile {
    Refuse,
    Replace,
}

/// A verified copy of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopySummary {
    pub bytes: u64,
    /// The number of the newest entry of the change log; 0 if there is none.
    pub last_sequence: i64,
    /// Rows that refer to rows that do not exist: the copy has them because the database has them.
    pub broken_references: u64,
}

/// Why there is no copy.
#[derive(Debug)]
pub enum CopyError {
    /// SQLite cannot read the source or write the copy.
    Engine(rusqlite::Error),
    /// The file of the copy cannot be written.
    File(io::Error),
    /// The copy was written and is not valid.
    Invalid(String),
}

impl From<rusqlite::Error> for CopyError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Engine(error)
    }
}

/// Copies the database to a file, which appears when the copy is complete and verified. Servers and commands may
/// use the database meanwhile.
pub fn back_up(
    source: &DatabaseFiles,
    target: &Path,
    existing: ExistingFile,
) -> Result<CopySummary, OpenError> {
    source.check()?;
    refuse_target(source, target, existing)?;
    let shown = &source.display_path;
    let connection = open_for_reading(&source.real_path, CACHE_KIB)
        .map_err(|error| explain_error(shown, &error))?;
    if inspect(source, &connection)? {
        return Err(OpenError::new(format!("{shown} is empty; there is nothing to back up")));
    }
    let explain = |error| explain_copy_error(error, shown, target);
    let part = create_part(target).map_err(|error| explain_part_error(error, target))?;
    let summary = copy_verified(&connection, &part).map_err(explain)?;
    refuse_target(source, target, existing)?;
    part.publish(target).map_err(|error| explain(CopyError::File(error)))?;
    Ok(summary)
}

/// Creates the file of a copy, in place of one that was interrupted.
pub fn create_part(target: &Path) -> Result<PartialFile, PartialFileError> {
    PartialFile::create(target, FILE_MODE, is_database_or_empty)
}

/// Copies a snapshot of the database into the file, syncs it and verifies it.
pub fn copy_verified(source: &Connection, part: &PartialFile) -> Result<CopySummary, CopyError> {
    source.execute_batch("BEGIN")?;
    // The first read takes the snapshot.
    let contents = TableCounts::read(source)?;
    copy_pages(source, part)?;
    source.execute_batch("COMMIT")?;
    part.file
        .write_all_at(&ROLLBACK_VERSIONS, VERSIONS_OFFSET)
        .and_then(|()| part.file.sync_all())
        .map_err(CopyError::File)?;
    verify(&part.path, &contents)
}

fn copy_pages(source: &Connection, part: &PartialFile) -> Result<(), CopyError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(&part.path, flags)?;
    target.pragma_update(None, "cache_size", -i64::from(CACHE_KIB))?;
    // A copy that fails is removed, so there is nothing to roll back; it is synced here.
    target.pragma_update(None, "journal_mode", "off")?;
    target.pragma_update(None, "synchronous", "off")?;
    let backup = Backup::new(source, &mut target)?;
    loop {
        match backup.step(STEP_PAGES)? {
            StepResult::Done => return Ok(()),
            StepResult::More => part.file.sync_data().map_err(CopyError::File)?,
            // Cannot happen: the source is locked by the read transaction, and no other process opens the copy.
            other => return Err(CopyError::Invalid(format!("the copy was locked ({other:?})"))),
        }
    }
}

/// The number of rows of each table, and the newest change.
#[derive(Debug, PartialEq, Eq)]
struct TableCounts {
    tables: Vec<(String, i64)>,
    last_sequence: i64,
}

impl TableCounts {
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let mut names = connection
            .prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")?;
        let names: Vec<String> =
            names.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        let count = |name: String| {
            let rows = number(&format!("SELECT count(*) FROM {}", quote_name(&name)))?;
            Ok((name, rows))
        };
        let tables = names.into_iter().map(count).collect::<rusqlite::Result<_>>()?;
        Ok(Self { tables, last_sequence: number(SQLITE.low_watermark)? })
    }

    /// The first difference to what was expected.
    fn difference(&self, expected: &Self) -> Option<String> {
        let mut tables = self.tables.iter().zip(&expected.tables);
        match tables.find(|(found, expected)| found != expected) {
            Some(((name, rows), (_, expected))) => {
                Some(format!("{name}: expected {expected} rows, got {rows}"))
            }
            None if self == expected => None,
            None => Some("tables or changes are missing".to_owned()),
        }
    }
}

/// Reads the written copy as a whole: its marks, every page and index, all references, and the number of rows
/// that the snapshot had.
fn verify(path: &Path, expected: &TableCounts) -> Result<CopySummary, CopyError> {
    let copy = open_for_reading(path, CACHE_KIB)?;
    if identify_origin(&copy)? != DatabaseOrigin::Ours {
        return Err(CopyError::Invalid("its header differs from that of the database".to_owned()));
    }
    let verdict: String = copy.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        return Err(CopyError::Invalid(last_line(&verdict)));
    }
    if let Some(difference) = TableCounts::read(&copy)?.difference(expected) {
        return Err(CopyError::Invalid(difference));
    }
    let mut references = copy.prepare("PRAGMA foreign_key_check")?;
    let mut rows = references.query([])?;
    let mut broken_references = 0;
    while rows.next()?.is_some() {
        broken_references += 1;
    }
    let bytes = fs::metadata(path).map_err(CopyError::File)?.len();
    Ok(CopySummary { bytes, last_sequence: expected.last_sequence, broken_references })
}

/// The fault in the verdict of an integrity check: the line before it names the database, as SQLite does.
pub fn last_line(verdict: &str) -> String {
    verdict.lines().last().unwrap_or_default().to_owned()
}

/// Refuses to write where a file is, or over a part of a database.
fn refuse_target(
    source: &DatabaseFiles,
    target: &Path,
    existing: ExistingFile,
) -> Result<(), OpenError> {
    let shown = target.display();
    if target.is_dir() {
        return Err(OpenError::new(format!("{shown} is a folder; name a file in it")));
    }
    if source.has_file(target) {
        return Err(OpenError::new(format!(
            "{shown} is a file of the database itself; name another file for the backup"
        )));
    }
    if let Some(log) = find_log(target) {
        return Err(OpenError::new(format!(
            "{log} is here, so {shown} is open, or was not closed, and its newest writes are there; name another file",
            log = log.display()
        )));
    }
    match target.symlink_metadata() {
        Ok(_) if existing == ExistingFile::Refuse => Err(OpenError::new(format!(
            "{shown} exists already, and is not overwritten; name another file, or say --force"
        ))),
        _ => Ok(()),
    }
}

/// A file with changes that SQLite would apply to a database of this name when it is opened.
pub fn find_log(database: &Path) -> Option<PathBuf> {
    let named = |suffix: &str| {
        let mut name = database.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let has_bytes = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() > 0);
    ["-wal", "-journal"].map(named).into_iter().find(has_bytes)
}

fn explain_copy_error(error: CopyError, source: &str, target: &Path) -> OpenError {
    let shown = target.display();
    match error {
        CopyError::Engine(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => explain_file_error(&ErrorKind::StorageFull.into(), target),
            Some(ErrorCode::DatabaseCorrupt) => explain_error(source, &error),
            _ => OpenError::new(format!(
                "cannot copy {source} to {shown} ({error}); check both disks"
            )),
        },
        CopyError::File(error) => explain_file_error(&error, target),
        CopyError::Invalid(how) => OpenError::new(format!(
            "the copy of {source} is damaged ({how}), and was removed: {source} itself may be damaged, or the \
             disk that holds {shown}; check the database with: nouns doctor"
        )),
    }
}

/// Why the unfinished copy beside `target` cannot be created.
pub fn explain_part_error(error: PartialFileError, target: &Path) -> OpenError {
    let part = PartialFile::path_of(target);
    let part = part.display();
    OpenError::new(match error {
        PartialFileError::InUse => format!(
            "another process is writing {part}; wait until it is done, or name another file"
        ),
        PartialFileError::NotAFile => {
            format!("{part} is not a file; move it away, or name another file")
        }
        PartialFileError::Foreign => format!(
            "{part} is there, and is no unfinished copy of a database; move it away, or name another file"
        ),
        PartialFileError::Io(error) => return explain_file_error(&error, target),
    })
}

/// Why a file beside `target` cannot be written.
pub fn explain_file_error(error: &io::Error, target: &Path) -> OpenError {
    let shown = target.display();
    OpenError::new(match error.kind() {
        ErrorKind::StorageFull => {
            format!("the disk that holds {shown} is full; free some space, or name another file")
        }
        ErrorKind::NotFound => format!(
            "the folder {} does not exist; create it, or name another file",
            folder_of(target).display()
        ),
        _ => format!(
            "cannot write {shown} ({error}); make the folder writable, or name another file"
        ),
    })
}
