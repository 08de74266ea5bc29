//! Filters of a list query: a tree of tests and groups.
//!
//! A test holds or does not hold, also for a missing value, so that `not` is its exact opposite. Only a test of a related
//! item that the caller cannot see does neither, and its opposite does not hold either: what such an item is like must
//! not decide. An item without a related one has no value.

use super::attribute::{Attribute, VisibleResource};
use super::filter_value::{
    SentValue, check_text, join_values, read_many, read_operand, value_text,
};
use super::relations::{ReadableResources, name_relations, relations_to_one};
use crate::fault::OrBug as _;
use crate::json::{self, Json};
use crate::model::derivation::fold;
use crate::model::expr::{Comparison, RelationStep};
use crate::model::{Field, Model, Resource, StorageClass, nearest};
use crate::value::{Value, truncate_for_message};

/// A test, or a group of filters.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    Test(AttributeTest),
    /// All of them hold.
    All(Vec<Filter>),
    /// At least one of them holds.
    Any(Vec<Filter>),
    /// It does not hold.
    Not(Box<Filter>),
}

/// A test of one attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct AttributeTest {
    /// The relations from the item to the one that has the attribute; none if it is the item itself.
    pub relations: Vec<RelationStep>,
    pub attribute: Attribute,
    pub test: FilterTest,
}

impl AttributeTest {
    /// The name of what it tests, in a query of items of this resource.
    pub fn name(&self, (model, resource): (&Model, &Resource)) -> String {
        let (mut name, resource) = name_relations(model, resource, &self.relations);
        name.push_str(&self.attribute.name(resource));
        name
    }
}

impl Filter {
    /// Filters that all hold; one alone needs no group.
    pub fn all(mut filters: Vec<Self>) -> Self {
        match filters.pop() {
            Some(only) if filters.is_empty() => only,
            last => {
                filters.extend(last);
                Self::All(filters)
            }
        }
    }

    /// Whether other items decide whether it holds.
    pub fn reads_related(&self) -> bool {
        let mut is_related = false;
        self.for_each_test(&mut |test| is_related |= !test.relations.is_empty());
        is_related
    }

    fn for_each_test<'f>(&'f self, visit: &mut dyn FnMut(&'f AttributeTest)) {
        match self {
            Self::Test(test) => visit(test),
            Self::All(filters) | Self::Any(filters) => {
                filters.iter().for_each(|filter| filter.for_each_test(visit));
            }
            Self::Not(filter) => filter.for_each_test(visit),
        }
    }
}

/// The tests of filters, also those in groups.
pub fn tests_in(filters: &[Filter]) -> Vec<&AttributeTest> {
    let mut tests = Vec::new();
    filters.iter().for_each(|filter| filter.for_each_test(&mut |test| tests.push(test)));
    tests
}

/// The test of a filter. For a missing value only `Exists(false)` holds.
#[derive(Debug, Clone, PartialEq)]
pub enum FilterTest {
    Compare(Comparison, Value),
    /// From the first up to the second, both included.
    Between(Value, Value),
    In(Vec<Value>),
    /// A list has the value as an element.
    Has(Value),
    /// A half-open range: texts from the first up to before the second, which are those with the first as
    /// prefix; without a second, the range has no upper end.
    Prefix(Box<str>, Option<Box<str>>),
    Contains(Box<str>),
    Match(FoldedText),
    Exists(bool),
}

/// A text that is contained without regard to case and accents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldedText {
    /// As it was sent.
    pub sent: Box<str>,
    pub folded: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterOperator {
    Compare(Comparison),
    Between,
    In,
    Has,
    Prefix,
    Contains,
    Match,
    Exists,
}

const MATCH: &str = "match";
/// Short for `match`, directly after the name of a field: `name~=ann`.
const MATCH_SIGN: &str = "~";

const OPERATORS: [(&str, FilterOperator); 13] = [
    ("eq", FilterOperator::Compare(Comparison::Equal)),
    ("ne", FilterOperator::Compare(Comparison::NotEqual)),
    ("gt", FilterOperator::Compare(Comparison::Greater)),
    ("gte", FilterOperator::Compare(Comparison::GreaterOrEqual)),
    ("lt", FilterOperator::Compare(Comparison::Less)),
    ("lte", FilterOperator::Compare(Comparison::LessOrEqual)),
    ("between", FilterOperator::Between),
    ("in", FilterOperator::In),
    ("has", FilterOperator::Has),
    ("prefix", FilterOperator::Prefix),
    ("contains", FilterOperator::Contains),
    (MATCH, FilterOperator::Match),
    ("exists", FilterOperator::Exists),
];

impl FilterOperator {
    /// Whether the operator fits the type: booleans and states have no order, only texts have prefixes, and only
    /// lists have elements.
    fn is_applicable(self, attribute: &Attribute, field: Option<&Field>) -> bool {
        use Comparison::{Equal, NotEqual};
        if let Attribute::Ancestor(_) = attribute {
            return matches!(self, Self::Compare(Equal | NotEqual) | Self::In);
        }
        if field.is_some_and(|field| field.rules.element.is_some()) {
            return matches!(self, Self::Has | Self::Exists);
        }
        let is_ordered = field.is_none_or(|field| {
            field.storage_class() != StorageClass::Boolean && field.rules.states.is_none()
        });
        match self {
            Self::Compare(Equal | NotEqual) | Self::In | Self::Exists => true,
            Self::Compare(_) | Self::Between => is_ordered,
            Self::Has => false,
            Self::Prefix | Self::Contains => {
                field.is_some_and(|field| field.kind.is_searchable_text)
            }
            Self::Match => field.is_some_and(|field| field.is_matched),
        }
    }
}

/// A filter that a list accepts.
#[derive(Debug)]
pub struct FilterParameter<'a> {
    /// Its name in a query. The operator `eq` is left out, except for a field that is named like a control
    /// parameter.
    pub name: String,
    /// The name of the attribute.
    pub path: String,
    /// The resource that has the attribute.
    pub resource: &'a Resource,
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
    let resource = known.resource;
    for path in known.filter_names() {
        let Ok(attribute) = known.find_filter(&path) else { continue };
        let field = attribute.field(known.resource);
        let fits = |(_, one): &(_, FilterOperator)| one.is_applicable(&attribute, field);
        for (word, operator) in OPERATORS.into_iter().filter(fits) {
            let is_plain = word == "eq" && !controls.contains(&&*path);
            let name = if is_plain { path.clone() } else { format!("{path}:{word}") };
            let (path, attribute) = (path.clone(), attribute.clone());
            all.push(FilterParameter { name, path, resource, attribute, field, operator });
        }
    }
    all
}

/// The filters of the fields of directly related items. A list also accepts those of the members that every item has,
/// and of items that are related to the related ones.
pub fn related_filter_parameters<'a>(
    model: &'a Model,
    known: VisibleResource<'a>,
    readable: &'a dyn ReadableResources,
) -> Vec<FilterParameter<'a>> {
    let mut all = Vec::new();
    for relation in relations_to_one(model, known, readable) {
        let of_fields = filter_parameters(relation.target, &[]).into_iter();
        all.extend(of_fields.filter(|one| one.field.is_some()).map(|one| FilterParameter {
            name: format!("{}.{}", relation.name, one.name),
            path: format!("{}.{}", relation.name, one.path),
            ..one
        }));
    }
    all
}

/// Reads the test of an attribute. An error message begins with the parameter as it was sent.
pub fn read(
    known: VisibleResource<'_>,
    (parameter, operator): (&str, &str),
    aspect: &Attribute,
    sent: SentValue<'_>,
    values_max: usize,
) -> Result<FilterTest, String> {
    let wrong = |detail: String| format!("{}: {detail}", truncate_for_message(parameter));
    let operator = if operator == MATCH_SIGN { MATCH } else { operator };
    let Some((_, found)) = OPERATORS.iter().find(|(word, _)| *word == operator) else {
        let near = nearest(operator, OPERATORS.iter().map(|(word, _)| *word));
        let near = near.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
        let listed = OPERATORS.map(|(word, _)| word).join(", ");
        return Err(wrong(format!("no such operator (there are {listed}){near}")));
    };
    let field = aspect.field(known.resource);
    let is_text = field.is_some_and(|field| field.kind.is_searchable_text);
    if *found == FilterOperator::Match && is_text && !found.is_applicable(aspect, field) {
        let detail = "the field is not declared match = true, so it cannot be matched";
        return Err(wrong(detail.to_owned()));
    }
    if !found.is_applicable(aspect, field) {
        let fits = |(_, one): &&(_, FilterOperator)| one.is_applicable(aspect, field);
        let fitting = OPERATORS.iter().filter(fits).map(|(word, _)| *word);
        let fitting = fitting.collect::<Vec<_>>().join(", ");
        return Err(wrong(format!("the operator does not fit; those that do: {fitting}")));
    }
    let is_bound = match found {
        FilterOperator::Compare(Comparison::Equal | Comparison::NotEqual) => false,
        FilterOperator::Compare(_) | FilterOperator::Between => true,
        _ => false,
    };
    let one = |sent: SentValue<'_>| read_operand(known, (aspect, is_bound), sent);
    let many = |values_max| read_many(sent, values_max, one);
    let test = match found {
        FilterOperator::Compare(comparison) => {
            one(sent).map(|value| FilterTest::Compare(*comparison, value))
        }
        FilterOperator::Between => {
            many(2).and_then(|values| match <[Value; 2]>::try_from(values) {
                Ok([from, to]) => Ok(FilterTest::Between(from, to)),
                Err(values) => Err(format!("expected two values, got {}", values.len())),
            })
        }
        FilterOperator::In => many(values_max).map(FilterTest::In),
        FilterOperator::Has => one(sent).map(FilterTest::Has),
        FilterOperator::Prefix => sent
            .text()
            .and_then(check_text)
            .map(|text| FilterTest::Prefix(text.into(), prefix_successor(text))),
        FilterOperator::Contains => {
            sent.text().and_then(check_text).map(|text| FilterTest::Contains(text.into()))
        }
        FilterOperator::Match => sent.text().and_then(check_text).map(|text| {
            FilterTest::Match(FoldedText { sent: text.into(), folded: fold(text).into() })
        }),
        FilterOperator::Exists => match sent {
            SentValue::Text("true") | SentValue::Json(Json::Boolean(true)) => {
                Ok(FilterTest::Exists(true))
            }
            SentValue::Text("false") | SentValue::Json(Json::Boolean(false)) => {
                Ok(FilterTest::Exists(false))
            }
            SentValue::Text(text) => {
                Err(format!("expected true or false, got {}", json::quote_for_message(text)))
            }
            SentValue::Json(json) => {
                Err(format!("expected true or false, got {}", json.type_name()))
            }
        },
    };
    test.map_err(wrong)
}

impl FilterTest {
    /// At least the number of values that a statement has for it.
    pub fn value_count(&self) -> usize {
        match self {
            Self::In(values) => values.len(),
            _ => 2,
        }
    }

    /// The operator and the value, as a URL has them.
    pub fn as_text(&self) -> (&'static str, String) {
        let operator = match self {
            Self::Compare(comparison, _) => FilterOperator::Compare(*comparison),
            Self::Between(..) => FilterOperator::Between,
            Self::In(_) => FilterOperator::In,
            Self::Has(_) => FilterOperator::Has,
            Self::Prefix(..) => FilterOperator::Prefix,
            Self::Contains(_) => FilterOperator::Contains,
            Self::Match(_) => FilterOperator::Match,
            Self::Exists(_) => FilterOperator::Exists,
        };
        let word = OPERATORS.iter().find(|(_, one)| *one == operator).map(|(word, _)| *word);
        let text = match self {
            Self::Compare(_, value) | Self::Has(value) => value_text(value),
            Self::Between(from, to) => join_values(&[from, to]),
            Self::In(values) => join_values(&values.iter().collect::<Vec<_>>()),
            Self::Prefix(text, _) | Self::Contains(text) => text.to_string(),
            Self::Match(text) => text.sent.to_string(),
            Self::Exists(exists) => exists.to_string(),
        };
        (word.or_bug("each operator has a name"), text)
    }
}

/// A parameter as the name and the operator; without one, it is `eq`.
pub fn split_operator(parameter: &str) -> (&str, &str) {
    parameter
        .rsplit_once(':')
        .or_else(|| Some((parameter.strip_suffix(MATCH_SIGN)?, MATCH)))
        .unwrap_or((parameter, "eq"))
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
}
