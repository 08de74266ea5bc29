//! The plan of a migration, for people and for programs.

use std::fmt::Write as _;
use std::path::Path;

use super::cert::shell_quoted;
use super::command_hint::CommandHint;
use crate::json::{self, Json};
use crate::store::{Database, MigrationPlan, MigrationStep, StepAction};

/// Rows that a migration rewrites in a second, roughly.
const SQLITE_ROWS_PER_SECOND: i64 = 100_000;
const POSTGRES_ROWS_PER_SECOND: i64 = 20_000;

/// The database and the model file that a plan is about.
#[derive(Debug, Clone, Copy)]
pub struct PlanSubject<'a> {
    pub database: &'a Database,
    pub model: &'a str,
    pub hint: &'a CommandHint,
    /// Whether a server starts with this model before the migration, and retains what the model lacks.
    pub is_servable: bool,
}

impl PlanSubject<'_> {
    fn seconds(&self, step: &MigrationStep) -> i64 {
        let rate = match self.database {
            Database::Sqlite(_) => SQLITE_ROWS_PER_SECOND,
            Database::Postgres(_) => POSTGRES_ROWS_PER_SECOND,
        };
        match step.action {
            StepAction::Rewrite | StepAction::Derive => {
                step.items.div_euclid(rate).saturating_add(1)
            }
            StepAction::Remove | StepAction::Check => {
                step.items.div_euclid(rate.saturating_mul(4)).saturating_add(1)
            }
            StepAction::Add | StepAction::Rename | StepAction::Rebuild | StepAction::Refuse => 1,
        }
    }
}

/// The plan as text.
pub fn to_text(plan: &MigrationPlan, subject: &PlanSubject<'_>) -> String {
    let PlanSubject { database, model, .. } = subject;
    if plan.steps.is_empty() {
        return match plan.is_same_model {
            true => format!("{database} has the model of {model}: nothing to do"),
            false => format!(
                "{model} changes no stored data; nouns serve applies it when it starts, and builds indexes then"
            ),
        };
    }
    let count = plan.steps.len();
    let plural = if count == 1 { "" } else { "s" };
    let mut out = format!("From the model in {database} to {model}: {count} step{plural}\n");
    let width = plan.steps.iter().map(|step| step.path.len()).max().unwrap_or(0);
    for step in &plan.steps {
        let _ =
            write!(out, "\n  {:<8} {:<width$}  {}\n", step.action.as_str(), step.path, step.reason);
        let indent = " ".repeat(width + 13);
        for line in effect_lines(step, subject) {
            let _ = writeln!(out, "{indent}{line}");
        }
        if let Some(added) = possible_new_name(step, plan) {
            let name = last_name(&step.path);
            let _ = writeln!(
                out,
                "{indent}if {added} is its new name, add renamed_from = \"{name}\" there, and nothing is lost"
            );
        }
    }
    let _ = write!(out, "\n{}", remedy(plan, subject));
    out
}

/// The effects of one step, a line each.
fn effect_lines(step: &MigrationStep, subject: &PlanSubject<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let items = counted(step.items, "item");
    match step.action {
        StepAction::Add => return lines,
        StepAction::Refuse => lines.push(format!(
            "cannot be done while there are items ({items}); export them, and import them into a new database"
        )),
        StepAction::Rebuild => lines.push("there are no items: its table is made anew".to_owned()),
        _ => {
            let seconds = subject.seconds(step);
            let work = work_words(step);
            let undo = if step.can_be_undone() { "can be undone" } else { "cannot be undone" };
            lines.push(format!("{items}; {work}, about {seconds} s; {undo}"));
        }
    }
    if step.is_destructive() {
        let lost = counted(step.lost, "item");
        lines.push(format!("values of {lost} are lost: needs --allow-loss {}", step.path));
    }
    if step.broken.count > 0 {
        lines.push(step.broken.describe());
    }
    lines
}

/// A part that is added where this one is removed: it may have been renamed.
fn possible_new_name<'a>(step: &MigrationStep, plan: &'a MigrationPlan) -> Option<&'a str> {
    let holder = |path: &str| path.rsplit_once('.').map(|(holder, _)| holder.to_owned());
    let is_removed = step.action == StepAction::Remove;
    let mut added = plan.steps.iter().filter(|other| other.is_new);
    let found = added.find(|other| is_removed && holder(&other.path) == holder(&step.path));
    found.map(|other| &*other.path)
}

fn last_name(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, name)| name)
}

fn work_words(step: &MigrationStep) -> &'static str {
    match step.action {
        StepAction::Rename => "changes names only",
        StepAction::Remove if step.path.contains('.') => "deletes its values",
        StepAction::Remove => "deletes its table",
        StepAction::Rewrite | StepAction::Derive => "rewrites its table",
        StepAction::Check => "reads its table",
        StepAction::Add | StepAction::Rebuild | StepAction::Refuse => "changes no items",
    }
}

fn counted(count: i64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The next command for the operator.
fn remedy(plan: &MigrationPlan, subject: &PlanSubject<'_>) -> String {
    if plan.is_additive() {
        return "nouns serve makes these changes when it starts.".to_owned();
    }
    if plan.steps.iter().any(MigrationStep::is_blocked) {
        return "It cannot be applied yet: change the items that are in the way, or the model."
            .to_owned();
    }
    let flags = plan.steps.iter().filter(|step| step.is_destructive());
    let flags = flags
        .map(|step| format!(" --allow-loss {}", shell_quoted(Path::new(&step.path))))
        .collect::<String>();
    let apply =
        format!("Stop the servers, and apply it with: {}{flags}", subject.hint.command("migrate"));
    match subject.is_servable {
        true => format!(
            "{apply}\nOr change nothing: nouns serve starts with this model too; it keeps what is removed here, and \
             hides it."
        ),
        false => apply,
    }
}

/// The plan as JSON.
pub fn to_json(plan: &MigrationPlan, subject: &PlanSubject<'_>) -> String {
    let numbers: Vec<[String; 4]> = plan
        .steps
        .iter()
        .map(|step| {
            [step.items, step.lost, subject.seconds(step), step.broken.count].map(|n| n.to_string())
        })
        .collect();
    let step = |(step, [items, lost, seconds, broken]): (&'_ MigrationStep, &'_ [String; 4])| {
        let examples = step.broken.examples.iter().map(|item| {
            Json::Object(vec![
                ("address".into(), item.path.clone().into()),
                ("fault".into(), item.fault.clone().into()),
            ])
        });
        format!(
            "{{\"action\":{},\"path\":{},\"reason\":{},\"items\":{items},\"lost\":{lost},\"seconds\":{seconds},\
             \"rewrites_table\":{},\"can_be_undone\":{},\"broken\":{broken},\"examples\":{}}}",
            json::to_text(&Json::from(step.action.as_str())),
            json::to_text(&Json::from(step.path.clone())),
            json::to_text(&Json::from(step.reason.clone())),
            step.rewrites_table,
            step.can_be_undone(),
            json::to_text(&Json::List(examples.collect())),
        )
    };
    let steps: Vec<String> = plan.steps.iter().zip(&numbers).map(step).collect();
    format!(
        "{{\"database\":{},\"model\":{},\"is_blocked\":{},\"needs_migrate\":{},\"steps\":[{}]}}",
        json::to_text(&Json::from(subject.database.to_string())),
        json::to_text(&Json::from(subject.model.to_owned())),
        plan.steps.iter().any(MigrationStep::is_blocked),
        !plan.is_additive(),
        steps.join(",")
    )
}
