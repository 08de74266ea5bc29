//! A JSON value on a page: indented, with classes for names, texts and other values.

use super::html::Html;
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

pub fn json_view(json: &Json<'_>) -> Html {
    let mut html = Html::new();
    write(&mut html, json, 0);
    html
}

fn write(html: &mut Html, value: &Json<'_>, level: usize) {
    let is_inline = value.approximate_bytes() <= INLINE_BYTES_MAX;
    let line = |html: &mut Html, level: usize| {
        if is_inline {
            return;
        }
        html.add("\n", &[]);
        for _ in 0..level {
            html.add("  ", &[]);
        }
    };
    let separator = |at: usize| match (at, is_inline) {
        (0, _) => "",
        (_, true) => ", ",
        (_, false) => ",",
    };
    match value {
        Json::List(elements) if !elements.is_empty() => {
            html.add("[", &[]);
            for (at, element) in elements.iter().take(ELEMENTS_MAX).enumerate() {
                if html.len() > HTML_BYTES_MAX {
                    html.add(", …", &[]);
                    break;
                }
                html.add(separator(at), &[]);
                line(html, level + 1);
                write(html, element, level + 1);
            }
            if elements.len() > ELEMENTS_MAX {
                html.add(", …", &[]);
            }
            line(html, level);
            html.add("]", &[]);
        }
        Json::Object(members) if !members.is_empty() => {
            html.add("{", &[]);
            for (at, (name, member)) in members.iter().take(ELEMENTS_MAX).enumerate() {
                if html.len() > HTML_BYTES_MAX {
                    html.add(", …", &[]);
                    break;
                }
                html.add(separator(at), &[]);
                line(html, level + 1);
                let name = quoted(&cut(name, NAME_CHARS_MAX));
                html.add("<span class=\"k\">{}</span>: ", &[&name]);
                write(html, member, level + 1);
            }
            if members.len() > ELEMENTS_MAX {
                html.add(", …", &[]);
            }
            line(html, level);
            html.add("}", &[]);
        }
        Json::List(_) => html.add("[]", &[]),
        Json::Object(_) => html.push(&"{}"),
        Json::Text(text) => {
            let text = quoted(&cut(text, TEXT_CHARS_MAX));
            html.add("<span class=\"s\">{}</span>", &[&text]);
        }
        Json::Null | Json::Boolean(_) | Json::Number(_) => {
            html.add("<span class=\"n\">{}</span>", &[&json::to_text(value)]);
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    json::write_text(&mut out, text);
    json::written_text(out)
}

/// The beginning of a text, with dots if it is longer.
pub fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", text.split_at(end).0),
        None => text.to_owned(),
    }
}
