//! The model: everything the author declared, validated once at startup.
//!
//! `file` reads the TOML text and reports all mistakes together; all other modules rely on its guarantees:
//! indices are valid, defaults fit their fields, expressions are type-checked, parents form trees, names are
//! unique.

pub mod diff;
pub mod expr;
mod file;
mod nearest;
mod ip_network;
mod cors_origins;
pub mod builtin;
mod report;
pub mod schema;
pub mod settings;
pub mod types;

use regex::Regex;

use crate::value::{Decimal, IdKind, Value};
pub use expr::Expr;
pub use file::{read, read_shape};
pub use ip_network::Network;
pub use nearest::nearest;
pub use report::ModelErrors;
pub use settings::ServerTable;
pub use types::FieldType;

/// Everything the author declared.
#[derive(Debug)]
pub struct Model {
    pub title: Box<str>,
    pub realms: Vec<Realm>,
    /// In file order; after them the built-in ones.
    pub resources: Vec<Resource>,
    /// The built-in resource of the users.
    pub users: ResourceIndex,
    pub roles: Vec<Role>,
    pub server: ServerTable,
    /// The `[resources]` table as canonical TOML, which the database stores to detect changes of the model.
    pub shape: String,
}

/// The index of a resource; `file` guarantees that it is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceIndex(pub usize);

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
    /// The table of its items.
    pub table: Box<str>,
    /// Its name in the change log and the metrics.
    pub label: Box<str>,
    pub parent: Option<ResourceIndex>,
    /// The name of the parent's id, as a member and as a column: `<parent>_id`.
    pub parent_key: Option<Box<str>>,
    /// Resources whose parent is this one, in file order.
    pub children: Vec<ResourceIndex>,
    /// Fields of any resource that reference this one.
    pub referrers: Vec<Referrer>,
    /// The number of ancestors: 0 for a top-level resource.
    pub depth: usize,
    /// The effect of deleting the parent on items of this resource.
    pub on_delete: OnDelete,
    pub id: IdKind,
    /// An index into `Model::realms`.
    pub realm: usize,
    pub fields: Vec<Field>,
    pub unique: Vec<UniqueRule>,
    pub require_if_match: bool,
    pub changes: ChangeLogDetail,
    pub deprecated: Option<Deprecated>,
}

/// A `ref` field that references a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Referrer {
    pub resource: ResourceIndex,
    pub field: usize,
    pub on_delete: OnDelete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDelete {
    Restrict,
    Cascade,
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

/// Which data of an item the change log stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeLogDetail {
    Values,
    Ids,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deprecated {
    pub since: Box<str>,
    pub sunset: Option<Box<str>>,
    pub use_instead: Option<Box<str>>,
}

/// A field of a resource, or of an object.
#[derive(Debug)]
pub struct Field {
    pub name: Box<str>,
    pub kind: &'static dyn FieldType,
    pub required: bool,
    pub nullable: bool,
    pub filter: bool,
    /// Never shown; keeps its value if a PUT leaves it out.
    pub secret: bool,
    /// Cannot be changed after creation.
    pub fixed: bool,
    pub default: Option<Value>,
    pub computed: Option<Expr>,
    pub rules: FieldRules,
    pub deprecated: Option<Deprecated>,
}

/// The constraints of a field; those that its type does not allow are never set.
#[derive(Debug, Default)]
pub struct FieldRules {
    pub min: Option<ValueBound>,
    pub max: Option<ValueBound>,
    pub min_length: Option<usize>,
    pub max_length: Option<usize>,
    pub pattern: Option<Regex>,
    pub one_of: Vec<Value>,
    pub min_items: Option<usize>,
    pub max_items: Option<usize>,
    /// Decimal places of a `decimal`.
    pub scale: u8,
    /// The target of a `ref` field.
    pub reference: Option<ReferenceTarget>,
    pub states: Option<StateMachine>,
    /// The element of a `list`.
    pub element: Option<Box<Field>>,
    /// The fields of an `object`.
    pub fields: Vec<Field>,
}

/// The resource that a `ref` field references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReferenceTarget {
    pub resource: ResourceIndex,
    /// The kind of id of that resource.
    pub id: IdKind,
    pub on_delete: OnDelete,
}

/// A `min` or `max` in the field's own type.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueBound {
    Integer(i64),
    Number(f64),
    Decimal(Decimal),
    /// Dates and timestamps, in the canonical spelling, which sorts.
    Text(Box<str>),
}

/// A declared state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateMachine {
    pub initial: Box<str>,
    /// Each state with its allowed successors.
    pub next: Vec<(Box<str>, Vec<Box<str>>)>,
}

impl StateMachine {
    pub fn successors(&self, from: &str) -> &[Box<str>] {
        self.next.iter().find(|(state, _)| &**state == from).map_or(&[], |(_, next)| next)
    }
}

/// A role and its grants.
#[derive(Debug)]
pub struct Role {
    pub name: Box<str>,
    pub grants: Vec<Grant>,
    /// Whether it may read `/-/metrics`.
    pub can_read_metrics: bool,
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

/// The storage class of a value, independent of the database: field types name a class, never a column type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageClass {
    Text,
    Integer,
    Decimal,
    Real,
    Boolean,
    Moment,
    Json,
}

impl Model {
    /// The resources of the model file, without the built-in ones.
    pub fn declared(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter().filter(|resource| !resource.is_builtin)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a ResourceIndex is made by model::file alone, for this model"
    )]
    pub fn resource(&self, index: ResourceIndex) -> &Resource {
        &self.resources[index.0]
    }

    /// The realm of `/` and `/-/`, as an index into `realms`; by default the first.
    pub fn server_realm(&self) -> usize {
        let named = self.server.realm.as_deref();
        self.realms.iter().position(|realm| Some(&*realm.name) == named).unwrap_or(0)
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

/// Texts are sorted by this many characters. An index contains no more of a text, and a cursor has to fit
/// into a URL.
pub const SORTED_CHARS_MAX: usize = 256;

impl Field {
    /// Whether its texts are short enough to be sorted as a whole.
    pub fn is_sorted_whole(&self) -> bool {
        let FieldRules { max_length, one_of, states, reference: to, .. } = &self.rules;
        let fits = |chars: usize| chars <= SORTED_CHARS_MAX;
        let has_short = |value: &Value| match value {
            Value::Text(text) => fits(text.chars().count()),
            _ => true,
        };
        let are_states_short =
            |states: &StateMachine| states.next.iter().all(|(state, _)| fits(state.len()));
        self.storage_class() != StorageClass::Text
            || to.is_some()
            || max_length.is_some_and(fits)
            || self.kind.chars_max().is_some_and(fits)
            || (!one_of.is_empty() && one_of.iter().all(has_short))
            || states.as_ref().is_some_and(are_states_short)
    }

    /// The storage class of its values.
    pub fn storage_class(&self) -> StorageClass {
        self.kind.class(self)
    }
}

impl Resource {
    pub fn field(&self, name: &str) -> Option<(usize, &Field)> {
        self.fields.iter().enumerate().find(|(_, field)| &*field.name == name)
    }

    /// The state field, if it has one; `file` allows at most one.
    pub fn state_field(&self) -> Option<(usize, &StateMachine)> {
        self.fields
            .iter()
            .enumerate()
            .find_map(|(index, field)| Some((index, field.rules.states.as_ref()?)))
    }
}
