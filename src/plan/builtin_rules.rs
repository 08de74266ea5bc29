//! The rules of webhooks and deliveries, in addition to those of every resource.
//!
//! They are applied to the complete values of a new or changed item, inside the transaction: a filter depends on
//! the events, and a rotation keeps the stored secret. Values that do not change are not checked again, because the
//! model or the settings may have changed since.

use std::time::Duration;

use crate::fault::OrBug as _;
use crate::intent::{EventSelection, SelectionFault};
use crate::model::builtin::{delivery, webhook};
use crate::model::types::{AddressPolicy, find_url_fault, is_host_refused, parse_canonical};
use crate::model::{Model, Resource};
use crate::problem::{FaultCode, FieldFault};
use crate::value::{Item, Moment, Value};

/// How long the previous secret of a webhook signs too.
const SECRET_OVERLAP: Duration = Duration::from_secs(24 * 60 * 60);

const FIELDS: &str = "a built-in item has a value for each field";

/// A built-in item that is created or changed.
#[derive(Clone, Copy)]
pub(super) struct BuiltinWrite<'a> {
    /// `None` for a new one.
    pub(super) stored: Option<&'a Item>,
    /// The JSON pointer of the item in the body.
    pub(super) root: &'a str,
    pub(super) now: Moment,
}

impl BuiltinWrite<'_> {
    fn is_changed(&self, values: &[Value], at: usize) -> bool {
        self.stored.is_none_or(|stored| stored.values.get(at) != values.get(at))
    }

    fn fault(&self, name: &str, code: FaultCode, detail: impl Into<String>) -> FieldFault {
        FieldFault { pointer: format!("{}/{name}", self.root), code, detail: detail.into() }
    }
}

/// Checks the values of an item and completes them, if its resource has such rules.
pub(super) fn apply(
    model: &Model,
    resource: &Resource,
    write: BuiltinWrite<'_>,
    values: &mut [Value],
) -> Result<(), Vec<FieldFault>> {
    if resource.index == model.webhooks {
        apply_to_webhook(model, resource, write, values)
    } else {
        if resource.index == model.deliveries && write.is_changed(values, delivery::STATUS) {
            send_again(values, write.now);
        }
        Ok(())
    }
}

fn apply_to_webhook(
    model: &Model,
    resource: &Resource,
    write: BuiltinWrite<'_>,
    values: &mut [Value],
) -> Result<(), Vec<FieldFault>> {
    let mut faults = Vec::new();
    if write.is_changed(values, webhook::URL) {
        let fault = find_target_fault(model, text(values, webhook::URL).or_bug(FIELDS));
        faults.extend(fault.map(|detail| write.fault("url", FaultCode::Format, detail)));
    }
    if [webhook::EVENTS, webhook::FILTER].iter().any(|at| write.is_changed(values, *at)) {
        faults.extend(event_faults(model, resource, write, values));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let Some(stored) = write.stored else { return Ok(()) };
    if write.is_changed(values, webhook::ENABLED)
        && values.get(webhook::ENABLED) == Some(&Value::Boolean(true))
    {
        set(values, webhook::DISABLED_REASON, Value::Null);
    }
    if write.is_changed(values, webhook::SECRET) {
        rotate_secret(stored, values, write.now);
    }
    Ok(())
}

/// Why nothing would be sent to a URL.
fn find_target_fault(model: &Model, url: &str) -> Option<&'static str> {
    let allows_private = model.server.allows_private_webhooks();
    let fault = find_url_fault(url, allows_private);
    fault.or_else(|| {
        let is_refused = is_host_refused(url, AddressPolicy::new(allows_private));
        is_refused.then_some("expected a public host: the address of this one is not public")
    })
}

fn event_faults(
    model: &Model,
    resource: &Resource,
    write: BuiltinWrite<'_>,
    values: &[Value],
) -> Vec<FieldFault> {
    let field = resource.fields.get(webhook::EVENTS).or_bug(FIELDS);
    let events = parse_canonical(field, values.get(webhook::EVENTS).or_bug(FIELDS).clone());
    let Value::List(events) = events else { return Vec::new() };
    let as_text = |value: &'_ Value| match value {
        Value::Text(text) => text.to_string(),
        _ => String::new(),
    };
    let events: Vec<String> = events.iter().map(as_text).collect();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let parsed = EventSelection::parse(model, &events, text(values, webhook::FILTER));
    let fault = |fault: SelectionFault| match fault {
        SelectionFault::Pattern(at, detail) => {
            write.fault(&format!("events/{at}"), FaultCode::Format, detail)
        }
        SelectionFault::Filter(detail) => write.fault("filter", FaultCode::Format, detail),
    };
    parsed.err().into_iter().flatten().map(fault).collect()
}

/// Keeps the previous secret behind the new one; one that is older is dropped.
fn rotate_secret(stored: &Item, values: &mut [Value], now: Moment) {
    let previous = text(&stored.values, webhook::SECRET).or_bug(FIELDS);
    let previous = previous.split_once(' ').map_or(previous, |(current, _)| current);
    let new = text(values, webhook::SECRET).or_bug(FIELDS);
    // The key is lost that sealed the previous one, or that was lost before and there is none.
    if new.is_empty() || previous.is_empty() {
        return set(values, webhook::PREVIOUS_SECRET_EXPIRES, Value::Null);
    }
    let both = Value::text(&format!("{new} {previous}"));
    set(values, webhook::SECRET, both);
    let expires = now.checked_add(SECRET_OVERLAP).map_or(Value::Null, Value::Moment);
    set(values, webhook::PREVIOUS_SECRET_EXPIRES, expires);
}

fn send_again(values: &mut [Value], now: Moment) {
    set(values, delivery::ATTEMPTS, Value::Integer(0));
    set(values, delivery::NEXT_ATTEMPT, Value::Moment(now));
}

fn text(values: &[Value], at: usize) -> Option<&str> {
    match values.get(at) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

fn set(values: &mut [Value], at: usize, value: Value) {
    *values.get_mut(at).or_bug(FIELDS) = value;
}
