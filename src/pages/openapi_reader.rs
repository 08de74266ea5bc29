//! Access to an OpenAPI document: references, schemas in words, parameters and responses.

use super::source::{elements, member, text_of};
use crate::json::{self, Json};

/// An OpenAPI document that the server has made.
#[derive(Clone, Copy)]
pub struct Document<'a>(pub &'a Json<'a>);

/// The members of an object; none of anything else.
pub fn members<'j>(json: Option<&'j Json<'j>>) -> impl Iterator<Item = (&'j str, &'j Json<'j>)> {
    let members: &[(_, _)] = match json {
        Some(Json::Object(members)) => members,
        _ => &[],
    };
    members.iter().map(|(name, value)| (&**name, value))
}

impl<'a> Document<'a> {
    /// The value at the end of a path of members.
    pub fn find(self, path: &[&str]) -> Option<&'a Json<'a>> {
        self.find_in(self.0, path)
    }

    /// The same from another value on. References on the way are followed.
    pub fn find_in(self, json: &'a Json<'a>, path: &[&str]) -> Option<&'a Json<'a>> {
        let mut at = self.resolve(json)?;
        for name in path {
            at = self.resolve(member(at, name)?)?;
        }
        Some(at)
    }

    /// The target of a reference; any other value itself.
    fn resolve(self, json: &'a Json<'a>) -> Option<&'a Json<'a>> {
        let Some(target) = text_of(member(json, "$ref")) else { return Some(json) };
        // Names of components have neither `~` nor `/`, and a component is no reference itself.
        let mut names = target.strip_prefix("#/")?.split('/');
        names.try_fold(self.0, |at, name| member(at, name))
    }

    /// The schema of the items in a body: its first member, or that of its first alternative.
    pub fn item_schema(self, content: Option<&'a Json<'a>>) -> Option<&'a Json<'a>> {
        let mut schema = self.find_in(content?, &["application/json", "schema"])?;
        if let Some(first) = elements(member(schema, "oneOf")).first() {
            schema = self.resolve(first)?;
        }
        let (_, item) = members(member(schema, "properties")).next()?;
        self.resolve(item)
    }

    /// The type and the rules of a schema, in words.
    pub fn schema_words(self, schema: &'a Json<'a>) -> String {
        let Some(schema) = self.resolve(schema) else { return String::new() };
        let mut words = vec![self.type_words(schema)];
        let text = |name: &str| member(schema, name).map(plain);
        for (name, before, after) in RULES {
            words.extend(text(name).map(|value| format!("{before}{value}{after}")));
        }
        let choices = elements(member(schema, "enum"));
        if !choices.is_empty() {
            let list: Vec<String> = choices.iter().map(plain).collect();
            words.push(format!("one of {}", list.join(", ")));
        }
        words.retain(|word| !word.is_empty());
        words.join(", ")
    }

    fn type_words(self, schema: &'a Json<'a>) -> String {
        if let Some(alternatives) = ["oneOf", "anyOf"].iter().find_map(|name| member(schema, name))
        {
            let words = elements(Some(alternatives)).iter().map(|one| self.schema_words(one));
            return words.collect::<Vec<_>>().join(" or ");
        }
        let kinds: Vec<&str> = match member(schema, "type") {
            Some(Json::List(kinds)) => {
                kinds.iter().filter_map(|kind| text_of(Some(kind))).collect()
            }
            kind => text_of(kind).into_iter().collect(),
        };
        let words = kinds.iter().map(|kind| match (*kind, text_of(member(schema, "format"))) {
            ("array", _) => match member(schema, "items") {
                Some(items) => {
                    format!("array of {}", self.type_words(self.resolve(items).unwrap_or(items)))
                }
                None => "array".to_owned(),
            },
            ("null", _) | (_, None) => (*kind).to_owned(),
            (kind, Some(format)) => format!("{kind} ({format})"),
        });
        words.collect::<Vec<_>>().join(" or ")
    }

    /// The fields of a schema and of the objects inside it, with their paths.
    pub fn fields(self, schema: &'a Json<'a>) -> Vec<(String, &'a Json<'a>)> {
        let mut all = Vec::new();
        self.add_fields(schema, "", &mut all);
        all
    }

    fn add_fields(self, schema: &'a Json<'a>, above: &str, all: &mut Vec<(String, &'a Json<'a>)>) {
        for (name, field) in members(member(schema, "properties")) {
            let Some(field) = self.resolve(field) else { continue };
            let path = format!("{above}{name}");
            all.push((path.clone(), field));
            self.add_fields(field, &format!("{path}."), all);
            if let Some(items) = self.find_in(field, &["items"]) {
                self.add_fields(items, &format!("{path}[]."), all);
            }
        }
    }
}

/// Members of a schema that are rules, with the words around their values.
const RULES: [(&str, &str, &str); 12] = [
    ("minLength", "at least ", " characters"),
    ("maxLength", "at most ", " characters"),
    ("pattern", "matches ", ""),
    ("minimum", "at least ", ""),
    ("maximum", "at most ", ""),
    ("exclusiveMinimum", "more than ", ""),
    ("exclusiveMaximum", "less than ", ""),
    ("multipleOf", "a multiple of ", ""),
    ("minItems", "at least ", " elements"),
    ("maxItems", "at most ", " elements"),
    ("const", "always ", ""),
    ("default", "default ", ""),
];

/// A text as it is, anything else as JSON.
pub fn plain(json: &Json<'_>) -> String {
    match json {
        Json::Text(text) => text.to_string(),
        other => json::to_text(other),
    }
}
