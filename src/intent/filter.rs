//! Filters of a list query.
//!
//! The type of the field parses the value, so that `1.50` is a decimal and `1` is never a boolean. The rules
//! of the field (`min`, `pattern`, …) are not applied: stored values may be older than the rules.

use super::attribute::{Attribute, VisibleResource, id_value};
use crate::fault::OrBug as _;
use crate::json::{self, Json};
use crate::model::expr::Comparison;
use crate::model::{Field, Resource, StorageClass, nearest};
use crate::problem::FaultCollector;
use crate::value::{IdKind, Moment, Value, truncate_for_message};

/// One filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    pub attribute: Attribute,
    pub test: FilterTest,
}

/// The test of a filter. For a missing value only `Exists(false)` holds.
#[derive(Debug, Clone, PartialEq)]
pub enum FilterTest {
    Compare(Comparison, Value),
    In(Vec<Value>),
    /// A half-open range: texts from the first up to before the second, which are those with the first as
    /// prefix; without a second, the range has no upper end.
    Prefix(Box<str>, Option<Box<str>>),
    Contains(Box<str>),
    Exists(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterOperator {
    Compare(Comparison),
    In,
    Prefix,
    Contains,
    Exists,
}

const OPERATORS: [(&str, FilterOperator); 10] = [
    ("eq", FilterOperator::Compare(Comparison::Equal)),
    ("ne", FilterOperator::Compare(Comparison::NotEqual)),
    ("gt", FilterOperator::Compare(Comparison::Greater)),
    ("gte", FilterOperator::Compare(Comparison::GreaterOrEqual)),
    ("lt", FilterOperator::Compare(Comparison::Less)),
    ("lte", FilterOperator::Compare(Comparison::LessOrEqual)),
    ("in", FilterOperator::In),
    ("prefix", FilterOperator::Prefix),
    ("contains", FilterOperator::Contains),
    ("exists", FilterOperator::Exists),
];

impl FilterOperator {
    /// Whether the operator fits the type: booleans and states have no order, and only texts have prefixes.
    fn is_applicable(self, attribute: &Attribute, field: Option<&Field>) -> bool {
        use Comparison::{Equal, NotEqual};
        if let Attribute::Ancestor(_) = attribute {
            return matches!(self, Self::Compare(Equal | NotEqual) | Self::In);
        }
        let is_ordered = field.is_none_or(|field| {
            field.storage_class() != StorageClass::Boolean && field.rules.states.is_none()
        });
        match self {
            Self::Compare(Equal | NotEqual) | Self::In | Self::Exists => true,
            Self::Compare(_) => is_ordered,
            Self::Prefix | Self::Contains => {
                field.is_some_and(|field| field.kind.is_searchable_text)
            }
        }
    }
}

/// A filter that a list accepts.
#[derive(Debug)]
pub struct FilterParameter<'a> {
    /// Its name in a query. The operator `eq` is left out, except for a field that is named like a control
    /// parameter.
    pub name: String,
    pub attribute: Attribute,
    /// `None` for the members that every item has.
    pub field: Option<&'a Field>,
    pub operator: FilterOperator,
}

/// All filters that a list of the resource accepts.
pub fn filter_parameters<'a>(
    known: VisibleResource<'a>,
    controls: &[&str],
) -> Vec<FilterParameter<'a>> {
    let mut all = Vec::new();
    for name in known.filter_names() {
        let Ok(attribute) = known.find_filter(&name) else { continue };
        let field = attribute.field(known.resource);
        let fits = |(_, one): &(_, FilterOperator)| one.is_applicable(&attribute, field);
        for (word, operator) in OPERATORS.into_iter().filter(fits) {
            let is_plain = word == "eq" && !controls.contains(&&*name);
            let name = if is_plain { name.clone() } else { format!("{name}:{word}") };
            all.push(FilterParameter { name, attribute: attribute.clone(), field, operator });
        }
    }
    all
}

/// Parses a filter. An error message begins with the parameter as it was sent.
pub fn read(
    known: VisibleResource<'_>,
    (parameter, operator): (&str, &str),
    aspect: Attribute,
    text: &str,
    values_max: usize,
) -> Result<Filter, String> {
    let wrong = |detail: String| format!("{}: {detail}", truncate_for_message(parameter));
    let Some((_, found)) = OPERATORS.iter().find(|(word, _)| *word == operator) else {
        let near = nearest(operator, OPERATORS.iter().map(|(word, _)| *word));
        let near = near.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
        let listed = OPERATORS.map(|(word, _)| word).join(", ");
        return Err(wrong(format!("no such operator (there are {listed}){near}")));
    };
    let field = aspect.field(known.resource);
    if !found.is_applicable(&aspect, field) {
        let fits = |(_, one): &&(_, FilterOperator)| one.is_applicable(&aspect, field);
        let fitting = OPERATORS.iter().filter(fits).map(|(word, _)| *word);
        let fitting = fitting.collect::<Vec<_>>().join(", ");
        return Err(wrong(format!("the operator does not fit; those that do: {fitting}")));
    }
    let one = |text: &str| match (field, found) {
        // Any text can be compared with texts, also one that is not a valid value of the field.
        (Some(field), FilterOperator::Compare(comparison))
            if field.kind.is_searchable_text
                && !matches!(comparison, Comparison::Equal | Comparison::NotEqual) =>
        {
            check_text(text).map(Value::text)
        }
        (Some(field), _) => read_value(field, text),
        (None, FilterOperator::Compare(comparison))
            if (&aspect, known.resource.id) == (&Attribute::Id, IdKind::Integer)
                && !matches!(comparison, Comparison::Equal | Comparison::NotEqual) =>
        {
            read_id_bound(text)
        }
        (None, _) => read_builtin_value(&aspect, known.resource, text),
    };
    let test = match found {
        FilterOperator::Compare(comparison) => {
            one(text).map(|value| FilterTest::Compare(*comparison, value))
        }
        FilterOperator::In => split_values(text, values_max)
            .and_then(|texts| texts.iter().map(|text| one(text)).collect::<Result<_, _>>())
            .map(FilterTest::In),
        FilterOperator::Prefix => {
            check_text(text).map(|text| FilterTest::Prefix(text.into(), prefix_successor(text)))
        }
        FilterOperator::Contains => check_text(text).map(|text| FilterTest::Contains(text.into())),
        FilterOperator::Exists => match text {
            "true" => Ok(FilterTest::Exists(true)),
            "false" => Ok(FilterTest::Exists(false)),
            _ => Err(format!("expected true or false, got {}", json::quote_for_message(text))),
        },
    };
    Ok(Filter { test: test.map_err(wrong)?, attribute: aspect })
}

/// Adds a hint to an error message: a `+` in a query is decoded to a space.
pub fn add_plus_hint(text: &str, detail: String) -> String {
    match text.contains(' ') {
        true => format!("{detail}; in a query a + is written %2B"),
        false => detail,
    }
}

/// Refuses NUL, which no stored text contains.
fn check_text(text: &str) -> Result<&str, String> {
    match text.contains('\0') {
        true => Err("expected a text without the NUL character".to_owned()),
        false => Ok(text),
    }
}

fn read_value(field: &Field, text: &str) -> Result<Value, String> {
    let class = field.storage_class();
    let json = match (class, text) {
        (StorageClass::Integer | StorageClass::Real, text) if json::is_number(text) => {
            Json::Number(text)
        }
        (StorageClass::Boolean, "true") => Json::Boolean(true),
        (StorageClass::Boolean, "false") => Json::Boolean(false),
        (StorageClass::Integer | StorageClass::Real | StorageClass::Boolean, text) => {
            return Err(format!(
                "expected {}, got {}",
                field.kind.about,
                json::quote_for_message(text)
            ));
        }
        (
            StorageClass::Text | StorageClass::Decimal | StorageClass::Moment | StorageClass::Json,
            text,
        ) => Json::Text(text.into()),
    };
    let mut faults = FaultCollector::at_root(String::new());
    (field.kind.read)(field, &json, &mut faults).ok_or_else(|| {
        let first = faults.into_list().into_iter().next().map(|fault| fault.detail);
        let detail = first.unwrap_or_else(|| format!("expected {}", field.kind.about));
        if class == StorageClass::Moment { add_plus_hint(text, detail) } else { detail }
    })
}

fn read_builtin_value(
    aspect: &Attribute,
    resource: &Resource,
    text: &str,
) -> Result<Value, String> {
    match aspect {
        Attribute::Id => read_id(resource.id, text),
        Attribute::Ancestor(at) => {
            let key = resource.ancestor_keys.get(*at);
            read_id(key.or_bug("the attribute was found among the keys").id, text)
        }
        Attribute::CreatedAt | Attribute::UpdatedAt | Attribute::Field(..) => {
            Moment::parse(text).map(Value::Moment).ok_or_else(|| {
                let expected = "expected a timestamp such as \"2026-11-15T02:28:14Z\"";
                let got = json::quote_for_message(text);
                add_plus_hint(text, format!("{expected}, got {got}"))
            })
        }
    }
}

fn read_id(kind: IdKind, text: &str) -> Result<Value, String> {
    let (id, what) = match kind {
        IdKind::Uuid => (kind.parse(&text.to_ascii_lowercase()), "a UUID"),
        IdKind::Integer => (kind.parse(text), "a positive integer"),
    };
    id.map(id_value).ok_or_else(|| {
        format!("expected an id, which is {what}, got {}", json::quote_for_message(text))
    })
}

/// A bound need not be a valid id: any integer has a position in the order of ids. An integer out of range is
/// before or after all of them.
fn read_id_bound(text: &str) -> Result<Value, String> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("expected an integer, got {}", json::quote_for_message(text)));
    }
    let out_of_range = if is_negative { i64::MIN } else { i64::MAX };
    Ok(Value::Integer(text.parse().unwrap_or(out_of_range)))
}

/// Splits a list of values: `\,` is a comma in a value, `\\` a backslash.
pub fn split_values(text: &str, values_max: usize) -> Result<Vec<String>, String> {
    let (mut values, mut value) = (Vec::new(), String::new());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ',' => values.push(std::mem::take(&mut value)),
            '\\' => match chars.next() {
                Some(c @ (',' | '\\')) => value.push(c),
                other => {
                    let got = other.map(String::from).unwrap_or_default();
                    let got = json::quote_for_message(&format!("\\{got}"));
                    return Err(format!(
                        r"expected \, or \\ for a comma or a backslash, got {got}"
                    ));
                }
            },
            c => value.push(c),
        }
        if values.len() >= values_max {
            return Err(format!("expected at most {values_max} values, got more"));
        }
    }
    values.push(value);
    Ok(values)
}

/// The smallest text, by code points, that is greater than all texts with this prefix.
fn prefix_successor(text: &str) -> Option<Box<str>> {
    let mut chars: Vec<char> = text.chars().collect();
    while let Some(last) = chars.pop() {
        // A last character without a successor is dropped, and the one before it is increased.
        let next = match last {
            '\u{D7FF}' => Some('\u{E000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect::<String>().into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_prefix_successor_is_the_first_text_after_the_prefix() {
        assert_eq!(prefix_successor("ab").as_deref(), Some("ac"));
        assert_eq!(prefix_successor("a\u{10FFFF}").as_deref(), Some("b"));
        assert_eq!(prefix_successor("\u{D7FF}").as_deref(), Some("\u{E000}"));
        assert_eq!(prefix_successor("\u{10FFFF}\u{10FFFF}"), None);
        assert_eq!(prefix_successor(""), None);
    }

    #[test]
    fn filter_values_with_escaped_commas_and_backslashes_are_split() {
        let all = |text: &str| split_values(text, 3).unwrap();
        assert_eq!(all("a,b"), ["a", "b"]);
        assert_eq!(all(r"a\,b,c\\"), ["a,b", r"c\"]);
        assert_eq!(all(""), [""]);
        assert_eq!(all(",,"), ["", "", ""]);
        assert_eq!(split_values("a,b,c,d", 3).unwrap_err(), "expected at most 3 values, got more");
        assert_eq!(
            split_values(r"a\b", 3).unwrap_err(),
            r#"expected \, or \\ for a comma or a backslash, got "\\b""#
        );
        assert!(split_values("a\\", 3).is_err());
    }
}
