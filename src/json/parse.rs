//! The JSON parser: one value from bytes, or the position of the first error.
//!
//! Stricter than RFC 8259: it refuses duplicate keys and lone surrogates (RFC 7493), and too deep nesting.
//! Noncharacters such as U+FFFF are accepted, as in other parsers. Keys are compared after unescaping, so
//! `{"a":1,"\u0061":2}` is refused.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use super::number::NumberParts;
use super::tree::Json;
use super::write::quote_for_message;

/// The position and the reason of a syntax error. `line` and `column` count from 1, the column in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    pub offset: usize,
    pub line: usize,
    pub column: usize,
    pub message: String,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for JsonError {}

/// Up to this many keys are compared one by one; more are kept in a hash set.
const KEYS_SCANNED_MAX: usize = 16;

/// Parses `bytes` as exactly one value. `depth_max` limits the nesting of lists and objects, the outermost
/// being 1, and with it the recursion.
pub fn parse(bytes: &[u8], depth_max: usize) -> Result<Json<'_>, JsonError> {
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(invalid) => {
            let valid =
                bytes.get(..invalid.valid_up_to()).and_then(|valid| str::from_utf8(valid).ok());
            let message = "expected UTF-8, got a byte that does not belong there";
            return Err(JsonError::at_end_of(valid.unwrap_or_default(), message.to_owned()));
        }
    };
    // RFC 8259 §8.1: a parser may refuse a byte order mark.
    if text.starts_with('\u{feff}') {
        return Err(JsonError::at_end_of(
            "",
            "expected no byte order mark before the value".to_owned(),
        ));
    }
    let mut parser = JsonParser { text, position: 0, depth_max };
    parser.skip_space();
    let json = parser.parse_value(0)?;
    parser.skip_space();
    if parser.position < text.len() {
        Err(parser.expected("nothing after the value"))
    } else {
        Ok(json)
    }
}

/// An upper bound of the number of values in this text, which may be several values or none.
pub fn count_values(text: &[u8]) -> usize {
    let (mut values, mut is_text, mut is_escaped) = (1, false, false);
    // The last byte outside of texts and white space: a list or an object that is empty has no first value.
    let mut last = b' ';
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => values += 1,
            b']' | b'}' if !is_text && matches!(last, b'[' | b'{') => values -= 1,
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            last = *byte;
        }
    }
    values
}

impl JsonError {
    /// `before` is the text up to the error.
    fn at_end_of(before: &str, message: String) -> Self {
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        Self { offset: before.len(), line, column, message }
    }
}

struct JsonParser<'a> {
    text: &'a str,
    /// A byte offset, always at a character boundary.
    position: usize,
    depth_max: usize,
}

impl<'a> JsonParser<'a> {
    /// Parses a value, without leading space. `depth` is the number of enclosing lists and objects.
    fn parse_value(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        match self.peek() {
            Some(b'"') => self.parse_string().map(Json::Text),
            Some(b'{') => self.parse_object(depth + 1),
            Some(b'[') => self.parse_list(depth + 1),
            Some(b'-' | b'0'..=b'9') => self.parse_number(),
            _ => {
                let literals = [
                    ("null", Json::Null),
                    ("true", Json::Boolean(true)),
                    ("false", Json::Boolean(false)),
                ];
                let found = literals.into_iter().find(|(word, _)| self.rest().starts_with(word));
                let (word, json) = found.ok_or_else(|| self.expected("a value"))?;
                self.position += word.len();
                Ok(json)
            }
        }
    }

    fn parse_object(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        self.enter_nesting(depth)?;
        let mut members: Vec<(Cow<'a, str>, Json<'a>)> = Vec::new();
        let mut seen = HashSet::new();
        if self.skip_byte(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.expected(if members.is_empty() {
                    "a key in quotes or }"
                } else {
                    "a key in quotes"
                }));
            }
            let start = self.position;
            let key = self.parse_string()?;
            if is_duplicate(&key, &members, &mut seen) {
                return Err(self.error(
                    start,
                    format!("expected each key once, got {} again", quote_for_message(&key)),
                ));
            }
            self.skip_space();
            if !self.skip_byte(b':') {
                return Err(self.expected("a colon"));
            }
            members.push((key, self.parse_value(depth)?));
            self.skip_space();
            if self.skip_byte(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.skip_byte(b',') {
                return Err(self.expected("a comma or }"));
            }
        }
    }

    fn parse_list(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        self.enter_nesting(depth)?;
        let mut list = Vec::new();
        if self.skip_byte(b']') {
            return Ok(Json::List(list));
        }
        loop {
            list.push(self.parse_value(depth)?);
            self.skip_space();
            if self.skip_byte(b']') {
                return Ok(Json::List(list));
            }
            if !self.skip_byte(b',') {
                return Err(self.expected("a comma or ]"));
            }
        }
    }

    /// Skips the opening bracket of a list or an object at `depth`.
    fn enter_nesting(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth > self.depth_max {
            let message = format!(
                "expected at most {} levels of lists and objects, got one more",
                self.depth_max
            );
            return Err(self.error(self.position, message));
        }
        self.position += 1;
        self.skip_space();
        Ok(())
    }

    fn parse_number(&mut self) -> Result<Json<'a>, JsonError> {
        let rest = self.rest();
        let length = match NumberParts::read(rest) {
            Ok(pieces) => pieces.length,
            Err(stop) => {
                self.position += stop.offset;
                return Err(self.expected(stop.expected));
            }
        };
        self.position += length;
        Ok(Json::Number(rest.get(..length).unwrap_or_default()))
    }

    /// Parses a string from its opening quote; borrows it if nothing is escaped.
    fn parse_string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.position += 1;
        let mut unescaped: Option<String> = None;
        loop {
            let run = self.literal_run();
            match self.peek() {
                Some(b'"') => {
                    self.position += 1;
                    return Ok(match unescaped {
                        None => Cow::Borrowed(run),
                        Some(text) => Cow::Owned(text + run),
                    });
                }
                Some(b'\\') => {
                    let text = unescaped.get_or_insert_default();
                    text.push_str(run);
                    text.push(self.parse_escape()?);
                }
                // RFC 8259 §7: control characters must be escaped.
                Some(_) => {
                    return Err(self.expected("an escape such as \\n for a control character"));
                }
                None => return Err(self.expected("a closing quote")),
            }
        }
    }

    /// The literal characters up to a quote, a backslash or a control character.
    fn literal_run(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .bytes()
            .position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\')
            .unwrap_or(rest.len());
        let run = rest.get(..end).unwrap_or_default();
        self.position += end;
        run
    }

    /// Parses an escape from its backslash.
    fn parse_escape(&mut self) -> Result<char, JsonError> {
        let start = self.position;
        self.position += 1;
        let character = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.parse_unicode_escape(start),
            _ => return Err(self.expected("one of \" \\ / b f n r t u after the backslash")),
        };
        self.position += 1;
        Ok(character)
    }

    /// Parses `u` and four digits, and a second escape if the first is a high surrogate. `start` is the
    /// backslash.
    fn parse_unicode_escape(&mut self, start: usize) -> Result<char, JsonError> {
        let first = self.parse_hex()?;
        let code = match first {
            0xd800..=0xdbff if self.rest().starts_with("\\u") => {
                self.position += 1;
                let second = self.parse_hex()?;
                // Wraps to a large number if `second` is not a low surrogate.
                let low = second.wrapping_sub(0xdc00);
                if low < 0x400 { 0x10000 + ((first - 0xd800) << 10) + low } else { first }
            }
            code => code,
        };
        match char::from_u32(code) {
            Some(character) => Ok(character),
            // RFC 7493 §2.1: no lone surrogates.
            None => Err(self.error(
                start,
                format!("expected a high and a low surrogate together, got \\u{first:04x} alone"),
            )),
        }
    }

    /// Parses `u` and four hex digits.
    fn parse_hex(&mut self) -> Result<u32, JsonError> {
        self.position += 1;
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.expected("four hex digits after \\u"))?;
            self.position += 1;
        }
        Ok(code)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        // RFC 8259 §2: these four characters only.
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.position += 1;
        }
    }

    /// Skips `byte` and the space after it, if it is next.
    fn skip_byte(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        if there {
            self.position += 1;
            self.skip_space();
        }
        there
    }

    fn expected(&self, what: &str) -> JsonError {
        let got = match self.rest().chars().next() {
            None => "the end".to_owned(),
            Some(character) if character.is_control() => format!("U+{:04X}", u32::from(character)),
            Some(character) => quote_for_message(character.encode_utf8(&mut [0; 4])),
        };
        self.error(self.position, format!("expected {what}, got {got}"))
    }

    fn error(&self, at: usize, message: String) -> JsonError {
        JsonError::at_end_of(self.text.get(..at).unwrap_or_default(), message)
    }
}

/// Whether `key` is among the members; `seen` is their hash set once there are many.
fn is_duplicate<'a>(
    key: &str,
    members: &[(Cow<'a, str>, Json<'a>)],
    seen: &mut HashSet<Cow<'a, str>>,
) -> bool {
    if members.len() <= KEYS_SCANNED_MAX {
        return members.iter().any(|(other, _)| other == key);
    }
    seen.extend(members.iter().skip(seen.len()).map(|(key, _)| key.clone()));
    seen.contains(key)
}
