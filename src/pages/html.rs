//! HTML under construction, escaped by type: markup comes from literals and templates, which are part of the
//! program; every value that is put between them is escaped.

use std::fmt::Write as _;

/// A piece of HTML.
#[derive(Debug, Default, Clone)]
pub struct Html(String);

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
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
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

    /// Fills a template file with `{{name}}` where the value of that name goes.
    pub fn fill(template: &'static str, values: &[(&str, &dyn Slot)]) -> Self {
        let mut html = Self::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("{{") {
            html.0.push_str(before);
            let Some((name, after)) = after.split_once("}}") else { break };
            let value = values.iter().find(|(known, _)| *known == name);
            debug_assert!(value.is_some(), "the template has {{{{{name}}}}}");
            if let Some((_, value)) = value {
                value.write_to(&mut html.0);
            }
            rest = after;
        }
        html.0.push_str(rest);
        html
    }

    pub fn push(&mut self, other: &dyn Slot) {
        other.write_to(&mut self.0);
    }

    /// In bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_escapes_values_and_keeps_markup() {
        let payload = "<script>alert('1')</script>\"&\0";
        let escaped = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;\u{fffd}";
        let html = Html::of("<a title=\"{}\">{}</a>", &[&payload, &payload]);
        assert_eq!(html.into_string(), format!("<a title=\"{escaped}\">{escaped}</a>"));
        let inner = Html::of("<b>{}</b>", &[&"{}"]);
        let html = Html::fill("{{a}}<i>{{b}}</i>", &[("a", &inner), ("b", &"{{a}}")]);
        assert_eq!(html.into_string(), "<b>{}</b><i>{{a}}</i>");
    }
}
