//! The syntax that HTTP headers share: tokens, quoted strings and lists (RFC 9110 §5.6).
//!
//! It works on bytes, since a header may have any. The caller decides whether a malformed part spoils its
//! element or the whole header.

use std::borrow::Cow;

use crate::value::count_before;

/// Whether a byte is part of a token (RFC 9110 §5.6.2).
pub fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// A token at the start, which is not empty, and the bytes after it.
pub fn split_token(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().take_while(|byte| is_token_byte(**byte)).count();
    bytes.split_at_checked(end).filter(|(token, _)| !token.is_empty())
}

/// Why a quoted string cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MalformedQuote {
    Unclosed,
    ControlCharacter,
}

/// The content of a quoted string, unescaped, and the bytes after the closing quote. `inside` begins after the
/// opening one. A backslash escapes the next byte (RFC 9110 §5.6.4).
pub fn split_quoted(inside: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), MalformedQuote> {
    let is_special = |byte: u8| (byte == b'"') | (byte == b'\\') | is_control(byte);
    let plain = count_before(inside, is_special);
    let (plain, mut rest) = inside.split_at_checked(plain).ok_or(MalformedQuote::Unclosed)?;
    if let Some((b'"', after)) = rest.split_first() {
        return Ok((Cow::Borrowed(plain), after));
    }
    let mut content = plain.to_vec();
    loop {
        let (byte, after) = match rest {
            [b'"', after @ ..] => return Ok((Cow::Owned(content), after)),
            [] | [b'\\'] => return Err(MalformedQuote::Unclosed),
            [b'\\', byte, after @ ..] | [byte, after @ ..] => (*byte, after),
        };
        if is_control(byte) {
            return Err(MalformedQuote::ControlCharacter);
        }
        content.push(byte);
        rest = after;
    }
}

fn is_control(byte: u8) -> bool {
    (byte < b' ') & (byte != b'\t') | (byte == 0x7f)
}

/// The parts between separators outside quoted strings, without spaces around them and without empty ones
/// (RFC 9110 §5.6.1).
pub fn split_unquoted(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut quotes = QuoteState::default();
    let parts = text.split(move |byte| quotes.step(*byte) && *byte == separator);
    parts.map(<[u8]>::trim_ascii).filter(|part| !part.is_empty())
}

/// Whether every quoted string is closed.
pub fn has_balanced_quotes(text: &[u8]) -> bool {
    let mut quotes = QuoteState::default();
    for byte in text {
        quotes.step(*byte);
    }
    !quotes.is_open
}

/// Whether the current byte is inside a quoted string.
#[derive(Debug, Default)]
struct QuoteState {
    is_open: bool,
    is_escaped: bool,
}

impl QuoteState {
    /// Steps over a byte. Returns whether it can be a separator: not a quote, and outside quoted strings.
    fn step(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'"' => self.is_open = !self.is_open,
            b'\\' => self.is_escaped = self.is_open,
            _ => return !self.is_open,
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_ends_at_the_first_other_byte() {
        let tokens: Vec<u8> = (0..=255).filter(|byte| is_token_byte(*byte)).collect();
        let expected =
            b"!#$%&'*+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz|~";
        assert_eq!(tokens, expected);
        assert_eq!(split_token(b"a-1=x"), Some((&b"a-1"[..], &b"=x"[..])));
        assert_eq!(split_token(b"=x"), None);
    }

    #[test]
    fn quoted_string_is_unescaped_up_to_its_closing_quote() {
        let split = |text: &'static str| split_quoted(text.as_bytes());
        let fine = |content: &'static str, rest: &'static str| {
            Ok((Cow::Borrowed(content.as_bytes()), rest.as_bytes()))
        };
        assert_eq!(split("a b\" c"), fine("a b", " c"));
        assert_eq!(split("\""), fine("", ""));
        assert_eq!(split(r#"a\"b\\c", d"#), fine(r#"a"b\c"#, ", d"));
        for unclosed in ["", "a", "a\\", "a\\\""] {
            assert_eq!(split(unclosed), Err(MalformedQuote::Unclosed), "{unclosed}");
        }
        for control in ["a\n\"", "a\\\0\"", "\x7f\""] {
            assert_eq!(split(control), Err(MalformedQuote::ControlCharacter), "{control:?}");
        }
        assert_eq!(split("a\tb\""), fine("a\tb", ""));
    }

    #[test]
    fn list_is_split_outside_quotes() {
        let parts: Vec<&[u8]> = split_unquoted(br#" a ,, "b,\",c" , d\,e, "f,"#, b',').collect();
        assert_eq!(parts, [&b"a"[..], br#""b,\",c""#, br"d\", b"e", br#""f,"#]);
        assert!(has_balanced_quotes(br#"a "b\"" c"#));
        assert!(!has_balanced_quotes(br#"a "b\" c"#));
    }
}
