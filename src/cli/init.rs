//! `nouns init`: a commented model file to start from; never overwrites one.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use super::{CommandError, EXAMPLES, InitArgs, MODEL_FILE, command_error, print_line};

pub fn run(flags: &InitArgs) -> Result<ExitCode, CommandError> {
    let example = EXAMPLES.iter().find(|example| example.name == flags.from);
    let text = example.map_or("", |example| example.text);
    let written = File::create_new(MODEL_FILE).and_then(|mut file| {
        let done = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        // Half a model is worse than none.
        if done.is_err() {
            let _ = std::fs::remove_file(MODEL_FILE);
        }
        done
    });
    written.map_err(|error| {
        command_error(match error.kind() {
            ErrorKind::AlreadyExists => {
                format!("{MODEL_FILE} exists already, and is not overwritten; move it away first")
            }
            _ => format!("cannot write {MODEL_FILE}: {error}"),
        })
    })?;
    print_line(
        &mut std::io::stdout(),
        format_args!("wrote {MODEL_FILE}; serve it with: nouns serve"),
    );
    Ok(ExitCode::SUCCESS)
}
