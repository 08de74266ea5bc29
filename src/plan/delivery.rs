//! Webhook deliveries, planned: the transactions of the delivery queue as data.
//!
//! A delivery is one event for one webhook. It is inserted when the change log is fanned out to the webhooks, claimed by
//! one server at a time under a lease, and completed with the result of its attempt.

use std::time::Duration;

use crate::value::Id;

/// One transaction of the delivery queue.
#[derive(Debug)]
pub enum DeliveryTask {
    /// Records where a new webhook begins, unless that is known.
    Start(WebhookPosition),
    FanOut(FanOut),
    Claim(DeliveryClaim),
    Complete(CompletedAttempt),
    /// Ends the leases of a former process, where no other process can have one.
    EndLeases,
}

/// How far the change log is fanned out to a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookPosition {
    pub webhook: Id,
    pub position: i64,
    /// Whether the webhook is enabled at this position of the log.
    pub is_active: bool,
}

/// The deliveries of a part of the change log for one webhook.
#[derive(Debug)]
pub struct FanOut {
    /// The position before: if it is not the stored one any more, another server was faster.
    pub from: i64,
    pub to: WebhookPosition,
    pub deliveries: Vec<NewDelivery>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDelivery {
    pub sequence: i64,
    /// The type of the event.
    pub event_type: String,
    /// The subject of the event: the path of the item, by which the deliveries of an item are in order.
    pub subject: String,
    pub body: String,
}

/// Claims due deliveries of one webhook.
#[derive(Debug)]
pub struct DeliveryClaim {
    pub webhook: Id,
    pub count: usize,
    /// After this time another server may claim them.
    pub lease: Duration,
    pub token: Box<str>,
}

/// A delivery that this server may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedDelivery {
    pub id: Id,
    pub sequence: i64,
    pub subject: String,
    pub body: String,
    /// Failed attempts since it was inserted or sent again.
    pub tries: i64,
}

/// A claimed delivery, after the attempt.
#[derive(Debug)]
pub struct CompletedAttempt {
    pub webhook: Id,
    pub delivery: Id,
    pub subject: String,
    pub token: Box<str>,
    pub result: AttemptResult,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptResult {
    Delivered {
        status: u16,
    },
    Failed(AttemptFailure),
    /// Nothing was sent: another server may try at once.
    Released,
    /// Nothing was sent, because this server cannot. That is not the receiver's fault, so it is no try.
    Postponed {
        error: &'static str,
        pause: Duration,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptFailure {
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// For people: short, and without internal details.
    pub error: String,
    /// When to try again; `None`: never (dead letter).
    pub retry_after: Option<Duration>,
}

/// The result of a task.
#[derive(Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    Done,
    /// Another server was faster, or the lease has ended; nothing was changed.
    Superseded,
    Claimed {
        deliveries: Vec<ClaimedDelivery>,
        /// The time until another delivery is due, or another lease ends.
        due_in: Option<Duration>,
    },
}

/// The state of a webhook's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookQueue {
    pub webhook: Id,
    /// `None`: nothing was fanned out yet.
    pub position: Option<WebhookPosition>,
    /// The time until a delivery is due, or a lease ends.
    pub due_in: Option<Duration>,
    /// Pending deliveries, up to a limit.
    pub pending: usize,
    /// The age of the oldest pending delivery.
    pub oldest_pending: Option<Duration>,
}

/// How far a webhook is, whichever server has brought it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookProgress {
    pub position: WebhookPosition,
    /// The time until a delivery is due, or a lease ends.
    pub due_in: Option<Duration>,
}

/// More pending deliveries of a webhook are not counted. It is larger than the number at which a webhook gets no new
/// ones, so that one delivery less does not let a full queue look as if it had room.
pub const PENDING_COUNTED_MAX: i64 = 20_000;
