//! Two facts about a certificate that rustls does not expose: its channel-binding digest and its public
//! key.
//!
//! Nothing is verified here. Only the outermost DER elements are walked (RFC 5280 §4.1); for any other
//! shape the functions return `None`.

use sha2::{Digest, Sha256, Sha384, Sha512};

use crate::der::{SEQUENCE, parse_element, parse_expected};

const OBJECT_IDENTIFIER: u8 = 0x06;
/// The version element, absent in version 1.
const VERSION: u8 = 0xa0;

/// `tls-server-end-point` of RFC 5929 §4.1: the certificate, hashed with its signature's hash, and with
/// SHA-256 where that would be MD5 or SHA-1. A signature without such a hash has none.
pub fn channel_binding_digest(certificate: &[u8]) -> Option<Vec<u8>> {
    let mut outer = parse_expected(&mut &*certificate, SEQUENCE)?.contents;
    parse_expected(&mut outer, SEQUENCE)?;
    let mut algorithm = parse_expected(&mut outer, SEQUENCE)?.contents;
    let identifier = parse_expected(&mut algorithm, OBJECT_IDENTIFIER)?.contents;
    const RSA: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA_SHA1: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
    const ECDSA_SHA2: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    let sha256 = || Some(Sha256::digest(certificate).to_vec());
    let sha384 = || Some(Sha384::digest(certificate).to_vec());
    let sha512 = || Some(Sha512::digest(certificate).to_vec());
    let (last, family) = identifier.split_last()?;
    if identifier == ECDSA_SHA1 {
        return sha256();
    }
    match (family, last) {
        // RFC 8017 §A.2.4: md5, sha1, sha256, sha384 and sha512 with RSA.
        (family, 4 | 5 | 11) if family == RSA => sha256(),
        (family, 12) if family == RSA => sha384(),
        (family, 13) if family == RSA => sha512(),
        // RFC 5758 §3.2: sha256, sha384 and sha512 with ECDSA.
        (family, 2) if family == ECDSA_SHA2 => sha256(),
        (family, 3) if family == ECDSA_SHA2 => sha384(),
        (family, 4) if family == ECDSA_SHA2 => sha512(),
        _ => None,
    }
}

/// The public key (`SubjectPublicKeyInfo`) as encoded, whatever the version of the certificate.
pub fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let mut outer = parse_expected(&mut &*certificate, SEQUENCE)?.contents;
    let mut inner = parse_expected(&mut outer, SEQUENCE)?.contents;
    // In version 1 the serial number comes first.
    let first = parse_element(&mut inner)?;
    if first.tag == VERSION {
        parse_element(&mut inner)?;
    }
    // The signature algorithm, the issuer, the validity, the subject.
    for _ in 0..4 {
        parse_expected(&mut inner, SEQUENCE)?;
    }
    parse_expected(&mut inner, SEQUENCE).map(|key| key.whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn certificate_parser_any_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (channel_binding_digest(&bytes), public_key(&bytes));
        }
    }

    #[test]
    fn certificate_digest_without_known_hash_is_none() {
        // An inner part, the algorithm Ed25519 (RFC 8410 §3), and no signature.
        let bytes = [SEQUENCE, 9, SEQUENCE, 0, SEQUENCE, 5, OBJECT_IDENTIFIER, 3, 0x2b, 0x65, 0x70];
        assert_eq!(channel_binding_digest(&bytes), None);
    }
}
