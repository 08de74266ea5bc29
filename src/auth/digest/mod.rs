//! The Digest scheme (RFC 7616, and RFC 2617 for MD5): parsing and verification of credentials.
//!
//! Pure: other modules know the age of nonces, used counts and users. First `read`, then
//! `DigestCredentials::check_scope` (are they for this realm and this request), then
//! `DigestCredentials::verify` with the user's HA1. The one surprising thing: hashes cover values as they
//! were sent, also where two spellings mean the same, such as the digits of `nc`.

mod extended;
mod hash;
mod target;

use std::borrow::Cow;

use super::parameters::{Malformed, Parameters};
use super::text;
use crate::model::{Algorithm, Qop, Realm, Scheme};
use hash::Begun;
pub use hash::{Ha1, Hash, ha1, hash, userhash};
pub use target::Target;

const CNONCE_BYTES_MAX: usize = 512;

/// The credentials of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof<'h> {
    pub user: User<'h>,
    pub nonce: Cow<'h, [u8]>,
    realm: Cow<'h, str>,
    uri: Cow<'h, [u8]>,
    response: Cow<'h, [u8]>,
    opaque: Option<Cow<'h, [u8]>>,
    /// `None`: an algorithm that we do not know.
    algorithm: Option<Algorithm>,
    covers: Covers<'h>,
}

/// The user name that the client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User<'h> {
    /// In NFC.
    Name(Cow<'h, str>),
    /// To be compared with `userhash` of every user.
    Hash(Cow<'h, str>),
}

/// The quality of protection, with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Covers<'h> {
    /// No `qop` at all, as RFC 2069 had it.
    Least,
    Request(Counted<'h>),
    Body(Counted<'h>),
    /// A `qop` that we do not know.
    Unknown,
}

/// The parameters that come with a `qop`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted<'h> {
    nc: [u8; 8],
    count: u32,
    cnonce: Cow<'h, [u8]>,
}

/// Why well-formed credentials are not for this realm or this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit {
    /// 400: they belong to another request. The others are 401, not stale.
    Uri,
    Realm,
    Opaque,
    Algorithm,
    Qop,
}

/// Parses what follows `Digest` in the header.
pub fn read(parameters: &[u8]) -> Result<Proof<'_>, Malformed> {
    let mut sent = Parameters::read(parameters)?;
    let response = sent.take_ascii("response")?.ok_or(Malformed("expected a response"))?;
    if !response.iter().fold(true, |all, byte| all & byte.is_ascii_hexdigit()) {
        return Err(Malformed("expected a response of hexadecimal digits"));
    }
    Ok(Proof {
        user: user(&mut sent)?,
        nonce: sent.take_ascii("nonce")?.ok_or(Malformed("expected a nonce"))?,
        realm: sent.take_text("realm")?.ok_or(Malformed("expected a realm"))?,
        uri: sent.take_quoted("uri")?.ok_or(Malformed("expected a uri"))?,
        response,
        opaque: sent.take_ascii("opaque")?,
        algorithm: algorithm(sent.take("algorithm").as_deref()),
        covers: covers(&mut sent)?,
    })
}

// RFC 7616 §3.4: `username` or `username*`, never both; a hash stands in `username`.
fn user<'h>(sent: &mut Parameters<'h>) -> Result<User<'h>, Malformed> {
    let is_hash = match sent.take_token("userhash")?.as_deref() {
        None => false,
        Some(flag) if flag.eq_ignore_ascii_case(b"false") => false,
        Some(flag) if flag.eq_ignore_ascii_case(b"true") => true,
        Some(_) => return Err(Malformed("expected userhash=true or userhash=false")),
    };
    match (sent.take_text("username")?, sent.take_token("username*")?) {
        (Some(name), None) if is_hash => Ok(User::Hash(name)),
        (Some(name), None) => Ok(User::Name(text::composed(name))),
        (None, Some(value)) if !is_hash => {
            let name = extended::read(&value).ok_or(Malformed("expected username* in UTF-8"))?;
            Ok(User::Name(text::composed(Cow::Owned(name))))
        }
        _ => Err(Malformed("expected either username or username*")),
    }
}

// Absent, it is MD5: wget and others leave it out although it was offered.
fn algorithm(sent: Option<&[u8]>) -> Option<Algorithm> {
    match sent {
        None => Some(Algorithm::Md5),
        Some(name) if name.eq_ignore_ascii_case(b"MD5") => Some(Algorithm::Md5),
        Some(name) if name.eq_ignore_ascii_case(b"SHA-256") => Some(Algorithm::Sha256),
        Some(_) => None,
    }
}

fn covers<'h>(sent: &mut Parameters<'h>) -> Result<Covers<'h>, Malformed> {
    match sent.take("qop").as_deref() {
        None => Ok(Covers::Least),
        Some(b"auth") => counted(sent).map(Covers::Request),
        Some(b"auth-int") => counted(sent).map(Covers::Body),
        Some(_) => Ok(Covers::Unknown),
    }
}

fn counted<'h>(sent: &mut Parameters<'h>) -> Result<Counted<'h>, Malformed> {
    // RFC 7616 §3.4: nc is 8 hex digits.
    const EIGHT: Malformed =
        Malformed("expected nc with qop, as 8 hexadecimal digits, from 00000001 on");
    let nc = sent.take("nc").ok_or(EIGHT)?;
    let nc: [u8; 8] = nc.as_ref().try_into().map_err(|_| EIGHT)?;
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    let count = nc.iter().try_fold(0, |count, next| Some((count << 4) | digit(next)?));
    let cnonce = sent.take_ascii("cnonce")?.filter(|cnonce| !cnonce.is_empty());
    let cnonce = cnonce.ok_or(Malformed("expected a cnonce with qop"))?;
    if cnonce.len() > CNONCE_BYTES_MAX {
        return Err(Malformed("expected a cnonce of at most 512 bytes"));
    }
    // The count includes this request.
    let count = count.filter(|count| *count > 0).ok_or(EIGHT)?;
    Ok(Counted { nc, count, cnonce })
}

impl Proof<'_> {
    /// Checks that the credentials are for this realm and this request; returns their algorithm. `opaques`
    /// are those that the realm has issued.
    pub fn fits(
        &self,
        realm: &Realm,
        opaques: &[Box<str>],
        target: &Target<'_>,
    ) -> Result<Algorithm, Misfit> {
        if !target.is_named_by(&self.uri) {
            return Err(Misfit::Uri);
        }
        if self.realm != *realm.name || !realm.schemes.contains(&Scheme::Digest) {
            return Err(Misfit::Realm);
        }
        let known = self.algorithm.filter(|algorithm| realm.algorithms.contains(algorithm));
        let algorithm = known.ok_or(Misfit::Algorithm)?;
        match &self.covers {
            // A stronger `qop` than was offered is fine: it only covers more.
            Covers::Request(_) | Covers::Body(_) => {}
            Covers::Least if realm.legacy && algorithm == Algorithm::Md5 => {}
            Covers::Least | Covers::Unknown => return Err(Misfit::Qop),
        }
        let opaque = self.opaque.as_deref();
        if !opaques.iter().any(|known| Some(known.as_bytes()) == opaque) {
            return Err(Misfit::Opaque);
        }
        Ok(algorithm)
    }

    /// How often the client says it has used the nonce; `None` without `qop`.
    pub fn count(&self) -> Option<u32> {
        self.counted().map(|counted| counted.count)
    }

    /// Whether `verify` needs the hash of the body (`auth-int`).
    pub fn covers_body(&self) -> bool {
        matches!(self.covers, Covers::Body(_))
    }

    /// Combines them with the user's HA1; `None` for an algorithm or a `qop` that we do not know.
    pub fn with(&self, ha1: &Ha1) -> Option<Keyed<'_>> {
        let algorithm = self.algorithm?;
        let (ha1, nonce) = (ha1.as_bytes(), &*self.nonce);
        let begun = match (self.counted(), self.qop()) {
            (Some(counted), Some(qop)) => {
                let (cnonce, qop) = (&*counted.cnonce, qop_text(qop).as_bytes());
                Begun::new(algorithm, &[ha1, nonce, &counted.nc, cnonce, qop])
            }
            _ if self.covers == Covers::Least => Begun::new(algorithm, &[ha1, nonce]),
            _ => return None,
        };
        Some(Keyed { proof: self, algorithm, begun })
    }

    /// Whether the sender knows the password. Takes as long if not.
    pub fn verify(&self, ha1: &Ha1, method: &str, body_hash: Option<&Hash>) -> bool {
        self.with(ha1).is_some_and(|keyed| keyed.verify(method, body_hash))
    }

    fn counted(&self) -> Option<&Counted<'_>> {
        match &self.covers {
            Covers::Request(counted) | Covers::Body(counted) => Some(counted),
            Covers::Least | Covers::Unknown => None,
        }
    }

    fn qop(&self) -> Option<Qop> {
        match self.covers {
            Covers::Request(_) => Some(Qop::Auth),
            Covers::Body(_) => Some(Qop::AuthInt),
            Covers::Least | Covers::Unknown => None,
        }
    }
}

/// Credentials and HA1. The client's response and the server's begin with the same hash.
pub struct Keyed<'p> {
    proof: &'p Proof<'p>,
    algorithm: Algorithm,
    begun: Begun,
}

impl Keyed<'_> {
    /// Whether the sender knows the password. Takes as long if not.
    pub fn verify(&self, method: &str, body_hash: Option<&Hash>) -> bool {
        let expected = self.response(method, body_hash);
        expected.is_some_and(|expected| expected.is(&self.proof.response))
    }

    /// The value of `Authentication-Info`, by which the server proves that it knows the password too (RFC
    /// 7616 §3.5). `body_hash` is of the response's body, and only needed for `auth-int`.
    pub fn information(
        &self,
        body_hash: Option<&Hash>,
        next_nonce: Option<&str>,
    ) -> Option<String> {
        let mut out = String::new();
        if let (Some(qop), Some(counted)) = (self.proof.qop(), self.proof.counted())
            && let Some(proof) = self.response("", body_hash)
        {
            let cnonce = str::from_utf8(&counted.cnonce).unwrap_or_default();
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
            out.push_str(str::from_utf8(&counted.nc).unwrap_or_default());
        }
        if let Some(nonce) = next_nonce {
            out.push_str(if out.is_empty() { "nextnonce=\"" } else { ", nextnonce=\"" });
            push_escaped(&mut out, nonce);
            out.push('"');
        }
        (!out.is_empty()).then_some(out)
    }

    // RFC 7616 §3.4.1 to §3.4.3; for a server's proof the method is empty (§3.5).
    fn response(&self, method: &str, body_hash: Option<&Hash>) -> Option<Hash> {
        let (method, uri) = (method.as_bytes(), &*self.proof.uri);
        let over = match &self.proof.covers {
            Covers::Least | Covers::Request(_) => hash::join(self.algorithm, &[method, uri]),
            Covers::Body(_) => hash::join(self.algorithm, &[method, uri, body_hash?.as_bytes()]),
            Covers::Unknown => return None,
        };
        Some(self.begun.end(over.as_bytes()))
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
