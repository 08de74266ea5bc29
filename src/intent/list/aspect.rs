//! What of an item a list can be filtered and sorted by, and how a query names it.
//!
//! Only fields that the model declares `filter = true` can be, and what every item has of itself. The one
//! surprising thing: a field that the caller may not see is not known here, so that nothing said about it
//! differs from what is said about a name that nobody declared.

use crate::json;
use crate::model::types::unseal;
use crate::model::{Class, Field, Resource, SORTED_CHARS_MAX, nearest};
use crate::value::{Id, Item, Value, cut};

/// What of an item is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aspect {
    Id,
    CreatedAt,
    UpdatedAt,
    /// A field of the resource by its index, and the names of fields inside of objects on the way.
    Field(usize, Vec<Box<str>>),
}

impl Aspect {
    /// The field that is meant, at the end of the way.
    pub fn field<'a>(&self, resource: &'a Resource) -> Option<&'a Field> {
        let Self::Field(at, inner) = self else { return None };
        let column = resource.fields.get(*at)?;
        inner.iter().try_fold(column, |field, name| {
            field.rules.fields.iter().find(|inner| inner.name == *name)
        })
    }

    /// How a query names it.
    pub fn name(&self, resource: &Resource) -> String {
        match self {
            Self::Id => "id".to_owned(),
            Self::CreatedAt => "created_at".to_owned(),
            Self::UpdatedAt => "updated_at".to_owned(),
            Self::Field(at, inner) => {
                let first = resource.fields.get(*at).map(|field| &*field.name);
                let names: Vec<&str> =
                    first.into_iter().chain(inner.iter().map(|n| &**n)).collect();
                names.join(".")
            }
        }
    }

    /// Whether some items may have no value here.
    pub fn may_be_absent(&self, resource: &Resource) -> bool {
        match self {
            Self::Id | Self::CreatedAt | Self::UpdatedAt => false,
            Self::Field(_, inner) => !self.field(resource).is_some_and(|field| {
                let is_there = field.required && !field.nullable || field.rules.states.is_some();
                inner.is_empty() && is_there
            }),
        }
    }

    /// Whether its texts count with all of their characters.
    pub fn is_short(&self, resource: &Resource) -> bool {
        self.field(resource).is_none_or(Field::is_short)
    }

    /// By what an item has its place in a list.
    pub fn value(&self, resource: &Resource, item: &Item) -> Value {
        let value = match self {
            Self::Id => match item.id {
                Id::Integer(number) => Value::Integer(number),
                id @ Id::Uuid(_) => Value::text(&id.to_string()),
            },
            Self::CreatedAt => Value::Moment(item.created_at),
            Self::UpdatedAt => Value::Moment(item.updated_at),
            Self::Field(at, inner) => {
                let found = resource.fields.get(*at).zip(item.values.get(*at));
                let Some((field, value)) = found else { return Value::Null };
                match inner.is_empty() {
                    true => value.clone(),
                    false => inside(unseal(field, value.clone()), inner),
                }
            }
        };
        match value {
            Value::Text(text) if !self.is_short(resource) => Value::text(start(&text)),
            Value::List(_) | Value::Object(_) | Value::Json(_) | Value::Clear(_) => Value::Null,
            value => value,
        }
    }
}

fn inside(value: Value, names: &[Box<str>]) -> Value {
    names.iter().fold(value, |value, name| match value {
        Value::Object(members) => {
            let mut members = members.into_iter();
            members.find(|(key, _)| key == name).map_or(Value::Null, |(_, value)| value)
        }
        _ => Value::Null,
    })
}

/// The part of a text by which it is sorted.
pub fn start(text: &str) -> &str {
    match text.char_indices().nth(SORTED_CHARS_MAX) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

/// A resource as a caller knows it.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub resource: &'a Resource,
    /// Field indices that are not shown.
    pub hidden: &'a [usize],
}

/// Why a name cannot be used.
#[derive(Debug)]
pub enum Unusable {
    Unknown,
    /// It is there, but for this.
    Declared(String),
}

impl<'a> Known<'a> {
    /// The fields of the resource that the caller knows, with their indices.
    pub fn fields(&self) -> impl Iterator<Item = (usize, &'a Field)> {
        let hidden = self.hidden;
        let fields = self.resource.fields.iter().enumerate();
        fields.filter(move |(at, field)| !field.secret && !hidden.contains(at))
    }

    pub fn find(&self, name: &str) -> Result<Aspect, Unusable> {
        match name {
            "id" => return Ok(Aspect::Id),
            "created_at" => return Ok(Aspect::CreatedAt),
            "updated_at" => return Ok(Aspect::UpdatedAt),
            _ => {}
        }
        if name == "version" || Some(name) == self.resource.parent_key.as_deref() {
            return Err(Unusable::Declared("cannot be filtered or sorted by".to_owned()));
        }
        let mut names = name.split('.');
        let first = names.next().unwrap_or_default();
        let (at, mut field) =
            self.fields().find(|(_, field)| *field.name == *first).ok_or(Unusable::Unknown)?;
        let mut inner = Vec::new();
        for name in names {
            if field.rules.fields.is_empty() && field.class() == Class::Json {
                return Err(Unusable::Declared(format!(
                    "cannot reach into a {}",
                    field.kind.name()
                )));
            }
            let mut fields = field.rules.fields.iter();
            field = fields.find(|inner| *inner.name == *name).ok_or(Unusable::Unknown)?;
            inner.push(field.name.clone());
        }
        if field.filter { Ok(Aspect::Field(at, inner)) } else { Err(self.unfiltered(field, name)) }
    }

    fn unfiltered(&self, field: &Field, name: &str) -> Unusable {
        Unusable::Declared(if !field.rules.fields.is_empty() {
            let mut names = self.names();
            let inside = names.find(|known| known.starts_with(&format!("{name}.")));
            let such_as = inside.map_or_else(String::new, |name| format!(", such as {name}"));
            format!("an object cannot be filtered or sorted by, but a field in it can{such_as}")
        } else if !field.kind.keys().contains(&"filter") || self.resource.is_own {
            format!("a field of type {} cannot be filtered or sorted by", field.kind.name())
        } else {
            "the field is not declared filter = true, so it cannot be filtered or sorted by"
                .to_owned()
        })
    }

    /// All names that can be filtered and sorted by.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let mut all = ["id", "created_at", "updated_at"].map(str::to_owned).to_vec();
        for (_, field) in self.fields() {
            push_names(&mut all, "", field);
        }
        all.into_iter()
    }

    /// What is wrong with a name that is not known, and the nearest among those that are.
    pub fn unknown(&self, name: &str, what: &str) -> String {
        let names: Vec<String> = self.names().collect();
        no_such(name, what, names.iter().map(String::as_str))
    }

    /// The same for a parameter, with all that there are.
    pub fn unknown_parameter(&self, name: &str, controls: &[&str]) -> String {
        // A field that is called like a control needs its operator to be meant.
        let names = self.names().filter(|name| !controls.contains(&&**name));
        let names: Vec<String> = names.collect();
        let all: Vec<&str> =
            controls.iter().copied().chain(names.iter().map(String::as_str)).collect();
        no_such_parameter(name, &all)
    }
}

/// More names than this are not read by anybody.
const LISTED_MAX: usize = 30;

/// What other interfaces call our controls.
const ALIASES: [(&str, &str); 16] = [
    ("page", "cursor"),
    ("offset", "cursor"),
    ("skip", "cursor"),
    ("start", "cursor"),
    ("after", "cursor"),
    ("page_token", "cursor"),
    ("per_page", "limit"),
    ("page_size", "limit"),
    ("pagesize", "limit"),
    ("size", "limit"),
    ("max", "limit"),
    ("order", "sort"),
    ("order_by", "sort"),
    ("orderby", "sort"),
    ("sort_by", "sort"),
    ("select", "fields"),
];

/// A parameter that stands for nothing here, what may be meant by it, and those that there are.
pub fn no_such_parameter(name: &str, known: &[&str]) -> String {
    let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
    let alias = alias.map(|(_, control)| *control).filter(|control| known.contains(control));
    let near = alias.or_else(|| nearest(name, known.iter().copied()));
    let near =
        near.map_or_else(String::new, |near| format!("; did you mean {}?", json::quoted(near)));
    let listed = match known {
        [] => "none is taken".to_owned(),
        _ => {
            let names: Vec<&str> = known.iter().take(LISTED_MAX).copied().collect();
            let more = match known.len() - names.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("there are {}{more}", names.join(", "))
        }
    };
    format!("{}: no such parameter here ({listed}){near}", cut(name))
}

/// `name` stands for nothing here, and what may be meant by it.
pub fn no_such<'c>(name: &str, what: &str, known: impl IntoIterator<Item = &'c str>) -> String {
    let near = nearest(name, known);
    let near = near.map(|near| format!("; did you mean {}?", json::quoted(near)));
    format!("{}: no such {what} here{}", cut(name), near.unwrap_or_default())
}

fn push_names(all: &mut Vec<String>, before: &str, field: &Field) {
    let name = format!("{before}{}", field.name);
    for inner in &field.rules.fields {
        push_names(all, &format!("{name}."), inner);
    }
    if field.filter {
        all.push(name);
    }
}
