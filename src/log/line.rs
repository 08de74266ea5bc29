//! Formatting of log lines, as JSON and for people.
//!
//! Pure text, no I/O. More is escaped than JSON requires. Clients choose some of the text, and it must not
//! move a terminal's cursor, end a line or change the direction of writing (log injection).

use std::fmt::{self, Display, Write as _};
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use super::record::{Level, LogStyle, RequestLine};
use crate::json::{ObjectWriter, write_integer, write_moment};
use crate::value::{Moment, count_before};

/// The maximum size of a value; longer values are truncated, since a client chooses some of them.
const VALUE_BYTES_MAX: usize = 2048;

pub struct LogEvent<'a> {
    pub time: Moment,
    pub level: Level,
    pub message: &'a str,
    pub pairs: &'a [(&'a str, &'a dyn Display)],
}

pub fn event(out: &mut Vec<u8>, style: LogStyle, event: &LogEvent<'_>) {
    match style {
        LogStyle::Json => {
            let mut line = json_line(out, event.time, event.level, event.message);
            for (key, value) in event.pairs {
                json_text(&mut line, key, &value.to_string());
            }
            line.close();
        }
        LogStyle::Pretty { colour } => {
            let (code, word) = match event.level {
                Level::Info => ("32", "info "),
                Level::Warning => ("33", "warn "),
                Level::Error => ("31", "error"),
            };
            let mut line = PrettyLine::start(out, colour, event.time, (code, &word));
            let _ = write!(line.out, " {}", Escaped(event.message));
            for (key, value) in event.pairs {
                line.pair(key, value);
            }
        }
    }
}

pub fn request(out: &mut Vec<u8>, style: LogStyle, request: &RequestLine<'_>) {
    match style {
        LogStyle::Json => request_json(out, request),
        LogStyle::Pretty { colour } => request_pretty(out, request, colour),
    }
}

fn request_json(out: &mut Vec<u8>, request: &RequestLine<'_>) {
    let mut line = json_line(out, request.time, request.level(), "request");
    json_text(&mut line, "request_id", request.request_id);
    line.number("status", request.status);
    json_text(&mut line, "method", request.method);
    json_text(&mut line, "path", request.path);
    json_text(&mut line, "caller", request.caller);
    write_peer(line.name("peer"), request.peer);
    if let Some(client) = request.forwarded_client() {
        let _ = write!(line.name("client"), "\"{client}\"");
    }
    line.number("bytes", request.bytes);
    line.number("duration_us", micros(request.duration));
    for (key, value) in [("problem", request.problem), ("cause", request.cause)] {
        if let Some(value) = value {
            json_text(&mut line, key, value);
        }
    }
    if request.is_cut {
        line.json("cut", "true");
    }
    let mut stages = line.object("stages_us");
    for (name, took) in request.stages.iter() {
        stages.number(name, micros(took));
    }
    stages.close();
    line.close();
}

fn request_pretty(out: &mut Vec<u8>, request: &RequestLine<'_>, colour: bool) {
    let code = match request.status {
        ..300 => "32",
        300..400 => "36",
        400..500 => "33",
        500.. => "31",
    };
    let mut line = PrettyLine::start(out, colour, request.time, (code, &request.status));
    let (method, duration) = (Escaped(request.method), HumanDuration(request.duration));
    let _ = write!(line.out, " {method:<7} {duration:>9} {}", Escaped(request.path));
    line.pair("bytes", &request.bytes);
    line.pair("caller", &request.caller);
    line.pair("peer", &request.peer);
    if let Some(client) = request.forwarded_client() {
        line.pair("client", &client);
    }
    line.pair("id", &request.request_id);
    for (key, value) in [("problem", request.problem), ("cause", request.cause)] {
        if let Some(value) = value {
            line.pair(key, &value);
        }
    }
    if request.is_cut {
        line.pair("cut", &true);
    }
    for (name, took) in request.stages.iter() {
        line.pair(name, &HumanDuration(took));
    }
}

fn json_line<'a>(
    out: &'a mut Vec<u8>,
    time: Moment,
    level: Level,
    message: &str,
) -> ObjectWriter<'a> {
    let mut line = ObjectWriter::open(out);
    write_moment(line.name("time"), time);
    line.text("level", level.as_str());
    json_text(&mut line, "message", message);
    line
}

/// Writes an address and port. This runs for every request, and `fmt` is slow for an IPv4 address.
fn write_peer(out: &mut Vec<u8>, peer: SocketAddr) {
    out.push(b'"');
    match peer {
        SocketAddr::V4(peer) => {
            for (index, byte) in peer.ip().octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                write_integer(out, byte);
            }
            out.push(b':');
            write_integer(out, peer.port());
        }
        SocketAddr::V6(peer) => {
            let _ = write!(out, "{peer}");
        }
    }
    out.push(b'"');
}

/// Writes a value of which clients may choose the text.
fn json_text(line: &mut ObjectWriter<'_>, key: &str, value: &str) {
    let (kept, end) = truncate(value);
    let out = line.name(key);
    out.push(b'"');
    // Most values have no character to escape.
    let is_special = |byte: u8| !(b' '..=b'~').contains(&byte) | (byte == b'"') | (byte == b'\\');
    let (plain, rest) = kept.split_at(count_before(kept.as_bytes(), is_special));
    out.extend_from_slice(plain.as_bytes());
    for c in rest.chars() {
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            '\n' => write!(out, "\\n"),
            c if is_dangerous(c) => write!(out, "\\u{:04x}", u32::from(c)),
            c => write!(out, "{c}"),
        };
    }
    out.extend_from_slice(end.as_bytes());
    out.push(b'"');
}

/// A line for people.
struct PrettyLine<'a> {
    out: &'a mut Vec<u8>,
    colour: bool,
}

impl<'a> PrettyLine<'a> {
    /// The time of day is enough for a person who is watching.
    fn start(
        out: &'a mut Vec<u8>,
        colour: bool,
        time: Moment,
        (code, word): (&str, &dyn Display),
    ) -> Self {
        let stamp = time.to_string();
        let _ = write!(out, "{} ", stamp.get(11..23).unwrap_or(&stamp));
        let mut line = Self { out, colour };
        line.paint(code, word);
        line
    }

    fn paint(&mut self, code: &str, text: &dyn Display) {
        let _ = match self.colour {
            true => write!(self.out, "\x1b[{code}m{text}\x1b[0m"),
            false => write!(self.out, "{text}"),
        };
    }

    fn pair(&mut self, key: &str, value: &dyn Display) {
        let value = value.to_string();
        self.out.push(b' ');
        self.paint("2", &format_args!("{key}="));
        let is_plain = !value.is_empty() && !value.contains([' ', '"', '=']);
        let _ = match is_plain {
            true => write!(self.out, "{}", Escaped(&value)),
            false => write!(self.out, "\"{}\"", Escaped(&value.replace('"', "\\\""))),
        };
    }
}

/// A number of 64 bits is formatted faster than one of 128.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// `812 µs`, `3.4 ms`, `1.20 s`.
struct HumanDuration(Duration);

impl Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        f.pad(&match micros {
            ..1_000 => format!("{micros}µs"),
            1_000..1_000_000 => format!("{}.{}ms", micros / 1_000, micros / 100 % 10),
            1_000_000.. => format!("{}.{:02}s", micros / 1_000_000, micros / 10_000 % 100),
        })
    }
}

/// Text from outside, for a terminal.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kept, end) = truncate(self.0);
        let mut text = String::with_capacity(kept.len());
        for c in kept.chars() {
            if is_dangerous(c) {
                let _ = write!(text, "\\u{{{:x}}}", u32::from(c));
            } else {
                text.push(c);
            }
        }
        f.pad(&(text + end))
    }
}

/// Whether a character can move a terminal's cursor, end a line or change the direction of writing.
pub fn is_dangerous(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The text up to the maximum, and the sign that it was cut.
fn truncate(value: &str) -> (&str, &'static str) {
    let end = value.floor_char_boundary(VALUE_BYTES_MAX);
    (value.get(..end).unwrap_or_default(), if end < value.len() { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::log::StageTimes;

    fn request<'a>(path: &'a str, status: u16, stages: &'a StageTimes) -> RequestLine<'a> {
        RequestLine {
            time: Moment::parse("2026-11-15T02:28:14.123456Z").unwrap(),
            request_id: "01jcq0000000000000000000ab",
            peer: "127.0.0.1:5000".parse().unwrap(),
            client: if status < 500 { [127, 0, 0, 1] } else { [192, 0, 2, 7] }.into(),
            method: "GET",
            path,
            status,
            caller: "open",
            bytes: 312,
            duration: Duration::from_micros(1234),
            problem: (status >= 400).then_some("internal"),
            cause: (status >= 500).then_some("disk says \"no\""),
            is_cut: false,
            stages,
        }
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn check_requests(line: impl Fn(&RequestLine<'_>) -> String, expected: &Expect) {
        let stages = StageTimes::start(crate::clock::now());
        let lines = [
            line(&request("/customers", 200, &stages)),
            line(&request("/a\r\nb\x1b[2J\u{202e}\u{9b}\"\\", 500, &stages)),
        ];
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn request_log_line_in_json_format_escapes_control_characters() {
        check_requests(
            |request| {
                let line = written(|out| request_json(out, request));
                let _: serde_json::Value = serde_json::from_str(&line).unwrap();
                line
            },
            &expect![[r#"
                {"time":"2026-11-15T02:28:14.123456Z","level":"info","message":"request","request_id":"01jcq0000000000000000000ab","status":200,"method":"GET","path":"/customers","caller":"open","peer":"127.0.0.1:5000","bytes":312,"duration_us":1234,"stages_us":{}}
                {"time":"2026-11-15T02:28:14.123456Z","level":"error","message":"request","request_id":"01jcq0000000000000000000ab","status":500,"method":"GET","path":"/a\u000d\nb\u001b[2J\u202e\u009b\"\\","caller":"open","peer":"127.0.0.1:5000","client":"192.0.2.7","bytes":312,"duration_us":1234,"problem":"internal","cause":"disk says \"no\"","stages_us":{}}"#]],
        );
    }

    #[test]
    fn request_log_line_in_pretty_format_escapes_control_characters() {
        check_requests(
            |request| written(|out| request_pretty(out, request, false)),
            &expect![[r#"
                02:28:14.123 200 GET         1.2ms /customers bytes=312 caller=open peer=127.0.0.1:5000 id=01jcq0000000000000000000ab
                02:28:14.123 500 GET         1.2ms /a\u{d}\u{a}b\u{1b}[2J\u{202e}\u{9b}"\ bytes=312 caller=open peer=127.0.0.1:5000 client=192.0.2.7 id=01jcq0000000000000000000ab problem=internal cause="disk says \"no\"""#]],
        );
    }

    #[test]
    fn event_log_line_in_every_format_has_all_pairs() {
        let show = |style| {
            let time = Moment::parse("2026-11-15T02:28:14Z").unwrap();
            let pairs: &[(&str, &dyn Display)] =
                &[("address", &"127.0.0.1:1"), ("why", &"two words")];
            let odd = LogEvent { time, level: Level::Warning, message: "odd", pairs };
            written(|out| event(out, style, &odd))
        };
        expect![[r#"{"time":"2026-11-15T02:28:14.000000Z","level":"warning","message":"odd","address":"127.0.0.1:1","why":"two words"}"#]].assert_eq(&show(LogStyle::Json));
        expect![[r#"02:28:14.000 warn  odd address=127.0.0.1:1 why="two words""#]]
            .assert_eq(&show(LogStyle::Pretty { colour: false }));
        assert!(show(LogStyle::Pretty { colour: true }).contains("\x1b[33mwarn \x1b[0m"));
    }

    #[test]
    fn log_value_too_long_is_truncated_at_a_char_boundary() {
        let out = Escaped(&"ü".repeat(5000)).to_string();
        assert_eq!(out.chars().count(), VALUE_BYTES_MAX / 2 + 1);
        assert!(out.ends_with('…'));
    }

    proptest::proptest! {
        #[test]
        fn log_line_any_text_stays_on_one_line(text in "\\PC*|[\\x00-\\x{9f}]*") {
            let start = Moment::from_micros(0).unwrap();
            let json = written(|out| json_line(out, start, Level::Info, &text).close());
            let back: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(back["message"].as_str(), Some(text.as_str()));
            let pretty = Escaped(&text).to_string();
            assert!(!json.chars().chain(pretty.chars()).any(|c| c.is_control()));
        }
    }
}
