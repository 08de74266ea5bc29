//! Decoding of names and passwords: UTF-8 if they are valid UTF-8, else Latin-1; normalized to NFC.
//!
//! No byte is lost or replaced: every byte is a character in Latin-1. Plain ASCII, by far the most common
//! case, is scanned once and not copied.

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// RFC 7617 §2: challenges ask for UTF-8; some clients send Latin-1 all the same.
pub fn decode_utf8_or_latin1(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    let latin = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
    match bytes {
        Cow::Borrowed(bytes) => match str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(latin(bytes)),
        },
        Cow::Owned(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Cow::Owned(text),
            Err(error) => Cow::Owned(latin(error.as_bytes())),
        },
    }
}

/// RFC 7616 §4, RFC 7617 §2.1: names and passwords are compared and hashed in NFC.
pub fn to_nfc<'t>(text: impl Into<Cow<'t, str>>) -> Cow<'t, str> {
    let text = text.into();
    if text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes {
        return text;
    }
    Cow::Owned(text.nfc().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_bytes_are_utf8_or_latin_1() {
        let check = |bytes: &'static [u8], expected: &str| {
            assert_eq!(decode_utf8_or_latin1(bytes.into()), expected);
            assert_eq!(decode_utf8_or_latin1(bytes.to_vec().into()), expected);
        };
        check(b"Ann", "Ann");
        check("Jäsøn 日本".as_bytes(), "Jäsøn 日本");
        check(b"J\xe4s\xf8n", "Jäsøn");
        check(b"\xff\xfe\x80", "ÿþ\u{80}");
    }

    #[test]
    fn credential_text_is_normalized_to_nfc() {
        let check = |text: &'static str, expected: &str| assert_eq!(to_nfc(text), expected);
        check("Ann", "Ann");
        check("a\u{308}", "ä");
        check("ä", "ä");
        check("\u{212b}", "Å");
        // A look-alike is another name: compatibility is not equality.
        check("ﬁ", "ﬁ");
    }
}
