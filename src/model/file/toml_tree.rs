//! Typed access to the TOML tree: a value of another type adds a mistake, and reading continues.
//!
//! Entries are in file order, which the parser's own map does not keep.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, WordMeanings};
use crate::model::nearest;
use crate::model::report::{Mistakes, join_with_and};

pub type TomlNode<'t> = Spanned<DeValue<'t>>;

/// A key with its value.
#[derive(Debug, Clone)]
pub struct TomlEntry<'t> {
    pub key: &'t str,
    pub key_span: Range<usize>,
    pub node: &'t TomlNode<'t>,
}

/// A table in file order.
#[derive(Debug, Clone, Default)]
pub struct TomlTable<'t> {
    entries: Vec<TomlEntry<'t>>,
}

impl<'t> TomlTable<'t> {
    pub fn new(table: &'t DeTable<'t>) -> Self {
        let mut entries: Vec<TomlEntry<'t>> = table
            .iter()
            .map(|(key, node)| TomlEntry { key: key.get_ref(), key_span: key.span(), node })
            .collect();
        entries.sort_by_key(|entry| entry.key_span.start);
        Self { entries }
    }

    pub fn entries(&self) -> &[TomlEntry<'t>] {
        &self.entries
    }

    pub fn find(&self, key: &str) -> Option<&TomlEntry<'t>> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Adds a mistake for every key that is not among `known`; `what` is the owner of the keys: "a resource".
    pub fn refuse_unknown_keys(
        &self,
        known: &(impl Iterator<Item = &'static str> + Clone),
        what: &str,
        mistakes: &mut Mistakes,
    ) {
        for entry in &self.entries {
            if let Some(help) = keys::reserved_key_help(entry.key) {
                mistakes.add_reserved(entry.key_span.clone(), entry.key, help);
            } else if !known.clone().any(|name| name == entry.key) {
                let message = format!("unknown key `{}`: {what} has no such key", entry.key);
                mistakes.add_unknown(entry.key_span.clone(), message, entry.key, known.clone());
            }
        }
    }

    pub fn text(&self, key: &str, mistakes: &mut Mistakes) -> Option<TomlText<'t>> {
        self.find(key)?.text(mistakes)
    }

    pub fn flag(&self, key: &str, mistakes: &mut Mistakes) -> Option<bool> {
        self.find(key)?.flag(mistakes)
    }

    /// The meaning of a text that must be one of several words.
    pub fn choice<T: Copy>(
        &self,
        key: &str,
        choices: &WordMeanings<T>,
        mistakes: &mut Mistakes,
    ) -> Option<T> {
        let text = self.text(key, mistakes)?;
        let found = find_meaning(text.value, choices);
        if found.is_none() {
            let words = keys::words(choices);
            let message =
                format!("`{key}` expected {}, got {:?}", join_with_or(&words), text.value);
            match nearest(text.value, words) {
                Some(near) => {
                    mistakes.add_with_help(text.span, message, format!("did you mean `{near}`?"));
                }
                None => mistakes.add(text.span, message),
            }
        }
        found
    }
}

fn find_meaning<T: Copy>(word: &str, choices: &WordMeanings<T>) -> Option<T> {
    choices.iter().find(|(choice, _)| *choice == word).map(|(_, meaning)| *meaning)
}

/// Formats as `"a" or "b"`.
fn join_with_or(choices: &[&str]) -> String {
    choices.iter().map(|choice| format!("\"{choice}\"")).collect::<Vec<_>>().join(" or ")
}

/// A text and its position in the file.
#[derive(Debug, Clone)]
pub struct TomlText<'t> {
    pub value: &'t str,
    pub span: Range<usize>,
}

impl<'t> TomlEntry<'t> {
    pub fn span(&self) -> Range<usize> {
        self.node.span()
    }

    /// Adds a mistake: this key has a value of the wrong type.
    pub fn add_expected(&self, what: &str, mistakes: &mut Mistakes) {
        let message = format!("`{}` expected {what}, got {}", self.key, type_name(self.node));
        mistakes.add(self.span(), message);
    }

    pub fn table(&self, mistakes: &mut Mistakes) -> Option<TomlTable<'t>> {
        match self.node.get_ref() {
            DeValue::Table(table) => Some(TomlTable::new(table)),
            _ => {
                self.add_expected("a table", mistakes);
                None
            }
        }
    }

    pub fn text(&self, mistakes: &mut Mistakes) -> Option<TomlText<'t>> {
        match self.node.get_ref() {
            DeValue::String(text) => Some(TomlText { value: text, span: self.span() }),
            _ => {
                self.add_expected("a text in quotes", mistakes);
                None
            }
        }
    }

    pub fn flag(&self, mistakes: &mut Mistakes) -> Option<bool> {
        match self.node.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            _ => {
                self.add_expected("true or false", mistakes);
                None
            }
        }
    }

    /// An integer within `range`.
    pub fn count(&self, range: Range<u64>, mistakes: &mut Mistakes) -> Option<u64> {
        let what = match (range.start, range.end) {
            (0, u64::MAX) => "a whole number".to_owned(),
            (1, u64::MAX) => "a positive whole number".to_owned(),
            (start, end) => format!("a whole number from {start} to {}", end - 1),
        };
        let DeValue::Integer(number) = self.node.get_ref() else {
            self.add_expected(&what, mistakes);
            return None;
        };
        let count = u64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .filter(|count| range.contains(count));
        if count.is_none() {
            mistakes.add(self.span(), format!("`{}` expected {what}, got {number}", self.key));
        }
        count
    }

    /// A list of texts.
    pub fn texts(&self, mistakes: &mut Mistakes) -> Option<Vec<TomlText<'t>>> {
        let DeValue::Array(array) = self.node.get_ref() else {
            self.add_expected("a list of texts", mistakes);
            return None;
        };
        let mut texts = Vec::new();
        for node in array {
            match node.get_ref() {
                DeValue::String(text) => texts.push(TomlText { value: text, span: node.span() }),
                _ => mistakes.add(
                    node.span(),
                    format!(
                        "`{}` expected a list of texts, got {} in it",
                        self.key,
                        type_name(node)
                    ),
                ),
            }
        }
        Some(texts)
    }

    /// A list of texts, each one of `choices`, without duplicates, not empty.
    pub fn choices<T: Copy + PartialEq>(
        &self,
        what: &str,
        choices: &WordMeanings<T>,
        mistakes: &mut Mistakes,
    ) -> Vec<T> {
        let Some(texts) = self.texts(mistakes) else { return Vec::new() };
        if matches!(self.node.get_ref(), DeValue::Array(array) if array.is_empty()) {
            let message = format!("expected at least one {what}, got an empty list");
            let help = format!("known here: {}", join_with_and(&keys::words(choices)));
            mistakes.add_with_help(self.span(), message, help);
        }
        let mut found = Vec::new();
        for text in texts {
            match find_meaning(text.value, choices) {
                Some(choice) if found.contains(&choice) => {
                    mistakes.add(text.span, format!("\"{}\" stands here twice", text.value));
                }
                Some(choice) => found.push(choice),
                None => mistakes.add_unknown(
                    text.span,
                    format!("unknown {what} {:?}", text.value),
                    text.value,
                    keys::words(choices),
                ),
            }
        }
        found
    }
}

/// The type of a TOML value, for messages.
pub fn type_name(node: &TomlNode<'_>) -> &'static str {
    match node.get_ref() {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Names are `[a-z][a-z0-9_]{0,39}`: valid in paths, bodies, columns and expressions.
pub fn check_name(what: &str, name: &str, span: Range<usize>, mistakes: &mut Mistakes) -> bool {
    let fits = matches!(name.as_bytes(), [b'a'..=b'z', rest @ ..]
        if rest.len() < 40 && rest.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_')));
    if !fits {
        let help =
            "a name begins with a small letter and has at most 40 small letters, digits and `_`";
        mistakes.add_with_help(span, format!("{name:?} cannot be the name of a {what}"), help);
    }
    fits
}
