//! `nouns plan`: the steps from the stored model to the model file.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::command_hint::CommandHint;
use super::migration_report::{self, PlanSubject};
use super::model_source::{database, find_model, read_model, retain_stored};
use super::report::{CommandError, print_line};
use crate::store::AdminStore;

/// The exit code if there is something to do.
const EXIT_CHANGES: u8 = 1;

#[derive(Debug, Args)]
#[command(after_help = "\
It compares the model file with the model that the database records, scans the items that a stricter rule may refuse, \
and changes nothing; servers go on.

Exit code: 0 if there is nothing to do, 1 if there are steps, 2 if it cannot tell.")]
pub struct PlanArgs {
    /// The model file [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// The database: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(flags: &PlanArgs) -> Result<ExitCode, CommandError> {
    let source = find_model(flags.model.as_deref())?;
    let model = Arc::new(read_model(&source)?);
    let database = database(flags.database.as_deref(), &model.server.storage)?;
    let mut store = AdminStore::open_read_only(&database, &model)?;
    let plan = store.plan_migration().map_err(|error| error.describe(&database.to_string()))?;
    let hint = CommandHint::new(flags.model.as_deref(), flags.database.as_deref(), None);
    let is_servable = retain_stored(&source, &model, &mut store)?.is_some();
    let subject =
        PlanSubject { database: &database, model: &source.name, hint: &hint, is_servable };
    let text = match flags.json {
        true => migration_report::to_json(&plan, &subject),
        false => migration_report::to_text(&plan, &subject),
    };
    print_line(&mut io::stdout(), text.trim_end());
    Ok(if plan.steps.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_CHANGES) })
}
