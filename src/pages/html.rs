//! HTML under construction, escaped by type: markup comes from literals and templates, which are part of the
//! program; every value that is put between them is escaped.

use std::fmt::{self, Write as _};

use askama::Template;
use askama::filters::HtmlSafe;

use crate::fault::OrBug as _;

/// A piece of HTML.
#[derive(Debug, Default, Clone)]
pub struct Html(String);

impl fmt::Display for Html {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Html {}

pub fn copy_button(what: &str) -> Html {
    Html::of(
        "<button class=\"button quiet small square needs-script\" type=\"button\" data-do=\"copy\" \
         aria-label=\"Copy {}\"><svg class=\"icon\" aria-hidden=\"true\"><use href=\"#i-copy\"/></svg></button>",
        &[&what],
    )
}

/// The place where news of the page appears; only the script says that it is live.
pub fn live_marker() -> Html {
    Html::of(
        "<span class=\"live needs-script\" data-state=\"off\" role=\"status\">Connecting</span>",
        &[],
    )
}

/// Something that can be put into HTML.
pub trait Slot {
    fn write_to(&self, out: &mut String);
}

impl Slot for Html {
    fn write_to(&self, out: &mut String) {
        out.push_str(&self.0);
    }
}

impl Slot for str {
    fn write_to(&self, out: &mut String) {
        escape(out, self);
    }
}

impl Slot for &str {
    fn write_to(&self, out: &mut String) {
        escape(out, self);
    }
}

impl Slot for String {
    fn write_to(&self, out: &mut String) {
        escape(out, self);
    }
}

impl Slot for Box<str> {
    fn write_to(&self, out: &mut String) {
        escape(out, self);
    }
}

impl Slot for usize {
    fn write_to(&self, out: &mut String) {
        let _ = write!(out, "{self}");
    }
}

/// Escapes a text for element content and for attribute values in double quotes.
fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&#38;"),
            '<' => out.push_str("&#60;"),
            '>' => out.push_str("&#62;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            // No place of a document may have it, and parsers disagree about it.
            '\0' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

impl Html {
    pub fn new() -> Self {
        Self::default()
    }

    /// A literal with `{}` where the values go, in their order.
    pub fn of(template: &'static str, values: &[&dyn Slot]) -> Self {
        let mut html = Self::new();
        html.add(template, values);
        html
    }

    /// Appends a literal with `{}` where the values go, in their order.
    pub fn add(&mut self, template: &'static str, values: &[&dyn Slot]) {
        let mut parts = template.split("{}");
        self.0.push_str(parts.next().unwrap_or_default());
        debug_assert_eq!(template.matches("{}").count(), values.len(), "{template}");
        for (part, value) in parts.zip(values) {
            value.write_to(&mut self.0);
            self.0.push_str(part);
        }
    }

    /// A template.
    pub fn from_template(template: &impl Template) -> Self {
        Self(template.render().or_bug("a template is rendered into memory"))
    }

    pub fn push(&mut self, other: &dyn Slot) {
        other.write_to(&mut self.0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
