//! Catch-up: pages of the change log for streams that are behind the ring of their view.
//!
//! The requests wait in one queue and are served one page at a time, so that a restart with thousands of clients
//! that resume is a series of short reads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;

use super::evaluate::{Evaluation, EventSource, Subscription, evaluate};
use super::slot::{CatchUpPage, StreamSlot};
use super::view::View;
use crate::formats::event_stream;
use crate::intent::LoggedChange;
use crate::model::Model;
use crate::permit::change_visibility::NoAncestorStates;
use crate::plan::ChangeBatch;

/// A page ends when it has this many bytes of events.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// A stream that waits for a page.
#[derive(Debug)]
pub struct CatchUpRequest {
    pub view: Arc<View>,
    pub slot: Weak<StreamSlot>,
    pub position: i64,
    /// What follows a snapshot.
    pub bridge: Option<Arc<SnapshotBridge>>,
}

/// The changes between a snapshot and the position from which on it has none of them.
#[derive(Debug)]
pub struct SnapshotBridge {
    /// Those that the snapshot has already, in order.
    pub included: Vec<i64>,
    /// The last of them.
    pub end: i64,
}

impl CatchUpRequest {
    /// Whether the changes up to the end of the batch are not known yet, because transactions are in flight.
    pub fn is_early(&self, batch: &ChangeBatch) -> bool {
        self.bridge.is_some() && batch.end <= self.position
    }
}

/// The streams that wait for a page.
#[derive(Debug, Default)]
pub struct CatchUpQueue(Mutex<VecDeque<CatchUpRequest>>);

impl CatchUpQueue {
    pub fn push(&self, request: CatchUpRequest) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(request);
    }

    pub fn pop(&self) -> Option<CatchUpRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Evaluates a batch of the log for one view. Returns `None` if an event cannot be evaluated.
pub fn make_page(
    (model, source): (&Model, &EventSource),
    subscription: &Subscription,
    batch: ChangeBatch,
    bridge: Option<&SnapshotBridge>,
) -> Option<CatchUpPage> {
    let mut bytes = Vec::new();
    let position = bridge.map_or(batch.end, |bridge| bridge.end.min(batch.end));
    let mut page =
        CatchUpPage { bytes: Bytes::new(), count: 0, position, last_event: None, is_last: false };
    for change in batch.changes {
        let sequence = change.sequence;
        if sequence > position {
            break;
        }
        if bridge.is_some_and(|bridge| bridge.included.binary_search(&sequence).is_ok()) {
            continue;
        }
        let logged = LoggedChange::new(model, change);
        let mut event = Vec::new();
        match evaluate(&mut event, (model, source), subscription, &logged, &NoAncestorStates) {
            Evaluation::Nothing => {}
            Evaluation::Event => page.last_event = Some(sequence),
            Evaluation::LastEvent => (page.last_event, page.is_last) = (Some(sequence), true),
            Evaluation::Unknown => return None,
        }
        page.count += usize::from(!event.is_empty());
        match bridge {
            None => bytes.append(&mut event),
            // A client that is cut off before the end of the bridge needs a new snapshot.
            Some(_) => bytes.extend_from_slice(event_stream::without_id(&event)),
        }
        if page.is_last || bytes.len() >= PAGE_BYTES_MAX {
            page.position = sequence;
            break;
        }
    }
    if bridge.is_some_and(|bridge| page.position == bridge.end) {
        event_stream::write_event(&mut bytes, Some(page.position), "synced", b"{}");
    }
    page.bytes = bytes.into();
    Some(page)
}
