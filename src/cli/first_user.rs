//! The first user of a new database, `admin`, and the file that holds its password.
//!
//! Without a first user no client could create another. The file is named after the database, is readable by
//! its owner only, and is never overwritten: an existing one belongs to a database that exists, or existed.
//!
//! Order, so that no crash leaves an admin whose password is unknown: the password is written to a
//! temporary file, the user is committed, the file is renamed. A start that finds the temporary file of a
//! database with users completes the rename, if it holds the admin's password. The temporary name contains
//! the id of the database: databases of one name on several servers may share the folder.
//! A lock on the folder serializes the servers that do this in one folder; of servers in several folders,
//! the unique user name in the database lets one succeed.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::accounts::{self, Accounts};
use super::report::{CommandError, command_error};
use crate::auth::key::KeySet;
use crate::auth::key_source::{KeySource, create_private_file, wait_for_lock};
use crate::auth::password::{self, PasswordRecord};
use crate::fault;
use crate::model::Model;
use crate::model::builtin::ADMIN;
use crate::plan::{ChangeAuthor, Outcome, ReadPlan, RequestRefusal as Refused, WritePlan};
use crate::store::{AdminStore, Database, StoreError};
use crate::value::{Item, Value};

pub const NAME: &str = "admin";

/// The first user, created at this start.
#[derive(Debug)]
pub struct FirstUser {
    /// Shown on a terminal when the server accepts connections.
    pub password: String,
    pub file: PathBuf,
}

/// Refuses to create a database if the files beside it show that there was one: a key or a password file
/// is created only after its database. A key that the operator named may be older, and with another
/// database in the folder it may belong to that one; the password file is named after its own database.
pub fn refuse_lost_database(
    database: &Database,
    key: Option<&KeySource>,
    is_key_named: bool,
) -> Result<(), CommandError> {
    let Database::Sqlite(path) = database else { return Ok(()) };
    if !database.is_absent() {
        return Ok(());
    }
    let key_file = match key {
        Some(KeySource::File(path)) if !is_key_named && !database.has_neighbour() => Some(path),
        Some(KeySource::File(_) | KeySource::Environment(_)) | None => None,
    };
    let password_file = database.password_file(Path::new(""));
    let files = key_file.cloned().into_iter().chain([password_file.clone()]);
    let mut left: Vec<PathBuf> = files.filter(|path| path.exists()).collect();
    left.extend(temporary_files(&password_file));
    let Some(first) = left.first() else { return Ok(()) };
    let is_key = key_file == Some(first);
    let others = database.neighbour_names();
    let names: Vec<_> = left.iter().map(|path| path.display().to_string()).collect();
    let (names, database) = (names.join(" and "), path.display());
    if is_key && left.len() == 1 && !others.is_empty() {
        let (verb, others) = (if others.len() == 1 { "is" } else { "are" }, others.join(" or "));
        return Err(command_error(format!(
            "there is no database {database}, and {names} may be the key of {others}, which {verb} here too, or of a \
             {database} that was lost; to create {database} with this key, name it: --key-file {names}; if it was \
             lost or moved, put it back, or restore it from a backup"
        )));
    }
    let or_name = if is_key { ", or name the key with --key-file" } else { "" };
    Err(command_error(format!(
        "there is no database {database}, but {names}, which a server makes after it: the database was lost \
         or moved; put it back, or restore it from a backup; if a new one is meant, move {names} away{or_name}"
    )))
}

/// The same for PostgreSQL, where a first user would be created: refuses while the password file of another
/// database exists. `create` repeats the check under the lock.
pub fn refuse_foreign_file(
    database: &Database,
    model: &Arc<Model>,
    file: &Path,
) -> Result<(), CommandError> {
    if matches!(database, Database::Sqlite(_)) || file.symlink_metadata().is_err() {
        return Ok(());
    }
    let is_new = match AdminStore::find(database, model) {
        Ok(None) => true,
        Ok(Some(mut admin_store)) => !has_users(&mut admin_store)?,
        Err(_) => false,
    };
    if is_new { Err(password_file_exists(file)) } else { Ok(()) }
}

fn password_file_exists(file: &Path) -> CommandError {
    command_error(format!(
        "this database has no user yet, and {file} is there, which holds the first password of another \
         database or of one that was here; put that database back, name another --database, or move {file} away",
        file = file.display()
    ))
}

/// Creates the first user where there is none. Of several servers that start concurrently, one creates it.
pub fn create(
    admin_store: &mut AdminStore,
    model: &Model,
    keys: &KeySet,
    file: &Path,
) -> Result<Option<FirstUser>, CommandError> {
    if has_users(admin_store)? {
        return match find_temporary_file(admin_store, file)? {
            Some(temporary) => {
                let _lock = lock_folder(file)?;
                finish_interrupted(admin_store, file, &temporary)
            }
            None => Ok(None),
        };
    }
    let _lock = lock_folder(file)?;
    // Another server may have created the user while this one waited.
    if has_users(admin_store)? {
        return Ok(None);
    }
    if file.symlink_metadata().is_ok() {
        return Err(password_file_exists(file));
    }
    let password = password::generate().map_err(|unfit| creation_failed(&unfit))?;
    let record = password::make_record(model, Some(keys), NAME, &password)
        .map_err(|unfit| creation_failed(&unfit))?;
    let id = admin_store.ensure_database_id().map_err(|error| creation_failed(&error))?;
    let temporary = temporary_name(file, &id);
    write(&temporary, &password).map_err(|error| {
        command_error(format!(
            "cannot write the first password to {} ({error})",
            temporary.display()
        ))
    })?;
    fault::point("first_user");
    let by = ChangeAuthor::without_user("nouns", "-");
    let roles = Value::Json(format!("[\"{ADMIN}\"]").into());
    let record = Value::text(&record.to_string());
    let values = vec![Value::text(NAME), roles, Value::Boolean(false), record];
    match admin_store.write(&WritePlan::create_user(model, values, by)) {
        Ok(_) => {
            fault::point("first_user");
            Ok(Some(FirstUser { password, file: publish_file(&temporary, file) }))
        }
        // Another server, with another folder, was faster.
        Err(StoreError::Refused(Refused::NotUnique(_))) => {
            let _ = fs::remove_file(&temporary);
            Ok(None)
        }
        // The user may exist: the next start checks.
        Err(error @ StoreError::OutcomeUnknown(_)) => Err(creation_failed(&error)),
        Err(error) => {
            let _ = fs::remove_file(&temporary);
            Err(creation_failed(&error))
        }
    }
}

/// Completes a start interrupted after the user was created. A file with another password may be that of
/// another database, and is left alone.
fn finish_interrupted(
    admin_store: &mut AdminStore,
    file: &Path,
    temporary: &Path,
) -> Result<Option<FirstUser>, CommandError> {
    let found =
        admin_store.read(&ReadPlan::User(NAME.into())).map_err(|error| creation_failed(&error))?;
    let Outcome::User(Some(user)) = &found else { return Ok(None) };
    let Some(password) = password_in(temporary, user) else { return Ok(None) };
    let file = match file.symlink_metadata() {
        // It belongs to another database.
        Ok(_) => temporary.to_owned(),
        Err(_) => publish_file(temporary, file),
    };
    Ok(Some(FirstUser { password, file }))
}

/// The password in a file, if it is that of this user. Slow.
fn password_in(file: &Path, user: &Item) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let password = text.trim_end();
    let record = PasswordRecord::parse(accounts::password_record(user))?;
    password::verify(Some(&record), password).then(|| password.to_owned())
}

/// Gives the file its final name. Where that fails, it keeps the temporary one.
fn publish_file(temporary: &Path, file: &Path) -> PathBuf {
    match fs::rename(temporary, file) {
        Ok(()) => {
            // Makes the rename survive a power cut; otherwise the next start finds the temporary name.
            let _ = File::open(folder(file)).and_then(|folder| folder.sync_all());
            file.to_owned()
        }
        Err(_) => temporary.to_owned(),
    }
}

fn write(path: &Path, password: &str) -> io::Result<()> {
    create_private_file(path, &format!("{password}\n"), |_| Ok(()))?;
    File::open(folder(path))?.sync_all()
}

/// A password file beside a database.
#[derive(Debug)]
pub struct PasswordFile {
    path: PathBuf,
    /// Whether it held the password of the first user when it was checked.
    is_of_user: bool,
}

impl PasswordFile {
    /// The file, and the one with the temporary name that an interrupted start has left. Checks whether they
    /// belong to this user, before the user is changed: databases of one name on several servers may have
    /// the same folder. Slow.
    pub fn find(accounts: &mut Accounts, user: &Item) -> Result<Vec<Self>, CommandError> {
        let Some(file) = accounts.password_file.clone() else { return Ok(Vec::new()) };
        if accounts::user_name(user) != NAME {
            return Ok(Vec::new());
        }
        let temporary = find_temporary_file(&mut accounts.admin_store, &file)?;
        let files = [file].into_iter().filter(|file| file.exists()).chain(temporary);
        let check = |path: PathBuf| {
            let is_of_user = password_in(&path, user).is_some();
            Self { path, is_of_user }
        };
        Ok(files.map(check).collect())
    }

    /// Removes the file after its password has become invalid; returns a message about the result.
    pub fn remove_password_file(&self) -> Result<String, CommandError> {
        let path = self.path.display();
        if !self.is_of_user {
            return Ok(format!(
                "{path} is left as it is: it does not hold the password that {NAME} had; it may be that of \
                 another database"
            ));
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(command_error(format!(
                "done, but {path} cannot be removed ({error}); its password is no longer valid: remove it",
            ))),
            _ => Ok(format!("removed {path}, which held the old one")),
        }
    }
}

/// The columns of declared fields may not be there yet, so no whole user is read.
fn has_users(admin_store: &mut AdminStore) -> Result<bool, CommandError> {
    let groups = admin_store.role_groups().map_err(|error| creation_failed(&error))?;
    Ok(!groups.is_empty())
}

fn creation_failed(cause: &dyn std::fmt::Debug) -> CommandError {
    command_error(format!("cannot create the first user ({cause:?})"))
}

/// Locks the folder of a file, until the lock is dropped.
fn lock_folder(file: &Path) -> Result<Option<File>, CommandError> {
    let folder = folder(file);
    let Ok(opened) = File::open(folder) else { return Ok(None) };
    wait_for_lock(&opened, folder)?;
    Ok(Some(opened))
}

fn folder(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

const TEMPORARY_END: &str = ".new";

/// The name of a password file until its user is committed.
fn temporary_name(file: &Path, database_id: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{database_id}{TEMPORARY_END}"));
    name.into()
}

/// The temporary file of this database, if an interrupted start has left one.
fn find_temporary_file(
    admin_store: &mut AdminStore,
    file: &Path,
) -> Result<Option<PathBuf>, CommandError> {
    let id = admin_store.database_id()?;
    let temporary = id.map(|id| temporary_name(file, &id));
    Ok(temporary.filter(|temporary| temporary.exists()))
}

/// The temporary files of all databases with this password file.
fn temporary_files(file: &Path) -> Vec<PathBuf> {
    let (Some(name), Ok(entries)) = (file.file_name(), fs::read_dir(folder(file))) else {
        return Vec::new();
    };
    let start = format!("{}.", name.to_string_lossy());
    let is_temporary = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(&start) && name.ends_with(TEMPORARY_END)
    };
    entries
        .flatten()
        .map(|entry| file.with_file_name(entry.file_name()))
        .filter(is_temporary)
        .collect()
}
