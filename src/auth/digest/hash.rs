//! The hashes of Digest, as hexadecimal text on the stack: in this form they are compared and hashed again.
//!
//! RFC 7616 §3.4 defines the parts of each hash; this file only joins them.

use std::fmt;

use aws_lc_rs::constant_time;
use md5::Md5;
use sha2::{Digest, Sha256};

use crate::auth::credential_text;
use crate::fault::OrBug;
use crate::model::Algorithm;

const TEXT_BYTES_MAX: usize = 64;

/// A hash as lower-case hexadecimal text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexDigest {
    text: [u8; TEXT_BYTES_MAX],
    length: usize,
}

impl HexDigest {
    fn new(bytes: &[u8]) -> Self {
        let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
        let mut text = [0; TEXT_BYTES_MAX];
        for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
            *pair = [digit(byte >> 4), digit(byte & 15)];
        }
        Self { text, length: bytes.len() * 2 }
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.text.split_at(self.length).0
    }

    pub fn as_text(&self) -> &str {
        str::from_utf8(self.as_bytes()).or_bug("it is hexadecimal digits")
    }

    /// Compares in constant time, for texts of the same length.
    pub fn equals_constant_time(&self, other: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(self.as_bytes(), other).is_ok()
    }
}

impl fmt::Debug for HexDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_text())
    }
}

/// HA1, the hash of a user's name, realm and password: as good as the password within its realm, so it is
/// never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Ha1(HexDigest);

impl Ha1 {
    /// Parses the text that `as_text` returned; `None` if it is no hash of this algorithm.
    pub fn parse(algorithm: Algorithm, text: &str) -> Option<Self> {
        let length = match algorithm {
            Algorithm::Md5 => 32,
            Algorithm::Sha256 => 64,
        };
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != length || !text.bytes().all(is_digit) {
            return None;
        }
        let mut hash = HexDigest { text: [0; TEXT_BYTES_MAX], length };
        hash.text.get_mut(..length)?.copy_from_slice(text.as_bytes());
        Some(Self(hash))
    }

    /// The text to be sealed.
    pub fn as_text(&self) -> &str {
        self.0.as_text()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Ha1 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Ha1")
    }
}

/// RFC 7616 §3.4.2: the name, the realm and the password, in UTF-8; name and password in NFC.
pub fn ha1(algorithm: Algorithm, name: &str, realm: &str, password: &str) -> Ha1 {
    let (name, password) = (credential_text::to_nfc(name), credential_text::to_nfc(password));
    Ha1(hash_joined(algorithm, &[name.as_bytes(), realm.as_bytes(), password.as_bytes()]))
}

/// RFC 7616 §3.4.4: the hash that a client sends instead of its name, to hide the name.
pub fn userhash(algorithm: Algorithm, name: &str, realm: &str) -> HexDigest {
    let name = credential_text::to_nfc(name);
    hash_joined(algorithm, &[name.as_bytes(), realm.as_bytes()])
}

/// The hash of a body, for `auth-int`.
pub fn hash_bytes(algorithm: Algorithm, bytes: &[u8]) -> HexDigest {
    hash_joined(algorithm, &[bytes])
}

/// A hash of all parts but the last, so that it can be finished with several last parts.
#[derive(Clone)]
pub(super) enum PartialHash {
    Md5(Md5),
    Sha256(Sha256),
}

impl PartialHash {
    /// Hashes these parts, with a colon after each.
    pub(super) fn new(algorithm: Algorithm, parts: &[&[u8]]) -> Self {
        match algorithm {
            Algorithm::Md5 => Self::Md5(hash_prefix(parts)),
            Algorithm::Sha256 => Self::Sha256(hash_prefix(parts)),
        }
    }

    pub(super) fn finish(&self, part: &[u8]) -> HexDigest {
        match self {
            Self::Md5(hasher) => HexDigest::new(&hasher.clone().chain_update(part).finalize()),
            Self::Sha256(hasher) => HexDigest::new(&hasher.clone().chain_update(part).finalize()),
        }
    }
}

fn hash_prefix<D: Digest>(parts: &[&[u8]]) -> D {
    let mut hasher = D::new();
    for part in parts {
        hasher.update(part);
        hasher.update(b":");
    }
    hasher
}

/// The hash of parts with colons between them.
pub(super) fn hash_joined(algorithm: Algorithm, parts: &[&[u8]]) -> HexDigest {
    match algorithm {
        Algorithm::Md5 => hash_joined_with::<Md5>(parts),
        Algorithm::Sha256 => hash_joined_with::<Sha256>(parts),
    }
}

fn hash_joined_with<D: Digest>(parts: &[&[u8]]) -> HexDigest {
    let mut hasher = D::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            hasher.update(b":");
        }
        hasher.update(part);
    }
    HexDigest::new(&hasher.finalize())
}
