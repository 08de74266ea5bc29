//! Stage 1, parse: the request as an `Intent`, in terms of the model.
//!
//! No I/O. It parses the query and strips the body's outer key (`{"task": …}`), and needs no stored data.
//! Field values stay JSON here; `plan` validates them against the model.

pub mod preconditions;
pub mod cursor;
mod attribute;
mod body;
mod changes;
mod expand;
mod filter;
mod filter_match;
mod filter_tree;
mod filter_value;
mod group_text;
mod index_range;
mod item_query;
mod list;
mod list_body;
mod logged_change;
mod query;
mod relations;
mod route;
mod target;
mod watch;
mod webhook_events;

pub use attribute::{Attribute, SortKey, VisibleResource, is_longer_than_index, sort_prefix};
pub use body::{
    CreateBody, ItemBody, JsonMember, JsonMembers, Patch, body_as_json_lines, parse_item,
};
pub use changes::{CHANGES_PARAMETERS, ChangesQuery, LogFilter, LogWatchQuery, WAIT_SECONDS_MAX};
pub use expand::{CHILDREN_MAX, PATHS_MAX};
pub use filter::{
    AttributeTest, Filter, FilterOperator, FilterParameter, FilterTest, filter_parameters,
    related_filter_parameters, split_operator, tests_in,
};
pub use filter_match::matches;
pub use filter_tree::{CONTROL_PARAMETERS, GROUP_PARAMETERS};
pub use index_range::{excludes_null, is_index_range};
pub use item_query::{ITEM_PARAMETERS, PastState};
pub use list::encode_pair;
pub use list::{Expansion, ListQuery};
pub use list_body::QUERY_MEMBERS;
pub use logged_change::{ItemPath, LoggedChange};
pub use query::split as split_parameters;
pub use relations::{AllReadable, ReadableResources, Relation, relations};
pub use route::{Route, RouteError, find_flat, find_nested_by_plural, preflight_methods, route};
pub use target::{
    PathForm, PathIds, RequestVerb, ResourcePath, RouteTarget, RouteTemplate, allow_header,
    format_collection_path, format_flat_path, format_path, push_unprefixed_path, route_templates,
};
pub use watch::{
    LIST_STREAM_PARAMETERS, STREAM_PARAMETERS, StartPosition, WatchQuery, read_last_event_id,
};
pub use webhook_events::{EventSelection, SelectionFault};

use std::sync::Arc;

use crate::fault;
use crate::formats::Asset;
use crate::model::{Model, ResourceIndex};
use crate::problem::{Problem, ProblemKind};
use query::{bad_query, split_query};

/// The operation that the client asks for.
#[derive(Debug)]
pub enum Intent<'a> {
    /// The list of resources.
    Home,
    Health,
    Ready,
    Metrics,
    Changes(Arc<ChangesQuery>),
    OpenApi,
    Schema(ResourceIndex),
    /// The API reference of a resource, or its first page.
    Docs(Option<ResourceIndex>),
    ExplainProblem(&'static ProblemKind),
    /// A file of the pages, and the version that the page names.
    Asset(Asset, Option<Box<str>>),
    /// The methods that a target allows.
    Options(RouteTarget),
    /// With a list query if only some of the members, or related items, are selected.
    Get(ResourcePath, Option<Arc<ListQuery>>),
    /// An item as it was, with a list query as for `Get`.
    GetPast(ResourcePath, PastState, Option<Arc<ListQuery>>),
    List(ResourcePath, Arc<ListQuery>),
    /// An event stream of a collection or an item.
    Watch(ResourcePath, WatchQuery),
    /// An event stream of the change log.
    WatchChanges(LogWatchQuery),
    Create(ResourcePath, CreateBody<'a>),
    Replace(ResourcePath, ItemBody<'a>),
    Patch(ResourcePath, Patch),
    Remove(ResourcePath),
}

/// Steps 8 (400) and 9 of the order of checks: the body's syntax and wrapper, then the query. Fields and resources that
/// the caller cannot read are unknown in the query.
pub fn read<'a>(
    model: &'a Model,
    route: Route,
    (query, readable): (Option<&str>, &dyn ReadableResources),
    text: &'a [u8],
) -> Result<Intent<'a>, Problem> {
    fault::point("intent");
    let limits = &model.server.limits;
    let intent = match (route.verb, route.target) {
        // Public; query parameters are ignored.
        (RequestVerb::Options, place) => return Ok(Intent::Options(place)),
        (_, RouteTarget::Health) => return Ok(Intent::Health),
        (_, RouteTarget::Ready) => return Ok(Intent::Ready),
        (_, RouteTarget::ProblemPage(kind)) => return Ok(Intent::ExplainProblem(kind)),
        (_, RouteTarget::Asset(asset)) => {
            let version = query.and_then(|query| query.strip_prefix("v="));
            return Ok(Intent::Asset(asset, version.map(Into::into)));
        }
        // `pipeline` has responded to a logout before this stage.
        (_, place @ (RouteTarget::Server | RouteTarget::Logout(_))) => {
            return Ok(Intent::Options(place));
        }
        (_, RouteTarget::Home) => return read_home(query),
        (_, RouteTarget::Metrics) => Intent::Metrics,
        (_, RouteTarget::OpenApi) => Intent::OpenApi,
        (_, RouteTarget::Schema(resource)) => Intent::Schema(resource),
        (_, RouteTarget::Docs(resource)) => Intent::Docs(resource),
        (RequestVerb::Watch { last_event_id }, RouteTarget::Changes) => {
            let query = changes::read_watch(model, query, last_event_id)?;
            return Ok(Intent::WatchChanges(query));
        }
        (_, RouteTarget::Changes) => {
            return Ok(Intent::Changes(Arc::new(changes::read(model, query)?)));
        }
        (RequestVerb::Post, RouteTarget::Collection(address)) => {
            let bodies = body::read_create_body(model.resource(address.resource), limits, text)?;
            Intent::Create(address, bodies)
        }
        (RequestVerb::PostItems(_), RouteTarget::Collection(address)) => {
            let bodies = body::read_unwrapped(model.resource(address.resource), limits, text)?;
            Intent::Create(address, bodies)
        }
        (RequestVerb::Watch { last_event_id }, RouteTarget::Collection(address)) => {
            let query = watch::read(model, &address, (query, readable), (false, last_event_id))?;
            return Ok(Intent::Watch(address, query));
        }
        (RequestVerb::Watch { last_event_id }, RouteTarget::Item(address)) => {
            let query = watch::read(model, &address, (query, readable), (true, last_event_id))?;
            return Ok(Intent::Watch(address, query));
        }
        (RequestVerb::Query, RouteTarget::Collection(address)) => {
            let list = list_body::read(model, &address, (readable, text))?;
            Intent::List(address, Arc::new(list))
        }
        (_, RouteTarget::Collection(address)) => {
            let list = expand::read_list(model, &address, (query, readable))?;
            return Ok(Intent::List(address, Arc::new(list)));
        }
        (RequestVerb::Put, RouteTarget::Item(address)) => {
            let body = body::read_body(model.resource(address.resource), text)?;
            Intent::Replace(address, body)
        }
        (RequestVerb::Patch(form), RouteTarget::Item(address)) => {
            let patch = body::read_patch(model.resource(address.resource), form, text)?;
            Intent::Patch(address, patch)
        }
        (RequestVerb::Delete, RouteTarget::Item(address)) => Intent::Remove(address),
        (_, RouteTarget::Item(address)) => {
            let found = item_query::read(model, &address, (query, readable))?;
            let selection = found.selection.map(Arc::new);
            return Ok(match found.past {
                None => Intent::Get(address, selection),
                Some(past) => Intent::GetPast(address, past, selection),
            });
        }
    };
    refuse_parameters(query)?;
    Ok(intent)
}

/// The query of `/?login`, which asks a visitor without credentials for them, also where the role `anyone` may read. It is
/// at `/` because a browser sends them to all paths at and below the one that asked (RFC 7617, section 2.2).
pub const LOGIN_QUERY: &str = "login";

fn read_home<'a>(query: Option<&str>) -> Result<Intent<'a>, Problem> {
    if query != Some(LOGIN_QUERY) {
        refuse_parameters(query)?;
    }
    Ok(Intent::Home)
}

fn refuse_parameters(query: Option<&str>) -> Result<(), Problem> {
    match split_query(query)?.first() {
        None => Ok(()),
        Some((name, _)) => Err(bad_query(attribute::no_such_parameter_message(name, &[]))),
    }
}
