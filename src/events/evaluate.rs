//! One change through one subscription: whether its readers see the change, and the event that they see.
//!
//! Pure. Live events and pages of the log go through this one function, so that a client that resumes sees the
//! same bytes as one that was connected all the time. An event depends on its subscription alone, never on the
//! stream that sends it: streams share it.

use std::fmt::Write as _;

use crate::formats::cloud_event::{EventData, EventView, write_cloud_event, write_item_event};
use crate::formats::{ItemView, event_stream, logged_item};
use crate::intent::{ItemPath, LoggedChange};
use crate::model::{Model, Resource};
use crate::permit::change_visibility::{ChangeScope, ChangeTarget, Visibility, judge};
use crate::permit::{FactReader, FactTime, KnownFacts, RelatedFact};
use crate::value::{EventKind, Id, Item};

/// What a stream follows. Streams with equal keys share a view.
#[derive(Debug)]
pub struct Subscription {
    pub scope: ChangeScope,
    /// Equal for equal subscriptions.
    pub key: Box<str>,
    /// Whether events say who made the change.
    pub shows_author: bool,
}

impl Subscription {
    pub fn new(model: &Model, scope: ChangeScope) -> Self {
        let mut key = String::new();
        let is_log = match &scope.target {
            ChangeTarget::All(filter) => {
                let _ = write!(key, "log {filter:?}");
                true
            }
            ChangeTarget::Resource(resource, list) => {
                let _ = write!(key, "{} {:?}", resource.0, list.selection_key());
                false
            }
            ChangeTarget::Collection(resource, ancestors, list) => {
                let _ = write!(key, "{} {ancestors:?} {:?}", resource.0, list.selection_key());
                false
            }
            ChangeTarget::Item(path, selection) => {
                let selection = selection.as_ref().map(|list| list.selection_key());
                let _ = write!(key, "{path:?} {selection:?}");
                false
            }
        };
        let access = &scope.access;
        let user = match scope.target.resource() {
            Some(resource) => access.deciding_user(model.lineage(resource).into_iter()),
            None => access.deciding_user(model.resources.iter()),
        };
        let _ = write!(key, " {:?} {user:?}", access.rights_key());
        Self { scope, key: key.into(), shows_author: is_log }
    }

    /// The labels of the resources whose changes it has to see; `None`: all.
    pub fn labels<'m>(&self, model: &'m Model) -> Option<Vec<&'m str>> {
        let resource = self.scope.target.resource()?;
        // The change of an ancestor may end the stream, or take items from it.
        let label = |resource: &'m Resource| &*resource.label;
        Some(model.lineage(resource).into_iter().map(label).collect())
    }

    /// The path above the items that it follows, if there is one.
    fn ancestors(&self) -> &[Id] {
        match &self.scope.target {
            ChangeTarget::All(_) | ChangeTarget::Resource(..) => &[],
            ChangeTarget::Collection(_, ancestors, _) => ancestors,
            ChangeTarget::Item(path, _) => &path.ancestors,
        }
    }
}

/// The result for one change.
#[derive(Debug, PartialEq)]
pub enum Evaluation {
    Nothing,
    /// An event was written.
    Event,
    /// The last event was written: what the stream follows no longer exists, or is no longer visible.
    LastEvent,
    /// These facts decide, and are not known here.
    NeedsFacts(Vec<RelatedFact>),
}

/// How events name the server.
#[derive(Debug)]
pub struct EventSource {
    /// The origin and the base path.
    pub source: Box<str>,
    pub base_path: Box<str>,
}

impl EventSource {
    pub fn new(model: &Model) -> Self {
        let base_path = model.server.base_path.as_deref().unwrap_or("");
        let source = match model.server.base_url.as_deref() {
            Some(base_url) => [base_url, base_path].concat(),
            None if base_path.is_empty() => "/".to_owned(),
            None => base_path.to_owned(),
        };
        Self { source: source.into(), base_path: base_path.into() }
    }
}

/// Writes the event of an item in a snapshot; without an id, because a client that is cut off in the middle of a
/// snapshot needs a new one.
pub fn write_snapshot_item(
    out: &mut Vec<u8>,
    (source, subject): (&EventSource, &str),
    view: ItemView<'_>,
    item: &Item,
) {
    let mut event = Vec::with_capacity(512);
    write_item_event(&mut event, (&source.source, subject), view, item);
    event_stream::write_event(out, None, "item", &event);
}

/// Evaluates one change, and appends its event as the readers see it.
pub fn evaluate(
    out: &mut Vec<u8>,
    (model, source): (&Model, &EventSource),
    subscription: &Subscription,
    logged: &LoggedChange,
    known: &dyn KnownFacts,
) -> Evaluation {
    crate::fault::point("feed");
    let scope = &subscription.scope;
    let facts = FactReader::new(model, known, FactTime::Past);
    if let Some(is_gone) = ancestor_change(subscription, logged, &facts) {
        if facts.has_needed() {
            return Evaluation::NeedsFacts(facts.into_needed());
        }
        if is_gone {
            write_left(out, source, subscription, logged);
            return Evaluation::LastEvent;
        }
        return Evaluation::Nothing;
    }
    if let Some(above) = scope_above(model, scope, logged) {
        return match judge(model, &above, logged, known) {
            Visibility::NeedsFacts(needed) => Evaluation::NeedsFacts(needed),
            Visibility::Visible { kind: EventKind::Left, .. } => {
                write_left(out, source, subscription, logged);
                Evaluation::Event
            }
            Visibility::Visible { .. } | Visibility::Hidden => Evaluation::Nothing,
        };
    }
    match judge(model, scope, logged, known) {
        Visibility::Hidden => Evaluation::Nothing,
        Visibility::NeedsFacts(needed) => Evaluation::NeedsFacts(needed),
        Visibility::Visible { kind, shows_before } => {
            let reader = (scope, subscription.shows_author);
            let event = encode_event((model, source), reader, logged, (kind, shows_before));
            event_stream::write_event(out, Some(logged.change.sequence), kind.as_str(), &event);
            let is_item = matches!(scope.target, ChangeTarget::Item(..));
            match is_item && matches!(kind, EventKind::Deleted | EventKind::Left) {
                true => Evaluation::LastEvent,
                false => Evaluation::Event,
            }
        }
    }
}

/// For a change of one of the items above those that the subscription follows: whether they are out of reach from
/// then on. `None` for other changes.
fn ancestor_change(
    subscription: &Subscription,
    logged: &LoggedChange,
    facts: &FactReader<'_>,
) -> Option<bool> {
    let model = facts.model();
    let ancestors = subscription.ancestors();
    if ancestors.is_empty() {
        return None;
    }
    let ItemPath { resource, ancestors: above, id } = logged.path.as_ref()?;
    let is_above =
        ancestors.get(..above.len()) == Some(above) && ancestors.get(above.len()) == Some(id);
    let lineage = model.lineage(subscription.scope.target.resource()?);
    let at_level = lineage.get(above.len()).map(|resource| resource.index);
    if !is_above || at_level != Some(*resource) {
        return None;
    }
    let is_visible = logged.after(model).is_some_and(|after| {
        subscription.scope.access.can_read_item(model.resource(*resource), after, facts)
    });
    let has_row_filter = !subscription.scope.access.read_access(*resource).row_filters.is_empty();
    let is_deleted = logged.kind == Some(crate::value::ChangeKind::Deleted);
    Some(is_deleted || (has_row_filter && !is_visible))
}

/// For the items of all parents, and a change of an item above some of them: the scope by which the reader sees that
/// item. `None` for other changes, and where all items above are visible.
fn scope_above(model: &Model, scope: &ChangeScope, logged: &LoggedChange) -> Option<ChangeScope> {
    let ChangeTarget::Resource(resource, _) = scope.target else { return None };
    let path = logged.path.as_ref().filter(|path| path.resource != resource)?;
    let is_above = model.lineage(resource).iter().any(|level| level.index == path.resource);
    let is_limited = !scope.access.read_access(path.resource).row_filters.is_empty();
    (is_above && is_limited).then(|| {
        let target = ChangeTarget::Item(path.clone(), None);
        ChangeScope { access: scope.access.clone(), target }
    })
}

/// Writes the event of an item that the readers no longer see, and nothing below it.
fn write_left(
    out: &mut Vec<u8>,
    source: &EventSource,
    subscription: &Subscription,
    logged: &LoggedChange,
) {
    let (kind, author) = (EventKind::Left, subscription.shows_author);
    let event = encode_data(source, author, logged, (kind, EventData::Id));
    event_stream::write_event(out, Some(logged.change.sequence), kind.as_str(), &event);
}

/// The event of a change, as `judge` says that a reader sees it.
pub fn encode_event(
    (model, source): (&Model, &EventSource),
    (scope, shows_author): (&ChangeScope, bool),
    logged: &LoggedChange,
    (kind, shows_before): (EventKind, bool),
) -> Vec<u8> {
    let view = scope.view(logged.resource.map(|index| model.resource(index)));
    let shown = |text: Option<&str>, write: fn(&mut Vec<u8>, _, &str)| {
        text.map(|text| {
            let mut out = Vec::with_capacity(text.len());
            write(&mut out, view, text);
            crate::json::into_text(out)
        })
    };
    let change = &logged.change;
    let before = change.before.as_deref().filter(|_| shows_before);
    let before = shown(before, logged_item::write_visible);
    let after = shown(change.after.as_deref(), logged_item::write_visible);
    // The names compare the two items: they would tell of values that are not shown.
    let changed = change.changed.as_deref().filter(|_| shows_before);
    let changed = shown(changed, logged_item::write_visible_names);
    let data = match kind {
        EventKind::Left => EventData::Id,
        EventKind::Created | EventKind::Updated | EventKind::Deleted => EventData::Values {
            changed: changed.as_deref(),
            before: before.as_deref(),
            after: after.as_deref(),
        },
    };
    encode_data(source, shows_author, logged, (kind, data))
}

fn encode_data(
    source: &EventSource,
    shows_author: bool,
    logged: &LoggedChange,
    (kind, data): (EventKind, EventData<'_>),
) -> Vec<u8> {
    let view = EventView {
        source: &source.source,
        base_path: &source.base_path,
        kind: kind.as_str(),
        shows_author,
        data,
    };
    let mut event = Vec::with_capacity(512);
    write_cloud_event(&mut event, view, &logged.change);
    event
}
