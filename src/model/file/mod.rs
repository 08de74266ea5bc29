//! The reader of the model file: TOML text in, a checked `Model` out, or a list of all mistakes.
//!
//! It does no I/O and guesses nothing: unknown words are refused with the nearest known one as a suggestion.
//! Limits bound the cost of any text: 1 MiB, 1,000 resources, 500 fields each, 16 levels. The reader does not
//! stop at a mistake: it replaces an unusable part by a harmless one, and discards the model at the end.

mod expression;
pub mod field;
pub mod field_keys;
pub mod keys;
mod deprecation;
mod relations;
mod literal;
mod resource_names;
mod realm;
mod resource;
mod role;
mod rules;
mod shape;
mod states;
pub mod toml_tree;

use toml::de::DeTable;

use super::report::Mistakes;
use super::settings::ServerTable;
use super::{Model, ModelErrors, RealmIndex, ResourceIndex, builtin};
use resource_names::ResourceNames;
use toml_tree::TomlTable;

const FILE_BYTES_MAX: usize = 1024 * 1024;
const RESOURCES_MAX: usize = 1000;
const FIELDS_MAX: usize = 500;
const LEVELS_MAX: usize = 16;
const TITLE_CHARS_MAX: usize = 100;

/// Reads a model file; `name` is its name in messages.
pub fn read(name: &str, text: &str) -> Result<Model, ModelErrors> {
    read_source(SourceKind::Model, name, text)
}

/// Reads the shape that a database stores: `Model::shape` of the model it was created for.
pub fn read_shape(text: &str) -> Result<Model, ModelErrors> {
    read_source(SourceKind::Shape, "the model in the database", text)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceKind {
    Model,
    Shape,
}

fn read_source(purpose: SourceKind, name: &str, text: &str) -> Result<Model, ModelErrors> {
    let mut mistakes = match purpose {
        SourceKind::Model => Mistakes::default(),
        SourceKind::Shape => Mistakes::for_shape(),
    };
    // This program wrote the shape, with all defaults written out, so it may be longer.
    if text.len() > FILE_BYTES_MAX && purpose == SourceKind::Model {
        mistakes.add(
            0..0,
            format!("the file is too large: expected at most 1 MiB, got {} bytes", text.len()),
        );
        return Err(ModelErrors::new(name, "", mistakes));
    }
    let tree = match DeTable::parse(text) {
        Ok(tree) => tree,
        Err(error) => {
            mistakes
                .add(error.span().unwrap_or(0..0), format!("not valid TOML: {}", error.message()));
            return Err(ModelErrors::new(name, text, mistakes));
        }
    };
    let root = TomlTable::new(tree.get_ref());
    let model = build_model(purpose, &root, &mut mistakes);
    if mistakes.is_empty() { Ok(model) } else { Err(ModelErrors::new(name, text, mistakes)) }
}

fn build_model(purpose: SourceKind, root: &TomlTable<'_>, mistakes: &mut Mistakes) -> Model {
    root.refuse_unknown_keys(&keys::names(keys::ROOT), "a model", mistakes);
    let title = read_title(purpose, root, mistakes);
    let realms = realm::read(root, mistakes);
    let names = ResourceNames::read(root, mistakes);
    let drafts = resource::read(&names, mistakes);
    let roles = role::read(root, &drafts, mistakes);
    let mut resources = relations::resolve_relations(drafts, &names, &realms, mistakes);
    let server = root
        .find("server")
        .and_then(|entry| ServerTable::read(entry, (&realms, &roles), mistakes))
        .unwrap_or_default();
    let shape = shape::write(&resources);
    let users = ResourceIndex(resources.len());
    let realm = realms.iter().position(|realm| Some(&*realm.name) == server.realm.as_deref());
    resources.push(builtin::users_resource(users, RealmIndex(realm.unwrap_or(0)), &roles));
    Model { title, realms, resources, users, roles, server, shape }
}

fn read_title(purpose: SourceKind, root: &TomlTable<'_>, mistakes: &mut Mistakes) -> Box<str> {
    let Some(entry) = root.find("title") else {
        if purpose == SourceKind::Model {
            mistakes.add_with_help(
                0..0,
                "the model has no title",
                "begin the file with a line such as: title = \"Store\"",
            );
        }
        return "".into();
    };
    let Some(title) = entry.text(mistakes) else { return "".into() };
    if title.value.trim().is_empty()
        || title.value.chars().count() > TITLE_CHARS_MAX
        || title.value.chars().any(char::is_control)
    {
        mistakes.add(
            title.span,
            format!("`title` expected 1 to {TITLE_CHARS_MAX} characters on one line"),
        );
    }
    title.value.into()
}

#[cfg(test)]
mod tests;
