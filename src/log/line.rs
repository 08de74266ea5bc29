//! Formatting of log lines, as JSON and for people.
//!
//! Pure text, no I/O. More is escaped than JSON requires. Clients choose some of the text, and it must not
//! move a terminal's cursor, end a line or change the direction of writing (log injection).

use std::fmt::{Display, Write};
use std::net::SocketAddr;

use super::{Level, LogStyle, RequestLine};
use crate::value::{Moment, count_before};

/// The maximum size of a value; longer values are truncated, since a client chooses some of them.
const VALUE_BYTES_MAX: usize = 2048;

pub struct LogEvent<'a> {
    pub time: Moment,
    pub level: Level,
    pub message: &'a str,
    pub pairs: &'a [(&'a str, &'a dyn Display)],
}

pub fn event(out: &mut String, style: LogStyle, event: &LogEvent<'_>) {
    match style {
        LogStyle::Json => {
            json_start(out, event.time, event.level, event.message);
            for (key, value) in event.pairs {
                json_text(out, key, &value.to_string());
            }
            out.push('}');
        }
        LogStyle::Pretty { colour } => {
            pretty_start(out, event.time);
            let paint = Painter { colour };
            let (code, word) = match event.level {
                Level::Info => ("32", "info "),
                Level::Warning => ("33", "warn "),
                Level::Error => ("31", "error"),
            };
            paint.push(out, code, word);
            out.push(' ');
            escape(out, event.message);
            for (key, value) in event.pairs {
                pretty_pair(out, paint, key, &value.to_string());
            }
        }
    }
}

/// The keys are written together with their punctuation: this runs for every request.
pub fn request_json(out: &mut String, request: &RequestLine<'_>) {
    json_head(out, request.time, request.level());
    out.push_str(",\"message\":\"request\",\"request_id\":\"");
    json_escape(out, request.request_id);
    out.push_str("\",\"status\":");
    json_number(out, request.status.into());
    out.push_str(",\"method\":\"");
    json_escape(out, request.method);
    out.push_str("\",\"path\":\"");
    json_escape(out, request.path);
    out.push_str("\",\"caller\":\"");
    json_escape(out, request.caller);
    out.push_str("\",\"peer\":\"");
    json_peer(out, request.peer);
    if let Some(client) = request.client() {
        push_fmt(out, format_args!("\",\"client\":\"{client}"));
    }
    out.push_str("\",\"bytes\":");
    json_number(out, u64::try_from(request.bytes).unwrap_or(u64::MAX));
    out.push_str(",\"duration_us\":");
    json_number(out, micros(request.duration));
    if let Some(problem) = request.problem {
        json_text(out, "problem", problem);
    }
    if let Some(cause) = request.cause {
        json_text(out, "cause", cause);
    }
    if request.is_cut {
        out.push_str(",\"cut\":true");
    }
    out.push_str(",\"stages_us\":{");
    for (index, (name, took)) in request.stages.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        json_key(out, name);
        json_number(out, micros(took));
    }
    out.push_str("}}");
}

pub fn request_pretty(out: &mut String, request: &RequestLine<'_>, colour: bool) {
    let paint = Painter { colour };
    pretty_start(out, request.time);
    let code = match request.status {
        ..300 => "32",
        300..400 => "36",
        400..500 => "33",
        500.. => "31",
    };
    paint.push(out, code, format_args!("{}", request.status));
    push_fmt(
        out,
        format_args!(
            " {:<7} {:>9} ",
            TerminalEscaped(request.method),
            HumanDuration(request.duration)
        ),
    );
    escape(out, request.path);
    pretty_pair(out, paint, "bytes", itoa::Buffer::new().format(request.bytes));
    pretty_pair(out, paint, "caller", request.caller);
    pretty_pair(out, paint, "peer", &request.peer.to_string());
    if let Some(client) = request.client() {
        pretty_pair(out, paint, "client", &client.to_string());
    }
    pretty_pair(out, paint, "id", request.request_id);
    if let Some(problem) = request.problem {
        pretty_pair(out, paint, "problem", problem);
    }
    if let Some(cause) = request.cause {
        pretty_pair(out, paint, "cause", cause);
    }
    if request.is_cut {
        pretty_pair(out, paint, "cut", "true");
    }
    for (name, took) in request.stages.iter() {
        pretty_pair(out, paint, name, &HumanDuration(took).to_string());
    }
}

fn json_start(out: &mut String, time: Moment, level: Level, message: &str) {
    json_head(out, time, level);
    json_text(out, "message", message);
}

fn json_head(out: &mut String, time: Moment, level: Level) {
    out.push_str("{\"time\":\"");
    out.push_str(str::from_utf8(&time.canonical_text()).unwrap_or_default());
    out.push_str("\",\"level\":\"");
    out.push_str(level.as_str());
    out.push('"');
}

fn json_text(out: &mut String, key: &str, value: &str) {
    out.push(',');
    json_key(out, key);
    out.push('"');
    json_escape(out, value);
    out.push('"');
}

fn json_escape(out: &mut String, value: &str) {
    let (kept, was_cut) = truncate(value);
    // Most values have no character to escape.
    let (plain, rest) = kept.split_at(plain_length(kept));
    out.push_str(plain);
    for c in rest.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if is_dangerous(c) => push_fmt(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    if was_cut {
        out.push('…');
    }
}

/// How many bytes from the start are printable ASCII that JSON does not escape.
fn plain_length(text: &str) -> usize {
    count_before(text.as_bytes(), |byte| {
        !(b' '..=b'~').contains(&byte) | (byte == b'"') | (byte == b'\\')
    })
}

fn json_key(out: &mut String, key: &str) {
    out.push('"');
    out.push_str(key);
    out.push_str("\":");
}

fn json_peer(out: &mut String, peer: SocketAddr) {
    match peer {
        SocketAddr::V4(peer) => {
            for (number, octet) in peer.ip().octets().into_iter().enumerate() {
                if number > 0 {
                    out.push('.');
                }
                out.push_str(itoa::Buffer::new().format(octet));
            }
            out.push(':');
            out.push_str(itoa::Buffer::new().format(peer.port()));
        }
        SocketAddr::V6(peer) => push_fmt(out, format_args!("{peer}")),
    }
}

fn json_number(out: &mut String, value: u64) {
    out.push_str(itoa::Buffer::new().format(value));
}

/// The time of day is enough for a person who is watching.
fn pretty_start(out: &mut String, time: Moment) {
    let stamp = time.to_string();
    out.push_str(stamp.get(11..23).unwrap_or(&stamp));
    out.push(' ');
}

fn pretty_pair(out: &mut String, paint: Painter, key: &str, value: &str) {
    out.push(' ');
    paint.push(out, "2", format_args!("{key}="));
    let plain = !value.is_empty() && !value.contains([' ', '"', '=']);
    if plain {
        escape(out, value);
    } else {
        out.push('"');
        escape(out, &value.replace('"', "\\\""));
        out.push('"');
    }
}

#[derive(Clone, Copy)]
struct Painter {
    colour: bool,
}

impl Painter {
    fn push(self, out: &mut String, code: &str, text: impl Display) {
        if self.colour {
            push_fmt(out, format_args!("\x1b[{code}m{text}\x1b[0m"));
        } else {
            push_fmt(out, format_args!("{text}"));
        }
    }
}

/// `812 µs`, `3.4 ms`, `1.20 s`.
struct HumanDuration(std::time::Duration);

impl Display for HumanDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micros = micros(self.0);
        let text = match micros {
            ..1_000 => format!("{micros}µs"),
            1_000..1_000_000 => format!("{}.{}ms", micros / 1_000, micros / 100 % 10),
            1_000_000.. => format!("{}.{:02}s", micros / 1_000_000, micros / 10_000 % 100),
        };
        f.pad(&text)
    }
}

/// Text from outside, for a terminal.
struct TerminalEscaped<'a>(&'a str);

impl Display for TerminalEscaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::with_capacity(self.0.len());
        escape(&mut text, self.0);
        f.pad(&text)
    }
}

fn escape(out: &mut String, value: &str) {
    let (kept, was_cut) = truncate(value);
    for c in kept.chars() {
        if is_dangerous(c) {
            push_fmt(out, format_args!("\\u{{{:x}}}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    if was_cut {
        out.push('…');
    }
}

fn is_dangerous(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn truncate(value: &str) -> (&str, bool) {
    if value.len() <= VALUE_BYTES_MAX {
        return (value, false);
    }
    let end = value.floor_char_boundary(VALUE_BYTES_MAX);
    (value.get(..end).unwrap_or_default(), true)
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn push_fmt(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(arguments);
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
                let mut out = String::new();
                request_json(&mut out, request);
                let _: serde_json::Value = serde_json::from_str(&out).unwrap();
                out
            },
            &expect![[r#"
                {"time":"2026-11-15T02:28:14.123456Z","level":"info","message":"request","request_id":"01jcq0000000000000000000ab","status":200,"method":"GET","path":"/customers","caller":"open","peer":"127.0.0.1:5000","bytes":312,"duration_us":1234,"stages_us":{}}
                {"time":"2026-11-15T02:28:14.123456Z","level":"error","message":"request","request_id":"01jcq0000000000000000000ab","status":500,"method":"GET","path":"/a\u000d\nb\u001b[2J\u202e\u009b\"\\","caller":"open","peer":"127.0.0.1:5000","client":"192.0.2.7","bytes":312,"duration_us":1234,"problem":"internal","cause":"disk says \"no\"","stages_us":{}}"#]],
        );
    }

    #[test]
    fn request_log_line_in_pretty_format_escapes_control_characters() {
        check_requests(
            |request| {
                let mut out = String::new();
                request_pretty(&mut out, request, false);
                out
            },
            &expect![[r#"
                02:28:14.123 200 GET         1.2ms /customers bytes=312 caller=open peer=127.0.0.1:5000 id=01jcq0000000000000000000ab
                02:28:14.123 500 GET         1.2ms /a\u{d}\u{a}b\u{1b}[2J\u{202e}\u{9b}"\ bytes=312 caller=open peer=127.0.0.1:5000 client=192.0.2.7 id=01jcq0000000000000000000ab problem=internal cause="disk says \"no\"""#]],
        );
    }

    #[test]
    fn event_log_line_in_every_format_has_all_pairs() {
        let show = |style| {
            let mut out = String::new();
            let time = Moment::parse("2026-11-15T02:28:14Z").unwrap();
            let pairs: &[(&str, &dyn Display)] =
                &[("address", &"127.0.0.1:1"), ("why", &"two words")];
            event(
                &mut out,
                style,
                &LogEvent { time, level: Level::Warning, message: "odd", pairs },
            );
            out
        };
        expect![[r#"{"time":"2026-11-15T02:28:14.000000Z","level":"warning","message":"odd","address":"127.0.0.1:1","why":"two words"}"#]].assert_eq(&show(LogStyle::Json));
        expect![[r#"02:28:14.000 warn  odd address=127.0.0.1:1 why="two words""#]]
            .assert_eq(&show(LogStyle::Pretty { colour: false }));
        assert!(show(LogStyle::Pretty { colour: true }).contains("\x1b[33mwarn \x1b[0m"));
    }

    #[test]
    fn log_value_too_long_is_truncated_at_a_char_boundary() {
        let mut out = String::new();
        escape(&mut out, &"ü".repeat(5000));
        assert_eq!(out.chars().count(), VALUE_BYTES_MAX / 2 + 1);
        assert!(out.ends_with('…'));
    }

    proptest::proptest! {
        #[test]
        fn log_line_any_text_stays_on_one_line(text in "\\PC*|[\\x00-\\x{9f}]*") {
            let mut json = String::new();
            json_start(&mut json, Moment::from_micros(0).unwrap(), Level::Info, &text);
            json.push('}');
            let back: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(back["message"].as_str(), Some(text.as_str()));
            let mut pretty = String::new();
            escape(&mut pretty, &text);
            assert!(!json.chars().chain(pretty.chars()).any(|c| c.is_control()));
        }
    }
}
