//! `nouns user`: management of users, while servers run.
//!
//! The model defines valid names, roles and passwords, as for `/-/users`.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::accounts::{self, Accounts, DatabaseArgs, wait_for_servers};
use super::first_user::PasswordFile;
use super::report::{CommandError, command_error, print_done};
use super::{prompt, roles};
use crate::auth::credential_text::to_nfc;
use crate::auth::password;
use crate::json::{self, Json, ObjectWriter};
use crate::model::builtin::{DECLARED, DISABLED, NAME, PASSWORD, ROLES};
use crate::model::{Field, Model, StorageClass, types};
use crate::plan::RequestRefusal as Refused;
use crate::problem::FaultCollector;
use crate::store::StoreError;
use crate::value::{Item, Value};

#[derive(Debug, Subcommand)]
#[command(after_help = "\
They change the database directly, also while servers run. A revocation (of a password, a \
role, a user) is in force at every server when the command ends.

The password is asked for on the terminal, or read from standard input with --password-stdin; it is \
never an argument, which everyone on the machine could read.")]
pub enum UserCommand {
    /// Add a user
    Add(AddArgs),
    /// List the users
    List(ListArgs),
    /// Set a user's password
    Passwd(PasswdArgs),
    /// Replace a user's roles
    Roles(RolesArgs),
    /// Set declared fields of a user
    Set(SetArgs),
    /// Disable a user
    Disable(RemoveArgs),
    /// Enable a user again
    Enable(NameArgs),
    /// Remove a user
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
pub struct AddArgs {
    /// The name: any text without a colon
    name: String,

    /// A role of the model, or admin; may be repeated
    #[arg(long, value_name = "ROLE")]
    role: Vec<String>,

    /// A declared field and its value; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    field: Vec<String>,

    /// Read the password from standard input
    #[arg(long)]
    password_stdin: bool,

    #[command(flatten)]
    database_args: DatabaseArgs,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Print one line of JSON per user
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database_args: DatabaseArgs,
}

#[derive(Debug, Args)]
pub struct PasswdArgs {
    name: String,

    /// Read the password from standard input
    #[arg(long)]
    password_stdin: bool,

    #[command(flatten)]
    database_args: DatabaseArgs,
}

#[derive(Debug, Args)]
pub struct RolesArgs {
    name: String,

    /// A role of the model, or admin; may be repeated
    #[arg(long, value_name = "ROLE", required_unless_present = "none")]
    role: Vec<String>,

    /// Remove all roles
    #[arg(long, conflicts_with = "role")]
    none: bool,

    /// Do it even if no enabled admin is left
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    database_args: DatabaseArgs,
}

#[derive(Debug, Args)]
pub struct SetArgs {
    name: String,

    /// A declared field and its value, which may be empty to remove it; may be repeated
    #[arg(long, value_name = "NAME=VALUE", required = true)]
    field: Vec<String>,

    #[command(flatten)]
    database_args: DatabaseArgs,
}

#[derive(Debug, Args)]
pub struct RemoveArgs {
    name: String,

    /// Do it even if no enabled admin is left
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    database_args: DatabaseArgs,
}

#[derive(Debug, Args)]
pub struct NameArgs {
    name: String,

    #[command(flatten)]
    database_args: DatabaseArgs,
}

pub fn run(command: &UserCommand) -> Result<ExitCode, CommandError> {
    match command {
        UserCommand::Add(flags) => add(flags)?,
        UserCommand::List(flags) => list(flags)?,
        UserCommand::Passwd(flags) => passwd(flags)?,
        UserCommand::Roles(flags) => set_roles(flags)?,
        UserCommand::Set(flags) => set_fields(flags)?,
        UserCommand::Disable(flags) => disable(flags)?,
        UserCommand::Enable(flags) => enable(flags)?,
        UserCommand::Remove(flags) => remove(flags)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn add(flags: &AddArgs) -> Result<(), CommandError> {
    let found = flags.database_args.locate()?.check_key()?;
    let model = &found.model;
    // Before prompting for the password.
    let name = parse_value(model, NAME, &json_text(&to_nfc(&flags.name)))?;
    let roles = parse_value(model, ROLES, &json_list(&flags.role))?;
    let fields = parse_fields(model, &flags.field)?;
    let Value::Text(name) = name else { return Err(command_error("expected a name")) };
    let mut accounts = found.open()?;
    let sent = new_password(&accounts.model, &name, flags.password_stdin)?;
    let record = make_record(&mut accounts, &name, &sent)?;
    let mut values = vec![Value::Text(name.clone()), roles, Value::Boolean(false), record];
    values.resize(accounts.model.resource(accounts.model.users).fields.len(), Value::Null);
    for (at, value) in fields {
        *values.get_mut(at).ok_or_else(|| command_error("users have no such field"))? = value;
    }
    accounts.create(values).map_err(|error| match error {
        StoreError::Refused(Refused::NotUnique(_)) => command_error(format!(
            "there is a user {name} already; set the password with: nouns user passwd {name}"
        )),
        error => command_error(error),
    })?;
    print_done(format_args!("added {name}"));
    Ok(())
}

fn passwd(flags: &PasswdArgs) -> Result<(), CommandError> {
    let mut accounts = flags.database_args.locate()?.check_key()?.open()?;
    let name = to_nfc(&flags.name);
    let user = accounts.user(&name)?;
    let sent = new_password(&accounts.model, &name, flags.password_stdin)?;
    let record = make_record(&mut accounts, &name, &sent)?;
    let password_files = PasswordFile::find(&mut accounts, &user)?;
    accounts.change(&name, (PASSWORD, false), |_| Ok(Some(record.clone())))?;
    wait_for_servers();
    print_done(format_args!("set the password of {name}"));
    remove_password_files(&password_files)
}

/// Removes the password files of the first start, whose password is no longer valid.
fn remove_password_files(files: &[PasswordFile]) -> Result<(), CommandError> {
    let mut result = Ok(());
    for file in files {
        match file.remove_password_file() {
            Ok(message) => print_done(format_args!("{message}")),
            Err(error) => result = Err(error),
        }
    }
    result
}

fn set_roles(flags: &RolesArgs) -> Result<(), CommandError> {
    let mut accounts = flags.database_args.locate()?.open()?;
    let name = to_nfc(&flags.name);
    let roles = parse_value(&accounts.model, ROLES, &json_list(&flags.role))?;
    accounts.change(&name, (ROLES, flags.force), |_| Ok(Some(roles.clone())))?;
    wait_for_servers();
    print_done(format_args!("set the roles of {name}"));
    Ok(())
}

fn set_fields(flags: &SetArgs) -> Result<(), CommandError> {
    let mut accounts = flags.database_args.locate()?.open()?;
    let name = to_nfc(&flags.name);
    let values = parse_fields(&accounts.model, &flags.field)?;
    accounts.change_values(&name, false, |_| Ok(values.clone()))?;
    wait_for_servers();
    print_done(format_args!("set {} of {name}", plural(flags.field.len(), "field")));
    Ok(())
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

/// The values of `--field NAME=VALUE`, by the indices of the fields. An empty one is none.
fn parse_fields(model: &Model, flags: &[String]) -> Result<Vec<(usize, Value)>, CommandError> {
    let users = model.resource(model.users);
    let mut values = Vec::with_capacity(flags.len());
    for flag in flags {
        let wrong = |cause: String| command_error(format!("--field {flag}: {cause}"));
        let (name, text) =
            flag.split_once('=').ok_or_else(|| wrong("expected NAME=VALUE".to_owned()))?;
        let found = users.field(name).filter(|(at, _)| *at >= DECLARED);
        let (at, field) =
            found.ok_or_else(|| wrong(format!("the model declares no users.fields.{name}")))?;
        let json = match field.storage_class() {
            _ if text.is_empty() => {
                values.push((at, Value::Null));
                continue;
            }
            StorageClass::Boolean if matches!(text, "true" | "false") => {
                Json::Boolean(text == "true")
            }
            StorageClass::Integer | StorageClass::Real if text.parse::<f64>().is_ok() => {
                Json::Number(text)
            }
            _ => json_text(text),
        };
        values.push((at, parse_value(model, at, &json)?));
    }
    Ok(values)
}

fn disable(flags: &RemoveArgs) -> Result<(), CommandError> {
    let mut accounts = flags.database_args.locate()?.open()?;
    let name = to_nfc(&flags.name);
    accounts.change(&name, (DISABLED, flags.force), |_| Ok(Some(Value::Boolean(true))))?;
    wait_for_servers();
    print_done(format_args!("disabled {name}"));
    Ok(())
}

fn enable(flags: &NameArgs) -> Result<(), CommandError> {
    let mut accounts = flags.database_args.locate()?.open()?;
    let name = to_nfc(&flags.name);
    accounts.change(&name, (DISABLED, false), |_| Ok(Some(Value::Boolean(false))))?;
    print_done(format_args!("enabled {name}"));
    Ok(())
}

fn remove(flags: &RemoveArgs) -> Result<(), CommandError> {
    let mut accounts = flags.database_args.locate()?.open()?;
    let name = to_nfc(&flags.name);
    let user = accounts.user(&name)?;
    let password_files = PasswordFile::find(&mut accounts, &user)?;
    match accounts.remove(&user, flags.force) {
        // Another process was faster.
        Ok(()) | Err(StoreError::Refused(Refused::Missing)) => {}
        Err(StoreError::Refused(Refused::LastAdmin)) => {
            return Err(accounts::last_admin_error(&name));
        }
        Err(error) => return Err(command_error(error)),
    }
    wait_for_servers();
    print_done(format_args!("removed {name}"));
    remove_password_files(&password_files)
}

/// Reads and checks a new password.
fn new_password(model: &Model, name: &str, from_input: bool) -> Result<String, CommandError> {
    let sent =
        if from_input { prompt::read_stdin("password")? } else { prompt::read_terminal(name)? };
    parse_value(model, PASSWORD, &json_text(&sent))?;
    password::check_password(&sent).map_err(|unfit| command_error(format!("password: {unfit}")))?;
    Ok(sent)
}

/// The record of a password.
fn make_record(accounts: &mut Accounts, name: &str, sent: &str) -> Result<Value, CommandError> {
    let keys = accounts.load_or_create_keys()?;
    let record = password::make_record(&accounts.model, Some(&keys), name, sent);
    let record = record.map_err(|unfit| command_error(format!("password: {unfit}")))?;
    Ok(Value::text(&record.to_string()))
}

/// A value of a user, checked against the rules of its field.
fn parse_value(model: &Model, at: usize, json: &Json<'_>) -> Result<Value, CommandError> {
    let field = model.resource(model.users).fields.get(at);
    let Some(field) = field else { return Err(command_error("users have no such field")) };
    let mut faults = FaultCollector::at_root(field.name.to_string());
    // Users cannot be renamed, so a name is always new here.
    let value = types::read_new(field, json, &mut faults);
    let faults = faults.into_list();
    match (value, faults.is_empty()) {
        (Some(value), true) => Ok(types::canonicalize(value)),
        _ => {
            // A role is named by its flag, other values by their field.
            let lines = faults.iter().map(|fault| match fault.pointer.split_once('/') {
                Some(("roles", _)) => format!("--role: {}", fault.detail),
                _ => format!("{}: {}", fault.pointer, fault.detail),
            });
            Err(command_error(lines.collect::<Vec<_>>().join("; ")))
        }
    }
}

fn json_text(text: &str) -> Json<'static> {
    Json::Text(text.to_owned().into())
}

fn json_list(words: &[String]) -> Json<'static> {
    let mut words: Vec<&String> = words.iter().collect();
    words.dedup();
    Json::List(words.into_iter().map(|word| json_text(word)).collect())
}

fn list(flags: &ListArgs) -> Result<(), CommandError> {
    let mut accounts = flags.database_args.locate()?.open()?;
    let mut rows = vec![["NAME", "ROLES", "DISABLED", "SINCE"].map(str::to_owned)];
    let mut lines = Vec::new();
    accounts.for_each_user(|accounts, user| {
        let roles = roles::parse_names(accounts::user_roles(user));
        let unknown = roles::undeclared(&accounts.model, roles.clone());
        if flags.json {
            let fields = &accounts.model.resource(accounts.model.users).fields;
            json_line(&mut lines, fields, user, &unknown);
        } else {
            rows.push(row(user, &roles, &unknown));
        }
        Ok(())
    })?;
    if !flags.json {
        lines = table(&rows).into_bytes();
    }
    // The reader may have closed the pipe, as `head` does.
    let _ = std::io::stdout().lock().write_all(&lines);
    Ok(())
}

fn row(user: &Item, roles: &[String], unknown: &[String]) -> [String; 4] {
    let shown = |role: &String| match unknown.contains(role) {
        true => format!("{role} (undeclared)"),
        false => role.clone(),
    };
    let roles = roles.iter().map(shown).collect::<Vec<_>>().join(" ");
    let is_disabled = if accounts::is_disabled(user) { "yes" } else { "no" };
    let since = String::from_utf8_lossy(&user.created_at.canonical_text()).into_owned();
    [accounts::user_name(user).to_owned(), or_none(roles), is_disabled.to_owned(), since]
}

fn or_none(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Columns as wide as their widest cell, and no spaces at the ends of lines.
fn table(rows: &[[String; 4]]) -> String {
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; 4] = std::array::from_fn(width);
    let line = |row: &[String; 4]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn json_line(out: &mut Vec<u8>, fields: &[Field], user: &Item, unknown: &[String]) {
    let mut object = ObjectWriter::open(out);
    object.text("name", accounts::user_name(user));
    object.json("roles", accounts::user_roles(user));
    json::write(object.name("undeclared_roles"), &json_list(unknown));
    object.json("disabled", if accounts::is_disabled(user) { "true" } else { "false" });
    for (field, value) in fields.iter().zip(&user.values).skip(DECLARED) {
        if !value.is_null() {
            json::write_value(object.name(&field.name), value);
        }
    }
    json::write_moment(object.name("created_at"), user.created_at);
    json::write_moment(object.name("updated_at"), user.updated_at);
    object.close();
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_list_columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned);
        let rows = [
            row(["NAME", "ROLES", "DISABLED", "SINCE"]),
            row(["josé", "clerk shopper", "no", "2026"]),
        ];
        assert_eq!(
            table(&rows),
            "NAME  ROLES          DISABLED  SINCE\njosé  clerk shopper  no        2026\n"
        );
    }
}
