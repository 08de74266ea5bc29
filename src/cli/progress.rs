//! Progress of a long command: one line on standard error, if that is a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::clock;

/// How often the line is drawn.
const INTERVAL: Duration = Duration::from_millis(200);
/// Erases the line (ECMA-48: carriage return, erase in line).
const ERASE: &str = "\r\x1b[K";
const BAR_CHARS: usize = 24;

/// The line; erased when the command is done with it.
#[derive(Debug)]
pub struct Progress {
    is_shown: bool,
    verb: &'static str,
    /// The size of the whole work in bytes, if it is known.
    total: Option<u64>,
    drawn_at: Option<Instant>,
}

impl Progress {
    pub fn new(verb: &'static str, total: Option<u64>) -> Self {
        Self { is_shown: io::stderr().is_terminal(), verb, total, drawn_at: None }
    }

    /// Draws the line, unless it was drawn a moment ago.
    pub fn update(&mut self, rows: u64, bytes: u64) {
        if !self.is_shown {
            return;
        }
        let now = clock::now();
        if self.drawn_at.is_some_and(|drawn_at| now < drawn_at + INTERVAL) {
            return;
        }
        self.drawn_at = Some(now);
        let line = line(self.verb, self.total, rows, bytes);
        // A terminal that has gone does not stop the work.
        let _ = write!(io::stderr(), "{ERASE}{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn_at.is_some() {
            let _ = write!(io::stderr(), "{ERASE}");
        }
    }
}

fn line(verb: &str, total: Option<u64>, rows: u64, bytes: u64) -> String {
    let rows = with_separators(rows);
    match total {
        None => format!("{verb} {rows} rows, {} MB", with_separators(bytes / 1_000_000)),
        Some(total) => {
            let percent = bytes.min(total).saturating_mul(100) / total.max(1);
            let full = usize::try_from(percent).unwrap_or(0) * BAR_CHARS / 100;
            let bar = "█".repeat(full) + &"░".repeat(BAR_CHARS - full);
            format!("{verb} {bar} {percent:>3} % {rows} rows")
        }
    }
}

/// A number with commas between its thousands.
pub fn with_separators(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_has_a_bar_where_the_size_is_known() {
        assert_eq!(
            line("exporting", None, 1_234_567, 98_765_432),
            "exporting 1,234,567 rows, 98 MB"
        );
        let half = "█".repeat(12) + &"░".repeat(12);
        assert_eq!(
            line("importing", Some(200), 12, 100),
            format!("importing {half}  50 % 12 rows")
        );
        let full = "█".repeat(24);
        assert_eq!(line("importing", Some(0), 0, 0).chars().filter(|c| *c == '░').count(), 24);
        assert_eq!(line("importing", Some(7), 999, 9), format!("importing {full} 100 % 999 rows"));
    }

    #[test]
    fn number_has_commas_between_thousands() {
        let numbers = [0, 999, 1_000, 12_345, 1_000_000].map(with_separators);
        assert_eq!(numbers, ["0", "999", "1,000", "12,345", "1,000,000"]);
    }
}
