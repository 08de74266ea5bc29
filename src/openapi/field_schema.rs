//! JSON Schema (2020-12) of fields: types, formats and rules as the server validates them.
//!
//! Rules that JSON Schema has no keyword for, such as the earliest date, are in the description.

use std::fmt::Write as _;

use super::pattern;
use super::tree::JsonNode;
use super::viewer::Viewer;
use crate::json;
use crate::model::types::REFERENCES_MAX;
use crate::model::{
    AuditedUser, DefaultSource, Deprecated, Field, GrantVerb, Resource, StateMachine, StorageClass,
    UniqueScope,
};
use crate::value::{INTEGER_MAX, IdKind, Value};

/// The use of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaPurpose {
    /// An item in a response.
    Read,
    /// A new item.
    Create,
    /// An item that replaces another one.
    Replace,
    /// A merge patch, where null removes a value and objects are merged.
    Patch,
}

impl SchemaPurpose {
    /// The sentence about a limited field in its schema.
    fn limitation(self) -> Option<(GrantVerb, &'static str)> {
        match self {
            Self::Read => None,
            Self::Create => Some((GrantVerb::Post, "Can be set in some items only.")),
            Self::Replace => Some((
                GrantVerb::Put,
                "Can be changed in some items only; PUT without it keeps its value.",
            )),
            Self::Patch => Some((GrantVerb::Patch, "Can be changed in some items only.")),
        }
    }

    pub fn is_write(self) -> bool {
        self != Self::Read
    }
}

/// The schemas of the fields of one resource, as one caller sees them.
#[derive(Debug, Clone, Copy)]
pub struct FieldSchemas<'v, 'a> {
    pub viewer: &'v Viewer<'a>,
    pub resource: &'a Resource,
    pub purpose: SchemaPurpose,
    /// Fields that are hidden from the caller, by index.
    pub hidden: &'v [usize],
}

impl FieldSchemas<'_, '_> {
    /// The schema of a field of the resource.
    pub fn field(&self, at: usize, field: &Field) -> JsonNode {
        let mut about = description(field, self.purpose);
        if let Some(states) = &field.rules.states {
            push_sentence(&mut about, &self.describe_states(states));
        }
        if let Some(target) = field.rules.reference
            && self.viewer.knows(target.resource)
        {
            let name = &self.viewer.model.resource(target.resource).name;
            push_sentence(&mut about, &format!("The id of the {name}."));
        }
        let is_alone = |fields: &[usize]| fields == [at];
        for rule in self.resource.unique.iter().filter(|rule| is_alone(&rule.fields)) {
            push_sentence(
                &mut about,
                match rule.scope {
                    UniqueScope::Resource => "Unique.",
                    UniqueScope::Parent => "Unique within the parent.",
                },
            );
        }
        if let Some((verb, limitation)) = self.purpose.limitation()
            && let Some(access) = self.viewer.access(self.resource.index, verb)
            && access.is_limited(at)
        {
            push_sentence(&mut about, limitation);
        }
        if let Some(deprecated) = &field.deprecated {
            push_sentence(&mut about, &self.deprecation(deprecated));
        }
        let mut schema = self.typed(field);
        if let Some(target) = field.rules.reference
            && self.viewer.knows(target.resource)
        {
            schema.add("x-resource", &*self.viewer.model.resource(target.resource).label);
        }
        finish(schema, field, &about)
    }

    /// The states that the caller may choose. Only an admin gets the names of roles.
    fn describe_states(&self, states: &StateMachine) -> String {
        let mut text = format!("The state. A new item is `{}`.", states.initial);
        if self.purpose == SchemaPurpose::Create {
            return text;
        }
        let mut verbs = GrantVerb::ALL.iter();
        let access = verbs.find_map(|verb| self.viewer.access(self.resource.index, *verb));
        let is_admin = self.viewer.caller.rights().is_admin();
        let next_state = |from: &str, to: &str| {
            let mut limits = states.limits.iter();
            let limit = limits.find(|one| *one.from == *from && *one.to == *to);
            match limit.filter(|_| is_admin) {
                Some(limit) => format!("`{to}` (role {})", limit.roles.join(" or ")),
                None => format!("`{to}`"),
            }
        };
        for (state, _) in &states.next {
            let next = access.iter().flat_map(|one| one.allowed_successors(states, state));
            let next: Vec<String> = next.map(|to| next_state(state, to)).collect();
            let next = if next.is_empty() { "nothing".to_owned() } else { next.join(", ") };
            let _ = write!(text, " After `{state}`: {next}.");
        }
        if self.purpose == SchemaPurpose::Replace {
            text.push_str(" Keeps its value if it is left out.");
        }
        text
    }

    fn deprecation(&self, deprecated: &Deprecated) -> String {
        let successor = deprecated.use_instead.as_deref().filter(|name| {
            self.resource.field(name).is_none_or(|(at, _)| !self.hidden.contains(&at))
        });
        deprecation_sentence(deprecated, successor)
    }

    /// The schema of a field inside an object.
    fn member(&self, field: &Field) -> JsonNode {
        let mut about = description(field, self.purpose);
        if let Some(deprecated) = &field.deprecated {
            push_sentence(&mut about, &deprecation_sentence(deprecated, None));
        }
        finish(self.typed(field), field, &about)
    }

    /// Whether null is a value here.
    fn can_be_null(&self, field: &Field) -> bool {
        match self.purpose {
            SchemaPurpose::Read | SchemaPurpose::Create | SchemaPurpose::Replace => field.nullable,
            // The result is validated: a required field cannot be removed, and neither can a state. Members
            // that the server sets are not looked at.
            SchemaPurpose::Patch => {
                let is_needed = field.required || field.rules.states.is_some();
                !is_needed || field.secret || field.is_made_by_server() || field.server_set
            }
        }
    }

    fn typed(&self, field: &Field) -> JsonNode {
        let is_nullable = self.can_be_null(field);
        let rules = &field.rules;
        let schema = match field.storage_class() {
            StorageClass::Text => text_schema(field, is_nullable, self.purpose),
            StorageClass::Moment => {
                types(&["string"], is_nullable).with_some("format", field.kind.json_format)
            }
            StorageClass::Boolean => types(&["boolean"], is_nullable),
            StorageClass::Integer => integer_schema(field, is_nullable),
            StorageClass::Real => types(&["number"], is_nullable)
                .with("format", "double")
                .with_some("minimum", rules.min.as_ref())
                .with_some("maximum", rules.max.as_ref()),
            StorageClass::Decimal => self.decimal_schema(field, is_nullable),
            StorageClass::Json => self.structure(field, is_nullable),
        };
        if rules.one_of.is_empty() {
            return schema;
        }
        let mut choices: Vec<JsonNode> = rules.one_of.iter().map(JsonNode::from).collect();
        if is_nullable {
            choices.push(JsonNode::Raw("null".into()));
        }
        schema.with("enum", choices)
    }

    /// A decimal is a text in responses, and a text or a number in requests.
    fn decimal_schema(&self, field: &Field, is_nullable: bool) -> JsonNode {
        let scale = usize::from(field.rules.scale);
        let whole_digits = 18 - scale;
        let fraction = match (scale, self.purpose) {
            (0, _) => String::new(),
            (scale, SchemaPurpose::Read) => format!("\\.[0-9]{{{scale}}}"),
            (scale, _) => format!("(\\.[0-9]{{1,{scale}}})?"),
        };
        let whole = format!("(0|[1-9][0-9]{{0,{}}})", whole_digits - 1);
        let kinds: &[&str] =
            if self.purpose.is_write() { &["string", "number"] } else { &["string"] };
        let bound = |bound: Option<&Value>| match bound {
            // The bounds apply to numbers; a text has them in the description.
            Some(Value::Decimal(bound)) if self.purpose.is_write() => {
                Some(JsonNode::Raw(bound.to_string().into()))
            }
            _ => None,
        };
        types(kinds, is_nullable)
            .with("format", "decimal")
            .with("pattern", format!("^-?{whole}{fraction}$"))
            .with_some("minimum", bound(field.rules.min.as_ref()))
            .with_some("maximum", bound(field.rules.max.as_ref()))
    }

    /// A list, an object, or any JSON.
    fn structure(&self, field: &Field, is_nullable: bool) -> JsonNode {
        let rules = &field.rules;
        if let Some(element) = &rules.element {
            // A patch replaces a list as a whole.
            let purpose = match self.purpose {
                SchemaPurpose::Patch => SchemaPurpose::Replace,
                purpose => purpose,
            };
            let many = field.many_references();
            return types(&["array"], is_nullable)
                .with_some("minItems", rules.min_items)
                .with_some("maxItems", rules.max_items.or(many.map(|_| REFERENCES_MAX)))
                .with_some("uniqueItems", many.map(|_| true))
                .with("items", Self { purpose, ..*self }.member(element));
        }
        if rules.fields.is_empty() {
            let any: &[&str] = &["array", "boolean", "number", "object", "string"];
            return types(any, is_nullable);
        }
        let inner = rules.fields.iter();
        let required = inner
            .clone()
            .filter(|field| field.required && self.purpose != SchemaPurpose::Patch)
            .map(|field| &*field.name);
        let required = JsonNode::texts(required);
        let properties =
            inner.map(|field| (field.name.to_string().into(), self.member(field))).collect();
        let schema = types(&["object"], is_nullable)
            .with_some("required", Some(required).filter(|required| !required.is_empty()))
            .with("properties", JsonNode::Object(properties));
        match self.purpose.is_write() {
            true => schema.with("additionalProperties", false),
            false => schema,
        }
    }
}

/// The members that go with every schema of a field.
fn finish(schema: JsonNode, field: &Field, about: &str) -> JsonNode {
    schema
        .with_some("description", (!about.is_empty()).then_some(about))
        .with_some("deprecated", field.deprecated.as_ref().map(|_| true))
}

/// `type`, with null where it is a value.
pub fn types(names: &[&str], is_nullable: bool) -> JsonNode {
    match (names, is_nullable) {
        ([one], false) => object! { "type": *one },
        (names, false) => object! { "type": JsonNode::texts(names) },
        (names, true) => object! { "type": JsonNode::texts(names.iter().chain(&["null"])) },
    }
}

fn text_schema(field: &Field, is_nullable: bool, purpose: SchemaPurpose) -> JsonNode {
    let rules = &field.rules;
    let format = match &rules.reference {
        Some(_) => Some("uuid"),
        None => field.kind.json_format,
    };
    let chars_max = match (rules.max_length, field.kind.chars_max) {
        // A format of fixed length needs no limit.
        (own, Some(_)) if format.is_some() && format != Some("email") => own,
        (Some(own), Some(kind)) => Some(own.min(kind)),
        (own, kind) => own.or(kind),
    };
    let own = rules.pattern.as_ref().and_then(|pattern| pattern::to_ecma(pattern.as_str()));
    let schema = types(&["string"], is_nullable)
        .with_some("format", format)
        .with_some("minLength", rules.min_length)
        .with_some("maxLength", chars_max)
        .with_some("pattern", own.as_deref().or(field.kind.json_pattern));
    match &rules.states {
        Some(states) if purpose == SchemaPurpose::Create => {
            schema.with("enum", JsonNode::texts([&*states.initial]))
        }
        Some(states) => {
            schema.with("enum", JsonNode::texts(states.next.iter().map(|(state, _)| state)))
        }
        None => schema,
    }
}

fn integer_schema(field: &Field, is_nullable: bool) -> JsonNode {
    let rules = &field.rules;
    let bound = |bound: Option<&Value>, other: i64| match bound {
        Some(Value::Integer(bound)) => *bound,
        _ => other,
    };
    // An id is positive.
    let least = if rules.reference.is_some() { 1 } else { -INTEGER_MAX };
    types(&["integer"], is_nullable)
        .with("format", "int64")
        .with("minimum", bound(rules.min.as_ref(), least))
        .with("maximum", bound(rules.max.as_ref(), INTEGER_MAX))
}

/// The schema of an id.
pub fn id_schema(kind: IdKind) -> JsonNode {
    match kind {
        IdKind::Uuid => object! { "type": "string", "format": "uuid" },
        IdKind::Integer => object! {
            "type": "integer", "format": "int64", "minimum": 1_i64, "maximum": INTEGER_MAX
        },
    }
}

/// The rules that no keyword of JSON Schema expresses.
fn description(field: &Field, purpose: SchemaPurpose) -> String {
    let (mut about, rules) = (String::new(), &field.rules);
    if field.computed.is_some() {
        about.push_str("Computed by the server.");
    }
    match field.audit {
        Some(AuditedUser::Creator) => about.push_str("The user who created the item."),
        Some(AuditedUser::LastEditor) => about.push_str("The user who changed the item last."),
        None => {}
    }
    match field.storage_class() {
        StorageClass::Decimal => {
            let places = match rules.scale {
                0 => "without decimals".to_owned(),
                1 => "with at most 1 decimal".to_owned(),
                scale => format!("with at most {scale} decimals"),
            };
            push_sentence(&mut about, &format!("An exact decimal number {places}."));
        }
        StorageClass::Moment if purpose.is_write() => {
            push_sentence(&mut about, "At most 6 decimals of a second; kept in UTC.");
        }
        _ => {}
    }
    let has_text_bounds = matches!(
        rules.min.as_ref().or(rules.max.as_ref()),
        Some(Value::Text(_) | Value::Moment(_) | Value::Decimal(_))
    );
    if has_text_bounds {
        let text = |value: &Value| json::value_to_text(value).trim_matches('"').to_owned();
        let bounds = match (&rules.min, &rules.max) {
            (Some(min), Some(max)) => format!("From {} to {}.", text(min), text(max)),
            (Some(min), None) => format!("At least {}.", text(min)),
            (None, Some(max)) => format!("At most {}.", text(max)),
            (None, None) => String::new(),
        };
        push_sentence(&mut about, &bounds);
    }
    if let Some(own) = &rules.pattern
        && pattern::to_ecma(own.as_str()).is_none()
    {
        push_sentence(&mut about, &format!("Matches the regular expression `{own}`."));
    }
    if field.fixed && purpose != SchemaPurpose::Create {
        push_sentence(&mut about, "Cannot be changed.");
    }
    if field.secret && field.nullable {
        push_sentence(&mut about, "Null asks the server for a new one.");
    }
    if let (Some(source), SchemaPurpose::Create) = (&field.default_from, purpose) {
        let made = match source {
            DefaultSource::Now => "the time of creation".to_owned(),
            DefaultSource::User => {
                "the name of the caller, or nothing for a caller without a name".to_owned()
            }
            DefaultSource::UserField { name, .. } => {
                format!("the `{name}` of the caller, or nothing for a caller without one")
            }
            DefaultSource::Uuid => "a random UUID".to_owned(),
        };
        push_sentence(&mut about, &format!("If it is left out: {made}."));
    }
    let is_kept = field.secret || field.default_from.is_some();
    if is_kept && purpose == SchemaPurpose::Replace {
        push_sentence(&mut about, "Keeps its value if it is left out.");
    }
    about
}

/// `Deprecated since 2026-01-01, goes away on 2027-01-01; use name.`
pub fn deprecation_sentence(deprecated: &Deprecated, successor: Option<&str>) -> String {
    let mut text = format!("Deprecated since {}", deprecated.since);
    if let Some(sunset) = &deprecated.sunset {
        let _ = write!(text, ", goes away on {sunset}");
    }
    if let Some(successor) = successor {
        let _ = write!(text, "; use `{successor}`");
    }
    text.push('.');
    text
}

pub fn push_sentence(text: &mut String, sentence: &str) {
    if !text.is_empty() && !sentence.is_empty() {
        text.push(' ');
    }
    text.push_str(sentence);
}
