//! Request fingerprints for `Idempotency-Key`, which reveal nothing of the request.
//!
//! A body may hold a password, and its fingerprint is stored. So the fingerprint is a MAC under the server's
//! key: without the key, passwords cannot be guessed from it. Without a key the fingerprint must cover no
//! secret: callers check `has_mac_key` first.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::key::KeySet;

/// The fingerprint of a request with these parts, without a key.
pub(super) fn plain_fingerprint(parts: &[&[u8]]) -> Box<str> {
    let mut hash = Sha256::new();
    update_length_prefixed(parts, |bytes| hash.update(bytes));
    format!("-.{}", URL_SAFE_NO_PAD.encode(hash.finalize())).into()
}

/// The fingerprints of a request with these parts, one for each key: the first is stored.
pub(super) fn keyed_fingerprints(keys: &KeySet, parts: &[&[u8]]) -> Vec<Box<str>> {
    let print = |(id, key): ([u8; 4], [u8; 32])| {
        let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &key));
        update_length_prefixed(parts, |bytes| mac.update(bytes));
        let (id, mac) = (URL_SAFE_NO_PAD.encode(id), URL_SAFE_NO_PAD.encode(mac.sign()));
        format!("{id}.{mac}").into()
    };
    keys.request_fingerprint_keys().into_iter().map(print).collect()
}

/// Feeds each part after its length, so that two different lists never give the same bytes.
pub fn update_length_prefixed(parts: &[&[u8]], mut take: impl FnMut(&[u8])) {
    for part in parts {
        take(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        take(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> KeySet {
        KeySet::example(bytes)
    }

    #[test]
    fn request_fingerprint_depends_on_the_key_and_every_part() {
        let one = keyed_fingerprints(&keys(&[1]), &[b"a", b"bc"]);
        assert_eq!(one.len(), 1);
        assert_eq!(one, keyed_fingerprints(&keys(&[1]), &[b"a", b"bc"]));
        for other in [&[&b"ab"[..], b"c"][..], &[b"a", b"bd"], &[b"abc"], &[b"a", b"bc", b""]] {
            assert_ne!(one, keyed_fingerprints(&keys(&[1]), other));
        }
        assert_ne!(one, keyed_fingerprints(&keys(&[2]), &[b"a", b"bc"]));
    }

    /// During a rotation, responses stored under the old key are found.
    #[test]
    fn request_fingerprints_include_the_old_key() {
        let old = keyed_fingerprints(&keys(&[1]), &[b"a"]);
        let both = keyed_fingerprints(&keys(&[2, 1]), &[b"a"]);
        assert_eq!(both.len(), 2);
        assert_eq!(both[1], old[0]);
        assert_eq!(both[0], keyed_fingerprints(&keys(&[2]), &[b"a"])[0]);
    }
}
