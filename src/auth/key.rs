//! The server's secret key: 32 bytes in a file or in `NOUNS_KEY`, and the keys derived from it.
//!
//! It encrypts the stored Digest credentials (HA1) and signs nonces; the database never stores the key, only
//! its fingerprint. This file neither encrypts nor signs, and does not touch the database. There may be
//! several keys, one a line. The first seals and signs, the others only open and verify, so that a rotation
//! can be interrupted at any point.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD};
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};

use crate::fault::OrBug;

const KEY_BYTES: usize = 32;
/// The maximum number of keys: more than a rotation needs, and a bound on how many are tried.
const KEYS_MAX: usize = 8;
/// Labels of the derived keys: each use has a separate key.
const SEALING_LABEL: &[u8] = b"nouns 1 sealing";
const NONCES_LABEL: &[u8] = b"nouns 1 nonces";
const FINGERPRINT_LABEL: &[u8] = b"nouns 1 fingerprint";
const REQUEST_FINGERPRINT_LABEL: &[u8] = b"nouns 1 requests";

/// The name under which the database stores the fingerprint.
pub const FINGERPRINT_NAME: &str = "key_fingerprint";

/// Base64 as people and programs write it, with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Identifies the key of a sealed text.
pub type KeyId = [u8; 4];

/// One or more keys; the first seals and signs.
pub struct KeySet {
    first: SecretKey,
    others: Vec<SecretKey>,
}

/// One key and the keys derived from it.
struct SecretKey {
    bytes: [u8; KEY_BYTES],
    sealing: LessSafeKey,
    fingerprint: [u8; 16],
}

/// A key for the MACs of request fingerprints. Neither its methods nor its Debug output give its bytes.
#[derive(Debug)]
pub struct RequestFingerprintKey {
    pub id: KeyId,
    pub mac: hmac::Key,
}

/// Debug output never shows key material.
impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySet(…)")
    }
}

impl KeySet {
    /// Parses a key file, or `NOUNS_KEY`: 32 bytes in base64, one key a line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut keys = text.split_ascii_whitespace().map(|word| {
            let bytes = BASE64.decode(word).map_err(|_| "expected base64".to_owned())?;
            let bytes: [u8; KEY_BYTES] = bytes.as_slice().try_into().map_err(|_| {
                format!("expected {KEY_BYTES} bytes in base64, got {}", bytes.len())
            })?;
            SecretKey::new(bytes)
        });
        let first = keys.next().unwrap_or_else(|| Err("expected a key, got nothing".to_owned()))?;
        let others = keys.collect::<Result<Vec<_>, _>>()?;
        if others.len() >= KEYS_MAX {
            return Err(format!("expected at most {KEYS_MAX} keys, got {}", others.len() + 1));
        }
        Ok(Self { first, others })
    }

    /// One key for each of `bytes`: that byte repeated 32 times.
    #[cfg(test)]
    pub fn example(bytes: &[u8]) -> Self {
        let lines = bytes.iter().map(|byte| STANDARD.encode([*byte; 32]) + "\n");
        Self::parse(&lines.collect::<String>()).unwrap()
    }

    /// A new key from the system's random number generator.
    pub fn random() -> Result<Self, String> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| format!("no randomness: {error}"))?;
        Ok(Self { first: SecretKey::new(bytes)?, others: Vec::new() })
    }

    /// Puts a new key first: the start of a rotation.
    pub fn begin_rotation(self, new: Self) -> Self {
        let others = std::iter::once(self.first).chain(self.others).collect();
        Self { first: new.first, others }
    }

    /// Keeps the first key only: the end of a rotation.
    pub fn end_rotation(self) -> Self {
        Self { first: self.first, others: Vec::new() }
    }

    /// Whether a rotation has begun and not ended.
    pub fn is_rotating(&self) -> bool {
        !self.others.is_empty()
    }

    /// Identifies the first key without revealing it: the database stores this.
    pub fn fingerprint(&self) -> String {
        self.first.fingerprint()
    }

    /// Whether the two sets have a key in common.
    pub fn shares_key_with(&self, other: &Self) -> bool {
        let mine = [&self.first].into_iter().chain(&self.others);
        mine.map(|key| key.fingerprint).any(|print| {
            let mut theirs = [&other.first].into_iter().chain(&other.others);
            theirs.any(|key| key.fingerprint == print)
        })
    }

    /// Whether the key with this fingerprint is among them.
    pub fn has_fingerprint(&self, fingerprint: &str) -> bool {
        self.iter().any(|key| key.fingerprint() == fingerprint)
    }

    /// Keys for the MAC of nonces: the first signs, all verify.
    pub fn nonce_keys(&self) -> Vec<[u8; 32]> {
        self.iter().map(|key| derive(&key.bytes, NONCES_LABEL)).collect()
    }

    pub fn request_fingerprint_keys(&self) -> Vec<RequestFingerprintKey> {
        let derived = self.iter().map(|key| {
            let bytes = derive(&key.bytes, REQUEST_FINGERPRINT_LABEL);
            RequestFingerprintKey { id: key.id(), mac: hmac::Key::new(hmac::HMAC_SHA256, &bytes) }
        });
        derived.collect()
    }

    /// The id of the key that encrypts new values: the first one.
    pub fn id(&self) -> KeyId {
        self.first.id()
    }

    pub fn has_id(&self, id: KeyId) -> bool {
        self.iter().any(|key| key.id() == id)
    }

    pub(super) fn sealing_key(&self) -> (KeyId, &LessSafeKey) {
        (self.first.id(), &self.first.sealing)
    }

    /// The keys with this id: ids are short, so two keys may share one.
    pub(super) fn opening_keys(&self, id: KeyId) -> impl Iterator<Item = &LessSafeKey> {
        self.iter().filter(move |key| key.id() == id).map(|key| &key.sealing)
    }

    fn iter(&self) -> impl Iterator<Item = &SecretKey> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The content of the key file.
    pub(super) fn file_text(&self) -> String {
        self.iter().map(|key| format!("{}\n", STANDARD.encode(key.bytes))).collect()
    }
}

impl SecretKey {
    fn new(bytes: [u8; KEY_BYTES]) -> Result<Self, String> {
        let sealing = UnboundKey::new(&AES_256_GCM, &derive(&bytes, SEALING_LABEL))
            .map_err(|_| "the key cannot be used".to_owned())?;
        let derived = derive(&bytes, FINGERPRINT_LABEL);
        let fingerprint = *derived.first_chunk().or_bug("a derived key has 32 bytes");
        Ok(Self { bytes, sealing: LessSafeKey::new(sealing), fingerprint })
    }

    fn id(&self) -> KeyId {
        let [a, b, c, d, ..] = self.fingerprint;
        [a, b, c, d]
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn derive(key: &[u8; KEY_BYTES], label: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), label);
    tag.as_ref().try_into().or_bug("the tag of HMAC-SHA256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(bytes: &[u8]) -> KeySet {
        KeySet::example(bytes)
    }

    #[test]
    fn key_is_32_bytes_in_base64_one_per_line() {
        let one = STANDARD.encode([7; 32]);
        assert_eq!(KeySet::parse(&one).unwrap().fingerprint(), keys(&[7]).fingerprint());
        let spelled = format!("  {}\r\n\n", one.trim_end_matches('='));
        assert_eq!(KeySet::parse(&spelled).unwrap().fingerprint(), keys(&[7]).fingerprint());
        let wrong = |text: &str| KeySet::parse(text).unwrap_err();
        assert_eq!(wrong(""), "expected a key, got nothing");
        assert_eq!(wrong(" \n"), "expected a key, got nothing");
        assert_eq!(wrong("§"), "expected base64");
        assert_eq!(wrong("c2hvcnQ="), "expected 32 bytes in base64, got 5");
        assert_eq!(wrong(&STANDARD.encode([7; 33])), "expected 32 bytes in base64, got 33");
        assert_eq!(wrong(&format!("{one}\n").repeat(9)), "expected at most 8 keys, got 9");
        assert_eq!(wrong(&format!("{one}\nx")), "expected base64");
    }

    #[test]
    fn key_file_text_round_trips() {
        let both = keys(&[1, 2]);
        let again = KeySet::parse(&both.file_text()).unwrap();
        assert_eq!(again.nonce_keys(), both.nonce_keys());
        assert_eq!(again.file_text(), both.file_text());
    }

    #[test]
    fn key_rotation_signs_with_the_first_key_and_accepts_the_others() {
        let old = keys(&[1]);
        let (old_id, old_fingerprint) = (old.id(), old.fingerprint());
        let both = old.begin_rotation(keys(&[2]));
        assert!(both.is_rotating());
        assert_eq!(both.fingerprint(), keys(&[2]).fingerprint());
        assert!(
            both.has_id(old_id)
                && both.has_fingerprint(&old_fingerprint)
                && both.has_fingerprint(&both.fingerprint())
        );
        assert_eq!(both.nonce_keys(), [keys(&[2]).nonce_keys(), keys(&[1]).nonce_keys()].concat());
        let new = both.end_rotation();
        assert!(
            !new.is_rotating() && !new.has_id(old_id) && !new.has_fingerprint(&old_fingerprint)
        );
    }

    /// Derivation must never change: databases and replicas rely on it.
    #[test]
    fn derived_keys_differ_and_never_change() {
        let one = keys(&[1]);
        assert_eq!(one.fingerprint(), "84baa24011f6d103bbfd198463ae16f9");
        let derived = [SEALING_LABEL, NONCES_LABEL, FINGERPRINT_LABEL, REQUEST_FINGERPRINT_LABEL]
            .map(|label| derive(&[1; 32], label));
        for (index, one) in derived.iter().enumerate() {
            assert!(derived.iter().skip(index + 1).all(|other| other != one));
        }
    }

    #[test]
    fn key_debug_output_and_fingerprint_reveal_nothing() {
        let random = KeySet::random().unwrap();
        assert_eq!(format!("{random:?}"), "KeySet(…)");
        assert_ne!(random.file_text(), KeySet::random().unwrap().file_text());
        assert!(!random.file_text().contains(&random.fingerprint()));
    }

    proptest! {
        #[test]
        fn key_any_text_is_parsed_or_refused_without_showing_it(text in "\\PC{0,200}") {
            if let Err(message) = KeySet::parse(&text) {
                prop_assert!(text.len() < 4 || !message.contains(&text));
            }
        }
    }
}
