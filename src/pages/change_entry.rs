//! Entries of the change log, on the home page and on the page of the log; the difference that a change makes.

use askama::Template;
use askama::filters::HtmlSafe;

use super::columns::{item_label, label_field, short_id};
use super::json_view::cut;
use super::related::PageSource;
use super::source::{elements, member, plain_text, text_of};
use super::time_element::TimeElement;
use crate::json::Json;
use crate::model::Resource;

/// A difference shows no more of a value.
const VALUE_CHARS_MAX: usize = 1_000;
/// A difference shows no more fields.
const FIELDS_MAX: usize = 50;
const SUMMARY_CHARS_MAX: usize = 80;
const SERVER_MEMBERS: [&str; 4] = ["id", "created_at", "updated_at", "version"];

/// An entry in one line.
#[derive(Template)]
#[template(path = "change_entry.html")]
pub struct ChangeEntry<'a> {
    kind: &'a str,
    /// The path of the item, if it may still exist.
    subject: Option<&'a str>,
    label: String,
    resource: &'a str,
    actor: &'a str,
    time: TimeElement,
    difference: Option<ValueDifference>,
}

impl HtmlSafe for ChangeEntry<'_> {}

impl<'a> ChangeEntry<'a> {
    pub fn new(page: &PageSource<'a>, change: &'a Json<'a>, time: TimeElement) -> Self {
        let text = |name: &str| text_of(member(change, name)).unwrap_or_default();
        let resource = resource_of(page, change);
        let field = resource.and_then(|resource| label_field(page.viewer, resource));
        let values = [member(change, "after"), member(change, "before")];
        let values = values.into_iter().flatten().find(|values| **values != Json::Null);
        let is_gone = matches!(text("kind"), "deleted" | "left");
        Self {
            kind: text("kind"),
            subject: Some(text("subject")).filter(|_| !is_gone),
            label: values.map_or_else(|| short_id(text("id")), |values| item_label(field, values)),
            resource: text("resource"),
            actor: text("actor"),
            time,
            difference: ValueDifference::of(change),
        }
    }
}

/// The resource of a change, if the model declares it.
fn resource_of<'a>(page: &PageSource<'a>, change: &Json<'_>) -> Option<&'a Resource> {
    let label = text_of(member(change, "resource"))?;
    page.context.model.resources.iter().find(|resource| *resource.label == *label)
}

/// The changes of a reply.
pub fn entries<'a>(page: &PageSource<'a>, json: &'a Json<'a>) -> Vec<ChangeEntry<'a>> {
    let changes = elements(member(json, "changes")).iter();
    let time = |change| TimeElement::time(text_of(member(change, "time")).unwrap_or_default());
    changes.map(|change| ChangeEntry::new(page, change, time(change))).collect()
}

/// A table with the values before and after a change.
#[derive(Template)]
#[template(path = "difference.html")]
pub struct ValueDifference {
    /// The names of the fields that the change touches.
    summary: String,
    rows: Vec<ValueDifferenceRow>,
}

struct ValueDifferenceRow {
    name: String,
    before: Option<String>,
    after: Option<String>,
}

impl HtmlSafe for ValueDifference {}

impl ValueDifference {
    /// `None` if the change has no values.
    pub fn of(change: &Json<'_>) -> Option<Self> {
        let [before, after] = ["before", "after"].map(|name| member(change, name));
        let is_shown = |values: Option<&Json<'_>>| matches!(values, Some(Json::Object(_)));
        if !is_shown(before) && !is_shown(after) {
            return None;
        }
        let mut names: Vec<&str> = Vec::new();
        for values in [before, after].into_iter().flatten() {
            let Json::Object(members) = values else { continue };
            for (name, _) in members {
                if !SERVER_MEMBERS.contains(&&**name) && !names.contains(&&**name) {
                    names.push(name);
                }
            }
        }
        let value = |values: Option<&Json<'_>>, name: &str| {
            let text = values.and_then(|values| member(values, name)).and_then(plain_text);
            text.map(|text| cut(&text, VALUE_CHARS_MAX))
        };
        names.retain(|name| value(before, name) != value(after, name));
        let is_update = is_shown(before) && is_shown(after);
        let summary = match (is_update, names.is_empty()) {
            (true, true) => "no visible field".to_owned(),
            (true, false) => names.join(", "),
            (false, _) => "all fields".to_owned(),
        };
        let rows = names.iter().take(FIELDS_MAX).map(|name| ValueDifferenceRow {
            name: (*name).to_owned(),
            before: value(before, name),
            after: value(after, name),
        });
        Some(Self { summary, rows: rows.collect() })
    }

    pub fn short_summary(&self) -> String {
        cut(&self.summary, SUMMARY_CHARS_MAX)
    }
}
