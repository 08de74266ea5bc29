//! Resources, realms and roles: what a model consists of.
//!
//! `file` makes them, and guarantees that all indices are valid.

use super::expr::Expr;
use super::field::{Deprecated, Field, OnDelete, ResourceIndex, StateMachine};
use super::settings::{RealmIndex, ServerTable};
use crate::value::IdKind;

/// Everything the author declared.
#[derive(Debug)]
pub struct Model {
    pub title: Box<str>,
    pub realms: Vec<Realm>,
    /// In file order; after them the built-in ones.
    pub resources: Vec<Resource>,
    /// The built-in resource of the users.
    pub users: ResourceIndex,
    /// The built-in resources of the webhooks and of their deliveries.
    pub webhooks: ResourceIndex,
    pub deliveries: ResourceIndex,
    pub roles: Vec<Role>,
    pub server: ServerTable,
    /// The `[resources]` table as canonical TOML, which the database stores to detect changes of the model.
    pub shape: String,
}

impl Model {
    /// The resources of the model file, and the retained ones; without the built-in ones.
    pub fn declared(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter().filter(|resource| !resource.is_builtin)
    }

    /// The resources that callers can use: those of the model file, and the built-in ones.
    pub fn usable(&self) -> impl Iterator<Item = &Resource> + Clone {
        self.resources.iter().filter(|resource| !resource.is_retained)
    }

    /// The names of the retained resources, and of the retained fields as `customer.note`.
    pub fn retained(&self) -> impl Iterator<Item = String> {
        self.declared().flat_map(|resource| {
            let own = resource.is_retained.then(|| resource.name.to_string());
            let fields = resource.fields.iter().filter(|field| field.is_retained);
            own.into_iter().chain(fields.map(|field| format!("{}.{}", resource.name, field.name)))
        })
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a ResourceIndex is made by model::file alone, for this model"
    )]
    pub fn resource(&self, index: ResourceIndex) -> &Resource {
        &self.resources[index.0]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a RealmIndex is made by model::file and from `realms` alone, for this model"
    )]
    pub fn realm(&self, index: RealmIndex) -> &Realm {
        &self.realms[index.0]
    }

    pub fn realms_with_index(&self) -> impl Iterator<Item = (RealmIndex, &Realm)> {
        self.realms.iter().enumerate().map(|(index, realm)| (RealmIndex(index), realm))
    }

    /// The realm of this name.
    pub fn find_realm(&self, name: &str) -> Option<RealmIndex> {
        self.realms_with_index().find(|(_, realm)| *realm.name == *name).map(|(index, _)| index)
    }

    /// The realm of `/` and `/-/`; by default the first.
    pub fn server_realm(&self) -> RealmIndex {
        self.server.realm
    }

    /// The resource and its ancestors, the top-level one first.
    pub fn lineage(&self, index: ResourceIndex) -> Vec<&Resource> {
        let mut lineage = Vec::new();
        let mut next = Some(index);
        while let Some(index) = next {
            let resource = self.resource(index);
            next = resource.parent;
            lineage.push(resource);
        }
        lineage.reverse();
        lineage
    }
}

/// A protection space (RFC 9110 §11.5).
#[derive(Debug)]
pub struct Realm {
    pub name: Box<str>,
    /// In the order of the challenges; not empty.
    pub schemes: Vec<AuthScheme>,
    /// Strongest first; not empty. This and the following apply to Digest only.
    pub algorithms: Vec<Algorithm>,
    /// The offered qualities of protection; `auth-int` is always accepted.
    pub qop: Vec<Qop>,
    pub challenge: ChallengeForm,
    /// Accepts responses without `qop`, as in RFC 2069.
    pub legacy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthScheme {
    Basic,
    Digest,
}

/// The hash algorithm of Digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    Md5,
    Sha256,
}

/// The quality of protection of Digest: whether it covers the request line only, or also the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qop {
    Auth,
    AuthInt,
}

/// Whether the challenges for several algorithms share a header line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChallengeForm {
    Merged,
    Separate,
}

/// One noun, such as `customer`.
#[derive(Debug)]
pub struct Resource {
    pub index: ResourceIndex,
    pub name: Box<str>,
    pub plural: Box<str>,
    /// Whether it is built in: its path is under `/-/`, and no model file declares it.
    pub is_builtin: bool,
    /// Whether the server makes its items: clients neither create nor replace them.
    pub is_server_made: bool,
    /// Whether it is stored, but not declared by the model file: nobody can use it, and its items stay.
    pub is_retained: bool,
    /// The table of its items.
    pub table: Box<str>,
    /// Its name in the change log and the metrics.
    pub label: Box<str>,
    pub parent: Option<ResourceIndex>,
    /// The name of the parent's id, as a member and as a column: `<parent>_id`.
    pub parent_key: Option<Box<str>>,
    /// The ids of its ancestors as names in a query, its parent first.
    pub ancestor_keys: Vec<AncestorKey>,
    /// The segment of its flat collection, `/orders`, which has the items of all parents; `None`: it has none.
    pub flat: Option<Box<str>>,
    /// Resources whose parent is this one, in file order.
    pub children: Vec<ResourceIndex>,
    /// Fields of any resource that reference this one.
    pub referrers: Vec<Referrer>,
    /// The number of ancestors: 0 for a top-level resource.
    pub depth: usize,
    /// The effect of deleting the parent on items of this resource.
    pub on_delete: OnDelete,
    pub id: IdKind,
    pub realm: RealmIndex,
    pub fields: Vec<Field>,
    pub unique: Vec<UniqueRule>,
    /// The response to a unique value that is taken by an item which the caller cannot read.
    pub conflict: UniqueConflict,
    pub checks: Vec<ItemCheck>,
    pub require_if_match: bool,
    pub changes: ChangeLogDetail,
    pub deprecated: Option<Deprecated>,
    /// Its former name: a migration keeps the stored items.
    pub renamed_from: Option<Box<str>>,
}

impl Resource {
    pub fn field(&self, name: &str) -> Option<(usize, &Field)> {
        self.fields.iter().enumerate().find(|(_, field)| &*field.name == name)
    }

    /// Whether one of its references has a condition.
    pub fn has_reference_rule(&self) -> bool {
        self.fields.iter().any(|field| field.rules.reference_rule.is_some())
    }

    /// The state field, if it has one; `file` allows at most one.
    pub fn state_field(&self) -> Option<(usize, &StateMachine)> {
        self.fields
            .iter()
            .enumerate()
            .find_map(|(index, field)| Some((index, field.rules.states.as_ref()?)))
    }
}

/// The id of an ancestor, as a name in a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AncestorKey {
    /// `<ancestor>_id`.
    pub name: Box<str>,
    pub id: IdKind,
}

/// A `ref` field that references a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Referrer {
    pub resource: ResourceIndex,
    pub field: usize,
    pub on_delete: OnDelete,
}

/// A rule that all values of an item have to satisfy together.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemCheck {
    pub that: Expr,
    /// The error message for clients whose item breaks the check.
    pub message: Box<str>,
}

/// Field indices whose combined values are unique, in the whole resource or within one parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueRule {
    pub fields: Vec<usize>,
    pub scope: UniqueScope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UniqueScope {
    Resource,
    Parent,
}

/// The response to a unique value that is taken by an item which the caller cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UniqueConflict {
    /// The same as to an item that the caller's roles do not allow.
    Silent,
    /// That the value is taken.
    Tell,
}

/// Which data of an item the change log stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeLogDetail {
    Values,
    Ids,
}

/// A role and its grants.
#[derive(Debug)]
pub struct Role {
    pub name: Box<str>,
    pub grants: Vec<Grant>,
    /// Whether it may read `/-/metrics`.
    pub can_read_metrics: bool,
    /// Whether it may read `/-/changes`, as far as its other grants show the items.
    pub can_read_changes: bool,
}

#[derive(Debug)]
pub struct Grant {
    pub resource: ResourceIndex,
    pub verbs: Vec<GrantVerb>,
    pub condition: Option<Expr>,
    /// The indices of the hidden fields.
    pub hide: Vec<usize>,
    pub readonly: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GrantVerb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl GrantVerb {
    /// In the order of their numbers (`as usize`).
    pub const ALL: [Self; 5] = [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete];
}
