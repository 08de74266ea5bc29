//! Attributes: the values that a list can be filtered and sorted by, and their names in a query.
//!
//! Attributes are the fields that the model declares `filter = true`, and the id and timestamps that every
//! item has. A field that is hidden from the caller is unknown here, so that a message about it is the same
//! as one about an undeclared name.

use super::target::PathForm;
use crate::fault::{self, OrBug};
use crate::json;
use crate::model::derivation::Derivation;
use crate::model::types::parse_canonical;
use crate::model::{Field, Resource, SORTED_CHARS_MAX, StorageClass, TextOrder, nearest};
use crate::value::{Item, Value, truncate_for_message};

/// An attribute of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    Id,
    CreatedAt,
    UpdatedAt,
    /// The id of an ancestor, by its index in `Resource::ancestor_keys`; of items in flat collections.
    Ancestor(usize),
    /// The index of a field of the resource, and the names of nested fields inside objects.
    Field(usize, Vec<Box<str>>),
}

/// One key of a sort order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortKey {
    pub attribute: Attribute,
    pub is_descending: bool,
}

impl Attribute {
    /// The declared field, after following the nested names.
    pub fn field<'a>(&self, resource: &'a Resource) -> Option<&'a Field> {
        let Self::Field(at, inner) = self else { return None };
        resource.fields.get(*at)?.inner(inner)
    }

    /// Its name in a query.
    pub fn name(&self, resource: &Resource) -> String {
        match self {
            Self::Id => "id".to_owned(),
            Self::CreatedAt => "created_at".to_owned(),
            Self::UpdatedAt => "updated_at".to_owned(),
            Self::Ancestor(at) => {
                resource.ancestor_keys.get(*at).map_or_else(String::new, |key| key.name.to_string())
            }
            Self::Field(at, inner) => {
                let first = resource.fields.get(*at).map(|field| &*field.name);
                let names: Vec<&str> =
                    first.into_iter().chain(inner.iter().map(|n| &**n)).collect();
                names.join(".")
            }
        }
    }

    /// Whether items may have no value for it.
    pub fn can_be_null(&self, resource: &Resource) -> bool {
        match self {
            Self::Id | Self::CreatedAt | Self::UpdatedAt | Self::Ancestor(_) => false,
            Self::Field(_, inner) => !self.field(resource).is_some_and(|field| {
                let is_there = field.required && !field.nullable || field.rules.states.is_some();
                inner.is_empty() && is_there
            }),
        }
    }

    /// Whether texts are compared as a whole, and not only by their prefix.
    pub fn is_sorted_whole(&self, resource: &Resource) -> bool {
        self.field(resource).is_none_or(Field::is_sorted_whole)
    }

    /// Whether items are sorted by a text that is derived from its own.
    pub fn has_sort_key(&self, resource: &Resource) -> bool {
        self.field(resource).is_some_and(|field| field.order == TextOrder::Unicode)
    }

    /// The value that determines the item's position in a sorted list.
    pub fn sort_value(&self, resource: &Resource, item: &Item) -> Value {
        let value = match self {
            Self::Id => Value::from(item.id),
            Self::CreatedAt => Value::Moment(item.created_at),
            Self::UpdatedAt => Value::Moment(item.updated_at),
            Self::Ancestor(_) => fault::bug("no list is sorted by the id of an ancestor"),
            Self::Field(at, inner) => {
                let found = resource.fields.get(*at).zip(item.values.get(*at));
                let (field, value) = found.or_bug("an item has a value for each field");
                match inner.is_empty() {
                    true => value.clone(),
                    false => nested_value(parse_canonical(field, value.clone()), inner),
                }
            }
        };
        match value {
            Value::Text(text) if self.has_sort_key(resource) => {
                Value::text(&Derivation::SortKey.derive(&text))
            }
            Value::Text(text) if !self.is_sorted_whole(resource) => Value::text(sort_prefix(&text)),
            Value::List(_) | Value::Object(_) | Value::Json(_) | Value::ClearText(_) => Value::Null,
            value => value,
        }
    }
}

/// The value of a field inside an object, which is parsed.
pub fn nested_value(value: Value, names: &[Box<str>]) -> Value {
    names.iter().fold(value, |value, name| match value {
        Value::Object(members) => {
            let mut members = members.into_iter();
            members.find(|(key, _)| key == name).map_or(Value::Null, |(_, value)| value)
        }
        _ => Value::Null,
    })
}

/// The prefix of a long text that it is sorted by.
pub fn sort_prefix(text: &str) -> &str {
    match text.char_indices().nth(SORTED_CHARS_MAX) {
        Some((end, _)) => text.split_at(end).0,
        None => text,
    }
}

/// Whether a text is so long that an index may have the same prefix of it and of another text.
pub fn is_longer_than_index(text: &str) -> bool {
    text.chars().nth(SORTED_CHARS_MAX - 1).is_some()
}

/// A resource with the fields that the caller can see.
#[derive(Debug, Clone, Copy)]
pub struct VisibleResource<'a> {
    pub resource: &'a Resource,
    /// Indices of the hidden fields.
    pub hidden: &'a [usize],
    /// The items of a flat collection have the ids of their ancestors too.
    pub form: PathForm,
}

/// Why a name cannot be used in a query.
#[derive(Debug)]
pub enum UnusableName {
    Unknown,
    /// The name is declared, but cannot be used for this reason.
    Declared(String),
}

impl<'a> VisibleResource<'a> {
    /// The visible fields of the resource, with their indices.
    pub fn fields(&self) -> impl Iterator<Item = (usize, &'a Field)> {
        let hidden = self.hidden;
        let fields = self.resource.fields.iter().enumerate();
        fields.filter(move |(at, field)| !field.secret && !hidden.contains(at))
    }

    /// The attribute that a list can be filtered by.
    pub fn find_filter(&self, name: &str) -> Result<Attribute, UnusableName> {
        match self.ancestor_names().position(|key| key == name) {
            Some(at) => Ok(Attribute::Ancestor(at)),
            None => self.find_attribute(name),
        }
    }

    /// The attribute that a list can be sorted by.
    pub fn find(&self, name: &str) -> Result<Attribute, UnusableName> {
        let found = self.find_attribute(name)?;
        match found.field(self.resource).is_some_and(|field| field.rules.element.is_some()) {
            true => Err(UnusableName::Declared("a list cannot be sorted by".to_owned())),
            false => Ok(found),
        }
    }

    /// The names of the ancestors' ids, the parent first, where a list can be filtered by them.
    fn ancestor_names(&self) -> impl Iterator<Item = &'a str> {
        let keys = match self.form {
            PathForm::Nested => &[][..],
            PathForm::Flat => &self.resource.ancestor_keys,
        };
        keys.iter().map(|key| &*key.name)
    }

    fn find_attribute(&self, name: &str) -> Result<Attribute, UnusableName> {
        match name {
            "id" => return Ok(Attribute::Id),
            "created_at" => return Ok(Attribute::CreatedAt),
            "updated_at" => return Ok(Attribute::UpdatedAt),
            _ => {}
        }
        let is_parent = Some(name) == self.resource.parent_key.as_deref();
        if name == "version" || is_parent && self.form == PathForm::Nested {
            return Err(UnusableName::Declared("cannot be filtered or sorted by".to_owned()));
        }
        if self.ancestor_names().any(|key| key == name) {
            return Err(UnusableName::Declared("cannot be sorted by".to_owned()));
        }
        let mut names = name.split('.');
        let first = names.next().or_bug("a split yields at least one part");
        let (at, mut field) =
            self.fields().find(|(_, field)| *field.name == *first).ok_or(UnusableName::Unknown)?;
        let mut inner = Vec::new();
        for name in names {
            if field.rules.fields.is_empty() && field.storage_class() == StorageClass::Json {
                return Err(UnusableName::Declared(format!(
                    "cannot reach into a {}",
                    field.kind.name
                )));
            }
            let mut fields = field.rules.fields.iter();
            field = fields.find(|inner| *inner.name == *name).ok_or(UnusableName::Unknown)?;
            inner.push(field.name.clone());
        }
        if field.filter {
            Ok(Attribute::Field(at, inner))
        } else {
            Err(self.not_filterable(field, name))
        }
    }

    fn not_filterable(&self, field: &Field, name: &str) -> UnusableName {
        UnusableName::Declared(if !field.rules.fields.is_empty() {
            let mut names = self.filter_names();
            let inside = names.find(|known| known.starts_with(&format!("{name}.")));
            let such_as = inside.map_or_else(String::new, |name| format!(", such as {name}"));
            format!("an object cannot be filtered or sorted by, but a field in it can{such_as}")
        } else if !field.kind.keys.contains(&"filter") || self.resource.is_builtin {
            format!("a field of type {} cannot be filtered or sorted by", field.kind.name)
        } else {
            "the field is not declared filter = true, so it cannot be filtered or sorted by"
                .to_owned()
        })
    }

    /// All names that can be filtered by.
    pub fn filter_names(&self) -> impl Iterator<Item = String> {
        self.ancestor_names().map(str::to_owned).chain(self.list_names(|_| true))
    }

    /// All names that can be sorted by.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.list_names(|field| field.rules.element.is_none())
    }

    fn list_names(&self, is_listed: fn(&Field) -> bool) -> impl Iterator<Item = String> + use<> {
        let mut all = ["id", "created_at", "updated_at"].map(str::to_owned).to_vec();
        for (_, field) in self.fields() {
            push_names(&mut all, "", field, is_listed);
        }
        all.into_iter()
    }

    /// The message for an unknown name, with the nearest known one as a suggestion.
    pub fn unknown_name_message(&self, name: &str, what: &str) -> String {
        let names: Vec<String> = self.filter_names().collect();
        no_such_message(name, what, names.iter().map(String::as_str))
    }

    /// The message for an unknown query parameter, with a list of the known ones.
    pub fn unknown_parameter_message(&self, name: &str, controls: &[&str]) -> String {
        // A field with the name of a control parameter can only be named with an operator.
        let names = self.filter_names().filter(|name| !controls.contains(&&**name));
        let names: Vec<String> = names.collect();
        let all: Vec<&str> =
            controls.iter().copied().chain(names.iter().map(String::as_str)).collect();
        no_such_parameter_message(name, &all)
    }
}

/// The maximum number of listed names; a longer list is cut.
const LISTED_NAMES_MAX: usize = 30;

/// The names of our control parameters in other APIs.
const FOREIGN_NAMES: [(&str, &str); 16] = [
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

/// The message for an unknown query parameter, with a suggestion and the list of known ones.
pub fn no_such_parameter_message(name: &str, known: &[&str]) -> String {
    let alias = FOREIGN_NAMES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
    let alias = alias.map(|(_, control)| *control).filter(|control| known.contains(control));
    let near = alias.or_else(|| nearest(name, known.iter().copied()));
    let near = near.map_or_else(String::new, |near| {
        format!("; did you mean {}?", json::quote_for_message(near))
    });
    let listed = match known {
        [] => "none is taken".to_owned(),
        _ => {
            let names: Vec<&str> = known.iter().take(LISTED_NAMES_MAX).copied().collect();
            let more = match known.len() - names.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("there are {}{more}", names.join(", "))
        }
    };
    format!("{}: no such parameter here ({listed}){near}", truncate_for_message(name))
}

/// The message that a name does not exist, with a suggestion.
pub fn no_such_message<'c>(
    name: &str,
    what: &str,
    known: impl IntoIterator<Item = &'c str>,
) -> String {
    let near = nearest(name, known);
    let near = near.map(|near| format!("; did you mean {}?", json::quote_for_message(near)));
    format!("{}: no such {what} here{}", truncate_for_message(name), near.unwrap_or_default())
}

fn push_names(all: &mut Vec<String>, before: &str, field: &Field, is_listed: fn(&Field) -> bool) {
    let name = format!("{before}{}", field.name);
    for inner in &field.rules.fields {
        push_names(all, &format!("{name}."), inner, is_listed);
    }
    if field.filter && is_listed(field) {
        all.push(name);
    }
}
