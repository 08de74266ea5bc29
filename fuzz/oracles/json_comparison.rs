//! Differential check of the JSON parser against serde_json, for tests and fuzzing only.

use crate::json::{Json, parse};

/// The maximum depth of a request body.
const DEPTH_MAX: usize = 32;

/// The error messages for texts that our parser refuses and serde_json accepts.
const STRICTER_MESSAGES: [&str; 2] = ["expected each key once", "levels of lists and objects"];

/// Parses the bytes with both parsers; reports a difference that has no known reason.
pub fn compare(bytes: &[u8]) -> Result<(), String> {
    let theirs: Result<serde_json::Value, _> = serde_json::from_slice(bytes);
    match (parse(bytes, DEPTH_MAX), theirs) {
        (Ok(ours), Ok(theirs)) if is_equal(&ours, &theirs) => Ok(()),
        (Ok(ours), Ok(theirs)) => Err(format!("{ours:?} is not {theirs:?}")),
        (Err(ours), Ok(_))
            if STRICTER_MESSAGES.iter().any(|message| ours.message.contains(message)) =>
        {
            Ok(())
        }
        (Err(ours), Ok(_)) => Err(format!("refused alone: {ours}")),
        // serde_json parses numbers as doubles and refuses those that overflow.
        (Ok(_), Err(theirs)) if theirs.to_string().contains("out of range") => Ok(()),
        (Ok(ours), Err(theirs)) => Err(format!("{ours:?}: {theirs}")),
        (Err(_), Err(_)) => Ok(()),
    }
}

/// Equal except for the spelling of numbers, which serde_json does not keep.
fn is_equal(ours: &Json<'_>, theirs: &serde_json::Value) -> bool {
    use serde_json::Value as Theirs;
    match (ours, theirs) {
        (Json::Null, Theirs::Null) => true,
        (Json::Boolean(a), Theirs::Bool(b)) => a == b,
        (Json::Number(a), Theirs::Number(b)) => a.parse().ok() == b.as_f64(),
        (Json::Text(a), Theirs::String(b)) => a == b,
        (Json::List(a), Theirs::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (Json::Object(a), Theirs::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && is_equal(a, b))
        }
        (
            Json::Null
            | Json::Boolean(_)
            | Json::Number(_)
            | Json::Text(_)
            | Json::List(_)
            | Json::Object(_),
            Theirs::Null
            | Theirs::Bool(_)
            | Theirs::Number(_)
            | Theirs::String(_)
            | Theirs::Array(_)
            | Theirs::Object(_),
        ) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{DEPTH_MAX, parse};
    use crate::json::to_text;

    fn compare(bytes: &[u8]) -> Result<(), TestCaseError> {
        super::compare(bytes).map_err(TestCaseError::fail)
    }

    /// JSON of every kind as text, with space and escapes in unusual places.
    fn any_json() -> impl Strategy<Value = String> {
        let text = prop::collection::vec(
            prop_oneof![
                8 => "[a-c]",
                1 => r#"\\["\\/bfnrt]"#,
                1 => r"\\u[0-9a-fA-D]{4}",
                1 => r"\\ud[89ab][0-9a-f]{2}\\uD[c-f][0-9A-F]{2}",
                1 => r"\\ud[89a-f][0-9a-f]{2}",
                1 => "[é€😀\u{2028}\u{fffd}\u{fdd0}\u{1ffff}]",
            ],
            0..4,
        )
        .prop_map(|parts| format!("\"{}\"", parts.concat()));
        let number = "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?";
        let space = "[ \t\r\n]{0,2}";
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".into()),
            Just("false".into()),
            number,
            text.clone()
        ];
        leaf.prop_recursive(5, 40, 6, move |inner| {
            let spaced = (space, inner, space).prop_map(|(a, json, b)| a + &json + &b);
            let member = (space, text.clone(), space, spaced.clone())
                .prop_map(|(a, key, b, json)| a + &key + &b + ":" + &json);
            prop_oneof![
                prop::collection::vec(spaced, 0..6)
                    .prop_map(|list| format!("[{}]", list.join(","))),
                prop::collection::vec(member, 0..6)
                    .prop_map(|members| format!("{{{}}}", members.join(","))),
            ]
        })
    }

    proptest! {
        #[test]
        fn json_parse_valid_json_agrees_with_serde_json(text in any_json()) {
            compare(text.as_bytes())?;
        }

        #[test]
        fn json_parse_nearly_valid_json_agrees_with_serde_json(
            text in any_json(), place: prop::sample::Index, cut in 0_usize..3, put in prop::collection::vec(any::<u8>(), 0..3),
        ) {
            let mut bytes = text.into_bytes();
            let start = place.index(bytes.len() + 1);
            let end = (start + cut).min(bytes.len());
            bytes.splice(start..end, put);
            compare(&bytes)?;
        }

        #[test]
        fn json_parse_random_tokens_never_panics(tokens in prop::collection::vec(
            prop::sample::select(vec!["{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "d800", "-", "0", "1", ".", "e", "a", "null", "é", "\n", " "]), 0..20,
        )) {
            compare(tokens.concat().as_bytes())?;
        }

        #[test]
        fn json_parse_random_bytes_never_panics(bytes: Vec<u8>) {
            compare(&bytes)?;
        }

        #[test]
        fn json_writer_output_parses_to_the_same_value(text in any_json()) {
            if let Ok(json) = parse(text.as_bytes(), DEPTH_MAX) {
                let again = to_text(&json);
                prop_assert_eq!(parse(again.as_bytes(), DEPTH_MAX), Ok(json));
            }
        }
    }
}
