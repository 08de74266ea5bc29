//! The contents of log lines, before they are formatted.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::clock;
use crate::value::Moment;

/// `settings::LogFormat`, with the colours of one target.
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
    pub fn as_str(self) -> &'static str {
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
    pub fn level(&self) -> Level {
        match (self.status, self.is_cut) {
            (500.., _) => Level::Error,
            (_, true) => Level::Warning,
            (_, false) => Level::Info,
        }
    }

    /// The client, if a proxy is in between.
    pub fn forwarded_client(&self) -> Option<IpAddr> {
        (self.client != self.peer.ip().to_canonical()).then_some(self.client)
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
    pub fn last_mark(&self) -> Instant {
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
