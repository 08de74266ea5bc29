//! `nouns init`: a commented model file to start from; never overwrites one.

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::model_source::{EXAMPLES, MODEL_FILE};
use super::report::{CommandError, command_error, create_file, print_line};
use crate::fault::OrBug as _;

#[derive(Debug, Args)]
pub struct InitArgs {
    /// The example to start from
    #[arg(long, default_value = "store", value_name = "EXAMPLE")]
    #[arg(value_parser = PossibleValuesParser::new(EXAMPLES.iter().map(|example| example.name)))]
    from: String,
}

pub fn run(flags: &InitArgs) -> Result<ExitCode, CommandError> {
    let example = EXAMPLES.iter().find(|example| example.name == flags.from);
    let text = example.or_bug("clap accepts only the names of examples").text;
    create_file(Path::new(MODEL_FILE), text, 0o666).map_err(|error| {
        command_error(match error.kind() {
            ErrorKind::AlreadyExists => {
                format!("{MODEL_FILE} exists already, and is not overwritten; move it away first")
            }
            _ => format!("cannot write {MODEL_FILE}: {error}"),
        })
    })?;
    print_line(
        &mut std::io::stdout(),
        format_args!("wrote {MODEL_FILE}; serve it with: nouns serve"),
    );
    Ok(ExitCode::SUCCESS)
}
