//! The JSON writer: compact, UTF-8, escaping only what must be escaped.
//!
//! `formats` decides the shape of a response. `Value::Json` is text that this module wrote before, so it is
//! copied without being parsed.

use std::io::Write as _;

use super::tree::Json;
use crate::fault::bug;
use crate::value::{Decimal, Id, Moment, MomentText, Value, count_before, truncate_for_message};

/// Writes a text as a JSON string.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some((run, byte, after)) = split_at_escape(rest) {
        out.extend_from_slice(run);
        write_escape(out, byte);
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// A text for a message: quoted, escaped, and truncated if long.
pub fn quote_for_message(text: &str) -> String {
    let mut out = Vec::new();
    write_text(&mut out, &truncate_for_message(text));
    into_text(out)
}

/// The bytes that functions of this module wrote, as a `String`.
#[expect(clippy::expect_used, reason = "they write whole strings and ASCII")]
pub fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("a JSON text is UTF-8")
}

/// A JSON value as its compact text.
pub fn to_text(json: &Json<'_>) -> String {
    let mut out = Vec::new();
    write(&mut out, json);
    into_text(out)
}

/// A value of an item as its JSON text.
pub fn value_to_text(value: &Value) -> String {
    let mut out = Vec::new();
    write_value(&mut out, value);
    into_text(out)
}

/// Writes a value as it was sent: numbers keep their spelling.
pub fn write(out: &mut Vec<u8>, json: &Json<'_>) {
    match json {
        Json::Null => out.extend_from_slice(b"null"),
        Json::Boolean(boolean) => write_boolean(out, *boolean),
        Json::Number(text) => out.extend_from_slice(text.as_bytes()),
        Json::Text(text) => write_text(out, text),
        Json::List(list) => write_list(out, list, write),
        Json::Object(members) => write_object(out, members, write),
    }
}

/// Writes a value with one member or element a line, from this level of indentation on. Lists and objects whose
/// text is not longer than `inline_bytes_max` are on one line.
pub fn write_indented(
    out: &mut Vec<u8>,
    json: &Json<'_>,
    (level, inline_bytes_max): (usize, usize),
) {
    if json.approximate_bytes() <= inline_bytes_max {
        return write(out, json);
    }
    let line = |out: &mut Vec<u8>, level: usize| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', level * 2));
    };
    match json {
        Json::List(elements) if !elements.is_empty() => {
            out.push(b'[');
            for (index, element) in elements.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"" } else { b"," });
                line(out, level + 1);
                write_indented(out, element, (level + 1, inline_bytes_max));
            }
            line(out, level);
            out.push(b']');
        }
        Json::Object(members) if !members.is_empty() => {
            out.push(b'{');
            for (index, (key, member)) in members.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"" } else { b"," });
                line(out, level + 1);
                write_text(out, key);
                out.extend_from_slice(b": ");
                write_indented(out, member, (level + 1, inline_bytes_max));
            }
            line(out, level);
            out.push(b'}');
        }
        Json::Null
        | Json::Boolean(_)
        | Json::Number(_)
        | Json::Text(_)
        | Json::List(_)
        | Json::Object(_) => write(out, json),
    }
}

/// Writes a value of an item. A number that JSON cannot represent is `null`; no field type accepts one.
pub fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Boolean(boolean) => write_boolean(out, *boolean),
        Value::Integer(number) => write_integer(out, *number),
        Value::Number(number) if number.is_finite() => {
            out.extend_from_slice(zmij::Buffer::new().format_finite(*number).as_bytes());
        }
        Value::Number(_) => out.extend_from_slice(b"null"),
        Value::Decimal(decimal) => write_decimal(out, *decimal),
        Value::Text(text) => write_text(out, text),
        Value::Moment(moment) => write_moment(out, *moment),
        // Another program may have stored line breaks, which would end a line of NDJSON or an event. In JSON they are
        // white space.
        Value::Json(json) if json.bytes().any(|byte| byte < b' ') => {
            out.extend(json.bytes().map(|byte| byte.max(b' ')));
        }
        Value::Json(json) => out.extend_from_slice(json.as_bytes()),
        Value::List(list) => write_list(out, list, write_value),
        Value::Object(members) => write_object(out, members, write_value),
        Value::ClearText(_) => bug("a secret in clear text is never written"),
    }
}

fn write_boolean(out: &mut Vec<u8>, boolean: bool) {
    out.extend_from_slice(if boolean { b"true" } else { b"false" });
}

pub fn write_moment(out: &mut Vec<u8>, moment: Moment) {
    write_moment_text(out, &moment.canonical_text());
}

/// Writes a formatted timestamp, which needs no escaping.
pub fn write_moment_text(out: &mut Vec<u8>, text: &MomentText) {
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}

fn write_decimal(out: &mut Vec<u8>, decimal: Decimal) {
    // Writing to a Vec cannot fail.
    let _written = write!(out, "\"{decimal}\"");
}

pub fn write_integer(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes an id: a number, or a text that needs no escaping.
pub fn write_id(out: &mut Vec<u8>, id: Id) {
    match id {
        Id::Integer(number) => write_integer(out, number),
        Id::Uuid(_) => {
            out.push(b'"');
            id.with_text(|text| out.extend_from_slice(text.as_bytes()));
            out.push(b'"');
        }
    }
}

pub fn write_list<T>(
    out: &mut Vec<u8>,
    list: impl IntoIterator<Item = T>,
    mut write_one: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (index, one) in list.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_one(out, one);
    }
    out.push(b']');
}

/// Writes the members of an object one by one. The names must need no escaping.
#[derive(Debug)]
pub struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> ObjectWriter<'a> {
    pub fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_first: true }
    }

    /// Begins a member; the caller writes its value.
    #[inline]
    pub fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    pub fn text(&mut self, name: &str, text: &str) {
        write_text(self.name(name), text);
    }

    pub fn number(&mut self, name: &str, number: impl itoa::Integer) {
        write_integer(self.name(name), number);
    }

    /// A value that is JSON already.
    pub fn json(&mut self, name: &str, json: &str) {
        self.name(name).extend_from_slice(json.as_bytes());
    }

    pub fn object(&mut self, name: &str) -> ObjectWriter<'_> {
        ObjectWriter::open(self.name(name))
    }

    pub fn list<T>(
        &mut self,
        name: &str,
        list: impl IntoIterator<Item = T>,
        write_one: impl FnMut(&mut Vec<u8>, T),
    ) {
        write_list(self.name(name), list, write_one);
    }

    pub fn close(self) {
        self.out.push(b'}');
    }
}

fn write_object<K: AsRef<str>, T>(
    out: &mut Vec<u8>,
    members: &[(K, T)],
    write_one: fn(&mut Vec<u8>, &T),
) {
    out.push(b'{');
    for (index, (key, one)) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(out, key.as_ref());
        out.push(b':');
        write_one(out, one);
    }
    out.push(b'}');
}

/// The bytes before the first one that must be escaped, that byte, and the rest.
fn split_at_escape(bytes: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    // RFC 8259 §7: the quotation mark, the reverse solidus and U+0000 to U+001F.
    let is_escaped = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
    let at = count_before(bytes, is_escaped);
    let (run, rest) = bytes.split_at_checked(at)?;
    let (byte, after) = rest.split_first()?;
    Some((run, *byte, after))
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0c => b'f',
        b'\r' => b'r',
        _ => {
            let _written = write!(out, "\\u{byte:04x}");
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::value::{Decimal, Moment};

    fn check(value: &Value, expected: &Expect) {
        let mut out = Vec::new();
        write_value(&mut out, value);
        expected.assert_eq(&String::from_utf8(out).unwrap());
    }

    #[test]
    fn json_writer_value_is_canonical() {
        let moment = Moment::parse("2026-11-15T02:28:14Z").unwrap();
        let object = Value::Object(vec![
            ("null".into(), Value::Null),
            ("yes".into(), Value::Boolean(true)),
            ("no".into(), Value::Boolean(false)),
            ("integer".into(), Value::Integer(-9_007_199_254_740_991)),
            ("decimal".into(), Value::Decimal(Decimal { units: -5, scale: 2 })),
            ("text".into(), Value::text("Ann")),
            ("moment".into(), Value::Moment(moment)),
            ("json".into(), Value::Json("{\"a\":[1.50]}".into())),
            (
                "list".into(),
                Value::List(vec![Value::Integer(1), Value::List(vec![]), Value::Object(vec![])]),
            ),
            ("a \"key\"".into(), Value::Null),
        ]);
        check(
            &object,
            &expect![[
                r#"{"null":null,"yes":true,"no":false,"integer":-9007199254740991,"decimal":"-0.05","text":"Ann","moment":"2026-11-15T02:28:14.000000Z","json":{"a":[1.50]},"list":[1,[],{}],"a \"key\"":null}"#
            ]],
        );
    }

    #[test]
    fn json_writer_number_is_short_and_valid_json() {
        let numbers = [
            0.0,
            -0.0,
            1.0,
            -17.0,
            0.1,
            0.1 + 0.2,
            1e15,
            1e16,
            1e23,
            1e300,
            5e-324,
            1e-7,
            f64::MAX,
        ];
        let mut list: Vec<_> = numbers.into_iter().map(Value::Number).collect();
        list.extend([f64::NAN, f64::INFINITY].map(Value::Number));
        check(
            &Value::List(list),
            &expect![
                "[0.0,-0.0,1.0,-17.0,0.1,0.30000000000000004,1000000000000000.0,1e+16,1e+23,1e+300,5e-324,1e-7,1.7976931348623157e+308,null,null]"
            ],
        );
    }

    #[test]
    fn json_writer_text_escapes_only_what_must_be() {
        let every: String =
            ('\0'..='\u{22}').chain(['/', '\\', '\u{7f}', 'é', '\u{2028}', '😀']).collect();
        check(&Value::text(""), &expect![[r#""""#]]);
        check(
            &Value::Text(every.into()),
            &expect![[
                r#""\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f !\"/\\é 😀""#
            ]],
        );
    }
}
