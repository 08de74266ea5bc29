//! Fuzz target: the `Authorization` header, as a differential test against a second parser.
//!
//! The second parser is written from the grammar of RFC 9110 §11 with regular expressions; it shares no code
//! with the product. Further properties: no panic; a parsed value can be written and parsed again; no value
//! that a header cannot contain is ever returned.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use regex::bytes::Regex;

use crate::auth::parameters::{self, AuthParameters};
use crate::auth::{basic, digest};
use crate::model::{Algorithm, AuthScheme};

pub fn authorization(data: &[u8]) {
    // A header cannot contain these bytes.
    if HeaderValue::from_bytes(data).is_err() {
        return;
    }
    match parameters::split_scheme(data) {
        None => {}
        Some((AuthScheme::Basic, rest)) => check_basic(rest),
        Some((AuthScheme::Digest, rest)) => {
            check_parameters(rest);
            check_digest(rest);
        }
    }
}

fn check_basic(credentials: &[u8]) {
    let Some(pair) = basic::read(credentials) else { return };
    assert!(!pair.name.contains(':'), "{pair:?}");
    assert!(!pair.name.chars().chain(pair.password.chars()).any(char::is_control), "{pair:?}");
    let again = STANDARD.encode(format!("{}:{}", pair.name, pair.password));
    // A normalized text may be a little longer than the original.
    if again.len() <= credentials.len() {
        assert_eq!(basic::read(again.as_bytes()), Some(pair));
    }
}

const TOKEN: &str = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+";
const QUOTED: &str = r#""(?:[\t\x20-!#-\[\]-~\x80-\xff]|\\[\t\x20-~\x80-\xff])*""#;

fn compile_pattern(pattern: &str) -> Regex {
    let pattern = pattern.replace("TOKEN", TOKEN).replace("QUOTED", QUOTED);
    // A pattern that does not compile is a bug in the target.
    Regex::new(&format!("(?s-u){pattern}")).unwrap_or_else(|error| unreachable!("{error}"))
}

static LIST: LazyLock<Regex> = LazyLock::new(|| {
    compile_pattern(
        r"^[ \t,]*(?:PAIR(?:[ \t]*,[ \t,]*PAIR)*[ \t,]*)?$"
            .replace("PAIR", r"TOKEN[ \t]*=[ \t]*(?:TOKEN|QUOTED)")
            .as_str(),
    )
});
static PAIR: LazyLock<Regex> = LazyLock::new(|| {
    compile_pattern(r"(?<name>TOKEN)[ \t]*=[ \t]*(?:(?<token>TOKEN)|(?<quoted>QUOTED))")
});
static ESCAPED: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"\\(.)"));

fn check_parameters(list: &[u8]) {
    let mut theirs = Vec::<(Vec<u8>, Vec<u8>, bool)>::new();
    let mut is_read = list.len() <= 16 * 1024 && LIST.is_match(list);
    for found in PAIR.captures_iter(list).take(if is_read { 25 } else { 0 }) {
        let name = found["name"].to_ascii_lowercase();
        let (value, is_quoted) = match (found.name("token"), found.name("quoted")) {
            (None, Some(quoted)) => {
                let inner = quoted.as_bytes().get(1..quoted.len() - 1).unwrap_or_default();
                (ESCAPED.replace_all(inner, &b"$1"[..]).into_owned(), true)
            }
            (token, _) => (token.map_or(&b""[..], |token| token.as_bytes()).to_vec(), false),
        };
        is_read &= !theirs.iter().any(|(seen, _, _)| *seen == name) && theirs.len() < 24;
        theirs.push((name, value, is_quoted));
    }
    let Ok(mut ours) = AuthParameters::read(list) else {
        assert!(!is_read, "{:?}", String::from_utf8_lossy(list));
        return;
    };
    assert!(is_read, "{:?}", String::from_utf8_lossy(list));
    for (name, value, is_quoted) in theirs {
        let name = String::from_utf8_lossy(&name);
        assert_eq!(ours.is_quoted(&name), Some(is_quoted), "{name}");
        assert_eq!(ours.take_value(&name).as_deref(), Some(&*value), "{name}");
    }
}

fn check_digest(list: &[u8]) {
    let Ok(proof) = digest::read(list) else { return };
    let secret = digest::ha1(Algorithm::Md5, "name", "realm", "password");
    assert!(!proof.verify(&secret, "GET", None), "{proof:?}");
    if let Some(information) =
        proof.with_ha1(&secret).and_then(|keyed| keyed.authentication_info(None, Some("next")))
    {
        assert!(HeaderValue::from_str(&information).is_ok(), "{information:?}");
        let information = information.as_bytes();
        let mut sent =
            AuthParameters::read(information).unwrap_or_else(|error| unreachable!("{error:?}"));
        assert_eq!(sent.take_quoted("nextnonce"), Ok(Some(b"next"[..].into())));
    }
    assert!(proof.count().is_some() || !proof.covers_body());
}
