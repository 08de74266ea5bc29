//! Argon2id, stored as a PHC string: `$argon2id$v=19$m=19456,t=2,p=1$SALT$HASH`.
//!
//! It knows no users and no throttle. A stored hash is verified with its own parameters, within bounds: a
//! database from elsewhere cannot make one password cost gigabytes.

use std::cell::RefCell;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::fault::OrBug;

/// Parameters of new hashes: the second choice of RFC 9106, scaled down as OWASP recommends.
const MEMORY_KIB: u32 = 19_456;
const PASSES: u32 = 2;
const LANES: u32 = 1;
/// Upper bounds for a stored hash.
const MEMORY_KIB_MAX: u32 = 262_144;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;

const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

struct PhcHash {
    params: Params,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

/// A new hash with a new salt. `None`: no randomness, or no memory.
pub(super) fn hash(password: &[u8]) -> Option<String> {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).ok()?;
    let params = Params::new(MEMORY_KIB, PASSES, LANES, Some(HASH_BYTES)).ok()?;
    let mut hash = [0; HASH_BYTES];
    compute(params, password, &salt, &mut hash)?;
    Some(phc_string(&salt, &hash))
}

/// A hash that matches no password, of the usual cost: its bytes are random.
pub(super) fn dummy_hash() -> String {
    let (mut salt, mut hash) = ([0; SALT_BYTES], [0; HASH_BYTES]);
    let filled = getrandom::fill(&mut salt).and_then(|()| getrandom::fill(&mut hash));
    filled.or_bug("a server does not start without randomness");
    phc_string(&salt, &hash)
}

/// `None`: the text is damaged, and nothing was hashed.
pub(super) fn verify(text: &str, password: &[u8]) -> Option<bool> {
    let PhcHash { params, salt, hash } = parse(text)?;
    let mut made = [0; HASH_BYTES];
    compute(params, password, &salt, &mut made)?;
    Some(verify_slices_are_equal(&made, &hash).is_ok())
}

/// Whether the hash has the parameters of new hashes.
#[cfg(test)]
fn is_current(text: &str) -> bool {
    parse(text).is_some_and(|PhcHash { params, .. }| {
        (params.m_cost(), params.t_cost(), params.p_cost()) == (MEMORY_KIB, PASSES, LANES)
    })
}

thread_local! {
    /// The memory of one hash of the usual cost, reused for the next one: allocating it for each hash would
    /// fragment the heap by ten times its size.
    static BLOCKS: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

fn compute(params: Params, password: &[u8], salt: &[u8], hash: &mut [u8]) -> Option<()> {
    let (count, is_usual) = (params.block_count(), params.m_cost() <= MEMORY_KIB);
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    BLOCKS.with_borrow_mut(|kept| {
        let mut larger = Vec::new();
        let blocks = if is_usual { kept } else { &mut larger };
        if let Some(more) = count.checked_sub(blocks.len()) {
            blocks.try_reserve_exact(more).ok()?;
            blocks.resize(count, Block::default());
        }
        let blocks = blocks.get_mut(..count)?;
        argon.hash_password_into_with_memory(password, salt, hash, blocks).ok()
    })
}

fn phc_string(salt: &[u8], hash: &[u8]) -> String {
    format!(
        "$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={LANES}${}${}",
        STANDARD_NO_PAD.encode(salt),
        STANDARD_NO_PAD.encode(hash)
    )
}

fn parse(text: &str) -> Option<PhcHash> {
    let rest = text.strip_prefix("$argon2id$v=19$")?;
    let mut parts = rest.split('$');
    let (numbers, salt, hash) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let mut numbers = numbers.split(',');
    let mut number = |name: &str, max: u32| {
        let number: u32 = numbers.next()?.strip_prefix(name)?.parse().ok()?;
        (number <= max).then_some(number)
    };
    let memory = number("m=", MEMORY_KIB_MAX)?;
    let passes = number("t=", PASSES_MAX)?;
    let lanes = number("p=", LANES_MAX)?;
    if numbers.next().is_some() {
        return None;
    }
    let params = Params::new(memory, passes, lanes, Some(HASH_BYTES)).ok()?;
    let (salt, hash) = (STANDARD_NO_PAD.decode(salt).ok()?, STANDARD_NO_PAD.decode(hash).ok()?);
    (hash.len() == HASH_BYTES).then_some(PhcHash { params, salt, hash })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// From the reference implementation: `echo -n password | argon2 somesalt -id -t 2 -k 256 -p 1 -l 32`.
    #[test]
    fn argon_hash_of_the_reference_implementation_verifies() {
        let known = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$\
                     nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
        assert_eq!(verify(known, b"password"), Some(true));
        assert_eq!(verify(known, b"passwore"), Some(false));
        assert!(!is_current(known));
    }

    #[test]
    fn argon_new_hash_names_its_parameters_and_has_its_own_salt() {
        let (one, other) = (hash(b"secret").unwrap(), hash(b"secret").unwrap());
        assert!(one.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{one}");
        assert_ne!(one, other);
        assert!(is_current(&one));
        assert_eq!(verify(&one, b"secret"), Some(true));
        assert_eq!(verify(&one, b"Secret"), Some(false));
    }

    #[test]
    fn argon_dummy_hash_has_the_usual_cost() {
        assert!(is_current(&dummy_hash()));
        assert_ne!(dummy_hash(), dummy_hash());
        assert_eq!(verify(&dummy_hash(), b""), Some(false));
    }

    #[test]
    fn argon_too_expensive_parameters_are_refused() {
        let tail = "$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
        for numbers in ["m=262145,t=2,p=1", "m=256,t=17,p=1", "m=256,t=2,p=17", "m=1,t=2,p=1"] {
            assert_eq!(verify(&format!("$argon2id$v=19${numbers}{tail}"), b""), None, "{numbers}");
        }
        for text in [
            "",
            "$argon2i$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65",
            "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65",
        ] {
            assert_eq!(verify(text, b""), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn argon_any_text_is_parsed_or_refused(text in "\\$argon2id\\$v=19\\$m=[0-9]{1,2},t=[0-9],p=[0-9]\\PC{0,60}") {
            verify(&text, b"secret");
        }
    }
}
