//! The query of an item: which members it shows, and whether it shows the item as it was.

use super::attribute::no_such_parameter_message;
use super::changes::read_time;
use super::expand;
use super::list::{self, ListQuery, hash_query};
use super::query::{bad_query, split_query};
use super::relations::{ReadableResources, hidden_fields, relations};
use super::target::ResourcePath;
use crate::json::quote_for_message;
use crate::model::Model;
use crate::problem::Problem;
use crate::value::Moment;

/// The parameters of an item. The last one is unknown where there are no related items.
pub const ITEM_PARAMETERS: [&str; 4] = ["fields", "version", "as_of", "expand"];

/// A past state of an item, as a request asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PastState {
    /// By the number in its ETag, from 1.
    Version(i64),
    AsOf(Moment),
}

/// The query of a GET of an item.
pub(super) struct ItemQuery {
    pub(super) past: Option<PastState>,
    /// The selected members and the related items; `None`: all members, and no other items.
    pub(super) selection: Option<ListQuery>,
}

pub(super) fn read(
    model: &Model,
    address: &ResourcePath,
    (query, readable): (Option<&str>, &dyn ReadableResources),
) -> Result<ItemQuery, Problem> {
    let hidden = hidden_fields(readable, address.resource);
    let has_relations = || !relations(model, model.resource(address.resource), readable).is_empty();
    let mut expand = None;
    let mut item = ItemQuery { past: None, selection: None };
    let mut seen = Vec::new();
    for (name, value) in split_query(query)? {
        if seen.contains(&name) {
            return Err(bad_query(format!("{name}: given twice")));
        }
        match &*name {
            "fields" => {
                item.selection = Some(list::read_selection(model, address, (&value, hidden))?);
            }
            "expand" if has_relations() => expand = Some(value),
            "version" | "as_of" if item.past.is_some() => {
                return Err(bad_query("expected version or as_of, got both".to_owned()));
            }
            "version" => item.past = Some(PastState::Version(read_version(&value)?)),
            "as_of" => {
                let time = read_time(&value).map_err(|detail| format!("as_of: {detail}"));
                item.past = Some(PastState::AsOf(time.map_err(bad_query)?));
            }
            _ => {
                let is_known = |one: &&&str| **one != "expand" || has_relations();
                let known = ITEM_PARAMETERS.iter().filter(is_known);
                let known: Vec<&str> = known.copied().collect();
                return Err(bad_query(no_such_parameter_message(&name, &known)));
            }
        }
        seen.push(name);
    }
    match (expand, &item.past) {
        (None, _) => {}
        (Some(_), Some(_)) => {
            let detail = "expand: expected an item as it is now, got version or as_of";
            return Err(bad_query(detail.to_owned()));
        }
        (Some(value), None) => {
            let expand = expand::read(model, address.resource, (&value, readable))?;
            let list = item.selection.get_or_insert_with(|| ListQuery::by_id(1, None));
            list.expand(expand, &value);
            list.query_hash = hash_query(model, address, query, list.limit);
        }
    }
    Ok(item)
}

fn read_version(text: &str) -> Result<i64, Problem> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| is_number && *number > 0);
    number.ok_or_else(|| {
        let got = quote_for_message(text);
        bad_query(format!("version: expected the number of a version, from 1, got {got}"))
    })
}
