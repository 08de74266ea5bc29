//! The address of a list: what stays the same from page to page, and what makes it that list.
//!
//! Nothing is kept of a list without a query of its own.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What is written as it is: all that means nothing to anybody who reads a query or a `Link`.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@');

/// The parameters of a list, spelled again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// Behind each a `&`.
    query: String,
    /// Filters in one spelling.
    filters: Vec<String>,
    sort: Option<String>,
}

impl Link {
    pub(super) fn add(&mut self, name: &str, value: &str) {
        let _ = write!(self.query, "{}&", pair(name, value));
    }

    /// `meant` is the parameter's name with its operator.
    pub(super) fn add_filter(&mut self, (parameter, value): (&str, &str), meant: &str) {
        self.add(parameter, value);
        self.filters.push(pair(meant, value));
    }

    pub(super) fn add_sort(&mut self, value: &str) {
        self.add("sort", value);
        self.sort = Some(pair("sort", value));
    }

    pub(super) fn address(&self, path: &str, limit: usize, cursor: &str) -> String {
        // A cursor is base64url: nothing in it needs escaping.
        format!("{path}?{}limit={limit}&cursor={cursor}", self.query)
    }

    /// Which items in which order, in one text; none for all by id. The order of filters does not count.
    pub(super) fn bound(&self) -> Option<String> {
        if self.filters.is_empty() && self.sort.is_none() {
            return None;
        }
        let mut all: Vec<&str> = self.filters.iter().map(String::as_str).collect();
        all.sort_unstable();
        all.extend(self.sort.as_deref());
        Some(all.join("&"))
    }
}

fn pair(name: &str, value: &str) -> String {
    format!("{}={}", utf8_percent_encode(name, PLAIN), utf8_percent_encode(value, PLAIN))
}
