//! Another reader of JSON as the judge of ours: for tests and fuzzing alone.

use super::{Json, parse};

/// As deep as a body may be.
const DEPTH_MAX: usize = 32;

/// What we refuse beyond the other reader, in a message of our own.
const STRICTER: [&str; 2] = ["expected each key once", "levels of lists and objects"];

/// Reads the bytes twice; says where the two differ without a known reason.
pub fn compare(bytes: &[u8]) -> Result<(), String> {
    let theirs: Result<serde_json::Value, _> = serde_json::from_slice(bytes);
    match (parse(bytes, DEPTH_MAX), theirs) {
        (Ok(ours), Ok(theirs)) if same(&ours, &theirs) => Ok(()),
        (Ok(ours), Ok(theirs)) => Err(format!("{ours:?} is not {theirs:?}")),
        (Err(ours), Ok(_)) if STRICTER.iter().any(|message| ours.message.contains(message)) => {
            Ok(())
        }
        (Err(ours), Ok(_)) => Err(format!("refused alone: {ours}")),
        // The other reader keeps numbers as doubles and refuses what overflows them.
        (Ok(_), Err(theirs)) if theirs.to_string().contains("out of range") => Ok(()),
        (Ok(ours), Err(theirs)) => Err(format!("{ours:?}: {theirs}")),
        (Err(_), Err(_)) => Ok(()),
    }
}

/// Equal but for the spelling of numbers, which the other side does not keep.
fn same(ours: &Json<'_>, theirs: &serde_json::Value) -> bool {
    use serde_json::Value as Theirs;
    match (ours, theirs) {
        (Json::Null, Theirs::Null) => true,
        (Json::Boolean(a), Theirs::Bool(b)) => a == b,
        (Json::Number(a), Theirs::Number(b)) => a.parse().ok() == b.as_f64(),
        (Json::Text(a), Theirs::String(b)) => a == b,
        (Json::List(a), Theirs::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Json::Object(a), Theirs::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
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
