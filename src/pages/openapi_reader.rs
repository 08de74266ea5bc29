//! Access to an OpenAPI document: references, fields of schemas, and schemas in words.

use super::source::{elements, member, members, text_of};
use crate::fault::OrBug as _;
use crate::json::{self, Json};

/// An OpenAPI document that the server has made.
#[derive(Clone, Copy)]
pub struct Document<'a>(pub &'a Json<'a>);

/// A field of a schema, or of an object inside it.
pub struct SchemaField<'a> {
    /// `items[].product`
    pub path: String,
    /// A schema, or a reference with further members.
    pub schema: &'a Json<'a>,
    pub is_required: bool,
}

impl<'a> Document<'a> {
    /// The value at the end of a path of members.
    pub fn find(self, path: &[&str]) -> Option<&'a Json<'a>> {
        self.find_in(self.0, path)
    }

    /// The same from another value on. References on the way are followed.
    pub fn find_in(self, json: &'a Json<'a>, path: &[&str]) -> Option<&'a Json<'a>> {
        path.iter().try_fold(self.resolve(json), |at, name| Some(self.resolve(member(at, name)?)))
    }

    /// The target of a reference; any other value itself.
    pub fn resolve(self, json: &'a Json<'a>) -> &'a Json<'a> {
        let Some(target) = text_of(member(json, "$ref")) else { return json };
        // Names of components have neither `~` nor `/`, and a component is no reference itself.
        let mut names = target.trim_start_matches("#/").split('/');
        names
            .try_fold(self.0, |at, name| member(at, name))
            .or_bug("a reference in the document has a target")
    }

    /// A member of a schema, which stands beside a reference or in its target.
    pub fn schema_member(self, schema: &'a Json<'a>, name: &str) -> Option<&'a Json<'a>> {
        member(schema, name).or_else(|| member(self.resolve(schema), name))
    }

    /// The schema of the items in a JSON body: that of the first member.
    pub fn item_schema(self, content: Option<&'a Json<'a>>) -> Option<&'a Json<'a>> {
        let schema = self.find_in(content?, &["application/json", "schema"])?;
        let (_, item) = members(member(schema, "properties")).next()?;
        Some(self.resolve(item))
    }

    /// The type and the rules of a schema, in words.
    pub fn schema_words(self, schema: &'a Json<'a>) -> String {
        let mut words = vec![self.type_words(self.resolve(schema))];
        for (name, before, noun) in RULES {
            let value = self.schema_member(schema, name).map(json_words);
            words.extend(value.map(|value| match (noun, &*value) {
                ("", value) => format!("{before} {value}"),
                (noun, "1") => format!("{before} 1 {noun}"),
                (noun, value) => format!("{before} {value} {noun}s"),
            }));
        }
        let choices = elements(self.schema_member(schema, "enum"));
        if !choices.is_empty() {
            let list: Vec<String> = choices.iter().map(json_words).collect();
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
                Some(items) => format!("array of {}", self.schema_words(items)),
                None => "array".to_owned(),
            },
            ("null", _) | (_, None) => (*kind).to_owned(),
            (kind, Some(format)) => format!("{kind} ({format})"),
        });
        words.collect::<Vec<_>>().join(" or ")
    }

    /// The fields of a schema and of the objects inside it.
    pub fn fields(self, schema: &'a Json<'a>) -> Vec<SchemaField<'a>> {
        let mut all = Vec::new();
        self.add_fields(schema, "", &mut all);
        all
    }

    fn add_fields(self, object: &'a Json<'a>, above: &str, all: &mut Vec<SchemaField<'a>>) {
        let required = elements(member(object, "required"));
        for (name, schema) in members(member(object, "properties")) {
            let mut path = format!("{above}{name}");
            let is_required = required.iter().any(|one| text_of(Some(one)) == Some(name));
            all.push(SchemaField { path: path.clone(), schema, is_required });
            let mut inner = self.resolve(schema);
            while let Some(items) = member(inner, "items") {
                inner = self.resolve(items);
                path.push_str("[]");
            }
            path.push('.');
            self.add_fields(inner, &path, all);
        }
    }
}

/// The keywords of JSON Schema that limit a value. Each has the words before its value, and the unit of the value or nothing.
const RULES: [(&str, &str, &str); 12] = [
    ("minLength", "at least", "character"),
    ("maxLength", "at most", "character"),
    ("pattern", "matches", ""),
    ("minimum", "at least", ""),
    ("maximum", "at most", ""),
    ("exclusiveMinimum", "more than", ""),
    ("exclusiveMaximum", "less than", ""),
    ("multipleOf", "a multiple of", ""),
    ("minItems", "at least", "element"),
    ("maxItems", "at most", "element"),
    ("const", "always", ""),
    ("default", "default", ""),
];

/// A text as it is, anything else as JSON.
pub fn json_words(json: &Json<'_>) -> String {
    match json {
        Json::Text(text) => text.to_string(),
        other => json::to_text(other),
    }
}
