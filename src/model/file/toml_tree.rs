//! The TOML tree, and its validation against the tables of keys.
//!
//! `TomlTable::check` reports every unknown key and every value of a wrong type; the functions that read a table
//! then look up its values by name. Entries are in file order, which the parser's own map does not keep. Each
//! node of the tree has a reference to the list of mistakes, to which its methods add.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, KeyForm, TableKeys, WordMeanings};
use crate::model::nearest::nearest;
use crate::model::report::{Mistakes, join_with_and};

pub type TomlNode<'t> = Spanned<DeValue<'t>>;

/// A text and its position in the file: a key, or a value.
#[derive(Debug, Clone)]
pub struct TomlText<'t> {
    pub value: &'t str,
    pub span: Range<usize>,
    mistakes: &'t Mistakes,
}

impl<'t> TomlText<'t> {
    pub fn refuse(&self, message: impl Into<String>) {
        self.mistakes.add(self.span.clone(), message);
    }

    pub fn refuse_with_help(&self, message: impl Into<String>, help: impl Into<String>) {
        self.mistakes.add_with_help(self.span.clone(), message, help);
    }

    /// Adds a mistake at a part of it.
    pub fn refuse_at(&self, span: Range<usize>, message: String, help: Option<String>) {
        self.mistakes.push(span, message, help);
    }

    /// Adds a mistake with the nearest known word as help.
    pub fn refuse_unknown<'k>(
        &self,
        message: impl Into<String>,
        known: impl IntoIterator<Item = &'k str>,
    ) {
        self.mistakes.add_unknown(self.span.clone(), message, self.value, known);
    }

    /// Its position among the names of all `what`, or a mistake.
    pub fn find<'k>(
        &self,
        what: &str,
        known: impl Iterator<Item = &'k str> + Clone,
    ) -> Option<usize> {
        let found = known.clone().position(|name| name == self.value);
        if found.is_none() {
            self.refuse_unknown(format!("there is no {what} `{}`", self.value), known);
        }
        found
    }

    /// Whether the text being read is the model that a database stores, not a model file.
    pub fn is_in_shape(&self) -> bool {
        self.mistakes.is_shape
    }

    /// Adds a mistake if the key is reserved, and returns whether it is.
    pub fn refuse_reserved_key(&self) -> bool {
        let help = keys::reserved_key_help(self.value);
        if let Some(help) = help {
            self.mistakes.add_reserved(self.span.clone(), self.value, help);
        }
        help.is_some()
    }

    /// Names are `[a-z][a-z0-9_]{0,39}`: valid in paths, bodies, columns and expressions.
    pub fn check_name(&self, what: &str) {
        let is_name = matches!(self.value.as_bytes(), [b'a'..=b'z', rest @ ..]
            if rest.len() < 40 && rest.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_')));
        if !is_name {
            let help = "a name begins with a small letter and has at most 40 small letters, digits and `_`";
            self.refuse_with_help(format!("{:?} cannot be the name of a {what}", self.value), help);
        }
    }
}

/// A key with its value.
#[derive(Debug, Clone)]
pub struct TomlEntry<'t> {
    pub key: TomlText<'t>,
    pub node: &'t TomlNode<'t>,
}

impl<'t> TomlEntry<'t> {
    /// Adds a mistake at the value.
    pub fn refuse(&self, message: impl Into<String>) {
        self.key.mistakes.add(self.node.span(), message);
    }

    pub fn refuse_with_help(&self, message: impl Into<String>, help: impl Into<String>) {
        self.key.mistakes.add_with_help(self.node.span(), message, help);
    }

    /// Adds a mistake for a value that has no effect yet.
    pub fn refuse_reserved(&self, value: &str, help: &str) {
        self.key.mistakes.add_reserved(self.node.span(), value, help);
    }

    /// The number of mistakes in the whole file so far, which a reader compares before and after.
    pub fn mistake_count(&self) -> usize {
        self.key.mistakes.count()
    }

    /// Adds a mistake: the value is not what is expected.
    pub fn refuse_type(&self, expected: &str) {
        let got = type_name(self.node);
        self.refuse(format!("`{}` expected {expected}, got {got}", self.key.value));
    }

    /// The value as a table.
    pub fn table(&self) -> Option<TomlTable<'t>> {
        let table = self.node.get_ref().as_table();
        if table.is_none() {
            self.refuse_type("a table");
        }
        table.map(|table| TomlTable::new(table, self.key.mistakes))
    }

    /// The value as a text, if it is one.
    pub fn text(&self) -> Option<TomlText<'t>> {
        let value = self.node.get_ref().as_str()?;
        Some(TomlText { value, span: self.node.span(), mistakes: self.key.mistakes })
    }

    /// Each element of the value with its key, if the value is a list.
    pub fn elements(&self) -> Option<impl Iterator<Item = TomlEntry<'t>>> {
        let array = self.node.get_ref().as_array()?;
        let key = |node: &'t TomlNode<'t>| TomlText { span: node.span(), ..self.key.clone() };
        Some(array.iter().map(move |node| TomlEntry { key: key(node), node }))
    }

    pub fn is_empty_list(&self) -> bool {
        self.node.get_ref().as_array().is_some_and(|array| array.is_empty())
    }

    /// The texts of a list, or a single text; others are left out.
    pub fn texts(&self) -> Vec<TomlText<'t>> {
        match self.elements() {
            Some(elements) => elements.filter_map(|element| element.text()).collect(),
            None => self.text().into_iter().collect(),
        }
    }

    /// Adds a mistake for each part of the value that does not have this type.
    pub fn check(&self, form: &KeyForm) {
        let key = self.key.value;
        match (form, self.node.get_ref()) {
            (KeyForm::Other(_), _)
            | (KeyForm::Text | KeyForm::Name | KeyForm::Texts(_), DeValue::String(_))
            | (KeyForm::Flag, DeValue::Boolean(_))
            | (KeyForm::Table(_) | KeyForm::Tables(_), DeValue::Table(_)) => {}
            (KeyForm::Texts(_), DeValue::Array(_)) => self.check_texts(),
            (KeyForm::Names, _) => _ = self.check_list_of_texts(),
            (KeyForm::Choices(what, words), _) => _ = self.check_words(what, &words()),
            (KeyForm::Choice(words), DeValue::String(text)) => self.check_word(text, &words()),
            (KeyForm::Checked(form), DeValue::String(text)) if !(form.is_valid)(text) => {
                let message = format!("`{key}` expected {}, got {text:?}", form.expected);
                self.refuse_with_help(message, form.help);
            }
            (KeyForm::Checked(_), DeValue::String(_)) => {}
            (KeyForm::Count(range), node) => self.check_count(range, node),
            (KeyForm::Flag, _) => self.refuse_type("true or false"),
            (KeyForm::Texts(expected), _) => self.refuse_type(expected),
            (KeyForm::Table(_) | KeyForm::Tables(_), _) => self.refuse_type("a table"),
            (KeyForm::Text | KeyForm::Name | KeyForm::Choice(_) | KeyForm::Checked(_), _) => {
                self.refuse_type("a text in quotes");
            }
        }
    }

    /// Whether the value is a list; everything in it that is not a text is a mistake.
    pub fn check_list_of_texts(&self) -> bool {
        let is_list = self.node.get_ref().is_array();
        if is_list {
            self.check_texts();
        } else {
            self.refuse_type("a list of texts");
        }
        is_list
    }

    fn check_texts(&self) {
        for element in self.elements().into_iter().flatten() {
            if !element.node.get_ref().is_str() {
                let (key, got) = (self.key.value, type_name(element.node));
                element.refuse(format!("`{key}` expected a list of texts, got {got} in it"));
            }
        }
    }

    fn check_word(&self, word: &str, words: &[&'static str]) {
        if words.contains(&word) {
            return;
        }
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let key = self.key.value;
        let message = format!("`{key}` expected {}, got {word:?}", quoted.join(" or "));
        match nearest(word, words.iter().copied()) {
            Some(near) => self.refuse_with_help(message, format!("did you mean `{near}`?")),
            None => self.refuse(message),
        }
    }

    /// Whether the value is a list; it has words without duplicates and is not empty. `what` is one of them.
    pub fn check_words(&self, what: &str, words: &[&'static str]) -> bool {
        let texts = self.texts();
        let is_list = self.check_list_of_texts();
        if self.is_empty_list() {
            let help = format!("known here: {}", join_with_and(words));
            self.refuse_with_help(format!("expected at least one {what}, got an empty list"), help);
        }
        let mut seen = Vec::new();
        for text in &texts {
            if !words.contains(&text.value) {
                let message = format!("unknown {what} {:?}", text.value);
                text.refuse_unknown(message, words.iter().copied());
            } else if seen.contains(&text.value) {
                text.refuse(format!("\"{}\" stands here twice", text.value));
            } else {
                seen.push(text.value);
            }
        }
        is_list
    }

    fn check_count(&self, range: &Range<u64>, node: &DeValue<'_>) {
        let expected = match (range.start, range.end) {
            (0, u64::MAX) => "a whole number".to_owned(),
            (1, u64::MAX) => "a positive whole number".to_owned(),
            (start, end) => format!("a whole number from {start} to {}", end - 1),
        };
        match (node, self.count()) {
            (DeValue::Integer(_), Some(count)) if range.contains(&count) => {}
            (DeValue::Integer(number), _) => {
                self.refuse(format!("`{}` expected {expected}, got {number}", self.key.value));
            }
            _ => self.refuse_type(&expected),
        }
    }

    pub fn count(&self) -> Option<u64> {
        let number = self.node.get_ref().as_integer()?;
        u64::from_str_radix(number.as_str(), number.radix()).ok()
    }
}

/// A table in file order.
#[derive(Debug, Clone, Default)]
pub struct TomlTable<'t> {
    pub entries: Vec<TomlEntry<'t>>,
}

impl<'t> TomlTable<'t> {
    pub fn new(table: &'t DeTable<'t>, mistakes: &'t Mistakes) -> Self {
        let mut entries: Vec<TomlEntry<'t>> = table
            .iter()
            .map(|(key, node)| TomlEntry {
                key: TomlText { value: key.get_ref(), span: key.span(), mistakes },
                node,
            })
            .collect();
        entries.sort_by_key(|entry| entry.key.span.start);
        Self { entries }
    }

    /// Reports unknown keys and values of a wrong type.
    pub fn check(&self, table: &'static TableKeys) {
        self.refuse_unknown_keys(&format!("{} has no such key", table.owner), &table.names());
        self.check_forms(table);
    }

    /// Reports values of a wrong type.
    pub fn check_forms(&self, table: &'static TableKeys) {
        for key in table.keys {
            if let Some(entry) = self.find(key.name) {
                entry.check(&key.form);
            }
        }
    }

    /// Adds a mistake for every key that is not among `known`.
    pub fn refuse_unknown_keys(
        &self,
        why: &str,
        known: &(impl Iterator<Item = &'static str> + Clone),
    ) {
        for TomlEntry { key, .. } in &self.entries {
            if !key.refuse_reserved_key() && !known.clone().any(|name| name == key.value) {
                let message = format!("unknown key `{}`: {why}", key.value);
                key.refuse_unknown(message, known.clone());
            }
        }
    }

    /// The table with the keys for which `is_kept` holds.
    pub fn filter_keys(&self, is_kept: impl Fn(&str) -> bool) -> Self {
        let entries = self.entries.iter().filter(|entry| is_kept(entry.key.value));
        Self { entries: entries.cloned().collect() }
    }

    pub fn find(&self, key: &str) -> Option<&TomlEntry<'t>> {
        self.entries.iter().find(|entry| entry.key.value == key)
    }

    // The values of keys; also `None` if `check` has reported a wrong type.

    pub fn text(&self, key: &str) -> Option<TomlText<'t>> {
        self.find(key)?.text()
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        self.find(key)?.node.get_ref().as_bool()
    }

    pub fn count(&self, key: &str) -> Option<u64> {
        self.find(key)?.count()
    }

    pub fn table(&self, key: &str) -> Option<TomlTable<'t>> {
        let entry = self.find(key)?;
        Some(Self::new(entry.node.get_ref().as_table()?, entry.key.mistakes))
    }

    pub fn choice<T: Clone>(&self, key: &str, choices: &WordMeanings<T>) -> Option<T> {
        find_meaning(self.text(key)?.value, choices)
    }

    /// The meanings of the words of a list that are known.
    pub fn choices<T: Clone>(&self, key: &str, choices: &WordMeanings<T>) -> Option<Vec<T>> {
        let texts = self.find(key)?.texts();
        Some(texts.iter().filter_map(|text| find_meaning(text.value, choices)).collect())
    }
}

pub fn find_meaning<T: Clone>(word: &str, choices: &WordMeanings<T>) -> Option<T> {
    choices.iter().find(|(choice, _)| *choice == word).map(|(_, meaning)| meaning.clone())
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
