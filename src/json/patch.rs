//! JSON Merge Patch (RFC 7396) and JSON Patch (RFC 6902).
//!
//! Knows nothing of items: callers decide what may be changed and validate the result. The work is limited,
//! not only the size. A short patch can copy a document again and again, or shift a long list to and fro.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use super::number::is_same_number;
use super::tree::Json;

/// Maximum operations of one patch.
pub const OPERATIONS_MAX: usize = 1_000;
/// Maximum nesting depth of the result; a scalar has depth 1.
const DEPTH_MAX: usize = 32;
/// Maximum list elements that a patch may shift.
const SHIFTED_ELEMENTS_MAX: usize = 1_000_000;

/// Maximum bytes of documents that the operations of a patch may scan in total.
const SCANNED_BYTES_MAX: usize = 256 << 20;

/// One operation of a JSON Patch.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchOperation<'a> {
    path: JsonPointer,
    kind: PatchOperationKind<'a>,
}

#[derive(Debug, Clone, PartialEq)]
enum PatchOperationKind<'a> {
    Add(Json<'a>),
    Remove,
    Replace(Json<'a>),
    Move(JsonPointer),
    Copy(JsonPointer),
    Test(Json<'a>),
}

impl PatchOperationKind<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Add(value) | Self::Replace(value) | Self::Test(value) => {
                value.approximate_bytes()
            }
            Self::Remove | Self::Move(_) | Self::Copy(_) => 0,
        }
    }
}

/// A parsed JSON pointer (RFC 6901).
#[derive(Debug, Clone, PartialEq, Eq)]
struct JsonPointer(Vec<String>);

/// Why a patch was not applied, and the index of the operation that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchError {
    pub operation_index: usize,
    pub reason: PatchFailure,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchFailure {
    /// There is no value at this pointer.
    Missing(String),
    /// The value at this pointer differs.
    Different(String),
    /// A value cannot be moved into itself.
    IntoItself(String),
    /// The result, or an intermediate document, is too large.
    TooLarge,
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}: ", self.operation_index)?;
        match &self.reason {
            PatchFailure::Missing(pointer) => write!(f, "there is nothing at \"{pointer}\""),
            PatchFailure::Different(pointer) => {
                write!(f, "the value at \"{pointer}\" is another one")
            }
            PatchFailure::IntoItself(pointer) => {
                write!(f, "\"{pointer}\" cannot be moved into itself")
            }
            PatchFailure::TooLarge => f.write_str("it makes too much of a small patch"),
        }
    }
}

/// RFC 7396 §2: null removes a member, objects are merged, everything else is replaced.
pub fn merge<'a>(target: &mut Json<'a>, patch: Json<'a>) {
    let Json::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !matches!(target, Json::Object(_)) {
        *target = Json::Object(Vec::new());
    }
    let Json::Object(members) = target else { return };
    // Looked up by name in a map: both may have tens of thousands of members.
    let names = members.iter().enumerate().map(|(at, (name, _))| (name.clone(), at));
    let mut index_by_name: HashMap<Cow<'a, str>, usize> = names.collect();
    let mut removed = HashSet::new();
    for (name, value) in patch {
        let at = index_by_name.get(&name).copied();
        match (at.and_then(|at| members.get_mut(at).zip(Some(at))), value) {
            (Some((_, at)), Json::Null) => {
                removed.insert(at);
            }
            (None, Json::Null) => {}
            (Some(((_, member), _)), value) => merge(member, value),
            (None, value) => {
                // Removes the nulls inside it.
                let mut fresh = Json::Null;
                merge(&mut fresh, value);
                index_by_name.insert(name.clone(), members.len());
                members.push((name, fresh));
            }
        }
    }
    if !removed.is_empty() {
        let mut at = 0..;
        members.retain(|_| at.next().is_none_or(|at| !removed.contains(&at)));
    }
}

/// Parses the operations of a JSON Patch, or says what is wrong.
pub fn parse_operations(json: Json<'_>) -> Result<Vec<PatchOperation<'_>>, String> {
    let Json::List(list) = json else {
        return Err(format!("expected a list of operations, got {}", json.type_name()));
    };
    if list.len() > OPERATIONS_MAX {
        return Err(format!("at most {OPERATIONS_MAX} operations, got {}", list.len()));
    }
    let read = |(at, one)| parse_operation(one).map_err(|why| format!("operation {at}: {why}"));
    list.into_iter().enumerate().map(read).collect()
}

fn parse_operation(json: Json<'_>) -> Result<PatchOperation<'_>, String> {
    let Json::Object(mut members) = json else {
        return Err(format!("expected an object, got {}", json.type_name()));
    };
    // RFC 6902 §4: unknown members of an operation are ignored.
    let mut take = |name: &str| {
        let at = members.iter().position(|(known, _)| known == name)?;
        Some(members.swap_remove(at).1)
    };
    let name = read_text(take("op"), "op")?;
    let path = read_pointer(take("path"), "path")?;
    let mut value = || take("value").ok_or_else(|| "expected a value".to_owned());
    let kind = match &*name {
        "add" => PatchOperationKind::Add(value()?),
        "replace" => PatchOperationKind::Replace(value()?),
        "test" => PatchOperationKind::Test(value()?),
        "remove" => PatchOperationKind::Remove,
        "move" => PatchOperationKind::Move(read_pointer(take("from"), "from")?),
        "copy" => PatchOperationKind::Copy(read_pointer(take("from"), "from")?),
        _ => return Err("expected op to be add, remove, replace, move, copy or test".to_owned()),
    };
    Ok(PatchOperation { path, kind })
}

fn read_text<'a>(json: Option<Json<'a>>, name: &str) -> Result<Cow<'a, str>, String> {
    match json {
        Some(Json::Text(text)) => Ok(text),
        Some(other) => Err(format!("expected {name} as a string, got {}", other.type_name())),
        None => Err(format!("expected {name}")),
    }
}

fn read_pointer(json: Option<Json<'_>>, name: &str) -> Result<JsonPointer, String> {
    let text = read_text(json, name)?;
    JsonPointer::parse(&text).ok_or_else(|| format!("expected {name} to be a JSON pointer"))
}

impl JsonPointer {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        let tokens = text.strip_prefix('/')?.split('/').map(|token| {
            // RFC 6901 §3: a tilde is followed by 0 or 1.
            let is_escaped = token.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
            is_escaped.then(|| token.replace("~1", "/").replace("~0", "~"))
        });
        tokens.collect::<Option<_>>().map(Self)
    }

    fn missing_error(&self) -> PatchFailure {
        PatchFailure::Missing(self.to_string())
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}

/// Applies all operations, or says which one fails. `bytes_max` limits the growth.
pub fn apply<'a>(
    mut document: Json<'a>,
    operations: &[PatchOperation<'a>],
    bytes_max: usize,
) -> Result<Json<'a>, PatchError> {
    // Each operation may have to scan the whole document.
    let added = operations.iter().map(|operation| operation.kind.bytes()).sum::<usize>();
    if operations.len().saturating_mul(document.approximate_bytes() + added) > SCANNED_BYTES_MAX {
        return Err(PatchError { operation_index: 0, reason: PatchFailure::TooLarge });
    }
    let mut budget = WorkBudget { copied_bytes: bytes_max, shifted_elements: SHIFTED_ELEMENTS_MAX };
    for (at, operation) in operations.iter().enumerate() {
        apply_operation(&mut document, operation, &mut budget)
            .map_err(|why| PatchError { operation_index: at, reason: why })?;
    }
    Ok(document)
}

/// The remaining budget of work.
struct WorkBudget {
    copied_bytes: usize,
    shifted_elements: usize,
}

impl WorkBudget {
    fn spend(left: &mut usize, used: usize) -> Result<(), PatchFailure> {
        *left = left.checked_sub(used).ok_or(PatchFailure::TooLarge)?;
        Ok(())
    }
}

fn apply_operation<'a>(
    document: &mut Json<'a>,
    PatchOperation { path, kind }: &PatchOperation<'a>,
    budget: &mut WorkBudget,
) -> Result<(), PatchFailure> {
    match kind {
        PatchOperationKind::Add(value) => add(document, path, value.clone(), budget),
        PatchOperationKind::Remove => remove(document, path, budget).map(|_| ()),
        PatchOperationKind::Replace(value) => {
            let found = find_mut(document, &path.0).ok_or_else(|| path.missing_error())?;
            check_depth(path, value)?;
            *found = value.clone();
            Ok(())
        }
        PatchOperationKind::Move(from) if from == path => {
            find(document, &from.0).map(|_| ()).ok_or_else(|| from.missing_error())
        }
        PatchOperationKind::Move(from) => {
            // RFC 6902 §4.4: a value must not be moved into itself.
            if path.0.starts_with(&from.0) {
                return Err(PatchFailure::IntoItself(from.to_string()));
            }
            let value = remove(document, from, budget)?;
            add(document, path, value, budget)
        }
        PatchOperationKind::Copy(from) => {
            let value = find(document, &from.0).ok_or_else(|| from.missing_error())?;
            WorkBudget::spend(&mut budget.copied_bytes, value.approximate_bytes())?;
            let value = value.clone();
            add(document, path, value, budget)
        }
        PatchOperationKind::Test(value) => {
            let found = find(document, &path.0).ok_or_else(|| path.missing_error())?;
            if is_equal(found, value) {
                Ok(())
            } else {
                Err(PatchFailure::Different(path.to_string()))
            }
        }
    }
}

fn find<'d, 'a>(document: &'d Json<'a>, tokens: &[String]) -> Option<&'d Json<'a>> {
    tokens.iter().try_fold(document, |json, token| match json {
        Json::Object(members) => {
            members.iter().find(|(name, _)| name == token).map(|(_, value)| value)
        }
        Json::List(list) => list.get(parse_index(token)?),
        Json::Null | Json::Boolean(_) | Json::Number(_) | Json::Text(_) => None,
    })
}

fn find_mut<'d, 'a>(document: &'d mut Json<'a>, tokens: &[String]) -> Option<&'d mut Json<'a>> {
    tokens.iter().try_fold(document, |json, token| match json {
        Json::Object(members) => {
            members.iter_mut().find(|(name, _)| name == token).map(|(_, value)| value)
        }
        Json::List(list) => list.get_mut(parse_index(token)?),
        Json::Null | Json::Boolean(_) | Json::Number(_) | Json::Text(_) => None,
    })
}

fn add<'a>(
    document: &mut Json<'a>,
    path: &JsonPointer,
    value: Json<'a>,
    budget: &mut WorkBudget,
) -> Result<(), PatchFailure> {
    check_depth(path, &value)?;
    let Some((last, above)) = path.0.split_last() else {
        *document = value;
        return Ok(());
    };
    match find_mut(document, above) {
        Some(Json::Object(members)) => {
            match members.iter_mut().find(|(name, _)| name == last) {
                Some((_, member)) => *member = value,
                None => members.push((last.clone().into(), value)),
            }
            Ok(())
        }
        Some(Json::List(list)) => {
            // RFC 6901 §4: `-` is the position after the last element.
            let at = if last == "-" { Some(list.len()) } else { parse_index(last) };
            let at = at.filter(|at| *at <= list.len()).ok_or_else(|| path.missing_error())?;
            WorkBudget::spend(&mut budget.shifted_elements, list.len() - at)?;
            list.insert(at, value);
            Ok(())
        }
        _ => Err(path.missing_error()),
    }
}

fn remove<'a>(
    document: &mut Json<'a>,
    path: &JsonPointer,
    budget: &mut WorkBudget,
) -> Result<Json<'a>, PatchFailure> {
    let Some((last, above)) = path.0.split_last() else {
        return Ok(std::mem::replace(document, Json::Null));
    };
    match find_mut(document, above) {
        Some(Json::Object(members)) => {
            let at = members.iter().position(|(name, _)| name == last);
            let at = at.ok_or_else(|| path.missing_error())?;
            WorkBudget::spend(&mut budget.shifted_elements, members.len() - at)?;
            Ok(members.remove(at).1)
        }
        Some(Json::List(list)) => {
            let at = parse_index(last)
                .filter(|at| *at < list.len())
                .ok_or_else(|| path.missing_error())?;
            WorkBudget::spend(&mut budget.shifted_elements, list.len() - at)?;
            Ok(list.remove(at))
        }
        _ => Err(path.missing_error()),
    }
}

/// Limits the depth: repeated copies could nest a value deeper and deeper.
fn check_depth(path: &JsonPointer, value: &Json<'_>) -> Result<(), PatchFailure> {
    if path.0.len() + value.depth() > DEPTH_MAX { Err(PatchFailure::TooLarge) } else { Ok(()) }
}

/// RFC 6901 §4: digits without leading zeros.
fn parse_index(token: &str) -> Option<usize> {
    let is_plain = token == "0" || !token.starts_with('0');
    let is_number = is_plain && !token.is_empty() && token.bytes().all(|b| b.is_ascii_digit());
    token.parse().ok().filter(|_| is_number)
}

/// RFC 6902 §4.6: numbers are compared by value, objects regardless of order.
fn is_equal(one: &Json<'_>, other: &Json<'_>) -> bool {
    match (one, other) {
        (Json::Number(one), Json::Number(other)) => is_same_number(one, other),
        (Json::List(one), Json::List(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Json::Object(one), Json::Object(other)) => {
            let other_of: HashMap<&str, &Json<'_>> =
                other.iter().map(|(name, value)| (&**name, value)).collect();
            one.len() == other.len()
                && one.iter().all(|(name, value)| {
                    other_of.get(&**name).is_some_and(|other| is_equal(value, other))
                })
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests;
