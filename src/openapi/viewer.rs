//! The part of the API that one caller may use, decided by the checks that also admit requests.

use std::sync::Arc;

use crate::formats::{ItemMember, ItemView};
use crate::intent::{RequestVerb, ResourcePath, Route, RouteTarget, RouteTemplate};
use crate::model::{Deprecated, Field, GrantVerb, Model, RealmIndex, Resource, ResourceIndex};
use crate::permit::{self, Access, AccessScope, Caller, Rights};

/// A caller, for whom a document is made.
#[derive(Debug)]
pub struct Viewer<'a> {
    pub model: &'a Model,
    pub caller: &'a Caller,
    anyone: Caller,
    scope: AccessScope,
}

impl<'a> Viewer<'a> {
    pub fn new(model: &'a Model, caller: &'a Caller) -> Self {
        let anyone = Rights::of_roles(model, std::iter::empty());
        let scope = AccessScope::new(caller, GrantVerb::Get);
        Self { model, caller, anyone: Caller::anonymous(Arc::new(anyone)), scope }
    }

    /// Whether a request of this form can succeed. Below a resource that the caller may not read nothing is found.
    pub fn may_use(&self, template: &RouteTemplate<'_>, verb: RequestVerb) -> bool {
        let target = &template.target;
        if template.choice.is_some()
            && matches!(target, RouteTarget::Schema(_) | RouteTarget::Docs(Some(_)))
        {
            // The target is the first of the resources that the path parameter may name.
            return self.model.declared().any(|resource| self.knows(resource.index));
        }
        let route = Route { verb, target: template.target.clone() };
        let has_ancestors = route
            .resource()
            .is_none_or(|resource| self.scope.can_read_ancestors(self.model, resource));
        has_ancestors && permit::check(self.caller, &route).is_ok()
    }

    /// Whether a caller without credentials may send the request.
    pub fn is_public(&self, template: &RouteTemplate<'_>, verb: RequestVerb) -> bool {
        let route = Route { verb, target: template.target.clone() };
        permit::is_public(&route) || permit::check(&self.anyone, &route).is_ok()
    }

    /// The access of a verb, if it is granted.
    pub fn access(&self, resource: ResourceIndex, verb: GrantVerb) -> Option<&Access> {
        self.caller.rights().access(resource, verb)
    }

    /// Whether the caller may use the resource at all, so that its name is no news.
    pub fn knows(&self, resource: ResourceIndex) -> bool {
        self.caller.rights().has_any_grant(resource)
            && self.scope.can_read_ancestors(self.model, resource)
    }

    /// Whether GET shows some of the items.
    pub fn can_read(&self, resource: ResourceIndex) -> bool {
        self.scope.can_read(resource) && self.scope.can_read_ancestors(self.model, resource)
    }

    /// The fields that the caller sees of a resource, with their indices; none without GET.
    pub fn readable_fields(
        &self,
        resource: &'a Resource,
    ) -> impl Iterator<Item = (usize, &'a Field)> {
        let is_readable = self.can_read(resource.index);
        let hidden = self.hidden(resource.index).to_vec();
        resource.fields.iter().enumerate().filter(move |(at, _)| {
            is_readable
                && ItemView { hidden: &hidden, ..ItemView::all_fields(resource) }
                    .is_shown(ItemMember::Field(*at))
        })
    }

    /// The fields that GET hides.
    pub fn hidden(&self, resource: ResourceIndex) -> &[usize] {
        &self.scope.read_access(resource).hidden
    }

    /// Whether GET shows some rows only, or is not granted.
    pub fn may_miss_rows(&self, resource: ResourceIndex) -> bool {
        !self.scope.read_access(resource).row_filters.is_empty()
    }

    /// Whether GET may not show an item that was written, so that the response has no body: it shows some rows only, or
    /// what was written decides whether it shows the items above.
    pub fn may_hide_written(&self, resource: ResourceIndex) -> bool {
        self.may_miss_rows(resource) || self.scope.needs_read_check(self.model, resource)
    }

    /// The realm of a target.
    pub fn realm(&self, target: &RouteTarget) -> RealmIndex {
        match target {
            RouteTarget::Collection(ResourcePath { resource, .. })
            | RouteTarget::Item(ResourcePath { resource, .. }) => {
                self.model.resource(*resource).realm
            }
            RouteTarget::Logout(realm) => *realm,
            _ => self.model.server_realm(),
        }
    }

    /// The replacement of a deprecated resource. A resource that the caller may not use is not named.
    pub fn successor<'d>(&self, deprecated: &'d Deprecated) -> Option<&'d str> {
        let name = deprecated.use_instead.as_deref()?;
        let mut resources = self.model.resources.iter();
        let known = resources.find(|resource| *resource.name == *name);
        known.filter(|resource| self.knows(resource.index)).map(|_| name)
    }
}

/// The fields of a resource that a caller may send with one verb.
#[derive(Debug, Clone, Copy)]
pub struct WritableFields<'a> {
    pub access: &'a Access,
    /// Fields that GET does not show: a body may leave them out.
    pub unseen: &'a [usize],
}

impl<'a> WritableFields<'a> {
    /// Whether the caller may change a field in some items only. PUT keeps its value if it is left out.
    pub fn is_limited(&self, at: usize) -> bool {
        self.access.is_limited(at)
    }

    /// The fields, with their indices.
    pub fn fields<'r>(
        &self,
        resource: &'r Resource,
    ) -> impl Iterator<Item = (usize, &'r Field)> + use<'r, 'a> {
        let access = self.access;
        resource.fields.iter().enumerate().filter(move |(at, field)| {
            !field.is_made_by_server()
                && !field.server_set
                && !access.hidden.contains(at)
                && !access.readonly.contains(at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;

    #[test]
    fn viewer_without_the_first_resource_may_use_schemas_and_docs() {
        let text = "title = \"A\"\n[resources.a.fields]\nx = { type = \"text\" }\n\
            [resources.b.fields]\nx = { type = \"text\" }\n[roles.clerk]\nb = [\"get\"]\n";
        let model = model::read("m.toml", text).unwrap();
        let rights = Rights::of_roles(&model, ["clerk"].into_iter());
        let caller = Caller::user("ann".into(), Arc::new(rights));
        let viewer = Viewer::new(&model, &caller);
        let templates = crate::intent::route_templates(&model);
        for path in ["/-/schemas/{resource}", "/-/docs/{resource}"] {
            let template = templates.iter().find(|template| template.path == path).unwrap();
            assert!(viewer.may_use(template, RequestVerb::Get), "{path}");
        }
    }
}
