//! Fan-out: a part of the change log as deliveries for one webhook.
//!
//! Pure. Whether a webhook is enabled is itself a matter of the log: a change is sent if the webhook was enabled at its
//! position. So what is sent does not depend on when a server reads the log.
//!
//! During a rolling upgrade of the model, a server with the older model meets changes and webhooks that it does not know.
//! It evaluates them with the model in force, which it reads from the database, and passes over resources that this one
//! does not have: they were removed. In front of a model that it cannot read it stops, for a server of a newer version.

use super::definition::{WebhookDefinition, is_enabled};
use crate::events::evaluate::EventSource;
use crate::intent::LoggedChange;
use crate::model::Model;
use crate::plan::{NewDelivery, WebhookPosition};
use crate::value::ChangeKind;

/// The deliveries of one transaction: others must not wait long for it.
const DELIVERIES_MAX: usize = 200;
const BODY_BYTES_MAX: usize = 1 << 20;

/// A part of the log with its deliveries.
#[derive(Debug)]
pub struct FanOutPart {
    pub to: WebhookPosition,
    pub deliveries: Vec<NewDelivery>,
}

/// The log as far as this server can evaluate it for a webhook.
#[derive(Debug)]
pub struct FanOutResult {
    /// The last one ends where the evaluation ends, with or without deliveries.
    pub parts: Vec<FanOutPart>,
    /// Whether the evaluation ended in front of a change that a server of a newer version has to evaluate.
    pub is_left: bool,
}

/// Evaluates changes after a position, up to `end`. `is_in_force`: whether the model is the one in force, as far as
/// it matters.
pub fn fan_out(
    context: (&Model, &EventSource),
    webhook: &WebhookDefinition,
    from: WebhookPosition,
    (changes, end): (&[LoggedChange], i64),
    is_in_force: bool,
) -> FanOutResult {
    let (model, _) = context;
    let own_id = webhook.id.text();
    let (mut parts, mut deliveries, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut at = from;
    let mut is_left = false;
    for logged in changes.iter().filter(|logged| logged.change.sequence > from.position) {
        is_left = !is_in_force && webhook.is_unsure_of(logged);
        if is_left {
            break;
        }
        at.position = logged.change.sequence;
        if logged.resource == Some(model.webhooks) && logged.change.id == own_id {
            at.is_active = match logged.kind {
                Some(ChangeKind::Deleted) => false,
                _ => logged.after(model).map_or(at.is_active, is_enabled),
            };
            continue;
        }
        let delivery = webhook.delivery(context, logged).filter(|_| at.is_active);
        let Some(delivery) = delivery else { continue };
        bytes += delivery.body.len();
        deliveries.push(delivery);
        if deliveries.len() >= DELIVERIES_MAX || bytes >= BODY_BYTES_MAX {
            bytes = 0;
            parts.push(FanOutPart { to: at, deliveries: std::mem::take(&mut deliveries) });
        }
    }
    if !is_left {
        at.position = end.max(at.position);
    }
    parts.push(FanOutPart { to: at, deliveries });
    FanOutResult { parts, is_left }
}
