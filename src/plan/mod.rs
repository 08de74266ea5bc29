//! 2, decided: what a request will do, as data, before anything is touched.
//!
//! Pure. `make` decides all that does not depend on stored data; what does is decided by
//! `decide`, a pure function that the store calls inside its transaction, and which answers with a
//! `Script`: the transaction as data. A plan holds owned values only, so that it can change threads.

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

/// What is to be done.
#[derive(Debug)]
pub enum Plan {
    /// Nothing stored is needed.
    Say(Saying),
    /// What was counted: of the store, only how far its change log goes.
    Measure,
    Read(Read),
    /// In a box, since it goes through many hands.
    Write(Box<Write>),
}

impl Plan {
    /// The collection it is about, if any.
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

    /// The list it reads, if any; of an item, what is to be shown of it.
    pub fn list(&self) -> Option<&Arc<List>> {
        match self {
            Self::Read(Read::Page(_, list)) => Some(list),
            Self::Read(Read::Item(_, _, selection)) => selection.as_ref(),
            Self::Say(_) | Self::Measure | Self::Read(_) | Self::Write(_) => None,
        }
    }

    /// The same, as long as these hold; what is only read is held against them when it is there.
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

/// What can be said from the model alone.
#[derive(Debug)]
pub enum Saying {
    /// Of what this caller knows.
    Home(Reach),
    Health,
    Explain(&'static Kind),
    Options(Place),
}

#[derive(Debug)]
pub enum Read {
    /// Can the store serve?
    Ready,
    /// How far does the change log go?
    Positions,
    /// A user by name, with the secret.
    User(Box<str>),
    /// A number that is another one after every change of the users.
    UsersStamp,
    /// What was said to this request before.
    Kept(Box<Once>),
    /// A list, where only some of its members are shown.
    Item(Collection, Id, Option<Arc<List>>),
    Page(Collection, Arc<List>),
    /// The body has faults, but a missing item comes first in the order of checks.
    Refuse(Box<Refuse>),
}

impl Read {
    /// Whether it may look at every row there is: nobody knows how long it takes.
    pub fn is_wide(&self) -> bool {
        matches!(self, Self::Page(_, list) if !list.is_plain() || list.is_counted)
    }

    /// Whether it looks at a row or two, found by their keys: others may wait for it. Those who look after
    /// the server wait for nobody.
    pub fn is_small(&self) -> bool {
        match self {
            Self::Ready | Self::Positions | Self::Page(..) | Self::Refuse(_) => false,
            Self::User(_) | Self::UsersStamp | Self::Kept(_) | Self::Item(..) => true,
        }
    }
}

/// A write that will not happen.
#[derive(Debug)]
pub struct Refuse {
    pub collection: Collection,
    pub item: Option<Id>,
    pub references: Vec<Reference>,
    pub faults: Vec<Fault>,
    pub conditions: Conditions,
}

/// The items of a resource under one parent, as far as the caller reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    pub resource: ResourceIndex,
    /// The ids of the items the path runs through, the top-level one first.
    pub ancestors: Vec<Id>,
    pub reach: Reach,
}

impl Collection {
    /// What is hidden changes the bytes of an item, and this tells it. Answers show what GET shows, so they
    /// have the tags of GET.
    pub fn mark(&self) -> u32 {
        self.reach.read_access(self.resource).map_or(0, |access| access.mark)
    }
}

/// One transaction that may change something.
#[derive(Debug, Clone)]
pub struct Write {
    pub collection: Collection,
    pub action: Action,
    /// What must be true of the item for it to be done.
    pub conditions: Conditions,
    pub by: By,
    /// It may be sent again, and is then done once.
    pub once: Option<Box<Once>>,
    /// It may take the last admin away.
    pub is_forced: bool,
    /// None: it needs nobody's rights, or nobody can take them away.
    pub mandate: Option<Mandate>,
}

impl Write {
    /// An unconditional write without an idempotency key, whose rights are not checked again.
    pub fn new(collection: Collection, action: Action, by: By) -> Write {
        let conditions = Conditions::default();
        Write { collection, action, conditions, by, once: None, is_forced: false, mandate: None }
    }
}

/// Who asked for a change, as the change log keeps it.
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
    /// Becomes a `Replace` once the item is known.
    Amend {
        id: Id,
        patch: Patch,
    },
    Remove {
        id: Id,
        dependents_max: usize,
    },
}

/// Whether the client spoke of one item or of a list; the answer has the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    One,
    Many,
}

/// What was done or found.
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
    /// Of a write that may be sent again: the answer itself.
    Said(Said),
}

/// The first and the last entry of the change log, by number; none when it is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions {
    pub oldest: Option<i64>,
    pub newest: Option<i64>,
}

/// More than this in an answer takes long enough to write to be noticed by others.
const LARGE_BYTES: usize = 256 << 10;

impl Outcome {
    /// Whether it is better written beside the thread that serves.
    pub fn is_large(&self) -> bool {
        self.items().iter().map(Item::bytes).sum::<usize>() >= LARGE_BYTES
    }

    /// The items it speaks of.
    pub fn items(&self) -> &[Item] {
        match self {
            Self::Item(item) | Self::Created(item) | Self::Updated(item) | Self::Amended(item) => {
                std::slice::from_ref(item)
            }
            Self::Page(page) => &page.items,
            Self::CreatedMany(items) => items,
            Self::Ready | Self::Positions(_) | Self::Removed | Self::Said(_) => &[],
            // Not for clients.
            Self::User(_) | Self::Stamp(_) => &[],
        }
    }
}

/// Turns an intent into a plan. The one problem it can see by itself is an item that cannot be there.
/// `by` is asked only for a write.
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

/// Step 10, as far as the path alone tells: what cannot be an id names nothing, and nothing is there
/// below what the caller cannot see at all.
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
