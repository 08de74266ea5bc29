//! Stateless nonces: each carries its own time and epoch, and a MAC over both.
//!
//! The text is base64url of the second of issue, the epoch, random bytes and a truncated HMAC, so that
//! every server with the key recognises its nonces and a flood of challenges costs no memory. The store
//! records whether a nonce was used, and whether its epoch is over. Several keys are known during a rotation:
//! the first signs, all verify.
//!
//! A limit of a client bounds the size: a 401 repeats the nonce in every challenge of its first line, and
//! wget 1.21 crashes when that line has more than 255 bytes (`challenge.rs`). 30 bytes are 40 characters:
//!
//! - time, 4 bytes: the low half of the Unix seconds. `read` chooses the candidate nearest to now, so that it
//!   works in every year.
//! - epoch, 8 bytes, random: consecutive epochs within the life of a nonce differ.
//! - random, 6 bytes: they distinguish the nonces of one second. Where two collide, which at 50,000
//!   challenges a second is a matter of days, the second client gets `stale=true` and a new nonce.
//! - MAC, 12 bytes: a forgery has to be tried at the server, and 2^96 tries are not feasible. A forged
//!   nonce would still need the password to be of use.

use std::fmt;

use aws_lc_rs::{constant_time, hmac};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::fault::OrBug;
use crate::store::NONCE_SECONDS;

/// From this age on, responses carry the next nonce.
const NEAR_END_SECONDS: i64 = 240;
/// How far the clocks of servers may be apart.
const SKEW_SECONDS: i64 = 60;

const TIME_BYTES: usize = 4;
const EPOCH_BYTES: usize = 8;
const RANDOM_BYTES: usize = 6;
const MAC_BYTES: usize = 12;
const SIGNED_BYTES: usize = TIME_BYTES + EPOCH_BYTES + RANDOM_BYTES;
const ALL_BYTES: usize = SIGNED_BYTES + MAC_BYTES;
/// A multiple of four, so that each nonce has one spelling.
pub(super) const TEXT_BYTES: usize = ALL_BYTES.div_ceil(3) * 4;
/// Clients return an `opaque` unchanged (RFC 7616 §3.4); it proves nothing, and distinguishes realms and
/// keys.
const OPAQUE_BYTES: usize = 4;

/// The MAC covers its purpose, so that no nonce is an `opaque`.
const NONCE_LABEL: &[u8] = b"nonce:";
const OPAQUE_LABEL: &[u8] = b"opaque:";

/// Random bytes of a nonce: an argument, since pure code has no randomness.
pub type NonceRandom = [u8; RANDOM_BYTES];

/// A nonce that is ours and not too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce {
    pub epoch: u64,
    /// Unix seconds.
    pub issued: i64,
    /// Unique among all nonces.
    pub id: u128,
    /// Whether the response should carry the next nonce.
    pub is_near_end: bool,
}

impl Nonce {
    /// Checks the age of the nonce at another time.
    pub fn check_age(self, now: i64) -> Result<Self, NonceError> {
        let age = now.saturating_sub(self.issued);
        if (-SKEW_SECONDS..NONCE_SECONDS).contains(&age) {
            Ok(Self { is_near_end: age >= NEAR_END_SECONDS, ..self })
        } else {
            Err(NonceError::Expired)
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonceError {
    /// Not issued by us, or changed.
    Foreign,
    /// Ours, and too old, or from a future that no clock skew explains.
    Expired,
}

/// Issues and verifies nonces.
pub struct Nonces {
    signing: hmac::Key,
    /// Previous signing keys.
    previous: Vec<hmac::Key>,
}

impl fmt::Debug for Nonces {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Nonces").finish_non_exhaustive()
    }
}

impl Nonces {
    /// `None` without a key.
    pub fn new(keys: &[[u8; 32]]) -> Option<Self> {
        let mut keys = keys.iter().map(|key| hmac::Key::new(hmac::HMAC_SHA256, key));
        Some(Self { signing: keys.next()?, previous: keys.collect() })
    }

    pub fn issue(&self, epoch: u64, now: i64, random: NonceRandom) -> String {
        let signed = [&low_half(now).to_be_bytes()[..], &epoch.to_be_bytes(), &random].concat();
        let tag = sign(&self.signing, NONCE_LABEL, &signed);
        URL_SAFE_NO_PAD.encode([&signed[..], tag.as_ref().split_at(MAC_BYTES).0].concat())
    }

    pub fn read(&self, text: impl AsRef<[u8]>, now: i64) -> Result<Nonce, NonceError> {
        let mut bytes = [0; ALL_BYTES];
        if text.as_ref().len() != TEXT_BYTES
            || URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) != Ok(ALL_BYTES)
        {
            return Err(NonceError::Foreign);
        }
        let (signed, mac) = bytes.split_at(SIGNED_BYTES);
        let mut keys = std::iter::once(&self.signing).chain(&self.previous);
        if !keys.any(|key| verify_mac(key, signed, mac)) {
            return Err(NonceError::Foreign);
        }
        parse(signed, now).or_bug("its length was checked").check_age(now)
    }

    /// The `opaque` of a realm under each key, that of the signing key first.
    pub fn opaques(&self, realm: &str) -> Vec<Box<str>> {
        let keys = std::iter::once(&self.signing).chain(&self.previous);
        keys.map(|key| {
            let mac = sign(key, OPAQUE_LABEL, realm.as_bytes());
            URL_SAFE_NO_PAD.encode(mac.as_ref().split_at(OPAQUE_BYTES).0).into()
        })
        .collect()
    }
}

fn sign(key: &hmac::Key, label: &[u8], text: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(label);
    context.update(text);
    context.sign()
}

fn verify_mac(key: &hmac::Key, signed: &[u8], mac: &[u8]) -> bool {
    let expected = sign(key, NONCE_LABEL, signed);
    let expected = expected.as_ref().split_at(MAC_BYTES).0;
    constant_time::verify_slices_are_equal(expected, mac).is_ok()
}

/// `None` if there are too few bytes.
fn parse(signed: &[u8], now: i64) -> Option<Nonce> {
    let (time, rest) = signed.split_first_chunk()?;
    let (epoch, random) = rest.split_first_chunk()?;
    let time = u32::from_be_bytes(*time);
    // The moment nearest to now with this low half.
    let ahead = time.wrapping_sub(low_half(now)).cast_signed();
    // The random bytes come last: the store shards nonces by the low bits of the id.
    let mut id = [0; 16];
    let unique = time.to_be_bytes().into_iter().chain(random.iter().copied());
    for (byte, value) in id.iter_mut().skip(16 - TIME_BYTES - RANDOM_BYTES).zip(unique) {
        *byte = value;
    }
    Some(Nonce {
        epoch: u64::from_be_bytes(*epoch),
        issued: now.saturating_add(ahead.into()),
        id: u128::from_be_bytes(id),
        is_near_end: false,
    })
}

fn low_half(seconds: i64) -> u32 {
    let [.., a, b, c, d] = seconds.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn nonces(keys: &[u8]) -> Nonces {
        let keys: Vec<[u8; 32]> = keys.iter().map(|byte| [*byte; 32]).collect();
        Nonces::new(&keys).unwrap()
    }

    #[test]
    fn nonce_round_trips_its_epoch_time_and_random_bytes() {
        let ours = nonces(b"a");
        let text = ours.issue(0x0102_0304_0506_0708, NOW, *b"random");
        assert_eq!(text.len(), 40);
        assert!(
            text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'),
            "{text}"
        );
        let nonce = ours.read(&text, NOW).unwrap();
        assert_eq!((nonce.epoch, nonce.issued), (0x0102_0304_0506_0708, NOW));
        assert!(!nonce.is_near_end);
        let other = ours.read(ours.issue(1, NOW, *b"randon"), NOW).unwrap();
        let later = ours.read(ours.issue(1, NOW + 1, *b"random"), NOW).unwrap();
        assert_ne!(nonce.id, other.id);
        assert_ne!(nonce.id, later.id);
    }

    #[test]
    fn nonce_expires_after_five_minutes() {
        let ours = nonces(b"a");
        let text = ours.issue(7, NOW, [0; 6]);
        let is_near_end = |now| ours.read(&text, now).map(|nonce| nonce.is_near_end);
        for (age, expected) in [
            (-61, Err(NonceError::Expired)),
            (-60, Ok(false)),
            (0, Ok(false)),
            (239, Ok(false)),
            (240, Ok(true)),
            (299, Ok(true)),
            (300, Err(NonceError::Expired)),
            (i64::from(i32::MAX), Err(NonceError::Expired)),
            (i64::from(i32::MIN), Err(NonceError::Expired)),
        ] {
            assert_eq!(is_near_end(NOW.wrapping_add(age)), expected, "{age}");
        }
    }

    #[test]
    fn nonce_is_signed_by_the_first_key_and_verified_by_all() {
        let (old, both, new) = (nonces(b"a"), nonces(b"ba"), nonces(b"b"));
        let issued = |by: &Nonces| by.issue(7, NOW, [9; 6]);
        assert!(both.read(issued(&old), NOW).is_ok());
        assert!(new.read(issued(&both), NOW).is_ok());
        assert_eq!(old.read(issued(&both), NOW), Err(NonceError::Foreign));
        assert_eq!(new.read(issued(&old), NOW), Err(NonceError::Foreign));
        assert_eq!(both.opaques("x"), [&new.opaques("x")[..], &old.opaques("x")[..]].concat());
        assert_ne!(new.opaques("x"), new.opaques("y"));
        assert!(Nonces::new(&[]).is_none());
    }

    #[test]
    fn nonce_with_a_changed_byte_is_foreign() {
        let ours = nonces(b"a");
        let text = ours.issue(7, NOW, *b"random");
        for at in 0..text.len() {
            for by in 1..128 {
                let mut changed = text.clone().into_bytes();
                changed[at] ^= by;
                let changed = String::from_utf8(changed).unwrap();
                assert_eq!(ours.read(&changed, NOW), Err(NonceError::Foreign), "{changed}");
            }
        }
    }

    proptest! {
        #[test]
        fn nonce_any_text_is_read_without_panic(text in "(?s).{0,80}", now: i64) {
            prop_assert_eq!(nonces(b"a").read(&text, now), Err(NonceError::Foreign));
        }

        #[test]
        fn nonce_any_value_round_trips(epoch: u64, now in -1i64 << 60..1 << 60, random: NonceRandom, age in -60i64..300) {
            let ours = nonces(b"a");
            let nonce = ours.read(ours.issue(epoch, now, random), now + age).unwrap();
            prop_assert_eq!((nonce.epoch, nonce.issued), (epoch, now));
        }

        #[test]
        fn nonce_read_outside_its_life_is_expired(now: u32, age in 300i64..1 << 31) {
            let ours = nonces(b"a");
            let text = ours.issue(7, now.into(), [0; 6]);
            for at in [i64::from(now) + age, i64::from(now) - age] {
                prop_assert_eq!(ours.read(&text, at), Err(NonceError::Expired));
            }
        }
    }
}
