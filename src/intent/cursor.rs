//! Cursors for keyset pagination: the position where the next page of a list begins.
//!
//! Opaque to clients, and valid at every replica and after a restart: the server stores nothing. A hash of
//! the list is part of the cursor, so that a cursor of another list is refused. A cursor proves nothing and
//! hides nothing; it is a position, not a permission. It holds the id of the last item of a page and that
//! item's value for each sort key, so that it stays valid when the item is deleted.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::list::{Aspect, Key, start};
use crate::model::{Class, Resource};
use crate::value::{Decimal, Id, IdKind, Moment, Value};

/// The position directly after an item.
#[derive(Debug, Clone, PartialEq)]
pub struct After {
    pub id: Id,
    /// One for each sort key.
    pub values: Vec<Value>,
}

/// A hash of the list that a cursor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound([u8; 8]);

const UUID: u8 = 1;
const INTEGER: u8 = 2;
/// Type tags of the values.
const ABSENT: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const WHOLE: u8 = 3;
const REAL: u8 = 4;
const TEXT: u8 = 5;
/// More than a URL can hold.
const TEXT_MAX: usize = 16 << 10;

/// Hashes the list that a cursor belongs to: its path, and the parts of its query that select and sort items.
pub fn bind(path: &str, query: Option<String>) -> Bound {
    let mut hash = Sha256::new_with_prefix(path);
    if let Some(query) = query {
        hash.update("?");
        hash.update(query);
    }
    let mut bound = [0; 8];
    for (to, from) in bound.iter_mut().zip(hash.finalize()) {
        *to = from;
    }
    Bound(bound)
}

pub fn seal(after: &After, bound: Bound) -> String {
    let mut bytes = bound.0.to_vec();
    match after.id {
        Id::Uuid(uuid) => {
            bytes.push(UUID);
            bytes.extend_from_slice(uuid.as_bytes());
        }
        Id::Integer(number) => {
            bytes.push(INTEGER);
            bytes.extend_from_slice(&number.to_be_bytes());
        }
    }
    for value in &after.values {
        push(&mut bytes, value);
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

fn push(bytes: &mut Vec<u8>, value: &Value) {
    let mut whole = |number: i64| {
        bytes.push(WHOLE);
        bytes.extend_from_slice(&number.to_be_bytes());
    };
    match value {
        Value::Integer(number) => whole(*number),
        Value::Decimal(decimal) => whole(decimal.units),
        Value::Moment(moment) => whole(moment.micros()),
        Value::Boolean(boolean) => bytes.push(if *boolean { TRUE } else { FALSE }),
        Value::Number(number) => {
            bytes.push(REAL);
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        Value::Text(text) => {
            bytes.push(TEXT);
            // A sort value has at most one KiB.
            bytes.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        Value::Null | Value::Json(_) | Value::List(_) | Value::Object(_) | Value::Clear(_) => {
            bytes.push(ABSENT);
        }
    }
}

/// `None` when the cursor belongs to another list, or was not made by this server.
pub fn open(text: &str, bound: Bound, resource: &Resource, sort: &[Key]) -> Option<After> {
    if text.len() > TEXT_MAX {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    if *head != bound.0 {
        return None;
    }
    let (id, mut rest) = match (rest.split_first()?, resource.id) {
        ((&UUID, rest), IdKind::Uuid) => {
            let (id, rest) = rest.split_first_chunk::<16>()?;
            (Id::Uuid(Uuid::from_bytes(*id)), rest)
        }
        ((&INTEGER, rest), IdKind::Integer) => {
            let (id, rest) = rest.split_first_chunk::<8>()?;
            (Id::Integer(i64::from_be_bytes(*id)), rest)
        }
        _ => return None,
    };
    let mut values = Vec::with_capacity(sort.len());
    for key in sort {
        values.push(take(&mut rest, resource, &key.aspect)?);
    }
    rest.is_empty().then_some(After { id, values })
}

/// Reads the next value, if it has the attribute's type.
fn take(bytes: &mut &[u8], resource: &Resource, aspect: &Aspect) -> Option<Value> {
    let (mark, rest) = bytes.split_first()?;
    *bytes = rest;
    let field = aspect.field(resource);
    let class = field.map_or(Class::Moment, |field| field.class());
    let mut eight = || {
        let (number, rest) = bytes.split_first_chunk::<8>()?;
        *bytes = rest;
        Some(*number)
    };
    Some(match (*mark, class) {
        (ABSENT, _) if aspect.may_be_absent(resource) => Value::Null,
        (FALSE, Class::Boolean) => Value::Boolean(false),
        (TRUE, Class::Boolean) => Value::Boolean(true),
        (WHOLE, Class::Integer) => Value::Integer(i64::from_be_bytes(eight()?)),
        (WHOLE, Class::Decimal) => {
            let scale = field?.rules.scale;
            Value::Decimal(Decimal { units: i64::from_be_bytes(eight()?), scale })
        }
        (WHOLE, Class::Moment) => Value::Moment(Moment::from_micros(i64::from_be_bytes(eight()?))?),
        (REAL, Class::Real) => {
            let number = f64::from_be_bytes(eight()?);
            number.is_finite().then_some(Value::Number(number))?
        }
        (TEXT, Class::Text) => {
            let (length, rest) = bytes.split_first_chunk::<2>()?;
            let (text, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
            *bytes = rest;
            let text = str::from_utf8(text).ok().filter(|text| !text.contains('\0'))?;
            let is_id = field.is_some_and(|field| field.rules.to.is_some());
            let is_whole = aspect.is_short(resource) || start(text) == text;
            let fits = is_whole && (!is_id || IdKind::Uuid.parse(text).is_some());
            fits.then(|| Value::text(text))?
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
