//! `nouns changes`: the change log, one line of JSON per change, in order.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use super::{Changes, Refusal, database, find_model, read_model, refusal};
use crate::formats::json::change_line;
use crate::store;

/// The polling interval of `--follow`.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) fn run(flags: &Changes) -> Result<ExitCode, Refusal> {
    let model = read_model(&find_model(flags.model.as_deref())?)?;
    let database = database(flags.database.as_deref(), &model)?;
    let mut changes =
        store::Changes::open(&database, model.server.database_pooling).map_err(refusal)?;
    let mut last = flags.since;
    let mut out = std::io::stdout().lock();
    loop {
        let some = changes.after(last).map_err(refusal)?;
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
            (true, true) => std::thread::sleep(LOOK_EVERY),
            (true, false) => return Ok(ExitCode::SUCCESS),
        }
    }
}
