//! Reads the filters of a list, from the parameters of a URL or from JSON, and writes them as parameters.
//!
//! Groups are `any=(status=paid;all(status=open;total:gt=100))` in a URL, and
//! `{"any": [{"status": "paid"}, {"status": "open", "total": {"gt": 100}}]}` in JSON.

use super::attribute::{Attribute, UnusableName, VisibleResource, no_such_message};
use super::filter::{self, AttributeTest, Filter, split_operator};
use super::filter_value::SentValue;
use super::group_text::{escape, split_outside, strip_parentheses, unescape};
use super::relations::{ReadableResources, name_relations, relations_to_one};
use crate::json::{self, Json};
use crate::model::expr::RelationStep;
use crate::model::settings::ServerLimits;
use crate::model::{Model, Resource};
use crate::value::truncate_for_message;

/// The parameters of a list that are no filters. The last one is unknown where there are no related items.
pub const CONTROL_PARAMETERS: [&str; 6] = ["limit", "cursor", "sort", "fields", "count", "expand"];

/// Those that every list has.
pub(super) fn plain_controls() -> &'static [&'static str] {
    static ALL: [&str; 6] = CONTROL_PARAMETERS;
    ALL.split_last().map_or(&ALL, |(_, plain)| plain)
}

/// The parameters of a URL that are groups of filters.
pub const GROUP_PARAMETERS: [&str; 2] = ["any", "not"];

/// The largest number of groups inside each other.
const LEVELS_MAX: usize = 8;

/// The largest number of values in all filters of a list, each of which is a parameter of a statement. Both engines take
/// more than twice as many.
const VALUES_MAX: usize = 10_000;

/// The largest number of relations from an item to the field of a filter.
const RELATIONS_MAX: usize = 2;

/// What filters select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterUse {
    List,
    /// Changes of items, each of which is tested alone.
    Events,
}

/// Where filters are read, and what they may name beside the fields of the items.
#[derive(Clone, Copy)]
pub struct FilterScope<'a> {
    pub model: &'a Model,
    pub readable: &'a dyn ReadableResources,
    pub used_for: FilterUse,
}

/// An attribute of the items, or of the items that relations lead to.
struct FoundAttribute<'a> {
    relations: Vec<RelationStep>,
    /// The resource that has the attribute.
    known: VisibleResource<'a>,
    attribute: Attribute,
}

/// Reads filters, and counts their tests.
pub struct FilterReader<'a> {
    known: VisibleResource<'a>,
    scope: FilterScope<'a>,
    /// The parameters that are no filters, for messages.
    controls: &'static [&'static str],
    tests: usize,
    values: usize,
}

impl<'a> FilterReader<'a> {
    pub fn new(
        known: VisibleResource<'a>,
        scope: FilterScope<'a>,
        controls: &'static [&'static str],
    ) -> Self {
        Self { known, scope, controls, tests: 0, values: 0 }
    }

    /// Reads a parameter of a URL, with its operator after a colon.
    pub fn read_parameter(&mut self, parameter: &str, value: &str) -> Result<Filter, String> {
        if GROUP_PARAMETERS.contains(&parameter) {
            let group =
                strip_parentheses(value).and_then(|inside| self.read_group(parameter, inside, 1));
            return group.map_err(|detail| format!("{parameter}: {detail}"));
        }
        let (name, operator) = split_operator(parameter);
        self.read_test((parameter, name, operator), SentValue::Text(value), true)
    }

    /// Reads the text inside the parentheses of a group.
    fn read_group(&mut self, word: &str, inside: &str, level: usize) -> Result<Filter, String> {
        check_level(level)?;
        let mut filters = Vec::new();
        for part in split_outside(inside, ';')? {
            filters.push(self.read_part(part, level)?);
        }
        Ok(make_group(word, filters))
    }

    fn read_part(&mut self, part: &str, level: usize) -> Result<Filter, String> {
        for word in ["any", "all", "not"] {
            let group = part.strip_prefix(word).filter(|rest| rest.starts_with('('));
            if let Some(group) = group {
                return self.read_group(word, strip_parentheses(group)?, level + 1);
            }
        }
        let Some((parameter, value)) = part.split_once('=') else {
            let got = json::quote_for_message(part);
            return Err(format!(
                "expected filters such as status=paid, any(…), all(…) or not(…) with ; between them, got {got}"
            ));
        };
        let (name, operator) = split_operator(parameter);
        self.read_test((parameter, name, operator), SentValue::Text(&unescape(value)), false)
    }

    /// Reads the members of a JSON object, which all hold.
    pub fn read_json(&mut self, json: &Json<'_>) -> Result<Vec<Filter>, String> {
        let filters = self.read_members(json, 0)?;
        // The same filters can be written in a URL, which may need more groups.
        check_level(filters.iter().map(parameter_levels).max().unwrap_or(0))?;
        Ok(filters)
    }

    fn read_members(&mut self, json: &Json<'_>, level: usize) -> Result<Vec<Filter>, String> {
        check_level(level)?;
        let Json::Object(members) = json else {
            return Err(format!(
                "expected an object with fields, any, all or not, got {}",
                json.type_name()
            ));
        };
        let mut filters = Vec::new();
        for (name, value) in members {
            match (&**name, value) {
                (word @ ("any" | "all"), value) => {
                    let group = self.read_elements(value, level + 1);
                    let group = group.map_err(|detail| format!("{word}: {detail}"))?;
                    match make_group(word, group) {
                        Filter::All(inner) => filters.extend(inner),
                        group => filters.push(group),
                    }
                }
                ("not", value) => {
                    let inner = self.read_members(value, level + 1).and_then(refuse_empty);
                    let inner = inner.map_err(|detail| format!("not: {detail}"))?;
                    filters.push(make_group("not", inner));
                }
                (name, Json::Object(operators)) if !operators.is_empty() && !name.contains(':') => {
                    for (operator, value) in operators {
                        let parameter = format!("{name}.{operator}");
                        let sent = SentValue::Json(value);
                        filters.push(self.read_test((&parameter, name, operator), sent, false)?);
                    }
                }
                (parameter, value) => {
                    let (name, operator) = split_operator(parameter);
                    let sent = SentValue::Json(value);
                    filters.push(self.read_test((parameter, name, operator), sent, false)?);
                }
            }
        }
        Ok(filters)
    }

    /// Reads the filters in a list of objects.
    fn read_elements(&mut self, json: &Json<'_>, level: usize) -> Result<Vec<Filter>, String> {
        let Json::List(elements) = json else {
            return Err(format!("expected a list of objects, got {}", json.type_name()));
        };
        let mut filters = Vec::new();
        for element in elements {
            let members = self.read_members(element, level).and_then(refuse_empty)?;
            filters.push(Filter::all(members));
        }
        refuse_empty(filters)
    }

    /// `is_parameter`: the name stands where a control parameter could stand.
    fn read_test(
        &mut self,
        (parameter, name, operator): (&str, &str, &str),
        sent: SentValue<'_>,
        is_parameter: bool,
    ) -> Result<Filter, String> {
        let found = self.find(name).map_err(|unusable| match unusable {
            UnusableName::Declared(why) => format!("{}: {why}", truncate_for_message(name)),
            UnusableName::Unknown => self.unknown_message(name, is_parameter && name == parameter),
        })?;
        let ServerLimits { filter_terms_max, filter_values_max, .. } =
            self.scope.model.server.limits;
        if self.tests == filter_terms_max {
            return Err(format!("expected at most {filter_terms_max} filters, got more"));
        }
        self.tests += 1;
        let FoundAttribute { relations, known, attribute } = found;
        let test = filter::read(known, (parameter, operator), &attribute, sent, filter_values_max)?;
        let test = AttributeTest { relations, attribute, test };
        self.values += test.test.value_count();
        match self.values > VALUES_MAX {
            true => Err(format!("expected at most {VALUES_MAX} values in all filters, got more")),
            false => Ok(Filter::Test(test)),
        }
    }

    /// The attribute with this name, such as `status` or `customer.email`.
    fn find(&self, name: &str) -> Result<FoundAttribute<'a>, UnusableName> {
        let (relations, known, last) = self.follow(name);
        if relations.len() > RELATIONS_MAX {
            let why = format!("a filter follows at most {RELATIONS_MAX} relations");
            return Err(UnusableName::Declared(why));
        }
        let attribute = known.find_filter(last)?;
        if relations.is_empty() {
            return Ok(FoundAttribute { relations, known, attribute });
        }
        match self.scope.used_for {
            FilterUse::List => Ok(FoundAttribute { relations, known, attribute }),
            FilterUse::Events => {
                let why = "events are filtered by the item itself, not by related ones".to_owned();
                Err(UnusableName::Declared(why))
            }
        }
    }

    /// Follows the relations at the start of a name, up to one too many. Returns the rest of the name too.
    fn follow<'n>(&self, name: &'n str) -> (Vec<RelationStep>, VisibleResource<'a>, &'n str) {
        let FilterScope { model, readable, .. } = self.scope;
        let (mut steps, mut known, mut rest) = (Vec::new(), self.known, name);
        while let Some((first, after)) =
            rest.split_once('.').filter(|_| steps.len() <= RELATIONS_MAX)
        {
            let all = relations_to_one(model, known, readable);
            let Some(relation) = all.into_iter().find(|one| one.name == first) else { break };
            steps.push(relation.step);
            (known, rest) = (relation.target, after);
        }
        (steps, known, rest)
    }

    fn unknown_message(&self, name: &str, is_whole_parameter: bool) -> String {
        let (steps, known, _) = self.follow(name);
        if !steps.is_empty() {
            let (before, _) = name_relations(self.scope.model, self.known.resource, &steps);
            let names = known.filter_names().map(|name| format!("{before}{name}"));
            let names: Vec<String> = names.collect();
            return no_such_message(name, "field", names.iter().map(String::as_str));
        }
        match is_whole_parameter {
            true => {
                let reserved = [self.controls, &GROUP_PARAMETERS].concat();
                self.known.unknown_parameter_message(name, &reserved)
            }
            false => self.known.unknown_name_message(name, "field"),
        }
    }
}

fn check_level(level: usize) -> Result<(), String> {
    match level > LEVELS_MAX {
        true => Err(format!("expected at most {LEVELS_MAX} groups inside each other, got more")),
        false => Ok(()),
    }
}

fn refuse_empty(filters: Vec<Filter>) -> Result<Vec<Filter>, String> {
    match filters.is_empty() {
        true => Err("expected at least one filter, got none".to_owned()),
        false => Ok(filters),
    }
}

fn make_group(word: &str, filters: Vec<Filter>) -> Filter {
    match word {
        "any" => Filter::Any(filters),
        "not" => Filter::Not(Box::new(Filter::all(filters))),
        _ => Filter::All(filters),
    }
}

/// A filter as a parameter of a URL: its name with the operator, and its value.
pub fn as_parameter(filter: &Filter, of: (&Model, &Resource)) -> (String, String) {
    match filter {
        Filter::Test(test) => {
            let (operator, value) = test.test.as_text();
            (format!("{}:{operator}", test.name(of)), value)
        }
        Filter::Any(filters) => ("any".to_owned(), format!("({})", group_text(filters, of))),
        Filter::Not(inner) => ("not".to_owned(), format!("({})", not_text(inner, of))),
        // Not twice is the same.
        Filter::All(filters) => ("not".to_owned(), format!("(not({}))", group_text(filters, of))),
    }
}

/// The number of groups inside each other that `as_parameter` writes.
fn parameter_levels(filter: &Filter) -> usize {
    match filter {
        Filter::All(_) => 1 + group_levels(filter),
        filter => group_levels(filter),
    }
}

/// The same inside a group.
fn group_levels(filter: &Filter) -> usize {
    let deepest = |filters: &[Filter]| filters.iter().map(group_levels).max().unwrap_or(0);
    match filter {
        Filter::Test(_) => 0,
        Filter::All(inner) | Filter::Any(inner) => 1 + deepest(inner),
        Filter::Not(inner) => match &**inner {
            Filter::All(inner) => 1 + deepest(inner),
            inner => 1 + group_levels(inner),
        },
    }
}

fn group_text(filters: &[Filter], of: (&Model, &Resource)) -> String {
    let parts = filters.iter().map(|filter| match filter {
        Filter::Test(_) => {
            let (parameter, value) = as_parameter(filter, of);
            format!("{parameter}={}", escape(&value))
        }
        Filter::All(inner) => format!("all({})", group_text(inner, of)),
        Filter::Any(inner) => format!("any({})", group_text(inner, of)),
        Filter::Not(inner) => format!("not({})", not_text(inner, of)),
    });
    parts.collect::<Vec<_>>().join(";")
}

fn not_text(inner: &Filter, of: (&Model, &Resource)) -> String {
    match inner {
        Filter::All(filters) => group_text(filters, of),
        inner => group_text(std::slice::from_ref(inner), of),
    }
}
