//! Changes of the change log, as one caller sees them: JSON, and NDJSON lines. `csv` has the CSV of them.

use crate::formats::logged_item::{LoggedView, write_visible, write_visible_names};
use crate::json::{ObjectWriter, write_moment};
use crate::value::{Change, EventKind};

/// One change, with what the caller sees of it.
#[derive(Debug, Clone, Copy)]
pub struct ChangeView<'a> {
    pub change: &'a Change,
    /// As the caller sees it; `left` has no values.
    pub kind: &'a str,
    pub values: LoggedView<'a>,
    /// Whether the item before the change is shown.
    pub shows_before: bool,
    /// The deployment's prefix, with which the subject is a path of this server.
    pub base_path: &'a str,
}

impl<'a> ChangeView<'a> {
    /// A view of everything that is stored.
    pub fn whole(change: &'a Change) -> Self {
        let values = LoggedView { item: None, shows_undeclared: true };
        Self { change, kind: &change.kind, values, shows_before: true, base_path: "" }
    }

    pub fn subject(&self) -> String {
        [self.base_path, &self.change.subject].concat()
    }

    fn has_left(&self) -> bool {
        self.kind == EventKind::Left.as_str()
    }

    /// Writes a value as JSON; returns whether there is one.
    pub fn write_value(&self, out: &mut Vec<u8>, value: ChangeValue) -> bool {
        let change = self.change;
        let text = match value {
            ChangeValue::Changed => &change.changed,
            ChangeValue::Before => &change.before,
            ChangeValue::After => &change.after,
        };
        let is_shown = match value {
            // The names of the changed fields compare the two: they would tell of values that are not shown.
            ChangeValue::Before | ChangeValue::Changed => self.shows_before,
            ChangeValue::After => true,
        };
        let Some(text) = text.as_deref().filter(|_| is_shown && !self.has_left()) else {
            return false;
        };
        match value {
            ChangeValue::Changed => write_visible_names(out, self.values, text),
            ChangeValue::Before | ChangeValue::After => write_visible(out, self.values, text),
        }
        true
    }
}

/// The values of a change, which a reader may see in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeValue {
    /// The names of the changed fields.
    Changed,
    Before,
    After,
}

impl ChangeValue {
    pub const ALL: [(&'static str, Self); 3] =
        [("changed", Self::Changed), ("before", Self::Before), ("after", Self::After)];
}

/// A page of the change log.
#[derive(Debug)]
pub struct ChangesView<'a> {
    pub changes: Vec<ChangeView<'a>>,
    pub limit: usize,
    /// The cursor of the next page, if there is one.
    pub next: Option<&'a str>,
    pub oldest: Option<i64>,
    pub position: i64,
}

/// Writes one change as a JSON object.
pub fn write_change(out: &mut Vec<u8>, view: &ChangeView<'_>) {
    let change = view.change;
    let mut object = ObjectWriter::open(out);
    object.number("sequence", change.sequence);
    object.text("resource", &change.resource);
    // An integer id is the only id that consists of digits alone.
    match change.id.bytes().all(|byte| byte.is_ascii_digit()) {
        true => object.json("id", &change.id),
        false => object.text("id", &change.id),
    }
    object.text("subject", &view.subject());
    object.text("kind", view.kind);
    write_moment(object.name("time"), change.time);
    object.text("actor", &change.actor);
    object.text("request_id", &change.request_id);
    for (name, value) in ChangeValue::ALL {
        let out = object.name(name);
        if !view.write_value(out, value) {
            out.extend_from_slice(b"null");
        }
    }
    object.close();
}

pub fn write_json_page(out: &mut Vec<u8>, page: &ChangesView<'_>) {
    let mut object = ObjectWriter::open(out);
    object.list("changes", &page.changes, write_change);
    let mut about = object.object("page");
    about.number("limit", page.limit);
    match page.next {
        Some(cursor) => about.text("next", cursor),
        None => about.json("next", "null"),
    }
    match page.oldest {
        Some(oldest) => about.number("oldest", oldest),
        None => about.json("oldest", "null"),
    }
    about.number("position", page.position);
    about.close();
    object.close();
}

/// Writes one change a line.
pub fn write_lines(out: &mut Vec<u8>, page: &ChangesView<'_>) {
    for change in &page.changes {
        write_change(out, change);
        out.push(b'\n');
    }
}
