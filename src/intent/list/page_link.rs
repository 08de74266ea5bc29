//! The URL of a list's next page, and the canonical query that a cursor is bound to.
//!
//! Empty for a list without a query.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters to percent-encode: all but the unreserved ones, `:` and `@`, which have no special meaning
/// in a query or in a `Link` header.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@');

/// The parameters of a list query, encoded again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PageLink {
    /// Each parameter ends with `&`.
    query: String,
    /// Filters in canonical spelling.
    filters: Vec<String>,
    sort: Option<String>,
}

impl PageLink {
    pub(super) fn add(&mut self, name: &str, value: &str) {
        let _ = write!(self.query, "{}&", encode_pair(name, value));
    }

    /// `meant` is the parameter's name with its operator.
    pub(super) fn add_filter(&mut self, (parameter, value): (&str, &str), meant: &str) {
        self.add(parameter, value);
        self.filters.push(encode_pair(meant, value));
    }

    pub(super) fn add_sort(&mut self, value: &str) {
        self.add("sort", value);
        self.sort = Some(encode_pair("sort", value));
    }

    pub(super) fn page_url(&self, path: &str, limit: usize, cursor: &str) -> String {
        // A cursor is base64url: nothing in it needs escaping.
        format!("{path}?{}limit={limit}&cursor={cursor}", self.query)
    }

    /// The filters and the order as one canonical text, regardless of the order of the filters; `None` for
    /// the whole list by id.
    pub(super) fn canonical_query(&self) -> Option<String> {
        if self.filters.is_empty() && self.sort.is_none() {
            return None;
        }
        let mut all: Vec<&str> = self.filters.iter().map(String::as_str).collect();
        all.sort_unstable();
        all.extend(self.sort.as_deref());
        Some(all.join("&"))
    }
}

fn encode_pair(name: &str, value: &str) -> String {
    format!("{}={}", utf8_percent_encode(name, ESCAPED), utf8_percent_encode(value, ESCAPED))
}
