//! The values of filters: read from the text of a URL or from JSON, and written as the text of a URL.
//!
//! The type of the field parses the value, so that `1.50` is a decimal and `1` is never a boolean. The rules
//! of the field (`min`, `pattern`, …) are not applied: stored values may be older than the rules.

use super::attribute::{Attribute, VisibleResource};
use crate::fault::OrBug as _;
use crate::json::{self, Json};
use crate::model::{Field, Resource, StorageClass};
use crate::problem::FaultCollector;
use crate::value::{IdKind, Moment, Value};

/// A value as it was sent: as text in a URL, or as JSON in a body.
#[derive(Debug, Clone, Copy)]
pub enum SentValue<'a> {
    Text(&'a str),
    Json(&'a Json<'a>),
}

impl<'a> SentValue<'a> {
    /// The text of a value that is a string in JSON.
    pub fn text(self) -> Result<&'a str, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Json(Json::Text(text)) => Ok(text),
            Self::Json(json) => Err(format!("expected a string, got {}", json.type_name())),
        }
    }

    /// The text of a value that is a number in JSON.
    fn number(self) -> Result<&'a str, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Json(Json::Number(text)) => Ok(text),
            Self::Json(json) => Err(format!("expected a number, got {}", json.type_name())),
        }
    }

    /// The text of an id.
    fn id(self, kind: IdKind) -> Result<&'a str, String> {
        match kind {
            IdKind::Uuid => self.text(),
            IdKind::Integer => self.number(),
        }
    }
}

/// Several values: with commas between them in a URL, and a list in JSON.
pub fn read_many(
    sent: SentValue<'_>,
    values_max: usize,
    one: impl Fn(SentValue<'_>) -> Result<Value, String>,
) -> Result<Vec<Value>, String> {
    match sent {
        SentValue::Text(text) => {
            let texts = split_values(text, values_max)?;
            texts.iter().map(|text| one(SentValue::Text(text))).collect()
        }
        SentValue::Json(Json::List(values)) if values.len() > values_max => {
            Err(format!("expected at most {values_max} values, got {}", values.len()))
        }
        SentValue::Json(Json::List(values)) if values.is_empty() => {
            Err("expected at least one value, got none".to_owned())
        }
        SentValue::Json(Json::List(values)) => {
            values.iter().map(|value| one(SentValue::Json(value))).collect()
        }
        SentValue::Json(json) => Err(format!("expected a list, got {}", json.type_name())),
    }
}

/// The value that an attribute, or an element of it, is compared with; `is_bound`: by its order.
pub fn read_operand(
    known: VisibleResource<'_>,
    (aspect, is_bound): (&Attribute, bool),
    sent: SentValue<'_>,
) -> Result<Value, String> {
    match aspect.field(known.resource) {
        // Any text can be compared with texts, also one that is not a valid value of the field.
        Some(field) if field.kind.is_searchable_text && is_bound => {
            sent.text().and_then(check_text).map(Value::text)
        }
        Some(field) => read_value(field.rules.element.as_deref().unwrap_or(field), sent),
        None if is_bound && (aspect, known.resource.id) == (&Attribute::Id, IdKind::Integer) => {
            sent.number().and_then(read_id_bound)
        }
        None => read_builtin_value(aspect, known.resource, sent),
    }
}

/// Adds a hint to an error message: a `+` in a query is decoded to a space.
pub fn add_plus_hint(text: &str, detail: String) -> String {
    match text.contains(' ') {
        true => format!("{detail}; in a query a + is written %2B"),
        false => detail,
    }
}

/// Refuses NUL, which no stored text contains.
pub fn check_text(text: &str) -> Result<&str, String> {
    match text.contains('\0') {
        true => Err("expected a text without the NUL character".to_owned()),
        false => Ok(text),
    }
}

fn read_value(field: &Field, sent: SentValue<'_>) -> Result<Value, String> {
    let of_text;
    let json = match sent {
        SentValue::Json(Json::Null) => {
            return Err("expected a value, got null; no value is exists = false".to_owned());
        }
        SentValue::Json(json) => json,
        SentValue::Text(text) => {
            of_text = text_as_json(field, text)?;
            &of_text
        }
    };
    let mut faults = FaultCollector::at_root(String::new());
    (field.kind.read)(field, json, &mut faults).ok_or_else(|| {
        let first = faults.into_list().into_iter().next().map(|fault| fault.detail);
        let detail = first.unwrap_or_else(|| format!("expected {}", field.kind.about));
        match (field.storage_class(), sent) {
            (StorageClass::Moment, SentValue::Text(text)) => add_plus_hint(text, detail),
            _ => detail,
        }
    })
}

/// Converts a value in a URL to the JSON value that a body would have.
fn text_as_json<'t>(field: &Field, text: &'t str) -> Result<Json<'t>, String> {
    match (field.storage_class(), text) {
        (StorageClass::Integer | StorageClass::Real, text) if json::is_number(text) => {
            Ok(Json::Number(text))
        }
        (StorageClass::Boolean, "true") => Ok(Json::Boolean(true)),
        (StorageClass::Boolean, "false") => Ok(Json::Boolean(false)),
        (StorageClass::Integer | StorageClass::Real | StorageClass::Boolean, text) => {
            Err(format!("expected {}, got {}", field.kind.about, json::quote_for_message(text)))
        }
        (
            StorageClass::Text | StorageClass::Decimal | StorageClass::Moment | StorageClass::Json,
            text,
        ) => Ok(Json::Text(text.into())),
    }
}

fn read_builtin_value(
    aspect: &Attribute,
    resource: &Resource,
    sent: SentValue<'_>,
) -> Result<Value, String> {
    match aspect {
        Attribute::Id => read_id(resource.id, sent),
        Attribute::Ancestor(at) => {
            let key = resource.ancestor_keys.get(*at);
            read_id(key.or_bug("the attribute was found among the keys").id, sent)
        }
        Attribute::CreatedAt | Attribute::UpdatedAt | Attribute::Field(..) => {
            let text = sent.text()?;
            Moment::parse(text).map(Value::Moment).ok_or_else(|| {
                let expected = "expected a timestamp such as \"2026-11-15T02:28:14Z\"";
                let got = json::quote_for_message(text);
                add_plus_hint(text, format!("{expected}, got {got}"))
            })
        }
    }
}

fn read_id(kind: IdKind, sent: SentValue<'_>) -> Result<Value, String> {
    let text = sent.id(kind)?;
    let (id, what) = match kind {
        IdKind::Uuid => (kind.parse(&text.to_ascii_lowercase()), "a UUID"),
        IdKind::Integer => (kind.parse(text), "a positive integer"),
    };
    id.map(Value::from).ok_or_else(|| {
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

pub fn value_text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.to_string(),
        Value::Moment(moment) => moment.to_string(),
        Value::Decimal(decimal) => decimal.to_string(),
        value => json::value_to_text(value),
    }
}

/// The opposite of `split_values`.
pub fn join_values(values: &[&Value]) -> String {
    let escape = |value: &&Value| value_text(value).replace('\\', r"\\").replace(',', r"\,");
    values.iter().map(escape).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

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
