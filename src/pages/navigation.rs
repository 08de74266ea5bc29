//! The links of the navigation: resources, the collections inside the item of the page, and the server's own lists.

use super::related::child_collections;
use super::source::{PageContext, heading};
use crate::intent::{PathIds, ResourcePath, format_flat_path, format_path};
use crate::model::{Model, Resource};
use crate::openapi::Viewer;

/// The input of the navigation.
pub struct Navigation<'a> {
    pub context: &'a PageContext<'a>,
    pub viewer: &'a Viewer<'a>,
    /// The target of the page, if it is a collection or an item.
    pub place: Option<&'a ResourcePath>,
}

pub struct NavigationLink {
    pub address: String,
    pub text: String,
    /// The value of `aria-current`, or nothing.
    pub current: &'static str,
    /// Whether the link leads to a collection inside the item of the page.
    pub is_within: bool,
}

impl Navigation<'_> {
    pub fn resources(&self) -> Vec<NavigationLink> {
        let (model, mut links) = (self.context.model, Vec::new());
        for resource in top_level(model, self.viewer) {
            let path = format_path(model, resource.index, &[], None);
            links.push(self.link(path, &resource.plural, false));
            self.add_links_inside(resource, &mut links);
        }
        for (resource, path) in flat_collections(model, self.viewer) {
            links.push(self.link(path, &format!("all {}", resource.plural), false));
        }
        links
    }

    /// The collections inside the item that the page is about, below its top-level resource.
    fn add_links_inside(&self, top: &Resource, links: &mut Vec<NavigationLink>) {
        let model = self.context.model;
        let Some(place) = self.place else { return };
        let lineage = model.lineage(place.resource);
        if lineage.first().map(|first| first.index) != Some(top.index) {
            return;
        }
        let Some(ids) = &place.ids else { return };
        let all: Vec<_> = ids.ancestors.iter().copied().chain(ids.item).collect();
        for (depth, resource) in lineage.iter().enumerate() {
            let Some(id) = all.get(depth) else { break };
            let above = all.get(..depth).unwrap_or_default().to_vec();
            let item = PathIds { ancestors: above, item: Some(*id) };
            let path = ResourcePath::nested(resource.index, item);
            for (child, path) in child_collections(self.viewer, &path) {
                if self.viewer.can_read(child.index) {
                    links.push(self.link(path, &child.plural, true));
                }
            }
        }
    }

    /// The change log, the webhooks, the users, and the API reference.
    pub fn server(&self) -> Vec<NavigationLink> {
        let (model, mut links) = (self.context.model, Vec::new());
        if self.viewer.caller.rights().can_read_changes() {
            let newest = format!("{}/-/changes?sort=-sequence", self.context.base_path());
            links.push(self.link(newest, "changes", false));
        }
        for resource in [model.webhooks, model.users] {
            if self.viewer.can_read(resource) {
                let path = format_path(model, resource, &[], None);
                links.push(self.link(path, &model.resource(resource).plural, false));
            }
        }
        if self.viewer.caller.rights().has_any() {
            let docs = format!("{}/-/docs", self.context.base_path());
            links.push(self.link(docs, "API reference", false));
        }
        links
    }

    fn link(&self, address: String, name: &str, is_within: bool) -> NavigationLink {
        let place = address.split('?').next().unwrap_or_default();
        let rest = self.context.path.strip_prefix(place);
        let current = match rest {
            Some("") => "page",
            Some(rest) if rest.starts_with('/') && !is_within => "true",
            _ => "",
        };
        NavigationLink { address, text: heading(name), current, is_within }
    }
}

/// The nested resources that the caller may read across parents, with the paths of their flat collections.
pub fn flat_collections<'a>(
    model: &'a Model,
    viewer: &Viewer<'_>,
) -> impl Iterator<Item = (&'a Resource, String)> {
    let readable = model.declared().filter(|resource| viewer.can_read(resource.index));
    readable.filter_map(|resource| Some((resource, format_flat_path(model, resource, None)?)))
}

/// The top-level resources of the model file that the caller may use.
pub fn top_level<'a>(model: &'a Model, viewer: &Viewer<'_>) -> Vec<&'a Resource> {
    let tops = model.declared().filter(|resource| resource.parent.is_none());
    tops.filter(|resource| viewer.knows(resource.index)).collect()
}
