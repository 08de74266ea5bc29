//! The controls of forms. The name of a control is the JSON pointer of its value within the item.

use askama::Template;
use askama::filters::HtmlSafe;

use super::columns::label_field;
use super::related::{PageSource, reachable_target};
use super::source::value_text;
use crate::intent::{PathForm, VisibleResource};
use crate::json::{self, Json};
use crate::model::{Field, StorageClass};

/// The longest `max_length` of a text with an input of one line; others get a textarea.
pub const LINE_CHARS_MAX: usize = 200;

#[derive(Template)]
#[template(path = "control.html")]
pub struct Control<'a> {
    pub id: String,
    pointer: String,
    /// Inside lists and objects: the name of the member.
    pub label: Option<&'a str>,
    /// The `data-type` by which the script converts the text to JSON.
    kind: &'a str,
    /// Nothing, if there is no hint.
    pub hint_id: String,
    is_required: bool,
    text: String,
    form: ControlForm<'a>,
}

enum ControlForm<'a> {
    Select {
        has_empty_choice: bool,
        choices: Vec<Choice>,
    },
    /// Type-ahead for a reference.
    Combobox {
        list_path: String,
        plural: &'a str,
        label_field: &'a str,
        shown: String,
    },
    TextArea,
    Input(InputAttributes),
}

struct Choice {
    value: String,
    label: String,
    is_selected: bool,
}

#[derive(Default)]
struct InputAttributes {
    class: &'static str,
    input_type: &'static str,
    inputmode: &'static str,
    autocomplete: &'static str,
    is_code: bool,
}

impl HtmlSafe for Control<'_> {}

impl<'a> Control<'a> {
    /// The control of a field.
    pub fn of_field(
        page: &PageSource<'a>,
        field: &'a Field,
        value: Option<&Json<'_>>,
        has_hint: bool,
    ) -> Self {
        let hint_id = if has_hint { format!("h-{}", field.name) } else { String::new() };
        let id = format!("c-{}", field.name);
        Self { hint_id, ..Self::new(page, field, (format!("/{}", field.name), id), value) }
    }

    /// A control inside a list or an object; elements of a list have no label.
    pub fn inner(
        page: &PageSource<'a>,
        (field, label): (&'a Field, Option<&'a str>),
        pointer: String,
        value: Option<&Json<'_>>,
    ) -> Self {
        let id = format!("c{}", pointer.replace('/', "-"));
        Self { label, ..Self::new(page, field, (pointer, id), value) }
    }

    fn new(
        page: &PageSource<'a>,
        field: &'a Field,
        (pointer, id): (String, String),
        value: Option<&Json<'_>>,
    ) -> Self {
        let text = control_text(value);
        let kind = match field.kind.name {
            "object" | "list" | "refs" => "json",
            // Integer ids are numbers in JSON.
            "ref" if field.storage_class() == StorageClass::Integer => "integer",
            "ref" => "text",
            name => name,
        };
        let form = select(field, kind, &text)
            .or_else(|| combobox(page, field, &text))
            .unwrap_or_else(|| {
                // Inside lists and objects a line is enough. An input would drop the line breaks of a stored text.
                let is_long = is_long_text(field) && pointer.matches('/').count() == 1;
                match is_long || text.contains(['\n', '\r']) || kind == "json" {
                    true => ControlForm::TextArea,
                    false => ControlForm::Input(input_attributes(field)),
                }
            });
        let (hint_id, is_required) = (String::new(), field.required);
        Self { id, pointer, label: None, kind, hint_id, is_required, text, form }
    }

    /// The control of a field that the server fills in where it is left empty.
    pub fn optional(self) -> Self {
        Self { is_required: false, ..self }
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
            json::into_text(out)
        }
        Some(value) => json::to_text(value),
    }
}

fn is_long_text(field: &Field) -> bool {
    let rules = &field.rules;
    field.kind.name == "text"
        && rules.pattern.is_none()
        && rules.max_length.is_none_or(|chars| chars > LINE_CHARS_MAX)
}

fn input_attributes(field: &Field) -> InputAttributes {
    let usual = InputAttributes { class: "control", autocomplete: "off", ..Default::default() };
    let short = InputAttributes { class: "control short", ..Default::default() };
    match (field.secret, field.kind.name) {
        (true, _) => {
            InputAttributes { input_type: "password", autocomplete: "new-password", ..usual }
        }
        (_, "email") => InputAttributes { input_type: "email", ..usual },
        (_, "url") => InputAttributes { input_type: "url", ..usual },
        (_, "date") => InputAttributes { input_type: "date", ..short },
        (_, "integer") => InputAttributes { inputmode: "numeric", autocomplete: "off", ..short },
        (_, "number" | "decimal") => {
            InputAttributes { inputmode: "decimal", autocomplete: "off", ..short }
        }
        (_, "uuid" | "ref") => InputAttributes { class: "control code", is_code: true, ..usual },
        _ => usual,
    }
}

/// For a field with few values.
fn select<'a>(field: &Field, kind: &str, chosen: &str) -> Option<ControlForm<'a>> {
    let mut values: Vec<String> = match field.storage_class() {
        StorageClass::Boolean => vec!["true".to_owned(), "false".to_owned()],
        _ => field.rules.one_of.iter().map(value_text).collect(),
    };
    if values.is_empty() {
        return None;
    }
    // A stored value may be older than the rules.
    if !chosen.is_empty() && !values.iter().any(|value| value == chosen) {
        values.push(chosen.to_owned());
    }
    let choice = |value: String| {
        let label = match (&*value, kind) {
            ("true", "boolean") => "yes",
            ("false", "boolean") => "no",
            (value, _) => value,
        };
        Choice { label: label.to_owned(), is_selected: value == chosen, value }
    };
    Some(ControlForm::Select {
        has_empty_choice: !field.required || chosen.is_empty(),
        choices: values.into_iter().map(choice).collect(),
    })
}

/// For a reference. The script requests items by the prefix of their label, so the label must be a field that lists can
/// be filtered by.
fn combobox<'a>(page: &PageSource<'a>, field: &Field, id: &str) -> Option<ControlForm<'a>> {
    let (target, list_path) = reachable_target(page.viewer, field)?;
    let label = label_field(page.viewer, target)?;
    let form = if target.parent.is_some() { PathForm::Flat } else { PathForm::Nested };
    let hidden = page.viewer.hidden(target.index);
    let known = VisibleResource { resource: target, hidden, form };
    if known.find(&label.name).is_err() || !label.kind.is_searchable_text {
        return None;
    }
    let shown = match id {
        "" => String::new(),
        id => page.related.label(&format!("{list_path}/{id}")),
    };
    let (plural, label_field) = (&*target.plural, &*label.name);
    Some(ControlForm::Combobox { list_path, plural, label_field, shown })
}
