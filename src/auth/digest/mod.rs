//! The Digest scheme (RFC 7616, and RFC 2617 for MD5): parsing and verification of credentials.
//!
//! Pure: other modules know the age of nonces, used counts and users. First `read`, then
//! `DigestCredentials::check_scope` (are they for this realm and this request), then
//! `KeyedCredentials::verify` with the user's HA1. Hashes cover values as they were sent, also where two
//! spellings mean the same, such as the digits of `nc`.

mod extended;
mod hash;
mod target;

use std::borrow::Cow;

use super::credential_text;
use super::parameters::{AuthParameters, MalformedCredentials};
use crate::fault::OrBug;
use crate::model::{Algorithm, AuthScheme, Qop, Realm};
use hash::PartialHash;
pub use hash::{Ha1, HexDigest, ha1, hash_bytes, userhash};
pub use target::DigestTarget;

const CNONCE_BYTES_MAX: usize = 512;

/// The credentials of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestCredentials<'h> {
    pub user: DigestUsername<'h>,
    pub nonce: Cow<'h, [u8]>,
    realm: Cow<'h, str>,
    uri: Cow<'h, [u8]>,
    response: Cow<'h, [u8]>,
    opaque: Option<Cow<'h, [u8]>>,
    /// `None`: an algorithm that we do not know.
    algorithm: Option<Algorithm>,
    protection: QualityOfProtection<'h>,
}

/// The user name that the client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DigestUsername<'h> {
    /// In NFC.
    Name(Cow<'h, str>),
    /// The hash of a name, to be compared with the `userhash` of every user.
    Hash(Cow<'h, str>),
}

/// The quality of protection, with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
enum QualityOfProtection<'h> {
    /// No `qop`, as in RFC 2069.
    Legacy,
    Auth(QopParameters<'h>),
    AuthInt(QopParameters<'h>),
    /// A `qop` that we do not know.
    Unknown,
}

/// The parameters that accompany a `qop`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QopParameters<'h> {
    nc: [u8; 8],
    count: u32,
    cnonce: Cow<'h, [u8]>,
}

/// Why well-formed credentials are not for this realm or this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeMismatch {
    /// 400: the credentials belong to another request. The other mismatches are 401 without `stale`.
    Uri,
    Realm,
    Opaque,
    Algorithm,
    Qop,
}

/// Parses the part of the header after `Digest`.
pub fn read(parameters: &[u8]) -> Result<DigestCredentials<'_>, MalformedCredentials> {
    let mut sent = AuthParameters::read(parameters)?;
    let response =
        sent.take_ascii("response")?.ok_or(MalformedCredentials("expected a response"))?;
    if !response.iter().fold(true, |all, byte| all & byte.is_ascii_hexdigit()) {
        return Err(MalformedCredentials("expected a response of hexadecimal digits"));
    }
    Ok(DigestCredentials {
        user: parse_username(&mut sent)?,
        nonce: sent.take_ascii("nonce")?.ok_or(MalformedCredentials("expected a nonce"))?,
        realm: sent.take_text("realm")?.ok_or(MalformedCredentials("expected a realm"))?,
        uri: sent.take_quoted("uri")?.ok_or(MalformedCredentials("expected a uri"))?,
        response,
        opaque: sent.take_ascii("opaque")?,
        algorithm: parse_algorithm(sent.take_value("algorithm").as_deref()),
        protection: parse_protection(&mut sent)?,
    })
}

// RFC 7616 §3.4: `username` or `username*`, never both; a hash stands in `username`.
fn parse_username<'h>(
    sent: &mut AuthParameters<'h>,
) -> Result<DigestUsername<'h>, MalformedCredentials> {
    let is_hash = match sent.take_token("userhash")?.as_deref() {
        None => false,
        Some(flag) if flag.eq_ignore_ascii_case(b"false") => false,
        Some(flag) if flag.eq_ignore_ascii_case(b"true") => true,
        Some(_) => return Err(MalformedCredentials("expected userhash=true or userhash=false")),
    };
    match (sent.take_text("username")?, sent.take_token("username*")?) {
        (Some(name), None) if is_hash => Ok(DigestUsername::Hash(name)),
        (Some(name), None) => Ok(DigestUsername::Name(credential_text::to_nfc(name))),
        (None, Some(value)) if !is_hash => {
            let name = extended::read(&value)
                .ok_or(MalformedCredentials("expected username* in UTF-8"))?;
            Ok(DigestUsername::Name(credential_text::to_nfc(Cow::Owned(name))))
        }
        _ => Err(MalformedCredentials("expected either username or username*")),
    }
}

// The default is MD5: wget and others omit the parameter although it was offered.
fn parse_algorithm(sent: Option<&[u8]>) -> Option<Algorithm> {
    match sent {
        None => Some(Algorithm::Md5),
        Some(name) if name.eq_ignore_ascii_case(b"MD5") => Some(Algorithm::Md5),
        Some(name) if name.eq_ignore_ascii_case(b"SHA-256") => Some(Algorithm::Sha256),
        Some(_) => None,
    }
}

fn parse_protection<'h>(
    sent: &mut AuthParameters<'h>,
) -> Result<QualityOfProtection<'h>, MalformedCredentials> {
    match sent.take_value("qop").as_deref() {
        None => Ok(QualityOfProtection::Legacy),
        Some(b"auth") => parse_qop_parameters(sent).map(QualityOfProtection::Auth),
        Some(b"auth-int") => parse_qop_parameters(sent).map(QualityOfProtection::AuthInt),
        Some(_) => Ok(QualityOfProtection::Unknown),
    }
}

fn parse_qop_parameters<'h>(
    sent: &mut AuthParameters<'h>,
) -> Result<QopParameters<'h>, MalformedCredentials> {
    // RFC 7616 §3.4: nc is 8 hex digits.
    const NC_EXPECTED: MalformedCredentials =
        MalformedCredentials("expected nc with qop, as 8 hexadecimal digits, from 00000001 on");
    let nc = sent.take_value("nc").ok_or(NC_EXPECTED)?;
    let nc: [u8; 8] = nc.as_ref().try_into().map_err(|_| NC_EXPECTED)?;
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    let count = nc.iter().try_fold(0, |count, next| Some((count << 4) | digit(next)?));
    let cnonce = sent.take_ascii("cnonce")?.filter(|cnonce| !cnonce.is_empty());
    let cnonce = cnonce.ok_or(MalformedCredentials("expected a cnonce with qop"))?;
    if cnonce.len() > CNONCE_BYTES_MAX {
        return Err(MalformedCredentials("expected a cnonce of at most 512 bytes"));
    }
    // The count includes this request.
    let count = count.filter(|count| *count > 0).ok_or(NC_EXPECTED)?;
    Ok(QopParameters { nc, count, cnonce })
}

impl DigestCredentials<'_> {
    /// Checks that the credentials are for this realm and this request; returns their algorithm. `opaques`
    /// are those that the realm has issued.
    pub fn check_scope(
        &self,
        realm: &Realm,
        opaques: &[Box<str>],
        target: &DigestTarget<'_>,
    ) -> Result<Algorithm, ScopeMismatch> {
        if !target.matches_uri(&self.uri) {
            return Err(ScopeMismatch::Uri);
        }
        if self.realm != *realm.name || !realm.schemes.contains(&AuthScheme::Digest) {
            return Err(ScopeMismatch::Realm);
        }
        let known = self.algorithm.filter(|algorithm| realm.algorithms.contains(algorithm));
        let algorithm = known.ok_or(ScopeMismatch::Algorithm)?;
        match &self.protection {
            // A stronger `qop` than was offered is fine: it only covers more.
            QualityOfProtection::Auth(_) | QualityOfProtection::AuthInt(_) => {}
            QualityOfProtection::Legacy if realm.legacy && algorithm == Algorithm::Md5 => {}
            QualityOfProtection::Legacy | QualityOfProtection::Unknown => {
                return Err(ScopeMismatch::Qop);
            }
        }
        let opaque = self.opaque.as_deref();
        if !opaques.iter().any(|known| Some(known.as_bytes()) == opaque) {
            return Err(ScopeMismatch::Opaque);
        }
        Ok(algorithm)
    }

    /// How often the client says it has used the nonce; `None` without `qop`.
    pub fn count(&self) -> Option<u32> {
        self.qop_parameters().map(|counted| counted.count)
    }

    /// Whether `verify` needs the hash of the body (`auth-int`).
    pub fn covers_body(&self) -> bool {
        matches!(self.protection, QualityOfProtection::AuthInt(_))
    }

    /// Combines the credentials with the user's HA1; `None` for an algorithm or a `qop` that we do not know.
    pub fn with_ha1(&self, ha1: &Ha1) -> Option<KeyedCredentials<'_>> {
        let algorithm = self.algorithm?;
        let (ha1, nonce) = (ha1.as_bytes(), &*self.nonce);
        let begun = match (self.qop_parameters(), self.qop()) {
            (Some(counted), Some(qop)) => {
                let (cnonce, qop) = (&*counted.cnonce, qop_text(qop).as_bytes());
                PartialHash::new(algorithm, &[ha1, nonce, &counted.nc, cnonce, qop])
            }
            _ if self.protection == QualityOfProtection::Legacy => {
                PartialHash::new(algorithm, &[ha1, nonce])
            }
            _ => return None,
        };
        Some(KeyedCredentials { proof: self, algorithm, prefix: begun })
    }

    #[cfg(test)]
    pub fn verify(&self, ha1: &Ha1, method: &str, body_hash: Option<&HexDigest>) -> bool {
        self.with_ha1(ha1).is_some_and(|keyed| keyed.verify(method, body_hash))
    }

    fn qop_parameters(&self) -> Option<&QopParameters<'_>> {
        match &self.protection {
            QualityOfProtection::Auth(counted) | QualityOfProtection::AuthInt(counted) => {
                Some(counted)
            }
            QualityOfProtection::Legacy | QualityOfProtection::Unknown => None,
        }
    }

    fn qop(&self) -> Option<Qop> {
        match self.protection {
            QualityOfProtection::Auth(_) => Some(Qop::Auth),
            QualityOfProtection::AuthInt(_) => Some(Qop::AuthInt),
            QualityOfProtection::Legacy | QualityOfProtection::Unknown => None,
        }
    }
}

/// Credentials and HA1. The client's response and the server's begin with the same hash.
pub struct KeyedCredentials<'p> {
    proof: &'p DigestCredentials<'p>,
    algorithm: Algorithm,
    prefix: PartialHash,
}

impl KeyedCredentials<'_> {
    /// Whether the sender knows the password. Takes the same time in both cases.
    pub fn verify(&self, method: &str, body_hash: Option<&HexDigest>) -> bool {
        let expected = self.compute_response(method, body_hash);
        expected.is_some_and(|expected| expected.equals_constant_time(&self.proof.response))
    }

    /// The value of `Authentication-Info`, by which the server proves that it knows the password too (RFC
    /// 7616 §3.5). `body_hash` is of the response's body, and only needed for `auth-int`.
    pub fn authentication_info(
        &self,
        body_hash: Option<&HexDigest>,
        next_nonce: Option<&str>,
    ) -> Option<String> {
        let mut out = String::new();
        if let (Some(qop), Some(counted)) = (self.proof.qop(), self.proof.qop_parameters())
            && let Some(proof) = self.compute_response("", body_hash)
        {
            let cnonce = str::from_utf8(&counted.cnonce).or_bug("`take_ascii` has checked it");
            let (qop, proof) = (qop_text(qop), proof.as_text());
            let names = "qop=, rspauth=\"\", cnonce=\"\", nc=12345678".len();
            out.reserve_exact(names + qop.len() + proof.len() + cnonce.len());
            out.push_str("qop=");
            out.push_str(qop);
            out.push_str(", rspauth=\"");
            out.push_str(proof);
            out.push_str("\", cnonce=\"");
            push_escaped(&mut out, cnonce);
            out.push_str("\", nc=");
            out.push_str(str::from_utf8(&counted.nc).or_bug("it is eight digits"));
        }
        if let Some(nonce) = next_nonce {
            out.push_str(if out.is_empty() { "nextnonce=\"" } else { ", nextnonce=\"" });
            push_escaped(&mut out, nonce);
            out.push('"');
        }
        (!out.is_empty()).then_some(out)
    }

    // RFC 7616 §3.4.1 to §3.4.3; for a server's proof the method is empty (§3.5).
    fn compute_response(&self, method: &str, body_hash: Option<&HexDigest>) -> Option<HexDigest> {
        let (method, uri) = (method.as_bytes(), &*self.proof.uri);
        let over = match &self.proof.protection {
            QualityOfProtection::Legacy | QualityOfProtection::Auth(_) => {
                hash::hash_joined(self.algorithm, &[method, uri])
            }
            QualityOfProtection::AuthInt(_) => {
                hash::hash_joined(self.algorithm, &[method, uri, body_hash?.as_bytes()])
            }
            QualityOfProtection::Unknown => return None,
        };
        Some(self.prefix.finish(over.as_bytes()))
    }
}

/// A `qop` as text.
pub fn qop_text(qop: Qop) -> &'static str {
    match qop {
        Qop::Auth => "auth",
        Qop::AuthInt => "auth-int",
    }
}

fn push_escaped(out: &mut String, text: &str) {
    if !text.contains(['"', '\\']) {
        return out.push_str(text);
    }
    for letter in text.chars() {
        if matches!(letter, '"' | '\\') {
            out.push('\\');
        }
        out.push(letter);
    }
}

#[cfg(test)]
mod tests;
