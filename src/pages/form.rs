//! Forms for new items and for changes. The name of a control is the JSON pointer of its value within the item,
//! by which the script puts the body together and finds the control of a fault.

use super::columns::label_field;
use super::curl::CodeBox;
use super::html::Html;
use super::json_view::cut;
use super::related::{PageSource, reachable_target};
use super::source::{JSON_DEPTH_MAX, elements, member, text_of};
use crate::intent::{VisibleResource, format_path};
use crate::json::{self, Json};
use crate::model::{Field, GrantVerb, Resource, StorageClass};
use crate::openapi::WritableFields;
use crate::value::Value;

/// Texts that may be longer get a control of several lines.
const LINE_CHARS_MAX: usize = 200;

/// Whether a form creates or edits.
#[derive(Debug, Clone, Copy)]
pub enum FormPurpose<'a> {
    Create,
    /// The item as the page shows it.
    Edit(&'a Json<'a>),
}

impl<'a> FormPurpose<'a> {
    fn value(self, name: &str) -> Option<&'a Json<'a>> {
        match self {
            Self::Create => None,
            Self::Edit(item) => member(item, name).filter(|value| **value != Json::Null),
        }
    }
}

/// The fields that a form of the caller has, in the order of the model. States have buttons of their own.
pub fn form_fields<'a>(
    page: &PageSource<'a>,
    resource: &'a Resource,
    purpose: FormPurpose<'_>,
) -> Option<Vec<&'a Field>> {
    let verb = match purpose {
        FormPurpose::Create if resource.is_server_made => return None,
        FormPurpose::Create => GrantVerb::Post,
        FormPurpose::Edit(_) => GrantVerb::Patch,
    };
    let access = page.viewer.access(resource.index, verb)?;
    let unseen = page.viewer.hidden(resource.index);
    let is_edit = matches!(purpose, FormPurpose::Edit(_));
    let writable = WritableFields { access, unseen }.fields(resource).filter(|(at, field)| {
        let is_blind = unseen.contains(at) && !field.secret;
        field.rules.states.is_none() && !(is_edit && (field.fixed || is_blind))
    });
    Some(writable.map(|(_, field)| field).collect())
}

/// The section with the form for a new item, shown at `#new`.
pub fn create_section(
    page: &PageSource<'_>,
    (resource, path): (&Resource, &str),
    line: &str,
) -> Html {
    let Some(fields) = form_fields(page, resource, FormPurpose::Create) else {
        return Html::new();
    };
    let title = format!("New {}", resource.name.replace('_', " "));
    // The response has a secret that is shown only there.
    let is_webhook = resource.index == page.context.model.webhooks;
    let secret = Html::of(if is_webhook { " data-secret" } else { "" }, &[]);
    let mut html = Html::of(
        "<section class=\"sheet-form\" id=\"new\" aria-labelledby=\"new-title\">\n<div class=\"head\"><h1 id=\"new-title\">{}</h1></div>\n<form data-send=\"POST\" data-to=\"{}\" data-wrap=\"{}\"{} method=\"dialog\" autocomplete=\"off\" novalidate>\n",
        &[&title, &path, &resource.name, &secret],
    );
    for field in fields {
        html.push(&field_block(page, field, FormPurpose::Create));
    }
    let verb = format!("Create {}", resource.name.replace('_', " "));
    html.push(&save_bar(&verb, line));
    html.add("</form>\n</section>\n", &[]);
    html
}

/// The section with the form that changes an item, shown at `#edit`, and the view for two versions.
pub fn edit_section(
    page: &PageSource<'_>,
    resource: &Resource,
    (item, label): (&Json<'_>, &str),
    line: &str,
) -> Html {
    let purpose = FormPurpose::Edit(item);
    let fields = form_fields(page, resource, purpose).unwrap_or_default();
    if fields.is_empty() {
        return Html::new();
    }
    let version = text_of(member(item, "version")).unwrap_or_default();
    let nullable = fields.iter().filter(|field| field.nullable).map(|field| &*field.name);
    let nullable: Vec<&str> = nullable.collect();
    let mut html = Html::of(
        "<section class=\"sheet-form\" id=\"edit\" aria-labelledby=\"form-title\">\n<div class=\"head\"><h1 id=\"form-title\">Edit {}</h1></div>\n<form data-send=\"PATCH\" data-to=\"{}\" data-wrap=\"{}\" data-version=\"{}\" data-item=\"{}\" data-nullable=\"{}\" method=\"dialog\" autocomplete=\"off\" novalidate>\n",
        &[
            &label,
            &page.context.path,
            &resource.name,
            &version,
            &json::to_text(item),
            &nullable.join(","),
        ],
    );
    for field in fields {
        html.push(&field_block(page, field, purpose));
    }
    html.push(&save_bar("Save changes", line));
    html.add("</form>\n</section>\n", &[]);
    html.add(include_str!("templates/merge.html"), &[]);
    html
}

fn save_bar(verb: &str, line: &str) -> Html {
    let mut html = Html::of(
        "<div class=\"savebar\"><button class=\"button primary needs-script\" type=\"submit\">{}</button><a class=\"button\" href=\"#\">Cancel</a><p class=\"note\"></p></div>\n",
        &[&verb],
    );
    if !line.is_empty() {
        html.add(
            "<div class=\"without-script\"><p class=\"hint\">Saving needs script. Without it, use curl:</p>{}</div>\n",
            &[&Html::from_template(&CodeBox::new("", line.to_owned(), "the line that saves"))],
        );
    }
    html
}

/// The type of a field and whether it is required, in words.
fn type_words(field: &Field) -> String {
    let kind = match field.kind.name {
        "user_name" => "text",
        name => name,
    };
    let is_required = field.required && field.default.is_none();
    if is_required { format!("{kind}, required") } else { kind.to_owned() }
}

/// A field with its label, its control and its hint.
fn field_block(page: &PageSource<'_>, field: &Field, purpose: FormPurpose<'_>) -> Html {
    let id = format!("edit-{}", field.name);
    let value = purpose.value(&field.name);
    let must = if field.required && field.default.is_none() { "type must" } else { "type" };
    let words = type_words(field);
    let pointer = format!("/{}", field.name);
    match shape(field) {
        Shape::Rows(element) => rows(page, (field, element), &pointer, value),
        Shape::Members => {
            let mut html = Html::of(
                "<fieldset class=\"field\" id=\"{}\"><legend>{} <span class=\"{}\">{}</span></legend><div class=\"rows\"><div class=\"row\">\n",
                &[&id, &field.name, &must, &words],
            );
            for inner in &field.rules.fields {
                let value = value.and_then(|value| member(value, &inner.name));
                html.push(&inner_control(page, inner, &format!("{pointer}/{}", inner.name), value));
            }
            html.add("</div></div></fieldset>\n", &[]);
            html
        }
        Shape::CheckBox => {
            let is_checked = match (value, purpose) {
                (Some(value), _) => *value == Json::Boolean(true),
                (None, FormPurpose::Create) => field.default == Some(Value::Boolean(true)),
                (None, FormPurpose::Edit(_)) => false,
            };
            let checked = Html::of(if is_checked { " checked" } else { "" }, &[]);
            Html::of(
                "<div class=\"field\" id=\"{}\"><label class=\"check\"><input class=\"control\" type=\"checkbox\" name=\"{}\" data-type=\"boolean\"{}> {} <span class=\"type\">{}</span></label></div>\n",
                &[&id, &pointer, &checked, &field.name, &words],
            )
        }
        Shape::Control => {
            let control = format!("c-{}", field.name);
            let hint = hint(field, purpose);
            let mut html = Html::of(
                "<div class=\"field\" id=\"{}\"><label for=\"{}\">{} <span class=\"{}\">{}</span></label>\n",
                &[&id, &control, &field.name, &must, &words],
            );
            let hint_id = format!("h-{}", field.name);
            let described = if hint.is_empty() { "" } else { &hint_id };
            html.push(&control_of(page, field, (&pointer, &control, described), value));
            if !hint.is_empty() {
                html.add("<p class=\"hint\" id=\"{}\">{}</p>", &[&hint_id, &hint]);
            }
            html.add("</div>\n", &[]);
            html
        }
    }
}

/// How the value of a field is edited.
enum Shape<'a> {
    /// One control.
    Control,
    CheckBox,
    /// The members of an object, a control each.
    Members,
    /// The elements of a list, a row each.
    Rows(&'a Field),
}

fn shape(field: &Field) -> Shape<'_> {
    let is_simple = |inner: &Field| inner.storage_class() != StorageClass::Json;
    match (&field.rules.element, &*field.rules.fields) {
        (Some(element), _)
            if is_simple(element)
                || !element.rules.fields.is_empty()
                    && element.rules.fields.iter().all(is_simple) =>
        {
            Shape::Rows(element)
        }
        (None, inner) if !inner.is_empty() && inner.iter().all(is_simple) => Shape::Members,
        _ if field.storage_class() == StorageClass::Boolean
            && (field.required || field.default.is_some()) =>
        {
            Shape::CheckBox
        }
        // A value with lists or objects inside lists or objects is edited as JSON.
        _ => Shape::Control,
    }
}

/// Whether one control edits the field, so that it can be lent to the place of the value.
pub fn has_single_control(field: &Field) -> bool {
    matches!(shape(field), Shape::Control) && field.rules.reference.is_none()
}

fn hint(field: &Field, purpose: FormPurpose<'_>) -> String {
    let is_edit = matches!(purpose, FormPurpose::Edit(_));
    let rules = &field.rules;
    let mut parts = Vec::new();
    if field.secret && is_edit {
        parts.push("Leave empty to keep it.".to_owned());
    }
    if let Some(chars) = rules.max_length.filter(|chars| *chars > LINE_CHARS_MAX) {
        parts.push(format!("Up to {chars} characters."));
    }
    match (&rules.min, &rules.max) {
        (Some(min), Some(max)) => {
            parts.push(format!("From {} to {}.", text_of_value(min), text_of_value(max)));
        }
        (Some(min), None) => parts.push(format!("At least {}.", text_of_value(min))),
        (None, Some(max)) => parts.push(format!("At most {}.", text_of_value(max))),
        (None, None) => {}
    }
    if let (Some(default), false) = (&field.default, is_edit) {
        parts.push(format!("Without a value: {}.", cut(&text_of_value(default), 60)));
    }
    match field.kind.name {
        "timestamp" => parts.push("In UTC, such as 2026-11-14T09:30:00Z.".to_owned()),
        "json" | "list" | "object" => parts.push("As JSON.".to_owned()),
        "ref" => parts.push("Type the beginning of its name, or an id.".to_owned()),
        _ => {}
    }
    parts.join(" ")
}

fn text_of_value(value: &Value) -> String {
    let text = json::value_to_text(value);
    match json::parse(text.as_bytes(), JSON_DEPTH_MAX) {
        Ok(Json::Text(text)) => text.into_owned(),
        _ => text,
    }
}

/// A value as the text of a control.
fn control_text(value: Option<&Json<'_>>) -> String {
    match value {
        None | Some(Json::Null) => String::new(),
        Some(Json::Text(text)) => text.to_string(),
        Some(value @ (Json::List(_) | Json::Object(_))) => {
            let mut out = Vec::new();
            json::write_indented(&mut out, value, (0, 60));
            json::written_text(out)
        }
        Some(value) => json::to_text(value),
    }
}

/// The control of a field: its name, its id, and the id of its hint.
fn control_of(
    page: &PageSource<'_>,
    field: &Field,
    (pointer, id, hint): (&str, &str, &str),
    value: Option<&Json<'_>>,
) -> Html {
    let text = control_text(value);
    let described = match hint {
        "" => Html::new(),
        hint => Html::of(" data-hint=\"{}\" aria-describedby=\"{}\"", &[&hint, &hint]),
    };
    let kind = match field.kind.name {
        "object" | "list" => "json",
        "ref" => reference_type(field),
        name => name,
    };
    let required = Html::of(if field.required { " required" } else { "" }, &[]);
    let choices: Vec<String> = match field.storage_class() {
        StorageClass::Boolean => vec!["true".to_owned(), "false".to_owned()],
        _ => field.rules.one_of.iter().map(text_of_value).collect(),
    };
    if !choices.is_empty() {
        return select(field, (pointer, id, kind), (&choices, &text), &described);
    }
    if let Some(html) = combobox(page, field, (pointer, id), &text, &described) {
        return html;
    }
    let rules = &field.rules;
    // Inside lists and objects a line is enough. An input would drop the line breaks of a stored text.
    let is_inner = pointer.matches('/').count() > 1;
    let is_long = matches!(field.kind.name, "text")
        && rules.pattern.is_none()
        && !is_inner
        && rules.max_length.is_none_or(|chars| chars > LINE_CHARS_MAX);
    if is_long || text.contains(['\n', '\r']) || kind == "json" {
        let class = if kind == "json" { "control code" } else { "control" };
        return Html::of(
            "<textarea class=\"{}\" id=\"{}\" name=\"{}\" data-type=\"{}\"{}{}>\n{}</textarea>\n",
            &[&class, &id, &pointer, &kind, &described, &required, &text],
        );
    }
    let (class, attributes) = match (field.secret, field.kind.name) {
        (true, _) => ("control", " type=\"password\" autocomplete=\"new-password\""),
        (_, "email") => ("control", " type=\"email\" autocomplete=\"off\""),
        (_, "url") => ("control", " type=\"url\" autocomplete=\"off\""),
        (_, "date") => ("control short", " type=\"date\""),
        (_, "integer") => ("control short", " inputmode=\"numeric\" autocomplete=\"off\""),
        (_, "number" | "decimal") => {
            ("control short", " inputmode=\"decimal\" autocomplete=\"off\"")
        }
        (_, "uuid" | "ref") => ("control code", " autocomplete=\"off\" spellcheck=\"false\""),
        _ => ("control", " autocomplete=\"off\""),
    };
    let attributes = Html::of(attributes, &[]);
    Html::of(
        "<input class=\"{}\" id=\"{}\" name=\"{}\" data-type=\"{}\"{}{}{} value=\"{}\">\n",
        &[&class, &id, &pointer, &kind, &attributes, &described, &required, &text],
    )
}

fn select(
    field: &Field,
    (pointer, id, kind): (&str, &str, &str),
    (choices, chosen): (&[String], &str),
    described: &Html,
) -> Html {
    let mut html = Html::of(
        "<select class=\"control short\" id=\"{}\" name=\"{}\" data-type=\"{}\"{}>",
        &[&id, &pointer, &kind, described],
    );
    if !field.required || chosen.is_empty() {
        html.add("<option value=\"\">no value</option>", &[]);
    }
    // A stored value may be older than the rules.
    let other =
        Some(chosen.to_owned()).filter(|chosen| !chosen.is_empty() && !choices.contains(chosen));
    for choice in choices.iter().chain(&other) {
        let selected = Html::of(if choice == chosen { " selected" } else { "" }, &[]);
        let words = match (&**choice, kind) {
            ("true", "boolean") => "yes",
            ("false", "boolean") => "no",
            (choice, _) => choice,
        };
        html.add("<option value=\"{}\"{}>{}</option>", &[choice, &selected, &words]);
    }
    html.add("</select>\n", &[]);
    html
}

/// Type-ahead for a reference. The script requests items by the prefix of their label, so the label must be a field
/// that lists can be filtered by.
fn combobox(
    page: &PageSource<'_>,
    field: &Field,
    (pointer, id): (&str, &str),
    value: &str,
    described: &Html,
) -> Option<Html> {
    let target = reachable_target(page.viewer, field)?;
    let label = label_field(page.viewer, target)?;
    let known = VisibleResource { resource: target, hidden: page.viewer.hidden(target.index) };
    if known.find(&label.name).is_err() || !label.kind.is_searchable_text {
        return None;
    }
    let path = format_path(page.context.model, target.index, &[], None);
    let shown = match value {
        "" => String::new(),
        id => page.related.label(&format!("{path}/{id}")),
    };
    let list = format!("{id}-list");
    Some(Html::of(
        "<div class=\"combo\"><input class=\"control\" id=\"{}\" role=\"combobox\" aria-expanded=\"false\" aria-controls=\"{}\" aria-autocomplete=\"list\"{} data-from=\"{}\" data-plural=\"{}\" data-label=\"{}\" value=\"{}\" autocomplete=\"off\" spellcheck=\"false\"><input name=\"{}\" data-type=\"{}\" hidden value=\"{}\"><ul id=\"{}\" role=\"listbox\" aria-label=\"{}\" hidden></ul></div>\n",
        &[
            &id,
            &list,
            described,
            &path,
            &target.plural,
            &label.name,
            &shown,
            &pointer,
            &reference_type(field),
            &value,
            &list,
            &target.plural,
        ],
    ))
}

/// Integer ids are numbers in JSON.
fn reference_type(field: &Field) -> &'static str {
    if field.storage_class() == StorageClass::Integer { "integer" } else { "text" }
}

/// The rows of a list, and the template of a further one.
fn rows(
    page: &PageSource<'_>,
    (field, element): (&Field, &Field),
    pointer: &str,
    value: Option<&Json<'_>>,
) -> Html {
    let must = if field.required { "type must" } else { "type" };
    let mut html = Html::of(
        "<fieldset class=\"field\" data-list=\"{}\" id=\"edit-{}\"><legend>{} <span class=\"{}\">{}</span></legend>\n<div class=\"rows\">\n",
        &[&pointer, &field.name, &field.name, &must, &type_words(field)],
    );
    for (at, one) in elements(value).iter().enumerate() {
        html.push(&row(page, element, &format!("{pointer}/{at}"), Some(one)));
    }
    html.add(
        "<div class=\"add\"><button class=\"button small needs-script\" type=\"button\" data-do=\"add\"><svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-plus\"/></svg> Add element</button></div>\n</div>\n<template>{}</template>\n</fieldset>\n",
        &[&row(page, element, &format!("{pointer}/*"), None)],
    );
    html
}

fn row(page: &PageSource<'_>, element: &Field, pointer: &str, value: Option<&Json<'_>>) -> Html {
    let mut html = Html::of("<div class=\"row\" role=\"group\" aria-label=\"An element\">", &[]);
    if element.rules.fields.is_empty() {
        let id = format!("c{}", pointer.replace('/', "-"));
        html.add("<div>{}</div>", &[&control_of(page, element, (pointer, &id, ""), value)]);
    }
    for inner in &element.rules.fields {
        let value = value.and_then(|value| member(value, &inner.name));
        html.push(&inner_control(page, inner, &format!("{pointer}/{}", inner.name), value));
    }
    html.add(
        "<button class=\"button quiet square needs-script\" type=\"button\" data-do=\"drop\" aria-label=\"Remove this element\"><svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-trash\"/></svg></button></div>\n",
        &[],
    );
    html
}

/// A control inside a row, with its label.
fn inner_control(
    page: &PageSource<'_>,
    field: &Field,
    pointer: &str,
    value: Option<&Json<'_>>,
) -> Html {
    let id = format!("c{}", pointer.replace('/', "-"));
    let control = control_of(page, field, (pointer, &id, ""), value);
    Html::of("<div><label for=\"{}\">{}</label>{}</div>\n", &[&id, &field.name, &control])
}
