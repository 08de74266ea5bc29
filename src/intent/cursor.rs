//! Cursors: where the next page of a list begins.
//!
//! Opaque to clients and valid at any replica and after any restart: nothing is kept. A cursor is
//! bound by a hash to the list it was made for, so that one of another list is refused. It proves
//! nothing and hides nothing; it is a place, not a permission.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::value::{Id, IdKind};

/// What a list is, in eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound([u8; 8]);

const UUID: u8 = 1;
const INTEGER: u8 = 2;
/// The longest cursor: 8 bytes of the list, 1 of the kind, 16 of a uuid, in base64.
const TEXT_MAX: usize = 34;

/// The list a cursor belongs to, by its path. `limit` may change from page to page.
pub fn bind(list: &str) -> Bound {
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

/// `None` when it was made for another list, or by someone else.
pub fn open(text: &str, bound: Bound, kind: IdKind) -> Option<Id> {
    if text.len() > TEXT_MAX {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    if *head != bound.0 {
        return None;
    }
    match (rest.split_first()?, kind) {
        ((&UUID, rest), IdKind::Uuid) => Some(Id::Uuid(Uuid::from_bytes(rest.try_into().ok()?))),
        ((&INTEGER, rest), IdKind::Integer) => {
            Some(Id::Integer(i64::from_be_bytes(rest.try_into().ok()?)))
        }
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
        let both = [
            (Id::Integer(7), IdKind::Integer),
            (Id::Uuid(Uuid::from_u128(0x0189_0a5d)), IdKind::Uuid),
        ];
        for (id, kind) in both {
            let text = seal(id, HERE);
            assert_eq!(open(&text, HERE, kind), Some(id));
            assert_eq!(open(&text, bind("/orders"), kind), None);
            assert_eq!(open(text.get(1..).unwrap_or(""), HERE, kind), None);
        }
        assert_eq!(open(&seal(Id::Integer(7), HERE), HERE, IdKind::Uuid), None);
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,60}") {
            let _ = open(&text, HERE, IdKind::Uuid);
        }
    }
}
