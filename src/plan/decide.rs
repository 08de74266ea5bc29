//! The decision inside a write transaction: from the stored data to a `Script`.
//!
//! Pure: the store loads the data, calls `decide` inside its transaction and runs the `Script` that it
//! returns. Steps 11 to 13 of the order of checks are here; the store itself reports only unique violations,
//! which only the database can see.

use super::admit::complete;
use super::{Action, Collection, Count, Draft, Outcome, Refusal, Values};
use crate::intent::conditions::{Conditions, Validators, Verdict};
use crate::model::{Field, Model, Resource, ResourceIndex, Unique, UniqueScope, types};
use crate::permit::{Access, Unseen};
use crate::problem::{Code, Fault};
use crate::value::{Id, Item, Moment, Value};

/// The stored data that a write depends on, as the store loaded it.
#[derive(Debug)]
pub struct Found {
    pub now: Moment,
    /// The ids for new items, one for each draft.
    pub ids: Vec<Id>,
    /// The item to replace or remove.
    pub item: Option<Item>,
    /// The item after the patch.
    pub draft: Option<Draft>,
    /// JSON pointers of references to items that do not exist.
    pub lost_references: Vec<String>,
    /// The item to remove and everything its removal cascades to, children before their parents.
    pub going: Vec<Dependent>,
    /// A resource whose items reference the item and restrict its removal.
    pub restricted_by: Option<ResourceIndex>,
}

impl Found {
    /// Before anything was loaded.
    pub fn at(now: Moment) -> Self {
        Self {
            now,
            ids: Vec::new(),
            item: None,
            draft: None,
            lost_references: Vec::new(),
            going: Vec::new(),
            restricted_by: None,
        }
    }
}

/// An item that a cascading removal deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependent {
    pub collection: Collection,
    pub id: Id,
}

/// A transaction as data: the steps, and the result when all of them have run.
#[derive(Debug, PartialEq)]
pub struct Script {
    pub steps: Vec<Step>,
    pub said: Said,
}

/// One row and its entry in the change log. `changed` has field indices in the resource's order; `root` is
/// the JSON pointer that a unique violation is reported at.
#[derive(Debug, PartialEq)]
pub enum Step {
    Insert { item: Item, root: String },
    Update { before: Item, after: Item, changed: Vec<usize>, root: String },
    Delete(Dependent),
}

/// What the items that the steps wrote become in the outcome.
#[derive(Debug, PartialEq)]
pub enum Said {
    Created(Count),
    Updated,
    /// The item does not change: no step, no new version, no entry in the change log.
    Unchanged(Item),
    Removed,
}

impl Said {
    /// `items` are the ones that the steps wrote, in order.
    pub fn outcome(self, mut items: Vec<Item>) -> Option<Outcome> {
        match self {
            Self::Created(Count::One) => items.pop().map(Outcome::Created),
            Self::Created(Count::Many) => Some(Outcome::CreatedMany(items)),
            Self::Updated => items.pop().map(Outcome::Updated),
            Self::Unchanged(item) => Some(Outcome::Updated(item)),
            Self::Removed => Some(Outcome::Removed),
        }
    }
}

pub fn decide(
    model: &Model,
    collection: &Collection,
    (action, conditions): (Action, &Conditions),
    found: Found,
) -> Result<Script, Refusal> {
    let resource = model.resource(collection.resource);
    match action {
        Action::Create { drafts, count } => {
            require(conditions, None)?;
            refuse_lost(&found.lost_references)?;
            let steps = create(resource, collection, drafts, found)?;
            Ok(Script { steps, said: Said::Created(count) })
        }
        Action::Replace { draft, .. } => {
            let stored = found.item.ok_or(Refusal::Missing)?;
            require_of(model, collection, conditions, &stored)?;
            let limits = Limits::of_stored(resource, collection, &stored);
            // A stored reference was visible when it was set; it may stay although the caller can no longer
            // see its target.
            let lost = found.lost_references.into_iter();
            let stays = |at: &String| is_unchanged(resource, limits.unseen, (&stored, &draft), at);
            let lost: Vec<_> = lost.filter(|at| !stays(at)).collect();
            refuse_lost(&lost)?;
            replace(resource, limits, (stored, draft), found.now)
        }
        // The store has turned it into a `Replace` before.
        Action::Amend { .. } => Err(Refusal::Missing),
        Action::Remove { .. } => {
            let stored = found.item.as_ref().ok_or(Refusal::Missing)?;
            require_of(model, collection, conditions, stored)?;
            if let Some(by) = found.restricted_by {
                return Err(Refusal::Referenced(Some(by)));
            }
            let steps = found.going.into_iter().map(Step::Delete).collect();
            Ok(Script { steps, said: Said::Removed })
        }
    }
}

/// Step 11, for an item that is to be changed. A caller who cannot read the item has no validators for it: no
/// tag matches, and the refusal reveals neither its version nor its date.
pub fn require_of(
    model: &Model,
    collection: &Collection,
    conditions: &Conditions,
    item: &Item,
) -> Result<(), Refusal> {
    let resource = model.resource(collection.resource);
    if resource.require_if_match && !conditions.has_if_match() {
        return Err(Refusal::Unconditional);
    }
    let is_shown = conditions.is_none() || collection.reach.shows(resource, item);
    require(conditions, is_shown.then(|| Validators::of(item)))
}

/// Step 11, for a target that may have no validators.
pub fn require(conditions: &Conditions, current: Option<Validators>) -> Result<(), Refusal> {
    match conditions.judge(current, false) {
        Verdict::Holds => Ok(()),
        Verdict::NotModified | Verdict::Fails => Err(Refusal::Unmet(current)),
    }
}

/// What the caller may do with one item.
#[derive(Clone, Copy)]
struct Limits<'a> {
    access: Option<&'a Access>,
    user: Option<&'a str>,
    /// The stored values that no answer may reveal.
    unseen: Unseen<'a>,
}

impl<'a> Limits<'a> {
    fn of(collection: &'a Collection) -> Self {
        let reach = &collection.reach;
        let unseen = Unseen::Fields(&[]);
        Self { access: reach.access(collection.resource), user: reach.user(), unseen }
    }

    fn of_stored(resource: &Resource, collection: &'a Collection, stored: &Item) -> Self {
        Self { unseen: collection.reach.unseen(resource, stored), ..Self::of(collection) }
    }

    fn hidden(self) -> &'a [usize] {
        self.access.map_or(&[], |access| &access.hidden)
    }

    /// Whether the caller may store the item with these values. `is_changed` tells whether the request sets a
    /// read-only field.
    fn check(
        self,
        resource: &Resource,
        root: &str,
        values: &[Value],
        is_changed: impl Fn(usize, &Field) -> bool + Copy,
    ) -> Result<(), Refusal> {
        let Some(access) = self.access else { return Ok(()) };
        let fields = access.readonly.iter().filter_map(|at| {
            let field = resource.fields.get(*at).filter(|field| field.computed.is_none())?;
            is_changed(*at, field).then_some(field)
        });
        let fault = |field: &Field| Fault {
            pointer: format!("{root}/{}", field.name),
            code: Code::ReadOnly,
            detail: "your roles do not let you change this".to_owned(),
        };
        let faults: Vec<Fault> = fields.map(fault).collect();
        if !faults.is_empty() {
            return Err(Refusal::ReadOnly(faults));
        }
        if access.only.is_empty() {
            return Ok(());
        }
        let open = resource.fields.iter().zip(values);
        let open: Vec<Value> =
            open.map(|(field, value)| types::unseal(field, value.clone())).collect();
        if access.holds(&open, self.user) {
            return Ok(());
        }
        Err(Refusal::Outside(self.outside(resource, root, values, is_changed)))
    }

    /// The faults of the fields that the caller has set and that one of the caller's row filters reads. None
    /// where the item could also violate a unique rule together with an item that the caller cannot see: both
    /// cases get the same answer, and faults would tell them apart.
    fn outside(
        self,
        resource: &Resource,
        root: &str,
        values: &[Value],
        is_changed: impl Fn(usize, &Field) -> bool,
    ) -> Vec<Fault> {
        let is_known = |at: usize| !self.hidden().contains(&at) && !self.unseen.contains(at);
        let is_set = |at: usize| {
            let field = resource.fields.get(at).filter(|field| field.computed.is_none());
            field.is_some_and(|field| is_changed(at, field))
        };
        let is_there =
            |at: usize| !is_known(at) || values.get(at).is_some_and(|value| !value.is_null());
        let may_clash = |unique: &Unique| {
            unique.fields.iter().all(|at| is_there(*at))
                && unique.fields.iter().any(|at| is_set(*at))
        };
        if resource.unique.iter().any(may_clash) {
            return Vec::new();
        }
        let only = self.access.map_or(&[][..], |access| &access.only);
        let fields = resource.fields.iter().enumerate();
        let named = fields.filter(|(at, _)| {
            is_known(*at) && is_set(*at) && only.iter().any(|only| only.mentions(*at))
        });
        let fault = |field: &Field| Fault {
            pointer: format!("{root}/{}", field.name),
            code: Code::Outside,
            detail: Code::Outside.meaning().to_owned(),
        };
        named.map(|(_, field)| fault(field)).collect()
    }
}

/// Whether the reference at a pointer equals the stored one. Never where the caller may not see the stored
/// value.
fn is_unchanged(
    resource: &Resource,
    unseen: Unseen<'_>,
    (stored, draft): (&Item, &Draft),
    pointer: &str,
) -> bool {
    let name = pointer.strip_prefix(&*draft.root).and_then(|rest| rest.strip_prefix('/'));
    let Some((index, _)) = name.and_then(|name| resource.field(name)) else { return false };
    if unseen.contains(index) {
        return false;
    }
    let sent = match &draft.values {
        Values::Complete(values) => values.get(index),
        Values::Partial(values) => values.get(index).and_then(Option::as_ref),
    };
    sent.is_some() && sent == stored.values.get(index)
}

fn create(
    resource: &Resource,
    collection: &Collection,
    drafts: Vec<Draft>,
    found: Found,
) -> Result<Vec<Step>, Refusal> {
    let mut steps = Vec::with_capacity(drafts.len());
    let limits = Limits::of(collection);
    for (draft, id) in drafts.into_iter().zip(found.ids) {
        let Draft { root, values, .. } = draft;
        let values = settle(resource, (&root, limits.hidden()), values, None)?;
        let is_changed = |at: usize, field: &Field| {
            let default = field.default.clone().map_or(Value::Null, types::seal);
            values.get(at) != Some(&default)
        };
        limits.check(resource, &root, &values, is_changed)?;
        // A new item starts in the initial state.
        if let Some((index, states)) = resource.state()
            && let Some(Value::Text(to)) = values.get(index)
            && *to != states.initial
        {
            return Err(Refusal::Transition {
                from: None,
                to: to.clone(),
                allowed: vec![states.initial.clone()],
            });
        }
        let parent = collection.ancestors.last().copied();
        // The timestamp inside a UUIDv7, so that sorting by `created_at` and sorting by id agree.
        let created_at = id.created_at().unwrap_or(found.now);
        let updated_at = created_at;
        steps.push(Step::Insert {
            item: Item { id, parent, created_at, updated_at, version: 1, values },
            root,
        });
    }
    Ok(steps)
}

fn replace(
    resource: &Resource,
    limits: Limits<'_>,
    (stored, draft): (Item, Draft),
    now: Moment,
) -> Result<Script, Refusal> {
    let Draft { root, values, .. } = draft;
    let sent = sent_unseen(resource, limits.unseen, &values);
    let values = settle(resource, (&root, limits.hidden()), values, Some(&stored))?;
    refuse_unfixed(resource, &root, &stored.values, &values)?;
    // A comparison with a stored value that the caller cannot see would reveal that value.
    let is_changed =
        |at: usize, _: &Field| sent.contains(&at) || values.get(at) != stored.values.get(at);
    limits.check(resource, &root, &values, is_changed)?;
    if let Some((index, states)) = resource.state()
        && let (Some(Value::Text(from)), Some(Value::Text(to))) =
            (stored.values.get(index), values.get(index))
        && from != to
        && !states.allowed(from).contains(to)
    {
        let (from, to) = (from.clone(), to.clone());
        if limits.unseen.contains(index) {
            return Err(Refusal::UnseenTransition { to });
        }
        let allowed = states.allowed(&from).to_vec();
        return Err(Refusal::Transition { from: Some(from), to, allowed });
    }
    let pairs = stored.values.iter().zip(&values).enumerate();
    let changed: Vec<usize> = pairs
        .filter(|(at, (old, new))| old != new || sent.contains(at))
        .map(|(at, _)| at)
        .collect();
    if changed.is_empty() {
        return Ok(Script { steps: Vec::new(), said: Said::Unchanged(stored) });
    }
    // If the clock was set back, an update must not look older than the version it replaces.
    let updated_at = now.max(stored.updated_at);
    let (id, parent, created_at, version) =
        (stored.id, stored.parent, stored.created_at, stored.version + 1);
    let after = Item { id, parent, created_at, updated_at, version, values };
    Ok(Script {
        steps: vec![Step::Update { before: stored, after, changed, root }],
        said: Said::Updated,
    })
}

/// The fields that were sent and that the caller cannot see, secrets included. They always count as changed:
/// an answer must not reveal whether the value is the stored one.
fn sent_unseen(resource: &Resource, unseen: Unseen<'_>, values: &Values) -> Vec<usize> {
    let is_sent = |at: usize| match values {
        Values::Complete(_) => true,
        Values::Partial(values) => values.get(at).is_some_and(Option::is_some),
    };
    let fields = resource.fields.iter().enumerate();
    let hidden = fields
        .filter(|(at, field)| field.secret || unseen.contains(*at) && field.computed.is_none());
    hidden.map(|(at, _)| at).filter(|at| is_sent(*at)).collect()
}

/// Refuses changes of fields that are fixed at creation.
fn refuse_unfixed(
    resource: &Resource,
    root: &str,
    stored: &[Value],
    values: &[Value],
) -> Result<(), Refusal> {
    let fields = resource.fields.iter().zip(stored.iter().zip(values));
    let other = fields.filter(|(field, (old, new))| field.fixed && old != new);
    let fault = |field: &Field| Fault {
        pointer: format!("{root}/{}", field.name),
        code: Code::ReadOnly,
        detail: format!("a {} keeps its {}", resource.name, field.name),
    };
    let faults: Vec<Fault> = other.map(|(field, _)| fault(field)).collect();
    if faults.is_empty() { Ok(()) } else { Err(Refusal::Invalid(faults)) }
}

/// The complete values as they will be stored: fields that were left out keep their stored value.
fn settle(
    resource: &Resource,
    place: (&str, &[usize]),
    values: Values,
    stored: Option<&Item>,
) -> Result<Vec<Value>, Refusal> {
    let values = match values {
        Values::Complete(values) => return Ok(values),
        Values::Partial(values) => values,
    };
    let stays = |index: usize| {
        stored.and_then(|item| item.values.get(index)).cloned().unwrap_or(Value::Null)
    };
    let whole = values.into_iter().zip(&resource.fields).enumerate();
    let whole = whole
        .map(|(index, (value, field))| value.unwrap_or_else(|| types::unseal(field, stays(index))));
    complete(resource, place, whole.collect()).map_err(Refusal::Invalid)
}

fn refuse_lost(pointers: &[String]) -> Result<(), Refusal> {
    if pointers.is_empty() { Ok(()) } else { Err(Refusal::Invalid(lost(pointers))) }
}

/// The faults of references to items that do not exist.
pub fn lost(pointers: &[String]) -> Vec<Fault> {
    let fault = |pointer: &String| Fault {
        pointer: pointer.clone(),
        code: Code::Reference,
        detail: "no such item".to_owned(),
    };
    pointers.iter().map(fault).collect()
}

/// The refusal for unique rules that other items' values violate. It does not name hidden fields.
pub fn taken(resource: &Resource, rules: &[&Unique], (root, hidden): (&str, &[usize])) -> Refusal {
    let faults = rules.iter().flat_map(|unique| taken_by(resource, unique, (root, hidden)));
    Refusal::Taken(faults.collect())
}

fn taken_by(resource: &Resource, unique: &Unique, (root, hidden): (&str, &[usize])) -> Vec<Fault> {
    let within = match unique.scope {
        UniqueScope::Resource => "",
        UniqueScope::Parent => " under the same parent",
    };
    let together = if unique.fields.len() > 1 { "these values together" } else { "this value" };
    let fields = unique.fields.iter().filter(|index| !hidden.contains(index));
    let fields = fields.filter_map(|index| resource.fields.get(*index));
    let fault = |name: &str| Fault {
        pointer: format!("{root}/{name}"),
        code: Code::Taken,
        detail: format!("another {} has {together}{within}", resource.name),
    };
    fields.map(|field| fault(&field.name)).collect()
}
