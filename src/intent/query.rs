//! Takes a query string apart, and spells texts so that they fit into one.
//!
//! Knows no parameter by name: what may be asked is decided by who reads the pairs. The one surprising
//! thing: nothing is repaired. A `%` that is no escape, or bytes that are no UTF-8, are refused.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::percent_decode_str;

use crate::model::types::broken_escape;
use crate::value::cut;

/// Most parameters a query may have.
pub const PARAMETERS_MAX: usize = 100;

/// A name and its value.
pub type Parameter<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Why a query cannot be read. The names are as they were sent, cut to a decent length.
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

/// The parameters in their order, decoded. A name without `=` has an empty value; between two `&`
/// there may be nothing.
pub fn split(query: &str) -> Result<Vec<Parameter<'_>>, BadQuery> {
    let mut pairs = Vec::new();
    for piece in query.split('&').filter(|piece| !piece.is_empty()) {
        if pairs.len() == PARAMETERS_MAX {
            return Err(BadQuery::TooMany);
        }
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        pairs.push((decode(name, name)?, decode(name, value)?));
    }
    Ok(pairs)
}

/// `name` is for the message.
fn decode<'a>(name: &str, raw: &'a str) -> Result<Cow<'a, str>, BadQuery> {
    if !raw.contains(['%', '+']) {
        return Ok(Cow::Borrowed(raw));
    }
    if let Some(at) = broken_escape(raw) {
        let got = raw.get(at..).unwrap_or_default().chars().take(3).collect();
        return Err(BadQuery::Escape { name: cut(name).into_owned(), got });
    }
    // A plus is a space only where it was sent as such, so before `%2B` becomes one.
    let spaced = raw.replace('+', " ");
    match percent_decode_str(&spaced).decode_utf8() {
        Ok(decoded) => Ok(Cow::Owned(decoded.into_owned())),
        Err(_) => Err(BadQuery::NotUtf8 { name: cut(name).into_owned() }),
    }
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

    /// Spells a name or a value so that `split` gives it back.
    fn encode_component(text: &str) -> String {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    }

    #[test]
    fn pairs_come_decoded_and_in_order() {
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
    fn what_cannot_be_decoded_is_named() {
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
    fn a_plain_value_is_borrowed() {
        let pairs = split("a=b").unwrap();
        assert!(matches!(pairs[0], (Cow::Borrowed("a"), Cow::Borrowed("b"))));
    }

    #[test]
    fn at_most_a_hundred_parameters_count_but_nothing_between_them_does() {
        assert_eq!(split(&"&a=1&".repeat(100)).unwrap().len(), 100);
        assert_eq!(split(&"a=1&".repeat(101)), Err(BadQuery::TooMany));
        assert_eq!(BadQuery::TooMany.to_string(), "expected at most 100 parameters, got more");
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_back(name: String, value: String) {
            let query = format!("{}={}", encode_component(&name), encode_component(&value));
            prop_assert!(query.is_ascii());
            prop_assert_eq!(split(&query), Ok(vec![(name.into(), value.into())]));
        }

        #[test]
        fn any_query_is_split_or_refused(query in r"[%+&=a-f0-9é]{0,60}|\PC*") {
            if let Ok(pairs) = split(&query) {
                let spell = |(name, value): &Parameter<'_>| encode_component(name) + "=" + &encode_component(value);
                let again = pairs.iter().map(spell).collect::<Vec<_>>().join("&");
                prop_assert_eq!(split(&again), Ok(pairs));
            }
        }
    }
}
