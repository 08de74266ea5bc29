//! The log: one line per request and one line per event, to stderr.
//!
//! No function logs a header, a query or a body: a value that may hold a secret has no field here. When a
//! terminal or a pipe is slow, lines are dropped and counted (load shedding) rather than slowing requests
//! down.

mod line;
mod writer;

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::value::Moment;
use writer::LogWriter;

/// The style of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStyle {
    /// One JSON object a line.
    Json,
    /// For people. The caller decides on colours: only a terminal shows them.
    Pretty { colour: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Info,
    Warning,
    Error,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The fields of one request's log line.
#[derive(Debug)]
pub struct RequestLine<'a> {
    pub time: Moment,
    pub request_id: &'a str,
    /// The address that connected.
    pub peer: SocketAddr,
    /// The address that sent the request, logged where a proxy is the peer.
    pub client: IpAddr,
    pub method: &'a str,
    /// Without the query, which may hold personal data.
    pub path: &'a str,
    pub status: u16,
    pub caller: &'a str,
    /// The size of the response's body.
    pub bytes: usize,
    pub duration: Duration,
    /// The slug of the problem in the response.
    pub problem: Option<&'a str>,
    /// The cause of the problem, which the response does not reveal.
    pub cause: Option<&'a str>,
    /// Whether the response was truncated.
    pub is_cut: bool,
    pub stages: &'a StageTimes,
}

impl RequestLine<'_> {
    fn level(&self) -> Level {
        match (self.status, self.is_cut) {
            (500.., _) => Level::Error,
            (_, true) => Level::Warning,
            (_, false) => Level::Info,
        }
    }

    fn client(&self) -> Option<IpAddr> {
        (self.client != self.peer.ip().to_canonical()).then_some(self.client)
    }
}

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

const STAGES_MAX: usize = 8;

/// How long each stage of a request took.
#[derive(Debug, Clone)]
pub struct StageTimes {
    began: Instant,
    last: Instant,
    length: usize,
    list: [(&'static str, Duration); STAGES_MAX],
}

impl StageTimes {
    pub fn start(now: Instant) -> Self {
        Self { began: now, last: now, length: 0, list: [("", Duration::ZERO); STAGES_MAX] }
    }

    /// Names the stage that ends now. Stages beyond the eighth are added to the eighth.
    pub fn mark(&mut self, name: &'static str) {
        let now = clock::now();
        let took = now.duration_since(self.last);
        self.last = now;
        if self.length < STAGES_MAX {
            self.length += 1;
        }
        if let Some((entry, sum)) = self.list.get_mut(self.length - 1) {
            *entry = name;
            *sum += took;
        }
    }

    /// The time of the last mark.
    pub fn now(&self) -> Instant {
        self.last
    }

    /// The time from the start to the last mark.
    pub fn total(&self) -> Duration {
        self.last.duration_since(self.began)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Duration)> + '_ {
        self.list.iter().take(self.length).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_stages_beyond_the_maximum_are_added_to_the_last() {
        let mut stages = StageTimes::start(clock::now());
        for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
            stages.mark(name);
        }
        let names: Vec<_> = stages.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e", "f", "g", "j"]);
        assert_eq!(stages.iter().map(|(_, took)| took).sum::<Duration>(), stages.total());
    }
}
