//! List queries: filters, sort order, pagination and field selection.
//!
//! The names in a query are checked against the model here; stored data is not needed. What may surprise: the
//! id, which breaks ties, has the direction of the last sort key, so that the reverse order is exactly the
//! same list backwards, and one index serves both.

mod aspect;
mod link;
mod term;

pub use aspect::{Aspect, Known, no_such, no_such_parameter, start};
pub use term::{Term, Test};

use self::aspect::Unusable;
use self::link::Link;
use super::conditions::Conditions;
use super::cursor::{self, After, Bound};
use super::{Address, bad_query, path, split};
use crate::formats::Member;
use crate::json;
use crate::model::settings::Limits;
use crate::model::{Model, Resource};
use crate::problem::{self, Problem};
use crate::value::{Id, IdKind, Item, cut};

const CONTROLS: [&str; 5] = ["limit", "cursor", "sort", "fields", "count"];

const EMPTY_NAME: &str = "expected names with commas between them, got an empty one";

/// A page of a collection, as a query selects it.
#[derive(Debug, Clone, PartialEq)]
pub struct List {
    pub limit: usize,
    /// Whether the client sent a limit; a streaming response has none otherwise.
    pub is_limit_said: bool,
    pub after: Option<After>,
    /// Combined by AND.
    pub terms: Vec<Term>,
    /// Never contains the id, which always comes last as the tie-breaker.
    pub sort: Vec<Key>,
    pub is_id_descending: bool,
    /// The members to show of each item; `None`: all.
    pub chosen: Option<Vec<Member>>,
    pub is_counted: bool,
    /// A hash of path, query and page size, part of the entity tag.
    pub seal: u32,
    /// The client's preconditions.
    pub conditions: Conditions,
    /// The query without what differs from page to page.
    link: Link,
}

/// One key of a sort order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub aspect: Aspect,
    pub is_descending: bool,
}

impl List {
    /// A page of items sorted by id, from the first one or after another one.
    pub fn of(limit: usize, after: Option<Id>) -> Self {
        Self {
            limit,
            is_limit_said: true,
            after: after.map(|id| After { id, values: Vec::new() }),
            terms: Vec::new(),
            sort: Vec::new(),
            is_id_descending: false,
            chosen: None,
            is_counted: false,
            seal: 0,
            conditions: Conditions::default(),
            link: Link::default(),
        }
    }

    /// Whether it is the whole collection, sorted by id.
    pub fn is_plain(&self) -> bool {
        self.terms.is_empty() && self.sort.is_empty() && !self.is_id_descending
    }

    /// The position directly after an item.
    pub fn behind(&self, resource: &Resource, item: &Item) -> After {
        let values = self.sort.iter().map(|key| key.aspect.value(resource, item)).collect();
        After { id: item.id, values }
    }

    /// The cursor of the page after an item, and the URL of that page. `path` is that of the collection.
    pub fn onward(&self, path: &str, resource: &Resource, last: &Item) -> (String, String) {
        let cursor = cursor::seal(&self.behind(resource, last), self.bound(path));
        let address = self.link.address(path, self.limit, &cursor);
        (cursor, address)
    }

    /// The hash that binds a cursor to this list.
    pub fn bound(&self, path: &str) -> Bound {
        cursor::bind(path, self.link.bound())
    }
}

pub(super) fn read(
    model: &Model,
    address: &Address,
    (query, hidden): (Option<&str>, &[usize]),
) -> Result<List, Problem> {
    let known = Known { resource: model.resource(address.resource), hidden };
    let limits = &model.server.limits;
    let mut list = List::of(limits.page_items_default, None);
    list.is_limit_said = false;
    let mut cursor = None;
    let mut seen = Vec::new();
    for (name, value) in split(query)? {
        let Some(control) = CONTROLS.into_iter().find(|control| *control == name) else {
            list.filter(known, (&name, &value), limits).map_err(bad_query)?;
            continue;
        };
        if seen.contains(&control) {
            return Err(bad_query(format!("{control}: given twice")));
        }
        seen.push(control);
        match control {
            "limit" => {
                list.limit = read_limit(&value, limits.page_items_max)?;
                list.is_limit_said = true;
            }
            "cursor" => cursor = Some(value),
            "sort" => list.order(known, &value, limits.sort_keys_max).map_err(bad_query)?,
            "fields" => list.choose(known, &value).map_err(bad_query)?,
            _ => list.count(&value).map_err(bad_query)?,
        }
    }
    // The list that the cursor must belong to is known only now.
    if let Some(cursor) = cursor {
        let opened = address.ids.as_ref().and_then(|ids| {
            let path = path(model, address.resource, &ids.ancestors, None);
            cursor::open(&cursor, list.bound(&path), known.resource, &list.sort)
        });
        list.after = Some(opened.ok_or_else(|| Problem::new(&problem::BAD_CURSOR))?);
    }
    list.seal = seal(model, address, query, list.limit);
    Ok(list)
}

/// Reads the query of a single item, which may only have `fields`.
pub(super) fn read_selection(
    model: &Model,
    address: &Address,
    (query, hidden): (Option<&str>, &[usize]),
) -> Result<Option<List>, Problem> {
    let known = Known { resource: model.resource(address.resource), hidden };
    let mut selection: Option<List> = None;
    for (name, value) in split(query)? {
        if name != "fields" {
            return Err(bad_query(no_such_parameter(&name, &["fields"])));
        }
        if selection.is_some() {
            return Err(bad_query("fields: given twice".to_owned()));
        }
        let mut list = List::of(1, None);
        list.choose(known, &value).map_err(bad_query)?;
        list.seal = selection_seal(list.chosen.as_deref().unwrap_or_default());
        selection = Some(list);
    }
    Ok(selection)
}

/// A hash of a selection of members, independent of their order; never zero.
fn selection_seal(chosen: &[Member]) -> u32 {
    let number = |member: &Member| match member {
        Member::Parent => 1,
        Member::CreatedAt => 2,
        Member::UpdatedAt => 3,
        Member::Version => 4,
        Member::Field(at) => 5 + u64::try_from(*at).unwrap_or_default(),
    };
    // The finalizer of SplitMix64, so that the sums of two selections are not equal by design.
    let spread = |number: u64| {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let sum = chosen.iter().map(number).map(spread).fold(0x5eed_u64, u64::wrapping_add);
    let [a, b, c, d, ..] = sum.to_be_bytes();
    u32::from_be_bytes([a, b, c, d]).max(1)
}

/// A hash of the query for the entity tag. Another spelling of the same query is another hash, which costs
/// the client one full response. The default page size depends on the settings, so the limit is hashed too.
/// FNV-1a, since it is the same at every server and only the client that got a tag compares it.
fn seal(model: &Model, address: &Address, query: Option<&str>, limit: usize) -> u32 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut mix = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    mix(model.resource(address.resource).label.as_bytes());
    for id in address.ids.iter().flat_map(|ids| &ids.ancestors) {
        match id {
            Id::Uuid(uuid) => mix(uuid.as_bytes()),
            Id::Integer(number) => mix(&number.to_be_bytes()),
        }
    }
    mix(&limit.to_be_bytes());
    mix(query.unwrap_or("").as_bytes());
    let [a, b, c, d, e, f, g, h] = hash.to_be_bytes();
    u32::from_be_bytes([a, b, c, d]) ^ u32::from_be_bytes([e, f, g, h])
}

impl List {
    fn filter(
        &mut self,
        known: Known<'_>,
        (parameter, value): (&str, &str),
        limits: &Limits,
    ) -> Result<(), String> {
        let (name, operator) = parameter.rsplit_once(':').unwrap_or((parameter, "eq"));
        let aspect = known.find(name).map_err(|unusable| match unusable {
            Unusable::Declared(why) => format!("{}: {why}", cut(name)),
            Unusable::Unknown if name == parameter => known.unknown_parameter(name, &CONTROLS),
            Unusable::Unknown => known.unknown(name, "field"),
        })?;
        if self.terms.len() == limits.filter_terms_max {
            return Err(format!("expected at most {} filters, got more", limits.filter_terms_max));
        }
        let values_max = limits.filter_values_max;
        self.terms.push(term::read(known, (parameter, operator), aspect, value, values_max)?);
        self.link.add_filter((parameter, value), &format!("{name}:{operator}"));
        Ok(())
    }

    fn order(&mut self, known: Known<'_>, value: &str, keys_max: usize) -> Result<(), String> {
        let mut keys: Vec<Key> = Vec::new();
        for text in value.split(',') {
            let (name, is_descending) = match text.strip_prefix('-') {
                Some(name) => (name, true),
                None => (text, false),
            };
            if name.is_empty() {
                return Err(format!("sort: {EMPTY_NAME}"));
            }
            let aspect = known.find(name).map_err(|unusable| match unusable {
                Unusable::Declared(why) => format!("sort: {}: {why}", cut(name)),
                Unusable::Unknown => format!("sort: {}", known.unknown(name, "field")),
            })?;
            if keys.iter().any(|key| key.aspect == aspect) {
                return Err(format!("sort: {name}: given twice"));
            }
            if keys.len() == keys_max {
                return Err(format!("sort: expected at most {keys_max} keys, got more"));
            }
            keys.push(Key { aspect, is_descending });
        }
        // The id is unique: keys after it never decide.
        let id = keys.iter().position(|key| key.aspect == Aspect::Id);
        let last = id.and_then(|at| keys.get(at)).or(keys.last());
        self.is_id_descending = last.is_some_and(|key| key.is_descending);
        keys.truncate(id.unwrap_or(keys.len()));
        // A UUIDv7 begins with the creation time, so sorting by id already sorts by `created_at`.
        let is_in_id = |key: &Key| {
            key.aspect == Aspect::CreatedAt && key.is_descending == self.is_id_descending
        };
        if known.resource.id == IdKind::Uuid && keys.last().is_some_and(is_in_id) {
            keys.pop();
        }
        self.sort = keys;
        self.link.add_sort(value);
        Ok(())
    }

    fn choose(&mut self, known: Known<'_>, value: &str) -> Result<(), String> {
        let own = [
            ("created_at", Member::CreatedAt),
            ("updated_at", Member::UpdatedAt),
            ("version", Member::Version),
        ];
        let parent = known.resource.parent_key.as_deref().map(|key| (key, Member::Parent));
        let fields = known.fields().map(|(at, field)| (&*field.name, Member::Field(at)));
        let members: Vec<(&str, Member)> = parent.into_iter().chain(fields).chain(own).collect();
        let (mut chosen, mut seen) = (Vec::new(), Vec::new());
        for name in value.split(',') {
            if name.is_empty() {
                return Err(format!("fields: {EMPTY_NAME}"));
            }
            let member = members.iter().find(|(known, _)| *known == name);
            if member.is_none() && name != "id" {
                let names = members.iter().map(|(name, _)| *name).chain(["id"]);
                return Err(format!("fields: {}", no_such(name, "field", names)));
            }
            if seen.contains(&name) {
                return Err(format!("fields: {name}: given twice"));
            }
            seen.push(name);
            chosen.extend(member.map(|(_, member)| *member));
        }
        self.chosen = Some(chosen);
        self.link.add("fields", value);
        Ok(())
    }

    fn count(&mut self, value: &str) -> Result<(), String> {
        if value != "exact" {
            return Err(format!("count: expected exact, got {}", json::quoted(value)));
        }
        self.is_counted = true;
        self.link.add("count", value);
        Ok(())
    }
}

fn read_limit(text: &str, limit_max: usize) -> Result<usize, Problem> {
    let limit = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    limit.filter(|limit| (1..=limit_max).contains(limit)).ok_or_else(|| {
        bad_query(format!(
            r#"limit: expected a whole number from 1 to {limit_max}, got {}"#,
            json::quoted(text)
        ))
    })
}

#[cfg(test)]
mod tests;
