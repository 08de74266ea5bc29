//! `nouns migrate`: applies the model file to the stored data, in one transaction.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::command_hint::CommandHint;
use super::migration_report::{self, PlanSubject};
use super::model_source::{database, find_model, read_model};
use super::report::{CommandError, print_done, print_line};
use crate::store::{
    self, AdminStore, Migrated, MigrationPlan, MigrationProgress, MigrationRequest,
};

#[derive(Debug, Args)]
#[command(after_help = "\
Stop the servers first: their model is the one of before. Look at the plan with: nouns plan

On SQLite it first copies the file to nouns.db.before-migration, and verifies the copy.

All steps are one transaction: if one fails, or the process is killed, nothing was changed.")]
pub struct MigrateArgs {
    /// The model file [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// The database: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// Allow a step that deletes values, such as customer.phone; repeatable
    #[arg(long, value_name = "RESOURCE.FIELD")]
    allow_loss: Vec<String>,

    /// Do not copy an SQLite file first
    #[arg(long)]
    no_backup: bool,

    /// Failpoint of a debug build, for tests
    #[cfg(debug_assertions)]
    #[arg(long, env = "NOUNS_FAULT", hide = true)]
    fault: Option<String>,
}

pub fn run(flags: &MigrateArgs) -> Result<ExitCode, CommandError> {
    #[cfg(debug_assertions)]
    flags.fault.as_deref().map_or(Ok(()), crate::fault::inject)?;
    let source = find_model(flags.model.as_deref())?;
    let model = Arc::new(read_model(&source)?);
    let database = database(flags.database.as_deref(), &model.server.storage)?;
    // A database that does not exist is not created here.
    drop(AdminStore::open_read_only(&database, &model)?);
    let hint = CommandHint::new(flags.model.as_deref(), flags.database.as_deref(), None);
    let (name, is_servable) = (&*source.name, false);
    let subject = PlanSubject { database: &database, model: name, hint: &hint, is_servable };
    let decide = |plan: &MigrationPlan| decide(plan, &subject, &flags.allow_loss);
    let is_terminal = io::stderr().is_terminal();
    let report = |progress: MigrationProgress<'_>| {
        if is_terminal {
            let MigrationProgress { resource, done, items } = progress;
            let _ = write!(io::stderr(), "\r{resource}: {done} of {items} items");
            let _ = io::stderr().flush();
        }
    };
    let wants_backup = !flags.no_backup;
    let request =
        MigrationRequest { model: &model, decide: &decide, report: &report, wants_backup };
    let Migrated { plan, backup } = store::migrate(&database, request)?;
    if is_terminal && plan.steps.iter().any(|step| step.rewrites_table) {
        print_line(&mut io::stderr(), "");
    }
    if let Some(backup) = backup {
        print_done(format_args!("copied the database of before to {backup}"));
    }
    let count = plan.steps.len();
    match count {
        0 if plan.is_same_model => {
            print_done(format_args!("{database} has this model already; nothing was changed"));
        }
        0 => print_done(format_args!(
            "{} changes no stored data; nouns serve applies it when it starts",
            source.name
        )),
        _ => {
            let plural = if count == 1 { "" } else { "s" };
            print_done(format_args!(
                "migrated {database} to {} ({count} step{plural})",
                source.name
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses a plan that is blocked, or that loses values which the operator has not named.
fn decide(
    plan: &MigrationPlan,
    subject: &PlanSubject<'_>,
    allowed: &[String],
) -> Result<(), String> {
    let unknown: Vec<&str> = allowed
        .iter()
        .filter(|path| !plan.steps.is_empty() && !plan.steps.iter().any(|step| step.path == **path))
        .map(String::as_str)
        .collect();
    let is_allowed = |path: &str| allowed.iter().any(|one| one == path);
    let is_refused = plan
        .steps
        .iter()
        .any(|step| step.is_blocked() || (step.is_destructive() && !is_allowed(&step.path)));
    match (&*unknown, is_refused) {
        ([], false) => Ok(()),
        ([first, ..], _) => Err(format!(
            "--allow-loss {first}: no step of the plan is about that; nothing was changed"
        )),
        ([], true) => {
            let plan = migration_report::to_text(plan, subject);
            Err(format!("the migration was not made, and nothing was changed\n\n{plan}"))
        }
    }
}
