//! The filters of a list: a chip for each, and a form for each attribute that can be filtered by.

use super::html::Html;
use super::query_link::QueryLink;
use super::related::PageSource;
use crate::intent::{CONTROL_PARAMETERS, FilterParameter, VisibleResource, filter_parameters};
use crate::json::{self, Json};
use crate::model::{Resource, StorageClass};
use crate::value::Value;

/// The operators in words, by their names in a query.
const WORDS: [(&str, &str); 10] = [
    ("eq", "is"),
    ("ne", "is not"),
    ("gt", "more than"),
    ("gte", "from"),
    ("lt", "less than"),
    ("lte", "up to"),
    ("in", "is one of"),
    ("prefix", "begins with"),
    ("contains", "contains"),
    ("exists", "has a value"),
];
/// Forms for further attributes are left out; the address takes them.
const FORMS_MAX: usize = 16;

/// An operator in words.
pub fn words(operator: &str) -> &str {
    let known = WORDS.iter().find(|(name, _)| *name == operator);
    known.map_or(operator, |(_, words)| *words)
}

/// The chips and the menu.
pub fn bar(page: &PageSource<'_>, resource: &Resource, parameters: &[(String, String)]) -> Html {
    let path = page.context.path;
    let mut html = Html::of("<div class=\"bar\" role=\"group\" aria-label=\"Filters\">\n", &[]);
    let mut count = 0;
    for (at, (name, _)) in parameters.iter().enumerate() {
        if CONTROL_PARAMETERS.contains(&&**name) {
            continue;
        }
        count += 1;
        html.push(&chip(&Chip::new(path, parameters, at)));
    }
    if !page.context.has_long_query() {
        html.push(&menu(page, resource, parameters));
    }
    if count > 1 {
        let mut link = QueryLink::new(path, parameters).without("cursor");
        for (name, _) in parameters {
            if !CONTROL_PARAMETERS.contains(&&**name) {
                link = link.without(name);
            }
        }
        html.add("<a class=\"button quiet small\" href=\"{}\">Clear all</a>\n", &[&link.address()]);
    }
    html.add("</div>\n", &[]);
    html
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
        let (field, operator) = name.rsplit_once(':').unwrap_or((name, "eq"));
        let without = QueryLink::new(path, parameters).without_index(at).without("cursor");
        Self {
            field: field.to_owned(),
            operator: words(operator).to_owned(),
            value: value.to_owned(),
            without: without.address(),
        }
    }
}

fn chip(chip: &Chip) -> Html {
    Html::of(
        "<span class=\"chip\"><span>{} <b>{}</b> {}</span><a href=\"{}\" aria-label=\"Remove the filter {}\"><svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-close\"/></svg></a></span>\n",
        &[&chip.field, &chip.operator, &chip.value, &chip.without, &chip.field],
    )
}

/// One GET form for each attribute, so that nothing empty is ever sent.
fn menu(page: &PageSource<'_>, resource: &Resource, parameters: &[(String, String)]) -> Html {
    let known = VisibleResource { resource, hidden: page.viewer.hidden(resource.index) };
    let all = filter_parameters(known, &CONTROL_PARAMETERS);
    let mut names: Vec<String> = all.iter().map(|one| one.attribute.name(resource)).collect();
    names.dedup();
    // Fields before the members that every item has.
    names.sort_by_key(|name| matches!(&**name, "id" | "created_at" | "updated_at"));
    let mut html = Html::of(
        "<details class=\"menu\"><summary class=\"button\"><svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-plus\"/></svg> Filter</summary>\n<div class=\"sheet\">\n",
        &[],
    );
    for name in names.iter().take(FORMS_MAX) {
        let of_name =
            all.iter().filter(|one| one.attribute.name(resource) == *name).collect::<Vec<_>>();
        html.push(&form(page, name, &of_name, parameters));
    }
    html.add("</div></details>\n", &[]);
    html
}

fn operator_of<'a>(parameter: &'a FilterParameter<'_>) -> &'a str {
    parameter.name.rsplit_once(':').map_or("eq", |(_, operator)| operator)
}

fn form(
    page: &PageSource<'_>,
    name: &str,
    operators: &[&FilterParameter<'_>],
    parameters: &[(String, String)],
) -> Html {
    let Some(first) = operators.first() else { return Html::new() };
    let field = first.field;
    let is_time = matches!(name, "created_at" | "updated_at")
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
    let is_listed = |operator: &str| {
        let all: Vec<&str> = operators.iter().map(|one| operator_of(one)).collect();
        all.contains(&operator)
    };
    // The operator that a form without script has.
    let usual = match () {
        () if !choices.is_empty() => "eq",
        () if is_time => "gte",
        () if is_listed("prefix") => "prefix",
        () => "eq",
    };
    let id = format!("f-{name}");
    let mut html = Html::of("<form method=\"get\"><label for=\"{}\">{}</label>", &[&id, &name]);
    let control = format!("{name}:{usual}");
    if choices.is_empty() {
        html.add("<select class=\"control needs-script\" data-field=\"{}\" aria-label=\"How to compare {}\">", &[&name, &name]);
        let offered = operators.iter().map(|one| operator_of(one)).filter(|one| *one != "exists");
        for operator in [usual].into_iter().chain(offered.filter(|one| *one != usual)) {
            html.add("<option value=\"{}\">{}</option>", &[&operator, &words(operator)]);
        }
        html.add("</select>", &[]);
        let example = if is_time { "2026-11-01T00:00:00Z" } else { "" };
        let kind = if is_time { "timestamp" } else { "text" };
        html.add("<input class=\"control\" id=\"{}\" name=\"{}\" data-type=\"{}\" placeholder=\"{}\" required autocomplete=\"off\">", &[&id, &control, &kind, &example]);
    } else {
        html.add("<select class=\"control\" id=\"{}\" name=\"{}\">", &[&id, &control]);
        for choice in &choices {
            html.add("<option>{}</option>", &[choice]);
        }
        html.add("</select>", &[]);
    }
    html.add("<button class=\"button\">Add</button>", &[]);
    let rest = QueryLink::new(page.context.path, parameters).without("cursor");
    for (name, value) in rest.parameters() {
        html.add("<input type=\"hidden\" name=\"{}\" value=\"{}\">", &[name, value]);
    }
    html.add("</form>\n", &[]);
    html
}

/// A value of the model as it is written in a query.
fn value_text(value: &Value) -> String {
    let text = json::value_to_text(value);
    match json::parse(text.as_bytes(), 2) {
        Ok(Json::Text(text)) => text.into_owned(),
        _ => text,
    }
}
