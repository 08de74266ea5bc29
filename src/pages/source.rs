//! The input of a page: the request, the replies in JSON, and access to their members.

use bytes::Bytes;

use crate::fault::OrBug as _;
use crate::intent::split_parameters;
use crate::json::{self, Json};
use crate::model::Model;
use crate::openapi::Viewer;
use crate::value::Value;

/// A longer query is in no link that sorts and in no form that filters.
const QUERY_REPEATED_BYTES_MAX: usize = 2_048;

/// The request that a page answers.
#[derive(Debug, Clone, Copy)]
pub struct PageContext<'a> {
    pub model: &'a Model,
    /// `None` for a problem that occurs before the caller is identified.
    pub viewer: Option<&'a Viewer<'a>>,
    /// Scheme and host, for command lines.
    pub origin: &'a str,
    /// As it was sent, with the deployment's prefix.
    pub path: &'a str,
    pub query: Option<&'a str>,
}

impl<'a> PageContext<'a> {
    /// The deployment's prefix.
    pub fn base_path(&self) -> &'a str {
        self.model.server.base_path.as_deref().unwrap_or("")
    }

    /// Whether links and forms that repeat the query would make the page many times as long.
    pub fn has_long_query(&self) -> bool {
        self.query.is_some_and(|query| query.len() > QUERY_REPEATED_BYTES_MAX)
    }

    /// The decoded parameters. A query that cannot be decoded was refused already.
    pub fn parameters(&self) -> Vec<(String, String)> {
        let split = split_parameters(self.query.unwrap_or(""));
        let pairs = split.unwrap_or_default().into_iter();
        pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
    }
}

/// The data that a page shows.
#[derive(Debug)]
pub struct PageData {
    /// The reply in JSON.
    pub json: Bytes,
    /// The position in the change log that the reply reflects, if it is known.
    pub position: Option<i64>,
    pub related: Vec<RelatedReply>,
}

/// The reply to another GET by the same caller.
#[derive(Debug)]
pub struct RelatedReply {
    /// Path and query.
    pub address: String,
    pub json: Bytes,
}

/// Deeper than any reply: defaults in the OpenAPI document may be 128 levels deep, and schemas are around them.
const JSON_DEPTH_MAX: usize = 160;

pub fn parse(bytes: &[u8]) -> Json<'_> {
    json::parse(bytes, JSON_DEPTH_MAX).ok().or_bug("the server writes JSON that it can read")
}

/// A member of an object.
pub fn member<'j>(json: &'j Json<'j>, name: &str) -> Option<&'j Json<'j>> {
    let Json::Object(members) = json else { return None };
    members.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// The members of an object; none of anything else.
pub fn members<'j>(json: Option<&'j Json<'j>>) -> impl Iterator<Item = (&'j str, &'j Json<'j>)> {
    let members: &[(_, _)] = match json {
        Some(Json::Object(members)) => members,
        _ => &[],
    };
    members.iter().map(|(name, value)| (&**name, value))
}

/// The elements of a list; none of anything else.
pub fn elements<'j>(json: Option<&'j Json<'j>>) -> &'j [Json<'j>] {
    match json {
        Some(Json::List(list)) => list,
        _ => &[],
    }
}

/// A text, or a number as text.
pub fn text_of<'j>(json: Option<&'j Json<'_>>) -> Option<&'j str> {
    match json? {
        Json::Text(text) => Some(text),
        Json::Number(text) => Some(text),
        _ => None,
    }
}

/// A value in words; none for null. Lists and objects are their JSON.
pub fn plain_text(value: &Json<'_>) -> Option<String> {
    match value {
        Json::Null => None,
        Json::Boolean(true) => Some("yes".to_owned()),
        Json::Boolean(false) => Some("no".to_owned()),
        Json::Number(text) => Some((*text).to_owned()),
        Json::Text(text) => Some(text.to_string()),
        Json::List(_) | Json::Object(_) => Some(json::to_text(value)),
    }
}

/// A value of the model as it is written in a query or a control.
pub fn value_text(value: &Value) -> String {
    let text = json::value_to_text(value);
    match json::parse(text.as_bytes(), JSON_DEPTH_MAX) {
        Ok(Json::Text(text)) => text.into_owned(),
        _ => text,
    }
}

/// The text of an id.
pub fn id_of<'j>(item: &'j Json<'j>) -> &'j str {
    text_of(member(item, "id")).unwrap_or_default()
}

/// A name of the model as a heading: `order_line` is `Order line`.
pub fn heading(name: &str) -> String {
    let words = name.replace('_', " ");
    let mut chars = words.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
