//! The other replies that a page shows parts of: the items above, references, children and changes.

use std::collections::{BTreeSet, HashMap};

use super::columns::{self, Column, item_label, label_field, short_id};
use super::query_link::QueryLink;
use super::source::{PageContext, PageData, elements, id_of, member, parse, text_of};
use crate::intent::{
    PathForm, ResourcePath, RouteTarget, format_flat_path, format_path, split_parameters,
};
use crate::json::Json;
use crate::model::{ChangeLogDetail, Field, Model, Resource, ResourceIndex};
use crate::openapi::Viewer;
use crate::permit::Caller;
use crate::value::Id;

/// How many children of each kind, changes of an item, and changes on the home page are shown.
pub const CHILDREN_SHOWN: usize = 10;
const ITEM_CHANGES_SHOWN: usize = 10;
const HOME_CHANGES_SHOWN: usize = 5;
/// A page reads at most this many collections of children, and the labels of this many fields.
const CHILD_COLLECTIONS_MAX: usize = 8;
const REFERENCE_FIELDS_MAX: usize = 4;
/// Labels that are read for one field.
const LABELS_MAX: usize = 50;

/// Whether a query asks for a past version of an item.
pub fn requests_past_version<N: AsRef<str>, V>(parameters: &[(N, V)]) -> bool {
    parameters.iter().any(|(name, _)| matches!(name.as_ref(), "version" | "as_of"))
}

/// Whether the page of a target may follow changes of what it shows.
pub fn can_follow_changes(model: &Model, (target, query): (&RouteTarget, Option<&str>)) -> bool {
    let is_logged = |path: &ResourcePath| !model.resource(path.resource).is_server_made;
    match target {
        RouteTarget::Collection(path) => is_logged(path),
        RouteTarget::Item(path) => is_logged(path) && !query_requests_past_version(query),
        _ => false,
    }
}

fn query_requests_past_version(query: Option<&str>) -> bool {
    requests_past_version(&split_parameters(query.unwrap_or("")).unwrap_or_default())
}

/// The addresses that a page of the target reads beside its own, in the same order each time.
pub fn related_addresses(
    model: &Model,
    caller: &Caller,
    (target, query): (&RouteTarget, Option<&str>),
    json: &[u8],
) -> Vec<String> {
    let viewer = Viewer::new(model, caller);
    let mut all = Vec::new();
    match target {
        RouteTarget::Home => all.extend(recent_changes_address(&viewer)),
        RouteTarget::Collection(path) => {
            all.extend(ancestor_addresses(&viewer, path));
            let resource = model.resource(path.resource);
            let json = parse(json);
            let items = elements(member(&json, &resource.plural));
            if path.form == PathForm::Flat {
                all.extend(parent_addresses(&viewer, resource, items));
            }
            all.extend(reference_addresses(&viewer, resource, items));
        }
        RouteTarget::Item(path) => {
            all.extend(ancestor_addresses(&viewer, path));
            let resource = model.resource(path.resource);
            let json = parse(json);
            if let Some(item) = member(&json, &resource.name) {
                all.extend(reference_addresses(&viewer, resource, std::slice::from_ref(item)));
            }
            if !query_requests_past_version(query) {
                let children = child_collections(&viewer, path);
                let lists = children.iter();
                all.extend(lists.map(|(child, path)| child_list_address(&viewer, child, path)));
                all.extend(history_address(&viewer, path));
            }
        }
        _ => {}
    }
    all
}

/// The URL of the last changes; `None` if the caller may not read them.
pub fn recent_changes_address(viewer: &Viewer<'_>) -> Option<String> {
    let base_path = viewer.model.server.base_path.as_deref().unwrap_or("");
    let address = format!("{base_path}/-/changes?sort=-sequence&limit={HOME_CHANGES_SHOWN}");
    viewer.caller.rights().can_read_changes().then_some(address)
}

/// The URL of the last changes of an item; `None` if the caller may not read them.
pub fn history_address(viewer: &Viewer<'_>, path: &ResourcePath) -> Option<String> {
    let base_path = viewer.model.server.base_path.as_deref().unwrap_or("");
    let resource = viewer.model.resource(path.resource);
    let is_kept = !resource.is_server_made && resource.changes == ChangeLogDetail::Values;
    let subject = item_path(viewer.model, path)?;
    let address = format!(
        "{base_path}/-/changes?subject={subject}&sort=-sequence&limit={ITEM_CHANGES_SHOWN}"
    );
    (is_kept && viewer.caller.rights().can_read_changes()).then_some(address)
}

/// The path of the item of a target.
pub fn item_path(model: &Model, path: &ResourcePath) -> Option<String> {
    let ids = path.ids.as_ref()?;
    Some(format_path(model, path.resource, &ids.ancestors, ids.item))
}

/// The items in a path above its end, with their resources and paths.
pub fn ancestors<'m>(model: &'m Model, path: &ResourcePath) -> Vec<(&'m Resource, String)> {
    let Some(ids) = &path.ids else { return Vec::new() };
    let lineage = model.lineage(path.resource);
    let mut above: Vec<Id> = Vec::new();
    let mut all = Vec::new();
    for (resource, id) in lineage.into_iter().zip(&ids.ancestors) {
        all.push((resource, format_path(model, resource.index, &above, Some(*id))));
        above.push(*id);
    }
    all
}

/// The URLs of the items above, of which a page shows the labels.
fn ancestor_addresses(viewer: &Viewer<'_>, path: &ResourcePath) -> Vec<String> {
    let above = ancestors(viewer.model, path).into_iter();
    let labelled = above.filter_map(|(resource, path)| {
        label_field(viewer, resource).map(|label| format!("{path}?fields={}", label.name))
    });
    labelled.collect()
}

/// The collections below an item that the caller may read or create in, with their paths.
pub fn child_collections<'a>(
    viewer: &Viewer<'a>,
    path: &ResourcePath,
) -> Vec<(&'a Resource, String)> {
    let Some(ids) = &path.ids else { return Vec::new() };
    let below: Vec<Id> = ids.ancestors.iter().copied().chain(ids.item).collect();
    let children = viewer.model.resource(path.resource).children.iter();
    let known = children.filter(|child| viewer.knows(**child)).take(CHILD_COLLECTIONS_MAX);
    known
        .map(|child| {
            (viewer.model.resource(*child), format_path(viewer.model, *child, &below, None))
        })
        .collect()
}

/// The URL of the newest children, with the members that a table shows.
pub fn child_list_address(viewer: &Viewer<'_>, child: &Resource, path: &str) -> String {
    let columns = columns::choose(viewer, (child, PathForm::Nested), None);
    let names: Vec<&str> = columns.iter().map(Column::name).collect();
    format!("{path}?sort=-id&limit={CHILDREN_SHOWN}&fields={}", names.join(","))
}

/// The target of a reference and the path of all its items, if the caller may read it.
pub fn reachable_target<'a>(viewer: &Viewer<'a>, field: &Field) -> Option<(&'a Resource, String)> {
    reachable(viewer, field.rules.reference.or(field.many_references())?.resource)
}

/// A resource and the path under which the id alone determines an item, if there is one and the caller may read it.
fn reachable<'a>(viewer: &Viewer<'a>, index: ResourceIndex) -> Option<(&'a Resource, String)> {
    let resource = viewer.model.resource(index);
    let path = match resource.parent {
        None => Some(format_path(viewer.model, index, &[], None)),
        Some(_) => format_flat_path(viewer.model, resource, None),
    };
    path.filter(|_| viewer.can_read(index)).map(|path| (resource, path))
}

/// The URLs of the lists with the labels of the items that these items refer to.
fn reference_addresses(
    viewer: &Viewer<'_>,
    resource: &Resource,
    items: &[Json<'_>],
) -> Vec<String> {
    let fields = viewer.readable_fields(resource);
    let is_reference =
        |field: &Field| field.rules.reference.is_some() || field.many_references().is_some();
    let fields = fields.filter(|(_, field)| is_reference(field));
    let lists = fields.take(REFERENCE_FIELDS_MAX).filter_map(|(_, field)| {
        label_list(viewer, reachable_target(viewer, field)?, (&field.name, items))
    });
    lists.collect()
}

/// The URL of the list with the labels of the parents of these items.
fn parent_addresses(
    viewer: &Viewer<'_>,
    resource: &Resource,
    items: &[Json<'_>],
) -> Option<String> {
    let key = resource.parent_key.as_deref()?;
    label_list(viewer, reachable(viewer, resource.parent?)?, (key, items))
}

/// The URL of the list with the labels of the items whose ids a member of these items has.
fn label_list(
    viewer: &Viewer<'_>,
    (target, path): (&Resource, String),
    (name, items): (&str, &[Json<'_>]),
) -> Option<String> {
    let limits = &viewer.model.server.limits;
    let values_max = LABELS_MAX.min(limits.filter_values_max).min(limits.page_items_max);
    let label = &label_field(viewer, viewer.model.resource(target.index))?.name;
    // With `expand`, an item is in place of its id.
    let id = |value| member(value, "id").unwrap_or(value);
    let values = items.iter().filter_map(|item| member(item, name));
    let values = values.flat_map(|value| match value {
        Json::List(ids) => ids.iter(),
        id => std::slice::from_ref(id).iter(),
    });
    let ids: BTreeSet<&str> = values.filter_map(|value| text_of(Some(id(value)))).collect();
    let ids: Vec<&str> = ids.into_iter().take(values_max).collect();
    let address = || format!("{path}?id:in={}&fields={label}&limit={}", ids.join(","), ids.len());
    (!ids.is_empty()).then(address)
}

/// The input of every page.
#[derive(Clone, Copy)]
pub struct PageSource<'a> {
    pub context: &'a PageContext<'a>,
    pub viewer: &'a Viewer<'a>,
    pub json: &'a Json<'a>,
    pub data: &'a PageData,
    pub related: &'a Related<'a>,
}

impl PageSource<'_> {
    /// The address of the event stream, which begins at the position of the change log at which the page was read.
    pub fn stream_address(&self, link: QueryLink<'_>) -> String {
        match self.data.position {
            Some(position) => link.with("since", &position.to_string()),
            None => link,
        }
        .address()
    }
}

/// The other replies, parsed.
pub struct Related<'a> {
    replies: Vec<(&'a str, Json<'a>)>,
    /// The labels of items by their paths.
    labels: HashMap<String, String>,
}

impl<'a> Related<'a> {
    pub fn parse(viewer: &Viewer<'_>, data: &'a PageData) -> Self {
        let parsed = data.related.iter().map(|one| (&*one.address, parse(&one.json)));
        let replies: Vec<(&str, Json<'_>)> = parsed.collect();
        let mut labels = HashMap::new();
        // A reply does not say which resource it has, so each is tried by the name of its member: an item has
        // the singular name, a list of labels (`?id:in=`) the plural.
        for (address, json) in &replies {
            let path = address.split('?').next().unwrap_or_default();
            for resource in &viewer.model.resources {
                let label = label_field(viewer, resource);
                if let Some(item) = member(json, &resource.name)
                    && path.ends_with(id_of(item))
                {
                    labels.insert(path.to_owned(), item_label(label, item));
                }
                if address.contains("?id:in=") {
                    for item in elements(member(json, &resource.plural)) {
                        let path = format!("{path}/{}", id_of(item));
                        labels.insert(path, item_label(label, item));
                    }
                }
            }
        }
        Self { replies, labels }
    }

    pub fn reply(&self, address: &str) -> Option<&Json<'a>> {
        self.replies.iter().find(|(known, _)| *known == address).map(|(_, json)| json)
    }

    /// The label of an item; the end of its id if none was read.
    pub fn label(&self, path: &str) -> String {
        let id = path.rsplit('/').next().unwrap_or_default();
        self.labels.get(path).cloned().unwrap_or_else(|| short_id(id))
    }

    pub fn reference(&self, viewer: &Viewer<'_>, field: &Field, id: &str) -> ReferenceLink {
        self.link(reachable_target(viewer, field), id)
    }

    /// The parent of an item, by its id.
    pub fn parent(&self, viewer: &Viewer<'_>, resource: &Resource, id: &str) -> ReferenceLink {
        self.link(resource.parent.and_then(|parent| reachable(viewer, parent)), id)
    }

    fn link(&self, target: Option<(&Resource, String)>, id: &str) -> ReferenceLink {
        let target = target.map(|(_, path)| {
            let address = format!("{path}/{id}");
            LinkTarget { label: self.label(&address), address }
        });
        ReferenceLink { id: id.to_owned(), short_id: short_id(id), target }
    }
}

/// A reference: a link with the label of its target, where the caller may read it.
pub struct ReferenceLink {
    pub id: String,
    pub short_id: String,
    pub target: Option<LinkTarget>,
}

pub struct LinkTarget {
    pub address: String,
    pub label: String,
}
