//! `nouns changes`: the change log, one line of JSON per change, in order.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::model_source::{database, find_model, read_model};
use super::report::{CommandError, command_error};
use crate::formats::json::change_line;
use crate::store::AdminStore;

/// The polling interval of `--follow`.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(after_help = "\
It runs while servers run, and changes nothing. A change that is committed late is never missed: \
on PostgreSQL it shows changes only up to the low-water mark, below which none can be committed.")]
pub struct ChangesArgs {
    /// The model file, for its database [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// The database: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// Start after this sequence number
    #[arg(long, default_value_t = 0, value_name = "NUMBER", allow_negative_numbers = true)]
    since: i64,

    /// Keep running, and print changes as they are committed
    #[arg(long)]
    follow: bool,
}

pub fn run(flags: &ChangesArgs) -> Result<ExitCode, CommandError> {
    let model = read_model(&find_model(flags.model.as_deref())?)?;
    let database = database(flags.database.as_deref(), &model)?;
    let mut admin_store = AdminStore::open_read_only(&database, &Arc::new(model))?;
    let mut last = flags.since;
    let mut out = std::io::stdout().lock();
    loop {
        let some = admin_store.changes_after(last).map_err(|cause| {
            command_error(format!("cannot read the change log of {database} ({cause})"))
        })?;
        let mut lines = Vec::new();
        for change in &some {
            change_line(&mut lines, change);
            last = change.sequence;
        }
        // The reader has closed the pipe, as `head` does.
        if out.write_all(&lines).and_then(|()| out.flush()).is_err() {
            return Ok(ExitCode::SUCCESS);
        }
        match (some.is_empty(), flags.follow) {
            (false, _) => {}
            (true, true) => std::thread::sleep(POLL_INTERVAL),
            (true, false) => return Ok(ExitCode::SUCCESS),
        }
    }
}
