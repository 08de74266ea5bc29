//! Publishing: a batch of the log is evaluated for each interested view, and its events go to the rings.
//!
//! The events of a view are handed over in chunks of limited size while the batch is evaluated, and all rings
//! together are limited too. So the memory does not depend on how many views see how much of a batch.
//!
//! Views that need the states of ancestors which are not known come last, so that the others do not wait for the
//! store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::evaluate::Evaluation;
use super::fact_lookup::{EvaluationFailure, Evaluator, FactLookup};
use super::view::{EventBatch, NOT_EVALUATED, View};
use crate::admission::AdmissionControl;
use crate::clock;
use crate::intent::LoggedChange;
use crate::model::Model;
use crate::store::TailBatch;

/// A chunk ends when it has this many bytes of events. Responses up to this size count as small
/// (`admission::SMALL_BYTES_MAX`): they are not reserved for each stream that sends them.
pub const CHUNK_BYTES: usize = 16 << 10;
/// The maximum size of all rings together.
const RINGS_BYTES_MAX: usize = 16 << 20;
/// The size of all chunks that are not handed over yet, from which on each event is handed over at once.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// The views as the thread uses them, by the labels of the resources whose changes they have to see.
#[derive(Debug, Default)]
pub struct ViewIndex {
    pub generation: u64,
    pub views: Vec<Arc<View>>,
    by_label: HashMap<Box<str>, Vec<usize>>,
    of_all_labels: Vec<usize>,
}

impl ViewIndex {
    pub fn new<'v>(
        model: &Model,
        generation: u64,
        views: impl Iterator<Item = &'v Arc<View>>,
    ) -> Self {
        let mut index = Self { generation, ..Self::default() };
        for (at, view) in views.filter(|view| !view.has_ended()).enumerate() {
            match view.subscription.labels(model) {
                None => index.of_all_labels.push(at),
                Some(labels) => {
                    for label in labels {
                        index.by_label.entry(label.into()).or_default().push(at);
                    }
                }
            }
            index.views.push(Arc::clone(view));
        }
        index
    }

    fn interested(&self, label: &str) -> impl Iterator<Item = usize> {
        let labelled = self.by_label.get(label).into_iter().flatten();
        labelled.chain(&self.of_all_labels).copied()
    }
}

/// Hands a batch of the log to the views. Returns whether a view has ended.
pub async fn publish(
    evaluator: &Evaluator<'_>,
    index: &ViewIndex,
    batch: TailBatch,
    lookup: &mut FactLookup,
) -> bool {
    let mut publication = Publication::new(index, evaluator.admission);
    lookup.begin_batch();
    let now = clock::moment().micros();
    let mut changes = Vec::with_capacity(batch.changes.len());
    for change in batch.changes {
        let delay = u64::try_from(now.saturating_sub(change.time.micros())).unwrap_or(0);
        evaluator.metrics.delay.observe_time(Duration::from_micros(delay));
        let logged = LoggedChange::new(evaluator.model, change);
        lookup.facts.pass(evaluator.model, &logged);
        for at in index.interested(&logged.change.resource) {
            publication.evaluate_known(evaluator, at, &logged, lookup);
        }
        changes.push(logged);
    }
    let has_ended = publication.finish(batch.end, EvaluationPass::Known);
    if !publication.needs_lookups() {
        return has_ended;
    }
    for logged in &changes {
        lookup.facts.move_to(logged.change.sequence);
        for at in index.interested(&logged.change.resource) {
            publication.evaluate_with_lookups(evaluator, at, logged, lookup).await;
        }
    }
    publication.finish(batch.end, EvaluationPass::WithLookups) || has_ended
}

/// The two passes over a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvaluationPass {
    /// From memory.
    Known,
    /// For the views that need the store.
    WithLookups,
}

/// The events of a batch, while they are collected.
struct Publication<'a> {
    index: &'a ViewIndex,
    admission: &'a AdmissionControl,
    outputs: Vec<ViewOutput>,
    /// The sizes of the rings, and their sum.
    ring_bytes: Vec<usize>,
    rings_bytes: usize,
    /// The sum of the chunks that are not handed over yet.
    pending_bytes: usize,
    read_at: Instant,
}

/// The chunk of one view.
#[derive(Debug, Default)]
struct ViewOutput {
    bytes: Vec<u8>,
    events: Vec<(i64, usize)>,
    end: Option<OutputEnd>,
    /// The number of the first change that needs a lookup. From there on the changes are evaluated in the second pass.
    lookups_from: Option<i64>,
}

impl ViewOutput {
    fn pass(&self) -> EvaluationPass {
        match self.lookups_from {
            None => EvaluationPass::Known,
            Some(_) => EvaluationPass::WithLookups,
        }
    }
}

/// Why no more changes of a batch are evaluated for a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputEnd {
    LastEvent,
    /// Its streams catch up from the log.
    Unknown,
    Panicked,
}

impl<'a> Publication<'a> {
    fn new(index: &'a ViewIndex, admission: &'a AdmissionControl) -> Self {
        let mut outputs = Vec::new();
        outputs.resize_with(index.views.len(), ViewOutput::default);
        let ring_bytes: Vec<usize> = index.views.iter().map(|view| view.ring_bytes()).collect();
        let rings_bytes = ring_bytes.iter().sum();
        let read_at = clock::now();
        Self { index, admission, outputs, ring_bytes, rings_bytes, pending_bytes: 0, read_at }
    }

    fn needs_lookups(&self) -> bool {
        self.outputs.iter().any(|output| output.lookups_from.is_some())
    }

    /// Evaluates one change for one view, unless that needs the store. A failure concerns this view alone.
    fn evaluate_known(
        &mut self,
        evaluator: &Evaluator<'_>,
        at: usize,
        logged: &LoggedChange,
        lookup: &FactLookup,
    ) {
        let (Some(view), Some(output)) = (self.index.views.get(at), self.outputs.get_mut(at))
        else {
            return;
        };
        if output.end.is_some() || output.lookups_from.is_some() {
            return;
        }
        let begin = output.bytes.len();
        let subscription = &view.subscription;
        let evaluated = evaluator.evaluate_known(&mut output.bytes, subscription, logged, lookup);
        match evaluated {
            Ok(Evaluation::NeedsFacts(_)) => {
                output.lookups_from = Some(logged.change.sequence);
            }
            evaluated => self.add_event(at, logged.change.sequence, (begin, evaluated)),
        }
    }

    /// As `evaluate_known`, in the second pass.
    async fn evaluate_with_lookups(
        &mut self,
        evaluator: &Evaluator<'_>,
        at: usize,
        logged: &LoggedChange,
        lookup: &mut FactLookup,
    ) {
        let (Some(view), Some(output)) = (self.index.views.get(at), self.outputs.get_mut(at))
        else {
            return;
        };
        let sequence = logged.change.sequence;
        if output.end.is_some() || output.lookups_from.is_none_or(|from| sequence < from) {
            return;
        }
        let begin = output.bytes.len();
        let subscription = &view.subscription;
        let evaluated = evaluator.evaluate(&mut output.bytes, subscription, logged, lookup).await;
        self.add_event(at, sequence, (begin, evaluated));
    }

    /// Adds the event of a change that was written at `begin`, if there is one.
    fn add_event(
        &mut self,
        at: usize,
        sequence: i64,
        (begin, evaluated): (usize, Result<Evaluation, EvaluationFailure>),
    ) {
        let Some(output) = self.outputs.get_mut(at) else { return };
        output.end = match evaluated {
            Ok(Evaluation::LastEvent) => Some(OutputEnd::LastEvent),
            Ok(_) => None,
            Err(EvaluationFailure::Panicked(_)) => Some(OutputEnd::Panicked),
            Err(EvaluationFailure::TooManyLookups | EvaluationFailure::Store(_)) => {
                Some(OutputEnd::Unknown)
            }
        };
        if output.bytes.len() == begin {
            return;
        }
        output.events.push((sequence, begin));
        self.pending_bytes += output.bytes.len() - begin;
        let is_full = output.bytes.len() >= CHUNK_BYTES || output.end.is_some();
        if is_full || self.pending_bytes > PENDING_BYTES_MAX {
            self.hand_over(at, sequence);
        }
    }

    /// Hands a chunk, which may be empty, to the ring of its view, which has then seen the log up to `end`.
    fn hand_over(&mut self, at: usize, end: i64) {
        let (Some(view), Some(output), Some(ring_bytes)) =
            (self.index.views.get(at), self.outputs.get_mut(at), self.ring_bytes.get_mut(at))
        else {
            return;
        };
        let is_last = output.end == Some(OutputEnd::LastEvent);
        let (bytes, events) =
            (std::mem::take(&mut output.bytes), std::mem::take(&mut output.events));
        self.pending_bytes = self.pending_bytes.saturating_sub(bytes.len());
        let batch = (!events.is_empty()).then(|| {
            let bytes = self.admission.share_bytes(bytes);
            EventBatch { bytes, events, is_last, read_at: self.read_at }
        });
        self.rings_bytes = self.rings_bytes.saturating_sub(*ring_bytes);
        *ring_bytes = view.publish(batch, end);
        self.rings_bytes += *ring_bytes;
        if self.rings_bytes > RINGS_BYTES_MAX {
            self.empty_largest_ring();
        }
    }

    /// Its streams take what they have not sent from the log.
    fn empty_largest_ring(&mut self) {
        let sizes = self.ring_bytes.iter_mut().zip(&self.index.views);
        if let Some((bytes, view)) = sizes.max_by_key(|(bytes, _)| **bytes) {
            view.forget_all();
            self.rings_bytes = self.rings_bytes.saturating_sub(std::mem::take(bytes));
        }
    }

    /// Hands over the rest of the views that a pass has completed, at the end of the batch. Returns whether one of them
    /// has ended.
    fn finish(&mut self, end: i64, pass: EvaluationPass) -> bool {
        let mut has_ended = false;
        for (at, view) in self.index.views.iter().enumerate() {
            let Some(output) = self.outputs.get(at).filter(|output| output.pass() == pass) else {
                continue;
            };
            let output_end = output.end;
            match output_end {
                None => self.hand_over(at, end),
                Some(OutputEnd::Unknown) => view.skip_to(end),
                Some(OutputEnd::LastEvent) => has_ended = true,
                Some(OutputEnd::Panicked) => {
                    view.fail(NOT_EVALUATED);
                    has_ended = true;
                }
            }
        }
        has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::evaluate::Subscription;
    use crate::events::view::ViewRead;
    use crate::intent::LogFilter;
    use crate::model;
    use crate::model::settings::ServerLimits;
    use crate::permit::AccessScope;
    use crate::permit::change_visibility::{ChangeScope, ChangeTarget};

    const MODEL: &str = "title = \"Log\"\n[resources.entry.fields]\ntext = { type = \"text\" }\n";

    fn index(views: usize) -> ViewIndex {
        let model = model::read("m.toml", MODEL).unwrap();
        let view = |_| {
            let target = ChangeTarget::All(Arc::new(LogFilter::default()));
            let scope = ChangeScope { access: AccessScope::default(), target };
            let view = View::new(Subscription::new(&model, scope));
            view.adopt(0);
            view
        };
        let views: Vec<_> = (0..views).map(view).collect();
        ViewIndex::new(&model, 1, views.iter())
    }

    fn hand_over_event(publication: &mut Publication<'_>, at: usize, sequence: i64, bytes: usize) {
        let output = &mut publication.outputs[at];
        output.events.push((sequence, output.bytes.len()));
        output.bytes.extend(vec![b'x'; bytes]);
        publication.hand_over(at, sequence);
    }

    #[test]
    fn publication_over_the_size_of_all_rings_empties_the_largest_one() {
        let (index, admission) = (index(3), AdmissionControl::new(&ServerLimits::default()));
        let mut publication = Publication::new(&index, &admission);
        hand_over_event(&mut publication, 0, 1, 6 << 20);
        hand_over_event(&mut publication, 1, 1, 7 << 20);
        assert_eq!(publication.rings_bytes, 13 << 20);
        hand_over_event(&mut publication, 2, 1, 4 << 20);
        assert_eq!(publication.ring_bytes, [6 << 20, 0, 4 << 20]);
        assert_eq!(publication.rings_bytes, 10 << 20);
        assert!(!publication.finish(9, EvaluationPass::Known));
        let reads: Vec<_> = index.views.iter().map(|view| view.read_after(0)).collect();
        assert!(matches!(reads[0], ViewRead::Events { count: 1, last: 1, .. }));
        assert_eq!(reads[1], ViewRead::Behind);
        assert!(matches!(reads[2], ViewRead::Events { count: 1, last: 1, .. }));
        assert!(index.views.iter().all(|view| view.read_after(1) == ViewRead::UpToDate(9)));
        // The next batch begins with the rings as they are.
        assert_eq!(Publication::new(&index, &admission).rings_bytes, 10 << 20);
    }
}
