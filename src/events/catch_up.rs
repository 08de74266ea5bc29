//! Catch-up: pages of the change log for streams that are behind the ring of their view.
//!
//! The requests wait in one queue and are served one page at a time, so that a restart with thousands of clients
//! that resume is a series of short reads. A batch of the log is larger than a page, and streams often resume at
//! similar positions, so the last batches are kept for a moment, with their pages.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use bytes::Bytes;

use super::evaluate::{Evaluation, Subscription};
use super::fact_lookup::{EvaluationFailure, Evaluator, FactLookup};
use super::publish::CHUNK_BYTES;
use super::slot::{CatchUpPage, StreamSlot};
use super::store_failures::RETRY_PAUSE;
use super::view::View;
use crate::clock;
use crate::formats::event_stream;
use crate::intent::LoggedChange;
use crate::model::Model;
use crate::plan::ChangeBatch;

/// The size of a batch that is read for pages.
pub const BATCH_BYTES_MAX: usize = 256 << 10;
/// How many batches are kept.
const BATCHES_MAX: usize = 16;
/// The size of the pages that are kept for one batch.
const PAGES_BYTES_MAX: usize = 256 << 10;
/// The size of a page without its events.
const PAGE_BYTES: usize = 128;

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

/// Requests that are tried again later.
#[derive(Debug, Default)]
pub struct PostponedRequests {
    /// Requests whose reads have failed.
    failed: Vec<CatchUpRequest>,
    pub due_at: Option<Instant>,
    /// Requests whose next entries transactions in flight hold back. They wait for the feed thread, which polls the
    /// log for all of them.
    pub held_back: Vec<CatchUpRequest>,
}

impl PostponedRequests {
    pub fn add_failed(&mut self, request: CatchUpRequest) {
        self.failed.push(request);
        self.due_at.get_or_insert(clock::now() + RETRY_PAUSE);
    }

    /// Queues the requests that are due for a retry. `position` is the last number of the change log that the feed thread has read.
    pub fn push_due(&mut self, queue: &CatchUpQueue, position: i64) {
        if self.due_at.is_some_and(|due_at| clock::now() >= due_at) {
            self.due_at = None;
            self.failed.drain(..).for_each(|request| queue.push(request));
        }
        self.held_back.retain(|request| request.slot.strong_count() > 0);
        let is_due = |request: &mut CatchUpRequest| request.position < position;
        self.held_back.extract_if(.., is_due).for_each(|request| queue.push(request));
    }
}

/// Entries of the log, in order: all of those after one number and up to another.
#[derive(Debug)]
pub struct LogSection {
    after: i64,
    end: i64,
    changes: Vec<LoggedChange>,
    pages: RefCell<SectionPages>,
}

/// The pages of a section that were made last, which the streams of a view share.
#[derive(Debug, Default)]
struct SectionPages {
    pages: VecDeque<SectionPage>,
    bytes: usize,
}

#[derive(Debug)]
struct SectionPage {
    view: Arc<View>,
    after: i64,
    page: CatchUpPage,
}

impl SectionPage {
    fn approximate_bytes(&self) -> usize {
        self.page.bytes.len() + PAGE_BYTES
    }
}

impl LogSection {
    /// `None` if the log has nothing after the position that is known to be complete, because transactions are in
    /// flight.
    pub fn new(model: &Model, after: i64, batch: ChangeBatch) -> Option<Rc<Self>> {
        let changes = batch.changes.into_iter().map(|change| LoggedChange::new(model, change));
        let (changes, pages) = (changes.collect(), RefCell::default());
        let section = Self { after, end: batch.end, changes, pages };
        (section.end > after).then(|| Rc::new(section))
    }

    fn has_entries_after(&self, position: i64) -> bool {
        self.after <= position && position < self.end
    }

    /// The page of a view after a position, if another stream has had it.
    pub fn page(&self, view: &Arc<View>, after: i64) -> Option<CatchUpPage> {
        let pages = self.pages.borrow();
        let is_it = |kept: &&SectionPage| kept.after == after && Arc::ptr_eq(&kept.view, view);
        pages.pages.iter().find(is_it).map(|kept| kept.page.clone())
    }

    pub fn keep_page(&self, view: &Arc<View>, after: i64, page: &CatchUpPage) {
        let mut pages = self.pages.borrow_mut();
        let kept = SectionPage { view: Arc::clone(view), after, page: page.clone() };
        pages.bytes += kept.approximate_bytes();
        pages.pages.push_front(kept);
        while pages.bytes > PAGES_BYTES_MAX
            && let Some(oldest) = pages.pages.pop_back()
        {
            pages.bytes -= oldest.approximate_bytes();
        }
    }

    fn changes_after(&self, position: i64) -> &[LoggedChange] {
        let first = self.changes.partition_point(|logged| logged.change.sequence <= position);
        self.changes.get(first..).unwrap_or_default()
    }
}

/// The sections of the log that were read last.
#[derive(Debug, Default)]
pub struct SectionCache(VecDeque<Rc<LogSection>>);

impl SectionCache {
    pub fn find(&self, position: i64) -> Option<Rc<LogSection>> {
        self.0.iter().find(|section| section.has_entries_after(position)).cloned()
    }

    pub fn insert(&mut self, section: &Rc<LogSection>) {
        self.0.truncate(BATCHES_MAX - 1);
        self.0.push_front(Rc::clone(section));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0 = VecDeque::new();
    }
}

/// Evaluates a section of the log for one view, from a position on.
pub async fn make_page(
    evaluator: &Evaluator<'_>,
    subscription: &Subscription,
    (section, after): (&LogSection, i64),
    bridge: Option<&SnapshotBridge>,
    lookup: &mut FactLookup,
) -> Result<CatchUpPage, EvaluationFailure> {
    let mut bytes = Vec::new();
    let position = bridge.map_or(section.end, |bridge| bridge.end.min(section.end));
    let mut page =
        CatchUpPage { bytes: Bytes::new(), count: 0, position, last_event: None, is_last: false };
    let mut examined = after;
    for logged in section.changes_after(after) {
        let sequence = logged.change.sequence;
        if sequence > position {
            break;
        }
        if bridge.is_some_and(|bridge| bridge.included.binary_search(&sequence).is_ok()) {
            continue;
        }
        let mut event = Vec::new();
        lookup.facts.move_to(sequence);
        match evaluator.evaluate(&mut event, subscription, logged, lookup).await {
            Ok(Evaluation::Event) => page.last_event = Some(sequence),
            Ok(Evaluation::LastEvent) => (page.last_event, page.is_last) = (Some(sequence), true),
            Ok(_) => {}
            // This page ends here, with at least one change. The next page starts with a new lookup limit, and returns
            // the error if it happens again.
            Err(EvaluationFailure::TooManyLookups | EvaluationFailure::Store(_))
                if examined > after =>
            {
                page.position = examined;
                break;
            }
            Err(failure) => return Err(failure),
        }
        examined = sequence;
        page.count += usize::from(!event.is_empty());
        match bridge {
            None => bytes.append(&mut event),
            // A client that is cut off before the end of the bridge needs a new snapshot.
            Some(_) => bytes.extend_from_slice(event_stream::without_id(&event)),
        }
        if page.is_last || bytes.len() >= CHUNK_BYTES {
            page.position = sequence;
            break;
        }
    }
    if bridge.is_some_and(|bridge| page.position == bridge.end) {
        event_stream::write_event(&mut bytes, Some(page.position), "synced", b"{}");
    }
    page.bytes = evaluator.admission.share_bytes(bytes);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::LogFilter;
    use crate::model;
    use crate::permit::AccessScope;
    use crate::permit::change_visibility::{ChangeScope, ChangeTarget};
    use crate::plan::LogMarks;
    use crate::value::{Change, Moment};

    const MODEL: &str = "title = \"Log\"\n[resources.entry.fields]\ntext = { type = \"text\" }\n";

    fn section(after: i64, sequences: &[i64], end: i64) -> Option<Rc<LogSection>> {
        let model = model::read("m.toml", MODEL).unwrap();
        let change = |sequence: &i64| Change {
            sequence: *sequence,
            time: Moment::parse("2026-11-17T03:20:01Z").unwrap(),
            resource: "entry".to_owned(),
            id: "1".to_owned(),
            subject: "/entries/1".to_owned(),
            kind: "created".to_owned(),
            actor: "ann".to_owned(),
            request_id: "r".to_owned(),
            changed: None,
            before: None,
            after: None,
        };
        let marks = LogMarks {
            low_watermark: end,
            reached: end,
            swept: 0,
            oldest: None,
            has_in_flight: false,
            incarnation: 0,
        };
        let changes = sequences.iter().map(change).collect();
        LogSection::new(&model, after, ChangeBatch { changes, end, marks })
    }

    #[test]
    fn section_cache_finds_what_it_has_from_any_position_in_it() {
        let mut cache = SectionCache::default();
        cache.insert(&section(3, &[4, 6, 9], 12).unwrap());
        for position in [0, 2, 12, 13] {
            assert!(cache.find(position).is_none(), "{position}");
        }
        for (position, expected) in [(3, &[4, 6, 9][..]), (4, &[6, 9]), (5, &[6, 9]), (11, &[])] {
            let found = cache.find(position).unwrap();
            let changes = found.changes_after(position).iter();
            let numbers: Vec<i64> = changes.map(|logged| logged.change.sequence).collect();
            assert_eq!(numbers, expected, "{position}");
        }
        assert!(section(12, &[], 12).is_none(), "transactions are in flight");
    }

    fn view() -> Arc<View> {
        let model = model::read("m.toml", MODEL).unwrap();
        let target = ChangeTarget::All(Arc::new(LogFilter::default()));
        let scope = ChangeScope { access: AccessScope::default(), target };
        View::new(Subscription::new(&model, scope))
    }

    #[test]
    fn section_pages_are_shared_by_the_streams_of_a_view_at_one_position() {
        let page = |size: usize| CatchUpPage {
            bytes: vec![b'x'; size].into(),
            count: 1,
            position: 6,
            last_event: Some(6),
            is_last: false,
        };
        let (section, one, other) = (section(3, &[4, 6, 9], 12).unwrap(), view(), view());
        section.keep_page(&one, 3, &page(1_000));
        assert_eq!(section.page(&one, 3), Some(page(1_000)));
        assert!(section.page(&one, 4).is_none() && section.page(&other, 3).is_none());
        section.keep_page(&other, 3, &page(PAGES_BYTES_MAX - 2 * PAGE_BYTES));
        assert!(section.page(&one, 3).is_none() && section.page(&other, 3).is_some());
        section.keep_page(&one, 4, &page(PAGES_BYTES_MAX));
        assert_eq!(section.pages.borrow().pages.len(), 0, "a page that is too large is not kept");
        assert_eq!(section.pages.borrow().bytes, 0);
    }

    #[test]
    fn section_cache_forgets_the_oldest() {
        let mut cache = SectionCache::default();
        for after in 0..20 {
            cache.insert(&section(after * 10, &[], after * 10 + 10).unwrap());
        }
        assert_eq!(cache.0.len(), BATCHES_MAX);
        assert!(cache.find(35).is_none() && cache.find(45).is_some());
    }
}
