//! Authenticated encryption of stored credentials, so that the database alone does not reveal them.
//!
//! AES-256-GCM with a random nonce; the user, the realm and the algorithm are associated data, so that a
//! sealed text moved to another row does not open. The caller stores the sealed text. A sealed text begins
//! with the id of its key, so that after a rotation a text that was missed can be distinguished from a
//! damaged one.

use aws_lc_rs::aead::{Aad, NONCE_LEN, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::key::{KeyId, KeySet};

/// The owner of a secret: bound to the sealed text, not stored in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealContext<'a> {
    pub user: &'a str,
    pub realm: &'a str,
    pub algorithm: &'a str,
}

impl SealContext<'_> {
    /// Each part after its length, so that two different contexts never give the same bytes.
    fn associated_data(&self) -> Vec<u8> {
        let mut data = Vec::new();
        for part in [self.user, self.realm, self.algorithm] {
            data.extend_from_slice(&(part.len() as u64).to_be_bytes());
            data.extend_from_slice(part.as_bytes());
        }
        data
    }
}

/// Why a sealed text does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealError {
    /// No known key has the id of the key that sealed it.
    UnknownKey,
    /// It is damaged, or belongs to another context.
    Broken,
}

/// Seals a secret with the first key. `None`: the system has no randomness.
pub fn seal(keys: &KeySet, context: &SealContext<'_>, secret: &[u8]) -> Option<String> {
    let (id, key) = keys.sealing_key();
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).ok()?;
    let mut sealed = secret.to_vec();
    let aad = Aad::from(context.associated_data());
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
    Some(STANDARD.encode([&id[..], &nonce, &sealed].concat()))
}

pub fn open(keys: &KeySet, context: &SealContext<'_>, text: &str) -> Result<Vec<u8>, SealError> {
    let (id, nonce, sealed) = split_sealed(text).ok_or(SealError::Broken)?;
    if !keys.has_id(id) {
        return Err(SealError::UnknownKey);
    }
    let opened = keys.opening_keys(id).find_map(|key| {
        let mut sealed = sealed.clone();
        let aad = Aad::from(context.associated_data());
        let length = key
            .open_in_place(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .map(|secret| secret.len())
            .ok()?;
        sealed.truncate(length);
        Some(sealed)
    });
    opened.ok_or(SealError::Broken)
}

/// Whether the first key has sealed it.
pub fn is_sealed_by_first_key(keys: &KeySet, text: &str) -> bool {
    split_sealed(text).is_some_and(|(id, ..)| id == keys.id())
}

/// Whether one of the keys has sealed it.
pub fn is_sealed_by_known_key(keys: &KeySet, text: &str) -> bool {
    split_sealed(text).is_some_and(|(id, ..)| keys.has_id(id))
}

fn split_sealed(text: &str) -> Option<(KeyId, [u8; NONCE_LEN], Vec<u8>)> {
    let bytes = STANDARD.decode(text).ok()?;
    let (id, rest) = bytes.split_first_chunk()?;
    let (nonce, sealed) = rest.split_first_chunk()?;
    Some((*id, *nonce, sealed.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const CONTEXT: SealContext<'_> = SealContext { user: "ann", realm: "store", algorithm: "MD5" };

    fn keys(byte: u8) -> KeySet {
        KeySet::parse(&STANDARD.encode([byte; 32])).unwrap()
    }

    #[test]
    fn sealed_text_opens_only_in_its_own_context() {
        let keys = keys(1);
        let sealed = seal(&keys, &CONTEXT, b"secret").unwrap();
        assert_eq!(open(&keys, &CONTEXT, &sealed).unwrap(), b"secret");
        let others = [
            SealContext { user: "bob", ..CONTEXT },
            SealContext { realm: "stor", ..CONTEXT },
            SealContext { algorithm: "SHA-256", ..CONTEXT },
            // The same bytes, split at other positions.
            SealContext { user: "an", realm: "nstore", algorithm: "MD5" },
            SealContext { user: "annstore", realm: "", algorithm: "MD5" },
        ];
        for other in others {
            assert_eq!(open(&keys, &other, &sealed), Err(SealError::Broken), "{other:?}");
        }
    }

    #[test]
    fn sealed_text_of_an_unknown_key_is_distinguished_from_damage() {
        let (old, new) = (keys(1), keys(2));
        let sealed = seal(&old, &CONTEXT, b"secret").unwrap();
        assert_eq!(open(&new, &CONTEXT, &sealed), Err(SealError::UnknownKey));
        assert!(is_sealed_by_first_key(&old, &sealed) && !is_sealed_by_known_key(&new, &sealed));
        let both = old.begin_rotation(new);
        assert_eq!(open(&both, &CONTEXT, &sealed).unwrap(), b"secret");
        assert!(is_sealed_by_known_key(&both, &sealed) && !is_sealed_by_first_key(&both, &sealed));
        let again = seal(&both, &CONTEXT, b"secret").unwrap();
        assert!(is_sealed_by_first_key(&both, &again));
        assert_eq!(open(&both.end_rotation(), &CONTEXT, &again).unwrap(), b"secret");
    }

    #[test]
    fn sealed_texts_are_never_equal() {
        let keys = keys(1);
        let all: HashSet<_> =
            (0..1000).map(|_| seal(&keys, &CONTEXT, b"secret").unwrap()).collect();
        assert_eq!(all.len(), 1000);
    }

    proptest! {
        #[test]
        fn sealed_text_with_any_change_is_refused(at in 0..50usize, bit in 0..8u32) {
            let keys = keys(1);
            let mut bytes = STANDARD.decode(seal(&keys, &CONTEXT, &[7; 18]).unwrap()).unwrap();
            prop_assert_eq!(bytes.len(), 50);
            bytes[at] ^= 1 << bit;
            prop_assert!(open(&keys, &CONTEXT, &STANDARD.encode(&bytes)).is_err());
            bytes.truncate(at);
            prop_assert!(open(&keys, &CONTEXT, &STANDARD.encode(&bytes)).is_err());
        }

        #[test]
        fn sealed_text_any_input_is_opened_or_refused(text in "\\PC{0,100}") {
            prop_assert!(open(&keys(1), &CONTEXT, &text).is_err());
        }

        #[test]
        fn sealed_text_round_trips(secret in proptest::collection::vec(any::<u8>(), 0..100), user in "\\PC{0,20}") {
            let context = SealContext { user: &user, ..CONTEXT };
            let sealed = seal(&keys(1), &context, &secret).unwrap();
            prop_assert_eq!(open(&keys(1), &context, &sealed).unwrap(), secret);
        }
    }
}
