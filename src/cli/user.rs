//! `nouns user`: management of users, while servers run.
//!
//! The model decides what a name, a role and a password may be, as for `/-/users`.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::accounts::{self, Accounts, Place, wait_for_servers};
use super::first::PasswordFile;
use super::{Refusal, prompt, refusal, roles, say};
use crate::auth::password;
use crate::auth::text::composed;
use crate::json::{self, Json};
use crate::model::own::{DISABLED, NAME, PASSWORD, ROLES};
use crate::model::{Model, types};
use crate::plan::Refusal as Refused;
use crate::problem::Faults;
use crate::store::StoreError;
use crate::value::{Item, Value};

#[derive(Debug, Subcommand)]
#[command(after_help = "\
They work on the database itself, also while servers run. What takes something away (a password, a
role, a user) is in force at every server when the command ends.

The password is asked for on the terminal, or read from standard input with --password-stdin; it is
never an argument, which everyone on the machine could read.")]
pub(super) enum User {
    /// Add a user
    Add(Add),
    /// List the users
    List(List),
    /// Set a user's password
    Passwd(Passwd),
    /// Set a user's roles, in place of those there are
    Roles(Roles),
    /// Keep a user out, without forgetting who it is
    Disable(Removal),
    /// Let a user in again
    Enable(One),
    /// Remove a user
    Remove(Removal),
}

#[derive(Debug, Args)]
pub(super) struct Add {
    /// The name: any text without a colon
    name: String,

    /// A role of the model, or admin; may be repeated
    #[arg(long, value_name = "ROLE")]
    role: Vec<String>,

    /// Read the password from standard input
    #[arg(long)]
    password_stdin: bool,

    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(super) struct List {
    /// A line of JSON for each user
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(super) struct Passwd {
    name: String,

    /// Read the password from standard input
    #[arg(long)]
    password_stdin: bool,

    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(super) struct Roles {
    name: String,

    /// A role of the model, or admin; may be repeated
    #[arg(long, value_name = "ROLE", required_unless_present = "none")]
    role: Vec<String>,

    /// No role at all
    #[arg(long, conflicts_with = "role")]
    none: bool,

    /// Also where no enabled user is left with the role admin
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(super) struct Removal {
    name: String,

    /// Also where no enabled user is left with the role admin
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(super) struct One {
    name: String,

    #[command(flatten)]
    place: Place,
}

pub(super) fn run(command: &User) -> Result<ExitCode, Refusal> {
    match command {
        User::Add(flags) => add(flags)?,
        User::List(flags) => list(flags)?,
        User::Passwd(flags) => passwd(flags)?,
        User::Roles(flags) => set_roles(flags)?,
        User::Disable(flags) => disable(flags)?,
        User::Enable(flags) => enable(flags)?,
        User::Remove(flags) => remove(flags)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn add(flags: &Add) -> Result<(), Refusal> {
    let found = flags.place.find()?.check_key()?;
    let model = &found.model;
    // Before prompting for the password.
    let name = read(model, NAME, &text(&composed(&flags.name)))?;
    let roles = read(model, ROLES, &list_of(&flags.role))?;
    let Value::Text(name) = name else { return Err(refusal("expected a name")) };
    let mut accounts = found.open()?;
    let sent = new_password(&accounts.model, &name, flags.password_stdin)?;
    let record = record(&mut accounts, &name, &sent)?;
    let values = vec![Value::Text(name.clone()), roles, Value::Boolean(false), record];
    accounts.create(values).map_err(|error| match error {
        StoreError::Refused(Refused::Taken(_)) => refusal(format!(
            "there is a user {name} already; set the password with: nouns user passwd {name}"
        )),
        error => refusal(error),
    })?;
    said(format_args!("added {name}"));
    Ok(())
}

fn passwd(flags: &Passwd) -> Result<(), Refusal> {
    let mut accounts = flags.place.find()?.check_key()?.open()?;
    let name = composed(&flags.name);
    let user = accounts.user(&name)?;
    let sent = new_password(&accounts.model, &name, flags.password_stdin)?;
    let record = record(&mut accounts, &name, &sent)?;
    let first_file = accounts.password_file.clone();
    let first_file = PasswordFile::find(first_file.as_deref(), &user);
    accounts.change(&name, (PASSWORD, false), |_| Ok(Some(record.clone())))?;
    wait_for_servers();
    said(format_args!("set the password of {name}"));
    forget(first_file)
}

/// The file of the first start holds a password that counts no more.
fn forget(first_file: Option<PasswordFile<'_>>) -> Result<(), Refusal> {
    if let Some(file) = first_file {
        said(format_args!("{}", file.forget()?));
    }
    Ok(())
}

fn set_roles(flags: &Roles) -> Result<(), Refusal> {
    let mut accounts = flags.place.find()?.open()?;
    let name = composed(&flags.name);
    let roles = read(&accounts.model, ROLES, &list_of(&flags.role))?;
    accounts.change(&name, (ROLES, flags.force), |_| Ok(Some(roles.clone())))?;
    wait_for_servers();
    said(format_args!("set the roles of {name}"));
    Ok(())
}

fn disable(flags: &Removal) -> Result<(), Refusal> {
    let mut accounts = flags.place.find()?.open()?;
    let name = composed(&flags.name);
    let disabled = |_: &Item| Ok(Some(Value::Boolean(true)));
    accounts.change(&name, (DISABLED, flags.force), disabled)?;
    wait_for_servers();
    said(format_args!("disabled {name}"));
    Ok(())
}

fn enable(flags: &One) -> Result<(), Refusal> {
    let mut accounts = flags.place.find()?.open()?;
    let name = composed(&flags.name);
    accounts.change(&name, (DISABLED, false), |_| Ok(Some(Value::Boolean(false))))?;
    said(format_args!("enabled {name}"));
    Ok(())
}

fn remove(flags: &Removal) -> Result<(), Refusal> {
    let mut accounts = flags.place.find()?.open()?;
    let name = composed(&flags.name);
    let user = accounts.user(&name)?;
    let first_file = accounts.password_file.clone();
    let first_file = PasswordFile::find(first_file.as_deref(), &user);
    match accounts.remove(&user, flags.force) {
        // Another process was faster.
        Ok(()) | Err(StoreError::Refused(Refused::Missing)) => {}
        Err(StoreError::Refused(Refused::LastAdmin)) => return Err(accounts::last_admin(&name)),
        Err(error) => return Err(refusal(error)),
    }
    wait_for_servers();
    said(format_args!("removed {name}"));
    forget(first_file)
}

/// Reads and checks a new password.
fn new_password(model: &Model, name: &str, from_input: bool) -> Result<String, Refusal> {
    let sent = if from_input { prompt::from_input()? } else { prompt::from_terminal(name)? };
    read(model, PASSWORD, &text(&sent))?;
    password::check(&sent).map_err(|unfit| refusal(format!("password: {unfit}")))?;
    Ok(sent)
}

/// The record of a password.
fn record(accounts: &mut Accounts, name: &str, sent: &str) -> Result<Value, Refusal> {
    let keys = accounts.keys()?;
    let record = password::make(&accounts.model, Some(&keys), name, sent);
    let record = record.map_err(|unfit| refusal(format!("password: {unfit}")))?;
    Ok(Value::text(&record.to_string()))
}

/// A value of a user, checked against the rules of its field.
fn read(model: &Model, at: usize, json: &Json<'_>) -> Result<Value, Refusal> {
    let field = model.resource(model.users).fields.get(at);
    let Some(field) = field else { return Err(refusal("users have no such field")) };
    let mut faults = Faults::at(field.name.to_string());
    // Users cannot be renamed, so a name is always new here.
    let value = types::read_new(field, json, &mut faults);
    let faults = faults.into_list();
    match (value, faults.is_empty()) {
        (Some(value), true) => Ok(types::seal(value)),
        _ => {
            let lines = faults.iter().map(|fault| format!("{}: {}", fault.pointer, fault.detail));
            Err(refusal(lines.collect::<Vec<_>>().join("; ")))
        }
    }
}

fn text(text: &str) -> Json<'static> {
    Json::Text(text.to_owned().into())
}

fn list_of(words: &[String]) -> Json<'static> {
    let mut words: Vec<&String> = words.iter().collect();
    words.dedup();
    Json::List(words.into_iter().map(|word| text(word)).collect())
}

fn said(what: impl std::fmt::Display) {
    say(&mut std::io::stdout(), format_args!("nouns: {what}"));
}

fn list(flags: &List) -> Result<(), Refusal> {
    let mut accounts = flags.place.find()?.open()?;
    let mut rows = vec![["NAME", "ROLES", "DISABLED", "SINCE"].map(str::to_owned)];
    let mut lines = Vec::new();
    accounts.each_user(|accounts, user| {
        let roles = roles::names(accounts::roles(user));
        let unknown = roles::unknown(&accounts.model, roles.clone());
        if flags.json {
            json_line(&mut lines, user, &unknown);
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
    let since = String::from_utf8_lossy(&user.created_at.text()).into_owned();
    [accounts::name(user).to_owned(), or_none(roles), is_disabled.to_owned(), since]
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

fn json_line(out: &mut Vec<u8>, user: &Item, unknown: &[String]) {
    out.extend_from_slice(b"{\"name\":");
    json::write_text(out, accounts::name(user));
    out.extend_from_slice(b",\"roles\":");
    out.extend_from_slice(accounts::roles(user).as_bytes());
    out.extend_from_slice(b",\"undeclared_roles\":");
    json::write(out, &list_of(unknown));
    let disabled: &[u8] = if accounts::is_disabled(user) { b"true" } else { b"false" };
    out.extend_from_slice(b",\"disabled\":");
    out.extend_from_slice(disabled);
    for (name, moment) in [("created_at", user.created_at), ("updated_at", user.updated_at)] {
        out.push(b',');
        json::write_text(out, name);
        out.push(b':');
        json::write_moment(out, moment);
    }
    out.extend_from_slice(b"}\n");
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
