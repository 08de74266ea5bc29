//! The reader of the model file: TOML text in, a checked `Model` out, or a list of all mistakes.
//!
//! It does no I/O and guesses nothing: unknown words are refused with the nearest known one as a suggestion.
//! Limits bound the cost of any text: 1 MiB, 1,000 resources, 500 fields each, 16 levels. The reader does not
//! stop at a mistake: it replaces an unusable part by a harmless one, and discards the model at the end.

mod checks;
mod deprecation;
mod expression;
mod field;
pub mod field_keys;
mod flat;
pub mod keys;
mod literal;
mod realm;
mod reference_rules;
mod relations;
mod renames;
mod resource;
pub mod resource_names;
pub mod retained;
mod role;
mod rules;
mod server;
pub mod shape;
mod states;
mod toml_tree;
mod users;

use toml::de::DeTable;

use super::builtin::delivery::deliveries_resource;
use super::builtin::webhook::webhooks_resource;
use super::builtin::{indices, users_resource};
use super::report::{Mistakes, ModelErrors};
use super::resource::Model;
use super::settings::StorageSettings;
use resource_names::ResourceNames;
use toml_tree::TomlTable;

pub const FILE_BYTES_MAX: usize = 1024 * 1024;
const TITLE_CHARS_MAX: usize = 100;

/// Reads a model file; `name` is its name in messages.
pub fn read(name: &str, text: &str) -> Result<Model, ModelErrors> {
    read_source(name, text, Mistakes::default())
}

/// Reads the shape that a database stores: `Model::shape` of the model it was created for.
pub fn read_shape(text: &str) -> Result<Model, ModelErrors> {
    read_source("the model in the database", text, Mistakes::for_shape())
}

/// The storage settings of a model file that may have mistakes elsewhere; `None` if it is not TOML.
pub fn read_storage_settings(text: &str) -> Option<StorageSettings> {
    let mistakes = Mistakes::default();
    let tree = DeTable::parse(text).ok().filter(|_| text.len() <= FILE_BYTES_MAX)?;
    let server = TomlTable::new(tree.get_ref(), &mistakes).table("server");
    let setting = |name: &str| Some(server.as_ref()?.text(name)?.value.to_owned());
    Some(StorageSettings { database: setting("database"), key_file: setting("key_file") })
}

fn read_source(name: &str, text: &str, mistakes: Mistakes) -> Result<Model, ModelErrors> {
    // This program wrote the shape, with all defaults written out, so it may be longer.
    if text.len() > FILE_BYTES_MAX && !mistakes.is_shape {
        let bytes = text.len();
        mistakes
            .add(0..0, format!("the file is too large: expected at most 1 MiB, got {bytes} bytes"));
        return Err(ModelErrors::new(name, "", mistakes));
    }
    let model = match DeTable::parse(text) {
        Ok(tree) => Some(build_model(&TomlTable::new(tree.get_ref(), &mistakes), &mistakes)),
        Err(error) => {
            let message = format!("not valid TOML: {}", error.message());
            mistakes.add(error.span().unwrap_or(0..0), message);
            None
        }
    };
    model.filter(|_| mistakes.is_empty()).ok_or_else(|| ModelErrors::new(name, text, mistakes))
}

fn build_model(root: &TomlTable<'_>, mistakes: &Mistakes) -> Model {
    root.check(&keys::ROOT);
    let title = read_title(root, mistakes);
    let realms = realm::read(root);
    let names = ResourceNames::read(root, mistakes);
    let user_fields = users::read(root, &names);
    let mut drafts = resource::read(&names, &user_fields);
    reference_rules::read(&names, &mut drafts);
    let roles = role::read(root, &drafts, &user_fields);
    let mut resources = relations::resolve_relations(drafts, &names, &realms);
    let server = root.table("server").map(|table| server::read(&table, &realms, &roles));
    let server = server.unwrap_or_default();
    let shape = shape::write(&resources);
    let [users, webhooks, deliveries] = indices(resources.len());
    resources.extend([
        users_resource(users, server.realm, &roles, user_fields),
        webhooks_resource(webhooks, deliveries, server.realm),
        deliveries_resource(deliveries, webhooks, server.realm),
    ]);
    Model { title, realms, resources, users, webhooks, deliveries, roles, server, shape }
}

fn read_title(root: &TomlTable<'_>, mistakes: &Mistakes) -> Box<str> {
    if root.find("title").is_none() && !mistakes.is_shape {
        let help = "begin the file with a line such as: title = \"Store\"";
        mistakes.add_with_help(0..0, "the model has no title", help);
    }
    let Some(title) = root.text("title") else { return "".into() };
    let count = title.value.chars().count();
    if title.value.trim().is_empty()
        || count > TITLE_CHARS_MAX
        || title.value.chars().any(char::is_control)
    {
        title.refuse(format!("`title` expected 1 to {TITLE_CHARS_MAX} characters on one line"));
    }
    title.value.into()
}

#[cfg(test)]
mod tests;
