//! The output of `nouns doctor`: one line for each check, with its status and what to mend.

use std::io::{self, Write};

use crate::cli::command_hint::CommandHint;
use crate::json::{self, ObjectWriter};

/// From the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthStatus {
    Ok,
    /// It works, and may not for long.
    Warning,
    /// It does not work, or loses data.
    Fault,
}

impl HealthStatus {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Fault => "fault",
        }
    }
}

/// Prints each check when it is done.
#[derive(Debug)]
pub struct HealthChecks {
    is_json: bool,
    hint: CommandHint,
    pub worst: HealthStatus,
}

impl HealthChecks {
    pub fn new(is_json: bool, hint: CommandHint) -> Self {
        Self { is_json, hint, worst: HealthStatus::Ok }
    }

    pub fn ok(&mut self, check: &str, message: &str) {
        self.report(check, HealthStatus::Ok, message);
    }

    /// The message also says what to mend.
    pub fn warn(&mut self, check: &str, message: &str) {
        self.report(check, HealthStatus::Warning, message);
    }

    /// The message also says what to mend.
    pub fn fault(&mut self, check: &str, message: &str) {
        self.report(check, HealthStatus::Fault, message);
    }

    fn report(&mut self, check: &str, status: HealthStatus, message: &str) {
        self.worst = self.worst.max(status);
        // One check is one line.
        let message = self.hint.complete(message);
        let message = message.trim_end().replace("\n  ", " ").replace('\n', " ");
        let line = match self.is_json {
            true => json_line(check, status, &message),
            false => format!("{:<8} {check:<12} {message}\n", status.name()).into_bytes(),
        };
        // If that fails, there is no other place to report to.
        let _ = io::stdout().write_all(&line);
    }
}

fn json_line(check: &str, status: HealthStatus, message: &str) -> Vec<u8> {
    let mut line = Vec::new();
    let mut object = ObjectWriter::open(&mut line);
    for (name, text) in [("check", check), ("status", status.name()), ("message", message)] {
        json::write_text(object.name(name), text);
    }
    object.close();
    line.push(b'\n');
    line
}
