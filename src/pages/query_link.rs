//! Addresses with a changed query: the links of filters, sort orders and pages.

use crate::intent::encode_pair;

/// A path, and the parameters of its query.
#[derive(Debug, Clone)]
pub struct QueryLink<'a> {
    path: &'a str,
    parameters: Vec<(String, String)>,
}

impl<'a> QueryLink<'a> {
    pub fn new(path: &'a str, parameters: &[(String, String)]) -> Self {
        Self { path, parameters: parameters.to_vec() }
    }

    /// Without the parameters of this name.
    pub fn without(mut self, name: &str) -> Self {
        self.parameters.retain(|(known, _)| known != name);
        self
    }

    /// Without one parameter, by its position.
    pub fn without_index(mut self, index: usize) -> Self {
        if index < self.parameters.len() {
            self.parameters.remove(index);
        }
        self
    }

    /// With one parameter of this name only.
    pub fn with(self, name: &str, value: &str) -> Self {
        let mut link = self.without(name);
        link.parameters.push((name.to_owned(), value.to_owned()));
        link
    }

    pub fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }

    pub fn address(&self) -> String {
        let pairs: Vec<String> =
            self.parameters.iter().map(|(name, value)| encode_pair(name, value)).collect();
        match pairs.is_empty() {
            true => self.path.to_owned(),
            false => format!("{}?{}", self.path, pairs.join("&")),
        }
    }
}
