//! The Basic scheme (RFC 7617): a name and a password in base64.
//!
//! It parses the credentials and verifies nothing. It is strict about base64, since every tested client
//! conforms, and lenient about the character encoding, since not all clients send UTF-8.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::credential_text;

/// The length in base64. Longer credentials are refused; truncation could make two passwords equal.
const CREDENTIALS_BYTES_MAX: usize = 8192;

/// The name and the password that a client sent. Both in NFC.
#[derive(Clone, PartialEq, Eq)]
pub struct BasicCredentials {
    pub name: String,
    pub password: String,
}

impl fmt::Debug for BasicCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BasicCredentials").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Parses the part of the header after `Basic`.
pub fn read(credentials: &[u8]) -> Option<BasicCredentials> {
    if credentials.len() > CREDENTIALS_BYTES_MAX {
        return None;
    }
    let bytes = STANDARD.decode(credentials).ok()?;
    // RFC 7617 §2: a name has no colon, so the first one ends it.
    let text = credential_text::decode_utf8_or_latin1(Cow::Owned(bytes));
    let (name, password) = text.split_once(':')?;
    if name.chars().chain(password.chars()).any(char::is_control) {
        return None;
    }
    let composed = |text: &str| credential_text::to_nfc(text).into_owned();
    Some(BasicCredentials { name: composed(name), password: composed(password) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair(name: &str, password: &str) -> Option<BasicCredentials> {
        Some(BasicCredentials { name: name.to_owned(), password: password.to_owned() })
    }

    #[test]
    fn basic_rfc_7617_examples_are_parsed() {
        assert_eq!(read(b"QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), pair("Aladdin", "open sesame"));
        assert_eq!(read(b"dGVzdDoxMjPCow=="), pair("test", "123£"));
    }

    #[test]
    fn basic_credentials_of_real_clients_are_parsed() {
        let check = |bytes: &[u8], expected: Option<BasicCredentials>| {
            assert_eq!(read(STANDARD.encode(bytes).as_bytes()), expected, "{bytes:?}");
        };
        check(b"ann:a:b:c", pair("ann", "a:b:c"));
        check(b":secret", pair("", "secret"));
        check(b"ann:", pair("ann", ""));
        check("Jäsøn:日本".as_bytes(), pair("Jäsøn", "日本"));
        check(b"J\xe4s\xf8n:123\xa3", pair("Jäsøn", "123£"));
        check("a\u{308}:o\u{308}".as_bytes(), pair("ä", "ö"));
        check(b"ann", None);
        check(b"", None);
        check(b"an\0n:secret", None);
        check(b"ann:sec\nret", None);
        check(b"ann:secret\x7f", None);
        check("ann:\u{85}".as_bytes(), None);
    }

    #[test]
    fn basic_invalid_base64_is_refused() {
        for text in
            ["QWxhZGRpbjpvcGVuIHNlc2FtZQ", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=", "YTpi YTpi", "YTpi\n"]
        {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        // Non-zero padding bits would give one pair several spellings.
        assert_eq!(read(b"YTo="), pair("a", ""));
        assert_eq!(read(b"YTp="), None);
        assert_eq!(read("YTpé".as_bytes()), None);
        // The URL-safe alphabet.
        assert_eq!(read(b"YTo_Pz8_"), None);
        assert_eq!(read(b"YTo/Pz8/"), pair("a", "????"));
    }

    #[test]
    fn basic_too_long_is_refused_and_not_truncated() {
        let long = |count: usize| STANDARD.encode(format!("a:{}", "b".repeat(count)));
        assert_eq!(read(long(6142).as_bytes()), pair("a", &"b".repeat(6142)));
        assert_eq!(read(long(6143).as_bytes()), None);
    }

    #[test]
    fn basic_debug_output_hides_the_password() {
        assert!(!format!("{:?}", read(b"QWxhZGRpbjpvcGVuIHNlc2FtZQ==")).contains("sesame"));
    }

    proptest! {
        #[test]
        fn basic_any_pair_round_trips(name in "[^:\\p{C}]{0,20}", password in "[^\\p{C}]{0,40}") {
            let sent = STANDARD.encode(format!("{name}:{password}"));
            let composed = |text: &str| credential_text::to_nfc(text).into_owned();
            prop_assert_eq!(read(sent.as_bytes()), pair(&composed(&name), &composed(&password)));
        }

        #[test]
        fn basic_any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = read(&bytes);
            let read = read(STANDARD.encode(&bytes).as_bytes());
            let is_pair = bytes.contains(&b':') && !bytes.iter().any(u8::is_ascii_control);
            prop_assert!(read.is_none() || is_pair);
        }
    }
}
