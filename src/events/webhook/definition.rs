//! A stored webhook, parsed: where it sends which events.
//!
//! A webhook sees what an administrator sees, so its events have no row filters and no hidden fields. The model may
//! have changed since it was stored: patterns that do not fit any more select nothing, and the others stay. A webhook
//! may also be newer than the model that it is parsed with: then the model in force decides what it selects.

use std::sync::Arc;

use crate::events::evaluate::{EventSource, encode_event};
use crate::fault::OrBug as _;
use crate::formats::cloud_event::event_type;
use crate::intent::{EventSelection, ListQuery, LoggedChange, SelectionFault};
use crate::json::{self, Json};
use crate::model::Model;
use crate::model::builtin::webhook;
use crate::permit::change_visibility::{ChangeScope, ChangeTarget, Visibility, judge};
use crate::permit::{AccessScope, NoFacts};
use crate::plan::NewDelivery;
use crate::value::{EventKind, Id, Item, Moment, Value};

/// A webhook.
#[derive(Debug)]
pub struct WebhookDefinition {
    pub id: Id,
    pub version: i64,
    pub url: Box<str>,
    pub is_enabled: bool,
    /// The sealed secrets, as they are stored.
    pub sealed_secrets: Box<str>,
    /// Until when the previous secret signs too.
    pub previous_secret_expires: Option<Moment>,
    /// Whether some of its events do not fit the model.
    pub has_unknown_events: bool,
    selected: Option<SelectedEvents>,
}

#[derive(Debug)]
struct SelectedEvents {
    selection: EventSelection,
    /// By the index of the resource.
    scopes: Vec<Option<ChangeScope>>,
}

impl WebhookDefinition {
    /// Also returns why some of its events cannot be used.
    pub fn parse(model: &Model, item: &Item) -> (Self, Option<String>) {
        let text = |at: usize| match item.values.get(at) {
            Some(Value::Text(text) | Value::Json(text)) => Some(&**text),
            _ => None,
        };
        let selected = select_events(model, text(webhook::EVENTS), text(webhook::FILTER));
        let (selected, fault) = match selected {
            Ok((selected, faults)) => {
                let fault = (!faults.is_empty()).then(|| format!("{faults:?}"));
                (Some(selected), fault)
            }
            Err(fault) => (None, Some(fault.to_owned())),
        };
        let definition = Self {
            id: item.id,
            version: item.version,
            url: text(webhook::URL).unwrap_or_default().into(),
            is_enabled: is_enabled(item),
            sealed_secrets: text(webhook::SECRET).unwrap_or_default().into(),
            previous_secret_expires: match item.values.get(webhook::PREVIOUS_SECRET_EXPIRES) {
                Some(Value::Moment(expires)) => Some(*expires),
                _ => None,
            },
            has_unknown_events: fault.is_some(),
            selected,
        };
        (definition, fault)
    }

    /// Whether it may be meant to get a change that this server cannot evaluate: one of a resource that the model
    /// does not declare, or any change if some of its events are unknown.
    pub fn is_unsure_of(&self, logged: &LoggedChange) -> bool {
        self.has_unknown_events
            || (logged.resource.is_none()
                && self.selected.as_ref().is_some_and(|it| it.selection.selects_every_resource()))
    }

    /// Whether it is that of this item. A rotation of the key seals the secrets again, and is no new version.
    pub fn is_current(&self, item: &Item) -> bool {
        let sealed_secrets = match item.values.get(webhook::SECRET) {
            Some(Value::Text(text)) => &**text,
            _ => "",
        };
        self.version == item.version && *self.sealed_secrets == *sealed_secrets
    }

    /// The delivery of a change, if it is selected.
    pub fn delivery(
        &self,
        (model, source): (&Model, &EventSource),
        logged: &LoggedChange,
    ) -> Option<NewDelivery> {
        let selected = self.selected.as_ref()?;
        let resource = logged.resource?;
        let scope = selected.scopes.get(resource.0)?.as_ref()?;
        let Visibility::Visible { kind, shows_before } = judge(model, scope, logged, &NoFacts)
        else {
            return None;
        };
        if !selected.selection.selects(resource, kind) {
            return None;
        }
        let body = encode_event((model, source), (scope, false), logged, (kind, shows_before));
        Some(NewDelivery {
            sequence: logged.change.sequence,
            event_type: event_type(&logged.change.resource, kind.as_str()),
            subject: [&*source.base_path, &*logged.change.subject].concat(),
            body: String::from_utf8(body).or_bug("an event is JSON"),
        })
    }
}

fn select_events(
    model: &Model,
    events: Option<&str>,
    filter: Option<&str>,
) -> Result<(SelectedEvents, Vec<SelectionFault>), &'static str> {
    let events = events.and_then(|events| json::parse(events.as_bytes(), 1).ok());
    fn text<'a>(pattern: &'a Json<'_>) -> Option<&'a str> {
        match pattern {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }
    let patterns = match &events {
        Some(Json::List(patterns)) => patterns.iter().map(text).collect(),
        _ => None,
    };
    let patterns: Vec<&str> = patterns.ok_or("the events are not a list of texts")?;
    let (selection, faults) = EventSelection::parse_stored(model, &patterns, filter);
    let list = selection.list.clone().unwrap_or_else(|| ListQuery::by_id(1, None));
    let list = Arc::new(list);
    let scope = |at: usize| {
        let resource = model.resources.get(at).filter(|resource| !resource.is_builtin)?;
        let mut kinds = EventKind::ALL.into_iter();
        kinds.any(|kind| selection.selects(resource.index, kind)).then(|| ChangeScope {
            access: AccessScope::default(),
            target: ChangeTarget::Resource(resource.index, Arc::clone(&list)),
        })
    };
    let scopes = (0..model.resources.len()).map(scope).collect();
    Ok((SelectedEvents { selection, scopes }, faults))
}

/// Whether a webhook is enabled.
pub fn is_enabled(item: &Item) -> bool {
    item.values.get(webhook::ENABLED) == Some(&Value::Boolean(true))
}
