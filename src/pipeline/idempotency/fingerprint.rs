//! The identity of a request with an `Idempotency-Key`: the scope of the key, and the fingerprints of the request.
//!
//! A body may hold a password, and its fingerprint is stored. So the fingerprint is a MAC under the server's
//! key: without the key, passwords cannot be guessed from it. Without a server key the fingerprint is a plain
//! digest and must cover no secret: `IdempotentWrite` checks that. A response is stored in one format, so the
//! negotiated format is part of the fingerprint: a client never gets a type that it did not list.

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderValue, header};
use sha2::{Digest, Sha256};

use crate::auth::key::RequestFingerprintKey;
use crate::formats::{self, Format};
use crate::pipeline::context::{
    BLOCKING_BODY_BYTES_MIN, RequestContext, RequestFacts, run_blocking,
};
use crate::pipeline::write::BodyReservation;
use crate::plan::Collection;
use crate::problem::Problem;

/// Headers that are part of the request's fingerprint, beside the body.
const FINGERPRINTED_HEADERS: [header::HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// The scope of a key: the caller, the method and the path. Anonymous callers share one scope.
pub struct IdempotencyScope {
    pub text: String,
    /// For advisory locks; two scopes may share one.
    pub number: i64,
}

impl IdempotencyScope {
    pub fn new(request: &RequestContext<'_>, facts: &RequestFacts, key: &str) -> Self {
        let user = facts.user_name();
        let kind = if user.is_some() { "user" } else { "" };
        let (method, path) = (request.parts.method.as_str(), request.parts.uri.path());
        let parts = [kind, user.unwrap_or(""), method, path, key].map(str::as_bytes);
        let mut hash = Sha256::new();
        update_length_prefixed(parts, |bytes| hash.update(bytes));
        let hash: [u8; 32] = hash.finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = hash;
        let number = i64::from_be_bytes([a, b, c, d, e, f, g, h]);
        Self { text: URL_SAFE_NO_PAD.encode(hash), number }
    }
}

/// The fingerprints of a request about this collection: its content, and the formats of its response.
pub async fn fingerprints(
    request: &RequestContext<'_>,
    format: &Format,
    about: &Collection,
    BodyReservation { bytes, memory }: BodyReservation<'_>,
) -> Result<Vec<Box<str>>, Problem> {
    let model = &request.app.shared.model;
    let problem_type = formats::choose_for_problem(&request.accept);
    let mut parts = vec![
        Bytes::copy_from_slice(request.parts.uri.query().unwrap_or("").as_bytes()),
        Bytes::from_static(format.media.essence.as_bytes()),
        problem_type.map_or_else(Bytes::new, |value| Bytes::copy_from_slice(value.as_bytes())),
        // Part of the fingerprint: a caller who has lost read access must not get the earlier, fuller
        // response.
        Bytes::copy_from_slice(&about.scope.read_access_hash(model, about.resource).to_be_bytes()),
    ];
    for name in &FINGERPRINTED_HEADERS {
        let values = request.parts.headers.get_all(name).iter().map(HeaderValue::as_bytes);
        let mut all = Vec::new();
        update_length_prefixed(values, |bytes| all.extend_from_slice(bytes));
        parts.push(all.into());
    }
    parts.push(bytes.clone());
    let (shared, memory) = (Arc::clone(&request.app.shared), memory.share());
    let work = move || {
        let _held = memory;
        let parts: Vec<&[u8]> = parts.iter().map(|part| &**part).collect();
        match shared.auth.request_fingerprint_keys() {
            Some(keys) => keyed_fingerprints(&keys, &parts),
            None => vec![plain_fingerprint(&parts)],
        }
    };
    if bytes.len() < BLOCKING_BODY_BYTES_MIN { Ok(work()) } else { run_blocking(work).await }
}

/// The fingerprint of a request with these parts, without a key.
fn plain_fingerprint(parts: &[&[u8]]) -> Box<str> {
    let mut hash = Sha256::new();
    update_length_prefixed(parts, |bytes| hash.update(bytes));
    format!("-.{}", URL_SAFE_NO_PAD.encode(hash.finalize())).into()
}

/// The fingerprints of a request with these parts, one for each key: the first is stored.
fn keyed_fingerprints(keys: &[RequestFingerprintKey], parts: &[&[u8]]) -> Vec<Box<str>> {
    let print = |key: &RequestFingerprintKey| {
        let mut mac = hmac::Context::with_key(&key.mac);
        update_length_prefixed(parts, |bytes| mac.update(bytes));
        let (id, mac) = (URL_SAFE_NO_PAD.encode(key.id), URL_SAFE_NO_PAD.encode(mac.sign()));
        format!("{id}.{mac}").into()
    };
    keys.iter().map(print).collect()
}

/// Feeds each part after its length, so that two different lists never give the same bytes.
fn update_length_prefixed(
    parts: impl IntoIterator<Item = impl AsRef<[u8]>>,
    mut take: impl FnMut(&[u8]),
) {
    for part in parts {
        let part = part.as_ref();
        take(&(part.len() as u64).to_be_bytes());
        take(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::key::KeySet;

    fn keys(bytes: &[u8]) -> Vec<RequestFingerprintKey> {
        KeySet::example(bytes).request_fingerprint_keys()
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

    /// Stored fingerprints are compared with those of a later version of the program.
    #[test]
    fn request_fingerprint_of_a_fixed_key_does_not_change() {
        let fingerprints = keyed_fingerprints(&keys(&[1]), &[b"a", b"bc"]);
        assert_eq!(fingerprints.concat(), "hLqiQA.DPBHN1G2jwfCfMldpxXPEcPArdkIEBsSgn7f4ktP2Hg");
    }

    #[test]
    fn request_fingerprint_keys_do_not_show_their_bytes() {
        let [one, other] = [1, 2].map(|byte| format!("{:?}", keys(&[byte])[0].mac));
        assert_eq!(one, other);
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
