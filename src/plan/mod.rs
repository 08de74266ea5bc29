//! Stage 2, decide: the plan of a request, as data, before any I/O.
//!
//! Pure. `make` decides everything that does not depend on stored data; `decide`, a pure function that the
//! store calls inside its transaction, decides the rest and returns a `Script`: the transaction as data. A
//! plan owns its values, so that it can be sent to another thread.

mod admit;
pub mod decide;
mod mandate;
mod once;
mod patched;
mod refusal;
mod secrets;

pub use admit::{Draft, Reference, Values};
pub use decide::{Dependent, Found, Step, decide};
pub use mandate::{Grantee, Mandate};
pub use once::{Once, Said, Says};
pub use patched::patched;
pub use refusal::Refusal;

use std::sync::Arc;

use crate::intent::conditions::Conditions;
use crate::intent::{Address, Bodies, Body, Ids, Intent, List, Members, Patch, Place};
use crate::model::{Model, ResourceIndex, Verb};
use crate::permit::{Caller, Reach};
use crate::problem::{self, Code, Fault, Kind, Problem};
use crate::value::{Id, Item, Page};
use admit::{Aim, FieldRights, Sent};

/// What the server will do for a request.
#[derive(Debug)]
pub enum Plan {
    /// Needs no stored data.
    Say(Saying),
    /// The metrics; of the store it reads only the bounds of the change log.
    Measure,
    Read(Read),
    /// Boxed, since it is large and moved often.
    Write(Box<Write>),
}

impl Plan {
    /// The collection it reads or writes, if any.
    pub fn about(&self) -> Option<&Collection> {
        match self {
            Self::Say(_) | Self::Measure => None,
            Self::Read(Read::Ready | Read::Positions | Read::User(_) | Read::UsersStamp) => None,
            Self::Read(Read::Item(collection, ..) | Read::Page(collection, _)) => Some(collection),
            Self::Read(Read::Kept(_)) => None,
            Self::Read(Read::Refuse(refuse)) => Some(&refuse.collection),
            Self::Write(write) => Some(&write.collection),
        }
    }

    /// The list query it reads, if any; for one item, the selection of its members.
    pub fn list(&self) -> Option<&Arc<List>> {
        match self {
            Self::Read(Read::Page(_, list)) => Some(list),
            Self::Read(Read::Item(_, _, selection)) => selection.as_ref(),
            Self::Say(_) | Self::Measure | Self::Read(_) | Self::Write(_) => None,
        }
    }

    /// Adds preconditions. The store evaluates those of a write; those of a read are evaluated when the item
    /// is known.
    pub fn only_if(mut self, conditions: &Conditions) -> Self {
        match &mut self {
            Self::Write(write) => conditions.clone_into(&mut write.conditions),
            Self::Read(Read::Refuse(refuse)) => conditions.clone_into(&mut refuse.conditions),
            Self::Read(Read::Page(_, list)) => {
                conditions.clone_into(&mut Arc::make_mut(list).conditions);
            }
            Self::Say(_) | Self::Measure | Self::Read(_) => {}
        }
        self
    }
}

/// What the server can answer from the model alone.
#[derive(Debug)]
pub enum Saying {
    /// The resources that this caller may access.
    Home(Reach),
    Health,
    Explain(&'static Kind),
    Options(Place),
}

#[derive(Debug)]
pub enum Read {
    /// Whether the store can serve requests.
    Ready,
    /// The bounds of the change log.
    Positions,
    /// A user by name, with the password hash.
    User(Box<str>),
    /// A number that changes with every change of the users.
    UsersStamp,
    /// The stored response of an idempotent request.
    Kept(Box<Once>),
    /// With a list query if only some of the members are shown.
    Item(Collection, Id, Option<Arc<List>>),
    Page(Collection, Arc<List>),
    /// The body has faults, but 404 comes before 422 in the order of checks.
    Refuse(Box<Refuse>),
}

impl Read {
    /// Whether it may scan a whole table, so that its duration has no useful bound.
    pub fn is_wide(&self) -> bool {
        matches!(self, Self::Page(_, list) if !list.is_plain() || list.is_counted)
    }

    /// Whether it reads one or two rows by their keys, so that it can share a pipelined connection without
    /// much head-of-line blocking. Health checks get a connection of their own.
    pub fn is_small(&self) -> bool {
        match self {
            Self::Ready | Self::Positions | Self::Page(..) | Self::Refuse(_) => false,
            Self::User(_) | Self::UsersStamp | Self::Kept(_) | Self::Item(..) => true,
        }
    }
}

/// A write that is refused because its body has faults.
#[derive(Debug)]
pub struct Refuse {
    pub collection: Collection,
    pub item: Option<Id>,
    pub references: Vec<Reference>,
    pub faults: Vec<Fault>,
    pub conditions: Conditions,
}

/// The items of a resource under one parent, within the caller's access scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    pub resource: ResourceIndex,
    /// The ids of the items in the path, the top-level one first.
    pub ancestors: Vec<Id>,
    pub reach: Reach,
}

impl Collection {
    /// A hash of the hidden fields, part of the entity tag, since hidden fields change the bytes of an item.
    /// Responses show what GET shows, so they have the tags of GET.
    pub fn mark(&self) -> u32 {
        self.reach.read_access(self.resource).map_or(0, |access| access.mark)
    }
}

/// One transaction that may change something.
#[derive(Debug, Clone)]
pub struct Write {
    pub collection: Collection,
    pub action: Action,
    /// The preconditions that the item must meet.
    pub conditions: Conditions,
    pub by: By,
    /// Set for a request with an `Idempotency-Key`.
    pub once: Option<Box<Once>>,
    /// Whether it may remove the last administrator.
    pub is_forced: bool,
    /// `None`: the write needs no user's rights, or the rights cannot be revoked.
    pub mandate: Option<Mandate>,
}

impl Write {
    /// An unconditional write without an idempotency key, whose rights are not checked again.
    pub fn new(collection: Collection, action: Action, by: By) -> Write {
        let conditions = Conditions::default();
        Write { collection, action, conditions, by, once: None, is_forced: false, mandate: None }
    }
}

/// Who made a change, as the change log records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    pub actor: Box<str>,
    pub request_id: Box<str>,
}

#[derive(Debug, Clone)]
pub enum Action {
    Create {
        drafts: Vec<Draft>,
        count: Count,
    },
    Replace {
        id: Id,
        draft: Draft,
    },
    /// The store turns it into a `Replace` once the item is known.
    Amend {
        id: Id,
        patch: Patch,
    },
    Remove {
        id: Id,
        dependents_max: usize,
    },
}

/// Whether the client sent one item or a list; the response has the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    One,
    Many,
}

/// What the store did or found.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    Ready,
    Positions(Positions),
    User(Option<Item>),
    Stamp(i64),
    Item(Item),
    Page(Page),
    Created(Item),
    CreatedMany(Vec<Item>),
    Updated(Item),
    Amended(Item),
    Removed,
    /// The response of an idempotent write, replayed or just stored.
    Said(Said),
}

/// The sequence numbers of the first and the last entry of the change log; `None` when it is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions {
    pub oldest: Option<i64>,
    pub newest: Option<i64>,
}

/// Serializing more than this would delay the other connections of the worker thread noticeably.
const LARGE_BYTES: usize = 256 << 10;

impl Outcome {
    /// Whether the response should be serialized on a blocking thread instead of the worker thread.
    pub fn is_large(&self) -> bool {
        self.items().iter().map(Item::bytes).sum::<usize>() >= LARGE_BYTES
    }

    /// The items in it.
    pub fn items(&self) -> &[Item] {
        match self {
            Self::Item(item) | Self::Created(item) | Self::Updated(item) | Self::Amended(item) => {
                std::slice::from_ref(item)
            }
            Self::Page(page) => &page.items,
            Self::CreatedMany(items) => items,
            Self::Ready | Self::Positions(_) | Self::Removed | Self::Said(_) => &[],
            // Internal: never sent to a client.
            Self::User(_) | Self::Stamp(_) => &[],
        }
    }
}

/// Turns an intent into a plan. The only problem it reports is 404, for an item that cannot exist. It calls
/// `by` only for a write.
pub fn make(
    model: &Model,
    intent: Intent<'_>,
    caller: &Caller,
    by: impl FnOnce() -> By,
) -> Result<Plan, Problem> {
    crate::fault::point("plan");
    let collection = |address, verb| collection(model, address, Reach::of(caller, verb));
    let item = |address, verb| {
        let (collection, item) = collection(address, verb)?;
        Ok::<_, Problem>((collection, item.ok_or_else(|| Problem::new(&problem::NOT_FOUND))?))
    };
    Ok(match intent {
        Intent::Home => Plan::Say(Saying::Home(Reach::of(caller, Verb::Get))),
        Intent::Health => Plan::Say(Saying::Health),
        Intent::Explain(kind) => Plan::Say(Saying::Explain(kind)),
        Intent::Options(place) => Plan::Say(Saying::Options(place)),
        Intent::Metrics => Plan::Measure,
        Intent::Ready => Plan::Read(Read::Ready),
        Intent::Show(address, selection) => {
            let (collection, id) = item(address, Verb::Get)?;
            Plan::Read(Read::Item(collection, id, selection))
        }
        Intent::List(address, list) => {
            Plan::Read(Read::Page(collection(address, Verb::Get)?.0, list))
        }
        Intent::Create(address, bodies) => {
            create(model, collection(address, Verb::Post)?.0, bodies, by())
        }
        Intent::Replace(address, body) => {
            let (collection, id) = item(address, Verb::Put)?;
            replace(model, collection, id, body, by())
        }
        Intent::Amend(address, patch) => {
            let (collection, id) = item(address, Verb::Patch)?;
            let action = Action::Amend { id, patch };
            Plan::Write(Box::new(Write::new(collection, action, by())))
        }
        Intent::Remove(address) => {
            let (collection, id) = item(address, Verb::Delete)?;
            let action =
                Action::Remove { id, dependents_max: model.server.limits.cascade_items_max };
            Plan::Write(Box::new(Write::new(collection, action, by())))
        }
    })
}

fn create(model: &Model, collection: Collection, bodies: Bodies<'_>, by: By) -> Plan {
    let access = collection.reach.access(collection.resource);
    let admit = |root: String, members: Members<'_>| {
        let parent = collection.ancestors.last().copied();
        admit::admit(
            model.resource(collection.resource),
            Sent { root, parent, members },
            Aim::Create,
            FieldRights { access, unseen: &[] },
        )
    };
    let (count, admitted) = match bodies {
        Bodies::One(Body { wrapper, members }) => {
            (Count::One, vec![admit(["/", wrapper].concat(), members)])
        }
        Bodies::Many(wrapper, list) if list.is_empty() => {
            let detail = "expected at least one item, got none".to_owned();
            let fault = Fault { pointer: format!("/{wrapper}"), code: Code::Items, detail };
            return refuse(collection, None, Vec::new(), vec![fault]);
        }
        Bodies::Many(wrapper, list) => {
            let list = list.into_iter().enumerate();
            (
                Count::Many,
                list.map(|(at, members)| admit(format!("/{wrapper}/{at}"), members)).collect(),
            )
        }
    };
    let mut faults = Vec::new();
    let mut drafts = Vec::with_capacity(admitted.len());
    for (draft, found) in admitted {
        faults.extend(found);
        drafts.push(draft);
    }
    if faults.is_empty() {
        let action = Action::Create { drafts, count };
        return Plan::Write(Box::new(Write::new(collection, action, by)));
    }
    refuse(collection, None, drafts, faults)
}

fn replace(model: &Model, collection: Collection, id: Id, body: Body<'_>, by: By) -> Plan {
    let parent = collection.ancestors.last().copied();
    let sent = Sent { root: format!("/{}", body.wrapper), parent, members: body.members };
    let access = collection.reach.access(collection.resource);
    let rights =
        FieldRights { access, unseen: collection.reach.unseen_fields(collection.resource) };
    let resource = model.resource(collection.resource);
    let (draft, faults) = admit::admit(resource, sent, Aim::Replace(id), rights);
    if faults.is_empty() {
        let action = Action::Replace { id, draft };
        Plan::Write(Box::new(Write::new(collection, action, by)))
    } else {
        refuse(collection, Some(id), vec![draft], faults)
    }
}

fn refuse(
    collection: Collection,
    item: Option<Id>,
    drafts: Vec<Draft>,
    faults: Vec<Fault>,
) -> Plan {
    let references = drafts.into_iter().flat_map(|draft| draft.references).collect();
    let conditions = Conditions::default();
    let refuse = Refuse { collection, item, references, faults, conditions };
    Plan::Read(Read::Refuse(Box::new(refuse)))
}

/// Step 10, as far as the path alone tells: a segment that cannot be an id is 404, and so is everything below
/// a resource that the caller cannot read at all.
fn collection(
    model: &Model,
    address: Address,
    reach: Reach,
) -> Result<(Collection, Option<Id>), Problem> {
    let Address { resource, ids } = address;
    let ids = ids.filter(|_| reach.leads_to(model, resource));
    let Ids { ancestors, item } = ids.ok_or_else(|| Problem::new(&problem::NOT_FOUND))?;
    Ok((Collection { resource, ancestors, reach }, item))
}

#[cfg(test)]
mod tests;
