//! `nouns changes`: the change log, one line per change, in order: JSON, and a short form on a terminal.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::termios;

use super::change_line::ChangeLines;
use super::model_source::{database, find_model, read_model};
use super::report::{CommandError, command_error, wants_colours};
use crate::formats::json::change_line;
use crate::store::AdminStore;
use crate::value::Change;

/// The polling interval of `--follow`.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Of a terminal that does not say its own.
const DEFAULT_WIDTH: usize = 80;

#[derive(Debug, Args)]
#[command(after_help = "\
On a terminal each change is a short line, cut at its width, with the time in UTC; elsewhere, or with \
--json, it is a JSON object.

It runs while servers run, and changes nothing. A change that is committed late is never missed: \
on PostgreSQL it shows changes only up to the low-water mark, below which none can be committed.")]
pub struct ChangesArgs {
    /// The model file, for its database [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// The database: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// Start after this sequence number; refused if later changes were swept
    #[arg(long, default_value_t = 0, value_name = "NUMBER", allow_negative_numbers = true)]
    since: i64,

    /// Keep running, and print changes as they are committed
    #[arg(long)]
    follow: bool,

    /// Print one JSON object a line, also on a terminal
    #[arg(long)]
    json: bool,
}

pub fn run(flags: &ChangesArgs) -> Result<ExitCode, CommandError> {
    let model = read_model(&find_model(flags.model.as_deref())?)?;
    let database = database(flags.database.as_deref(), &model.server.storage)?;
    let mut admin_store = AdminStore::open_read_only(&database, &Arc::new(model))?;
    let fail = |cause: String| {
        command_error(format!("cannot read the change log of {database} ({cause})"))
    };
    let mut out = io::stdout().lock();
    let mut format = OutputFormat::choose(flags.json, &out);
    let mut last = flags.since.max(0);
    check_position(&mut admin_store, last, fail)?;
    loop {
        let some = admin_store.changes_after(last).map_err(fail)?;
        // After the read: what it did not find any more was swept before.
        if some.first().is_some_and(|change| change.sequence > last.saturating_add(1)) {
            check_position(&mut admin_store, last, fail)?;
        }
        last = some.last().map_or(last, |change| change.sequence);
        // The reader has closed the pipe, as `head` does.
        if format.write(&mut out, &some).is_err() {
            return Ok(ExitCode::SUCCESS);
        }
        match (some.is_empty(), flags.follow) {
            (false, _) => {}
            (true, true) => std::thread::sleep(POLL_INTERVAL),
            (true, false) => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Refuses a position after which entries were swept; zero is the beginning of what the log has.
fn check_position(
    admin_store: &mut AdminStore,
    last: i64,
    fail: impl FnOnce(String) -> CommandError,
) -> Result<(), CommandError> {
    if last == 0 {
        return Ok(());
    }
    match admin_store.oldest_change_after_sweep(last).map_err(fail)? {
        None => Ok(()),
        Some(oldest) => Err(command_error(format!(
            "the change log no longer has the changes after {last}; the oldest it has is {oldest} \
             (--since 0 begins there)"
        ))),
    }
}

/// Lines of JSON, or lines for a person at a terminal.
enum OutputFormat {
    Json,
    Terminal(ChangeLines),
}

impl OutputFormat {
    fn choose(is_json: bool, out: &impl IsTerminal) -> Self {
        match is_json || !out.is_terminal() {
            true => Self::Json,
            false => Self::Terminal(ChangeLines::new(wants_colours(out))),
        }
    }

    fn write(&mut self, out: &mut (impl Write + AsFd), changes: &[Change]) -> io::Result<()> {
        let mut lines = Vec::new();
        match self {
            Self::Json => changes.iter().for_each(|change| change_line(&mut lines, change)),
            Self::Terminal(terminal) => {
                // Read anew, since a person may change it.
                let width = terminal_width(out);
                changes.iter().for_each(|change| terminal.write(&mut lines, change, width));
            }
        }
        out.write_all(&lines).and_then(|()| out.flush())
    }
}

fn terminal_width(terminal: &impl AsFd) -> usize {
    let width = termios::tcgetwinsize(terminal).map_or(0, |size| size.ws_col);
    if width == 0 { DEFAULT_WIDTH } else { usize::from(width) }
}
