//! The model that a command is about, its database and its key.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::report::{CommandError, command_error, wants_colours};
use crate::auth::key_source::{KeyError, KeySource};
use crate::fault::OrBug as _;
use crate::model::{self, Model};
use crate::store::{Database, LibpqEnvironment, PostgresUrl};

/// A built-in example model.
#[derive(Debug)]
pub struct ExampleModel {
    pub name: &'static str,
    pub text: &'static str,
}

/// The first one is served when there is no model file.
pub static EXAMPLES: &[ExampleModel] = &[
    ExampleModel { name: "store", text: include_str!("../../examples/store/nouns.toml") },
    ExampleModel { name: "library", text: include_str!("../../examples/library/nouns.toml") },
];

pub const MODEL_FILE: &str = "nouns.toml";

/// The text of a model and its name in messages.
pub struct ModelSource {
    pub name: String,
    pub text: String,
}

pub fn find_model(path: Option<&Path>) -> Result<ModelSource, CommandError> {
    let path = match path {
        Some(path) => path,
        None if Path::new(MODEL_FILE).exists() => Path::new(MODEL_FILE),
        None => return Ok(built_in_store()),
    };
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| {
        command_error(match error.kind() {
            io::ErrorKind::NotFound => {
                format!("there is no model file {name}; create one with: nouns init")
            }
            _ => format!("cannot read the model file {name}: {error}"),
        })
    })?;
    let text = String::from_utf8(bytes)
        .map_err(|_| command_error(format!("the model file {name} is not text in UTF-8")))?;
    Ok(ModelSource { name, text })
}

pub fn built_in_store() -> ModelSource {
    let text = EXAMPLES.first().or_bug("there are examples").text.to_owned();
    ModelSource { name: "the built-in store".to_owned(), text }
}

pub fn read_model(source: &ModelSource) -> Result<Model, CommandError> {
    let colour = wants_colours(&io::stderr());
    model::read(&source.name, &source.text).map_err(|errors| CommandError(errors.render(colour)))
}

pub const DEFAULT_DATABASE: &str = "sqlite:nouns.db";

/// The database that the flag or the environment names, else the model, else the default.
pub fn database(flag: Option<&str>, model: &Model) -> Result<Database, CommandError> {
    let text = flag.or(model.server.database.as_deref()).unwrap_or(DEFAULT_DATABASE);
    refuse_shown_password(text)?;
    Ok(Database::parse(text, &postgres_environment())?)
}

/// Everyone on the machine can read the arguments of a process, but not its environment.
pub fn refuse_shown_password(database: &str) -> Result<(), CommandError> {
    let is_argument =
        || std::env::args_os().any(|argument| argument.to_string_lossy().ends_with(database));
    if PostgresUrl::has_password(database) && is_argument() {
        return Err(command_error(
            "a password in --database can be read by everyone on this machine; leave it out there, and \
             set NOUNS_DATABASE to the whole address, PGPASSWORD to the password, or put it into ~/.pgpass",
        ));
    }
    Ok(())
}

/// The environment variables that libpq uses for the parts that an address leaves out.
pub fn postgres_environment() -> LibpqEnvironment {
    #[expect(clippy::disallowed_methods, reason = "names that every client of PostgreSQL knows")]
    let value = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let text = |name: &str| value(name).and_then(|value| value.into_string().ok());
    LibpqEnvironment {
        password: text("PGPASSWORD").map(Into::into),
        passfile: value("PGPASSFILE").map(Into::into),
        user: text("PGUSER").or_else(|| text("USER")),
        home: value("HOME").map(Into::into),
    }
}

/// The source of the key: the flag, else the environment, else the model, else beside the SQLite file.
pub fn key_source(
    flag: Option<&Path>,
    model: &Model,
    database: &Database,
) -> Result<KeySource, KeyError> {
    #[expect(clippy::disallowed_methods, reason = "a key must not be seen among the arguments")]
    let key = std::env::var_os("NOUNS_KEY").filter(|key| !key.is_empty());
    // A value that is not UTF-8 is no valid key either.
    let key = key.map(|key| key.to_string_lossy().into_owned());
    let named = model.server.key_file.as_deref().map(Path::new).filter(|_| key.is_none());
    KeySource::choose(flag.or(named), key, database)
}

/// The file for the password of the first user. With PostgreSQL it is beside the key file, or in the working
/// directory if nothing can be created there: secrets are often mounted read-only.
pub fn password_file(database: &Database, key: &KeySource) -> PathBuf {
    let folder = key.folder();
    let file = database.password_file(&folder);
    if matches!(database, Database::Sqlite(_)) || file.symlink_metadata().is_ok() {
        return file;
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
    match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => file,
        Err(_) => database.password_file(Path::new("")),
    }
}
