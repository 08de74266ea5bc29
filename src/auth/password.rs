//! Password records: an Argon2id hash, and for each realm with Digest the sealed HA1.
//!
//! Slow on purpose: `make_record` and `verify` belong on the hasher's thread. The throttle limits who may
//! try, and how often. Verification takes as long for an unknown user as for an existing one, because it uses
//! a dummy hash.

mod argon;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::OnceLock;

use super::credential_text;
use super::digest::ha1;
use super::key::KeySet;
use super::seal::{self, SealContext, SealError};
use crate::fault::OrBug;
use crate::json::{self, Json};
use crate::model::types::PASSWORD_BYTES_MAX;
use crate::model::{Algorithm, AuthScheme, Model};

/// The maximum of stored Digest credentials for realms that the model does not declare now.
const ABSENT_REALM_DIGESTS_MAX: usize = 16;

/// The content of the column `password`, as JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasswordRecord {
    /// A PHC string, which includes the parameters of the hash, so that new hashes can use other ones.
    pub argon2: String,
    /// The realm, the algorithm, the sealed HA1.
    pub digests: Vec<(String, Algorithm, String)>,
}

/// Realms of the model and of stored Digest credentials that do not fit each other.
#[derive(Debug, PartialEq, Eq)]
pub struct DigestMismatch {
    /// Realms that offer Digest, and for which the user has no usable credentials.
    pub lacking: BTreeSet<String>,
    /// Realms with stored credentials that the model does not use.
    pub unused: BTreeSet<String>,
}

/// The result of resealing a record with a new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResealResult {
    pub is_changed: bool,
    /// Digest credentials that no key opens, and that were removed.
    pub dropped: usize,
}

/// Why a password is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordError {
    Empty,
    TooLong,
    /// RFC 7617 §2: no control characters.
    Control,
    /// The system has no randomness or no memory.
    System,
}

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("expected a password, got nothing"),
            Self::TooLong => write!(f, "expected at most {PASSWORD_BYTES_MAX} bytes"),
            Self::Control => f.write_str("expected no control characters"),
            Self::System => f.write_str("the system has no randomness or no memory for it"),
        }
    }
}

/// Checks that a text is allowed as a password; fast.
pub fn check_password(password: &str) -> Result<(), PasswordError> {
    match password {
        "" => Err(PasswordError::Empty),
        _ if password.len() > PASSWORD_BYTES_MAX => Err(PasswordError::TooLong),
        _ if password.chars().any(char::is_control) => Err(PasswordError::Control),
        _ => Ok(()),
    }
}

/// A generated password: 120 random bits in letters and digits that are not mistaken for one another.
pub fn generate() -> Result<String, PasswordError> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|_| PasswordError::System)?;
    let letter = |byte: u8| LETTERS.get(usize::from(byte % 32)).or_bug("there are 32 letters");
    Ok(bytes.into_iter().map(letter).copied().map(char::from).collect())
}

/// The record of a new password. Slow. Without keys, as with `--open`, the record works for Basic only.
pub fn make_record(
    model: &Model,
    keys: Option<&KeySet>,
    name: &str,
    password: &str,
) -> Result<PasswordRecord, PasswordError> {
    check_password(password)?;
    let argon2 =
        argon::hash(credential_text::to_nfc(password).as_bytes()).ok_or(PasswordError::System)?;
    let mut record = PasswordRecord { argon2, digests: Vec::new() };
    if let Some(keys) = keys {
        record.complete(model, keys, name, password)?;
    }
    Ok(record)
}

/// A hash that matches no password.
pub fn dummy_hash() -> &'static str {
    static DUMMY_HASH: OnceLock<String> = OnceLock::new();
    DUMMY_HASH.get_or_init(argon::dummy_hash)
}

/// Whether the password is correct. Slow, and equally slow when there is no such user.
pub fn verify(record: Option<&PasswordRecord>, password: &str) -> bool {
    // No user has such a password, so refusing it immediately reveals nothing.
    if check_password(password).is_err() {
        return false;
    }
    let password = credential_text::to_nfc(password);
    let hash: &str = match record {
        Some(record) => &record.argon2,
        None => dummy_hash(),
    };
    match argon::verify(hash, password.as_bytes()) {
        Some(is_right) => is_right,
        // The record is damaged: the check takes as long as any other.
        None => {
            argon::verify(dummy_hash(), password.as_bytes());
            false
        }
    }
}

/// Whether a realm with Digest has no usable HA1 in this record: the realm was added later, or the key that
/// sealed the HA1 is gone. `PasswordRecord::complete` repairs it at the next successful login by password.
pub fn lacks_digests(record: &PasswordRecord, model: &Model, keys: &KeySet) -> bool {
    let is_there = |(realm, algorithm): (&str, Algorithm)| {
        record
            .find(realm, algorithm)
            .is_some_and(|(_, _, sealed)| seal::is_sealed_by_known_key(keys, sealed))
    };
    !offered_digests(model).all(is_there)
}

/// Each realm that offers Digest, with each of its algorithms.
fn offered_digests(model: &Model) -> impl Iterator<Item = (&str, Algorithm)> {
    model
        .realms
        .iter()
        .filter(|realm| realm.schemes.contains(&AuthScheme::Digest))
        .flat_map(|realm| realm.algorithms.iter().map(|algorithm| (&*realm.name, *algorithm)))
}

impl PasswordRecord {
    /// `None` if the record is damaged.
    pub fn parse(text: &str) -> Option<Self> {
        let Json::Object(members) = json::parse(text.as_bytes(), 3).ok()? else {
            return None;
        };
        let (mut argon2, mut digests) = (None, Vec::new());
        for (key, value) in members {
            match (&*key, value) {
                ("argon2", Json::Text(text)) => argon2 = Some(text.into_owned()),
                ("digests", Json::List(list)) => {
                    digests = list.iter().map(parse_digest).collect::<Option<_>>()?;
                }
                _ => return None,
            }
        }
        Some(Self { argon2: argon2?, digests })
    }

    /// The HA1 for one realm and algorithm, in the form that `Ha1::parse` accepts; `None` if there is none.
    pub fn ha1(
        &self,
        keys: &KeySet,
        user: &str,
        (realm, algorithm): (&str, Algorithm),
    ) -> Option<Result<String, SealError>> {
        let (_, _, sealed) = self.find(realm, algorithm)?;
        let opened = seal::open(
            keys,
            &seal_context(&credential_text::to_nfc(user), realm, algorithm),
            sealed,
        );
        Some(opened.and_then(|ha1| String::from_utf8(ha1).map_err(|_| SealError::Broken)))
    }

    /// Adds missing Digest credentials, from a password that is known to be correct. Fast. Drops those that a
    /// declared realm no longer offers; keeps those of a realm that the model does not declare now, since the
    /// realm may be declared again.
    pub fn complete(
        &mut self,
        model: &Model,
        keys: &KeySet,
        name: &str,
        password: &str,
    ) -> Result<(), PasswordError> {
        let (name, password) = (credential_text::to_nfc(name), credential_text::to_nfc(password));
        let is_declared = |name: &str| model.realms.iter().any(|realm| *realm.name == *name);
        let absent = self.digests.iter().filter(|(realm, _, _)| !is_declared(realm));
        // The list ends with the latest ones.
        let surplus = absent.clone().count().saturating_sub(ABSENT_REALM_DIGESTS_MAX);
        let mut digests: Vec<_> = absent.skip(surplus).cloned().collect();
        for (realm, algorithm) in offered_digests(model) {
            let had = self.find(realm, algorithm);
            let had = had.filter(|(_, _, sealed)| seal::is_sealed_by_known_key(keys, sealed));
            digests.push(match had {
                Some(had) => had.clone(),
                None => {
                    let ha1 = ha1(algorithm, &name, realm, &password);
                    let context = seal_context(&name, realm, algorithm);
                    let sealed = seal::seal(keys, &context, ha1.as_text().as_bytes())
                        .ok_or(PasswordError::System)?;
                    (realm.to_owned(), algorithm, sealed)
                }
            });
        }
        self.digests = digests;
        Ok(())
    }

    /// Reseals the credentials that the first key has not sealed, and drops those that no key opens. `None`:
    /// the system has no randomness.
    pub fn reseal(&mut self, keys: &KeySet, name: &str) -> Option<ResealResult> {
        let before = self.digests.clone();
        let name = credential_text::to_nfc(name);
        let mut digests = Vec::new();
        for (realm, algorithm, sealed) in &before {
            let context = seal_context(&name, realm, *algorithm);
            if seal::is_sealed_by_first_key(keys, sealed) {
                digests.push((realm.clone(), *algorithm, sealed.clone()));
            } else if let Ok(ha1) = seal::open(keys, &context, sealed) {
                digests.push((realm.clone(), *algorithm, seal::seal(keys, &context, &ha1)?));
            }
        }
        self.digests = digests;
        let dropped = before.len().saturating_sub(self.digests.len());
        Some(ResealResult { is_changed: self.digests != before, dropped })
    }

    /// The mismatch of the stored Digest credentials and the model: the user has no credentials for a realm
    /// that offers Digest, and has credentials that the model does not use, because the realm was renamed or
    /// had other algorithms. `None` if there is no such mismatch, and for a user who never had Digest
    /// credentials.
    pub fn digest_mismatch(&self, model: &Model) -> Option<DigestMismatch> {
        let offered: BTreeSet<&str> = offered_digests(model).map(|(realm, _)| realm).collect();
        let has_any = |realm: &str| {
            let mut algorithms = offered_digests(model).filter(|(of, _)| *of == realm);
            algorithms.any(|(realm, algorithm)| self.find(realm, algorithm).is_some())
        };
        let lacking: BTreeSet<_> = offered.into_iter().filter(|realm| !has_any(realm)).collect();
        let is_unused = |(realm, algorithm, _): &&(String, Algorithm, String)| {
            !offered_digests(model).any(|offered| offered == (realm.as_str(), *algorithm))
        };
        let unused: BTreeSet<_> =
            self.digests.iter().filter(is_unused).map(|(realm, _, _)| realm.clone()).collect();
        let lacking: BTreeSet<_> = lacking.into_iter().map(str::to_owned).collect();
        (!lacking.is_empty() && !unused.is_empty()).then_some(DigestMismatch { lacking, unused })
    }

    fn find(&self, realm: &str, algorithm: Algorithm) -> Option<&(String, Algorithm, String)> {
        let is_it = |(its_realm, its_algorithm, _): &&(String, Algorithm, String)| {
            its_realm == realm && *its_algorithm == algorithm
        };
        self.digests.iter().find(is_it)
    }
}

fn seal_context<'a>(user: &'a str, realm: &'a str, algorithm: Algorithm) -> SealContext<'a> {
    SealContext { user, realm, algorithm: algorithm_token(algorithm) }
}

/// The name of the algorithm on the wire and in the database.
fn algorithm_token(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Md5 => "MD5",
        Algorithm::Sha256 => "SHA-256",
    }
}

fn parse_digest(json: &Json<'_>) -> Option<(String, Algorithm, String)> {
    let Json::List(parts) = json else { return None };
    let [Json::Text(realm), Json::Text(algorithm), Json::Text(sealed)] = parts.as_slice() else {
        return None;
    };
    let known = [Algorithm::Md5, Algorithm::Sha256];
    let algorithm = known.into_iter().find(|known| algorithm_token(*known) == algorithm)?;
    Some((realm.to_string(), algorithm, sealed.to_string()))
}

impl fmt::Display for PasswordRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &str| Json::Text(Cow::Owned(text.to_owned()));
        let digests = self.digests.iter().map(|(realm, algorithm, sealed)| {
            Json::List(vec![text(realm), text(algorithm_token(*algorithm)), text(sealed)])
        });
        let members = vec![
            ("argon2".into(), text(&self.argon2)),
            ("digests".into(), Json::List(digests.collect())),
        ];
        let mut out = Vec::new();
        json::write(&mut out, &Json::Object(members));
        f.write_str(&String::from_utf8_lossy(&out))
    }
}

#[cfg(test)]
mod tests;
