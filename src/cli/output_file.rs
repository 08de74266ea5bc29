//! Files that a command writes: never over the database, its key, its password or its model.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::model_source::{MODEL_FILE, key_source, password_file};
use super::report::{CommandError, command_error};
use crate::model::Model;
use crate::store::Database;

/// The ends of the names of the files that belong to an SQLite database.
const DATABASE_SUFFIXES: [&str; 5] = ["", "-wal", "-shm", "-journal", "-lock"];

/// Refuses to replace a file that the server needs, or something that is not a file, such as a device.
pub fn refuse_own_files(
    target: &Path,
    database: &Database,
    (model, model_file): (&Model, Option<&Path>),
) -> Result<(), CommandError> {
    let shown = target.display();
    // `store::back_up` and `check_target` refuse folders, with other messages.
    if fs::metadata(target).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Err(command_error(format!("{shown} is not a file; name another one")));
    }
    let mut own: Vec<(PathBuf, &str)> =
        vec![(model_file.unwrap_or(Path::new(MODEL_FILE)).to_owned(), "the model")];
    if let Database::Sqlite(path) = database {
        let named = DATABASE_SUFFIXES.map(|suffix| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            (PathBuf::from(name), "a file of the database")
        });
        own.extend(named);
    }
    if let Ok(key) = key_source(None, model, database) {
        own.push((password_file(database, &key), "the password of the first user"));
        own.push((key.name().into(), "the key"));
    }
    match own.iter().find(|(path, _)| is_same_place(target, path)) {
        Some((_, what)) => Err(command_error(format!(
            "{shown} is {what}, and is not overwritten; name another file"
        ))),
        None => Ok(()),
    }
}

/// Whether two paths name the same file, or would if it existed.
fn is_same_place(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(folder.join(path.file_name()?))
    };
    let inode = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    place(one).is_some_and(|place_of_one| place(other) == Some(place_of_one))
        || inode(one).is_some_and(|inode_of_one| inode(other) == Some(inode_of_one))
}
