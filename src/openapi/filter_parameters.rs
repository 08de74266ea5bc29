//! The parameters of filters: one for each attribute and operator.

use super::components::Components;
use super::enumerations::enumeration;
use super::field_schema::id_schema;
use super::tree::JsonNode;
use crate::intent::{Attribute, FilterOperator, FilterParameter};
use crate::model::expr::Comparison;
use crate::model::{Field, StorageClass};
use crate::value::{INTEGER_MAX, IdKind};

/// The characters of a value between the commas of `in`: a comma or a backslash has a backslash before it.
pub const ESCAPED_VALUES: &str = r"^([^\\]|\\[\\,])*$";
/// Two of them.
const ESCAPED_PAIR: &str = r"^([^\\,]|\\[\\,])*,([^\\,]|\\[\\,])*$";

/// The parameter of one attribute and operator.
pub fn filter_parameter(
    filter: &FilterParameter<'_>,
    values_max: usize,
    components: &mut Components,
) -> JsonNode {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    let attribute = &filter.path;
    let about = match filter.operator {
        FilterOperator::Compare(Equal) => format!("`{attribute}` has this value."),
        FilterOperator::Compare(NotEqual) => format!("`{attribute}` has another value."),
        FilterOperator::Compare(Greater) => format!("`{attribute}` is greater."),
        FilterOperator::Compare(GreaterOrEqual) => format!("`{attribute}` is greater or equal."),
        FilterOperator::Compare(Less) => format!("`{attribute}` is less."),
        FilterOperator::Compare(LessOrEqual) => format!("`{attribute}` is less or equal."),
        FilterOperator::Between => {
            format!("`{attribute}` is between two values, or equal to one of them.")
        }
        FilterOperator::In => format!("`{attribute}` is one of these values."),
        FilterOperator::Has => format!("`{attribute}` has this element."),
        FilterOperator::Prefix => format!("`{attribute}` begins with this text."),
        FilterOperator::Contains => format!("`{attribute}` contains this text."),
        FilterOperator::Match => {
            format!("`{attribute}` contains this text, without regard to case and accents.")
        }
        FilterOperator::Exists => format!("`{attribute}` has a value (`true`) or none (`false`)."),
    };
    let is_ordered = !matches!(
        filter.operator,
        FilterOperator::Compare(Equal | NotEqual) | FilterOperator::In | FilterOperator::Has
    );
    let text = || object! { "type": "string" };
    match filter.operator {
        FilterOperator::Exists => {
            query_parameter(&filter.name, &about, object! { "type": "boolean" })
        }
        FilterOperator::Prefix | FilterOperator::Contains | FilterOperator::Match => {
            query_parameter(&filter.name, &about, text())
        }
        FilterOperator::Compare(_) | FilterOperator::Has => {
            let schema = filter_value(filter, is_ordered, components);
            query_parameter(&filter.name, &about, schema)
        }
        FilterOperator::Between if has_commas(filter.field) => {
            let about = format!(
                "{about} With a comma between them; `\\,` is a comma in a value, `\\\\` a backslash."
            );
            query_parameter(&filter.name, &about, text().with("pattern", ESCAPED_PAIR))
        }
        FilterOperator::Between => {
            let schema = object! {
                "type": "array", "minItems": 2_i64, "maxItems": 2_i64,
                "items": filter_value(filter, true, components),
            };
            let parameter = query_parameter(&filter.name, &about, schema);
            parameter.with("style", "form").with("explode", false)
        }
        FilterOperator::In if has_commas(filter.field) => {
            let about = format!(
                "{about} At most {values_max}, with commas between them; `\\,` is a comma in a value, `\\\\` a backslash."
            );
            query_parameter(&filter.name, &about, text().with("pattern", ESCAPED_VALUES))
        }
        FilterOperator::In => {
            let schema = object! {
                "type": "array", "minItems": 1_i64, "maxItems": values_max,
                "items": filter_value(filter, false, components),
            };
            let parameter = query_parameter(&filter.name, &about, schema);
            parameter.with("style", "form").with("explode", false)
        }
    }
}

/// Whether values may have commas or backslashes, which are then escaped.
fn has_commas(field: Option<&Field>) -> bool {
    field.is_some_and(|field| {
        field.storage_class() == StorageClass::Text
            && field.rules.states.is_none()
            && field.rules.reference.is_none()
            && !matches!(field.kind.json_format, Some("date" | "email" | "uuid"))
    })
}

/// The value of a comparison: one of the type of the field, without its rules.
fn filter_value(
    filter: &FilterParameter<'_>,
    is_ordered: bool,
    components: &mut Components,
) -> JsonNode {
    let resource = filter.resource;
    let integer = |min: i64| {
        object! { "type": "integer", "format": "int64", "minimum": min, "maximum": INTEGER_MAX }
    };
    let Some(field) = filter.field else {
        return match (&filter.attribute, resource.id) {
            (Attribute::Id, IdKind::Integer) if is_ordered => object! { "type": "integer" },
            (Attribute::Id, kind) => id_schema(kind),
            (Attribute::Ancestor(at), kind) => {
                id_schema(resource.ancestor_keys.get(*at).map_or(kind, |key| key.id))
            }
            _ => object! { "type": "string", "format": "date-time" },
        };
    };
    let text = || object! { "type": "string" };
    let field = field.rules.element.as_deref().unwrap_or(field);
    match field.storage_class() {
        StorageClass::Boolean => object! { "type": "boolean" },
        StorageClass::Integer if field.rules.reference.is_some() => integer(1),
        StorageClass::Integer => integer(-INTEGER_MAX),
        StorageClass::Real => object! { "type": "number", "format": "double" },
        StorageClass::Decimal => {
            let scale = usize::from(field.rules.scale);
            let fraction =
                if scale == 0 { String::new() } else { format!("(\\.[0-9]{{1,{scale}}})?") };
            let pattern = format!("^-?(0|[1-9][0-9]{{0,{}}}){fraction}$", 17 - scale);
            text().with("format", "decimal").with("pattern", pattern)
        }
        StorageClass::Moment => text().with("format", "date-time"),
        StorageClass::Text if is_ordered && field.kind.is_searchable_text => text(),
        StorageClass::Text if field.rules.reference.is_some() => text().with("format", "uuid"),
        StorageClass::Text | StorageClass::Json => match &field.rules.states {
            Some(states) => {
                let states = JsonNode::texts(states.next.iter().map(|(state, _)| state));
                enumeration(resource, &field.name, states, components)
            }
            None => text()
                .with_some("format", field.kind.json_format)
                .with_some("pattern", field.kind.json_pattern),
        },
    }
}

/// A parameter in the query.
pub fn query_parameter(name: &str, about: &str, schema: JsonNode) -> JsonNode {
    object! { "name": name, "in": "query", "description": about, "schema": schema }
}
