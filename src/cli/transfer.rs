//! What `nouns export` and `nouns import` share: the resource, the format of the file, the model and the database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};

use super::command_hint::CommandHint;
use super::model_source::{database, find_model, read_model, retain_stored};
use super::report::{CommandError, command_error};
use crate::formats::{self, Format};
use crate::model::diff::{Difference, compare};
use crate::model::{self, Model, Resource, ResourceIndex, nearest};
use crate::store::{AdminStore, Database};

#[derive(Debug, Args)]
pub struct TransferArgs {
    /// The model file [default: nouns.toml here, else the built-in store]
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,

    /// The database: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// The format of the file [default: by its ending, .csv, .ndjson or .jsonl]
    #[arg(long, value_enum)]
    pub format: Option<FileFormat>,
}

/// A format of files with items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileFormat {
    /// A header line, then one row for each item
    Csv,
    /// One JSON object a line
    Ndjson,
}

impl FileFormat {
    /// The format that the ending of a file's name says.
    pub fn of_file(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match &*ending {
            "csv" => Some(Self::Csv),
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            _ => None,
        }
    }

    pub fn output(self) -> &'static Format {
        match self {
            Self::Csv => formats::CSV,
            Self::Ndjson => formats::NDJSON,
        }
    }
}

/// The error for a file whose format is not known.
pub fn unknown_format(path: &Path) -> CommandError {
    command_error(format!(
        "the format of {} is not known by its ending; say --format csv or --format ndjson",
        path.display()
    ))
}

/// Whether a path stands for standard input or output.
pub fn is_standard_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A resource and where its items are stored.
pub struct TransferSource {
    pub model: Arc<Model>,
    pub database: Database,
    resource: ResourceIndex,
    hint: CommandHint,
}

impl TransferSource {
    pub fn find(args: &TransferArgs, name: &str) -> Result<Self, CommandError> {
        let source = find_model(args.model.as_deref())?;
        let declared = Arc::new(read_model(&source)?);
        let database = database(args.database.as_deref(), &declared.server.storage)?;
        find_resource(&declared, name)?;
        // Errors of the database are for the caller, which opens it again.
        let retained = AdminStore::open_read_only(&database, &declared).ok();
        let retained = retained.map(|mut stored| retain_stored(&source, &declared, &mut stored));
        let model = retained.and_then(|model| model.ok().flatten()).unwrap_or(declared);
        let resource = find_resource(&model, name)?.index;
        let hint = CommandHint::new(args.model.as_deref(), args.database.as_deref(), None);
        Ok(Self { model, database, resource, hint })
    }

    pub fn resource(&self) -> &Resource {
        self.model.resource(self.resource)
    }

    /// Refuses a database whose tables belong to another model.
    pub fn check_model(&self, admin_store: &mut AdminStore) -> Result<(), CommandError> {
        if admin_store.is_model_in_force()? {
            return Ok(());
        }
        let stored = admin_store.read_system_value("model")?;
        let stored = stored.and_then(|shape| model::read_shape(&shape).ok());
        let differences = stored.map(|stored| compare(&stored, &self.model)).unwrap_or_default();
        let is_additive = |difference: &Difference| !matches!(difference, Difference::Change(_));
        let remedy = match differences.iter().all(is_additive) {
            true => format!("start a server with this one first: {}", self.hint.command("serve")),
            false => format!("apply this one first: {}", self.hint.command("migrate")),
        };
        Err(command_error(format!(
            "the tables of {} belong to another model; name its file with --model, or {remedy}",
            self.database
        )))
    }
}

fn find_resource<'a>(model: &'a Model, name: &str) -> Result<&'a Resource, CommandError> {
    let mut all = model.usable().filter(|resource| !resource.is_builtin);
    if let Some(resource) = all.clone().find(|resource| *resource.name == *name) {
        return Ok(resource);
    }
    let known: Vec<&str> = all.clone().map(|resource| &*resource.name).collect();
    let plural = all.find(|resource| *resource.plural == *name);
    let near = || nearest(name, known.iter().copied());
    let hint = match plural.map(|resource| &*resource.name).or_else(near) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("the model has: {}", known.join(", ")),
    };
    Err(command_error(format!("there is no resource {name} in the model; {hint}")))
}
