//! The output of a command, and the files that it creates.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A complete message for the operator: what is wrong and how to fix it. It is not `Display`, so that every
/// error that is can be converted by `?`.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandError(pub String);

impl<E: Display> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self(format!("nouns: {error}"))
    }
}

pub fn command_error(message: impl Display) -> CommandError {
    message.into()
}

/// Tells the user what a command has done.
pub fn print_done(what: impl Display) {
    print_line(&mut io::stdout(), format_args!("nouns: {what}"));
}

/// Creates a file and syncs it. Half a file is worse than none.
pub fn create_file(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    let done = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if done.is_err() {
        let _ = std::fs::remove_file(path);
    }
    done
}

/// Writes one line. If that fails, there is no other place to report to.
pub fn print_line(to: &mut impl Write, line: impl Display) {
    let _ = writeln!(to, "{line}");
}

pub fn internal_error_message(cause: &str) -> String {
    format!("nouns: ended by an internal error: {cause}")
}

/// Whether to use colours: on a terminal, unless `NO_COLOR` is set.
pub fn wants_colours(to: &impl io::IsTerminal) -> bool {
    #[expect(
        clippy::disallowed_methods,
        reason = "NO_COLOR is a convention between programs, not a setting of ours"
    )]
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    to.is_terminal() && !refused
}
