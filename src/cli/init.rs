//! `nouns init`: a model file to start from, an example or one for existing tables; never overwrites one.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::model_source::{EXAMPLES, MODEL_FILE, postgres_environment, refuse_shown_password};
use super::report::{CommandError, command_error, create_file, print_line};
use crate::fault::OrBug as _;
use crate::model;
use crate::model::infer::{self, InferredModel};
use crate::store::{self, Database};

/// A table that every database of nouns has.
const OWN_TABLE: &str = "nouns_system";

#[derive(Debug, Args)]
#[command(after_help = "\
With --from-database it writes a model from the tables of another program: tables, columns, keys and rules, as far as \
they fit; comments in the file and messages say what does not. It reads the catalogue, and no rows. It does not serve \
those tables: the comments have the statements that export their rows for nouns import.")]
pub struct InitArgs {
    /// The example to start from
    #[arg(long, default_value = "store", value_name = "EXAMPLE")]
    #[arg(value_parser = PossibleValuesParser::new(EXAMPLES.iter().map(|example| example.name)))]
    from: String,

    /// Write a model for the tables of a database: sqlite:PATH or postgres://USER@HOST/NAME
    #[arg(long, value_name = "DATABASE", conflicts_with = "from")]
    from_database: Option<String>,
}

pub fn run(flags: &InitArgs) -> Result<ExitCode, CommandError> {
    if Path::new(MODEL_FILE).symlink_metadata().is_ok() {
        return Err(exists_error());
    }
    let Some(address) = &flags.from_database else {
        let example = EXAMPLES.iter().find(|example| example.name == flags.from);
        let text = example.or_bug("clap accepts only the names of examples").text;
        write_model(text)?;
        print_line(
            &mut io::stdout(),
            format_args!("wrote {MODEL_FILE}; serve it with: nouns serve"),
        );
        return Ok(ExitCode::SUCCESS);
    };
    let InferredModel { text, resources, notes } = infer_model(address)?;
    write_model(&text)?;
    for note in &notes {
        print_line(&mut io::stderr(), format_args!("nouns: note: {note}"));
    }
    let counted = |count: usize, what: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {what}{plural}")
    };
    let (resources, notes) = (counted(resources, "resource"), counted(notes.len(), "note"));
    print_line(
        &mut io::stdout(),
        format_args!(
            "wrote {MODEL_FILE} with {resources} and {notes} on what does not fit; look at it, then serve it with: \
             nouns serve"
        ),
    );
    Ok(ExitCode::SUCCESS)
}

fn write_model(text: &str) -> Result<(), CommandError> {
    create_file(Path::new(MODEL_FILE), text, 0o666).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists_error(),
        _ => command_error(format!("cannot write {MODEL_FILE}: {error}")),
    })
}

fn exists_error() -> CommandError {
    command_error(format!(
        "{MODEL_FILE} exists already, and is not overwritten; move it away first"
    ))
}

fn infer_model(address: &str) -> Result<InferredModel, CommandError> {
    refuse_shown_password("--from-database", address)?;
    let database = Database::parse(address, &postgres_environment())
        .map_err(|message| command_error(message.replacen("database:", "--from-database:", 1)))?;
    let tables = store::read_tables(&database).map_err(|error| {
        command_error(error.to_string().replace("--database", "--from-database"))
    })?;
    if tables.tables.iter().any(|table| table.name == OWN_TABLE) {
        return Err(command_error(format!(
            "{database} is a database of nouns: serve it with its model file"
        )));
    }
    if tables.tables.is_empty() {
        return Err(command_error(format!(
            "{database} has no tables to make a model from; start from an example: nouns init"
        )));
    }
    let inferred = infer::infer(&tables);
    // Whatever the tables are, the file is a valid model.
    match model::read(MODEL_FILE, &inferred.text) {
        Ok(_) => Ok(inferred),
        Err(errors) => Err(command_error(format!(
            "the model that was made is not valid, which is a fault of nouns:\n{errors}"
        ))),
    }
}
