//! `nouns check`: a list of all mistakes of a model, or a summary of what it declares.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::model_source::{find_model, read_model};
use super::report::{CommandError, print_line};
use crate::model::{Model, schema};
use crate::permit;

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The model file [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// Print the JSON Schema of the model file, for editors
    #[arg(long)]
    schema: bool,
}

pub fn run(flags: &CheckArgs) -> Result<ExitCode, CommandError> {
    let mut out = std::io::stdout();
    if flags.schema {
        print_line(&mut out, schema::json_schema().trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let source = find_model(flags.model.as_deref())?;
    let model = read_model(&source)?;
    print_line(&mut out, format_args!("{}: ok, {}", source.name, summary(&model)));
    for warning in permit::warnings(&model) {
        print_line(&mut std::io::stderr(), format_args!("{}: warning: {warning}", source.name));
    }
    Ok(ExitCode::SUCCESS)
}

/// The numbers of declared things.
pub fn summary(model: &Model) -> String {
    let count = |number: usize, word: &str| match number {
        1 => format!("1 {word}"),
        number => format!("{number} {word}s"),
    };
    let fields = model.declared().map(|resource| resource.fields.len()).sum();
    format!(
        "{} with {} and {}",
        count(model.declared().count(), "resource"),
        count(fields, "field"),
        count(model.roles.len(), "role")
    )
}
