//! One field of the model file: its type, its contents, its default.
//!
//! `field_keys` checks which keys are allowed. `computed` and `unique` depend on the other fields, so
//! `resource` reads them when all fields are known.

use super::field_keys::{self, FieldPosition};
use super::literal::{self, LiteralChecks};
use super::resource_names::ResourceNames;
use super::toml_tree::{TomlEntry, TomlTable, check_name};
use super::{FIELDS_MAX, LEVELS_MAX, deprecation, keys, rules, states};
use crate::model::report::{Mistakes, join_with_and};
use crate::model::{Field, FieldType, OnDelete, ReferenceTarget, types};
use crate::value::Value;
use toml::de::DeValue;

#[derive(Debug, Clone, Copy)]
pub struct FieldContext<'a, 't> {
    pub names: &'a ResourceNames<'t>,
    pub place: FieldPosition,
    pub level: usize,
}

/// Reads a `fields` table; also returns the names of fields with mistakes.
pub fn read_all<'t>(
    entry: &TomlEntry<'t>,
    context: FieldContext<'_, 't>,
    mistakes: &mut Mistakes,
) -> (Vec<Field>, Vec<&'t str>) {
    let Some(table) = entry.table(mistakes) else { return Default::default() };
    let entries = table.entries();
    if entries.is_empty() && context.place != FieldPosition::Resource {
        let help = "name at least one, such as fields = { street = { type = \"text\" } }";
        mistakes.add_with_help(entry.span(), "an object without fields holds nothing", help);
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
                    deprecation::read_deprecated(&table, "field", entry.key, &siblings, mistakes);
                fields.push(field);
            }
            None => broken.push(entry.key),
        }
    }
    (fields, broken)
}

fn read<'t>(
    entry: &TomlEntry<'t>,
    context: FieldContext<'_, 't>,
    mistakes: &mut Mistakes,
) -> Option<(Field, TomlTable<'t>)> {
    let Some(table) = entry.node.get_ref().as_table().map(TomlTable::new) else {
        let help = format!("say its type: {} = {{ type = \"text\" }}", entry.key);
        mistakes.add_with_help(
            entry.span(),
            format!(
                "`{}` expected a table, got {}",
                entry.key,
                super::toml_tree::type_name(entry.node)
            ),
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
    let Some(kind) = read_type(entry, &table, context.place, mistakes) else {
        field_keys::check_without_type(&table, mistakes);
        return None;
    };
    field_keys::check(&table, kind, context.place, mistakes);
    if let Some(help) =
        kind.replacement_when_nested.filter(|_| !field_keys::is_type_allowed(context.place, kind))
    {
        let span = table.find("type").map_or(entry.key_span.clone(), TomlEntry::span);
        let message = format!("a `{}` can only be a field of the resource itself", kind.name);
        mistakes.add_with_help(span, message, help);
        return None;
    }
    let mut field = Field::new(entry.key, kind);
    field.required = table.flag("required", mistakes).unwrap_or_default();
    field.nullable = table.flag("nullable", mistakes).unwrap_or_default();
    field.filter = table.flag("filter", mistakes).unwrap_or_default();
    let before = mistakes.count();
    read_contents(&mut field, entry, &table, context, mistakes);
    let whole = mistakes.count() == before;
    rules::read(&mut field, &table, mistakes);
    read_default(&mut field, &table, whole, mistakes);
    Some((field, table))
}

fn read_type(
    entry: &TomlEntry<'_>,
    table: &TomlTable<'_>,
    place: FieldPosition,
    mistakes: &mut Mistakes,
) -> Option<&'static FieldType> {
    let Some(name) = table.find("type") else {
        let implied =
            |kind: &&&FieldType| kind.implying_key.is_some_and(|key| table.find(key).is_some());
        if let Some(kind) =
            types::ALL.iter().find(implied).filter(|_| place == FieldPosition::Element)
        {
            return Some(*kind);
        }
        let all: Vec<&str> = types::ALL.iter().map(|kind| kind.name).collect();
        let message = format!("`{}` has no `type`", entry.key);
        mistakes.add_with_help(
            entry.key_span.clone(),
            message,
            format!("types are {}", join_with_and(&all)),
        );
        return None;
    };
    let name = name.text(mistakes)?;
    let kind = types::find(name.value);
    if kind.is_none() {
        let message = format!("unknown type {:?}", name.value);
        match find_synonym(name.value) {
            Some(meant) => {
                mistakes.add_with_help(name.span, message, format!("here it is called `{meant}`"));
            }
            None => mistakes.add_unknown(
                name.span,
                message,
                name.value,
                types::ALL.iter().map(|kind| kind.name),
            ),
        }
    }
    kind
}

/// The type that a name from another system stands for.
fn find_synonym(word: &str) -> Option<&'static str> {
    let is = |synonym: &&str| word.eq_ignore_ascii_case(synonym);
    if is(&"enum") {
        return Some("text` with `one_of");
    }
    types::ALL.iter().find(|kind| kind.synonyms.iter().any(is)).map(|kind| kind.name)
}

/// Reads the parts of the field by key and not by type: the type decides which keys it allows.
fn read_contents<'t>(
    field: &mut Field,
    entry: &TomlEntry<'t>,
    table: &TomlTable<'t>,
    context: FieldContext<'_, 't>,
    mistakes: &mut Mistakes,
) {
    for need in field.kind.mandatory_keys.iter().filter(|need| table.find(need.key).is_none()) {
        mistakes.add_with_help(entry.key_span.clone(), need.missing, need.help);
    }
    let keys = field.kind.keys;
    let own = |key: &str| table.find(key).filter(|_| keys.contains(&key));
    let inside = |place: FieldPosition| FieldContext { place, level: context.level + 1, ..context };
    if keys.contains(&"scale") {
        let scale = own("scale").and_then(|entry| entry.count(0..10, mistakes));
        field.rules.scale = scale.and_then(|scale| u8::try_from(scale).ok()).unwrap_or(2);
    }
    if keys.contains(&"to") {
        field.rules.reference = read_target(table, context.names, mistakes);
    }
    if keys.contains(&"next")
        && let Some(states) = states::read(table, mistakes)
    {
        field.filter = true;
        field.default = Some(Value::text(&states.initial));
        field.rules.states = Some(states);
    }
    if let Some(of) = own("of") {
        let element = read(of, inside(FieldPosition::Element), mistakes);
        field.rules.element = element.map(|(element, _)| Box::new(element));
    }
    if let Some(fields) = own("fields") {
        field.rules.fields = read_all(fields, inside(context.place.inside_object()), mistakes).0;
    }
}

fn read_target(
    table: &TomlTable<'_>,
    names: &ResourceNames<'_>,
    mistakes: &mut Mistakes,
) -> Option<ReferenceTarget> {
    let on_delete = read_on_delete(table, mistakes);
    let to = table.text("to", mistakes)?;
    let Some((resource, named)) = names.find(to.value) else {
        mistakes.add_unknown(
            to.span,
            format!("there is no resource `{}`", to.value),
            to.value,
            names.all(),
        );
        return None;
    };
    Some(ReferenceTarget { resource, id: named.id, on_delete })
}

/// Reads `on_delete`; the default is `restrict`.
pub fn read_on_delete(table: &TomlTable<'_>, mistakes: &mut Mistakes) -> OnDelete {
    table.choice("on_delete", keys::ON_DELETE, mistakes).unwrap_or(OnDelete::Restrict)
}

/// `whole`: the field itself has no mistakes, so that it can validate a default.
fn read_default(field: &mut Field, table: &TomlTable<'_>, whole: bool, mistakes: &mut Mistakes) {
    let takes = (field.kind.key_refusal)("default").is_none();
    let Some(entry) = table.find("default").filter(|_| takes) else { return };
    if let DeValue::String(text) = entry.node.get_ref()
        && is_variable(text)
    {
        let help = "a default is a plain value; leave it out, and let clients send the value";
        mistakes.add_reserved(entry.span(), text, help);
    }
    if whole {
        field.default = literal::read(field, entry, LiteralChecks::Rules, mistakes);
    }
    if field.required && table.find("computed").is_none() {
        let help = "take out `required` to let clients leave the field out, or take out `default`";
        mistakes.add_with_help(
            entry.key_span.clone(),
            "a required field is always sent, so its default would never be used",
            help,
        );
    }
}

/// `$user`, `$now`: an author who writes this as a default does not mean the text.
fn is_variable(text: &str) -> bool {
    let name = text.strip_prefix('$').unwrap_or_default();
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
