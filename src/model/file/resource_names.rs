//! The first pass over `[resources]`: names, plurals, parents and kinds of id.
//!
//! Fields and roles refer to these, so they must be known before anything else is read.

use std::ops::Range;

use super::toml_tree::{TomlEntry, TomlTable, check_name};
use super::{LEVELS_MAX, RESOURCES_MAX, keys};
use crate::model::report::Mistakes;
use crate::model::{ResourceIndex, nearest};
use crate::value::IdKind;

/// The members that every item has in addition to its fields.
pub const SYSTEM_FIELDS: &[&str] = &["id", "created_at", "updated_at", "version"];

/// A plural is also a table name; these prefixes are reserved.
const TABLE_PREFIXES: &[&str] = &["sqlite_", "pg_", "nouns_"];

/// System columns of every PostgreSQL table.
pub const SYSTEM_COLUMNS: &[&str] = &["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"];

#[derive(Debug, Default)]
pub struct ResourceNames<'t> {
    pub list: Vec<ResourceHeader<'t>>,
}

/// The first-pass data of one resource.
#[derive(Debug)]
pub struct ResourceHeader<'t> {
    pub name: &'t str,
    pub name_span: Range<usize>,
    pub table: TomlTable<'t>,
    pub plural: String,
    /// The position of the plural, or of the name it is derived from.
    pub plural_span: Range<usize>,
    pub parent: Option<ResourceIndex>,
    pub id: IdKind,
}

impl<'t> ResourceNames<'t> {
    pub fn read(root: &TomlTable<'t>, mistakes: &mut Mistakes) -> Self {
        let help = "declare a noun with its fields: [resources.customer.fields]";
        let Some(entry) = root.find("resources") else {
            // A misspelled `resources` has been reported already.
            let slip = |key| nearest(key, keys::names(keys::ROOT)) == Some("resources");
            if !root.entries().iter().any(|entry| slip(entry.key)) {
                mistakes.add_with_help(0..0, "the model has no resources", help);
            }
            return Self::default();
        };
        let Some(table) = entry.table(mistakes) else { return Self::default() };
        if table.entries().is_empty() {
            mistakes.add_with_help(entry.key_span.clone(), "the model has no resources", help);
        }
        if table.entries().len() > RESOURCES_MAX {
            let message = format!(
                "expected at most {RESOURCES_MAX} resources, got {}",
                table.entries().len()
            );
            mistakes.add(entry.key_span.clone(), message);
            return Self::default();
        }
        let mut names = Self {
            list: table.entries().iter().map(|entry| read_header(entry, mistakes)).collect(),
        };
        names.check_plurals(mistakes);
        names.find_parents(mistakes);
        names.cut_cycles(mistakes);
        names
    }

    pub fn find(&self, name: &str) -> Option<(ResourceIndex, &ResourceHeader<'t>)> {
        let index = self.list.iter().position(|named| named.name == name)?;
        Some((ResourceIndex(index), self.list.get(index)?))
    }

    pub fn all(&self) -> impl Iterator<Item = &'t str> {
        self.list.iter().map(|named| named.name)
    }

    /// The ancestors of a resource, its parent first. Terminates once `cut_cycles` has run.
    pub fn ancestors(&self, of: usize) -> impl Iterator<Item = (usize, &ResourceHeader<'t>)> {
        let parent = |index: usize| {
            let parent = self.list.get(index)?.parent?.0;
            Some((parent, self.list.get(parent)?))
        };
        std::iter::successors(parent(of), move |(index, _)| parent(*index))
    }

    fn check_plurals(&self, mistakes: &mut Mistakes) {
        for (index, named) in self.list.iter().enumerate() {
            let plural = &named.plural;
            let span = named.plural_span.clone();
            let help = "say another one with `plural`";
            if let Some(other) = self.list.iter().take(index).find(|other| other.plural == *plural)
            {
                mistakes.add_with_help(
                    span,
                    format!(
                        "`{}` and `{}` both have the plural `{plural}`",
                        other.name, named.name
                    ),
                    help,
                );
            } else if plural == named.name {
                let help = "the name holds one item and the plural a list of them: say another one with `plural`";
                mistakes.add_with_help(
                    span,
                    format!("the plural of `{plural}` must differ from its name"),
                    help,
                );
            } else if let Some(taken) =
                TABLE_PREFIXES.iter().find(|taken| plural.starts_with(**taken))
            {
                mistakes.add_with_help(
                    span,
                    format!("`{plural}` cannot be a plural: tables that begin with `{taken}` are the database's own"),
                    help,
                );
            } else if SYSTEM_FIELDS.contains(&plural.as_str()) || plural == "page" {
                mistakes.add_with_help(
                    span,
                    format!("`{plural}` cannot be a plural: answers use that name themselves"),
                    help,
                );
            }
        }
    }

    fn find_parents(&mut self, mistakes: &mut Mistakes) {
        for index in 0..self.list.len() {
            let Some(text) =
                self.list.get(index).and_then(|named| named.table.text("parent", mistakes))
            else {
                continue;
            };
            let parent = self.find(text.value).map(|(parent, _)| parent);
            if parent.is_none() {
                mistakes.add_unknown(
                    text.span,
                    format!("there is no resource `{}`", text.value),
                    text.value,
                    self.all(),
                );
            }
            if let Some(named) = self.list.get_mut(index) {
                named.parent = parent;
            }
        }
    }

    /// Reports each cycle of parents once and cuts it, so that the reader can continue.
    fn cut_cycles(&mut self, mistakes: &mut Mistakes) {
        for index in 0..self.list.len() {
            let chain: Vec<(usize, &str)> = self
                .ancestors(index)
                .take(self.list.len())
                .map(|(index, named)| (index, named.name))
                .collect();
            let Some(named) = self.list.get(index) else { continue };
            let span = named.table.find("parent").map_or(named.name_span.clone(), TomlEntry::span);
            if let Some(end) = chain.iter().position(|(ancestor, _)| *ancestor == index) {
                let circle: Vec<&str> = chain.iter().take(end).map(|(_, name)| *name).collect();
                let name = named.name;
                let (message, help) = match circle.as_slice() {
                    [] => (
                        format!("`{name}` cannot be its own parent"),
                        "for a tree of items, refer to one with a field of type `ref`",
                    ),
                    circle => {
                        let circle = circle.join(" → ");
                        (
                            format!("the parents go round in a circle: {name} → {circle} → {name}"),
                            "take `parent` out of one of them; a field of type `ref` can point anywhere",
                        )
                    }
                };
                mistakes.add_with_help(span, message, help);
                if let Some(named) = self.list.get_mut(index) {
                    named.parent = None;
                }
            } else if chain.len() == LEVELS_MAX {
                mistakes.add(
                    span,
                    format!("expected at most {LEVELS_MAX} resources inside one another"),
                );
            }
        }
    }
}

fn read_header<'t>(entry: &TomlEntry<'t>, mistakes: &mut Mistakes) -> ResourceHeader<'t> {
    check_name("resource", entry.key, entry.key_span.clone(), mistakes);
    let table = entry.table(mistakes).unwrap_or_default();
    let (plural, plural_span) = match table.text("plural", mistakes) {
        Some(text) => {
            check_name("collection", text.value, text.span.clone(), mistakes);
            (text.value.to_owned(), text.span)
        }
        None => (default_plural(entry.key), entry.key_span.clone()),
    };
    let id = table.choice("id", keys::ID_KINDS, mistakes).unwrap_or(IdKind::Uuid);
    ResourceHeader {
        name: entry.key,
        name_span: entry.key_span.clone(),
        table,
        plural,
        plural_span,
        parent: None,
        id,
    }
}

/// `category` → `categories`, `box` → `boxes`, `order` → `orders`.
fn default_plural(name: &str) -> String {
    let takes_es = ["s", "x", "z", "ch", "sh"].iter().any(|end| name.ends_with(end));
    match name.strip_suffix('y') {
        Some(stem) if !stem.is_empty() && !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => {
            format!("{stem}ies")
        }
        _ if takes_es => format!("{name}es"),
        _ => format!("{name}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::default_plural;

    #[test]
    fn default_plural_adds_ies_es_or_s() {
        for (name, expected) in [
            ("customer", "customers"),
            ("category", "categories"),
            ("day", "days"),
            ("box", "boxes"),
            ("bus", "buses"),
            ("quiz", "quizes"),
            ("branch", "branches"),
            ("wish", "wishes"),
            ("y", "ys"),
            ("order_2", "order_2s"),
        ] {
            assert_eq!(default_plural(name), expected);
        }
    }
}
