//! The decision inside a write transaction: from the stored data to a `Script`.
//!
//! Pure: the store loads the data, calls `decide` inside its transaction and runs the `Script` that it
//! returns. Steps 11 to 13 of the order of checks are here; the store itself reports only unique violations,
//! which only the database can see.

use super::builtin_rules::{self, BuiltinWrite};
use super::collection::Collection;
use super::defaults::{DefaultInputs, complete_new_values, user_value, uuids_per_item};
use super::item_rights::{ItemRights, RowChange};
use super::outcome::{Outcome, RequestRefusal};
use super::reference_rules::reference_faults;
use super::stored_faults::refuse_dangling;
use super::stored_state::{Dependent, ReferencesToClear, StoredState};
use super::validate::{DraftValues, ItemDraft, SET_BY_SERVER, complete_values};
use super::write_plan::{Cardinality, WriteAction};
use crate::fault::OrBug;
use crate::intent::preconditions::{PreconditionResult, Preconditions, Validators};
use crate::model::expr::{RowVersion, UserValues};
use crate::model::{AuditedUser, Field, Model, Resource, types};
use crate::permit::{FactReader, StoredRow, UnreadableFields};
use crate::problem::{FaultCode, FieldFault};
use crate::value::{Id, Item, Moment, Value};

/// A transaction as data: the steps, and the result when all of them have run.
#[derive(Debug, PartialEq)]
pub struct Script {
    pub steps: Vec<ScriptStep>,
    pub result: ScriptResult,
}

/// One row and its entry in the change log. `changed` has field indices in the resource's order; `root` is
/// the JSON pointer that a unique violation is reported at.
#[derive(Debug, PartialEq)]
pub enum ScriptStep {
    Insert {
        item: Item,
        root: String,
    },
    Update {
        before: Item,
        after: Item,
        changed: Vec<usize>,
        root: String,
    },
    /// Updates an item that refers to items which later steps delete.
    ClearReferences(ReferencesToClear),
    Delete(Dependent),
}

/// How the items that the steps wrote become the outcome.
#[derive(Debug, PartialEq)]
pub enum ScriptResult {
    Created(Cardinality),
    Updated,
    /// The item does not change: no step, no new version, no entry in the change log.
    Unchanged(Item),
    Removed,
}

impl ScriptResult {
    /// `items` are the ones that the steps wrote, in order.
    pub fn into_outcome(self, mut items: Vec<Item>) -> Option<Outcome> {
        match self {
            Self::Created(Cardinality::One) => items.pop().map(Outcome::Created),
            Self::Created(Cardinality::Many) => Some(Outcome::CreatedMany(items)),
            Self::Updated => items.pop().map(Outcome::Updated),
            Self::Unchanged(item) => Some(Outcome::Updated(item)),
            Self::Removed => Some(Outcome::Removed),
        }
    }
}

/// A write request and the user who sends it.
#[derive(Debug, Clone, Copy)]
pub struct WriteRequest<'a> {
    pub action: &'a WriteAction,
    pub conditions: &'a Preconditions,
    pub user: UserValues<'a>,
}

pub fn decide(
    facts: &FactReader<'_>,
    collection: &Collection,
    request: WriteRequest<'_>,
    mut found: StoredState,
) -> Result<Script, RequestRefusal> {
    let WriteRequest { action, conditions, user } = request;
    match action {
        WriteAction::Create { drafts, count } => {
            check_preconditions(conditions, None)?;
            refuse_dangling(&found.dangling_references)?;
            let steps = create(facts, collection, (drafts, user), found)?;
            Ok(Script { steps, result: ScriptResult::Created(*count) })
        }
        WriteAction::Replace { draft, .. } => {
            let found = Replacement { draft, user: user.name, found };
            decide_replace(facts, collection, conditions, found)
        }
        WriteAction::Patch { .. } if found.item.is_none() => Err(RequestRefusal::Missing),
        // A patched item is written as a replacement.
        WriteAction::Patch { .. } => {
            let draft = found.draft.take();
            let draft = draft.or_bug("a patch of a stored item was not applied before");
            let found = Replacement { draft: &draft, user: user.name, found };
            decide_replace(facts, collection, conditions, found)
        }
        WriteAction::Remove { .. } => {
            let stored = found.item.as_ref().ok_or(RequestRefusal::Missing)?;
            check_item_preconditions(collection, conditions, stored, facts)?;
            if let Some(by) = found.restricted_by {
                return Err(RequestRefusal::Referenced(Some(by)));
            }
            let cleared = found.references_to_clear.into_iter().map(ScriptStep::ClearReferences);
            let deleted = found.items_to_delete.into_iter().map(ScriptStep::Delete);
            let steps = cleared.chain(deleted).collect();
            Ok(Script { steps, result: ScriptResult::Removed })
        }
    }
}

/// A replacement of a stored item.
struct Replacement<'a> {
    draft: &'a ItemDraft,
    user: Option<&'a str>,
    found: StoredState,
}

fn decide_replace(
    facts: &FactReader<'_>,
    collection: &Collection,
    conditions: &Preconditions,
    Replacement { draft, user, found }: Replacement<'_>,
) -> Result<Script, RequestRefusal> {
    let model = facts.model();
    let resource = model.resource(collection.resource);
    let stored = found.item.ok_or(RequestRefusal::Missing)?;
    check_item_preconditions(collection, conditions, &stored, facts)?;
    let rights = ItemRights::for_stored(resource, collection, &stored, facts);
    refuse_dangling(&found.dangling_references)?;
    replace((model, resource), rights, (stored, draft), (user, found.now))
}

/// Step 11, for an item that is to be changed. A caller who cannot read the item has no validators for it: no
/// tag matches, and the refusal reveals neither its version nor its date.
pub fn check_item_preconditions(
    collection: &Collection,
    conditions: &Preconditions,
    item: &Item,
    facts: &FactReader<'_>,
) -> Result<(), RequestRefusal> {
    let resource = facts.model().resource(collection.resource);
    if resource.require_if_match && !conditions.has_if_match() {
        return Err(RequestRefusal::PreconditionRequired);
    }
    let is_shown = conditions.is_none() || collection.scope.can_read_item(resource, item, facts);
    check_preconditions(conditions, is_shown.then(|| Validators::of_item(item)))
}

/// Step 11, for a target that may have no validators.
pub fn check_preconditions(
    conditions: &Preconditions,
    current: Option<Validators>,
) -> Result<(), RequestRefusal> {
    match conditions.evaluate(current, false) {
        PreconditionResult::Holds => Ok(()),
        PreconditionResult::NotModified | PreconditionResult::Fails => {
            Err(RequestRefusal::PreconditionFailed(current))
        }
    }
}

/// A new item whose values are complete.
struct NewItem<'a> {
    draft: &'a ItemDraft,
    id: Id,
    created_at: Moment,
    values: Vec<Value>,
}

fn create(
    facts: &FactReader<'_>,
    collection: &Collection,
    (drafts, user): (&[ItemDraft], UserValues<'_>),
    found: StoredState,
) -> Result<Vec<ScriptStep>, RequestRefusal> {
    let model = facts.model();
    let resource = model.resource(collection.resource);
    let rights = ItemRights::new(collection, facts);
    let uuids_each = uuids_per_item(resource);
    let (mut completed, mut faults) = (Vec::with_capacity(drafts.len()), Vec::new());
    for (at, (draft, id)) in drafts.iter().zip(found.ids).enumerate() {
        // The timestamp inside a UUIDv7, so that sorting by `created_at` and sorting by id agree.
        let created_at = id.created_at().unwrap_or(found.now);
        let uuids = found.uuids.get(at * uuids_each..(at + 1) * uuids_each);
        let uuids = uuids.or_bug("the store has made UUIDs for each draft");
        let inputs = DefaultInputs { now: created_at, user, uuids };
        let place = (&*draft.root, &*rights.access.hidden);
        match complete_new_values(resource, place, &draft.values, inputs) {
            Ok(mut values) => {
                let write = BuiltinWrite { stored: None, root: &draft.root, now: found.now };
                let applied = builtin_rules::apply(model, resource, write, &mut values);
                faults.extend(applied.err().into_iter().flatten());
                let parent = collection.ancestors.last().copied();
                let row = StoredRow { id, parent, values: &values, version: RowVersion::Requested };
                faults.extend(reference_faults(resource, place, row, |_| true, facts));
                completed.push(NewItem { draft, id, created_at, values });
            }
            Err(found) => faults.extend(found),
        }
    }
    // The faults of all items come before anything else that is wrong with one of them.
    if !faults.is_empty() {
        return Err(RequestRefusal::Invalid(faults));
    }
    let (mut steps, mut refused) = (Vec::with_capacity(completed.len()), None);
    for new in completed {
        match insert(model, collection, rights, new) {
            Ok(step) => steps.push(step),
            // One round of lookups is for the facts of all items.
            Err(refusal) if facts.has_needed() => refused = refused.or(Some(refusal)),
            Err(refusal) => return Err(refusal),
        }
    }
    refused.map_or(Ok(steps), Err)
}

/// The step that stores a new item with complete values.
fn insert(
    model: &Model,
    collection: &Collection,
    rights: ItemRights<'_>,
    NewItem { draft, id, created_at, values }: NewItem<'_>,
) -> Result<ScriptStep, RequestRefusal> {
    let resource = model.resource(collection.resource);
    let ItemDraft { root, values: draft_values, .. } = draft;
    let is_changed = |at: usize, field: &Field| {
        let default = field.default.clone().map_or(Value::Null, types::canonicalize);
        draft_values.is_set(at) && values.get(at) != Some(&default)
    };
    let parent = collection.ancestors.last().copied();
    let row = StoredRow { id, parent, values: &values, version: RowVersion::Requested };
    rights.check(resource, root, RowChange { before: None, after: row }, is_changed)?;
    // A new item starts in the initial state.
    if let Some((index, states)) = resource.state_field()
        && let Some(Value::Text(to)) = values.get(index)
        && *to != states.initial
    {
        return Err(RequestRefusal::Transition {
            from: None,
            to: to.clone(),
            allowed: vec![states.initial.clone()],
        });
    }
    let updated_at = created_at;
    let item = Item { id, parent, created_at, updated_at, version: 1, values };
    Ok(ScriptStep::Insert { item, root: root.clone() })
}

fn replace(
    (model, resource): (&Model, &Resource),
    rights: ItemRights<'_>,
    (stored, draft): (Item, &ItemDraft),
    (user, now): (Option<&str>, Moment),
) -> Result<Script, RequestRefusal> {
    let ItemDraft { root, values: draft_values, .. } = draft;
    let sent = sent_unreadable(resource, rights.unseen, draft_values);
    let mut values =
        merge_stored_values(resource, (root, &rights.access.hidden), draft_values, &stored)?;
    refuse_fixed_changes(resource, root, &stored.values, &values)?;
    let row =
        StoredRow { values: &values, version: RowVersion::Requested, ..StoredRow::of(&stored) };
    let is_set = |at: usize| sent.contains(&at) || values.get(at) != stored.values.get(at);
    let place = (&**root, &*rights.access.hidden);
    let faults = reference_faults(resource, place, row, is_set, rights.facts);
    if !faults.is_empty() {
        return Err(RequestRefusal::Invalid(faults));
    }
    // Before the row filter is checked, which may be about it. An import may have the name itself.
    let editor = resource.fields.iter().position(|one| one.audit == Some(AuditedUser::LastEditor));
    let editor = editor.filter(|at| !draft_values.is_set(*at));
    if let Some(at) = editor
        && (!sent.is_empty() || values != stored.values)
    {
        *values.get_mut(at).or_bug("an item has a value for each field") = user_value(user);
    }
    // A comparison with a stored value that the caller cannot see would reveal that value.
    let is_changed = |at: usize, _: &Field| {
        Some(at) != editor && (sent.contains(&at) || values.get(at) != stored.values.get(at))
    };
    let row =
        StoredRow { values: &values, version: RowVersion::Requested, ..StoredRow::of(&stored) };
    let change = RowChange { before: Some(StoredRow::of(&stored)), after: row };
    rights.check(resource, root, change, is_changed)?;
    check_transition(resource, rights, &stored.values, &values)?;
    let write = BuiltinWrite { stored: Some(&stored), root, now };
    builtin_rules::apply(model, resource, write, &mut values).map_err(RequestRefusal::Invalid)?;
    let pairs = stored.values.iter().zip(&values).enumerate();
    let changed: Vec<usize> = pairs
        .filter(|(at, (old, new))| old != new || sent.contains(at))
        .map(|(at, _)| at)
        .collect();
    if changed.is_empty() {
        return Ok(Script { steps: Vec::new(), result: ScriptResult::Unchanged(stored) });
    }
    // If the clock was set back, an update must not look older than the version it replaces.
    let updated_at = now.max(stored.updated_at);
    let (id, parent, created_at, version) =
        (stored.id, stored.parent, stored.created_at, stored.version + 1);
    let after = Item { id, parent, created_at, updated_at, version, values };
    Ok(Script {
        steps: vec![ScriptStep::Update { before: stored, after, changed, root: root.clone() }],
        result: ScriptResult::Updated,
    })
}

/// Refuses a change of the state that the model does not declare, or that needs another role.
fn check_transition(
    resource: &Resource,
    rights: ItemRights<'_>,
    stored: &[Value],
    values: &[Value],
) -> Result<(), RequestRefusal> {
    let Some((index, states)) = resource.state_field() else { return Ok(()) };
    let (Some(Value::Text(from)), Some(Value::Text(to))) = (stored.get(index), values.get(index))
    else {
        return Ok(());
    };
    if from == to {
        return Ok(());
    }
    let allowed: Vec<Box<str>> =
        rights.access.allowed_successors(states, from).map(Into::into).collect();
    if allowed.contains(to) {
        return Ok(());
    }
    let is_declared = states.successors(from).contains(to);
    let (from, to) = (from.clone(), to.clone());
    Err(if rights.unseen.contains(index) {
        RequestRefusal::HiddenTransition { to }
    } else if is_declared {
        RequestRefusal::TransitionNotGranted { from, to, allowed }
    } else {
        RequestRefusal::Transition { from: Some(from), to, allowed }
    })
}

/// The fields that were sent and that the caller cannot see, secrets included. They always count as changed:
/// a response must not reveal whether the value is the stored one.
fn sent_unreadable(
    resource: &Resource,
    unseen: UnreadableFields<'_>,
    values: &DraftValues,
) -> Vec<usize> {
    let fields = resource.fields.iter().enumerate();
    let hidden = fields
        .filter(|(at, field)| field.secret || unseen.contains(*at) && field.computed.is_none());
    hidden.map(|(at, _)| at).filter(|at| values.is_set(*at)).collect()
}

/// Refuses changes of fields that are fixed at creation, or that only the server sets.
fn refuse_fixed_changes(
    resource: &Resource,
    root: &str,
    stored: &[Value],
    values: &[Value],
) -> Result<(), RequestRefusal> {
    let fields = resource.fields.iter().zip(stored.iter().zip(values));
    // Only a draft of the server itself has no place in a body.
    let is_by_server = root.is_empty();
    let other = fields.filter(|(field, (old, new))| {
        (field.fixed || (field.server_set && !is_by_server)) && old != new
    });
    let fault = |field: &Field| FieldFault {
        pointer: format!("{root}/{}", field.name),
        code: FaultCode::ReadOnly,
        detail: match field.server_set {
            true => SET_BY_SERVER.to_owned(),
            false => format!("a {} keeps its {}", resource.name, field.name),
        },
    };
    let faults: Vec<FieldFault> = other.map(|(field, _)| fault(field)).collect();
    if faults.is_empty() { Ok(()) } else { Err(RequestRefusal::Invalid(faults)) }
}

/// The complete values as they will be stored: fields that were left out keep their stored value.
fn merge_stored_values(
    resource: &Resource,
    place: (&str, &[usize]),
    values: &DraftValues,
    stored: &Item,
) -> Result<Vec<Value>, RequestRefusal> {
    let values = match values {
        DraftValues::Complete(values) => return Ok(values.clone()),
        DraftValues::Partial(values) => values.iter().cloned(),
    };
    let stays = |index: usize| {
        stored.values.get(index).cloned().or_bug("an item has a value for each field")
    };
    let whole = values.into_iter().zip(&resource.fields).enumerate();
    let whole = whole.map(|(index, (value, field))| {
        value.unwrap_or_else(|| types::parse_canonical(field, stays(index)))
    });
    complete_values(resource, place, whole.collect()).map_err(RequestRefusal::Invalid)
}
