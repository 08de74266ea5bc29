//! A parsed JSON value.

use std::borrow::Cow;

/// A JSON value as it was sent. Numbers keep their text, so that nothing is rounded before the field type has
/// parsed it.
#[derive(Debug, Clone, PartialEq)]
pub enum Json<'a> {
    Null,
    Boolean(bool),
    Number(&'a str),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    /// In the order of the text; keys are unique.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl From<&'static str> for Json<'_> {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Json<'_> {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<bool> for Json<'_> {
    fn from(boolean: bool) -> Self {
        Self::Boolean(boolean)
    }
}

impl<'a> From<Vec<Json<'a>>> for Json<'a> {
    fn from(list: Vec<Json<'a>>) -> Self {
        Self::List(list)
    }
}

impl Json<'_> {
    /// The name of its type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// Its approximate length as text.
    pub fn approximate_bytes(&self) -> usize {
        match self {
            Self::Null | Self::Boolean(_) => 5,
            Self::Number(text) => text.len() + 1,
            Self::Text(text) => text.len() + 3,
            Self::List(list) => list.iter().map(Self::approximate_bytes).sum::<usize>() + 3,
            Self::Object(members) => {
                members
                    .iter()
                    .map(|(name, value)| name.len() + 3 + value.approximate_bytes())
                    .sum::<usize>()
                    + 3
            }
        }
    }

    /// Its nesting depth; a scalar has depth 1.
    pub fn depth(&self) -> usize {
        let inside = match self {
            Self::Null | Self::Boolean(_) | Self::Number(_) | Self::Text(_) => None,
            Self::List(list) => list.iter().map(Self::depth).max(),
            Self::Object(members) => members.iter().map(|(_, value)| value.depth()).max(),
        };
        inside.unwrap_or(0) + 1
    }
}
