//! Cursors: where the next page of a list begins.
//!
//! Opaque to clients and valid at any replica and after any restart: nothing is kept. A cursor is
//! bound by a hash to the list it was made for, so that one of another list is refused. It proves
//! nothing and hides nothing; it is a place, not a permission.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Address;
use super::route::path;
use crate::model::Model;
use crate::value::Id;

/// What a list is, in eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound([u8; 8]);

const UUID: u8 = 1;
const INTEGER: u8 = 2;

/// The list a cursor belongs to: the collection's path. `limit` may change from page to page.
pub fn bind(model: &Model, address: &Address) -> Bound {
    let ancestors = address.ids.as_ref().map_or(&[][..], |ids| &ids.ancestors);
    let list = path(model, address.resource, ancestors, None);
    let hash = Sha256::digest(list.as_bytes());
    let mut bound = [0; 8];
    for (to, from) in bound.iter_mut().zip(hash) {
        *to = from;
    }
    Bound(bound)
}

pub fn seal(after: Id, bound: Bound) -> String {
    let mut bytes = bound.0.to_vec();
    match after {
        Id::Uuid(uuid) => {
            bytes.push(UUID);
            bytes.extend_from_slice(uuid.as_bytes());
        }
        Id::Integer(number) => {
            bytes.push(INTEGER);
            bytes.extend_from_slice(&number.to_be_bytes());
        }
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

pub fn open(text: &str, bound: Bound) -> Option<Id> {
    // The longest cursor is 25 bytes.
    if text.len() > 40 {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    if *head != bound.0 {
        return None;
    }
    match rest.split_first()? {
        (&UUID, rest) => Some(Id::Uuid(Uuid::from_bytes(rest.try_into().ok()?))),
        (&INTEGER, rest) => Some(Id::Integer(i64::from_be_bytes(rest.try_into().ok()?))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERE: Bound = Bound(*b"customer");

    #[test]
    fn a_cursor_comes_back_as_it_was_and_only_where_it_was_made() {
        for id in [Id::Integer(7), Id::Uuid(Uuid::from_u128(0x0189_0a5d))] {
            let text = seal(id, HERE);
            assert_eq!(open(&text, HERE), Some(id));
            assert_eq!(open(&text, Bound(*b"orders00")), None);
            assert_eq!(open(text.get(1..).unwrap_or(""), HERE), None);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,60}") {
            let _ = open(&text, HERE);
        }
    }
}
