//! `nouns openapi`: the OpenAPI document of a model, of everything or of what some roles may use.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::model_source::{find_model, read_model};
use super::report::{CommandError, command_error, print_line};
use crate::fault::OrBug as _;
use crate::json;
use crate::model::builtin::{ADMIN, ANYONE};
use crate::model::{Model, nearest};
use crate::openapi;
use crate::permit::{Caller, Rights};

/// The document is never deeper: a model file has at most 128 levels.
const DEPTH_MAX: usize = 512;

/// Shorter lists and objects are on one line.
const INLINE_BYTES_MAX: usize = 100;

#[derive(Debug, Args)]
pub struct OpenapiArgs {
    /// The model file [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// Describe only what a user with this role may use; repeatable [default: admin]
    #[arg(long, value_name = "ROLE")]
    role: Vec<String>,
}

pub fn run(flags: &OpenapiArgs) -> Result<ExitCode, CommandError> {
    let source = find_model(flags.model.as_deref())?;
    let model = read_model(&source)?;
    for role in &flags.role {
        check_role(&model, role)?;
    }
    let rights = match &*flags.role {
        [] => Rights::all(&model),
        roles => Rights::of_roles(&model, roles.iter().map(String::as_str)),
    };
    let caller = Caller::user("user".into(), Arc::new(rights));
    let text = openapi::document(&model, &caller);
    let document = json::parse(&text, DEPTH_MAX).or_bug("the document is JSON");
    let mut out = Vec::with_capacity(text.len() * 2);
    json::write_indented(&mut out, &document, (0, INLINE_BYTES_MAX));
    print_line(&mut std::io::stdout(), json::into_text(out));
    Ok(ExitCode::SUCCESS)
}

fn check_role(model: &Model, role: &str) -> Result<(), CommandError> {
    let known = || model.roles.iter().map(|role| &*role.name).chain([ADMIN, ANYONE]);
    if known().any(|known| known == role) {
        return Ok(());
    }
    let hint = nearest(role, known()).map(|near| format!("; did you mean {near}?"));
    let hint = hint.unwrap_or_default();
    Err(command_error(format!("--role {role}: the model declares no such role{hint}")))
}
