//! The result of the store, as data and without HTTP: what it has written or read, or why it refuses.

use super::delivery::{DeliveryOutcome, WebhookPosition, WebhookProgress, WebhookQueue};
use crate::fault;
use crate::formats::RelatedItems;
use crate::intent::LoggedChange;
use crate::intent::preconditions::Validators;
use crate::model::ResourceIndex;
use crate::permit::{FactCache, ItemState, RelatedFact};
use crate::problem::FieldFault;
use crate::value::{Change, EventKind, Id, Item, Moment, Page};

/// The result of the store: what it has written or read.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    Ready,
    ChangeLogBounds(ChangeLogBounds),
    Changes(ChangesPage),
    ChangeBatch(ChangeBatch),
    LogMarks(LogMarks),
    RelatedFacts(Vec<FactAnswer>),
    User(Option<Item>),
    Stamp(i64),
    /// Its shape.
    ModelInForce(Option<String>),
    WebhookQueues(Vec<WebhookQueue>),
    /// `None`: it has none.
    WebhookProgress(Option<WebhookProgress>),
    /// `None`: not known yet.
    WebhookStart(Option<WebhookPosition>),
    Delivery(DeliveryOutcome),
    Item(Item),
    /// The outcome for an item with a flat path, and the ids of its ancestors, the top-level one first.
    Located(Vec<Id>, Box<Outcome>),
    /// An item as it was.
    PastItem(Item),
    Page(Page),
    /// An item with related items: a page of it alone.
    ExpandedItem(Id, ExpandedPage),
    ExpandedPage(ExpandedPage),
    Created(Item),
    CreatedMany(Vec<Item>),
    Updated(Item),
    Patched(Item),
    Removed,
    /// The outcome of a write whose items the caller may not read, because of other items.
    Unreadable(Box<Outcome>),
    /// The response of an idempotent write, replayed or just stored.
    Idempotent(IdempotentResponse),
}

/// Items with related items.
#[derive(Debug, PartialEq)]
pub struct ExpandedPage {
    /// Without items if the client has the response already.
    pub page: Page,
    /// The items of each relation of the query.
    pub related: Vec<RelatedItems>,
    /// The approximate size of all values, each as often as the response has it.
    pub bytes: usize,
}

/// The answer to a `RelatedFact`.
#[derive(Debug, PartialEq)]
pub enum FactAnswer {
    Item(ItemState),
    Member(bool),
}

impl FactAnswer {
    /// Makes it known to an evaluation that lacked the fact.
    pub fn add_to(self, known: &mut FactCache, fact: RelatedFact) {
        match (self, fact) {
            (Self::Item(state), RelatedFact::Item(resource, id)) => {
                known.insert((resource, id), state);
            }
            (Self::Member(is_member), RelatedFact::Member(question)) => {
                known.add_member(question, is_member);
            }
            (Self::Item(_) | Self::Member(_), _) => {
                fault::bug("the store answers an item for an item, and yes or no for the rest")
            }
        }
    }
}

/// The sequence numbers of the first and the last entry of the change log; `None` when it is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeLogBounds {
    pub oldest: Option<i64>,
    pub newest: Option<i64>,
}

/// A page of the change log, as one caller sees it.
#[derive(Debug, PartialEq)]
pub struct ChangesPage {
    pub changes: Vec<VisibleChange>,
    /// The last entry that was examined, if there may be more behind it.
    pub next: Option<i64>,
    /// The oldest entry that is kept; `None` when there is none.
    pub oldest: Option<i64>,
    /// The answer is complete up to this number.
    pub position: i64,
}

/// A change that the caller may see.
#[derive(Debug, PartialEq)]
pub struct VisibleChange {
    pub logged: LoggedChange,
    pub kind: EventKind,
    /// Whether the item before the change was visible too.
    pub shows_before: bool,
}

impl VisibleChange {
    /// The approximate size of its values.
    pub fn approximate_bytes(&self) -> usize {
        let change = &self.logged.change;
        let values = [&change.changed, &change.before, &change.after];
        values.into_iter().flatten().map(String::len).sum::<usize>() + 256
    }
}

/// The marks of the change log, which a reader checks its position against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogMarks {
    /// The low-water mark: no entry up to this number will still appear. Not above the newest entry.
    pub low_watermark: i64,
    /// The largest number ever drawn, also by a transaction that was rolled back.
    pub reached: i64,
    /// Whether transactions are in flight that may write entries.
    pub has_in_flight: bool,
    /// The incarnation of the database: another number after a restart or a failover of PostgreSQL.
    pub incarnation: i64,
    /// The largest number that was deleted; 0 if none was.
    pub swept: i64,
    /// The oldest entry that is kept.
    pub oldest: Option<i64>,
}

/// Entries of the change log, in order.
#[derive(Debug, PartialEq, Eq)]
pub struct ChangeBatch {
    pub changes: Vec<Change>,
    /// The position after the batch: the log has no other entries up to this number.
    pub end: i64,
    pub marks: LogMarks,
}

impl ChangeBatch {
    /// Whether there are more entries up to the low-water mark.
    pub fn has_more(&self) -> bool {
        self.end < self.marks.low_watermark
    }
}

/// Serializing more than this would delay the other connections of the worker thread noticeably.
const LARGE_BYTES: usize = 256 << 10;

impl Outcome {
    /// Whether the response should be serialized on a blocking thread instead of the worker thread.
    pub fn is_large(&self) -> bool {
        self.approximate_bytes() >= LARGE_BYTES
    }

    /// The approximate size of its values.
    pub fn approximate_bytes(&self) -> usize {
        match self {
            Self::Changes(page) => page.changes.iter().map(VisibleChange::approximate_bytes).sum(),
            Self::ExpandedItem(_, expanded) | Self::ExpandedPage(expanded) => expanded.bytes,
            Self::Located(_, outcome) => outcome.approximate_bytes(),
            _ => self.items().iter().map(Item::approximate_bytes).sum(),
        }
    }

    /// The ids of the ancestors that were looked up, if any, and the outcome itself.
    pub fn into_located(self) -> (Option<Vec<Id>>, Self) {
        match self {
            Self::Located(ancestors, outcome) => (Some(ancestors), *outcome),
            outcome => (None, outcome),
        }
    }

    /// The items of the outcome.
    pub fn items(&self) -> &[Item] {
        match self {
            Self::Item(item) | Self::PastItem(item) => std::slice::from_ref(item),
            Self::Created(item) | Self::Updated(item) | Self::Patched(item) => {
                std::slice::from_ref(item)
            }
            Self::Page(page) => &page.items,
            Self::ExpandedItem(_, expanded) | Self::ExpandedPage(expanded) => &expanded.page.items,
            Self::CreatedMany(items) => items,
            Self::Located(_, outcome) => outcome.items(),
            Self::Ready | Self::ChangeLogBounds(_) | Self::Changes(_) => &[],
            Self::Removed | Self::Unreadable(_) | Self::Idempotent(_) => &[],
            // Internal: never sent to a client.
            Self::User(_) | Self::Stamp(_) | Self::ModelInForce(_) => &[],
            Self::ChangeBatch(_) | Self::LogMarks(_) | Self::RelatedFacts(_) => &[],
            Self::WebhookQueues(_) | Self::WebhookProgress(_) | Self::WebhookStart(_) => &[],
            Self::Delivery(_) => &[],
        }
    }
}

/// A response that was stored before, or has just been stored.
#[derive(Debug, PartialEq, Eq)]
pub struct IdempotentResponse {
    pub text: String,
    /// Whether it is a replay of an earlier response.
    pub is_replay: bool,
}

/// The limits of the related items of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelatedLimits {
    pub items_max: usize,
    pub bytes_max: usize,
}

/// Why nothing was done: the stored data, or the data sent, does not allow it.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestRefusal {
    /// The item or one of its ancestors does not exist.
    Missing,
    /// The resource requires `If-Match`, and the client sent none.
    PreconditionRequired,
    /// The preconditions fail for the current version; a list has no validators.
    PreconditionFailed(Option<Validators>),
    /// The patch does not fit the stored item.
    Patch(String),
    Invalid(Vec<FieldFault>),
    Transition {
        from: Option<Box<str>>,
        to: Box<str>,
        /// Those that the caller may make.
        allowed: Vec<Box<str>>,
    },
    /// A transition that the model declares for other roles.
    TransitionNotGranted {
        from: Box<str>,
        to: Box<str>,
        allowed: Vec<Box<str>>,
    },
    /// A transition that is not allowed, for a caller who may not see the state.
    HiddenTransition {
        to: Box<str>,
    },
    /// Fields that the caller may not change.
    ReadOnly(Vec<FieldFault>),
    /// The item would be outside the caller's row filter, or violates a unique rule together with an item
    /// outside the filter. Has the fields that were sent and violate the filter; none where naming them would
    /// distinguish the two cases.
    OutsideRowFilter(Vec<FieldFault>),
    /// Values that violate a unique rule; only fields that the caller can see.
    NotUnique(Vec<FieldFault>),
    /// Items of this resource reference the item; `None` where the model does not declare the reference.
    Referenced(Option<ResourceIndex>),
    /// The request refers to more items than it may.
    TooManyReferences {
        references_max: usize,
    },
    TooManyDependents {
        dependents_max: usize,
    },
    /// No enabled user would have the role `admin`.
    LastAdmin,
    /// There are as many webhooks as there may be.
    TooManyWebhooks {
        webhooks_max: usize,
    },
    /// The response would have more related items, or larger ones.
    TooManyRelated(RelatedLimits),
    /// Changes after this position were deleted; has the oldest one that is kept.
    PositionGone {
        oldest: Option<i64>,
    },
    /// No change has this number yet; has the largest one.
    PositionNotReached {
        reached: i64,
    },
    /// The item was not as the request asks for it, or the log does not have it any more.
    History(HistoryRefusal),
    /// Another request was sent with the same idempotency key.
    IdempotencyKeyReused,
    /// A request with the same idempotency key is in flight.
    IdempotencyKeyInFlight,
}

/// Why there is no past state of an item that the caller may know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryRefusal {
    /// The log has no values of that time.
    NoValues,
    /// The item has, or had, fewer versions.
    NoSuchVersion {
        latest: i64,
    },
    NotYetCreated {
        created_at: Moment,
    },
    AlreadyDeleted {
        deleted_at: Moment,
    },
    /// The log was swept; has the oldest version that can still be read, and since when the item had it.
    Swept {
        oldest: i64,
        since: Moment,
    },
}
