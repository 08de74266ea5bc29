//! JSON Merge Patch (RFC 7396) and JSON Patch (RFC 6902).
//!
//! Knows nothing of items: callers decide what may be changed and validate the result. What may surprise: the
//! work is limited, not only the size. A short patch can copy a document again and again, or shift a long
//! list to and fro.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use super::{Json, same_number};

/// Maximum operations of one patch.
const OPERATIONS_MAX: usize = 1_000;
/// Maximum nesting depth of the result; a scalar has depth 1.
const DEPTH_MAX: usize = 32;
/// Maximum list elements that a patch may shift.
const MOVED_MAX: usize = 1_000_000;

/// Maximum bytes of documents that the operations of a patch may scan in total.
const LOOKED_BYTES_MAX: usize = 256 << 20;

/// One operation of a JSON Patch.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation<'a> {
    path: Pointer,
    does: Does<'a>,
}

#[derive(Debug, Clone, PartialEq)]
enum Does<'a> {
    Add(Json<'a>),
    Remove,
    Replace(Json<'a>),
    Move(Pointer),
    Copy(Pointer),
    Test(Json<'a>),
}

impl Does<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Add(value) | Self::Replace(value) | Self::Test(value) => value.bytes(),
            Self::Remove | Self::Move(_) | Self::Copy(_) => 0,
        }
    }
}

/// A parsed JSON pointer (RFC 6901).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pointer(Vec<String>);

/// Why a patch was not applied, and the index of the operation that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    pub at: usize,
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// There is no value at this pointer.
    Missing(String),
    /// The value at this pointer differs.
    Different(String),
    /// A value cannot be moved into itself.
    Inside(String),
    /// The result, or an intermediate document, is too large.
    TooLarge,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}: ", self.at)?;
        match &self.why {
            Why::Missing(pointer) => write!(f, "there is nothing at \"{pointer}\""),
            Why::Different(pointer) => write!(f, "the value at \"{pointer}\" is another one"),
            Why::Inside(pointer) => write!(f, "\"{pointer}\" cannot be moved into itself"),
            Why::TooLarge => f.write_str("it makes too much of a small patch"),
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
    let mut places: HashMap<Cow<'a, str>, usize> = names.collect();
    let mut gone = HashSet::new();
    for (name, value) in patch {
        let at = places.get(&name).copied();
        match (at.and_then(|at| members.get_mut(at).zip(Some(at))), value) {
            (Some((_, at)), Json::Null) => {
                gone.insert(at);
            }
            (None, Json::Null) => {}
            (Some(((_, member), _)), value) => merge(member, value),
            (None, value) => {
                // Removes the nulls inside it.
                let mut fresh = Json::Null;
                merge(&mut fresh, value);
                places.insert(name.clone(), members.len());
                members.push((name, fresh));
            }
        }
    }
    if !gone.is_empty() {
        let mut at = 0..;
        members.retain(|_| at.next().is_none_or(|at| !gone.contains(&at)));
    }
}

/// Parses the operations of a JSON Patch, or says what is wrong.
pub fn operations(json: Json<'_>) -> Result<Vec<Operation<'_>>, String> {
    let Json::List(list) = json else {
        return Err(format!("expected a list of operations, got {}", json.kind()));
    };
    if list.len() > OPERATIONS_MAX {
        return Err(format!("at most {OPERATIONS_MAX} operations, got {}", list.len()));
    }
    let read = |(at, one)| operation(one).map_err(|why| format!("operation {at}: {why}"));
    list.into_iter().enumerate().map(read).collect()
}

fn operation(json: Json<'_>) -> Result<Operation<'_>, String> {
    let Json::Object(mut members) = json else {
        return Err(format!("expected an object, got {}", json.kind()));
    };
    // RFC 6902 §4: unknown members of an operation are ignored.
    let mut take = |name: &str| {
        let at = members.iter().position(|(known, _)| known == name)?;
        Some(members.swap_remove(at).1)
    };
    let name = text(take("op"), "op")?;
    let path = pointer(take("path"), "path")?;
    let mut value = || take("value").ok_or_else(|| "expected a value".to_owned());
    let does = match &*name {
        "add" => Does::Add(value()?),
        "replace" => Does::Replace(value()?),
        "test" => Does::Test(value()?),
        "remove" => Does::Remove,
        "move" => Does::Move(pointer(take("from"), "from")?),
        "copy" => Does::Copy(pointer(take("from"), "from")?),
        _ => return Err("expected op to be add, remove, replace, move, copy or test".to_owned()),
    };
    Ok(Operation { path, does })
}

fn text<'a>(json: Option<Json<'a>>, name: &str) -> Result<Cow<'a, str>, String> {
    match json {
        Some(Json::Text(text)) => Ok(text),
        Some(other) => Err(format!("expected {name} as a string, got {}", other.kind())),
        None => Err(format!("expected {name}")),
    }
}

fn pointer(json: Option<Json<'_>>, name: &str) -> Result<Pointer, String> {
    let text = text(json, name)?;
    Pointer::parse(&text).ok_or_else(|| format!("expected {name} to be a JSON pointer"))
}

impl Pointer {
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

    fn missing(&self) -> Why {
        Why::Missing(self.to_string())
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}

/// Applies all operations, or says which one fails. `bytes_max` limits the growth.
pub fn apply<'a>(
    mut document: Json<'a>,
    operations: &[Operation<'a>],
    bytes_max: usize,
) -> Result<Json<'a>, Failed> {
    // Each operation may have to scan the whole document.
    let added = operations.iter().map(|operation| operation.does.bytes()).sum::<usize>();
    if operations.len().saturating_mul(document.bytes() + added) > LOOKED_BYTES_MAX {
        return Err(Failed { at: 0, why: Why::TooLarge });
    }
    let mut room = Room { bytes: bytes_max, moved: MOVED_MAX };
    for (at, operation) in operations.iter().enumerate() {
        step(&mut document, operation, &mut room).map_err(|why| Failed { at, why })?;
    }
    Ok(document)
}

/// The remaining budget of work.
struct Room {
    bytes: usize,
    moved: usize,
}

impl Room {
    fn take(left: &mut usize, used: usize) -> Result<(), Why> {
        *left = left.checked_sub(used).ok_or(Why::TooLarge)?;
        Ok(())
    }
}

fn step<'a>(
    document: &mut Json<'a>,
    Operation { path, does }: &Operation<'a>,
    room: &mut Room,
) -> Result<(), Why> {
    match does {
        Does::Add(value) => add(document, path, value.clone(), room),
        Does::Remove => remove(document, path, room).map(|_| ()),
        Does::Replace(value) => {
            let found = find_mut(document, &path.0).ok_or_else(|| path.missing())?;
            fits(path, value)?;
            *found = value.clone();
            Ok(())
        }
        Does::Move(from) if from == path => {
            find(document, &from.0).map(|_| ()).ok_or_else(|| from.missing())
        }
        Does::Move(from) => {
            // RFC 6902 §4.4: a value must not be moved into itself.
            if path.0.starts_with(&from.0) {
                return Err(Why::Inside(from.to_string()));
            }
            let value = remove(document, from, room)?;
            add(document, path, value, room)
        }
        Does::Copy(from) => {
            let value = find(document, &from.0).ok_or_else(|| from.missing())?;
            Room::take(&mut room.bytes, value.bytes())?;
            let value = value.clone();
            add(document, path, value, room)
        }
        Does::Test(value) => {
            let found = find(document, &path.0).ok_or_else(|| path.missing())?;
            if is_same(found, value) { Ok(()) } else { Err(Why::Different(path.to_string())) }
        }
    }
}

fn find<'d, 'a>(document: &'d Json<'a>, tokens: &[String]) -> Option<&'d Json<'a>> {
    tokens.iter().try_fold(document, |json, token| match json {
        Json::Object(members) => {
            members.iter().find(|(name, _)| name == token).map(|(_, value)| value)
        }
        Json::List(list) => list.get(index(token)?),
        Json::Null | Json::Boolean(_) | Json::Number(_) | Json::Text(_) => None,
    })
}

fn find_mut<'d, 'a>(document: &'d mut Json<'a>, tokens: &[String]) -> Option<&'d mut Json<'a>> {
    tokens.iter().try_fold(document, |json, token| match json {
        Json::Object(members) => {
            members.iter_mut().find(|(name, _)| name == token).map(|(_, value)| value)
        }
        Json::List(list) => list.get_mut(index(token)?),
        Json::Null | Json::Boolean(_) | Json::Number(_) | Json::Text(_) => None,
    })
}

fn add<'a>(
    document: &mut Json<'a>,
    path: &Pointer,
    value: Json<'a>,
    room: &mut Room,
) -> Result<(), Why> {
    fits(path, &value)?;
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
            let at = if last == "-" { Some(list.len()) } else { index(last) };
            let at = at.filter(|at| *at <= list.len()).ok_or_else(|| path.missing())?;
            Room::take(&mut room.moved, list.len() - at)?;
            list.insert(at, value);
            Ok(())
        }
        _ => Err(path.missing()),
    }
}

fn remove<'a>(document: &mut Json<'a>, path: &Pointer, room: &mut Room) -> Result<Json<'a>, Why> {
    let Some((last, above)) = path.0.split_last() else {
        return Ok(std::mem::replace(document, Json::Null));
    };
    match find_mut(document, above) {
        Some(Json::Object(members)) => {
            let at = members.iter().position(|(name, _)| name == last);
            let at = at.ok_or_else(|| path.missing())?;
            Room::take(&mut room.moved, members.len() - at)?;
            Ok(members.remove(at).1)
        }
        Some(Json::List(list)) => {
            let at = index(last).filter(|at| *at < list.len()).ok_or_else(|| path.missing())?;
            Room::take(&mut room.moved, list.len() - at)?;
            Ok(list.remove(at))
        }
        _ => Err(path.missing()),
    }
}

/// Limits the depth: repeated copies could nest a value deeper and deeper.
fn fits(path: &Pointer, value: &Json<'_>) -> Result<(), Why> {
    if path.0.len() + value.depth() > DEPTH_MAX { Err(Why::TooLarge) } else { Ok(()) }
}

/// RFC 6901 §4: digits without leading zeros.
fn index(token: &str) -> Option<usize> {
    let is_plain = token == "0" || !token.starts_with('0');
    let is_number = is_plain && !token.is_empty() && token.bytes().all(|b| b.is_ascii_digit());
    token.parse().ok().filter(|_| is_number)
}

/// RFC 6902 §4.6: numbers are compared by value, objects regardless of order.
fn is_same(one: &Json<'_>, other: &Json<'_>) -> bool {
    match (one, other) {
        (Json::Number(one), Json::Number(other)) => same_number(one, other),
        (Json::List(one), Json::List(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Json::Object(one), Json::Object(other)) => {
            let other_of: HashMap<&str, &Json<'_>> =
                other.iter().map(|(name, value)| (&**name, value)).collect();
            one.len() == other.len()
                && one.iter().all(|(name, value)| {
                    other_of.get(&**name).is_some_and(|other| is_same(value, other))
                })
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests;
