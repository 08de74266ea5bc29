//! Query strings: splitting and percent-decoding.
//!
//! Knows no parameter by name; its callers decide which ones exist. It repairs nothing. A `%` that is not an
//! escape, and bytes that are not UTF-8, are refused.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::percent_decode_str;

use crate::model::types::invalid_escape_position;
use crate::problem::{self, Problem};
use crate::value::truncate_for_message;

/// Maximum number of parameters in a query.
pub const PARAMETERS_MAX: usize = 100;

/// A name and its value.
pub type QueryParameter<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Why a query cannot be parsed. Names are as they were sent, truncated for the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadQuery {
    TooMany,
    Escape { name: String, got: String },
    NotUtf8 { name: String },
}

impl fmt::Display for BadQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "expected at most {PARAMETERS_MAX} parameters, got more"),
            Self::Escape { name, got } => {
                write!(f, "{name}: expected two hex digits after %, got \"{got}\"")
            }
            Self::NotUtf8 { name } => {
                write!(f, "{name}: expected UTF-8 behind the escapes, got other bytes")
            }
        }
    }
}

impl std::error::Error for BadQuery {}

/// The decoded parameters in their order. A name without `=` has an empty value; empty parts between two `&`
/// are skipped.
pub fn split(query: &str) -> Result<Vec<QueryParameter<'_>>, BadQuery> {
    let mut pairs = Vec::new();
    for piece in query.split('&').filter(|piece| !piece.is_empty()) {
        if pairs.len() == PARAMETERS_MAX {
            return Err(BadQuery::TooMany);
        }
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        pairs.push((decode_component(name, name)?, decode_component(name, value)?));
    }
    Ok(pairs)
}

/// `name` is for the message.
fn decode_component<'a>(name: &str, raw: &'a str) -> Result<Cow<'a, str>, BadQuery> {
    if !raw.contains(['%', '+']) {
        return Ok(Cow::Borrowed(raw));
    }
    if let Some(at) = invalid_escape_position(raw) {
        let got = raw.split_at(at).1.chars().take(3).collect();
        return Err(BadQuery::Escape { name: truncate_for_message(name).into_owned(), got });
    }
    // A plus is decoded to a space before percent-decoding, so that `%2B` stays a plus.
    let spaced = raw.replace('+', " ");
    match percent_decode_str(&spaced).decode_utf8() {
        Ok(decoded) => Ok(Cow::Owned(decoded.into_owned())),
        Err(_) => Err(BadQuery::NotUtf8 { name: truncate_for_message(name).into_owned() }),
    }
}

pub(super) fn split_query(query: Option<&str>) -> Result<Vec<QueryParameter<'_>>, Problem> {
    split(query.unwrap_or("")).map_err(|error| bad_query(error.to_string()))
}

pub(super) fn bad_query(detail: String) -> Problem {
    Problem::new(&problem::BAD_QUERY).detail(detail)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn check(query: &str, expected: &Expect) {
        expected.assert_eq(&match split(query) {
            Ok(pairs) => pairs.iter().map(|(name, value)| format!("{name:?}={value:?} ")).collect(),
            Err(bad) => bad.to_string(),
        });
    }

    /// Encodes a name or a value so that `split` decodes it again.
    fn encode_component(text: &str) -> String {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    }

    #[test]
    fn query_split_decodes_parameters_in_order() {
        check("", &expect![""]);
        check("&&", &expect![""]);
        check(
            "limit=10&sort=-created_at,name",
            &expect![[r#""limit"="10" "sort"="-created_at,name" "#]],
        );
        check("b=2&a=1&b=3", &expect![[r#""b"="2" "a"="1" "b"="3" "#]]);
        check("flag&empty=&=value&=", &expect![[r#""flag"="" "empty"="" ""="value" ""="" "#]]);
        check("q=a=b?c/d", &expect![[r#""q"="a=b?c/d" "#]]);
        check("na%6De:eq=Ann+Lee%20%2B%26%3d", &expect![[r#""name:eq"="Ann Lee +&=" "#]]);
        check("q=%C3%A9%F0%9F%98%80é", &expect![[r#""q"="é😀é" "#]]);
        check("q=%00", &expect![[r#""q"="\0" "#]]);
        check("a;b=1;c", &expect![[r#""a;b"="1;c" "#]]);
    }

    #[test]
    fn query_split_with_invalid_encoding_names_the_parameter() {
        check(
            "name=ok&email=50%",
            &expect![[r#"email: expected two hex digits after %, got "%""#]],
        );
        check("email=%4", &expect![[r#"email: expected two hex digits after %, got "%4""#]]);
        check("email=%zz", &expect![[r#"email: expected two hex digits after %, got "%zz""#]]);
        check("email=%+1", &expect![[r#"email: expected two hex digits after %, got "%+1""#]]);
        check("email=%é", &expect![[r#"email: expected two hex digits after %, got "%é""#]]);
        check("email=%FF", &expect!["email: expected UTF-8 behind the escapes, got other bytes"]);
        check(
            "email=%C3+%A9",
            &expect!["email: expected UTF-8 behind the escapes, got other bytes"],
        );
        check(
            "email=%ED%A0%80",
            &expect!["email: expected UTF-8 behind the escapes, got other bytes"],
        );
        check("e%mail=1", &expect![[r#"e%mail: expected two hex digits after %, got "%ma""#]]);
        check(
            &format!("{}%=1", "x".repeat(1000)),
            &expect![[
                r#"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…: expected two hex digits after %, got "%""#
            ]],
        );
    }

    #[test]
    fn query_split_borrows_values_without_escapes() {
        let pairs = split("a=b").unwrap();
        assert!(matches!(pairs[0], (Cow::Borrowed("a"), Cow::Borrowed("b"))));
    }

    #[test]
    fn query_split_limits_parameters_and_ignores_empty_ones() {
        assert_eq!(split(&"&a=1&".repeat(100)).unwrap().len(), 100);
        assert_eq!(split(&"a=1&".repeat(101)), Err(BadQuery::TooMany));
        assert_eq!(BadQuery::TooMany.to_string(), "expected at most 100 parameters, got more");
    }

    proptest! {
        #[test]
        fn query_split_decodes_what_encode_component_encoded(name: String, value: String) {
            let query = format!("{}={}", encode_component(&name), encode_component(&value));
            prop_assert!(query.is_ascii());
            prop_assert_eq!(split(&query), Ok(vec![(name.into(), value.into())]));
        }

        #[test]
        fn query_split_of_arbitrary_text_never_panics(query in r"[%+&=a-f0-9é]{0,60}|\PC*") {
            if let Ok(pairs) = split(&query) {
                let spell = |(name, value): &QueryParameter<'_>| encode_component(name) + "=" + &encode_component(value);
                let again = pairs.iter().map(spell).collect::<Vec<_>>().join("&");
                prop_assert_eq!(split(&again), Ok(pairs));
            }
        }
    }
}
