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

use super::attribute::{Attribute, SortKey, sort_prefix};
use crate::fault::{self, OrBug};
use crate::model::derivation::is_sort_key;
use crate::model::{Resource, StorageClass};
use crate::value::{Decimal, Id, IdKind, Moment, Value};

/// The position directly after an item.
#[derive(Debug, Clone, PartialEq)]
pub struct CursorPosition {
    pub id: Id,
    /// The values of the sort keys, one for each.
    pub values: Vec<Value>,
}

/// A hash of the list that a cursor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListHash([u8; 8]);

const ID_UUID: u8 = 1;
const ID_INTEGER: u8 = 2;
/// Type tags of the values.
const VALUE_NULL: u8 = 0;
const VALUE_FALSE: u8 = 1;
const VALUE_TRUE: u8 = 2;
const VALUE_INTEGER: u8 = 3;
const VALUE_REAL: u8 = 4;
const VALUE_TEXT: u8 = 5;
/// The maximum size of a cursor, more than a URL can hold.
const CURSOR_BYTES_MAX: usize = 16 << 10;

/// Hashes the list that a cursor belongs to: its path, and the parts of its query that select and sort items.
pub fn hash_list(path: &str, query: Option<String>) -> ListHash {
    let mut hash = Sha256::new_with_prefix(path);
    if let Some(query) = query {
        hash.update("?");
        hash.update(query);
    }
    let mut bound = [0; 8];
    for (to, from) in bound.iter_mut().zip(hash.finalize()) {
        *to = from;
    }
    ListHash(bound)
}

pub fn encode(after: &CursorPosition, bound: ListHash) -> String {
    let mut bytes = bound.0.to_vec();
    match after.id {
        Id::Uuid(uuid) => {
            bytes.push(ID_UUID);
            bytes.extend_from_slice(uuid.as_bytes());
        }
        Id::Integer(number) => {
            bytes.push(ID_INTEGER);
            bytes.extend_from_slice(&number.to_be_bytes());
        }
    }
    for value in &after.values {
        push_value(&mut bytes, value);
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

fn push_value(bytes: &mut Vec<u8>, value: &Value) {
    let mut whole = |number: i64| {
        bytes.push(VALUE_INTEGER);
        bytes.extend_from_slice(&number.to_be_bytes());
    };
    match value {
        Value::Integer(number) => whole(*number),
        Value::Decimal(decimal) => whole(decimal.units),
        Value::Moment(moment) => whole(moment.micros()),
        Value::Boolean(boolean) => bytes.push(if *boolean { VALUE_TRUE } else { VALUE_FALSE }),
        Value::Number(number) => {
            bytes.push(VALUE_REAL);
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        Value::Text(text) => {
            bytes.push(VALUE_TEXT);
            let length =
                u16::try_from(text.len()).or_bug("the store checks the length of sort values");
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        Value::Null => bytes.push(VALUE_NULL),
        Value::Json(_) | Value::List(_) | Value::Object(_) | Value::ClearText(_) => {
            fault::bug("`sort_value` returns no such value");
        }
    }
}

/// `None` when the cursor belongs to another list, or was not made by this server.
pub fn decode(
    text: &str,
    bound: ListHash,
    resource: &Resource,
    sort: &[SortKey],
) -> Option<CursorPosition> {
    if text.len() > CURSOR_BYTES_MAX {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    if *head != bound.0 {
        return None;
    }
    let (id, mut rest) = match (rest.split_first()?, resource.id) {
        ((&ID_UUID, rest), IdKind::Uuid) => {
            let (id, rest) = rest.split_first_chunk::<16>()?;
            (Id::Uuid(Uuid::from_bytes(*id)), rest)
        }
        ((&ID_INTEGER, rest), IdKind::Integer) => {
            let (id, rest) = rest.split_first_chunk::<8>()?;
            (Id::Integer(i64::from_be_bytes(*id)), rest)
        }
        _ => return None,
    };
    let mut values = Vec::with_capacity(sort.len());
    for key in sort {
        values.push(read_value(&mut rest, resource, &key.attribute)?);
    }
    rest.is_empty().then_some(CursorPosition { id, values })
}

/// The cursor of a page of the change log: the position directly after an entry.
pub fn encode_sequence(sequence: i64, bound: ListHash) -> String {
    encode(&CursorPosition { id: Id::Integer(sequence), values: Vec::new() }, bound)
}

/// `None` as for `decode`.
pub fn decode_sequence(text: &str, bound: ListHash) -> Option<i64> {
    let bytes = Some(text).filter(|text| text.len() <= CURSOR_BYTES_MAX)?;
    let bytes = URL_SAFE_NO_PAD.decode(bytes).ok()?;
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    let sequence = rest.strip_prefix(&[ID_INTEGER])?.try_into().ok()?;
    (*head == bound.0).then_some(i64::from_be_bytes(sequence))
}

/// Reads the next value, if it has the attribute's type.
fn read_value(bytes: &mut &[u8], resource: &Resource, aspect: &Attribute) -> Option<Value> {
    let (mark, rest) = bytes.split_first()?;
    *bytes = rest;
    let field = aspect.field(resource);
    let class = field.map_or(StorageClass::Moment, |field| field.storage_class());
    let mut eight = || {
        let (number, rest) = bytes.split_first_chunk::<8>()?;
        *bytes = rest;
        Some(*number)
    };
    Some(match (*mark, class) {
        (VALUE_NULL, _) if aspect.can_be_null(resource) => Value::Null,
        (VALUE_FALSE, StorageClass::Boolean) => Value::Boolean(false),
        (VALUE_TRUE, StorageClass::Boolean) => Value::Boolean(true),
        (VALUE_INTEGER, StorageClass::Integer) => Value::Integer(i64::from_be_bytes(eight()?)),
        (VALUE_INTEGER, StorageClass::Decimal) => {
            let scale = field?.rules.scale;
            Value::Decimal(Decimal { units: i64::from_be_bytes(eight()?), scale })
        }
        (VALUE_INTEGER, StorageClass::Moment) => {
            Value::Moment(Moment::from_micros(i64::from_be_bytes(eight()?))?)
        }
        (VALUE_REAL, StorageClass::Real) => {
            let number = f64::from_be_bytes(eight()?);
            number.is_finite().then_some(Value::Number(number))?
        }
        (VALUE_TEXT, StorageClass::Text) => {
            let (length, rest) = bytes.split_first_chunk::<2>()?;
            let (text, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
            *bytes = rest;
            let text = str::from_utf8(text).ok().filter(|text| !text.contains('\0'))?;
            let is_id = field.is_some_and(|field| field.rules.reference.is_some());
            let is_whole = aspect.is_sorted_whole(resource) || sort_prefix(text) == text;
            let is_key = !aspect.has_sort_key(resource) || is_sort_key(text);
            let fits = is_whole && is_key && (!is_id || IdKind::Uuid.parse(text).is_some());
            fits.then(|| Value::text(text))?
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
