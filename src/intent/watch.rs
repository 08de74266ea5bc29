//! The query and the header of an event stream: which items it follows, and from which position on.
//!
//! A stream has no order and no pages of its own, so the parameters for these are refused. `since` is a parameter
//! of streams alone: on a list it is the name of a field, like any other.

use http::{HeaderMap, HeaderName};

use super::attribute::no_such_parameter_message;
use super::filter_tree::{FilterUse, plain_controls};
use super::list::{self, ListQuery, ListRules};
use super::query::{bad_query, split_query};
use super::relations::ReadableResources;
use super::target::ResourcePath;
use crate::json;
use crate::model::Model;
use crate::problem::Problem;

/// The last position that the client has seen, when it reconnects (WHATWG HTML §9.2.4).
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The parameters of event streams alone: of all of them, and of those of lists.
pub const STREAM_PARAMETERS: [&str; 1] = ["since"];
pub const LIST_STREAM_PARAMETERS: [&str; 2] = ["since", "snapshot"];

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPosition {
    /// At the end of the log.
    Now,
    /// With everything that the log keeps.
    Oldest,
    After(i64),
    /// With all items, unless the client resumes at a position that the log still has.
    Snapshot {
        resume: Option<i64>,
    },
}

/// An event stream, as the client asks for it.
#[derive(Debug)]
pub struct WatchQuery {
    /// The filters and the selected members; for an item the selected members alone.
    pub list: ListQuery,
    pub start: StartPosition,
}

impl StartPosition {
    /// A client that reconnects cannot change its query, so the header `Last-Event-ID` is stronger than `since`.
    pub(super) fn of_changes(last_event_id: Option<i64>, since: Option<i64>) -> Self {
        match (last_event_id, since) {
            (None, None) => Self::Now,
            (None, Some(0)) => Self::Oldest,
            (Some(after), _) | (None, Some(after)) => Self::After(after),
        }
    }
}

/// The position in the header `Last-Event-ID`.
pub fn read_last_event_id(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    let mut lines = headers.get_all(LAST_EVENT_ID).iter();
    let Some(value) = lines.next() else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    // Empty after an empty `id`, for clients that send the header all the same.
    let position = match text.is_empty() {
        true => None,
        false => Some(read_position("Last-Event-ID", &text)?),
    };
    match lines.next() {
        None => Ok(position),
        Some(_) => Err(bad_query("Last-Event-ID: given twice".to_owned())),
    }
}

/// Reads the query of a stream of a collection, or of an item.
pub(super) fn read(
    model: &Model,
    address: &ResourcePath,
    (query, readable): (Option<&str>, &dyn ReadableResources),
    (is_item, last_event_id): (bool, Option<i64>),
) -> Result<WatchQuery, Problem> {
    let (mut since, mut is_snapshot, mut others) = (None, false, Vec::new());
    for (name, value) in split_query(query)? {
        match &*name {
            "since" if since.is_some() => return Err(bad_query("since: given twice".to_owned())),
            "since" => since = Some(read_position("since", &value)?),
            "snapshot" if is_item => {
                return Err(bad_query("snapshot: expected a list, got an item".to_owned()));
            }
            "snapshot" if value == "true" && !is_snapshot => is_snapshot = true,
            "snapshot" => {
                let got = json::quote_for_message(&value);
                return Err(bad_query(format!("snapshot: expected true, once, got {got}")));
            }
            "limit" | "cursor" | "sort" | "count" => {
                let detail = format!("{name}: an event stream has no pages and no order");
                return Err(bad_query(detail));
            }
            "expand" => {
                let detail = "expand: an event has one item, without related ones";
                return Err(bad_query(detail.to_owned()));
            }
            "fields" => others.push((name, value)),
            _ if is_item => {
                let known = ["fields", "since"];
                return Err(bad_query(no_such_parameter_message(&name, &known)));
            }
            _ => others.push((name, value)),
        }
    }
    let rules = ListRules { readable, controls: plain_controls(), used_for: FilterUse::Events };
    let list = list::read_parameters(model, address, rules, others)?;
    let start = match (is_snapshot, last_event_id, since) {
        (true, _, Some(_)) => {
            let detail = "since: a snapshot begins with the items as they are now";
            return Err(bad_query(detail.to_owned()));
        }
        (true, resume, None) => StartPosition::Snapshot { resume },
        (false, last_event_id, since) => StartPosition::of_changes(last_event_id, since),
    };
    Ok(WatchQuery { list, start })
}

fn read_position(name: &str, text: &str) -> Result<i64, Problem> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let position = text.parse().ok().filter(|_| digits);
    position.ok_or_else(|| {
        let got = json::quote_for_message(text);
        bad_query(format!("{name}: expected a number of the change log, got {got}"))
    })
}
