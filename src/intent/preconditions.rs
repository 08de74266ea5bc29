//! Preconditions of a request (RFC 9110 §13): optimistic concurrency control and revalidation.
//!
//! Pure. `read` parses the client's entity tags once, into the versions they stand for; `evaluate` compares
//! them where the stored item is known. `If-Match` compares the version alone, so that a client can use the
//! `version` from a body; `If-None-Match` compares the whole tag, since the client asks whether it has these
//! bytes. A precondition that cannot be parsed never lets a change through. A tag that this server did not
//! make matches nothing.

use http::HeaderMap;
use http::header::{
    HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
};

use crate::value::Item;

/// The preconditions of one request. Most requests have none; then it is one null pointer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions(Option<Box<PreconditionHeaders>>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PreconditionHeaders {
    if_match: Option<MatchedVersions>,
    if_unmodified_since: Option<i64>,
    if_none_match: Option<MatchedVersions>,
    if_modified_since: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MatchedVersions {
    Any,
    These(Vec<i64>),
}

/// The validators of an item (RFC 9110 §8.8): its version and date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validators {
    pub version: i64,
    /// In whole seconds since 1970, the precision of an HTTP date.
    pub updated_seconds: i64,
}

impl Validators {
    pub fn of_item(item: &Item) -> Self {
        Self { version: item.version, updated_seconds: item.updated_at.seconds() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreconditionResult {
    Holds,
    /// 304: the client's copy is current.
    NotModified,
    /// 412: a precondition fails.
    Fails,
}

impl Preconditions {
    /// `form` is the suffix of our tags after the version, for this caller and this format.
    pub fn read(headers: &HeaderMap, form: impl FnOnce() -> String) -> Self {
        // Most requests have few headers and none of these, so a scan is cheaper than four lookups.
        let names = [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
        if !headers.keys().any(|name| names.contains(name)) {
            return Self::default();
        }
        let tags = |name: &HeaderName, version: &dyn Fn(EntityTag<'_>) -> Option<i64>| {
            headers
                .contains_key(name)
                .then(|| parse_versions(headers.get_all(name).iter(), version))
        };
        let matches = tags(&IF_MATCH, &|tag| tag.strong_version());
        let none_match = match headers.contains_key(IF_NONE_MATCH) {
            true => {
                let form = form();
                tags(&IF_NONE_MATCH, &|tag| tag.weak_version(&form))
            }
            false => None,
        };
        // RFC 9110 §13.1.3 and §13.1.4: a date is ignored beside a tag, and so is an invalid date.
        let unmodified_since = match matches {
            None => parse_date(headers, &IF_UNMODIFIED_SINCE),
            Some(_) => None,
        };
        let modified_since = match none_match {
            None => parse_date(headers, &IF_MODIFIED_SINCE),
            Some(_) => None,
        };
        Self(Some(Box::new(PreconditionHeaders {
            if_match: matches,
            if_unmodified_since: unmodified_since,
            if_none_match: none_match,
            if_modified_since: modified_since,
        })))
    }

    /// Requires that an item still has this version.
    pub fn if_version(version: i64) -> Self {
        let matches = Some(MatchedVersions::These(vec![version]));
        Self(Some(Box::new(PreconditionHeaders {
            if_match: matches,
            ..PreconditionHeaders::default()
        })))
    }

    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the client sent `If-Match`, the version it saw.
    pub fn has_if_match(&self) -> bool {
        self.0.as_ref().is_some_and(|given| given.if_match.is_some())
    }

    /// Evaluates in the order of RFC 9110 §13.2.2. `current` has the validators of the stored item, if it has
    /// any.
    pub fn evaluate(&self, current: Option<Validators>, is_read: bool) -> PreconditionResult {
        self.0.as_ref().map_or(PreconditionResult::Holds, |given| given.evaluate(current, is_read))
    }

    /// Evaluates for a read of a list. The tags of lists are weak, so by RFC 9110 §13.1.1 none of them
    /// satisfies `If-Match`; a list has no date. `number` is the part of its current tag before the form.
    pub fn evaluate_for_list(&self, number: Option<i64>) -> PreconditionResult {
        let Some(given) = &self.0 else { return PreconditionResult::Holds };
        if given.if_match.as_ref().is_some_and(|wanted| *wanted != MatchedVersions::Any) {
            return PreconditionResult::Fails;
        }
        match &given.if_none_match {
            Some(MatchedVersions::Any) => PreconditionResult::NotModified,
            Some(MatchedVersions::These(these))
                if number.is_some_and(|now| these.contains(&now)) =>
            {
                PreconditionResult::NotModified
            }
            Some(MatchedVersions::These(_)) | None => PreconditionResult::Holds,
        }
    }
}

impl PreconditionHeaders {
    fn evaluate(&self, current: Option<Validators>, is_read: bool) -> PreconditionResult {
        let has = |versions: &MatchedVersions| match versions {
            MatchedVersions::Any => true,
            MatchedVersions::These(these) => {
                current.is_some_and(|now| these.contains(&now.version))
            }
        };
        let is_later = |since: i64| current.is_some_and(|now| now.updated_seconds > since);
        if self.if_match.as_ref().is_some_and(|wanted| !has(wanted)) {
            return PreconditionResult::Fails;
        }
        if self.if_unmodified_since.is_some_and(is_later) {
            return PreconditionResult::Fails;
        }
        match &self.if_none_match {
            Some(unwanted) if has(unwanted) && is_read => return PreconditionResult::NotModified,
            Some(unwanted) if has(unwanted) => return PreconditionResult::Fails,
            Some(_) | None => {}
        }
        match self.if_modified_since {
            Some(since) if is_read && current.is_some() && !is_later(since) => {
                PreconditionResult::NotModified
            }
            Some(_) | None => PreconditionResult::Holds,
        }
    }
}

fn parse_date(headers: &HeaderMap, name: &HeaderName) -> Option<i64> {
    let mut dates = headers.get_all(name).iter();
    let date = dates.next()?.to_str().ok()?;
    if dates.next().is_some() {
        return None;
    }
    let Ok(time) = httpdate::parse_http_date(date) else {
        return is_before_1970(date).then_some(0);
    };
    i64::try_from(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// Whether it is a date that `httpdate` refuses for its year alone. The calendar repeats every 400 years.
fn is_before_1970(date: &str) -> bool {
    let parts = date.split_at_checked(12).zip(date.get(12..16)).zip(date.get(16..));
    let Some((((head, _), year), tail)) = parts else { return false };
    let year = year.parse::<u32>().ok().filter(|year| *year < 1970);
    year.is_some_and(|year| {
        httpdate::parse_http_date(&format!("{head}{}{tail}", 2000 + year % 400)).is_ok()
    })
}

/// The versions in the tags of one header, which may have several lines.
fn parse_versions<'h>(
    lines: impl Iterator<Item = &'h HeaderValue>,
    version: &dyn Fn(EntityTag<'_>) -> Option<i64>,
) -> MatchedVersions {
    let mut these = Vec::new();
    for line in lines {
        let mut rest = line.as_bytes().trim_ascii();
        if rest == b"*" {
            return MatchedVersions::Any;
        }
        while let Some((tag, after)) = EntityTag::parse_first(rest) {
            these.extend(version(tag));
            rest = after;
        }
    }
    MatchedVersions::These(these)
}

/// RFC 9110 §8.8.3: `W/"…"` or `"…"`, without its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntityTag<'h> {
    opaque: &'h [u8],
    is_weak: bool,
}

impl<'h> EntityTag<'h> {
    /// The first tag of a list, and the rest of the list. `None` at the end and at a syntax error, which ends
    /// the list.
    fn parse_first(bytes: &'h [u8]) -> Option<(Self, &'h [u8])> {
        let start = bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let bytes = bytes.get(start..)?;
        let (is_weak, quoted) = match bytes.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, bytes),
        };
        let inside = quoted.strip_prefix(b"\"")?;
        let end = inside.iter().position(|byte| *byte == b'"')?;
        let (opaque, rest) = inside.split_at_checked(end)?;
        let rest = rest.get(1..)?.trim_ascii_start();
        let is_ended = matches!(rest.first(), None | Some(b','));
        is_ended.then_some((Self { opaque, is_weak }, rest))
    }

    /// The version by strong comparison, in any form.
    fn strong_version(self) -> Option<i64> {
        let digits = self.opaque.split(|byte| *byte == b'-').next()?;
        if self.is_weak { None } else { parse_version(digits) }
    }

    /// The version by weak comparison, in this form only.
    fn weak_version(self, form: &str) -> Option<i64> {
        let digits = self.opaque.strip_suffix(form.as_bytes())?.strip_suffix(b"-")?;
        parse_version(digits)
    }
}

/// A version number in our own spelling: no sign, no leading zeros.
fn parse_version(digits: &[u8]) -> Option<i64> {
    let has_no_zero_before = digits == b"0" || digits.first() != Some(&b'0');
    let is_plain = has_no_zero_before && digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Validators = Validators { version: 3, updated_seconds: 1_700_000_000 };
    const THEN: &str = "Tue, 14 Nov 2023 22:13:20 GMT";
    const BEFORE: &str = "Tue, 14 Nov 2023 22:13:19 GMT";
    const AFTER: &str = "Tue, 14 Nov 2023 22:13:21 GMT";

    fn read(lines: &[(&'static str, &str)]) -> Preconditions {
        let lines = lines.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        Preconditions::read(
            &lines.fold(HeaderMap::new(), |mut headers, (name, value)| {
                headers.append(name, value);
                headers
            }),
            || "0a1b2c3d".to_owned(),
        )
    }

    /// `expected` has the results for a GET and for a PUT.
    #[track_caller]
    fn check(lines: &[(&'static str, &str)], expected: &str) {
        let conditions = read(lines);
        let show = |is_read| match conditions.evaluate(Some(NOW), is_read) {
            PreconditionResult::Holds => "proceed",
            PreconditionResult::NotModified => "304",
            PreconditionResult::Fails => "412",
        };
        assert_eq!(format!("{} {}", show(true), show(false)), expected, "{lines:?}");
    }

    #[test]
    fn if_match_compares_the_version() {
        for (value, expected) in [
            ("\"3-0a1b2c3d\"", "proceed proceed"),
            ("\"3-ffffffff\"", "proceed proceed"),
            ("\"3\"", "proceed proceed"),
            ("*", "proceed proceed"),
            (" * ", "proceed proceed"),
            ("\"2-0a1b2c3d\", \"3-0a1b2c3d\"", "proceed proceed"),
            ("\"2\",,\t\"3\"", "proceed proceed"),
            ("\"a,b\", \"3\"", "proceed proceed"),
            ("\"2-0a1b2c3d\"", "412 412"),
            ("W/\"3-0a1b2c3d\"", "412 412"),
            // Not a tag, or not one of ours.
            ("3", "412 412"),
            ("\"03\"", "412 412"),
            ("\"+3\"", "412 412"),
            ("\"3", "412 412"),
            ("\"3\"x", "412 412"),
            ("'3'", "412 412"),
            ("\"*\"", "412 412"),
            ("", "412 412"),
            ("\"99999999999999999999\"", "412 412"),
        ] {
            check(&[("if-match", value)], expected);
        }
        check(&[("if-match", "\"1\""), ("if-match", "\"3\"")], "proceed proceed");
    }

    #[test]
    fn if_none_match_compares_the_whole_tag() {
        for (value, expected) in [
            ("\"3-0a1b2c3d\"", "304 412"),
            ("W/\"3-0a1b2c3d\"", "304 412"),
            ("*", "304 412"),
            ("\"1-0a1b2c3d\", \"3-0a1b2c3d\"", "304 412"),
            ("\"3-ffffffff\"", "proceed proceed"),
            ("\"3\"", "proceed proceed"),
            ("\"2-0a1b2c3d\"", "proceed proceed"),
            ("3-0a1b2c3d", "proceed proceed"),
            ("\"-0a1b2c3d\"", "proceed proceed"),
        ] {
            check(&[("if-none-match", value)], expected);
        }
    }

    #[test]
    fn precondition_dates_are_compared_in_whole_seconds() {
        check(&[("if-modified-since", THEN)], "304 proceed");
        check(&[("if-modified-since", AFTER)], "304 proceed");
        check(&[("if-modified-since", BEFORE)], "proceed proceed");
        check(&[("if-unmodified-since", THEN)], "proceed proceed");
        check(&[("if-unmodified-since", AFTER)], "proceed proceed");
        check(&[("if-unmodified-since", BEFORE)], "412 412");
        // All three date formats of HTTP; an invalid date is ignored.
        check(&[("if-modified-since", "Tuesday, 14-Nov-23 22:13:20 GMT")], "304 proceed");
        check(&[("if-modified-since", "Tue Nov 14 22:13:20 2023")], "304 proceed");
        check(&[("if-modified-since", "yesterday")], "proceed proceed");
        check(&[("if-unmodified-since", "2023-11-14")], "proceed proceed");
        check(&[("if-modified-since", THEN), ("if-modified-since", THEN)], "proceed proceed");
    }

    #[test]
    fn preconditions_are_evaluated_in_the_order_of_rfc_9110() {
        let (ours, old) = ("\"3-0a1b2c3d\"", "\"2-0a1b2c3d\"");
        check(&[("if-match", ours), ("if-unmodified-since", BEFORE)], "proceed proceed");
        check(&[("if-none-match", old), ("if-modified-since", AFTER)], "proceed proceed");
        check(&[("if-match", old), ("if-none-match", ours)], "412 412");
        check(&[("if-match", ours), ("if-none-match", ours)], "304 412");
        check(&[("if-unmodified-since", BEFORE), ("if-none-match", ours)], "412 412");
        check(&[("if-match", ours), ("if-modified-since", THEN)], "304 proceed");
    }

    /// Of the list that a POST adds to, the server knows only that the list exists.
    #[test]
    fn list_preconditions_without_validators_match_only_any() {
        let judge = |name, value| read(&[(name, value)]).evaluate(None, true);
        assert_eq!(judge("if-match", "*"), PreconditionResult::Holds);
        assert_eq!(judge("if-match", "\"3\""), PreconditionResult::Fails);
        assert_eq!(judge("if-none-match", "*"), PreconditionResult::NotModified);
        assert_eq!(judge("if-none-match", "\"3-0a1b2c3d\""), PreconditionResult::Holds);
        assert_eq!(judge("if-modified-since", AFTER), PreconditionResult::Holds);
        assert_eq!(judge("if-unmodified-since", BEFORE), PreconditionResult::Holds);
    }

    #[test]
    fn list_preconditions_compare_weak_tags_and_ignore_dates() {
        let judge = |name, value| read(&[(name, value)]).evaluate_for_list(Some(3));
        let ours = "\"3-0a1b2c3d\"";
        assert_eq!(judge("if-none-match", ours), PreconditionResult::NotModified);
        assert_eq!(judge("if-none-match", "W/\"3-0a1b2c3d\""), PreconditionResult::NotModified);
        assert_eq!(judge("if-none-match", "*"), PreconditionResult::NotModified);
        assert_eq!(judge("if-none-match", "W/\"2-0a1b2c3d\""), PreconditionResult::Holds);
        assert_eq!(judge("if-none-match", "W/\"3-ffffffff\""), PreconditionResult::Holds);
        assert_eq!(judge("if-match", "*"), PreconditionResult::Holds);
        assert_eq!(judge("if-match", ours), PreconditionResult::Fails);
        assert_eq!(judge("if-match", "W/\"3-0a1b2c3d\""), PreconditionResult::Fails);
        assert_eq!(judge("if-modified-since", AFTER), PreconditionResult::Holds);
        assert_eq!(judge("if-unmodified-since", BEFORE), PreconditionResult::Holds);
        let both = read(&[("if-match", ours), ("if-none-match", ours)]);
        assert_eq!(both.evaluate_for_list(Some(3)), PreconditionResult::Fails);
        assert_eq!(
            read(&[("if-none-match", ours)]).evaluate_for_list(None),
            PreconditionResult::Holds
        );
        assert_eq!(read(&[]).evaluate_for_list(Some(3)), PreconditionResult::Holds);
    }

    proptest! {
        /// For any value of the header, only a tag with the current version lets a change through.
        #[test]
        fn if_match_with_arbitrary_text_never_passes_another_version(value in "[ -~]{0,24}") {
            let verdict = read(&[("if-match", &value)]).evaluate(Some(NOW), false);
            let may_pass = value.trim() == "*" || value.contains("\"3");
            prop_assert!(may_pass || verdict == PreconditionResult::Fails, "{}", value);
        }
    }
}
