//! Files that a command writes: never over the database, its key, its password or its model.

use std::fs;
use std::path::{Path, PathBuf};

use super::model_source::{MODEL_FILE, password_file};
use super::report::{CommandError, command_error};
use crate::auth::key_source::KeySource;
use crate::store::{Database, is_same_place};

/// Refuses to replace a file that the server needs, or something that is not a file, such as a device.
pub fn refuse_own_files(
    target: &Path,
    database: &Database,
    (key, model_file): (Option<&KeySource>, Option<&Path>),
) -> Result<(), CommandError> {
    let shown = target.display();
    // `store::back_up` and `check_target` refuse folders, with other messages.
    if fs::metadata(target).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Err(command_error(format!("{shown} is not a file; name another one")));
    }
    let mut own: Vec<(PathBuf, &str)> =
        vec![(model_file.unwrap_or(Path::new(MODEL_FILE)).to_owned(), "the model")];
    if let Some(key) = key {
        own.push((password_file(database, key), "the password of the first user"));
        own.push((key.name().into(), "the key"));
    }
    let found = own.iter().find(|(path, _)| is_same_place(target, path)).map(|(_, what)| *what);
    match found.or(database.has_file(target).then_some("a file of the database")) {
        Some(what) => Err(command_error(format!(
            "{shown} is {what}, and is not overwritten; name another file"
        ))),
        None => Ok(()),
    }
}
