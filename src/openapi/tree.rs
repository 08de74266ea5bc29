//! A JSON document under construction: its objects keep the order in which their members were added, so that
//! two documents can be compared line by line.

use std::borrow::Cow;

use crate::json;
use crate::value::Value;

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonNode {
    /// JSON text: a number, a boolean, or a value that was written before.
    Raw(Cow<'static, str>),
    Text(Cow<'static, str>),
    List(Vec<JsonNode>),
    Object(Vec<(Cow<'static, str>, JsonNode)>),
}

/// An object with these members.
macro_rules! object {
    ($($key:literal: $value:expr),* $(,)?) => {
        $crate::openapi::tree::JsonNode::Object(
            vec![$(($key.into(), $crate::openapi::tree::JsonNode::from($value)),)*]
        )
    };
}

impl JsonNode {
    /// As JSON text, on one line.
    pub fn text(&self) -> String {
        let mut out = Vec::new();
        self.write(&mut out);
        json::into_text(out)
    }

    pub fn empty_object() -> Self {
        Self::Object(Vec::new())
    }

    /// A list of texts.
    pub fn texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::List(texts.into_iter().map(|text| Self::from(text.as_ref())).collect())
    }

    /// Adds a member to an object.
    pub fn add(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Self>) {
        if let Self::Object(members) = self {
            members.push((key.into(), value.into()));
        }
    }

    /// The same object with one more member.
    #[must_use]
    pub fn with(mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Self>) -> Self {
        self.add(key, value);
        self
    }

    /// The same object with one more member, if there is a value.
    #[must_use]
    pub fn with_some(self, key: &'static str, value: Option<impl Into<Self>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// The same object with the members of another one after its own.
    #[must_use]
    pub fn with_all(mut self, other: Self) -> Self {
        if let (Self::Object(members), Self::Object(more)) = (&mut self, other) {
            members.extend(more);
        }
        self
    }

    /// A member of an object.
    pub fn member(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// A member of an object.
    pub fn member_mut(&mut self, name: &str) -> Option<&mut Self> {
        let Self::Object(members) = self else { return None };
        members.iter_mut().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Puts the members of another object in place of these, before the others.
    pub fn replace_members(&mut self, names: &[&str], other: Self) {
        if let (Self::Object(members), Self::Object(mut first)) = (self, other) {
            members.retain(|(name, _)| !names.contains(&&**name));
            first.append(members);
            *members = first;
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Raw(_) | Self::Text(_) => false,
            Self::List(list) => list.is_empty(),
            Self::Object(members) => members.is_empty(),
        }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Raw(text) => out.extend_from_slice(text.as_bytes()),
            Self::Text(text) => json::write_text(out, text),
            Self::List(list) => json::write_list(out, list, |out, one| one.write(out)),
            Self::Object(members) => {
                out.push(b'{');
                for (at, (key, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    json::write_text(out, key);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

impl From<&str> for JsonNode {
    fn from(text: &str) -> Self {
        Self::Text(Cow::Owned(text.to_owned()))
    }
}

impl From<String> for JsonNode {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<bool> for JsonNode {
    fn from(boolean: bool) -> Self {
        Self::Raw(if boolean { "true" } else { "false" }.into())
    }
}

impl From<i64> for JsonNode {
    fn from(number: i64) -> Self {
        Self::Raw(number.to_string().into())
    }
}

impl From<usize> for JsonNode {
    fn from(number: usize) -> Self {
        Self::Raw(number.to_string().into())
    }
}

impl From<u64> for JsonNode {
    fn from(number: u64) -> Self {
        Self::Raw(number.to_string().into())
    }
}

impl From<u16> for JsonNode {
    fn from(number: u16) -> Self {
        Self::Raw(number.to_string().into())
    }
}

impl From<&Value> for JsonNode {
    fn from(value: &Value) -> Self {
        Self::Raw(json::value_to_text(value).into())
    }
}

impl From<Vec<Self>> for JsonNode {
    fn from(list: Vec<Self>) -> Self {
        Self::List(list)
    }
}
