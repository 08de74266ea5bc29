//! The filters of a list: a chip for each, and a form for each attribute that can be filtered by.

use askama::Template;
use askama::filters::HtmlSafe;

use super::query_link::QueryLink;
use super::related::PageSource;
use super::source::value_text;
use crate::intent::{
    CONTROL_PARAMETERS, FilterParameter, GROUP_PARAMETERS, PathForm, VisibleResource,
    filter_parameters, related_filter_parameters, split_operator,
};
use crate::model::{Resource, StorageClass};

/// The operators in words, by their names in a query.
const WORDS: [(&str, &str); 13] = [
    ("eq", "is"),
    ("ne", "is not"),
    ("gt", "more than"),
    ("gte", "from"),
    ("lt", "less than"),
    ("lte", "up to"),
    ("between", "is between"),
    ("in", "is one of"),
    ("has", "has"),
    ("prefix", "begins with"),
    ("contains", "contains"),
    ("match", "is like"),
    ("exists", "has a value"),
];
/// Forms for further attributes are left out; the address takes them.
const FORMS_MAX: usize = 16;

fn words(operator: &str) -> &str {
    let known = WORDS.iter().find(|(name, _)| *name == operator);
    known.map_or(operator, |(_, words)| *words)
}

/// A filter in words, with the address of the list without it.
pub struct Chip {
    pub field: String,
    pub operator: String,
    pub value: String,
    pub without: String,
}

impl Chip {
    /// The chip of one of the parameters.
    pub fn new(path: &str, parameters: &[(String, String)], at: usize) -> Self {
        let (name, value) = parameters.get(at).map_or(("", ""), |(name, value)| (name, value));
        let is_group = GROUP_PARAMETERS.contains(&name);
        let (field, operator) = match is_group {
            true => (name, "of"),
            false => split_operator(name),
        };
        let without = QueryLink::new(path, parameters).without_index(at).without("cursor");
        Self {
            field: field.to_owned(),
            operator: words(operator).to_owned(),
            value: value.to_owned(),
            without: without.address(),
        }
    }
}

/// The chips and the menu.
#[derive(Template)]
#[template(path = "filters.html")]
pub struct FilterBar {
    chips: Vec<Chip>,
    /// `None` if the query is too long to be repeated in each form.
    forms: Option<Vec<FilterForm>>,
    /// The parameters that every form keeps.
    kept: Vec<(String, String)>,
    clear_all: Option<String>,
}

/// A GET form for one attribute, so that nothing empty is ever sent.
struct FilterForm {
    name: String,
    /// The name of the control: the attribute and the operator that a form without script has.
    control: String,
    is_time: bool,
    /// The values that the attribute can have, if they are few.
    choices: Vec<String>,
    operators: Vec<Operator>,
}

struct Operator {
    name: String,
    words: String,
}

impl HtmlSafe for FilterBar {}

impl FilterBar {
    pub fn new(
        page: &PageSource<'_>,
        (resource, form): (&Resource, PathForm),
        parameters: &[(String, String)],
    ) -> Self {
        let path = page.context.path;
        let is_filter = |name: &str| !CONTROL_PARAMETERS.contains(&name);
        let filters = parameters.iter().enumerate().filter(|(_, (name, _))| is_filter(name));
        let chips: Vec<Chip> = filters.map(|(at, _)| Chip::new(path, parameters, at)).collect();
        let rest = QueryLink::new(path, parameters).without("cursor");
        let names = parameters.iter().map(|(name, _)| name).filter(|name| is_filter(name));
        let clear_all = || names.fold(rest.clone(), |link, name| link.without(name)).address();
        Self {
            forms: (!page.context.has_long_query()).then(|| forms(page, (resource, form))),
            kept: rest.parameters().to_vec(),
            clear_all: (chips.len() > 1).then(clear_all),
            chips,
        }
    }
}

fn forms(page: &PageSource<'_>, (resource, form): (&Resource, PathForm)) -> Vec<FilterForm> {
    let known = VisibleResource { resource, hidden: page.viewer.hidden(resource.index), form };
    let controls = [&CONTROL_PARAMETERS[..], &GROUP_PARAMETERS].concat();
    let own = filter_parameters(known, &controls);
    let related = related_filter_parameters(page.context.model, known, page.viewer.caller);
    let paths = |parameters: &[FilterParameter<'_>]| {
        let mut paths: Vec<String> = parameters.iter().map(|one| one.path.clone()).collect();
        paths.dedup();
        paths
    };
    let mut names = paths(&own);
    // Fields before the members that every item has, and those of related items last.
    names.sort_by_key(|name| matches!(&**name, "id" | "created_at" | "updated_at"));
    names.extend(paths(&related));
    let of_name = |name: &String| -> Vec<&FilterParameter<'_>> {
        own.iter().chain(&related).filter(|one| one.path == *name).collect()
    };
    let names = names.into_iter().take(FORMS_MAX);
    names
        .map(|name| {
            let parameters = of_name(&name);
            FilterForm::new(name, &parameters)
        })
        .collect()
}

impl FilterForm {
    fn new(name: String, parameters: &[&FilterParameter<'_>]) -> Self {
        let field = parameters.first().and_then(|first| first.field);
        let is_time = matches!(&*name, "created_at" | "updated_at")
            || field.is_some_and(|field| field.storage_class() == StorageClass::Moment);
        let choices: Vec<String> = match field {
            Some(field) if field.storage_class() == StorageClass::Boolean => {
                vec!["true".to_owned(), "false".to_owned()]
            }
            Some(field) => match &field.rules.states {
                Some(machine) => machine.next.iter().map(|(state, _)| state.to_string()).collect(),
                None => field.rules.one_of.iter().map(value_text).collect(),
            },
            None => Vec::new(),
        };
        let operators: Vec<&str> =
            parameters.iter().map(|one| split_operator(&one.name).1).collect();
        let usual = match () {
            () if !choices.is_empty() => "eq",
            () if is_time => "gte",
            () if operators.contains(&"match") => "match",
            () if operators.contains(&"prefix") => "prefix",
            () if operators.contains(&"has") => "has",
            () => "eq",
        };
        let others = operators.into_iter().filter(|one| *one != "exists" && *one != usual);
        let operator =
            |name: &str| Operator { name: name.to_owned(), words: words(name).to_owned() };
        Self {
            control: format!("{name}:{usual}"),
            name,
            is_time,
            choices,
            operators: [usual].into_iter().chain(others).map(operator).collect(),
        }
    }
}
