//! The domain types that all stages share: `Value`, `Id`, `Item`, `Page`, `Change`.
//!
//! Nothing here knows the model, the wire or the store. A stored list, object or json value is canonical JSON
//! text (`Value::Json`), so that a read copies it to the response unchanged; `List` and `Object` exist only
//! while a body is validated.

mod moment;

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::fault::OrBug as _;
pub use moment::{Moment, MomentText};

/// One value of one field. `Null` means no value: the field decides whether JSON shows it as `null` or leaves
/// it out.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Boolean(bool),
    Integer(i64),
    Number(f64),
    Decimal(Decimal),
    /// Values of the types text, email, url, date, uuid and state.
    Text(Box<str>),
    Moment(Moment),
    /// Canonical JSON text of a list, an object or a json field.
    Json(Box<str>),
    /// Only before canonicalization.
    List(Vec<Value>),
    /// Only before canonicalization. In the model's order; fields without a value are left out.
    Object(Vec<(Box<str>, Value)>),
    /// A secret in clear text. `auth` replaces it by its hash before the store gets it.
    ClearText(ClearText),
}

/// A secret in clear text, which only `reveal` returns.
#[derive(Clone, PartialEq, Eq)]
pub struct ClearText(Box<str>);

impl ClearText {
    /// The request for a secret that the server makes.
    pub fn to_generate() -> Self {
        Self("".into())
    }

    pub fn is_to_generate(&self) -> bool {
        self.0.is_empty()
    }

    pub fn new(text: Box<str>) -> Self {
        Self(text)
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClearText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClearText(…)")
    }
}

impl Value {
    /// The id in a field of type `ref`.
    pub fn as_id(&self) -> Option<Id> {
        match self {
            Self::Text(text) => IdKind::Uuid.parse(text),
            Self::Integer(number) => Some(Id::Integer(*number)),
            _ => None,
        }
    }

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

/// The id of an item within its collection; made by the server, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id {
    Uuid(Uuid),
    Integer(i64),
}

impl Id {
    /// The creation time in a UUIDv7; `None` for an integer.
    pub fn created_at(self) -> Option<Moment> {
        let Self::Uuid(uuid) = self else { return None };
        let (high, _) = uuid.as_u64_pair();
        let (millis, part) = (high >> 16, high & 0xfff);
        // Rounded up to the smallest number of microseconds with this fraction of a millisecond.
        let micros = millis * 1_000 + (part * 1_000).div_ceil(4_096);
        Moment::from_micros(i64::try_from(micros).ok()?)
    }

    /// The smallest and the largest UUIDv7 that an item created at this time could have.
    pub fn range_at(moment: Moment) -> (Self, Self) {
        let (seconds, nanos) = moment.since_1970();
        let micros = seconds * 1_000_000 + u64::from(nanos / 1_000);
        // The largest part of a millisecond that `created_at` rounds up to no more than this.
        let last_part = |micros: u64| (micros / 1_000, micros % 1_000 * 4_096 / 1_000);
        let (millis, part) = last_part(micros);
        let before = micros.checked_sub(1).map(last_part);
        let (first_millis, first_part) = before.map_or((0, 0), |(millis, part)| (millis, part + 1));
        let id = |millis: u64, part: u64, low| {
            Self::Uuid(Uuid::from_u64_pair(millis << 16 | 0x7000 | part, low))
        };
        let first = id(first_millis, first_part, 0x8000_0000_0000_0000);
        (first, id(millis, part, 0xbfff_ffff_ffff_ffff))
    }

    pub fn text(self) -> String {
        self.with_text(str::to_owned)
    }

    /// Passes on its text, which is not allocated.
    pub fn with_text<R>(self, read: impl FnOnce(&str) -> R) -> R {
        match self {
            Self::Uuid(uuid) => read(uuid.hyphenated().encode_lower(&mut [0; Hyphenated::LENGTH])),
            Self::Integer(number) => read(itoa::Buffer::new().format(number)),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.pad(text))
    }
}

/// An id as the value of a `ref` field.
impl From<Id> for Value {
    fn from(id: Id) -> Self {
        match id {
            Id::Uuid(_) => Self::Text(id.text().into()),
            Id::Integer(number) => Self::Integer(number),
        }
    }
}

/// The kind of id that a resource has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    Uuid,
    Integer,
}

impl IdKind {
    /// Parses a UUID in the spelling of paths and the database.
    pub fn parse_uuid(text: &[u8]) -> Option<Id> {
        let text: &[u8; 36] = text.try_into().ok()?;
        // Without an early exit, so that the compiler can vectorize it.
        let has_capitals = text.iter().fold(false, |any, byte| any | byte.is_ascii_uppercase());
        let uuid = Uuid::try_parse_ascii(text).ok()?;
        (!has_capitals).then_some(Id::Uuid(uuid))
    }

    /// The id in the value of a `ref` field.
    pub fn read_value(self, value: &Value) -> Option<Id> {
        match (self, value) {
            (Self::Uuid, Value::Text(text)) => self.parse(text),
            (Self::Integer, Value::Integer(number)) => Some(Id::Integer(*number)),
            _ => None,
        }
    }

    /// Parses an id as in a path: each id has one spelling, so that an item has one URL.
    pub fn parse(self, text: &str) -> Option<Id> {
        match self {
            Self::Uuid => Self::parse_uuid(text.as_bytes()),
            Self::Integer => {
                let number: i64 = text.parse().ok()?;
                let canonical = text.starts_with(|c: char| matches!(c, '1'..='9'));
                (canonical && number <= INTEGER_MAX).then_some(Id::Integer(number))
            }
        }
    }
}

/// The largest integer that every JSON parser keeps exactly: 2^53 - 1.
pub const INTEGER_MAX: i64 = 9_007_199_254_740_991;

/// One instance of a resource. `values` are in the resource's field order.
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
    /// The approximate size of its values.
    pub fn approximate_bytes(&self) -> usize {
        let bytes = |value: &Value| match value {
            Value::Text(text) | Value::Json(text) => text.len(),
            Value::ClearText(clear) => clear.reveal().len(),
            Value::Null | Value::Boolean(_) | Value::Integer(_) | Value::Number(_) => 8,
            Value::Decimal(_) | Value::Moment(_) | Value::List(_) | Value::Object(_) => 8,
        };
        self.values.iter().map(bytes).sum()
    }
}

/// A page of a collection, in order. `next` is the id that the next page starts after, if there is one.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub items: Vec<Item>,
    pub limit: usize,
    pub next: Option<Id>,
    /// The number of items on all pages, if the client asked for it.
    pub total: Option<i64>,
    /// The position in the change log that the list reflects, if known.
    pub position: Option<i64>,
}

/// The kind of a change to an item.
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

impl ChangeKind {
    const ALL: [Self; 3] = [Self::Created, Self::Updated, Self::Deleted];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A change as one reader of the change log sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    Created,
    Updated,
    Deleted,
    /// The item exists, but the reader does not see it any more.
    Left,
}

impl EventKind {
    pub const ALL: [Self; 4] = [Self::Created, Self::Updated, Self::Deleted, Self::Left];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Left => "left",
        }
    }
}

/// One entry of the change log; its sequence number is the global order. `changed`, `before` and `after` are
/// JSON texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub sequence: i64,
    pub time: Moment,
    pub resource: String,
    pub id: String,
    pub subject: String,
    pub kind: String,
    pub actor: String,
    pub request_id: String,
    pub changed: Option<String>,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// The number of bytes before the first match. Works in blocks that the compiler can vectorize: texts and
/// headers are long, and bytes that need escaping are rare.
pub fn count_before(bytes: &[u8], is_looked_for: impl Fn(u8) -> bool) -> usize {
    const BLOCK: usize = 8;
    let has_none =
        |block: &&[u8; BLOCK]| !block.iter().fold(false, |any, byte| any | is_looked_for(*byte));
    let whole = BLOCK * bytes.as_chunks::<BLOCK>().0.iter().take_while(has_none).count();
    let rest = bytes.get(whole..).unwrap_or_default();
    whole + rest.iter().take_while(|byte| !is_looked_for(**byte)).count()
}

/// The first 16 bytes of a hash as a number; never zero, which stands for no hash.
pub fn hash_u128(hash: Sha256) -> u128 {
    let bytes: [u8; 32] = hash.finalize().into();
    let first = bytes.first_chunk::<16>().or_bug("a SHA-256 hash has 32 bytes");
    u128::from_be_bytes(*first).max(1)
}

/// The first four bytes of a hash as a number; never zero, which stands for no hash.
pub fn hash_u32(hash: Sha256) -> u32 {
    u32::try_from(hash_u128(hash) >> 96).or_bug("the rest has 32 bits").max(1)
}

/// Characters of client input that a message repeats.
const ECHO_CHARS_MAX: usize = 40;

/// Truncates client input for a message, since it may be as long as a body.
pub fn truncate_for_message(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(ECHO_CHARS_MAX) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_before_stops_at_the_first_match() {
        for length in 0..40 {
            assert_eq!(count_before(&vec![b'a'; length], |byte| byte == b'b'), length);
            for at in 0..length {
                let mut bytes = vec![b'a'; length];
                bytes[at..].fill(b'b');
                assert_eq!(count_before(&bytes, |byte| byte == b'b'), at, "{length}");
            }
        }
    }

    #[test]
    fn truncate_for_message_keeps_forty_characters() {
        let (fits, long) = ("é".repeat(40), "é".repeat(41));
        assert_eq!(truncate_for_message(&fits), fits);
        assert_eq!(truncate_for_message(&long), format!("{fits}…"));
    }

    #[test]
    fn decimal_display_has_all_decimal_places() {
        let show = |units, scale| Decimal { units, scale }.to_string();
        assert_eq!(show(0, 2), "0.00");
        assert_eq!(show(-5, 2), "-0.05");
        assert_eq!(show(123, 2), "1.23");
        assert_eq!(show(123, 0), "123");
        assert_eq!(show(i64::MIN, 9), "-9223372036.854775808");
    }

    #[test]
    fn id_parse_accepts_one_spelling() {
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

    /// Other generators put random bits below the millisecond.
    #[test]
    fn id_range_at_has_every_id_with_this_creation_time() {
        let id = |millis: u64, part: u64, low| {
            Id::Uuid(Uuid::from_u64_pair(millis << 16 | 0x7000 | part, low))
        };
        for millis in [0, 1, 1_720_768_790_528] {
            for part in 0..4_096 {
                for low in [0x8000_0000_0000_0000, 0xbfff_ffff_ffff_ffff] {
                    let id = id(millis, part, low);
                    let created_at = id.created_at().unwrap();
                    let (first, last) = Id::range_at(created_at);
                    assert!((first..=last).contains(&id), "{id}");
                    let next = Moment::from_micros(created_at.micros() + 1).unwrap();
                    assert!(!(Id::range_at(next).0..=Id::range_at(next).1).contains(&id), "{id}");
                }
            }
        }
    }
}
