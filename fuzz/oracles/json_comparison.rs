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
