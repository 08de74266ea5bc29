//! The query of an item: which members it shows, and whether it shows the item as it was.

use super::attribute::no_such_parameter_message;
use super::changes::read_time;
use super::list::{self, ListQuery};
use super::query::{bad_query, split_query};
use super::target::ResourcePath;
use crate::json::quote_for_message;
use crate::model::Model;
use crate::problem::Problem;
use crate::value::Moment;

/// The parameters of an item.
pub const ITEM_PARAMETERS: [&str; 3] = ["fields", "version", "as_of"];

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
    /// The selected members; `None`: all.
    pub(super) selection: Option<ListQuery>,
}

pub(super) fn read(
    model: &Model,
    address: &ResourcePath,
    (query, hidden): (Option<&str>, &[usize]),
) -> Result<ItemQuery, Problem> {
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
            "version" | "as_of" if item.past.is_some() => {
                return Err(bad_query("expected version or as_of, got both".to_owned()));
            }
            "version" => item.past = Some(PastState::Version(read_version(&value)?)),
            "as_of" => {
                let time = read_time(&value).map_err(|detail| format!("as_of: {detail}"));
                item.past = Some(PastState::AsOf(time.map_err(bad_query)?));
            }
            _ => {
                return Err(bad_query(no_such_parameter_message(&name, &ITEM_PARAMETERS)));
            }
        }
        seen.push(name);
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
