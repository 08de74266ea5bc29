//! One field of the file: its type, the keys that fit it, and what is inside it.
//!
//! A field stands in a resource, in an object, or is what a list is made of; each place takes fewer
//! keys than the one before. `computed` and `unique` look at the other fields and are read by
//! `resource`, when all are known.

use super::literal::{self, Against};
use super::names::Names;
use super::tree::{Entry, Table, check_name};
use super::{FIELDS_MAX, LEVELS_MAX, keys, lifecycle, rules, states};
use crate::model::report::{Mistakes, listed};
use crate::model::{Field, FieldType, OnDelete, Rules, Target, types};
use crate::value::Value;

/// Where a field stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Place {
    Resource,
    Object,
    /// What a list is made of.
    Element,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a, 't> {
    pub(super) names: &'a Names<'t>,
    pub(super) place: Place,
    /// Somewhere around it is a list.
    pub(super) in_list: bool,
    pub(super) level: usize,
}

/// What types are called elsewhere.
const SYNONYMS: &[(&str, &str)] = &[
    ("array", "list"),
    ("bool", "boolean"),
    ("currency", "decimal"),
    ("datetime", "timestamp"),
    ("dict", "object"),
    ("double", "number"),
    ("enum", "text` with `one_of"),
    ("float", "number"),
    ("int", "integer"),
    ("map", "object"),
    ("money", "decimal"),
    ("reference", "ref"),
    ("string", "text"),
    ("time", "timestamp"),
    ("uri", "url"),
];

/// The fields of a `fields` table, and the names of those that have mistakes.
pub(super) fn read_all<'t>(
    entry: &Entry<'t>,
    context: Context<'_, 't>,
    mistakes: &mut Mistakes,
) -> (Vec<Field>, Vec<&'t str>) {
    let Some(table) = entry.table(mistakes) else { return Default::default() };
    let entries = table.entries();
    if entries.is_empty() && context.place != Place::Resource {
        let help = "name at least one, such as fields = { street = { type = \"text\" } }";
        mistakes.add_with(entry.span(), "an object without fields holds nothing", help);
    }
    if entries.len() > FIELDS_MAX {
        mistakes.add(
            entry.key_span.clone(),
            format!("expected at most {FIELDS_MAX} fields, got {}", entries.len()),
        );
        return (Vec::new(), entries.iter().map(|entry| entry.key).collect());
    }
    let siblings: Vec<&str> = entries.iter().map(|entry| entry.key).collect();
    let (mut fields, mut broken) = (Vec::new(), Vec::new());
    for entry in entries {
        check_name("field", entry.key, entry.key_span.clone(), mistakes);
        match read(entry, context, mistakes) {
            Some((mut field, table)) => {
                field.deprecated =
                    lifecycle::deprecated(&table, "field", entry.key, &siblings, mistakes);
                field.renamed_from = lifecycle::renamed_from(&table, "field", &siblings, mistakes);
                fields.push(field);
            }
            None => broken.push(entry.key),
        }
    }
    (fields, broken)
}

fn read<'t>(
    entry: &Entry<'t>,
    context: Context<'_, 't>,
    mistakes: &mut Mistakes,
) -> Option<(Field, Table<'t>)> {
    let Some(table) = entry.node.get_ref().as_table().map(Table::new) else {
        let help = format!("say its type: {} = {{ type = \"text\" }}", entry.key);
        mistakes.add_with(
            entry.span(),
            format!("`{}` expected a table, got {}", entry.key, super::tree::kind_of(entry.node)),
            help,
        );
        return None;
    };
    if context.level > LEVELS_MAX {
        mistakes.add(
            entry.key_span.clone(),
            format!("expected at most {LEVELS_MAX} lists and objects inside one another"),
        );
        return None;
    }
    let kind = kind(entry, &table, context.place, mistakes)?;
    check_keys(&table, kind, context, mistakes);
    if !stands(context.place, kind) {
        let span = table.find("type").map_or(entry.key_span.clone(), Entry::span);
        let message = format!("a `{}` can only be a field of the resource itself", kind.name());
        let help = match kind.name() {
            "ref" => {
                "use `uuid` or `integer` here: the id is kept, but nobody checks that the item exists"
            }
            _ => "use `text` with `one_of` here",
        };
        mistakes.add_with(span, message, help);
        return None;
    }
    let mut field = empty(entry.key, kind);
    field.required = table.flag("required", mistakes).unwrap_or_default();
    field.nullable = table.flag("nullable", mistakes).unwrap_or_default();
    field.filter = table.flag("filter", mistakes).unwrap_or_default();
    field.search = table.flag("search", mistakes).unwrap_or_default();
    contents(&mut field, entry, &table, context, mistakes);
    rules::read(&mut field, &table, mistakes);
    default(&mut field, &table, mistakes);
    Some((field, table))
}

fn empty(name: &str, kind: &'static dyn FieldType) -> Field {
    Field {
        name: name.into(),
        kind,
        required: false,
        nullable: false,
        filter: false,
        search: false,
        default: None,
        computed: None,
        rules: Rules::default(),
        deprecated: None,
        renamed_from: None,
    }
}

fn kind(
    entry: &Entry<'_>,
    table: &Table<'_>,
    place: Place,
    mistakes: &mut Mistakes,
) -> Option<&'static dyn FieldType> {
    let Some(name) = table.find("type") else {
        if place == Place::Element && table.find("fields").is_some() {
            return types::find("object");
        }
        let all: Vec<&str> = types::ALL.iter().map(|kind| kind.name()).collect();
        let message = format!("`{}` has no `type`", entry.key);
        mistakes.add_with(entry.key_span.clone(), message, format!("types are {}", listed(&all)));
        return None;
    };
    let name = name.text(mistakes)?;
    let kind = types::find(name.value);
    if kind.is_none() {
        let message = format!("unknown type {:?}", name.value);
        match SYNONYMS.iter().find(|(synonym, _)| name.value.eq_ignore_ascii_case(synonym)) {
            Some((_, meant)) => {
                mistakes.add_with(name.span, message, format!("here it is called `{meant}`"));
            }
            None => mistakes.add_unknown(
                name.span,
                message,
                name.value,
                types::ALL.iter().map(|kind| kind.name()),
            ),
        }
    }
    kind
}

fn check_keys(
    table: &Table<'_>,
    kind: &'static dyn FieldType,
    context: Context<'_, '_>,
    mistakes: &mut Mistakes,
) {
    let computed = table.find("computed").is_some();
    let name = kind.name();
    for entry in table.entries() {
        let (key, span) = (entry.key, entry.key_span.clone());
        if !keys::FIELD_COMMON.contains(&key) && !kind.keys().contains(&key) {
            let known = keys::FIELD_COMMON.iter().chain(kind.keys()).copied();
            if name == "state" && key == "filter" {
                mistakes
                    .add(span, "a state can be filtered by without saying so: leave `filter` out");
            } else if keys::names(keys::FIELD).any(|known| known == key) {
                let help = format!(
                    "a field of type `{name}` takes {}",
                    listed(&known.collect::<Vec<_>>())
                );
                mistakes.add_with(
                    span,
                    format!("`{key}` does not fit a field of type `{name}`"),
                    help,
                );
            } else {
                let message =
                    format!("unknown key `{key}`: a field of type `{name}` has no such key");
                mistakes.add_unknown(span, message, key, known);
            }
        } else if let Some((message, help)) = refusal(key, name, computed, context) {
            mistakes.add_with(span, format!("`{key}` {message}"), help);
        }
    }
}

/// Whether a field of a type takes a key where it stands; for the schema.
pub(in crate::model) fn takes(place: Place, kind: &'static dyn FieldType, key: &str) -> bool {
    let context = Context { names: &Names::default(), place, in_list: false, level: 0 };
    let known = keys::FIELD_COMMON.contains(&key) || kind.keys().contains(&key);
    known && refusal(key, kind.name(), false, context).is_none()
}

/// Whether a type can stand there.
pub(in crate::model) fn stands(place: Place, kind: &'static dyn FieldType) -> bool {
    place == Place::Resource || !matches!(kind.name(), "state" | "ref")
}

/// Why a key that fits the type does not fit here.
fn refusal(
    key: &str,
    kind: &str,
    computed: bool,
    context: Context<'_, '_>,
) -> Option<(&'static str, &'static str)> {
    match (context.place, key) {
        (
            Place::Element,
            "required" | "nullable" | "default" | "deprecated" | "renamed_from" | "unique"
            | "filter" | "search",
        ) => Some((
            "says nothing about an element of a list",
            "elements are always there and never null; take it out",
        )),
        (Place::Element | Place::Object, "computed") => Some((
            "works on fields of the resource itself",
            "compute it there, with `sum` where a list is involved",
        )),
        (Place::Object, "unique" | "search" | "renamed_from") => Some((
            "works on fields of the resource itself",
            "move the field out of the object, or take this out",
        )),
        (Place::Object, "filter") if context.in_list => Some((
            "cannot reach into a list",
            "only fields of the resource and of objects in it can be filtered",
        )),
        (_, "required" | "nullable" | "default") if kind == "state" => Some((
            "does not fit a state",
            "a state always has a value and begins with its `initial` one; take it out",
        )),
        (_, "default") if kind == "ref" => Some((
            "does not fit a ref",
            "ids are made by the server and not known beforehand; take it out",
        )),
        (_, "required" | "default" | "min" | "max" | "one_of") if computed => Some((
            "does not fit a computed field",
            "the server makes its value, nobody sends it; take it out",
        )),
        _ => None,
    }
}

/// What the field is made of: `scale`, `to`, `next`, `of`, `fields`.
fn contents<'t>(
    field: &mut Field,
    entry: &Entry<'t>,
    table: &Table<'t>,
    context: Context<'_, 't>,
    mistakes: &mut Mistakes,
) {
    let span = entry.key_span.clone();
    let inside = |place: Place, in_list: bool| Context {
        place,
        in_list: context.in_list || in_list,
        level: context.level + 1,
        ..context
    };
    match field.kind.name() {
        "decimal" => {
            let scale = table.find("scale").and_then(|entry| entry.count(0..10, mistakes));
            field.rules.scale = scale.and_then(|scale| u8::try_from(scale).ok()).unwrap_or(2);
        }
        "ref" => field.rules.to = target(entry, table, context.names, mistakes),
        "state" => {
            field.filter = true;
            field.rules.states = states::read(entry, table, mistakes);
            field.default = field.rules.states.as_ref().map(|states| Value::text(&states.initial));
        }
        "list" => match table.find("of") {
            Some(of) => {
                field.rules.of = read(of, inside(Place::Element, true), mistakes)
                    .map(|(field, _)| Box::new(field));
            }
            None => mistakes.add_with(
                span,
                "a list needs `of`",
                "say what it is made of: of = { type = \"text\" }",
            ),
        },
        "object" => match table.find("fields") {
            Some(fields) => {
                field.rules.fields = read_all(fields, inside(Place::Object, false), mistakes).0;
            }
            None => mistakes.add_with(
                span,
                "an object needs `fields`",
                "say what it is made of: fields = { street = { type = \"text\" } }",
            ),
        },
        _ => {}
    }
}

fn target(
    entry: &Entry<'_>,
    table: &Table<'_>,
    names: &Names<'_>,
    mistakes: &mut Mistakes,
) -> Option<Target> {
    let on_delete = on_delete(table, mistakes);
    let Some(to) = table.find("to") else {
        mistakes.add_with(
            entry.key_span.clone(),
            "a ref needs `to`",
            "name the resource that it refers to: to = \"customer\"",
        );
        return None;
    };
    let to = to.text(mistakes)?;
    let Some((resource, named)) = names.find(to.value) else {
        mistakes.add_unknown(
            to.span,
            format!("there is no resource `{}`", to.value),
            to.value,
            names.all(),
        );
        return None;
    };
    Some(Target { resource, id: named.id, on_delete })
}

/// `restrict` unless said.
pub(super) fn on_delete(table: &Table<'_>, mistakes: &mut Mistakes) -> OnDelete {
    match table.choice("on_delete", keys::ON_DELETE, mistakes) {
        Some("cascade") => OnDelete::Cascade,
        _ => OnDelete::Restrict,
    }
}

fn default(field: &mut Field, table: &Table<'_>, mistakes: &mut Mistakes) {
    let Some(entry) = table.find("default") else { return };
    // A state has its initial one; a list or object with mistakes inside cannot judge a value.
    let whole = match field.kind.name() {
        "state" | "ref" => false,
        "list" => field.rules.of.is_some(),
        "object" => !field.rules.fields.is_empty(),
        _ => true,
    };
    if !whole {
        return;
    }
    field.default = literal::read(field, entry, Against::Rules, mistakes);
    if field.required && table.find("computed").is_none() {
        let help = "take out `required` to let clients leave the field out, or take out `default`";
        mistakes.add_with(
            entry.key_span.clone(),
            "a required field is always sent, so its default would never be used",
            help,
        );
    }
}
