//! One field of the model file: its type, its contents, its default.
//!
//! `field_keys` checks which keys are allowed. `computed` and `unique` depend on the other fields, so
//! `resource` reads them when all fields are known.

use super::field_keys::{self, FieldPosition};
use super::keys::{self, KeyForm};
use super::literal::{self, LiteralChecks};
use super::resource_names::{LEVELS_MAX, ResourceNames};
use super::toml_tree::{TomlEntry, TomlTable, type_name};
use super::{deprecation, renames, rules, states};
use crate::json::Json;
use crate::model::derivation::DERIVED_VERSION;
use crate::model::field::{
    DefaultSource, Field, FieldRules, FieldType, OnDelete, ReferenceTarget, StorageClass, TextOrder,
};
use crate::model::report::join_with_and;
use crate::model::types::{self, REFERENCES_MAX};
use crate::problem::FaultCollector;
use crate::value::Value;

const FIELDS_MAX: usize = 500;

#[derive(Debug, Clone, Copy)]
pub struct FieldContext<'a, 't> {
    pub names: &'a ResourceNames<'t>,
    /// The declared fields of users, which defaults may come from.
    pub user_fields: &'a [Field],
    pub position: FieldPosition,
    pub level: usize,
}

/// Reads a `fields` table; also returns the names of fields with mistakes.
pub fn read_all<'t>(
    entry: &TomlEntry<'t>,
    context: FieldContext<'_, 't>,
) -> (Vec<Field>, Vec<&'t str>) {
    let entries = entry.table().unwrap_or_default().entries;
    if entry.node.get_ref().is_table()
        && entries.is_empty()
        && context.position != FieldPosition::Resource
    {
        let help = "name at least one, such as fields = { street = { type = \"text\" } }";
        entry.refuse_with_help("an object without fields holds nothing", help);
    }
    let siblings: Vec<&str> = entries.iter().map(|entry| entry.key.value).collect();
    if entries.len() > FIELDS_MAX {
        entry.key.refuse(format!("expected at most {FIELDS_MAX} fields, got {}", entries.len()));
        return (Vec::new(), siblings);
    }
    let (mut fields, mut invalid) = (Vec::new(), Vec::new());
    for entry in &entries {
        entry.key.check_name("field");
        match read(entry, context) {
            Some((mut field, table)) => {
                field.deprecated = deprecation::read(&table, "field", entry.key.value, &siblings);
                let earlier =
                    fields.iter().filter_map(|field: &Field| field.renamed_from.as_deref());
                field.renamed_from = renames::read(&table, &siblings, earlier);
                fields.push(field);
            }
            None => invalid.push(entry.key.value),
        }
    }
    (fields, invalid)
}

fn read<'t>(
    entry: &TomlEntry<'t>,
    context: FieldContext<'_, 't>,
) -> Option<(Field, TomlTable<'t>)> {
    let (name, position) = (entry.key.value, context.position);
    if !entry.node.get_ref().is_table() {
        let message = format!("`{name}` expected a table, got {}", type_name(entry.node));
        entry.refuse_with_help(message, format!("say its type: {name} = {{ type = \"text\" }}"));
        return None;
    }
    if context.level > LEVELS_MAX {
        let message = format!("expected at most {LEVELS_MAX} lists and objects inside one another");
        entry.key.refuse(message);
        return None;
    }
    let table = entry.table()?;
    let Some(kind) = read_type(entry, &table, position) else {
        field_keys::check_without_type(&table);
        return None;
    };
    field_keys::check(&table, kind, position);
    if let Some(help) =
        kind.replacement_when_nested.filter(|_| !field_keys::is_type_allowed(position, kind))
    {
        let message = format!("a `{}` can only be a field of the resource itself", kind.name);
        table.find("type").unwrap_or(entry).refuse_with_help(message, help);
        return None;
    }
    let derived_version = table.count(field_keys::DERIVED_VERSION_KEY);
    // The rest sees only the keys that the type allows.
    let table = table.filter_keys(|key| field_keys::has_key(kind, key));
    let before = entry.mistake_count();
    // `of` is a field, whose reader says more about another form, and `on_delete` has the words of its type.
    table.filter_keys(|key| !["of", "on_delete"].contains(&key)).check_forms(&keys::FIELD);
    let mut field = Field::new(name, kind);
    field.required = table.flag("required").unwrap_or(false);
    field.nullable = table.flag("nullable").unwrap_or(false);
    field.filter = table.flag("filter").unwrap_or(false);
    field.is_matched = table.flag("match").unwrap_or(false);
    field.derived_version = derived_version.unwrap_or(DERIVED_VERSION);
    field.order = table.choice("order", keys::TEXT_ORDERS).unwrap_or(TextOrder::CodePoints);
    for (key, is_on) in [("match", field.is_matched), ("order", field.order == TextOrder::Unicode)]
    {
        if let Some(entry) = table.find(key).filter(|_| is_on && !field.filter) {
            let help = "add filter = true, or take it out";
            entry.key.refuse_with_help(format!("`{key}` needs `filter = true`"), help);
        }
    }
    read_contents(&mut field, entry, &table, context);
    let is_valid = entry.mistake_count() == before;
    rules::read(&mut field, &table);
    read_default(&mut field, &table, (is_valid, context));
    if let Some(entry) = table.find("fill").filter(|_| is_valid) {
        field.fill = literal::read(&field, entry, LiteralChecks::Rules);
    }
    Some((field, table))
}

fn read_type(
    entry: &TomlEntry<'_>,
    table: &TomlTable<'_>,
    position: FieldPosition,
) -> Option<&'static FieldType> {
    let names = || types::ALL.iter().map(|kind| kind.name);
    if table.find("type").is_none() {
        let is_implied =
            |kind: &&&FieldType| kind.implying_key.is_some_and(|key| table.find(key).is_some());
        let implied =
            types::ALL.iter().find(is_implied).filter(|_| position == FieldPosition::Element);
        if implied.is_none() {
            let help = format!("types are {}", join_with_and(&names().collect::<Vec<_>>()));
            entry.key.refuse_with_help(format!("`{}` has no `type`", entry.key.value), help);
        }
        return implied.copied();
    }
    let entry = table.find("type")?;
    entry.check(&KeyForm::Name);
    let text = entry.text()?;
    let kind = types::find(text.value);
    if kind.is_none() {
        let message = format!("unknown type {:?}", text.value);
        match find_synonym(text.value) {
            Some(meant) => text.refuse_with_help(message, format!("here it is called `{meant}`")),
            None => text.refuse_unknown(message, names()),
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

/// Reads the parts of the field by key and not by type: `table` has the keys that the type allows.
fn read_contents<'t>(
    field: &mut Field,
    entry: &TomlEntry<'t>,
    table: &TomlTable<'t>,
    context: FieldContext<'_, 't>,
) {
    for need in field.kind.mandatory_keys.iter().filter(|need| table.find(need.key).is_none()) {
        entry.key.refuse_with_help(need.missing, need.help);
    }
    let inside = |position| FieldContext { position, level: context.level + 1, ..context };
    let scale = table.count("scale").and_then(|scale| u8::try_from(scale).ok());
    field.rules.scale = if field.kind.keys.contains(&"scale") { scale.unwrap_or(2) } else { 0 };
    read_reference(field, table, context);
    if let Some(machine) = states::read(table, &context.names.roles) {
        field.filter = true;
        field.default = Some(Value::text(&machine.initial));
        field.rules.states = Some(machine);
    }
    if let Some(of) = table.find("of") {
        let element = read(of, inside(FieldPosition::Element));
        field.rules.element = element.map(|(element, _)| Box::new(element));
    }
    let element = field.rules.element.as_deref();
    if let Some(entry) = table.find("filter").filter(|_| {
        field.filter && element.is_some_and(|of| of.storage_class() == StorageClass::Json)
    }) {
        let help = "a list of texts, numbers or other single values can be filtered; take it out";
        entry.key.refuse_with_help("`filter` does not fit a list of lists or objects", help);
    }
    if let Some(fields) = table.find("fields") {
        field.rules.fields = read_all(fields, inside(context.position.inside_object())).0;
    }
}

/// Reads the target of a `ref`, or of the elements of `refs`.
fn read_reference(field: &mut Field, table: &TomlTable<'_>, context: FieldContext<'_, '_>) {
    let is_list = field.kind.name == types::REFERENCES.name;
    let (words, form): (_, KeyForm) = match is_list {
        true => (
            keys::REFERENCES_ON_DELETE,
            KeyForm::Choice(|| keys::words(keys::REFERENCES_ON_DELETE)),
        ),
        false => {
            (keys::REFERENCE_ON_DELETE, KeyForm::Choice(|| keys::words(keys::REFERENCE_ON_DELETE)))
        }
    };
    if let Some(entry) = table.find("on_delete") {
        entry.check(&form);
    }
    let on_delete = table.choice("on_delete", words).unwrap_or(OnDelete::Restrict);
    if let Some(entry) = table.find("on_delete").filter(|_| on_delete == OnDelete::Clear) {
        if !is_list && field.required {
            let help = "take out `required`, or say what else deleting the item does: \"restrict\" or \"cascade\"";
            entry.refuse_with_help("a required reference cannot be cleared", help);
        }
        if is_list && table.count("min_items").is_some_and(|count| count > 0) {
            let help =
                "take out `min_items`, or refuse to delete the items: on_delete = \"restrict\"";
            entry.refuse_with_help("removing references may leave fewer than `min_items`", help);
        }
    }
    let count = table.count("max_items").filter(|_| is_list);
    if let Some(entry) = table.find("max_items")
        && count.and_then(|count| usize::try_from(count).ok()) > Some(REFERENCES_MAX)
    {
        let message = format!("refs have at most {REFERENCES_MAX} ids");
        entry.refuse_with_help(message, "more of them are items of their own, with two refs each");
    }
    let target = table.text("to").and_then(|text| context.names.find(&text));
    let target =
        target.map(|(resource, header)| ReferenceTarget { resource, id: header.id, on_delete });
    match is_list {
        false => field.rules.reference = target,
        true => {
            let rules = FieldRules { reference: target, ..FieldRules::default() };
            let element = Field { rules, ..Field::new("", &types::REFERENCE) };
            field.rules.element = Some(Box::new(element));
            field.filter = true;
        }
    }
}

/// `is_valid`: the field itself has no mistakes, so that it can validate a default.
fn read_default(
    field: &mut Field,
    table: &TomlTable<'_>,
    (is_valid, context): (bool, FieldContext<'_, '_>),
) {
    let is_allowed = (field.kind.key_refusal)("default").is_none();
    let Some(entry) = table.find("default").filter(|_| is_allowed) else { return };
    if let Some(text) = entry.node.get_ref().as_str().filter(|text| is_variable(text)) {
        let help = "a default that is made for each item says from what: { from = \"user\" }";
        entry.refuse_reserved(text, help);
    }
    if entry.node.get_ref().is_table() && field.storage_class() != StorageClass::Json {
        field.default_from = read_default_source(field, entry, context);
        if is_valid && field.default_from == Some(DefaultSource::Uuid) {
            check_made_uuid(field, entry);
        }
        return;
    }
    if is_valid {
        field.default = literal::read(field, entry, LiteralChecks::Rules);
    }
    if field.required && table.find("computed").is_none() {
        let help = "take out `required` to let clients leave the field out, or take out `default`";
        let message = "a required field is always sent, so its default would never be used";
        entry.key.refuse_with_help(message, help);
    }
}

/// Reads `default = { from = "now" }`.
fn read_default_source(
    field: &Field,
    entry: &TomlEntry<'_>,
    context: FieldContext<'_, '_>,
) -> Option<DefaultSource> {
    let table = entry.table()?;
    table.check(&keys::DEFAULT);
    let Some(from) = table.find("from") else {
        let help = "a constant, or a table such as { from = \"now\" }";
        entry.refuse_with_help("`default` has no `from`", help);
        return None;
    };
    if context.position != FieldPosition::Resource {
        let help = "inside lists and objects, a default is a constant";
        from.key.refuse_with_help("`from` works on fields of the resource itself", help);
        return None;
    }
    if let Some(name) = from.node.get_ref().as_str().and_then(|text| text.strip_prefix("user.")) {
        return read_user_source(field, (from, name), context.user_fields);
    }
    from.check(&KeyForm::Choice(|| keys::words(keys::DEFAULT_SOURCES)));
    let source = table.choice("from", keys::DEFAULT_SOURCES)?;
    let allowed = field.kind.default_sources;
    if allowed.contains(&source) {
        return Some(source);
    }
    let words: Vec<String> = keys::DEFAULT_SOURCES
        .iter()
        .filter(|(_, one)| allowed.contains(one))
        .map(|(word, _)| format!("\"{word}\""))
        .collect();
    let help = match &*words {
        [] => "its default is a constant".to_owned(),
        words => format!("it can be made from {}", words.join(" or ")),
    };
    let message = format!("a field of type `{}` cannot have this default", field.kind.name);
    from.refuse_with_help(message, help);
    None
}

/// Reads `default = { from = "user.tenant" }`.
fn read_user_source(
    field: &Field,
    (entry, name): (&TomlEntry<'_>, &str),
    user_fields: &[Field],
) -> Option<DefaultSource> {
    let found = user_fields.iter().enumerate().find(|(_, of)| *of.name == *name);
    let Some((at, of)) = found else {
        let message = format!("users have no field `{name}`");
        let names: Vec<String> = user_fields.iter().map(|of| format!("user.{}", of.name)).collect();
        match &*names {
            [] => entry.refuse_with_help(message, "declare it: [users.fields]"),
            names => entry.text()?.refuse_unknown(message, names.iter().map(|name| &**name)),
        }
        return None;
    };
    let is_text = field.kind.name == types::TEXT.name && of.storage_class() == StorageClass::Text;
    if of.kind.name != field.kind.name && !is_text {
        let (own, other) = (field.kind.name, of.kind.name);
        let message =
            format!("a field of type `{own}` cannot have a default of type `{other}`: user.{name}");
        let help =
            "give both the same type; a `text` can also be made from an email, url, date or uuid";
        entry.refuse_with_help(message, help);
        return None;
    }
    if of.rules.scale > field.rules.scale {
        let (own, other) = (field.rules.scale, of.rules.scale);
        let message = format!("user.{name} has a `scale` of {other}, and the field one of {own}");
        entry.refuse_with_help(message, "give both the same `scale`");
        return None;
    }
    Some(DefaultSource::UserField { at, name: name.into() })
}

/// Refuses rules that no UUID fits, such as `max_length = 10`: items could not be created without the value.
fn check_made_uuid(field: &Field, entry: &TomlEntry<'_>) {
    let sample = Json::Text("9f2c5a1e-4b7d-4c3a-8e6f-0d1b2a3c4d5e".into());
    let mut faults = FaultCollector::at_root(String::new());
    types::read_new(field, &sample, &mut faults);
    if let Some(fault) = faults.into_list().first() {
        let message = format!("a UUID breaks the rules of the field: {}", fault.detail);
        let help = "it has 36 characters: loosen the rules, or let clients send the value";
        entry.refuse_with_help(message, help);
    }
}

/// `$user`, `$now`: an author who writes this as a default does not mean the text.
fn is_variable(text: &str) -> bool {
    let name = text.strip_prefix('$').unwrap_or_default();
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
