//! Stage 2, decide: the plan of a request, as data, before any I/O.
//!
//! Pure. `make` decides everything that does not depend on stored data; `decide`, a pure function that the
//! store calls inside its transaction, decides the rest and returns a `Script`: the transaction as data. A
//! plan owns its values, so that it can be sent to another thread.

mod validate;
mod builtin_rules;
mod clear_references;
mod defaults;
mod item_rights;
mod stored_reference;
mod stored_state;
pub mod decide;
mod patch;
mod read_plan;
mod reference_rules;
pub mod stored_faults;
mod write_plan;
mod idempotency;
mod import;
mod collection;
mod delivery;
mod outcome;

pub use clear_references::clear_references;
pub use collection::Collection;
pub use decide::{ScriptStep, WriteRequest, decide};
pub use defaults::uuids_per_item;
pub use delivery::{
    AttemptFailure, AttemptResult, ClaimedDelivery, CompletedAttempt, DeliveryClaim,
    DeliveryOutcome, DeliveryTask, FanOut, NewDelivery, PENDING_COUNTED_MAX, WebhookPosition,
    WebhookProgress, WebhookQueue,
};
pub use idempotency::{IdempotentRequest, RenderResponse};
pub use import::{
    ImportRow, ImportRules, NewItemOrigin, UpsertKey, line_root, new_item, partial_values,
    refusal_faults,
};
pub use outcome::{
    ChangeBatch, ChangeLogBounds, ChangesPage, ExpandedPage, FactAnswer, HistoryRefusal,
    IdempotentResponse, LogMarks, Outcome, RelatedLimits, RequestRefusal, VisibleChange,
};
pub use patch::apply_patch;
pub use read_plan::{ChangesRead, ExpandedRead, InvalidWrite, PastRead, ReadPlan};
pub use reference_rules::reference_faults;
pub use stored_reference::{changed_references, reference_ids};
pub use stored_state::{Dependent, ReferencesToClear, StoredState};
#[cfg(any(fuzzing, test))]
pub use validate::DraftValues;
pub use validate::{ItemDraft, Reference};
pub use write_plan::{
    Cardinality, ChangeAuthor, RightsHolder, RightsLease, WriteAction, WritePlan,
};

use std::sync::Arc;

use crate::formats::Asset;
use crate::intent::preconditions::Preconditions;
use crate::intent::{
    CreateBody, Intent, ItemBody, JsonMembers, ListQuery, LogFilter, LogWatchQuery, PathIds,
    ResourcePath, RouteTarget, StartPosition, WatchQuery,
};
use crate::model::{ChangeLogDetail, GrantVerb, Model, ResourceIndex};
use crate::permit::change_visibility::{ChangeScope, ChangeTarget};
use crate::permit::{AccessScope, Caller};
use crate::problem::{self, FaultCode, FieldFault, Problem, ProblemKind};
use crate::value::Id;
use validate::{BodyPurpose, FieldRights, SentItem};

/// The action planned for a request.
#[derive(Debug)]
pub enum Plan {
    /// Needs no stored data.
    Static(StaticContent),
    /// The metrics; from the store it reads only the bounds of the change log.
    Metrics,
    Read(ReadPlan),
    /// An event stream.
    Watch(WatchPlan),
    /// Boxed, since it is large and moved often.
    Write(Box<WritePlan>),
}

impl Plan {
    pub fn is_patch(&self) -> bool {
        matches!(self, Self::Write(write) if matches!(write.action, WriteAction::Patch { .. }))
    }

    /// The collection it reads or writes, if any.
    pub fn collection(&self) -> Option<&Collection> {
        match self {
            Self::Static(_) | Self::Metrics => None,
            Self::Read(
                ReadPlan::Ready
                | ReadPlan::ChangeLogBounds
                | ReadPlan::LogMarks
                | ReadPlan::RelatedFacts { .. }
                | ReadPlan::Changes(_)
                | ReadPlan::ChangeBatch { .. }
                | ReadPlan::User(_)
                | ReadPlan::UsersStamp
                | ReadPlan::ModelInForce
                | ReadPlan::WebhookQueues
                | ReadPlan::WebhookProgress(_)
                | ReadPlan::WebhookStart(_),
            ) => None,
            Self::Read(
                ReadPlan::Item(collection, ..)
                | ReadPlan::Page(collection, _)
                | ReadPlan::WatchStart(collection, _),
            ) => Some(collection),
            Self::Read(ReadPlan::PastItem(read)) => Some(&read.collection),
            Self::Read(ReadPlan::Expanded(read)) => Some(&read.collection),
            Self::Watch(WatchPlan { target: WatchTarget::Items { collection, .. }, .. }) => {
                Some(collection)
            }
            Self::Watch(WatchPlan { target: WatchTarget::Log(_), .. }) => None,
            Self::Read(ReadPlan::IdempotentResponse(_)) => None,
            Self::Read(ReadPlan::InvalidWrite(refuse)) => Some(&refuse.collection),
            Self::Write(write) => Some(&write.collection),
        }
    }

    /// The list query it reads, if any; for one item, the selection of its members.
    pub fn list(&self) -> Option<&Arc<ListQuery>> {
        match self {
            Self::Read(ReadPlan::Page(_, list)) => Some(list),
            Self::Read(ReadPlan::Expanded(read)) => Some(&read.list),
            Self::Read(ReadPlan::Item(_, _, selection)) => selection.as_ref(),
            Self::Read(ReadPlan::PastItem(read)) => read.selection.as_ref(),
            Self::Watch(WatchPlan { target: WatchTarget::Items { list, .. }, .. }) => Some(list),
            Self::Static(_) | Self::Metrics => None,
            Self::Read(_) | Self::Watch(_) | Self::Write(_) => None,
        }
    }

    /// Adds preconditions. The store evaluates those of a write; those of a read are evaluated when the item
    /// is known.
    pub fn with_preconditions(mut self, conditions: &Preconditions) -> Self {
        match &mut self {
            Self::Write(write) => conditions.clone_into(&mut write.preconditions),
            Self::Read(ReadPlan::InvalidWrite(refuse)) => {
                conditions.clone_into(&mut refuse.preconditions);
            }
            Self::Read(ReadPlan::Page(_, list)) => {
                conditions.clone_into(&mut Arc::make_mut(list).preconditions);
            }
            Self::Read(ReadPlan::Expanded(read)) => {
                conditions.clone_into(&mut Arc::make_mut(&mut read.list).preconditions);
            }
            Self::Static(_) | Self::Metrics | Self::Read(_) | Self::Watch(_) => {}
        }
        self
    }
}

/// An event stream.
#[derive(Debug)]
pub struct WatchPlan {
    pub target: WatchTarget,
    pub start: StartPosition,
}

/// The resources or the log that an event stream follows.
#[derive(Debug)]
pub enum WatchTarget {
    /// A collection or one of its items.
    Items {
        collection: Collection,
        item: Option<Id>,
        /// The filters and the selected members.
        list: Arc<ListQuery>,
    },
    /// The change log.
    Log(ChangeScope),
}

/// Content that depends on the model alone.
#[derive(Debug)]
pub enum StaticContent {
    /// The resources that this caller may access.
    Home(AccessScope),
    /// The OpenAPI document of what this caller may use.
    OpenApi(Caller),
    /// The JSON Schema of a resource, as this caller sees it.
    Schema(Caller, ResourceIndex),
    /// The part of the OpenAPI document about a resource, or about the server's own paths.
    Docs(Caller, Option<ResourceIndex>),
    Health,
    ExplainProblem(&'static ProblemKind),
    /// A file of the pages, and the version that the page names.
    Asset(Asset, Option<Box<str>>),
    Options(RouteTarget),
}

/// Turns an intent into a plan. The only problem it reports is 404, for an item that cannot exist. It calls
/// `by` only for a write.
pub fn make(
    model: &Model,
    intent: Intent<'_>,
    caller: &Caller,
    by: impl FnOnce() -> ChangeAuthor,
) -> Result<Plan, Problem> {
    crate::fault::point("plan");
    let collection =
        |address, verb| resolve_collection(model, address, AccessScope::new(caller, verb));
    let item = |address, verb| {
        let (collection, item) = collection(address, verb)?;
        Ok::<_, Problem>((collection, item.ok_or_else(|| Problem::new(&problem::NOT_FOUND))?))
    };
    Ok(match intent {
        Intent::Home => Plan::Static(StaticContent::Home(AccessScope::new(caller, GrantVerb::Get))),
        Intent::OpenApi => Plan::Static(StaticContent::OpenApi(caller.clone())),
        Intent::Schema(resource) => Plan::Static(StaticContent::Schema(caller.clone(), resource)),
        Intent::Docs(resource) => Plan::Static(StaticContent::Docs(caller.clone(), resource)),
        Intent::Health => Plan::Static(StaticContent::Health),
        Intent::ExplainProblem(kind) => Plan::Static(StaticContent::ExplainProblem(kind)),
        Intent::Asset(asset, version) => Plan::Static(StaticContent::Asset(asset, version)),
        Intent::Options(place) => Plan::Static(StaticContent::Options(place)),
        Intent::Metrics => Plan::Metrics,
        Intent::Ready => Plan::Read(ReadPlan::Ready),
        Intent::Changes(query) => {
            let scope = log_scope(caller, query.filter.clone());
            Plan::Read(ReadPlan::Changes(Box::new(ChangesRead { scope, query })))
        }
        Intent::Get(address, selection) => {
            let (collection, id) = item(address, GrantVerb::Get)?;
            Plan::Read(plan_item(collection, id, selection))
        }
        Intent::GetPast(address, state, selection) => {
            let (collection, id) = item(address, GrantVerb::Get)?;
            if model.resource(collection.resource).changes == ChangeLogDetail::Ids {
                return Err(Problem::new(&problem::NO_HISTORY));
            }
            let read = PastRead { collection, id, state, selection };
            Plan::Read(ReadPlan::PastItem(Box::new(read)))
        }
        Intent::List(address, list) => {
            Plan::Read(plan_page(collection(address, GrantVerb::Get)?.0, list))
        }
        Intent::Watch(address, WatchQuery { list, start }) => {
            let (collection, item) = collection(address, GrantVerb::Get)?;
            let target = WatchTarget::Items { collection, item, list: Arc::new(list) };
            Plan::Watch(WatchPlan { target, start })
        }
        Intent::WatchChanges(LogWatchQuery { filter, start }) => {
            let target = WatchTarget::Log(log_scope(caller, filter));
            Plan::Watch(WatchPlan { target, start })
        }
        Intent::Create(address, bodies) => {
            plan_create(model, collection(address, GrantVerb::Post)?.0, bodies, by())
        }
        Intent::Replace(address, body) => {
            let (collection, id) = item(address, GrantVerb::Put)?;
            plan_replace(model, collection, id, body, by())
        }
        Intent::Patch(address, patch) => {
            let (collection, id) = item(address, GrantVerb::Patch)?;
            let action = WriteAction::Patch { id, patch };
            Plan::Write(Box::new(WritePlan::new(collection, action, by())))
        }
        Intent::Remove(address) => {
            let (collection, id) = item(address, GrantVerb::Delete)?;
            let action =
                WriteAction::Remove { id, dependents_max: model.server.limits.cascade_items_max };
            Plan::Write(Box::new(WritePlan::new(collection, action, by())))
        }
    })
}

fn plan_item(collection: Collection, id: Id, selection: Option<Arc<ListQuery>>) -> ReadPlan {
    match selection {
        Some(list) if !list.expand.is_empty() => plan_expanded(collection, Some(id), list),
        selection => ReadPlan::Item(collection, id, selection),
    }
}

fn plan_page(collection: Collection, list: Arc<ListQuery>) -> ReadPlan {
    match list.expand.is_empty() {
        true => ReadPlan::Page(collection, list),
        false => plan_expanded(collection, None, list),
    }
}

fn plan_expanded(collection: Collection, item: Option<Id>, list: Arc<ListQuery>) -> ReadPlan {
    let mut read = ExpandedRead { collection, item, list };
    // The hidden fields of all resources are part of the entity tag.
    let hash = |hash: u32, resource: &ResourceIndex| {
        hash.rotate_left(7) ^ read.collection.scope.read_access(*resource).hidden_hash
    };
    let hidden = read.resources().iter().fold(0, hash);
    Arc::make_mut(&mut read.list).query_hash ^= hidden;
    ReadPlan::Expanded(Box::new(read))
}

/// The changes of the log that a caller sees.
fn log_scope(caller: &Caller, filter: LogFilter) -> ChangeScope {
    let access = AccessScope::new(caller, GrantVerb::Get);
    ChangeScope { access, target: ChangeTarget::All(Arc::new(filter)) }
}

fn plan_create(
    model: &Model,
    collection: Collection,
    bodies: CreateBody<'_>,
    by: ChangeAuthor,
) -> Plan {
    let access = collection.scope.access(collection.resource);
    let admit = |root: String, members: JsonMembers<'_>| {
        let parent = collection.ancestors.last().copied();
        validate::validate_body(
            model.resource(collection.resource),
            SentItem { root, parent, members },
            BodyPurpose::Create,
            FieldRights {
                hidden: &access.hidden,
                kept_if_omitted: &access.readonly_or_limited,
                unseen: &[],
            },
        )
    };
    let (count, admitted) = match bodies {
        CreateBody::One(ItemBody { wrapper, members }) => {
            (Cardinality::One, vec![admit(["/", wrapper].concat(), members)])
        }
        CreateBody::Many(wrapper, list) if list.is_empty() => {
            let detail = "expected at least one item, got none".to_owned();
            let fault =
                FieldFault { pointer: format!("/{wrapper}"), code: FaultCode::Items, detail };
            return plan_invalid_write(collection, None, Vec::new(), vec![fault]);
        }
        CreateBody::Many(wrapper, list) => {
            let list = list.into_iter().enumerate();
            (
                Cardinality::Many,
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
        let action = WriteAction::Create { drafts, count };
        return Plan::Write(Box::new(WritePlan::new(collection, action, by)));
    }
    plan_invalid_write(collection, None, drafts, faults)
}

fn plan_replace(
    model: &Model,
    collection: Collection,
    id: Id,
    body: ItemBody<'_>,
    by: ChangeAuthor,
) -> Plan {
    let parent = collection.ancestors.last().copied();
    let sent = SentItem { root: format!("/{}", body.wrapper), parent, members: body.members };
    let access = collection.scope.access(collection.resource);
    let rights = FieldRights {
        hidden: &access.hidden,
        kept_if_omitted: &access.readonly_or_limited,
        unseen: &collection.scope.read_access(collection.resource).hidden,
    };
    let resource = model.resource(collection.resource);
    let (draft, faults) = validate::validate_body(resource, sent, BodyPurpose::Replace(id), rights);
    if faults.is_empty() {
        let action = WriteAction::Replace { id, draft };
        Plan::Write(Box::new(WritePlan::new(collection, action, by)))
    } else {
        plan_invalid_write(collection, Some(id), vec![draft], faults)
    }
}

fn plan_invalid_write(
    collection: Collection,
    item: Option<Id>,
    drafts: Vec<ItemDraft>,
    faults: Vec<FieldFault>,
) -> Plan {
    let references = drafts.into_iter().flat_map(|draft| draft.references).collect();
    let preconditions = Preconditions::default();
    let refuse = InvalidWrite { collection, item, references, faults, preconditions };
    Plan::Read(ReadPlan::InvalidWrite(Box::new(refuse)))
}

/// Step 10, as far as the path alone tells: a segment that cannot be an id is 404, and so is everything below
/// a resource that the caller cannot read at all.
fn resolve_collection(
    model: &Model,
    address: ResourcePath,
    reach: AccessScope,
) -> Result<(Collection, Option<Id>), Problem> {
    let ResourcePath { resource, form, ids } = address;
    let ids = ids.filter(|_| reach.can_read_ancestors(model, resource));
    let PathIds { ancestors, item } = ids.ok_or_else(|| Problem::new(&problem::NOT_FOUND))?;
    Ok((Collection { resource, form, ancestors, scope: reach }, item))
}

#[cfg(test)]
mod tests;
