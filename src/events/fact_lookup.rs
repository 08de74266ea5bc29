//! Evaluation of changes whose visibility depends on other items: on the parents, and on the items that row filters name.
//! Those are read from the store.
//!
//! A caller whose roles show some parents only sees what is below those. The lookups of a batch are limited, so that
//! the streams of such callers do not delay the others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::evaluate::{Evaluation, EventSource, Subscription, evaluate};
use crate::admission::AdmissionControl;
use crate::clock;
use crate::fault;
use crate::intent::LoggedChange;
use crate::metrics::FeedMetrics;
use crate::model::Model;
use crate::permit::{FactCache, RelatedFact};
use crate::store::{StoreError, StoreWorker};

/// Facts that are looked up for one batch or page.
const LOOKUPS_MAX: usize = 128;
/// The time for the lookups of one batch, while the events of all streams wait.
const BATCH_LOOKUP_TIME: Duration = Duration::from_millis(200);

/// The facts that are known of other items, and how many more may be looked up.
#[derive(Debug)]
pub struct FactLookup {
    pub facts: FactCache,
    left: usize,
    until: Option<Instant>,
}

impl FactLookup {
    pub fn new() -> Self {
        Self { facts: FactCache::default(), left: LOOKUPS_MAX, until: None }
    }

    /// Allows the lookups of another batch, for a limited time.
    pub fn begin_batch(&mut self) {
        self.left = LOOKUPS_MAX;
        self.until = Some(clock::now() + BATCH_LOOKUP_TIME);
    }

    /// Allows the lookups of another page.
    pub fn begin_page(&mut self) {
        (self.left, self.until) = (LOOKUPS_MAX, None);
    }

    /// Whether anything was looked up for the batch or page.
    pub fn has_read(&self) -> bool {
        self.left < LOOKUPS_MAX
    }

    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| clock::now() >= until)
    }
}

/// Why a change is not evaluated.
#[derive(Debug)]
pub enum EvaluationFailure {
    Panicked(String),
    /// The batch has had its lookups, or its time for them.
    TooManyLookups,
    Store(StoreError),
}

/// What evaluations share.
#[derive(Debug, Clone, Copy)]
pub struct Evaluator<'a> {
    pub model: &'a Model,
    pub source: &'a EventSource,
    pub worker: &'a StoreWorker,
    pub metrics: &'a FeedMetrics,
    pub admission: &'a AdmissionControl,
}

impl Evaluator<'_> {
    /// Evaluates the change that the cache has moved to, and appends its event.
    pub async fn evaluate(
        &self,
        out: &mut Vec<u8>,
        subscription: &Subscription,
        logged: &LoggedChange,
        lookup: &mut FactLookup,
    ) -> Result<Evaluation, EvaluationFailure> {
        loop {
            match self.evaluate_known(out, subscription, logged, lookup)? {
                Evaluation::NeedsFacts(needed) => self.look_up(logged, needed, lookup).await?,
                known => return Ok(known),
            }
        }
    }

    /// As `evaluate`, with cached states only.
    pub fn evaluate_known(
        &self,
        out: &mut Vec<u8>,
        subscription: &Subscription,
        logged: &LoggedChange,
        lookup: &FactLookup,
    ) -> Result<Evaluation, EvaluationFailure> {
        let begin = out.len();
        let work = AssertUnwindSafe(|| {
            evaluate(out, (self.model, self.source), subscription, logged, &lookup.facts)
        });
        catch_unwind(work).map_err(|panic| {
            out.truncate(begin);
            EvaluationFailure::Panicked(fault::panic_message(&*panic))
        })
    }

    async fn look_up(
        &self,
        logged: &LoggedChange,
        needed: Vec<RelatedFact>,
        lookup: &mut FactLookup,
    ) -> Result<(), EvaluationFailure> {
        let left = lookup.left.checked_sub(needed.len()).filter(|_| !lookup.is_late());
        let left = left.ok_or(EvaluationFailure::TooManyLookups)?;
        lookup.left = left;
        self.metrics.fact_reads.add(1);
        let sequence = logged.change.sequence;
        let read = self.worker.read_related_facts(needed.clone(), sequence).await;
        let answers = read.map_err(|error| {
            // The next ones would wait as long for the same error.
            lookup.left = 0;
            EvaluationFailure::Store(error)
        })?;
        for (answer, fact) in answers.into_iter().zip(needed) {
            answer.add_to(&mut lookup.facts, fact);
        }
        Ok(())
    }
}
