//! Forms for new items and for changes. The script puts the body together by the names of the controls.

use askama::Template;
use askama::filters::HtmlSafe;

use super::control::{Control, LINE_CHARS_MAX};
use super::curl::{CodeBox, create_line};
use super::json_view::cut;
use super::related::PageSource;
use super::source::{elements, member, text_of, value_text};
use crate::json::{self, Json};
use crate::model::{DefaultSource, Field, GrantVerb, Resource, StorageClass};
use crate::openapi::WritableFields;
use crate::value::Value;

/// The section with a form: for a new item at `#new`, for a change at `#edit` with the view for two versions.
#[derive(Template)]
#[template(path = "form.html")]
pub struct Form<'a> {
    path: &'a str,
    name: &'a str,
    /// The name in words.
    noun: String,
    edit: Option<EditedItem<'a>>,
    /// Whether the response has a secret that is shown only there.
    has_secret: bool,
    fields: Vec<FormField<'a>>,
    /// The same request for readers without script.
    command: Option<CodeBox>,
}

struct EditedItem<'a> {
    label: String,
    version: &'a str,
    /// As the page shows it, in JSON.
    item: String,
    /// The names of the fields that can be null.
    nullable: String,
}

/// A field with its label, its controls and its hint.
#[derive(Template)]
#[template(path = "form_field.html")]
struct FormField<'a> {
    name: &'a str,
    pointer: String,
    type_words: String,
    is_marked: bool,
    content: FieldContent<'a>,
}

enum FieldContent<'a> {
    Control {
        control: Control<'a>,
        hint: String,
    },
    CheckBox {
        is_checked: bool,
    },
    /// An object, with a control for each member.
    Members(Vec<Control<'a>>),
    /// A list: the controls of each element, and those of a further one.
    Elements {
        rows: Vec<Vec<Control<'a>>>,
        further: Vec<Control<'a>>,
    },
}

impl HtmlSafe for Form<'_> {}
impl HtmlSafe for FormField<'_> {}

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

impl<'a> Form<'a> {
    /// The form for a new item, if the caller may create one.
    pub fn create(page: &PageSource<'a>, resource: &'a Resource, path: &'a str) -> Option<Self> {
        let purpose = FormPurpose::Create;
        let fields = form_fields(page, resource, purpose)?;
        Some(Self {
            path,
            name: &resource.name,
            noun: resource.name.replace('_', " "),
            edit: None,
            has_secret: resource.index == page.context.model.webhooks,
            fields: fields.into_iter().map(|one| FormField::new(page, one, purpose)).collect(),
            command: create_line(page, resource, path).map(save_box),
        })
    }

    /// The form that changes an item, if the caller may change one of its fields.
    pub fn edit(
        page: &PageSource<'a>,
        resource: &'a Resource,
        (item, label): (&'a Json<'a>, &str),
        line: Option<String>,
    ) -> Option<Self> {
        let purpose = FormPurpose::Edit(item);
        let fields = form_fields(page, resource, purpose).filter(|fields| !fields.is_empty())?;
        let nullable = fields.iter().filter(|field| field.nullable).map(|field| &*field.name);
        let nullable: Vec<&str> = nullable.collect();
        Some(Self {
            path: page.context.path,
            name: &resource.name,
            noun: String::new(),
            edit: Some(EditedItem {
                label: label.to_owned(),
                version: text_of(member(item, "version")).unwrap_or_default(),
                item: json::to_text(item),
                nullable: nullable.join(","),
            }),
            has_secret: false,
            fields: fields.into_iter().map(|one| FormField::new(page, one, purpose)).collect(),
            command: line.map(save_box),
        })
    }
}

fn save_box(line: String) -> CodeBox {
    CodeBox::new("", line, "the line that saves")
}

impl<'a> FormField<'a> {
    fn new(page: &PageSource<'a>, field: &'a Field, purpose: FormPurpose<'_>) -> Self {
        let value = purpose.value(&field.name);
        let pointer = format!("/{}", field.name);
        let is_made = field.default_from.is_some() && matches!(purpose, FormPurpose::Create);
        let has_default = field.default.is_some() || is_made;
        let is_needed = field.required && !has_default;
        let shape = shape(field);
        Self {
            name: &field.name,
            type_words: match (field.kind.name, is_needed) {
                ("user_name", true) => "text, required".to_owned(),
                ("user_name", false) => "text".to_owned(),
                (kind, true) => format!("{kind}, required"),
                (kind, false) => kind.to_owned(),
            },
            is_marked: is_needed || field.required && matches!(shape, Shape::Rows(_)),
            content: match shape {
                Shape::Rows(element) => FieldContent::Elements {
                    rows: elements(value)
                        .iter()
                        .enumerate()
                        .map(|(at, one)| row(page, element, &format!("{pointer}/{at}"), Some(one)))
                        .collect(),
                    further: row(page, element, &format!("{pointer}/*"), None),
                },
                Shape::Members => {
                    FieldContent::Members(members(page, &field.rules.fields, &pointer, value))
                }
                Shape::CheckBox => FieldContent::CheckBox {
                    is_checked: match (value, purpose) {
                        (Some(value), _) => *value == Json::Boolean(true),
                        (None, FormPurpose::Create) => field.default == Some(Value::Boolean(true)),
                        (None, FormPurpose::Edit(_)) => false,
                    },
                },
                Shape::Control => {
                    let hint = hint(field, purpose);
                    let control = Control::of_field(page, field, value, !hint.is_empty());
                    let control = if is_made { control.optional() } else { control };
                    FieldContent::Control { control, hint }
                }
            },
            pointer,
        }
    }
}

/// The controls of an element of a list.
fn row<'a>(
    page: &PageSource<'a>,
    element: &'a Field,
    pointer: &str,
    value: Option<&Json<'_>>,
) -> Vec<Control<'a>> {
    match &*element.rules.fields {
        [] => vec![Control::inner(page, (element, None), pointer.to_owned(), value)],
        fields => members(page, fields, pointer, value),
    }
}

/// The controls of the members of an object.
fn members<'a>(
    page: &PageSource<'a>,
    fields: &'a [Field],
    pointer: &str,
    value: Option<&Json<'_>>,
) -> Vec<Control<'a>> {
    let control = |field: &'a Field| {
        let value = value.and_then(|value| member(value, &field.name));
        let pointer = format!("{pointer}/{}", field.name);
        Control::inner(page, (field, Some(&field.name)), pointer, value)
    };
    fields.iter().map(control).collect()
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
            parts.push(format!("From {} to {}.", value_text(min), value_text(max)));
        }
        (Some(min), None) => parts.push(format!("At least {}.", value_text(min))),
        (None, Some(max)) => parts.push(format!("At most {}.", value_text(max))),
        (None, None) => {}
    }
    if let (Some(default), false) = (&field.default, is_edit) {
        parts.push(format!("Without a value: {}.", cut(&value_text(default), 60)));
    }
    if let (Some(source), false) = (&field.default_from, is_edit) {
        parts.push(match source {
            DefaultSource::Now => "Without a value: the time of creation.".to_owned(),
            DefaultSource::User => "Without a value: your user name.".to_owned(),
            DefaultSource::UserField { name, .. } => format!("Without a value: your {name}."),
            DefaultSource::Uuid => "Without a value: a random UUID.".to_owned(),
        });
    }
    match field.kind.name {
        "timestamp" => parts.push("In UTC, such as 2026-11-14T09:30:00Z.".to_owned()),
        "json" | "list" | "refs" | "object" => parts.push("As JSON.".to_owned()),
        "ref" => parts.push("Type the beginning of its name, or an id.".to_owned()),
        _ => {}
    }
    parts.join(" ")
}
