//! The body of a QUERY (RFC 10008): a list query as JSON.
//!
//! `{"filter": {"any": [{"status": "paid"}, {"total": {"gt": 100}}]}, "sort": ["-total"], "limit": 20}`. Every such
//! query can be written as the query of a URL too: its next page is linked there, and a cursor works in both forms.

use super::attribute::{VisibleResource, no_such_message};
use super::body::parse;
use super::expand;
use super::filter_tree::{FilterReader, FilterScope, FilterUse, as_parameter};
use super::list::{ListQuery, read_limit};
use super::query::bad_query;
use super::relations::{ReadableResources, hidden_fields};
use super::target::ResourcePath;
use crate::json::{Json, quote_for_message};
use crate::model::Model;
use crate::problem::Problem;

/// The members of the body.
pub const QUERY_MEMBERS: [&str; 7] =
    ["filter", "sort", "limit", "cursor", "fields", "count", "expand"];

pub(super) fn read(
    model: &Model,
    address: &ResourcePath,
    (readable, body): (&dyn ReadableResources, &[u8]),
) -> Result<ListQuery, Problem> {
    let (resource, form) = (model.resource(address.resource), address.form);
    let hidden = hidden_fields(readable, address.resource);
    let known = VisibleResource { resource, hidden, form };
    let limits = &model.server.limits;
    let json = parse(body)?;
    let Json::Object(members) = &json else {
        let got = json.type_name();
        return Err(bad_query(format!(
            "expected an object with the keys {}, got {got}",
            QUERY_MEMBERS.join(", ")
        )));
    };
    let mut list = ListQuery::first_page(limits);
    let mut cursor = None;
    for (name, value) in members {
        let at = |detail: String| bad_query(format!("{name}: {detail}"));
        match &**name {
            "filter" => {
                let scope = FilterScope { model, readable, used_for: FilterUse::List };
                let filters = FilterReader::new(known, scope, &[]).read_json(value).map_err(at)?;
                for filter in filters {
                    let (parameter, value) = as_parameter(&filter, (model, resource));
                    list.add_filter(filter, (model, resource), (&parameter, &value));
                }
            }
            "sort" => {
                let names = join_names(value).map_err(at)?;
                list.read_sort(known, &names, limits.sort_keys_max).map_err(bad_query)?;
            }
            "fields" => {
                let names = join_names(value).map_err(at)?;
                list.read_fields(known, &names).map_err(bad_query)?;
            }
            "limit" => {
                let text = match value {
                    Json::Number(text) => *text,
                    other => other.type_name(),
                };
                list.limit = read_limit(text, limits.page_items_max)?;
                list.has_explicit_limit = true;
            }
            // The last page has a null cursor: a client that sends it back begins again, as with none.
            "cursor" if *value == Json::Null => {}
            "cursor" => cursor = Some(expect_text(value).map_err(at)?),
            "count" => list.read_count(expect_text(value).map_err(at)?).map_err(bad_query)?,
            "expand" => {
                let paths = expect_texts(value).map_err(at)?.join(",");
                list.expand(expand::read(model, address.resource, (&paths, readable))?, &paths);
            }
            unknown => return Err(bad_query(no_such_message(unknown, "key", QUERY_MEMBERS))),
        }
    }
    list.open_cursor(model, address, cursor)?;
    list.set_url_form(model, address, cursor);
    Ok(list)
}

fn expect_text<'j>(json: &'j Json<'_>) -> Result<&'j str, String> {
    match json {
        Json::Text(text) => Ok(text),
        other => Err(format!("expected a string, got {}", other.type_name())),
    }
}

/// A list of names, as a URL has it.
fn join_names(json: &Json<'_>) -> Result<String, String> {
    let names = expect_texts(json)?;
    match names.iter().find(|name| name.contains(',')) {
        Some(name) => {
            Err(format!("expected one name in each string, got {}", quote_for_message(name)))
        }
        None => Ok(names.join(",")),
    }
}

fn expect_texts<'j>(json: &'j Json<'_>) -> Result<Vec<&'j str>, String> {
    match json {
        Json::List(names) => names.iter().map(expect_text).collect(),
        other => Err(format!("expected a list of names, got {}", other.type_name())),
    }
}
