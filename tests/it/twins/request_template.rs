//! A request as data, with placeholders for the values that a server generates.
//!
//! It knows nothing of connections.
//! A placeholder refers to the request whose response had the value, by a number that stays when
//! earlier requests are left out; then the value is unknown, and a value that matches nothing is
//! used.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

use crate::harness::Answer;

/// The kind of a placeholder's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholder {
    Uuid,
    Integer,
    /// The item as it was shown.
    Item,
    /// The cursor of the next page.
    Cursor,
    /// The ETag of a list or an item.
    Tag,
}

impl Placeholder {
    pub fn text(self, request: usize, index: usize) -> String {
        format!("⟦{self:?} {request} {index}⟧")
    }

    /// The value to use when there is no such response.
    fn unknown_value(name: &str) -> &'static str {
        match name {
            "Uuid" => "00000000-0000-7000-8000-000000000000",
            "Integer" => "999999",
            "Item" => "{}",
            _ => "none",
        }
    }
}

#[derive(Debug, Clone)]
pub struct RequestTemplate {
    pub number: usize,
    /// Method and target.
    pub line: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

/// The values from the responses of one side, by the number of the request.
#[derive(Debug, Default)]
pub struct LearnedValues {
    items: HashMap<usize, Vec<Value>>,
    cursors: HashMap<usize, String>,
    tags: HashMap<usize, String>,
}

impl LearnedValues {
    pub fn learn(&mut self, number: usize, answer: &Answer) {
        if let Some(tag) = answer.header("ETag") {
            self.tags.insert(number, tag.to_owned());
        }
        if !(200..300).contains(&answer.status) || answer.body.is_empty() {
            return;
        }
        let body = answer.json();
        if let Some(cursor) = body["page"]["next"].as_str() {
            self.cursors.insert(number, cursor.to_owned());
        }
        match body.as_object().and_then(|body| body.values().next()) {
            Some(Value::Array(items)) => drop(self.items.insert(number, items.clone())),
            Some(item @ Value::Object(_)) => drop(self.items.insert(number, vec![item.clone()])),
            _ => {}
        }
    }

    /// How many items the response had.
    pub fn count(&self, number: usize) -> usize {
        self.items.get(&number).map_or(0, Vec::len)
    }

    pub fn has_next(&self, number: usize) -> bool {
        self.cursors.contains_key(&number)
    }

    /// A text with the values of this side in place of its placeholders.
    pub fn fill(&self, text: &str) -> String {
        static MARK: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"⟦(\w+) (\d+) (\d+)⟧").unwrap());
        let value = |found: &Captures<'_>| {
            let (number, index) = (found[2].parse().unwrap(), found[3].parse::<usize>().unwrap());
            let item = self.items.get(&number).and_then(|items| items.get(index));
            let known = match &found[1] {
                "Uuid" => item.and_then(|item| item["id"].as_str()).map(str::to_owned),
                "Integer" => item.and_then(|item| item["id"].as_i64()).map(|id| id.to_string()),
                "Item" => item.map(Value::to_string),
                "Tag" => self.tags.get(&number).cloned(),
                _ => self.cursors.get(&number).cloned(),
            };
            known.unwrap_or_else(|| Placeholder::unknown_value(&found[1]).to_owned())
        };
        MARK.replace_all(text, value).into_owned()
    }

    /// The request as it is sent to this side.
    pub fn request(&self, ask: &RequestTemplate) -> (String, Vec<(&'static str, String)>, String) {
        let headers = ask.headers.iter().map(|(name, value)| (*name, self.fill(value)));
        (self.fill(&ask.line), headers.collect(), self.fill(&ask.body))
    }
}
