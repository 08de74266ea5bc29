//! Content negotiation of the media type (RFC 9110 §12.5.1), and parsing of `Content-Type` (§8.3).
//!
//! The offered types are an argument. An `Accept` without any valid element counts as absent. It expresses no
//! preference, and §12.5.1 lets the server disregard it; `*/*;q=0` is valid and is honoured.

use std::borrow::Cow;

use crate::header_syntax::{split_quoted, split_token, split_unquoted};

/// Elements of an `Accept` header after these are ignored.
const RANGES_MAX: usize = 64;

/// The weight of an element without `q`.
const WEIGHT_MAX: u16 = 1000;

/// A media type that the server can send, in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaType {
    /// `type/subtype`
    pub essence: &'static str,
    /// The parameters that distinguish this representation from others of the same type.
    pub parameters: &'static [(&'static str, &'static str)],
}

/// The media ranges that a client accepts. Without any, it accepts everything.
#[derive(Debug, PartialEq, Eq)]
pub struct Accept<'a>(Vec<MediaRange<'a>>);

/// One media range of an `Accept` header.
#[derive(Debug, PartialEq, Eq)]
struct MediaRange<'a> {
    media: ParsedMediaType<'a>,
    /// 0 to `WEIGHT_MAX`; 0 excludes the type.
    weight: u16,
}

/// A media type that a client sent, with its parameters.
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedMediaType<'a> {
    kind: &'a str,
    subtype: &'a str,
    parameters: MediaParameters<'a>,
}

type MediaParameters<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// Parses all `Accept` lines of a request. Malformed elements are skipped.
pub fn parse<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Accept<'a> {
    let elements = values.into_iter().flat_map(|line| split_unquoted(line, b',')).take(RANGES_MAX);
    Accept(elements.filter_map(parse_range).collect())
}

impl Accept<'_> {
    pub const ANYTHING: Accept<'static> = Accept(Vec::new());

    /// Whether the client lists this type by name, and not by a wildcard.
    pub fn names(&self, media: &MediaType) -> bool {
        self.0.iter().any(|range| range.is_exactly(media))
    }

    /// Whether the client lists `*/*`.
    pub fn has_full_wildcard(&self) -> bool {
        self.0.iter().any(|range| range.media.kind == "*")
    }

    /// The offered type with the highest weight; among equals the first. `None`: the client accepts none of
    /// them.
    pub fn choose<'m>(
        &self,
        offered: impl IntoIterator<Item = &'m MediaType, IntoIter: Clone>,
    ) -> Option<usize> {
        let (offered, ranges) = (offered.into_iter(), &*self.0);
        let mut best = None;
        for (index, media) in offered.clone().enumerate() {
            let weight = if ranges.is_empty() { WEIGHT_MAX } else { weight_of(ranges, media) };
            if weight > best.map_or(0, |(_, weight)| weight) {
                best = Some((index, weight));
            }
            // No later one can be better.
            if weight == WEIGHT_MAX {
                break;
            }
        }
        best.map(|(index, _)| index).or_else(|| find_json_with_unknown_parameters(ranges, offered))
    }
}

/// JSON, for a client that lists only JSON with an unknown parameter, such as `application/json;version=1`.
/// Strictly by RFC 9110 §12.5.1 there is nothing to send; but JSON has no parameters (RFC 8259 §11), and
/// clients that add one can read the plain type. A client that lists the plain type with `q=0` does not get it.
fn find_json_with_unknown_parameters<'m>(
    ranges: &[MediaRange<'_>],
    mut offered: impl Iterator<Item = &'m MediaType>,
) -> Option<usize> {
    let is_listed = |media: &MediaType| {
        let is_json = matches!(media.essence, "application/json" | "application/problem+json");
        // No weight is above 0 here, so a range that names exactly this type refuses it.
        let is_refused = ranges.iter().any(|range| range.is_exactly(media));
        let is_fine = |range: &MediaRange<'_>| {
            range.weight > 0 && range.media.has_essence(media.essence) && range.media.is_utf8()
        };
        is_json && !is_refused && ranges.iter().any(is_fine)
    };
    offered.position(is_listed)
}

/// Parses all lines of a list of names with weights, such as `Accept-Encoding`. Malformed elements are skipped.
pub fn parse_weighted_names<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<(&'a str, u16)> {
    let read = |element: &'a [u8]| {
        let mut cursor = HeaderCursor { rest: element };
        let name = cursor.token()?;
        // RFC 9110 §12.4.2: only a weight may follow.
        let weight = match &*cursor.parameters_to_end()? {
            [] => WEIGHT_MAX,
            [(q, text)] if q.eq_ignore_ascii_case("q") => parse_weight(text)?,
            _ => return None,
        };
        Some((name, weight))
    };
    let elements = values.flat_map(|line| split_unquoted(line, b',')).take(RANGES_MAX);
    elements.filter_map(read).collect()
}

/// Reads a `Content-Type`.
pub fn parse_content_type(value: &str) -> Option<ParsedMediaType<'_>> {
    let mut cursor = HeaderCursor { rest: value.as_bytes() };
    cursor.skip_space();
    let kind = cursor.token()?;
    cursor.expect_byte(b'/')?;
    let subtype = cursor.token()?;
    let parameters = cursor.parameters_to_end()?;
    Some(ParsedMediaType { kind, subtype, parameters })
}

impl ParsedMediaType<'_> {
    /// Whether it is this `type/subtype`, with any parameters.
    pub fn has_essence(&self, essence: &str) -> bool {
        let [kind, subtype] = [self.kind, self.subtype].map(str::as_bytes);
        essence.as_bytes().split_at_checked(kind.len()).is_some_and(|(start, rest)| {
            start.eq_ignore_ascii_case(kind)
                && rest.strip_prefix(b"/").is_some_and(|rest| rest.eq_ignore_ascii_case(subtype))
        })
    }

    /// Whether it has a parameter with this value, compared without regard to case.
    pub fn has_parameter(&self, name: &str, value: &str) -> bool {
        self.parameters.iter().any(|(n, v)| is_same_parameter((n, v), (name, value)))
    }

    /// Whether the text is in UTF-8 by the header: the charset is `utf-8` or missing.
    pub fn is_utf8(&self) -> bool {
        self.parameters
            .iter()
            .all(|(name, value)| !name.eq_ignore_ascii_case("charset") || is_utf8(value))
    }
}

/// The weight of the most specific range that covers `media`; 0 when there is none.
fn weight_of(ranges: &[MediaRange<'_>], media: &MediaType) -> u16 {
    let covering =
        ranges.iter().filter_map(|range| Some((range.specificity(media)?, range.weight)));
    covering.max().map_or(0, |(_, weight)| weight)
}

impl MediaRange<'_> {
    /// Whether it covers `media` by name, and not by a wildcard.
    fn is_exactly(&self, media: &MediaType) -> bool {
        self.media.subtype != "*" && self.specificity(media).is_some()
    }

    /// How specifically the range describes `media`; `None` when it does not cover it.
    fn specificity(&self, media: &MediaType) -> Option<(u8, usize)> {
        let ParsedMediaType { kind, subtype, parameters } = &self.media;
        let closeness = match (*kind, *subtype) {
            ("*", "*") => 0,
            (_, "*") if media.essence.split('/').next()?.eq_ignore_ascii_case(kind) => 1,
            _ if self.media.has_essence(media.essence) => 2,
            _ => return None,
        };
        let met = parameters.iter().all(|(name, value)| has_parameter(media, name, value));
        met.then_some((closeness, parameters.len()))
    }
}

fn has_parameter(media: &MediaType, name: &str, value: &str) -> bool {
    let is_declared = media.parameters.iter().any(|own| is_same_parameter(*own, (name, value)));
    // All text is sent as UTF-8, also where the type has no charset parameter (RFC 8259 §11).
    is_declared || (name.eq_ignore_ascii_case("charset") && is_utf8(value))
}

fn is_same_parameter(one: (&str, &str), other: (&str, &str)) -> bool {
    one.0.eq_ignore_ascii_case(other.0) && one.1.eq_ignore_ascii_case(other.1)
}

/// `utf8` is not registered, but common and unambiguous.
fn is_utf8(charset: &str) -> bool {
    charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("utf8")
}

/// Parses one media range with its weight.
fn parse_range(element: &[u8]) -> Option<MediaRange<'_>> {
    let mut cursor = HeaderCursor { rest: element };
    let kind = cursor.token()?;
    let subtype = match cursor.expect_byte(b'/') {
        Some(()) => cursor.token()?,
        // Java's HttpURLConnection sends `*; q=.2` by default.
        None if kind == "*" => "*",
        None => return None,
    };
    if kind == "*" && subtype != "*" {
        return None;
    }
    let mut parameters = cursor.parameters_to_end()?;
    let mut weight = WEIGHT_MAX;
    // RFC 9110 §12.5.1: any parameter named q is the weight, at any position.
    if let Some(at) = parameters.iter().position(|(name, _)| name.eq_ignore_ascii_case("q")) {
        weight = parse_weight(&parameters.remove(at).1)?;
    }
    Some(MediaRange { media: ParsedMediaType { kind, subtype, parameters }, weight })
}

/// RFC 9110 §12.4.2: 0 to 1 with at most three decimals. `.2` is not in the grammar, but clients send it.
fn parse_weight(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || text == "." || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths: u16 = format!("{decimals:0<3}").parse().ok()?;
    match whole {
        "" | "0" if !text.is_empty() => Some(thousandths),
        "1" if thousandths == 0 => Some(WEIGHT_MAX),
        _ => None,
    }
}

/// The unparsed rest of a header value.
struct HeaderCursor<'a> {
    rest: &'a [u8],
}

impl<'a> HeaderCursor<'a> {
    /// Parses parameters up to the end of the value; a semicolon may stand alone (RFC 9110 §5.6.6).
    fn parameters_to_end(mut self) -> Option<MediaParameters<'a>> {
        let mut parameters = Vec::new();
        loop {
            self.skip_space();
            if self.rest.is_empty() {
                return Some(parameters);
            }
            self.expect_byte(b';')?;
            self.skip_space();
            if !matches!(self.rest.first(), None | Some(b';')) {
                let name = self.token()?;
                self.expect_byte(b'=')?;
                let quoted = self.rest.first() == Some(&b'"');
                parameters.push((
                    name,
                    if quoted { self.quoted_string()? } else { Cow::Borrowed(self.token()?) },
                ));
            }
        }
    }

    fn skip_space(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn expect_byte(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.rest.split_first()?;
        (*first == byte).then(|| self.rest = rest)
    }

    fn token(&mut self) -> Option<&'a str> {
        let (token, rest) = split_token(self.rest)?;
        self.rest = rest;
        str::from_utf8(token).ok()
    }

    fn quoted_string(&mut self) -> Option<Cow<'a, str>> {
        self.expect_byte(b'"')?;
        let (content, rest) = split_quoted(self.rest).ok()?;
        self.rest = rest;
        Some(match content {
            Cow::Borrowed(content) => String::from_utf8_lossy(content),
            Cow::Owned(content) => String::from_utf8_lossy(&content).into_owned().into(),
        })
    }
}

#[cfg(test)]
mod tests;
