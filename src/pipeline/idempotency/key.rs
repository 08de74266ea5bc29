//! The `Idempotency-Key` header: the name that a client gives to a request it may retry.
//!
//! Pure; only parses. The key is a structured string (RFC 8941 §3.3.3) or a bare token, since most clients
//! send a plain UUID; both spellings of one text are the same key.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, Method};

use crate::problem::{self, Problem};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The maximum length; a longer key is refused.
const KEY_CHARACTERS_MAX: usize = 255;

/// The idempotency key of a request. Only methods that are not idempotent have one; for others the header is
/// ignored.
pub fn parse_key<'h>(
    method: &Method,
    headers: &'h HeaderMap,
) -> Result<Option<Cow<'h, str>>, Problem> {
    if method != Method::POST && method != Method::PATCH {
        return Ok(None);
    }
    let mut lines = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    let bad = |detail: &str| Problem::new(&problem::BAD_IDEMPOTENCY_KEY).detail(detail);
    if lines.next().is_some() {
        return Err(bad("expected one Idempotency-Key header, got several"));
    }
    let text = line.as_bytes();
    let key = match text.strip_prefix(b"\"") {
        Some(quoted) => parse_quoted(quoted).map(Cow::Owned),
        None => parse_token(text).map(Cow::Borrowed),
    };
    let key = key.ok_or_else(|| {
        bad("expected a text in double quotes, or a word of letters, digits and !#$%&'*+-.^_`|~:/")
    })?;
    match key.len() {
        0 => Err(bad("expected at least one character, got none")),
        1..=KEY_CHARACTERS_MAX => Ok(Some(key)),
        count => {
            Err(bad(&format!("expected at most {KEY_CHARACTERS_MAX} characters, got {count}")))
        }
    }
}

/// Parses the rest of a quoted string (RFC 8941 §4.2.5) after its first quote: a backslash escapes a quote or
/// a backslash, and nothing may follow the last quote.
fn parse_quoted(text: &[u8]) -> Option<String> {
    let mut key = String::with_capacity(text.len());
    let mut bytes = text.iter();
    loop {
        match bytes.next()? {
            b'"' => break,
            b'\\' => key.push(char::from(*bytes.next().filter(|byte| b"\"\\".contains(byte))?)),
            byte @ b' '..=b'~' => key.push(char::from(*byte)),
            _ => return None,
        }
    }
    bytes.next().is_none().then_some(key)
}

/// Parses a token: RFC 9110 §5.6.2, and the characters that RFC 8941 §3.3.4 adds to it.
fn parse_token(text: &[u8]) -> Option<&str> {
    let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(byte);
    str::from_utf8(text).ok().filter(|_| text.iter().all(is_known))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn read(lines: &[&[u8]]) -> Result<Option<String>, String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(line).unwrap());
        }
        match parse_key(&Method::POST, &headers) {
            Ok(key) => Ok(key.map(Cow::into_owned)),
            Err(problem) => Err(problem.parts().detail.clone().unwrap()),
        }
    }

    #[test]
    fn idempotency_key_is_the_same_quoted_and_bare() {
        let same = |line: &[u8], expected: &str| {
            assert_eq!(read(&[line]), Ok(Some(expected.to_owned())), "{line:?}");
        };
        same(b"a", "a");
        same(b"\"a\"", "a");
        same(b"8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324");
        same(b"\"8e03978e-40d5\"", "8e03978e-40d5");
        same(b"\" \"", " ");
        same(br#""a \"b\" \\c""#, r#"a "b" \c"#);
        same(b"*a:b/c", "*a:b/c");
        same("k".repeat(255).as_bytes(), &"k".repeat(255));
        same(format!("\"{}\"", "\\\\".repeat(255)).as_bytes(), &"\\".repeat(255));
        assert_eq!(read(&[]), Ok(None));
    }

    #[test]
    fn idempotency_key_with_invalid_syntax_is_refused() {
        let long = "k".repeat(256);
        let quoted_long = format!("\"{long}\"");
        let form =
            "expected a text in double quotes, or a word of letters, digits and !#$%&'*+-.^_`|~:/";
        let rows: &[(&[u8], &str)] = &[
            (b"", "expected at least one character, got none"),
            (b"\"\"", "expected at least one character, got none"),
            (long.as_bytes(), "expected at most 255 characters, got 256"),
            (quoted_long.as_bytes(), "expected at most 255 characters, got 256"),
            (b"a b", form),
            (b"a,b", form),
            (b"a;b=c", form),
            (b"\"a\";b=c", form),
            (b"\"a\" ", form),
            (b"\"a\", \"b\"", form),
            (b"\"a", form),
            (b"a\"", form),
            (b"\"a\\\"", form),
            (b"\"a\\b\"", form),
            (b"\"\xc3\xa9\"", form),
            (b"\xc3\xa9", form),
            (b"\"a\tb\"", form),
        ];
        for (line, detail) in rows {
            assert_eq!(read(&[line]), Err((*detail).to_owned()), "{line:?}");
        }
        let twice = "expected one Idempotency-Key header, got several";
        assert_eq!(read(&[b"a", b"a"]), Err(twice.to_owned()));
    }

    #[test]
    fn idempotency_key_is_ignored_for_idempotent_methods() {
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static("not a key"));
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS] {
            assert!(matches!(parse_key(&method, &headers), Ok(None)), "{method}");
        }
        assert!(parse_key(&Method::PATCH, &headers).is_err());
    }

    proptest! {
        #[test]
        fn idempotency_key_quoted_and_escaped_round_trips(text in "[ -~]{1,255}") {
            let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assert_eq!(read(&[quoted.as_bytes()]), Ok(Some(text)));
        }

        #[test]
        fn idempotency_key_from_arbitrary_bytes_never_panics(line in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let _ = read(&[value.as_bytes()]);
            }
        }
    }
}
