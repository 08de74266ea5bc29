//! What must be true of an item for a request to be done: RFC 9110 §13.
//!
//! Pure. The tags of a client are read once, as the versions that they mean; what is stored is held
//! against them where it is known. `If-Match` goes by the version alone, so that the `version` of a body
//! will do; `If-None-Match` goes by the whole tag, since the client asks whether it has these bytes.
//! The one surprising thing: a condition that cannot be read never lets a change through. A tag that is
//! not one of ours matches nothing.

use http::HeaderMap;
use http::header::{
    HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
};

use crate::value::Item;

/// All conditions of one request. Most requests have none, and then it is small and costs nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions(Option<Box<Given>>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Given {
    matches: Option<Versions>,
    unmodified_since: Option<i64>,
    none_match: Option<Versions>,
    modified_since: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Versions {
    Any,
    These(Vec<i64>),
}

/// What an item is compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validators {
    pub version: i64,
    /// In whole seconds since 1970, which is all that a date of HTTP can say.
    pub updated: i64,
}

impl Validators {
    pub fn of(item: &Item) -> Self {
        Self { version: item.version, updated: item.updated_at.seconds() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    /// 304: the client has it.
    NotModified,
    /// 412
    Fails,
}

impl Conditions {
    /// `form` is what our tags have after the version, for this caller and this format.
    pub fn read(headers: &HeaderMap, form: impl FnOnce() -> String) -> Self {
        // Most requests have few headers and none of these: cheaper looked at than looked up.
        let names = [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
        if !headers.keys().any(|name| names.contains(name)) {
            return Self::default();
        }
        let tags = |name: &HeaderName, version: &dyn Fn(Tag<'_>) -> Option<i64>| {
            headers.contains_key(name).then(|| versions(headers.get_all(name).iter(), version))
        };
        let matches = tags(&IF_MATCH, &|tag| tag.strong_version());
        let none_match = match headers.contains_key(IF_NONE_MATCH) {
            true => {
                let form = form();
                tags(&IF_NONE_MATCH, &|tag| tag.version_of(&form))
            }
            false => None,
        };
        // RFC 9110 §13.1.3 and §13.1.4: a date beside a tag is not looked at, nor what is no date.
        let unmodified_since = match matches {
            None => date(headers, &IF_UNMODIFIED_SINCE),
            Some(_) => None,
        };
        let modified_since = match none_match {
            None => date(headers, &IF_MODIFIED_SINCE),
            Some(_) => None,
        };
        Self(Some(Box::new(Given { matches, unmodified_since, none_match, modified_since })))
    }

    /// That an item still has this version.
    pub fn version(version: i64) -> Self {
        let matches = Some(Versions::These(vec![version]));
        Self(Some(Box::new(Given { matches, ..Given::default() })))
    }

    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the client says which version it saw.
    pub fn has_if_match(&self) -> bool {
        self.0.as_ref().is_some_and(|given| given.matches.is_some())
    }

    /// In the order of RFC 9110 §13.2.2. `current` is what is there now, if that can be compared.
    pub fn judge(&self, current: Option<Validators>, is_read: bool) -> Verdict {
        self.0.as_ref().map_or(Verdict::Holds, |given| given.judge(current, is_read))
    }

    /// The same for a list that is read. Its tags are weak, and RFC 9110 §13.1.1 lets none of them be
    /// enough for `If-Match`; it has no date. `number` is what its tag has before the form now.
    pub fn judge_list(&self, number: Option<i64>) -> Verdict {
        let Some(given) = &self.0 else { return Verdict::Holds };
        if given.matches.as_ref().is_some_and(|wanted| *wanted != Versions::Any) {
            return Verdict::Fails;
        }
        match &given.none_match {
            Some(Versions::Any) => Verdict::NotModified,
            Some(Versions::These(these)) if number.is_some_and(|now| these.contains(&now)) => {
                Verdict::NotModified
            }
            Some(Versions::These(_)) | None => Verdict::Holds,
        }
    }
}

impl Given {
    fn judge(&self, current: Option<Validators>, is_read: bool) -> Verdict {
        let has = |versions: &Versions| match versions {
            Versions::Any => true,
            Versions::These(these) => current.is_some_and(|now| these.contains(&now.version)),
        };
        let is_later = |since: i64| current.is_some_and(|now| now.updated > since);
        if self.matches.as_ref().is_some_and(|wanted| !has(wanted)) {
            return Verdict::Fails;
        }
        if self.unmodified_since.is_some_and(is_later) {
            return Verdict::Fails;
        }
        match &self.none_match {
            Some(unwanted) if has(unwanted) && is_read => return Verdict::NotModified,
            Some(unwanted) if has(unwanted) => return Verdict::Fails,
            Some(_) | None => {}
        }
        match self.modified_since {
            Some(since) if is_read && current.is_some() && !is_later(since) => Verdict::NotModified,
            Some(_) | None => Verdict::Holds,
        }
    }
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<i64> {
    let mut dates = headers.get_all(name).iter();
    let date = dates.next()?.to_str().ok()?;
    if dates.next().is_some() {
        return None;
    }
    let time = httpdate::parse_http_date(date).ok()?;
    i64::try_from(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// Tags of one header, which may come in several lines.
fn versions<'h>(
    lines: impl Iterator<Item = &'h HeaderValue>,
    version: &dyn Fn(Tag<'_>) -> Option<i64>,
) -> Versions {
    let mut these = Vec::new();
    for line in lines {
        let mut rest = line.as_bytes().trim_ascii();
        if rest == b"*" {
            return Versions::Any;
        }
        while let Some((tag, after)) = Tag::first(rest) {
            these.extend(version(tag));
            rest = after;
        }
    }
    Versions::These(these)
}

/// RFC 9110 §8.8.3: `W/"…"` or `"…"`, without its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tag<'h> {
    opaque: &'h [u8],
    is_weak: bool,
}

impl<'h> Tag<'h> {
    /// The first tag of a list, and what follows it. Nothing at the end, or where there is no tag: what
    /// comes after that cannot be told from it.
    fn first(bytes: &'h [u8]) -> Option<(Self, &'h [u8])> {
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

    /// By strong comparison, whatever the form.
    fn strong_version(self) -> Option<i64> {
        let digits = self.opaque.split(|byte| *byte == b'-').next()?;
        if self.is_weak { None } else { number(digits) }
    }

    /// By weak comparison, of this form alone.
    fn version_of(self, form: &str) -> Option<i64> {
        let digits = self.opaque.strip_suffix(form.as_bytes())?.strip_suffix(b"-")?;
        number(digits)
    }
}

/// As we write it.
fn number(digits: &[u8]) -> Option<i64> {
    let has_no_zero_before = digits == b"0" || digits.first() != Some(&b'0');
    let is_plain = has_no_zero_before && digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Validators = Validators { version: 3, updated: 1_700_000_000 };
    const THEN: &str = "Tue, 14 Nov 2023 22:13:20 GMT";
    const BEFORE: &str = "Tue, 14 Nov 2023 22:13:19 GMT";
    const AFTER: &str = "Tue, 14 Nov 2023 22:13:21 GMT";

    fn read(lines: &[(&'static str, &str)]) -> Conditions {
        let lines = lines.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        Conditions::read(
            &lines.fold(HeaderMap::new(), |mut headers, (name, value)| {
                headers.append(name, value);
                headers
            }),
            || "0a1b2c3d".to_owned(),
        )
    }

    /// To a GET and to a PUT.
    #[track_caller]
    fn check(lines: &[(&'static str, &str)], expected: &str) {
        let conditions = read(lines);
        let show = |is_read| match conditions.judge(Some(NOW), is_read) {
            Verdict::Holds => "goes on",
            Verdict::NotModified => "304",
            Verdict::Fails => "412",
        };
        assert_eq!(format!("{} {}", show(true), show(false)), expected, "{lines:?}");
    }

    #[test]
    fn if_match_goes_by_the_version() {
        for (value, expected) in [
            ("\"3-0a1b2c3d\"", "goes on goes on"),
            ("\"3-ffffffff\"", "goes on goes on"),
            ("\"3\"", "goes on goes on"),
            ("*", "goes on goes on"),
            (" * ", "goes on goes on"),
            ("\"2-0a1b2c3d\", \"3-0a1b2c3d\"", "goes on goes on"),
            ("\"2\",,\t\"3\"", "goes on goes on"),
            ("\"a,b\", \"3\"", "goes on goes on"),
            ("\"2-0a1b2c3d\"", "412 412"),
            ("W/\"3-0a1b2c3d\"", "412 412"),
            // Not a tag, or not as we write one.
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
        check(&[("if-match", "\"1\""), ("if-match", "\"3\"")], "goes on goes on");
    }

    #[test]
    fn if_none_match_goes_by_the_whole_tag() {
        for (value, expected) in [
            ("\"3-0a1b2c3d\"", "304 412"),
            ("W/\"3-0a1b2c3d\"", "304 412"),
            ("*", "304 412"),
            ("\"1-0a1b2c3d\", \"3-0a1b2c3d\"", "304 412"),
            ("\"3-ffffffff\"", "goes on goes on"),
            ("\"3\"", "goes on goes on"),
            ("\"2-0a1b2c3d\"", "goes on goes on"),
            ("3-0a1b2c3d", "goes on goes on"),
            ("\"-0a1b2c3d\"", "goes on goes on"),
        ] {
            check(&[("if-none-match", value)], expected);
        }
    }

    #[test]
    fn dates_have_seconds() {
        check(&[("if-modified-since", THEN)], "304 goes on");
        check(&[("if-modified-since", AFTER)], "304 goes on");
        check(&[("if-modified-since", BEFORE)], "goes on goes on");
        check(&[("if-unmodified-since", THEN)], "goes on goes on");
        check(&[("if-unmodified-since", AFTER)], "goes on goes on");
        check(&[("if-unmodified-since", BEFORE)], "412 412");
        // All three ways to write a date; what is no date is not looked at.
        check(&[("if-modified-since", "Tuesday, 14-Nov-23 22:13:20 GMT")], "304 goes on");
        check(&[("if-modified-since", "Tue Nov 14 22:13:20 2023")], "304 goes on");
        check(&[("if-modified-since", "yesterday")], "goes on goes on");
        check(&[("if-unmodified-since", "2023-11-14")], "goes on goes on");
        check(&[("if-modified-since", THEN), ("if-modified-since", THEN)], "goes on goes on");
    }

    #[test]
    fn tags_come_before_dates_and_matching_before_not_matching() {
        let (ours, old) = ("\"3-0a1b2c3d\"", "\"2-0a1b2c3d\"");
        check(&[("if-match", ours), ("if-unmodified-since", BEFORE)], "goes on goes on");
        check(&[("if-none-match", old), ("if-modified-since", AFTER)], "goes on goes on");
        check(&[("if-match", old), ("if-none-match", ours)], "412 412");
        check(&[("if-match", ours), ("if-none-match", ours)], "304 412");
        check(&[("if-unmodified-since", BEFORE), ("if-none-match", ours)], "412 412");
        check(&[("if-match", ours), ("if-modified-since", THEN)], "304 goes on");
    }

    /// Of a list that is added to, all that is known is that it is there.
    #[test]
    fn a_list_has_nothing_to_compare() {
        let judge = |name, value| read(&[(name, value)]).judge(None, true);
        assert_eq!(judge("if-match", "*"), Verdict::Holds);
        assert_eq!(judge("if-match", "\"3\""), Verdict::Fails);
        assert_eq!(judge("if-none-match", "*"), Verdict::NotModified);
        assert_eq!(judge("if-none-match", "\"3-0a1b2c3d\""), Verdict::Holds);
        assert_eq!(judge("if-modified-since", AFTER), Verdict::Holds);
        assert_eq!(judge("if-unmodified-since", BEFORE), Verdict::Holds);
    }

    #[test]
    fn a_list_is_compared_weakly_and_has_no_date() {
        let judge = |name, value| read(&[(name, value)]).judge_list(Some(3));
        let ours = "\"3-0a1b2c3d\"";
        assert_eq!(judge("if-none-match", ours), Verdict::NotModified);
        assert_eq!(judge("if-none-match", "W/\"3-0a1b2c3d\""), Verdict::NotModified);
        assert_eq!(judge("if-none-match", "*"), Verdict::NotModified);
        assert_eq!(judge("if-none-match", "W/\"2-0a1b2c3d\""), Verdict::Holds);
        assert_eq!(judge("if-none-match", "W/\"3-ffffffff\""), Verdict::Holds);
        assert_eq!(judge("if-match", "*"), Verdict::Holds);
        assert_eq!(judge("if-match", ours), Verdict::Fails);
        assert_eq!(judge("if-match", "W/\"3-0a1b2c3d\""), Verdict::Fails);
        assert_eq!(judge("if-modified-since", AFTER), Verdict::Holds);
        assert_eq!(judge("if-unmodified-since", BEFORE), Verdict::Holds);
        let both = read(&[("if-match", ours), ("if-none-match", ours)]);
        assert_eq!(both.judge_list(Some(3)), Verdict::Fails);
        assert_eq!(read(&[("if-none-match", ours)]).judge_list(None), Verdict::Holds);
        assert_eq!(read(&[]).judge_list(Some(3)), Verdict::Holds);
    }

    proptest! {
        /// Whatever is sent, only a tag with the version lets a change through.
        #[test]
        fn if_match_is_never_passed_by(value in "[ -~]{0,24}") {
            let verdict = read(&[("if-match", &value)]).judge(Some(NOW), false);
            let may_pass = value.trim() == "*" || value.contains("\"3");
            prop_assert!(may_pass || verdict == Verdict::Fails, "{}", value);
        }
    }
}
