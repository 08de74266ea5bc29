//! The log: one line per request and one line per event, to stderr.
//!
//! No function logs a header, a query or a body: a value that may hold a secret has no field here. When a
//! terminal or a pipe is slow, lines are dropped and counted (load shedding) rather than slowing requests
//! down.

mod line;
mod record;
mod writer;

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;

use crate::clock;
pub use line::is_dangerous;
pub use record::{Level, LogStyle, RequestLine, StageTimes};
use writer::LogWriter;

/// A handle to the log. A clone writes to the same target.
#[derive(Debug, Clone)]
pub struct Logger {
    style: LogStyle,
    writer: Arc<LogWriter>,
}

thread_local! {
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Logger {
    /// Starts the thread that writes to stderr.
    pub fn start(style: LogStyle) -> io::Result<Self> {
        Self::start_to(style, io::stderr())
    }

    pub fn start_to(style: LogStyle, target: impl Write + Send + 'static) -> io::Result<Self> {
        Ok(Self { style, writer: LogWriter::start(style, target)? })
    }

    pub fn request(&self, request: &RequestLine<'_>) {
        self.append_line(request.level(), |out| {
            crate::fault::point("line");
            line::request(out, self.style, request);
        });
    }

    pub fn event(&self, level: Level, message: &str, pairs: &[(&str, &dyn Display)]) {
        let event = line::LogEvent { time: clock::moment(), level, message, pairs };
        self.append_line(level, |out| line::event(out, self.style, &event));
    }

    /// The number of lines dropped since the start.
    pub fn dropped_lines(&self) -> u64 {
        self.writer.dropped_total()
    }

    /// Waits until all lines so far are written, with a timeout: a pipe without a reader must not keep the
    /// program from exiting.
    pub fn flush(&self) {
        self.writer.flush();
    }

    fn append_line(&self, level: Level, format: impl FnOnce(&mut Vec<u8>)) {
        // Takes the buffer and does not borrow it: a panic in between is logged too, by the same thread.
        let mut line = LINE.take();
        line.clear();
        format(&mut line);
        line.push(b'\n');
        self.writer.append(&line, level);
        LINE.set(line);
    }
}
