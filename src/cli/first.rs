//! The first user of a new database: without one nobody could make another.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{Refusal, refusal};
use crate::auth::key::{Keys, Source};
use crate::auth::password;
use crate::model::own::ADMIN;
use crate::model::{Model, Scheme};
use crate::plan::{By, Outcome, Read, Refusal as Refused, Write};
use crate::store::{Beside, Database, StoreError};
use crate::value::Value;

const NAME: &str = "admin";
const FILE: &str = "nouns.admin-password";

/// How the operator learns the password.
#[derive(Debug, Clone)]
pub(super) enum Telling {
    /// Once, on the terminal.
    Show,
    /// In a file beside the key.
    Write(PathBuf),
}

impl Telling {
    pub(super) fn beside(key_file: Option<&Path>) -> Self {
        let folder = key_file.and_then(Path::parent).unwrap_or(Path::new(""));
        Self::Write(folder.join(FILE))
    }
}

/// What was told.
#[derive(Debug)]
pub(super) enum Told {
    /// The password, to be shown when the server accepts connections.
    Password(String),
    At(PathBuf),
}

/// Makes the first user, when there is none. Of several servers that start at once, one makes it.
pub(super) fn make(
    beside: &mut Beside,
    model: &Model,
    keys: &Keys,
    telling: &Telling,
) -> Result<Option<Told>, Refusal> {
    let cannot =
        |cause: &dyn std::fmt::Debug| refusal(format!("cannot make the first user ({cause:?})"));
    match beside.read(&Read::users(model, 1, None)).map_err(|error| cannot(&error))? {
        Outcome::Page(page) if page.items.is_empty() => {}
        _ => return Ok(None),
    }
    let password = password::random().map_err(|unfit| cannot(&unfit))?;
    let record =
        password::make(model, Some(keys), NAME, &password).map_err(|unfit| cannot(&unfit))?;
    // Before the user, and under its own name after it: one whose password nobody knows would be
    // worse than a file too many, and of two servers only one has made the user.
    let kept = match telling {
        Telling::Show => None,
        Telling::Write(path) => Some(keep(path, &password).map_err(|error| {
            refusal(format!("cannot write the first password to {} ({error})", path.display()))
        })?),
    };
    let by = By { actor: "nouns".into(), request_id: "-".into() };
    let roles = Value::Json(format!("[\"{ADMIN}\"]").into());
    let record = Value::text(&record.to_string());
    let values = vec![Value::text(NAME), roles, Value::Boolean(false), record];
    let made = beside.write(Write::create_user(model, values, by));
    match (made, kept) {
        (Ok(_), None) => Ok(Some(Told::Password(password))),
        (Ok(_), Some((new, path))) => {
            let renamed = fs::rename(&new, &path);
            Ok(Some(Told::At(if renamed.is_ok() { path } else { new })))
        }
        (Err(error), kept) => {
            if let Some((new, _)) = kept {
                let _ = fs::remove_file(new);
            }
            match error {
                // Another server was faster.
                StoreError::Refused(Refused::Taken(_)) => Ok(None),
                error => Err(cannot(&error)),
            }
        }
    }
}

/// Where the password is now, and where it will be.
fn keep(path: &Path, password: &str) -> io::Result<(PathBuf, PathBuf)> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(new);
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(file, "{password}")?;
    file.sync_all()?;
    Ok((new, path.to_owned()))
}

/// A line that works when it is pasted; `place` is where to call, as `curl` wants it said.
pub(super) fn line(model: &Model, password: &str, place: &str) -> String {
    let realm = model.realms.get(model.server_realm());
    let has_digest = realm.is_some_and(|realm| realm.schemes.contains(&Scheme::Digest));
    let scheme = if has_digest { "--digest" } else { "--basic" };
    format!(
        "nouns: the first user is {NAME}; this is told once:\n  curl {scheme} -u {NAME}:{password} {place}"
    )
}

/// Refuses to make a database where the files beside it say that there was one: a key or a password file
/// is made only after its database. A key that the operator named may be older, and with another database
/// in the folder both may be that one's.
pub(super) fn refuse_lost_database(
    database: &Database,
    key: Option<&Source>,
    is_key_named: bool,
) -> Result<(), Refusal> {
    let Database::Sqlite(path) = database else { return Ok(()) };
    if !database.is_absent() || database.has_neighbour() {
        return Ok(());
    }
    let key_file = match key {
        Some(Source::File(path)) => Some(path.as_path()),
        Some(Source::Environment(_)) | None => None,
    };
    let Telling::Write(password_file) = Telling::beside(key_file) else { return Ok(()) };
    let left = [key_file.filter(|_| !is_key_named), Some(password_file.as_path())];
    let left: Vec<_> = left.into_iter().flatten().filter(|path| path.exists()).collect();
    let Some(first) = left.first() else { return Ok(()) };
    let is_key = key_file == Some(*first);
    let names: Vec<_> = left.iter().map(|path| path.display().to_string()).collect();
    let (names, database) = (names.join(" and "), path.display());
    let or_name = if is_key { ", or name the key with --key-file" } else { "" };
    Err(refusal(format!(
        "there is no database {database}, but {names}, which a server makes after it: the database was lost \
         or moved; put it back, or restore it from a backup; if a new one is meant, move {names} away{or_name}"
    )))
}
