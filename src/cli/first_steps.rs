//! The first steps that `nouns serve` prints on a terminal: the login, and three things to try.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::first_user::{FirstUser, NAME};
use crate::model::{AuthScheme, Model};
use crate::openapi;
use crate::permit::Caller;

/// How a person can log in.
#[derive(Debug)]
pub enum Login {
    /// Without credentials.
    Open,
    /// As the first user, created at this start.
    First(FirstUser),
    /// As the first user, whose password is still in its file.
    File(PathBuf),
    /// As a user that the operator knows.
    Known,
}

/// The text for a terminal. `target` is the URL of `/`, with the options that `curl` needs for it.
pub fn text(model: &Model, login: &Login, target: &str) -> String {
    let realm = model.realm(model.server_realm());
    let has_digest = realm.schemes.contains(&AuthScheme::Digest);
    let scheme = if has_digest { "--digest" } else { "--basic" };
    let mut text = String::new();
    let _ = match login {
        Login::First(first) => writeln!(
            text,
            "nouns: the first user is {NAME}, with the password in {}; this command is shown once:\n  \
             curl {scheme} -u {NAME}:{} {target}",
            first.file.display(),
            first.password,
        ),
        Login::File(file) => {
            writeln!(text, "nouns: log in as {NAME}, with the password in {}", file.display())
        }
        Login::Open | Login::Known => Ok(()),
    };
    let curl = match login {
        Login::Open => "curl".to_owned(),
        Login::First(_) | Login::File(_) => format!("curl {scheme} -u {NAME}"),
        Login::Known => format!("curl {scheme} -u NAME"),
    };
    let base = target.trim_end_matches('/');
    let url = target.rsplit(' ').next().unwrap_or(target);
    let _ = write!(text, "nouns: three things to try:\n  a browser: {url}");
    let first = model.usable().find(|one| !one.is_builtin && one.parent.is_none());
    if let Some(resource) = first {
        let path = format!("{base}/{}", resource.plural);
        let _ = match openapi::create_example(model, &Caller::open(model), resource) {
            Some(body) => {
                write!(text, "\n  a create:  {curl} {path} --json {}", in_single_quotes(&body))
            }
            None => write!(text, "\n  a list:    {curl} {path}"),
        };
    }
    let _ =
        write!(text, "\n  the feed:  {curl} -N -H 'Accept: text/event-stream' {base}/-/changes");
    text
}

fn in_single_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
