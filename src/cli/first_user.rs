//! The first user of a new database, `admin`, and the file that holds its password.
//!
//! Without a first user nobody could create another. The file is named after the database, is readable by
//! its owner only, and is never overwritten: an existing one belongs to a database that exists, or existed.
//!
//! Order, so that no crash leaves an admin whose password nobody knows: the password is written under the
//! name of the file with the suffix `.new`, the user is committed, the file is renamed. A start that finds
//! such a file in a database with users completes the rename, if it holds the admin's password.
//! A lock on the folder serializes the servers that do this in one folder; of servers in several folders,
//! the unique user name in the database lets one succeed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{CommandError, accounts, command_error};
use crate::auth::key::{KeySet, KeySource, wait_for_lock};
use crate::auth::password::{self, PasswordRecord};
use crate::fault;
use crate::model::builtin::ADMIN;
use crate::model::{AuthScheme, Model};
use crate::plan::{ChangeAuthor, Outcome, ReadPlan, RequestRefusal as Refused, WritePlan};
use crate::store::{AdminStore, Database, StoreError};
use crate::value::{Item, Value};

const NAME: &str = "admin";

/// The first user, created at this start.
#[derive(Debug)]
pub(super) struct FirstUser {
    /// Shown on a terminal when the server accepts connections.
    pub(super) password: String,
    pub(super) file: PathBuf,
}

/// Refuses to create a database where the files beside it show that there was one: a key or a password file
/// is created only after its database. A key that the operator named may be older, and with another
/// database in the folder it may belong to that one; the password file is named after its own database.
pub(super) fn refuse_lost_database(
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
    let left = [key_file, Some(&password_file)];
    let left: Vec<_> = left.into_iter().flatten().filter(|path| path.exists()).collect();
    let Some(first) = left.first() else { return Ok(()) };
    let is_key = key_file == Some(*first);
    let names: Vec<_> = left.iter().map(|path| path.display().to_string()).collect();
    let (names, database) = (names.join(" and "), path.display());
    let or_name = if is_key { ", or name the key with --key-file" } else { "" };
    Err(command_error(format!(
        "there is no database {database}, but {names}, which a server makes after it: the database was lost \
         or moved; put it back, or restore it from a backup; if a new one is meant, move {names} away{or_name}"
    )))
}

/// The same for PostgreSQL, where a first user would be created: refuses while the password file of another
/// database is there. What cannot be checked now is checked by `create`.
pub(super) fn refuse_foreign_file(
    database: &Database,
    model: &Arc<Model>,
    file: &Path,
) -> Result<(), CommandError> {
    if matches!(database, Database::Sqlite(_)) || file.symlink_metadata().is_err() {
        return Ok(());
    }
    let is_new = match AdminStore::find(database, model) {
        Ok(None) => true,
        Ok(Some(mut beside)) => !has_users(&mut beside, model)?,
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
pub(super) fn create(
    beside: &mut AdminStore,
    model: &Model,
    keys: &KeySet,
    file: &Path,
) -> Result<Option<FirstUser>, CommandError> {
    let unfinished = with_suffix(file, ".new");
    if has_users(beside, model)? {
        return match unfinished.exists() {
            true => {
                let _lock = lock_folder(file)?;
                finish_interrupted(beside, file, &unfinished)
            }
            false => Ok(None),
        };
    }
    let _lock = lock_folder(file)?;
    // Another server may have created the user while this one waited.
    if has_users(beside, model)? {
        return Ok(None);
    }
    if file.symlink_metadata().is_ok() {
        return Err(password_file_exists(file));
    }
    let password = password::generate().map_err(|unfit| creation_failed(&unfit))?;
    let record = password::make_record(model, Some(keys), NAME, &password)
        .map_err(|unfit| creation_failed(&unfit))?;
    write(&unfinished, &password).map_err(|error| {
        command_error(format!(
            "cannot write the first password to {} ({error})",
            unfinished.display()
        ))
    })?;
    fault::point("first_user");
    let by = ChangeAuthor { actor: "nouns".into(), request_id: "-".into() };
    let roles = Value::Json(format!("[\"{ADMIN}\"]").into());
    let record = Value::text(&record.to_string());
    let values = vec![Value::text(NAME), roles, Value::Boolean(false), record];
    match beside.write(WritePlan::create_user(model, values, by)) {
        Ok(_) => {
            fault::point("first_user");
            Ok(Some(FirstUser { password, file: publish_file(&unfinished, file) }))
        }
        // Another server, with another folder, was faster.
        Err(StoreError::Refused(Refused::NotUnique(_))) => {
            let _ = fs::remove_file(&unfinished);
            Ok(None)
        }
        // The user may exist: the next start checks.
        Err(error @ StoreError::OutcomeUnknown(_)) => Err(creation_failed(&error)),
        Err(error) => {
            let _ = fs::remove_file(&unfinished);
            Err(creation_failed(&error))
        }
    }
}

/// Completes a start interrupted after the user was created. A file with another password may be that of
/// another database, and is left alone.
fn finish_interrupted(
    beside: &mut AdminStore,
    file: &Path,
    unfinished: &Path,
) -> Result<Option<FirstUser>, CommandError> {
    let found =
        beside.read(&ReadPlan::User(NAME.into())).map_err(|error| creation_failed(&error))?;
    let Outcome::User(Some(user)) = &found else { return Ok(None) };
    let Some(password) = password_in(unfinished, user) else { return Ok(None) };
    let file = match file.symlink_metadata() {
        // It belongs to another database.
        Ok(_) => unfinished.to_owned(),
        Err(_) => publish_file(unfinished, file),
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
fn publish_file(unfinished: &Path, file: &Path) -> PathBuf {
    match fs::rename(unfinished, file) {
        Ok(()) => {
            // Makes the rename survive a power cut; otherwise the next start finds the temporary name.
            let _ = File::open(folder(file)).and_then(|folder| folder.sync_all());
            file.to_owned()
        }
        Err(_) => unfinished.to_owned(),
    }
}

fn write(path: &Path, password: &str) -> io::Result<()> {
    // Left behind by a start that was interrupted before the user was created.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{password}")?;
    file.sync_all()?;
    File::open(folder(path))?.sync_all()
}

/// A password file beside a database.
#[derive(Debug)]
pub(super) struct PasswordFile<'a> {
    path: &'a Path,
    /// Whether it held the password of the first user when it was checked.
    is_of_user: bool,
}

impl<'a> PasswordFile<'a> {
    /// Checks whether the file belongs to this user, before the user is changed: databases of one name on
    /// several servers may have the same folder. `None` if there is no file. Slow.
    pub(super) fn find(path: Option<&'a Path>, user: &Item) -> Option<Self> {
        let path = path.filter(|path| accounts::user_name(user) == NAME && path.exists())?;
        Some(Self { path, is_of_user: password_in(path, user).is_some() })
    }

    /// Removes the file after its password has become invalid; returns a message about the result.
    pub(super) fn remove_password_file(&self) -> Result<String, CommandError> {
        let path = self.path.display();
        if !self.is_of_user {
            return Ok(format!(
                "{path} is left as it is: it does not hold the password that {NAME} had; it may be that of \
                 another database"
            ));
        }
        match fs::remove_file(self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(command_error(format!(
                "done, but {path} cannot be removed ({error}); its password is no longer valid: remove it",
            ))),
            _ => Ok(format!("removed {path}, which held the old one")),
        }
    }
}

fn has_users(beside: &mut AdminStore, model: &Model) -> Result<bool, CommandError> {
    match beside.read(&ReadPlan::users(model, 1, None)).map_err(|error| creation_failed(&error))? {
        Outcome::Page(page) => Ok(!page.items.is_empty()),
        _ => Err(creation_failed(&"the users cannot be read")),
    }
}

fn creation_failed(cause: &dyn std::fmt::Debug) -> CommandError {
    command_error(format!("cannot create the first user ({cause:?})"))
}

/// Held until it is dropped.
fn lock_folder(file: &Path) -> Result<Option<File>, CommandError> {
    let folder = folder(file);
    let Ok(opened) = File::open(folder) else { return Ok(None) };
    wait_for_lock(&opened, folder).map_err(command_error)?;
    Ok(Some(opened))
}

fn folder(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

fn with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// A `curl` command to paste; `place` is the URL, with the options that `curl` needs for it.
pub(super) fn login_hint(model: &Model, first: &FirstUser, place: &str) -> String {
    let realm = model.realms.get(model.server_realm());
    let has_digest = realm.is_some_and(|realm| realm.schemes.contains(&AuthScheme::Digest));
    let scheme = if has_digest { "--digest" } else { "--basic" };
    format!(
        "nouns: the first user is {NAME}, with the password in {}; this line is shown once:\n  curl {scheme} -u {NAME}:{} {place}",
        first.file.display(),
        first.password,
    )
}
