//! Marks by which a request is known when it comes again, of which nothing can be read.
//!
//! A body may hold a password, and the mark of it is stored: so it is made with the server's key, without
//! which nobody can try passwords against it. Where there is no key, there is no secret in it either:
//! whoever makes marks asks `can_hide` first.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::Auth;
use super::key::Keys;

impl Auth {
    /// Whether a mark tells nothing of what it was made of, not even to somebody who guesses.
    pub fn can_hide(&self) -> bool {
        self.signer.is_some()
    }

    /// The marks of a request that has these parts, one for each key: the first is to be kept.
    /// Another server may have begun to use a new key, so it is looked for.
    pub fn prints(&self, parts: &[&[u8]]) -> Vec<Box<str>> {
        match &self.signer {
            Some(signer) => keyed(&signer.ring.look_again(), parts),
            None => {
                let mut hash = Sha256::new();
                each(parts, |bytes| hash.update(bytes));
                vec![format!("-.{}", URL_SAFE_NO_PAD.encode(hash.finalize())).into()]
            }
        }
    }
}

fn keyed(keys: &Keys, parts: &[&[u8]]) -> Vec<Box<str>> {
    let print = |(id, key): ([u8; 4], [u8; 32])| {
        let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &key));
        each(parts, |bytes| mac.update(bytes));
        let (id, mac) = (URL_SAFE_NO_PAD.encode(id), URL_SAFE_NO_PAD.encode(mac.sign()));
        format!("{id}.{mac}").into()
    };
    keys.print_keys().into_iter().map(print).collect()
}

/// Each part with its length before it, so that no two lists are the same in a row.
pub fn each(parts: &[&[u8]], mut take: impl FnMut(&[u8])) {
    for part in parts {
        take(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        take(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::key::tests::keys;

    #[test]
    fn a_mark_is_of_one_key_and_of_every_part() {
        let one = keyed(&keys(&[1]), &[b"a", b"bc"]);
        assert_eq!(one.len(), 1);
        assert_eq!(one, keyed(&keys(&[1]), &[b"a", b"bc"]));
        for other in [&[&b"ab"[..], b"c"][..], &[b"a", b"bd"], &[b"abc"], &[b"a", b"bc", b""]] {
            assert_ne!(one, keyed(&keys(&[1]), other));
        }
        assert_ne!(one, keyed(&keys(&[2]), &[b"a", b"bc"]));
    }

    /// While keys are rotated, what was kept under the old one is known.
    #[test]
    fn an_old_key_is_among_the_marks() {
        let old = keyed(&keys(&[1]), &[b"a"]);
        let both = keyed(&keys(&[2, 1]), &[b"a"]);
        assert_eq!(both.len(), 2);
        assert_eq!(both[1], old[0]);
        assert_eq!(both[0], keyed(&keys(&[2]), &[b"a"])[0]);
    }
}
