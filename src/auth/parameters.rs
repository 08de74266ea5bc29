//! Parameters of `Authorization`: `name=value` pairs with commas (RFC 9110 §11.2).
//!
//! Lenient where clients in use need it: spaces around `=` and commas, and empty elements. Strict
//! elsewhere, so that no two parsers read one header differently: a parameter given twice, an unclosed
//! quote or anything between a value and its comma makes the whole header malformed. The scheme, which knows
//! its parameters, decides whether a value may be quoted.

use std::borrow::Cow;

use super::credential_text;
use crate::header_syntax::{MalformedQuote, split_quoted, split_token};
use crate::model::AuthScheme;

/// The maximum number of parameters; Digest has a dozen.
const PARAMETERS_MAX: usize = 24;
/// The maximum size: the `uri` of Digest may be as long as a request target.
const BYTES_MAX: usize = 16 * 1024;

/// A violation of the grammar; the text says what was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedCredentials(pub &'static str);

/// The scheme of an `Authorization` header and the text after it.
pub fn split_scheme(header: &[u8]) -> Option<(AuthScheme, &[u8])> {
    let end = header.iter().position(|byte| *byte == b' ').unwrap_or(header.len());
    let (name, rest) = header.split_at(end);
    let scheme = match name {
        name if name.eq_ignore_ascii_case(b"digest") => AuthScheme::Digest,
        name if name.eq_ignore_ascii_case(b"basic") => AuthScheme::Basic,
        _ => return None,
    };
    Some((scheme, rest.trim_ascii()))
}

#[derive(Debug)]
struct AuthParameter<'h> {
    name: &'h [u8],
    value: Cow<'h, [u8]>,
    is_quoted: bool,
}

/// Parameters in the order they were sent, each once.
#[derive(Debug)]
pub struct AuthParameters<'h> {
    all: Vec<AuthParameter<'h>>,
}

impl<'h> AuthParameters<'h> {
    pub fn read(bytes: &'h [u8]) -> Result<Self, MalformedCredentials> {
        if bytes.len() > BYTES_MAX {
            return Err(MalformedCredentials("expected at most 16 KiB of parameters"));
        }
        let mut all: Vec<AuthParameter<'h>> = Vec::with_capacity(12);
        let mut rest = skip(bytes, |byte| is_space(byte) || byte == b',');
        while !rest.is_empty() {
            let (parameter, after) = parameter(rest)?;
            if all.iter().any(|seen| seen.name.eq_ignore_ascii_case(parameter.name)) {
                return Err(MalformedCredentials("expected each parameter once"));
            }
            if all.len() == PARAMETERS_MAX {
                return Err(MalformedCredentials("expected at most 24 parameters"));
            }
            all.push(parameter);
            rest = skip(after, is_space);
            if !matches!(rest.first(), None | Some(b',')) {
                return Err(MalformedCredentials("expected a comma after a parameter"));
            }
            rest = skip(rest, |byte| is_space(byte) || byte == b',');
        }
        Ok(Self { all })
    }

    #[cfg(any(fuzzing, test))]
    pub fn is_quoted(&mut self, name: &str) -> Option<bool> {
        self.find(name).map(|parameter| parameter.is_quoted)
    }

    /// The value of a parameter that may be quoted or not.
    pub fn take_value(&mut self, name: &str) -> Option<Cow<'h, [u8]>> {
        self.find(name).map(|parameter| std::mem::take(&mut parameter.value))
    }

    /// The value of a parameter that is always quoted.
    pub fn take_quoted(
        &mut self,
        name: &str,
    ) -> Result<Option<Cow<'h, [u8]>>, MalformedCredentials> {
        match self.find(name) {
            Some(parameter) if !parameter.is_quoted => {
                Err(MalformedCredentials("expected a quoted string where Digest has one"))
            }
            found => Ok(found.map(|parameter| std::mem::take(&mut parameter.value))),
        }
    }

    /// The value of a parameter that is never quoted.
    pub fn take_token(
        &mut self,
        name: &str,
    ) -> Result<Option<Cow<'h, [u8]>>, MalformedCredentials> {
        match self.find(name) {
            Some(parameter) if parameter.is_quoted => {
                Err(MalformedCredentials("expected no quotes where Digest has none"))
            }
            found => Ok(found.map(|parameter| std::mem::take(&mut parameter.value))),
        }
    }

    /// A quoted value as text, with any characters.
    pub fn take_text(&mut self, name: &str) -> Result<Option<Cow<'h, str>>, MalformedCredentials> {
        Ok(self.take_quoted(name)?.map(credential_text::decode_utf8_or_latin1))
    }

    /// A quoted value of ASCII characters.
    pub fn take_ascii(
        &mut self,
        name: &str,
    ) -> Result<Option<Cow<'h, [u8]>>, MalformedCredentials> {
        let value = self.take_quoted(name)?;
        if value.as_ref().is_some_and(|value| !value.is_ascii()) {
            return Err(MalformedCredentials("expected ASCII characters alone"));
        }
        Ok(value)
    }

    fn find(&mut self, name: &str) -> Option<&mut AuthParameter<'h>> {
        self.all.iter_mut().find(|parameter| parameter.name.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// Parses one `name=value`; also returns the bytes after it.
fn parameter(bytes: &[u8]) -> Result<(AuthParameter<'_>, &[u8]), MalformedCredentials> {
    let (name, rest) =
        split_token(bytes).ok_or(MalformedCredentials("expected the name of a parameter"))?;
    let Some((b'=', rest)) = skip(rest, is_space).split_first() else {
        return Err(MalformedCredentials("expected `=` after the name of a parameter"));
    };
    let rest = skip(rest, is_space);
    if let Some((b'"', inside)) = rest.split_first() {
        let (value, rest) = split_quoted(inside).map_err(|malformed| {
            MalformedCredentials(match malformed {
                MalformedQuote::Unclosed => "expected a quoted string to be closed",
                MalformedQuote::ControlCharacter => "expected no control characters",
            })
        })?;
        return Ok((AuthParameter { name, value, is_quoted: true }, rest));
    }
    let (value, rest) =
        split_token(rest).ok_or(MalformedCredentials("expected a value after `=`"))?;
    Ok((AuthParameter { name, value: Cow::Borrowed(value), is_quoted: false }, rest))
}

fn skip(bytes: &[u8], is_skipped: impl Fn(u8) -> bool) -> &[u8] {
    let end = bytes.iter().position(|byte| !is_skipped(*byte)).unwrap_or(bytes.len());
    bytes.split_at(end).1
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests;
