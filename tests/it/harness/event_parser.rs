//! A parser of `text/event-stream`, by the rules of the WHATWG HTML standard (§9.2.6).
//!
//! It accepts the bytes in pieces of any size, as they arrive.
//! A block that is not terminated by an empty line changes nothing: neither is its event dispatched, nor
//! does its id become the last event id.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    /// The last event id at its dispatch: its own, or that of an earlier block.
    pub id: String,
    /// `message` without an `event` field.
    pub kind: String,
    pub data: String,
}

impl StreamEvent {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The id as a number of the change log.
    pub fn sequence(&self) -> i64 {
        self.id.parse().unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

#[derive(Debug, Default)]
pub struct EventParser {
    /// The line that is not terminated yet.
    line: Vec<u8>,
    /// A byte order mark can only precede the first line.
    has_read_line: bool,
    /// A LF that follows a CR belongs to the same line end.
    ends_with_cr: bool,
    event_type: String,
    data: String,
    last_event_id_buffer: String,
    last_event_id: String,
    retry: Option<Duration>,
    comments: Vec<String>,
    /// Dispatched, and not taken yet.
    events: VecDeque<StreamEvent>,
}

impl EventParser {
    /// A parser of a stream that is resumed after an id.
    pub fn resuming(last_event_id: &str) -> Self {
        let id = last_event_id.to_owned();
        Self { last_event_id_buffer: id.clone(), last_event_id: id, ..Self::default() }
    }

    /// Begins a new connection: forgets the block that was not terminated, and what the server set.
    pub fn restart(&mut self) {
        let id = std::mem::take(&mut self.last_event_id);
        let events = std::mem::take(&mut self.events);
        *self = Self { events, ..Self::resuming(&id) };
    }

    pub fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let is_rest_of_line_end = byte == b'\n' && self.ends_with_cr;
            self.ends_with_cr = byte == b'\r';
            match byte {
                b'\n' if is_rest_of_line_end => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    self.process_line(&line);
                }
                _ => self.line.push(byte),
            }
        }
    }

    /// Takes the oldest event that was dispatched.
    pub fn pop(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    /// The value of `Last-Event-ID` in the next request; empty if there is none.
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    pub fn comments(&self) -> &[String] {
        &self.comments
    }

    fn process_line(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line).into_owned();
        let mut text = text.as_str();
        if !std::mem::replace(&mut self.has_read_line, true) {
            text = text.strip_prefix('\u{feff}').unwrap_or(text);
        }
        if text.is_empty() {
            return self.dispatch();
        }
        match text.split_once(':') {
            Some(("", comment)) => self.comments.push(comment.to_owned()),
            Some((field, value)) => {
                self.process_field(field, value.strip_prefix(' ').unwrap_or(value));
            }
            None => self.process_field(text, ""),
        }
    }

    fn process_field(&mut self, field: &str, value: &str) {
        match field {
            "event" => value.clone_into(&mut self.event_type),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.last_event_id_buffer),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis);
            }
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        self.last_event_id.clone_from(&self.last_event_id_buffer);
        let (event_type, mut data) =
            (std::mem::take(&mut self.event_type), std::mem::take(&mut self.data));
        // A block without data moves the last event id and dispatches nothing.
        if data.is_empty() {
            return;
        }
        data.pop();
        let kind = if event_type.is_empty() { "message".to_owned() } else { event_type };
        self.events.push_back(StreamEvent { id: self.last_event_id.clone(), kind, data });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a stream and the last event id at its end, the same for every division into pieces.
    fn parse(text: &str) -> (Vec<[String; 3]>, EventParser) {
        let whole = parse_in_pieces(text, text.len().max(1));
        for length in 1..text.len().min(8) {
            assert_eq!(parse_in_pieces(text, length).0, whole.0, "in pieces of {length}");
        }
        whole
    }

    fn parse_in_pieces(text: &str, length: usize) -> (Vec<[String; 3]>, EventParser) {
        let mut parser = EventParser::default();
        text.as_bytes().chunks(length).for_each(|piece| parser.push(piece));
        let events = std::iter::from_fn(|| parser.pop());
        (events.map(|event| [event.id, event.kind, event.data]).collect(), parser)
    }

    fn events(text: &str) -> Vec<[String; 3]> {
        parse(text).0
    }

    fn event(id: &str, kind: &str, data: &str) -> [String; 3] {
        [id.to_owned(), kind.to_owned(), data.to_owned()]
    }

    #[test]
    fn event_parser_examples_of_the_standard_dispatch_as_described() {
        assert_eq!(
            events("data: YHOO\ndata: +2\ndata: 10\n\n"),
            [event("", "message", "YHOO\n+2\n10")]
        );
        let (found, parser) = parse(
            ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
        );
        assert_eq!(
            found,
            [
                event("1", "message", "first event"),
                event("", "message", "second event"),
                event("", "message", " third event")
            ]
        );
        assert_eq!(parser.comments(), [" test stream"]);
        // The last block is not terminated.
        assert_eq!(
            events("data\n\ndata\ndata\n\ndata:"),
            [event("", "message", ""), event("", "message", "\n")]
        );
        assert_eq!(events("data:test\n\ndata: test\n\n").len(), 2);
    }

    #[test]
    fn event_parser_id_without_data_moves_the_last_event_id_only() {
        let (found, parser) =
            parse("retry: 2000\nid: 7\n\nevent: updated\nid: 8\n\n:\n\ndata: x\n\n");
        assert_eq!(found, [event("8", "message", "x")]);
        assert_eq!(parser.last_event_id(), "8");
        assert_eq!(parser.retry(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn event_parser_truncated_block_moves_nothing() {
        let (found, parser) = parse("id: 1\ndata: a\n\nid: 2\nevent: updated\ndata: b\n");
        assert_eq!(found, [event("1", "message", "a")]);
        assert_eq!(parser.last_event_id(), "1");
    }

    #[test]
    fn event_parser_every_line_end_terminates_a_line() {
        let expected = [event("3", "created", "a\nb"), event("4", "message", "c")];
        for end in ["\n", "\r\n", "\r"] {
            let text = "id: 3\nevent: created\ndata: a\ndata: b\n\nid: 4\ndata: c\n\n";
            assert_eq!(events(&text.replace('\n', end)), expected, "{end:?}");
        }
    }

    #[test]
    fn event_parser_invalid_fields_are_ignored() {
        let (found, parser) = parse(
            "\u{feff}id: 5\u{0}\nretry: 1s\nretry: -1\nretry:\nData: A\nunknown: b\ndata: c\n\n",
        );
        assert_eq!(found, [event("", "message", "c")]);
        assert_eq!(parser.retry(), None);
    }

    #[test]
    fn event_parser_resumed_keeps_the_id_until_a_block_moves_it() {
        let mut parser = EventParser::resuming("41");
        parser.push(b"data: {\"n\":1}\n\nid: 42\ndata: {}\n\n");
        let first = parser.pop().unwrap();
        assert_eq!((first.sequence(), first.json()["n"].as_i64()), (41, Some(1)));
        parser.push(b"id: 43\ndata: {");
        parser.restart();
        parser.push(b"data: {}\n\n");
        assert_eq!(parser.pop().unwrap().sequence(), 42);
        assert_eq!(parser.pop().unwrap().sequence(), 42);
        assert_eq!(parser.pop(), None);
    }
}
