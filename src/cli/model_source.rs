//! The model that a command is about, its database and its key.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, access};

use super::command_hint::is_argument;
use super::report::{CommandError, command_error, print_line, wants_colours};
use crate::auth::key_source::{KeyError, KeySource};
use crate::fault::OrBug as _;
use crate::model::settings::StorageSettings;
use crate::model::{self, Model, read_with_retained};
use crate::store::{AdminStore, Database, LibpqEnvironment, PostgresUrl};

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
    ExampleModel { name: "blog", text: include_str!("../../examples/blog/nouns.toml") },
    ExampleModel {
        name: "appointments",
        text: include_str!("../../examples/appointments/nouns.toml"),
    },
    ExampleModel { name: "inventory", text: include_str!("../../examples/inventory/nouns.toml") },
    ExampleModel { name: "tickets", text: include_str!("../../examples/tickets/nouns.toml") },
    ExampleModel { name: "courses", text: include_str!("../../examples/courses/nouns.toml") },
    ExampleModel { name: "expenses", text: include_str!("../../examples/expenses/nouns.toml") },
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

/// The model with the parts of the stored one that it lacks, if these are optional fields and resources, as after the
/// rollback of a deployment. `None`: there are none, or other differences, which need a migration.
pub fn retain_stored(
    source: &ModelSource,
    declared: &Arc<Model>,
    admin_store: &mut AdminStore,
) -> Result<Option<Arc<Model>>, CommandError> {
    let stored = admin_store.read_system_value("model")?;
    let stored = stored.and_then(|shape| model::read_shape(&shape).ok());
    let model = stored.and_then(|stored| read_with_retained(&source.text, declared, &stored));
    Ok(model.filter(|model| model.retained().next().is_some()).map(Arc::new))
}

pub const DEFAULT_DATABASE: &str = "sqlite:nouns.db";

/// The storage settings, for a command that needs nothing else of the model: mistakes in the rest are only warned of.
pub fn find_storage_settings(
    model: Option<&Path>,
    database: Option<&str>,
) -> Result<StorageSettings, CommandError> {
    let source = find_model(model)?;
    let name = &source.name;
    let CommandError(mistakes) = match read_model(&source) {
        Ok(model) => return Ok(model.server.storage),
        Err(mistakes) => mistakes,
    };
    let (settings, warning) = match (model::read_storage_settings(&source.text), database) {
        (Some(settings), _) => (
            settings,
            format!(
                "the model {name} has mistakes, which nouns check lists; only its database and key are used"
            ),
        ),
        (None, Some(_)) => (
            StorageSettings::default(),
            format!(
                "the model {name} cannot be read, and is not used; nouns check lists its mistakes"
            ),
        ),
        (None, None) => {
            return Err(CommandError(format!(
                "{}\n\nnouns: the model {name} cannot be read; correct it, or name the database with --database",
                mistakes.trim_end()
            )));
        }
    };
    print_line(&mut io::stderr(), format_args!("nouns: warning: {warning}"));
    Ok(settings)
}

/// The database that the flag or the environment names, else the model, else the default.
pub fn database(flag: Option<&str>, settings: &StorageSettings) -> Result<Database, CommandError> {
    let text = flag.or(settings.database.as_deref()).unwrap_or(DEFAULT_DATABASE);
    refuse_shown_password("--database", text)?;
    Ok(Database::parse(text, &postgres_environment())?)
}

/// Everyone on the machine can read the arguments of a process, but not its environment. `flag` has the address.
pub fn refuse_shown_password(flag: &str, database: &str) -> Result<(), CommandError> {
    if PostgresUrl::has_password(database) && is_argument(database.as_ref()) {
        let variable = match flag {
            "--database" => "NOUNS_DATABASE to the whole address, ",
            _ => "",
        };
        return Err(command_error(format!(
            "a password in {flag} can be read by everyone on this machine; leave it out there, and \
             set {variable}PGPASSWORD to the password, or put it into ~/.pgpass"
        )));
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
    settings: &StorageSettings,
    database: &Database,
) -> Result<KeySource, KeyError> {
    #[expect(clippy::disallowed_methods, reason = "a key must not be seen among the arguments")]
    let key = std::env::var_os("NOUNS_KEY").filter(|key| !key.is_empty());
    // A value that is not UTF-8 is no valid key either.
    let key = key.map(|key| key.to_string_lossy().into_owned());
    // Commands without --key-file know the variable only here.
    #[expect(clippy::disallowed_methods, reason = "clap reads it for the commands with the flag")]
    let variable = std::env::var_os("NOUNS_KEY_FILE").filter(|file| !file.is_empty());
    let flag = flag.or(variable.as_deref().map(Path::new));
    let named = settings.key_file.as_deref().map(Path::new).filter(|_| key.is_none());
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
