//! Flat collections: the path at which a nested resource is read across all parents, such as `/orders`.
//!
//! A nested resource has one at its plural unless `flat` says another name or `false`. The segment is the first one
//! of a path, so it must differ from the plurals of the top-level resources and from the other flat segments.

use toml::de::DeValue;

use super::resource_names::{ResourceHeader, ResourceNames};
use super::toml_tree::TomlText;

/// The first segment of a flat collection's path.
pub struct FlatSegment<'t> {
    pub name: String,
    /// The name in the file; `None` where it is the plural.
    text: Option<TomlText<'t>>,
}

/// The flat segment of a resource; `None` for a top-level resource, and where it is turned off.
pub fn segment<'t>(index: usize, names: &ResourceNames<'t>) -> Option<FlatSegment<'t>> {
    let header = names.headers.get(index)?;
    header.parent?;
    let Some(entry) = header.table.find("flat") else { return Some(default_segment(header)) };
    match entry.node.get_ref() {
        DeValue::Boolean(false) => None,
        DeValue::String(name) => Some(FlatSegment { name: name.to_string(), text: entry.text() }),
        _ => Some(default_segment(header)),
    }
}

fn default_segment<'t>(header: &ResourceHeader<'t>) -> FlatSegment<'t> {
    FlatSegment { name: header.plural.clone(), text: None }
}

/// Reports values that are no segment, and two resources with one path.
pub fn check(names: &ResourceNames<'_>) {
    for (index, header) in names.headers.iter().enumerate() {
        let Some(entry) = header.table.find("flat") else { continue };
        if header.table.find("parent").is_none() {
            let name = header.name.value;
            let message = format!("`flat` needs a `parent`, which `{name}` has not");
            let help = "a top-level resource has one collection, with all its items";
            entry.key.refuse_with_help(message, help);
        }
        match (entry.node.get_ref(), entry.text()) {
            (DeValue::Boolean(_), _) => {}
            (_, Some(text)) => {
                text.check_name("collection");
                check_clash(names, index, &text);
            }
            _ => entry.refuse_type("true, false or a name"),
        }
    }
}

/// Two default segments do not clash, because all plurals differ.
fn check_clash(names: &ResourceNames<'_>, index: usize, text: &TomlText<'_>) {
    let name = text.value;
    let uses = |(other, header): &(usize, &ResourceHeader<'_>)| {
        let is_used = match header.parent {
            None => header.plural == name,
            // Of two names in the file, the second is reported.
            Some(_) => segment(*other, names).is_some_and(|segment| {
                segment.name == name && (segment.text.is_none() || *other < index)
            }),
        };
        *other != index && is_used
    };
    let Some((_, other)) = names.headers.iter().enumerate().find(uses) else { return };
    let own = names.headers.get(index).map_or("", |header| header.name.value);
    let message = format!("`{}` and `{own}` would both be at /{name}", other.name.value);
    text.refuse_with_help(message, "say another name with `flat`, or `flat = false` for none");
}
