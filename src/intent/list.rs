//! Which items of a collection a client asks for, in which order, and how much of each.
//!
//! The names in a query are held against the model here; what is stored is not known.

use super::conditions::Conditions;
use super::path;
use super::{Address, bad_query, cursor, split, unknown_parameter};
use crate::json;
use crate::model::Model;
use crate::problem::{self, Problem};
use crate::value::Id;

/// A part of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List {
    pub limit: usize,
    /// Whether the client said how many; a stream has no limit unless it did.
    pub is_limit_said: bool,
    pub after: Option<Id>,
    /// Tells one list from another: path, query and size.
    pub seal: u32,
    /// What the client knows of it already.
    pub conditions: Conditions,
}

impl List {
    /// So many items, from the first one on or after another.
    pub fn of(limit: usize, after: Option<Id>) -> Self {
        Self { limit, is_limit_said: true, after, ..Self::default() }
    }
}

pub(super) fn read(model: &Model, address: &Address, query: Option<&str>) -> Result<List, Problem> {
    let limits = &model.server.limits;
    let mut list = List { limit: limits.page_items_default, ..List::default() };
    let mut seen = Vec::new();
    for (name, value) in split(query)? {
        if seen.contains(&name) {
            return Err(bad_query(format!("{name}: given twice")));
        }
        match &*name {
            "limit" => {
                list.limit = read_limit(&value, limits.page_items_max)?;
                list.is_limit_said = true;
            }
            "cursor" => {
                let after = open_cursor(model, address, &value);
                list.after = Some(after.ok_or_else(|| Problem::new(&problem::BAD_CURSOR))?);
            }
            other => return Err(unknown_parameter(other, &["limit", "cursor"])),
        }
        seen.push(name);
    }
    list.seal = seal(model, address, query, list.limit);
    Ok(list)
}

/// A query that is spelled in another way is another list, which costs its client one answer more. How
/// many items a page has that nobody gave a size depends on the settings.
/// FNV-1a, which is the same at every server: a tag is compared only by the client that was given it.
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

fn open_cursor(model: &Model, address: &Address, text: &str) -> Option<Id> {
    let list = path(model, address.resource, &address.ids.as_ref()?.ancestors, None);
    cursor::open(text, cursor::bind(&list), model.resource(address.resource).id)
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
