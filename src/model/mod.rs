//! What the author declared: checked once, at start, and never wrong afterwards.
//!
//! `file` reads the TOML text and reports every mistake at once; everything behind it may rely on
//! what it promises: indices point to something, defaults fit their fields, expressions have types,
//! parents form trees, names are unique.

pub mod diff;
pub mod expr;
mod file;
mod nearest;
mod network;
mod origins;
pub mod own;
mod report;
pub mod schema;
pub mod settings;
pub mod types;

use regex::Regex;

use crate::value::{Decimal, IdKind, Value};
pub use expr::Expr;
pub use file::{read, read_shape};
pub use nearest::nearest;
pub use network::Network;
pub use report::ModelErrors;
pub use settings::ServerTable;
pub use types::FieldType;

/// Everything the author declared.
#[derive(Debug)]
pub struct Model {
    pub title: Box<str>,
    pub realms: Vec<Realm>,
    /// In the order of the file; behind them the server's own.
    pub resources: Vec<Resource>,
    /// Who may ask: one of the server's own resources.
    pub users: ResourceIndex,
    pub roles: Vec<Role>,
    pub server: ServerTable,
    /// The `[resources]` table as canonical TOML: what a database remembers of the model it holds.
    pub shape: String,
}

/// Which resource of the model: an index that `file` has checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceIndex(pub usize);

/// A protection space.
#[derive(Debug)]
pub struct Realm {
    pub name: Box<str>,
    /// In the order they are offered; not empty.
    pub schemes: Vec<Scheme>,
    /// Strongest first; not empty. Of no meaning without Digest, as all that follows.
    pub algorithms: Vec<Algorithm>,
    /// What is offered; `auth-int` is accepted all the same.
    pub qop: Vec<Qop>,
    pub challenge: ChallengeForm,
    /// Accepts proofs without `qop`, as RFC 2069 had them.
    pub legacy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Basic,
    Digest,
}

/// The hash of a Digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    Md5,
    Sha256,
}

/// What a Digest covers: the request line, or the body as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qop {
    Auth,
    AuthInt,
}

/// Whether the challenges of several algorithms share a header line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChallengeForm {
    Merged,
    Separate,
}

/// One noun.
#[derive(Debug)]
pub struct Resource {
    pub index: ResourceIndex,
    pub name: Box<str>,
    pub plural: Box<str>,
    /// Whether it is the server's own: it lives under `/-/`, and no model file speaks of it.
    pub is_own: bool,
    /// Where its items are stored.
    pub table: Box<str>,
    /// What the change log and the metrics call it.
    pub label: Box<str>,
    pub parent: Option<ResourceIndex>,
    /// What an item calls its parent's id, as a member and as a column: `<parent>_id`.
    pub parent_key: Option<Box<str>>,
    /// Resources whose parent is this one, in the order of the file.
    pub children: Vec<ResourceIndex>,
    /// Fields of any resource that refer to this one.
    pub referrers: Vec<Referrer>,
    /// How many resources its path runs through before it: 0 for a top-level one.
    pub depth: usize,
    /// What deleting the parent does to items of this resource.
    pub on_delete: OnDelete,
    pub id: IdKind,
    /// An index into `Model::realms`.
    pub realm: usize,
    pub fields: Vec<Field>,
    pub unique: Vec<Unique>,
    pub require_if_match: bool,
    pub changes: ChangesKept,
    pub deprecated: Option<Deprecated>,
}

/// A `ref` field that points to a resource.
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

/// Field indices whose values together occur once, in the whole resource or within one parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unique {
    pub fields: Vec<usize>,
    pub scope: UniqueScope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UniqueScope {
    Resource,
    Parent,
}

/// What the change log keeps of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangesKept {
    Values,
    Ids,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deprecated {
    pub since: Box<str>,
    pub sunset: Option<Box<str>>,
    pub use_instead: Option<Box<str>>,
}

/// One part of an item, or of an object inside one.
#[derive(Debug)]
pub struct Field {
    pub name: Box<str>,
    pub kind: &'static dyn FieldType,
    pub required: bool,
    pub nullable: bool,
    pub filter: bool,
    /// Never shown, and kept where a PUT leaves it out.
    pub secret: bool,
    /// As it was created, for as long as the item lives.
    pub fixed: bool,
    pub default: Option<Value>,
    pub computed: Option<Expr>,
    pub rules: Rules,
    pub deprecated: Option<Deprecated>,
}

/// The constraints of a field; those that do not fit its type are never set.
#[derive(Debug, Default)]
pub struct Rules {
    pub min: Option<Bound>,
    pub max: Option<Bound>,
    pub min_length: Option<usize>,
    pub max_length: Option<usize>,
    pub pattern: Option<Regex>,
    pub one_of: Vec<Value>,
    pub min_items: Option<usize>,
    pub max_items: Option<usize>,
    /// Decimals of a `decimal`.
    pub scale: u8,
    /// What a `ref` points to.
    pub to: Option<Target>,
    pub states: Option<States>,
    /// What a `list` is made of.
    pub of: Option<Box<Field>>,
    /// What an `object` is made of.
    pub fields: Vec<Field>,
}

/// Where a `ref` points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub resource: ResourceIndex,
    /// The kind of id the target has.
    pub id: IdKind,
    pub on_delete: OnDelete,
}

/// A limit in the field's own type.
#[derive(Debug, Clone, PartialEq)]
pub enum Bound {
    Integer(i64),
    Number(f64),
    Decimal(Decimal),
    /// Dates and timestamps, in the one spelling that sorts.
    Text(Box<str>),
}

/// A declared state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct States {
    pub initial: Box<str>,
    /// Each state with those that may follow it.
    pub next: Vec<(Box<str>, Vec<Box<str>>)>,
}

impl States {
    pub fn allowed(&self, from: &str) -> &[Box<str>] {
        self.next.iter().find(|(state, _)| &**state == from).map_or(&[], |(_, next)| next)
    }
}

/// A role and what it may do.
#[derive(Debug)]
pub struct Role {
    pub name: Box<str>,
    pub grants: Vec<Grant>,
    /// Whether it may read `/-/metrics`.
    pub reads_metrics: bool,
}

#[derive(Debug)]
pub struct Grant {
    pub resource: ResourceIndex,
    pub verbs: Vec<Verb>,
    pub only: Option<Expr>,
    /// Field indices.
    pub hide: Vec<usize>,
    pub readonly: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// How a value is kept, whatever the engine: field types name a class, never a column type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Text,
    Integer,
    Decimal,
    Real,
    Boolean,
    Moment,
    Json,
}

impl Model {
    /// The resources of the model file.
    pub fn declared(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter().filter(|resource| !resource.is_own)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a ResourceIndex is made by model::file alone, for this model"
    )]
    pub fn resource(&self, index: ResourceIndex) -> &Resource {
        &self.resources[index.0]
    }

    /// The realm of `/` and `/-/`, as an index into `realms`: the first where nothing is said.
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

/// So many characters of a text decide its place in a list. An index holds no more of it, and a cursor
/// has to fit into an address.
pub const SORTED_CHARS_MAX: usize = 256;

impl Field {
    /// Whether a text of it has its place in a list by all of its characters.
    pub fn is_short(&self) -> bool {
        let Rules { max_length, one_of, states, to, .. } = &self.rules;
        let fits = |chars: usize| chars <= SORTED_CHARS_MAX;
        let has_short = |value: &Value| match value {
            Value::Text(text) => fits(text.chars().count()),
            _ => true,
        };
        let are_states_short =
            |states: &States| states.next.iter().all(|(state, _)| fits(state.len()));
        self.class() != Class::Text
            || to.is_some()
            || max_length.is_some_and(fits)
            || self.kind.chars_max().is_some_and(fits)
            || (!one_of.is_empty() && one_of.iter().all(has_short))
            || states.as_ref().is_some_and(are_states_short)
    }

    /// How its values are kept.
    pub fn class(&self) -> Class {
        self.kind.class(self)
    }
}

impl Resource {
    pub fn field(&self, name: &str) -> Option<(usize, &Field)> {
        self.fields.iter().enumerate().find(|(_, field)| &*field.name == name)
    }

    /// The state field, if it has one; `file` allows one at most.
    pub fn state(&self) -> Option<(usize, &States)> {
        self.fields
            .iter()
            .enumerate()
            .find_map(|(index, field)| Some((index, field.rules.states.as_ref()?)))
    }
}
