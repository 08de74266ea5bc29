//! `nouns plan` and `nouns migrate`: changes of the model that need more than startup does.
//!
//! `steps` compares the stored model with the new one and scans the items that are in the way; it changes nothing.
//! `apply` makes all changes in the transaction of its caller, so that a migration that is refused or killed has
//! changed nothing. Both are written once for both backends.

pub mod apply;
mod log_names;
mod pair;
mod scan;
pub mod steps;

use crate::model::Model;
use crate::store::driver::Driver;
use crate::store::error::{InternalError, MigrationError, StatementError};
use crate::store::sql::columns::quote_name;
use crate::store::{schema, system_values};
use apply::ReportProgress;
use pair::ModelPair;
use steps::MigrationPlan;

/// A migration that an operator asks for.
#[derive(Clone, Copy)]
pub struct MigrationRequest<'a> {
    pub model: &'a Model,
    /// The operator's decision on the plan: an error refuses it.
    pub decide: &'a dyn Fn(&MigrationPlan) -> Result<(), String>,
    pub report: ReportProgress<'a>,
    /// Whether the database is copied first, where it is a file.
    pub wants_backup: bool,
}

/// A migration that was made.
#[derive(Debug)]
pub struct Migrated {
    pub plan: MigrationPlan,
    /// The file with the copy of the database of before.
    pub backup: Option<String>,
}

/// The plan from the stored model to this one. Changes nothing.
pub async fn plan<D: Driver>(
    driver: &mut D,
    model: &Model,
) -> Result<MigrationPlan, MigrationError> {
    match stored_model(driver, model).await? {
        Some(old) => Ok(steps::make(driver, &ModelPair::new(&old, model)).await?),
        None => Ok(MigrationPlan::same_model()),
    }
}

/// Migrates to a model, in the transaction of the caller, which commits it. The plan is made in the same transaction.
pub async fn run<D: Driver>(
    driver: &mut D,
    MigrationRequest { model, decide, report, .. }: MigrationRequest<'_>,
) -> Result<MigrationPlan, MigrationError> {
    let Some(old) = stored_model(driver, model).await? else {
        return Ok(MigrationPlan::same_model());
    };
    let pair = ModelPair::new(&old, model);
    // Before anything is counted: other sessions may write until then.
    for table in pair.changed_tables() {
        if let Some(lock) = D::DIALECT.lock_table {
            driver.execute(&lock(&quote_name(table)), &[]).await?;
        }
    }
    let plan = steps::make(driver, &pair).await?;
    decide(&plan).map_err(MigrationError::Declined)?;
    if plan.steps.is_empty() {
        return Ok(plan);
    }
    if let Some(step) = plan.steps.iter().find(|step| step.is_blocked()) {
        return Err(MigrationError::Declined(format!("{}: {}", step.path, step.reason)));
    }
    apply::apply(driver, &pair, report).await?;
    Ok(plan)
}

/// The model that the tables have, if it is another one.
async fn stored_model<D: Driver>(
    driver: &mut D,
    model: &Model,
) -> Result<Option<Model>, MigrationError> {
    if system_values::read(driver, schema::UNFINISHED).await?.is_some() {
        let message = "a start with another model has not built all of its indexes yet; start a server with that \
                       model once, then migrate";
        return Err(MigrationError::Declined(message.to_owned()));
    }
    let stored = system_values::read(driver, "model").await?.ok_or_else(|| {
        StatementError::Internal(InternalError("the database does not record its model".into()))
    })?;
    match stored == model.shape {
        true => Ok(None),
        false => Ok(Some(schema::read_stored(&stored)?)),
    }
}
