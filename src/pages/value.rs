//! Values of fields by their types: short in a table, whole on the page of an item.

#![expect(unused_qualifications, reason = "the code that askama derives for an enum")]

use askama::Template;
use askama::filters::HtmlSafe;

use super::columns::{is_number, short_id};
use super::json_view::{JsonView, cut};
use super::related::{PageSource, ReferenceLink};
use super::source::{member, plain_text, text_of};
use super::time_element::TimeElement;
use crate::json::{self, Json};
use crate::model::{Field, StateMachine};

/// A table shows no more of a text.
const CELL_CHARS_MAX: usize = 200;
/// The page of an item shows no more of a text; the JSON has the whole.
const FULL_CHARS_MAX: usize = 4_000;
const TAG_CHARS_MAX: usize = 40;
const TAGS_SHOWN: usize = 3;
const ELEMENTS_SHOWN: usize = 50;
const OBJECT_VALUES_SHOWN: usize = 2;

/// A value as a page shows it.
#[derive(Template)]
#[template(path = "value.html")]
pub enum ShownValue {
    /// No value, in a table and on the page of an item.
    Dash,
    NoValue,
    EmptyText,
    /// An empty list, in a table and on the page of an item.
    EmptyBrackets,
    EmptyList,
    Text(String),
    LongText {
        text: String,
        is_cut: bool,
    },
    /// The class says where the state is in its graph.
    State {
        class: &'static str,
        name: String,
    },
    /// The link to the item of a row.
    Item {
        address: String,
        label: String,
        is_id: bool,
    },
    Id {
        id: String,
        short_id: String,
    },
    /// With a button that copies it.
    CopiedId(String),
    Reference(ReferenceLink),
    /// With the end of the id.
    FullReference(ReferenceLink),
    /// The first references of a list, and the number of the others.
    References {
        links: Vec<ReferenceLink>,
        more: usize,
    },
    Email(String),
    WebAddress(String),
    Time(TimeElement),
    /// The first elements of a list, and the number of the others.
    Tags {
        texts: Vec<String>,
        more: usize,
    },
    Elements {
        texts: Vec<String>,
        more: usize,
    },
    /// A list of objects.
    Rows {
        heads: Vec<InnerCell>,
        rows: Vec<Vec<InnerCell>>,
        more: usize,
    },
    Members(Vec<(String, String)>),
    Json(JsonView),
}

/// A cell of a table inside a value.
pub struct InnerCell {
    class: &'static str,
    text: String,
}

impl HtmlSafe for ShownValue {}

impl ShownValue {
    /// A value in a table.
    pub fn short(page: &PageSource<'_>, field: &Field, value: Option<&Json<'_>>) -> Self {
        let Some(value) = value.filter(|value| **value != Json::Null) else { return Self::Dash };
        match (field.kind.name, value) {
            ("state", Json::Text(state)) => Self::state(field.rules.states.as_ref(), state),
            ("ref", _) => Self::Reference(reference(page, field, value)),
            ("uuid", Json::Text(id)) => Self::id(id),
            ("timestamp", Json::Text(text)) => Self::Time(TimeElement::time(text)),
            ("date", Json::Text(text)) => Self::Time(TimeElement::date(text)),
            ("refs", Json::List(list)) if !list.is_empty() => {
                Self::references(page, field, (list, TAGS_SHOWN))
            }
            ("list" | "refs", Json::List(list)) => Self::short_list(list),
            ("object", Json::Object(members)) => {
                let shown = members.iter().filter_map(|(_, value)| plain_text(value));
                let shown: Vec<String> = shown.take(OBJECT_VALUES_SHOWN).collect();
                Self::Text(cut(&shown.join(", "), CELL_CHARS_MAX))
            }
            (_, Json::Text(text)) if text.is_empty() => Self::EmptyText,
            (_, value) => Self::Text(cut(&text_or_json(value), CELL_CHARS_MAX)),
        }
    }

    /// A value on the page of an item.
    pub fn full(page: &PageSource<'_>, field: &Field, value: Option<&Json<'_>>) -> Self {
        let Some(value) = value.filter(|value| **value != Json::Null) else { return Self::NoValue };
        match (field.kind.name, value) {
            ("email", Json::Text(text)) => Self::Email(text.to_string()),
            // Only these are links: a `javascript:` address would run.
            ("url", Json::Text(text))
                if ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme)) =>
            {
                Self::WebAddress(text.to_string())
            }
            ("uuid", Json::Text(id)) => Self::CopiedId(id.to_string()),
            ("ref", _) => Self::FullReference(reference(page, field, value)),
            ("refs", Json::List(list)) if !list.is_empty() => {
                Self::references(page, field, (list, ELEMENTS_SHOWN))
            }
            ("list" | "refs", Json::List(list)) => Self::full_list(field, list),
            ("object", Json::Object(members)) => {
                let text = |value| cut(&text_or_json(value), FULL_CHARS_MAX);
                let members = members.iter().map(|(name, value)| (name.to_string(), text(value)));
                Self::Members(members.collect())
            }
            ("json" | "object", value) => Self::Json(JsonView::of(value)),
            ("text" | "user_name", Json::Text(text)) if !text.is_empty() => Self::LongText {
                text: cut(text, FULL_CHARS_MAX),
                is_cut: text.chars().nth(FULL_CHARS_MAX).is_some(),
            },
            _ => Self::short(page, field, Some(value)),
        }
    }

    /// A state. Its colour and shape come from the graph: whether it is the first, and whether another one follows.
    pub fn state(machine: Option<&StateMachine>, state: &str) -> Self {
        let class = match machine {
            Some(machine) if *machine.initial == *state => "first",
            Some(machine) if machine.successors(state).is_empty() => "last",
            _ => "middle",
        };
        Self::State { class, name: state.to_owned() }
    }

    pub fn id(id: &str) -> Self {
        Self::Id { id: id.to_owned(), short_id: short_id(id) }
    }

    fn short_list(list: &[Json<'_>]) -> Self {
        let has_objects = list.iter().any(|one| matches!(one, Json::Object(_) | Json::List(_)));
        match list.first() {
            None => Self::EmptyBrackets,
            Some(first) if has_objects => {
                let first = match first {
                    Json::Object(members) => {
                        let values = members.iter().filter_map(|(_, value)| plain_text(value));
                        values.take(OBJECT_VALUES_SHOWN).collect::<Vec<_>>().join(" · ")
                    }
                    other => json::to_text(other),
                };
                let noun = if list.len() == 1 { "item" } else { "items" };
                Self::Text(format!("{} {noun}: {}", list.len(), cut(&first, CELL_CHARS_MAX)))
            }
            Some(_) => {
                let texts = list.iter().filter_map(plain_text).take(TAGS_SHOWN);
                Self::Tags {
                    texts: texts.map(|text| cut(&text, TAG_CHARS_MAX)).collect(),
                    more: list.len().saturating_sub(TAGS_SHOWN),
                }
            }
        }
    }

    fn references(
        page: &PageSource<'_>,
        field: &Field,
        (list, shown_max): (&[Json<'_>], usize),
    ) -> Self {
        let links = list.iter().take(shown_max).map(|id| reference(page, field, id));
        Self::References { links: links.collect(), more: list.len().saturating_sub(shown_max) }
    }

    fn full_list(field: &Field, list: &[Json<'_>]) -> Self {
        let element = field.rules.element.as_deref();
        let fields = element.map_or(&[][..], |element| &element.rules.fields);
        let shown = list.iter().take(ELEMENTS_SHOWN);
        let more = list.len().saturating_sub(ELEMENTS_SHOWN);
        if list.is_empty() {
            return Self::EmptyList;
        }
        if fields.is_empty() {
            let texts = shown.map(|one| cut(&text_or_json(one), CELL_CHARS_MAX)).collect();
            return Self::Elements { texts, more };
        }
        let cell = |field: &Field, text| InnerCell {
            class: if is_number(field) { "num" } else { "" },
            text,
        };
        let text = |one, field: &Field| match member(one, &field.name).and_then(plain_text) {
            Some(text) => cut(&text, CELL_CHARS_MAX),
            None => "–".to_owned(),
        };
        let heads = fields.iter().map(|field| cell(field, field.name.to_string()));
        let rows =
            shown.map(|one| fields.iter().map(|field| cell(field, text(one, field))).collect());
        Self::Rows { heads: heads.collect(), rows: rows.collect(), more }
    }
}

fn reference(page: &PageSource<'_>, field: &Field, id: &Json<'_>) -> ReferenceLink {
    // With `expand`, the item is in place of its id.
    let id = member(id, "id").unwrap_or(id);
    page.related.reference(page.viewer, field, text_of(Some(id)).unwrap_or_default())
}

fn text_or_json(value: &Json<'_>) -> String {
    plain_text(value).unwrap_or_else(|| json::to_text(value))
}
