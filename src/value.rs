//! The words every stage speaks: Value, Id, Item, Page, ChangeKind, Caller.
//!
//! Nothing here knows the model, the wire or the store.
//! The one surprising thing: a stored list, object or json value is its own canonical JSON text
//! (`Value::Json`), so that a read copies it to the wire untouched; `List` and `Object` exist only
//! while a body is being admitted.

use std::borrow::Cow;
use std::fmt;

use jiff::civil::{Date, DateTime};
use uuid::Uuid;

/// One value of one field. `Null` is "no value": whether the wire shows it as `null` or leaves it
/// out is the field's choice.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Boolean(bool),
    Integer(i64),
    Number(f64),
    Decimal(Decimal),
    /// text, email, url, date, uuid and state values.
    Text(Box<str>),
    Moment(Moment),
    /// Canonical JSON text of a list, an object or a json field.
    Json(Box<str>),
    /// Only before sealing.
    List(Vec<Value>),
    /// Only before sealing. In the order of the model; fields without a value are left out.
    Object(Vec<(Box<str>, Value)>),
}

impl Value {
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

/// An exact number with a fixed count of decimals: `units / 10^scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    pub units: i64,
    pub scale: u8,
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = usize::from(self.scale);
        let sign = if self.units < 0 { "-" } else { "" };
        let digits = format!("{:0width$}", self.units.unsigned_abs(), width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        if scale == 0 { write!(f, "{sign}{whole}") } else { write!(f, "{sign}{whole}.{fraction}") }
    }
}

/// A point in time: microseconds since 1970 in UTC, years 0001 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(i64);

impl Moment {
    /// 9999-12-31T23:59:59.999999Z and 0001-01-01T00:00:00Z.
    const MAX: i64 = 253_402_300_799_999_999;
    const MIN: i64 = -62_135_596_800_000_000;

    pub fn from_micros(micros: i64) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&micros).then_some(Self(micros))
    }

    /// So long before this moment.
    pub fn earlier(self, by: std::time::Duration) -> Option<Self> {
        let by = i64::try_from(by.as_micros()).ok()?;
        self.0.checked_sub(by).and_then(Self::from_micros)
    }

    /// Seconds and nanoseconds since 1970; nothing before that.
    pub fn since_1970(self) -> (u64, u32) {
        let seconds = u64::try_from(self.seconds()).unwrap_or(0);
        let micros = u32::try_from(self.0.rem_euclid(1_000_000)).unwrap_or(0);
        (seconds, micros * 1_000)
    }

    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Reads RFC 3339. More than six decimals are refused unless they are zeros, and so is second
    /// 60 (a leap second would have to be stored as another moment).
    pub fn parse(text: &str) -> Option<Self> {
        // RFC 3339 §5.6: `T` and `Z` may be lower case; the form with a space is for people.
        let (date, time) = text.split_at_checked(10)?;
        let (time, zone) = split_zone(time.strip_prefix(['T', 't'])?)?;
        let (time, fraction) = time.split_at_checked(8)?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        let date = Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
        if year < 1 || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = date.duration_since(Date::constant(1970, 1, 1)).as_hours() / 24;
        let seconds =
            days * 86_400 + i64::from(hour) * 3_600 + i64::from(minute) * 60 + i64::from(second);
        Self::from_micros((seconds - zone) * 1_000_000 + micros(fraction)?)
    }
}

/// Takes off `Z` or an offset; it comes back in seconds.
fn split_zone(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let (time, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let (sign, offset) = offset.split_at_checked(1)?;
    let [hours, minutes] = numbers(offset, ':', [2, 2])?;
    let seconds = i64::from(hours) * 3_600 + i64::from(minutes) * 60;
    match sign {
        "+" if hours < 24 && minutes < 60 => Some((time, seconds)),
        "-" if hours < 24 && minutes < 60 => Some((time, -seconds)),
        _ => None,
    }
}

/// Numbers with exactly so many digits each, between separators.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[i16; N]> {
    let mut parts = text.split(separator);
    let mut found = [0; N];
    for (slot, digits) in found.iter_mut().zip(digits) {
        let part = parts
            .next()
            .filter(|part| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit()))?;
        *slot = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

/// A fraction of a second, from nothing or a point and digits.
fn micros(fraction: &str) -> Option<i64> {
    if fraction.is_empty() {
        return Some(0);
    }
    let digits = fraction.strip_prefix('.').filter(|digits| !digits.is_empty())?;
    let (kept, rest) = digits.split_at_checked(6).unwrap_or((digits, ""));
    let is_exact = kept.bytes().all(|b| b.is_ascii_digit()) && rest.bytes().all(|b| b == b'0');
    is_exact.then(|| format!("{kept:0<6}").parse().ok()).flatten()
}

/// `2026-11-15T02:28:14.000000Z`: always 27 bytes, so that text order is time order.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.rem_euclid(1_000_000);
        let since = jiff::SignedDuration::from_secs(self.seconds());
        // The range of a moment lies within that of the calendar.
        let civil =
            DateTime::constant(1970, 1, 1, 0, 0, 0, 0).checked_add(since).unwrap_or(DateTime::ZERO);
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{micros:06}Z",
            civil.year(),
            civil.month(),
            civil.day(),
            civil.hour(),
            civil.minute(),
            civil.second(),
        )
    }
}

/// What addresses an item within its collection; made by the server, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id {
    Uuid(Uuid),
    Integer(i64),
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => uuid.hyphenated().fmt(f),
            Self::Integer(number) => number.fmt(f),
        }
    }
}

/// Which kind of id a resource has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    Uuid,
    Integer,
}

impl IdKind {
    /// Reads an id as it stands in a path: one spelling each, so that an item has one address.
    pub fn parse(self, text: &str) -> Option<Id> {
        match self {
            Self::Uuid => {
                let canonical = text.len() == 36 && !text.bytes().any(|b| b.is_ascii_uppercase());
                let uuid = Uuid::try_parse(text).ok()?;
                canonical.then_some(Id::Uuid(uuid))
            }
            Self::Integer => {
                let number: i64 = text.parse().ok()?;
                let canonical = text.starts_with(|c: char| matches!(c, '1'..='9'));
                (canonical && number <= INTEGER_MAX).then_some(Id::Integer(number))
            }
        }
    }
}

/// The largest integer that every JSON reader keeps exactly: 2^53 - 1.
pub const INTEGER_MAX: i64 = 9_007_199_254_740_991;

/// One instance of a resource. `values` go by the resource's field order.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    pub id: Id,
    pub parent: Option<Id>,
    pub created_at: Moment,
    pub updated_at: Moment,
    pub version: i64,
    pub values: Vec<Value>,
}

impl Item {
    /// The size of what it holds, as far as size can matter.
    pub fn bytes(&self) -> usize {
        let bytes = |value: &Value| match value {
            Value::Text(text) | Value::Json(text) => text.len(),
            Value::Null | Value::Boolean(_) | Value::Integer(_) | Value::Number(_) => 8,
            Value::Decimal(_) | Value::Moment(_) | Value::List(_) | Value::Object(_) => 8,
        };
        self.values.iter().map(bytes).sum()
    }
}

/// Some items of a collection, in order. `next` is the id to go on after, when there are more.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub items: Vec<Item>,
    pub limit: usize,
    pub next: Option<Id>,
}

/// What happened to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Created,
    Updated,
    Deleted,
}

impl ChangeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }
}

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// Nobody was asked to prove anything: the server was started with `--open`.
    Open,
}

impl Caller {
    /// The name that logs and the change log know the caller by.
    pub fn name(&self) -> &str {
        match self {
            Self::Open => "open",
        }
    }
}

/// How many characters of somebody's own words a message repeats.
const ECHO_CHARS_MAX: usize = 40;

/// A client's or an author's own words for a message: they may be as long as a body.
pub fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(ECHO_CHARS_MAX) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_after_forty_characters() {
        let (fits, long) = ("é".repeat(40), "é".repeat(41));
        assert_eq!(cut(&fits), fits);
        assert_eq!(cut(&long), format!("{fits}…"));
    }

    #[test]
    fn decimals_print_their_scale() {
        let show = |units, scale| Decimal { units, scale }.to_string();
        assert_eq!(show(0, 2), "0.00");
        assert_eq!(show(-5, 2), "-0.05");
        assert_eq!(show(123, 2), "1.23");
        assert_eq!(show(123, 0), "123");
        assert_eq!(show(i64::MIN, 9), "-9223372036.854775808");
    }

    #[test]
    fn moments_have_one_spelling_out_and_rfc_3339_in() {
        let show = |text: &str| Moment::parse(text).map(|moment| moment.to_string());
        let same = Some("2026-11-15T02:28:14.000000Z".to_owned());
        assert_eq!(show("2026-11-15T02:28:14Z"), same);
        assert_eq!(show("2026-11-15t02:28:14z"), same);
        assert_eq!(show("2026-11-15T03:28:14+01:00"), same);
        assert_eq!(show("2026-11-15T02:28:14.000000000Z"), same);
        assert_eq!(show("1969-12-31T23:59:59.999999Z"), Some("1969-12-31T23:59:59.999999Z".into()));
        assert_eq!(show("0001-01-01T00:00:00Z"), Some("0001-01-01T00:00:00.000000Z".into()));
        assert_eq!(show("9999-12-31T23:59:59.999999Z"), Some("9999-12-31T23:59:59.999999Z".into()));
        assert_eq!(show("2024-02-29T23:30:00.5-00:45"), Some("2024-03-01T00:15:00.500000Z".into()));
        for bad in [
            "2026-11-15T02:28:14",
            "2026-11-15 02:28:14Z",
            "2026-11-15T02:28:60Z",
            "2026-11-15T02:28:14.0000001Z",
            "2026-02-29T00:00:00Z",
            "0000-12-31T23:59:59Z",
            "2026-11-15",
            "2026-11-15T02:28:14+0100",
            "2026-11-15T02:28:14Z[UTC]",
            "2026-11-15T02:28Z",
            "2026-11-15T02Z",
            "2026-11-15T022814Z",
            "2026-11-15T02:28:14,5Z",
            "2026-11-15T02:28:14.Z",
            "2026-11-15T02:28:14+24:00",
            "2026-11-15T02:28:14+23:60",
            "2026-11-15T24:00:00Z",
            "+2026-11-15T02:28:14Z",
            "0000-12-31T23:00:00-02:00",
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "",
        ] {
            assert_eq!(show(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_id_has_one_spelling() {
        assert!(IdKind::Uuid.parse("01890a5d-ac96-774b-bcce-b302099a8057").is_some());
        for bad in
            ["01890A5D-AC96-774B-BCCE-B302099A8057", "01890a5dac96774bbcceb302099a8057", "abc", ""]
        {
            assert_eq!(IdKind::Uuid.parse(bad), None, "{bad}");
        }
        assert_eq!(IdKind::Integer.parse("17"), Some(Id::Integer(17)));
        for bad in ["0", "-1", "+1", "017", "9007199254740992", "99999999999999999999", "1.0", ""] {
            assert_eq!(IdKind::Integer.parse(bad), None, "{bad}");
        }
    }
}
