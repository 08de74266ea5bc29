//! A JSON value on a page: indented, with classes for names, texts and other values.

use askama::Template;
use askama::filters::HtmlSafe;

use crate::json::{self, Json};

/// Lists and objects up to this length are on one line.
const INLINE_BYTES_MAX: usize = 60;
/// Longer texts are cut: the whole one is in the JSON itself.
const TEXT_CHARS_MAX: usize = 4_000;
/// Further elements and members are left out.
const ELEMENTS_MAX: usize = 200;
/// Elements and members that begin after so much HTML are left out.
const HTML_BYTES_MAX: usize = 16_000;
const NAME_CHARS_MAX: usize = 200;

/// The markup around a token, and an escaped character, in bytes.
const SPAN_BYTES: usize = 23;
const ESCAPE_BYTES: usize = 5;

#[derive(Template, Default)]
#[template(path = "json_view.html")]
pub struct JsonView {
    tokens: Vec<JsonToken>,
    /// The length of the HTML.
    bytes: usize,
}

struct JsonToken {
    /// The CSS class: `k` for a name, `s` for a text, `n` for another value; empty for punctuation and spaces.
    class: &'static str,
    text: String,
}

impl HtmlSafe for JsonView {}

impl JsonView {
    pub fn of(json: &Json<'_>) -> Self {
        let mut view = Self::default();
        view.add(json, 0);
        view
    }

    fn push(&mut self, class: &'static str, text: &str) {
        if text.is_empty() {
            return;
        }
        let is_escaped = |byte: &u8| b"\"&'<>".contains(byte);
        let escaped = text.bytes().filter(is_escaped).count();
        self.bytes += text.len() + escaped * (ESCAPE_BYTES - 1);
        if !class.is_empty() {
            self.bytes += SPAN_BYTES;
        }
        match self.tokens.last_mut() {
            Some(last) if last.class == class => last.text.push_str(text),
            _ => self.tokens.push(JsonToken { class, text: text.to_owned() }),
        }
    }

    fn add(&mut self, value: &Json<'_>, level: usize) {
        let is_inline = value.approximate_bytes() <= INLINE_BYTES_MAX;
        match value {
            Json::List(elements) if !elements.is_empty() => {
                self.push("", "[");
                let all = elements.iter().map(|element| (None, element));
                self.add_parts(all, (level, is_inline));
                self.push("", "]");
            }
            Json::Object(members) if !members.is_empty() => {
                self.push("", "{");
                let all = members.iter().map(|(name, member)| (Some(&**name), member));
                self.add_parts(all, (level, is_inline));
                self.push("", "}");
            }
            Json::List(_) => self.push("", "[]"),
            Json::Object(_) => self.push("", "{}"),
            Json::Text(text) => self.push("s", &quoted(&cut(text, TEXT_CHARS_MAX))),
            Json::Null | Json::Boolean(_) | Json::Number(_) => {
                self.push("n", &json::to_text(value));
            }
        }
    }

    fn add_parts<'j>(
        &mut self,
        parts: impl Iterator<Item = (Option<&'j str>, &'j Json<'j>)>,
        (level, is_inline): (usize, bool),
    ) {
        for (at, (name, value)) in parts.enumerate() {
            if at == ELEMENTS_MAX || self.bytes > HTML_BYTES_MAX {
                self.push("", ", …");
                break;
            }
            self.push(
                "",
                match (at, is_inline) {
                    (0, _) => "",
                    (_, true) => ", ",
                    (_, false) => ",",
                },
            );
            self.add_line(level + 1, is_inline);
            if let Some(name) = name {
                self.push("k", &quoted(&cut(name, NAME_CHARS_MAX)));
                self.push("", ": ");
            }
            self.add(value, level + 1);
        }
        self.add_line(level, is_inline);
    }

    fn add_line(&mut self, level: usize, is_inline: bool) {
        if !is_inline {
            self.push("", "\n");
            self.push("", &"  ".repeat(level));
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    json::write_text(&mut out, text);
    json::into_text(out)
}

/// The beginning of a text, with dots if it is longer.
pub fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", text.split_at(end).0),
        None => text.to_owned(),
    }
}
