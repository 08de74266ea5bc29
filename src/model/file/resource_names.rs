//! The first pass over `[resources]`: names, plurals, parents and kinds of id.
//!
//! Fields and roles refer to these, so they must be known before anything else is read.

use super::keys;
use super::toml_tree::{TomlEntry, TomlTable, TomlText};
use crate::model::field::ResourceIndex;
use crate::model::nearest::nearest;
use crate::model::report::Mistakes;
use crate::value::IdKind;

const RESOURCES_MAX: usize = 1000;
/// The maximum depth of resources, and of lists and objects.
pub const LEVELS_MAX: usize = 16;

/// The members that every item has in addition to its fields.
pub const SYSTEM_FIELDS: &[&str] = &["id", "created_at", "updated_at", "version"];

/// A plural is also a table name; these prefixes are reserved.
const RESERVED_TABLE_PREFIXES: &[&str] = &["sqlite_", "pg_", "nouns_"];

/// System columns of every PostgreSQL table.
pub const SYSTEM_COLUMNS: &[&str] = &["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"];

#[derive(Debug, Default)]
pub struct ResourceNames<'t> {
    pub headers: Vec<ResourceHeader<'t>>,
    /// The names of the roles that the file declares.
    pub roles: Vec<&'t str>,
}

/// The first-pass data of one resource.
#[derive(Debug)]
pub struct ResourceHeader<'t> {
    pub name: TomlText<'t>,
    pub table: TomlTable<'t>,
    pub plural: String,
    /// The plural in the file, or the name it is derived from.
    pub plural_text: TomlText<'t>,
    pub parent: Option<ResourceIndex>,
    pub id: IdKind,
}

impl<'t> ResourceNames<'t> {
    pub fn read(root: &TomlTable<'t>, mistakes: &Mistakes) -> Self {
        let help = "declare a noun with its fields: [resources.customer.fields]";
        let Some(entry) = root.find("resources") else {
            // A misspelled `resources` has been reported already.
            let is_misspelled = |key| nearest(key, keys::ROOT.names()) == Some("resources");
            if !root.entries.iter().any(|entry| is_misspelled(entry.key.value)) {
                mistakes.add_with_help(0..0, "the model has no resources", help);
            }
            return Self::default();
        };
        let Some(table) = root.table("resources") else { return Self::default() };
        let count = table.entries.len();
        if count == 0 {
            entry.key.refuse_with_help("the model has no resources", help);
        }
        if count > RESOURCES_MAX {
            let message = format!("expected at most {RESOURCES_MAX} resources, got {count}");
            entry.key.refuse(message);
            return Self::default();
        }
        let roles = root.table("roles").unwrap_or_default().entries;
        let mut names = Self {
            headers: table.entries.iter().map(read_header).collect(),
            roles: roles.iter().map(|role| role.key.value).collect(),
        };
        names.check_plurals();
        names.find_parents();
        names.cut_cycles();
        names
    }

    pub fn find(&self, text: &TomlText<'_>) -> Option<(ResourceIndex, &ResourceHeader<'t>)> {
        let index = text.find("resource", self.all())?;
        Some((ResourceIndex(index), self.headers.get(index)?))
    }

    pub fn all(&self) -> impl Iterator<Item = &'t str> + Clone {
        self.headers.iter().map(|header| header.name.value)
    }

    /// The ancestors of a resource, its parent first. Terminates once `cut_cycles` has run.
    pub fn ancestors(&self, of: usize) -> impl Iterator<Item = (usize, &ResourceHeader<'t>)> {
        let parent = |index: usize| {
            let parent = self.headers.get(index)?.parent?.0;
            Some((parent, self.headers.get(parent)?))
        };
        std::iter::successors(parent(of), move |(index, _)| parent(*index))
    }

    fn check_plurals(&self) {
        for (index, header) in self.headers.iter().enumerate() {
            let (name, plural) = (header.name.value, &header.plural);
            let other = self.headers.iter().take(index).find(|other| other.plural == *plural);
            let prefix = RESERVED_TABLE_PREFIXES.iter().find(|prefix| plural.starts_with(**prefix));
            let mut help = "say another one with `plural`";
            let message = if let Some(other) = other {
                let other = other.name.value;
                format!("`{other}` and `{name}` both have the plural `{plural}`")
            } else if plural == name {
                help = "the name holds one item and the plural a list of them: say another one with `plural`";
                format!("the plural of `{plural}` must differ from its name")
            } else if let Some(prefix) = prefix {
                format!(
                    "`{plural}` cannot be a plural: tables that begin with `{prefix}` are the database's own"
                )
            } else if SYSTEM_FIELDS.contains(&plural.as_str()) || plural == "page" {
                format!("`{plural}` cannot be a plural: answers use that name themselves")
            } else {
                continue;
            };
            header.plural_text.refuse_with_help(message, help);
        }
    }

    fn find_parents(&mut self) {
        let parent =
            |header: &ResourceHeader<'t>| Some(self.find(&header.table.text("parent")?)?.0);
        let parents: Vec<Option<ResourceIndex>> = self.headers.iter().map(parent).collect();
        for (header, parent) in self.headers.iter_mut().zip(parents) {
            header.parent = parent;
        }
    }

    /// Reports each cycle of parents once and cuts it, so that the reader can continue.
    fn cut_cycles(&mut self) {
        for index in 0..self.headers.len() {
            let chain: Vec<(usize, &str)> = self
                .ancestors(index)
                .take(self.headers.len())
                .map(|(index, header)| (index, header.name.value))
                .collect();
            let Some(header) = self.headers.get(index) else { continue };
            let name = header.name.value;
            let parent = header.table.text("parent").unwrap_or(header.name.clone());
            if let Some(end) = chain.iter().position(|(ancestor, _)| *ancestor == index) {
                let cycle: Vec<&str> = chain.iter().take(end).map(|(_, name)| *name).collect();
                if cycle.is_empty() {
                    let help = "for a tree of items, refer to one with a field of type `ref`";
                    parent.refuse_with_help(format!("`{name}` cannot be its own parent"), help);
                } else {
                    let cycle = cycle.join(" → ");
                    parent.refuse_with_help(
                        format!("the parents go round in a circle: {name} → {cycle} → {name}"),
                        "take `parent` out of one of them; a field of type `ref` can point anywhere",
                    );
                }
                if let Some(header) = self.headers.get_mut(index) {
                    header.parent = None;
                }
            } else if chain.len() == LEVELS_MAX {
                parent
                    .refuse(format!("expected at most {LEVELS_MAX} resources inside one another"));
            }
        }
    }
}

fn read_header<'t>(entry: &TomlEntry<'t>) -> ResourceHeader<'t> {
    let name = entry.key.clone();
    name.check_name("resource");
    let table = entry.table().unwrap_or_default();
    let plural = table.text("plural");
    if let Some(text) = &plural {
        text.check_name("collection");
    }
    ResourceHeader {
        plural: plural
            .as_ref()
            .map_or_else(|| default_plural(name.value), |text| text.value.to_owned()),
        plural_text: plural.unwrap_or(name.clone()),
        id: table.choice("id", keys::ID_KINDS).unwrap_or(IdKind::Uuid),
        parent: None,
        name,
        table,
    }
}

/// `category` → `categories`, `box` → `boxes`, `order` → `orders`.
pub fn default_plural(name: &str) -> String {
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
