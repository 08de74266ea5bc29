//! The generator's view of the model, and the items that it knows of.
//!
//! It sends nothing, and it may be wrong: an item may have been deleted by a cascade.
//! It holds no id. An item is identified by the request that created it and its index in that
//! response, so that each side inserts its own id.

use toml::Table;

use super::request_template::Placeholder;
use crate::durability::seeded_random::SeededRandom;

/// One resource of the model.
#[derive(Debug)]
pub struct ModelResource {
    pub name: String,
    pub plural: String,
    pub parent: Option<String>,
    pub is_integer: bool,
    pub fields: Table,
}

/// An item that was created.
#[derive(Debug, Clone)]
pub struct KnownItem {
    pub noun: String,
    /// With placeholders for ids.
    pub path: String,
    pub request: usize,
    pub index: usize,
    pub is_integer: bool,
}

impl KnownItem {
    pub fn id(&self) -> String {
        let kind = if self.is_integer { Placeholder::Integer } else { Placeholder::Uuid };
        kind.text(self.request, self.index)
    }
}

#[derive(Debug)]
pub struct KnownWorld {
    pub nouns: Vec<ModelResource>,
    pub known: Vec<KnownItem>,
    pub gone: Vec<KnownItem>,
    /// Requests whose responses had a next page, with the list that it belongs to.
    pub pages: Vec<(usize, String)>,
    /// Requests for lists and items that were answered, each with its line.
    pub seen: Vec<(usize, String)>,
}

impl KnownWorld {
    pub fn new(model: &str) -> Self {
        let model: Table = model.parse().unwrap();
        let nouns = model["resources"].as_table().unwrap().iter().map(|(name, table)| {
            let word = |key: &str| table.get(key).and_then(|value| value.as_str());
            ModelResource {
                name: name.clone(),
                plural: word("plural").map_or_else(|| format!("{name}s"), str::to_owned),
                parent: word("parent").map(str::to_owned),
                is_integer: word("id") == Some("integer"),
                fields: table["fields"].as_table().unwrap().clone(),
            }
        });
        let (known, gone, pages, seen) = Default::default();
        Self { nouns: nouns.collect(), known, gone, pages, seen }
    }

    pub fn noun(&self, name: &str) -> &ModelResource {
        self.nouns.iter().find(|noun| noun.name == name).unwrap()
    }

    pub fn some_known(&self, chance: &mut SeededRandom) -> Option<&KnownItem> {
        // Mostly one of the last: the first ones are deleted or well tested.
        let from = if chance.below(3) == 0 { 0 } else { self.known.len().saturating_sub(25) };
        chance.one_of(&self.known[from..])
    }

    pub fn some_of(&self, noun: &str, chance: &mut SeededRandom) -> Option<&KnownItem> {
        let all: Vec<_> = self.known.iter().filter(|known| known.noun == noun).collect();
        chance.one_of(&all).copied()
    }

    /// A collection to query, with its resource.
    pub fn some_collection(&self, chance: &mut SeededRandom) -> (String, &ModelResource) {
        let noun = chance.one_of(&self.nouns).unwrap();
        let plural = &noun.plural;
        match &noun.parent {
            None => (format!("/{plural}"), noun),
            Some(parent) => match self.some_of(parent, chance) {
                Some(known) => (format!("{}/{plural}", known.path), noun),
                None => self.some_collection(chance),
            },
        }
    }

    /// A value for a reference: mostly an existing item, sometimes one that does not exist.
    pub fn some_id(&self, noun: &str, chance: &mut SeededRandom) -> String {
        let is_integer = self.noun(noun).is_integer;
        // Of the same resource: the number of another's item may be that of one of these on one side
        // alone.
        let gone: Vec<_> = self.gone.iter().filter(|gone| gone.noun == noun).collect();
        let mark = match (self.some_of(noun, chance), chance.one_of(&gone)) {
            (_, Some(gone)) if chance.below(30) == 0 => gone.id(),
            (Some(known), _) => known.id(),
            (None, _) if is_integer => "999999".to_owned(),
            (None, _) => "00000000-0000-7000-8000-000000000000".to_owned(),
        };
        if is_integer { mark } else { format!("\"{mark}\"") }
    }

    /// Records that an item is deleted, with everything below it.
    pub fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        let is_gone = |known: &KnownItem| known.path == path || known.path.starts_with(&below);
        let (gone, known) = std::mem::take(&mut self.known).into_iter().partition(is_gone);
        self.known = known;
        let gone: Vec<_> = gone;
        self.gone.extend(gone);
    }
}
