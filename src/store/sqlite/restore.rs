//! Restoring a backup on SQLite: the file is copied beside the database, verified, and renamed over it.
//!
//! A WAL or a rollback journal of the replaced database would be applied to the restored one, page by page, and
//! destroy it. So it is gone before the rename: the old database is checkpointed and leaves WAL mode, which
//! needs the only connection to it. Without a WAL, a process that has the database open and does nothing holds no
//! lock; it would go on in a file that is gone, so the open files of all visible processes are examined too. A log that cannot be
//! checkpointed, because the old database is damaged, holds acknowledged writes: it is never deleted, and the
//! operator moves it away. Killed at any point, the old database is there or the restored one, with nothing
//! beside it that does not belong to it.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::partial_file::{PartialFile, sync_folder};
use crate::store::error::{OpenError, newer_format_error};
use crate::store::sqlite::backup::{
    CACHE_KIB, CopyError, CopySummary, ExistingFile, copy_verified, create_part,
    explain_file_error, explain_part_error, find_log,
};
use crate::store::sqlite::connection::{
    BUSY_TIMEOUT, DatabaseOrigin, FORMAT, identify_origin, open_for_reading,
};
use crate::store::sqlite::database_files::{DatabaseFiles, LOCK_SUFFIX, is_same_file};
use crate::store::sqlite::database_lock::DatabaseLock;
use crate::store::sqlite::recovery::{has_wal, open_recovered};

/// Puts a copy of the backup in the place of the database, which no server may have open.
pub fn restore(
    backup: &Path,
    target: &Path,
    existing: ExistingFile,
) -> Result<CopySummary, OpenError> {
    let files = DatabaseFiles::find(target)?;
    let shown = &files.display_path;
    // The copy is made under the second name.
    let own = [files.real_path.clone(), PartialFile::path_of(&files.real_path)];
    if own.iter().any(|own| is_same_file(backup, own)) {
        return Err(OpenError::new(format!(
            "{} would be overwritten by its own copy; name another --database",
            backup.display()
        )));
    }
    let source = open_backup(backup)?;
    if !files.is_empty() && existing == ExistingFile::Refuse {
        return Err(OpenError::new(format!(
            "{shown} exists already, and is not overwritten; name another --database, or replace it with --force"
        )));
    }
    let lock = DatabaseLock::acquire(&files)?.map_err(|holder| {
        OpenError::new(format!(
            "{} is using {shown}; stop it first, or name another --database",
            holder.describe()
        ))
    })?;
    let done = replace(&source, backup, &files);
    if done.is_err() && lock.is_new {
        let _ = fs::remove_file(files.sibling(LOCK_SUFFIX));
    }
    done
}

/// Opens the backup and checks that it is one.
fn open_backup(backup: &Path) -> Result<Connection, OpenError> {
    let shown = backup.display().to_string();
    match fs::metadata(backup) {
        Ok(metadata) if metadata.is_file() && metadata.len() > 0 => {}
        Ok(metadata) if metadata.is_file() => {
            return Err(OpenError::new(format!(
                "{shown} is empty; name a file that nouns backup has written"
            )));
        }
        Ok(_) => {
            return Err(OpenError::new(format!(
                "{shown} is no file; name a file that nouns backup has written"
            )));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenError::new(format!(
                "there is no backup {shown}; name a file that nouns backup has written"
            )));
        }
        Err(error) => return Err(OpenError::new(format!("cannot read {shown} ({error})"))),
    }
    let explain = |error: rusqlite::Error| explain_backup_error(&shown, &error);
    let source = open_for_reading(backup, CACHE_KIB).map_err(explain)?;
    match identify_origin(&source).map_err(explain)? {
        DatabaseOrigin::Ours => Ok(source),
        DatabaseOrigin::Newer(format) => Err(newer_format_error(&shown, format, FORMAT)),
        DatabaseOrigin::Empty | DatabaseOrigin::OtherProgram => Err(OpenError::new(format!(
            "{shown} is no database of nouns; name a file that nouns backup has written"
        ))),
    }
}

fn replace(
    source: &Connection,
    backup: &Path,
    files: &DatabaseFiles,
) -> Result<CopySummary, OpenError> {
    let target = &files.real_path;
    let explain = |error: &io::Error| explain_file_error(error, Path::new(&files.display_path));
    // The real path is the one of the target of a link; messages show the operator's own.
    let part = create_part(target)
        .map_err(|error| explain_part_error(error, Path::new(&files.display_path)))?;
    let summary = copy_verified(source, &part).map_err(|error| {
        let shown = backup.display().to_string();
        match error {
            CopyError::Engine(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                explain(&io::ErrorKind::StorageFull.into())
            }
            CopyError::Engine(error) => explain_backup_error(&shown, &error),
            CopyError::File(error) => explain(&error),
            CopyError::Invalid(how) => damaged_backup_error(&shown, &how),
        }
    })?;
    keep_permissions(&part, target).map_err(|error| explain(&error))?;
    remove_log(files)?;
    part.publish(target).map_err(|error| explain(&error))?;
    Ok(summary)
}

/// Gives the restored database the owner, the group and the mode of the replaced one: root may restore for a server
/// that runs as another user, or that has access by its group.
fn keep_permissions(part: &PartialFile, replaced: &Path) -> io::Result<()> {
    let old = match fs::metadata(replaced) {
        Ok(old) => old,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let new = part.file.metadata()?;
    let mut permissions = old.permissions();
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        match fchown(&part.file, Some(old.uid()), Some(old.gid())) {
            // A user cannot give a file to a group of which they are no member: only the owner keeps access then.
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && old.uid() == new.uid() =>
            {
                permissions.set_mode(old.mode() & 0o7707);
            }
            done => done?,
        }
    }
    part.file.set_permissions(permissions)
}

/// Removes the WAL of the database that is about to be replaced, after everything in it is in the database.
fn remove_log(files: &DatabaseFiles) -> Result<(), OpenError> {
    let shown = &files.display_path;
    if let Some(process) = find_process_with(&files.real_path) {
        return Err(OpenError::new(format!(
            "another process has {shown} open ({process}); end it, and restore again"
        )));
    }
    if !files.is_empty()
        && let Err(error) = leave_wal_mode(files)
    {
        match error {
            LeaveError::InUse => {
                return Err(OpenError::new(format!(
                    "another process has {shown} open; end it, and restore again"
                )));
            }
            LeaveError::OtherProgram => {
                return Err(OpenError::new(format!(
                    "{shown} is a database of another program, and is not replaced; name another --database"
                )));
            }
            LeaveError::Unreadable(cause) => {
                if let Some(log) = find_log(&files.real_path) {
                    return Err(OpenError::new(format!(
                        "{shown} cannot be opened ({cause}), and {log} holds writes that are not in it; move both \
                         away, and restore again",
                        log = log.display()
                    )));
                }
            }
        }
    }
    if let Some(log) = find_log(&files.real_path) {
        return Err(OpenError::new(format!(
            "{log} is here, which SQLite would apply to the restored database; move it away, and restore again",
            log = log.display()
        )));
    }
    for suffix in ["-wal", "-shm", "-journal"] {
        match fs::remove_file(files.sibling(suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(explain_file_error(&error, Path::new(shown)));
            }
            _ => {}
        }
    }
    sync_folder(&files.real_path).map_err(|error| explain_file_error(&error, Path::new(shown)))
}

/// Why the old database did not leave WAL mode.
enum LeaveError {
    InUse,
    OtherProgram,
    /// It is damaged, or no database.
    Unreadable(String),
}

impl From<rusqlite::Error> for LeaveError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::InUse,
            _ => Self::Unreadable(error.to_string()),
        }
    }
}

/// Checkpoints the WAL and deletes it. SQLite does so only for the sole connection of the database.
fn leave_wal_mode(files: &DatabaseFiles) -> Result<(), LeaveError> {
    let explain = |error: OpenError| LeaveError::Unreadable(error.to_string());
    // Before SQLite opens anything: it deletes the log beside a file of a few bytes.
    files.check().map_err(explain)?;
    check_replaceable(files)?;
    if has_wal(files) {
        open_recovered(files).map_err(explain)?;
    }
    let connection = open_old(files)?;
    // To the end: SQLite returns the row first, and then changes the mode, which may fail.
    let mut pragma = connection.prepare("PRAGMA journal_mode = delete")?;
    let modes = pragma.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    match modes.as_slice() {
        // Nobody reads or writes it.
        [mode] if mode == "delete" => Ok(connection.execute_batch("BEGIN EXCLUSIVE; ROLLBACK")?),
        _ => Err(LeaveError::Unreadable(format!("its journal mode is {modes:?}"))),
    }
}

/// Whether the old database is one of ours, and no other process writes it. Nothing of it is changed, but for what
/// SQLite rolls back when it finds the journal of a killed process.
fn check_replaceable(files: &DatabaseFiles) -> Result<(), LeaveError> {
    let connection = open_old(files)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    if identify_origin(&connection)? == DatabaseOrigin::OtherProgram {
        return Err(LeaveError::OtherProgram);
    }
    Ok(connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK")?)
}

fn open_old(files: &DatabaseFiles) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&files.real_path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

/// The number and the name of another process that has a file open, of those whose files this user may see.
fn find_process_with(file: &Path) -> Option<String> {
    let found = fs::metadata(file).ok()?;
    let own = std::process::id().to_string();
    let is_this = |entry: &fs::DirEntry| {
        let open = fs::metadata(entry.path());
        open.is_ok_and(|open| (open.dev(), open.ino()) == (found.dev(), found.ino()))
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut processes = processes.filter(|entry| *entry.file_name() != *own);
    let process = processes.find(|entry| {
        let files = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        files.into_iter().any(|open| is_this(&open))
    })?;
    let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
    Some(format!("process {}, {}", process.file_name().display(), name.trim_end()))
}

fn explain_backup_error(shown: &str, error: &rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::new(format!(
            "{shown} is no database; name a file that nouns backup has written"
        )),
        Some(ErrorCode::DatabaseCorrupt) => damaged_backup_error(shown, &error.to_string()),
        _ => OpenError::new(format!("cannot read {shown} ({error})")),
    }
}

fn damaged_backup_error(shown: &str, how: &str) -> OpenError {
    OpenError::new(format!("{shown} is damaged ({how}); nothing was restored: use another backup"))
}
