//! The chunks of an export on their way from the thread that reads them to the task that sends them.
//!
//! The channel buffers a few chunks; when it is full, the producer waits (backpressure), and the export is
//! cancelled if it waits too long. After a cancel the consumer gets the error and no further chunk, so that
//! it never sees a truncated body that ends cleanly.

use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep_until;

use crate::clock;
use crate::metrics::Metrics;
use crate::model::settings::ServerLimits;
use crate::store::error::StoreError;

/// Chunks that the channel buffers.
const CHUNKS_MAX: usize = 2;
/// How long the shutdown waits for cancelled exports.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time limits of an export.
#[derive(Debug, Clone, Copy)]
pub struct ExportTimeouts {
    /// The limit while the consumer reads nothing.
    pub idle: Duration,
    pub total: Duration,
}

/// Admission of exports: their limit, their metric, and what is in flight.
#[derive(Debug)]
pub struct Exports {
    exports_max: usize,
    pub timeouts: ExportTimeouts,
    metrics: Arc<Metrics>,
    in_flight: Mutex<Vec<Arc<ExportControl>>>,
    one_ended: Condvar,
}

impl Exports {
    pub fn new(limits: &ServerLimits, metrics: &Arc<Metrics>) -> Arc<Self> {
        let timeouts = ExportTimeouts {
            idle: Duration::from_secs(limits.stream_idle_seconds_max.into()),
            total: Duration::from_secs(limits.stream_seconds_max.into()),
        };
        Arc::new(Self {
            exports_max: limits.exports_max,
            timeouts,
            metrics: Arc::clone(metrics),
            in_flight: Mutex::default(),
            one_ended: Condvar::new(),
        })
    }

    /// Both ends of the channel of a new export, unless there are too many.
    pub fn begin(self: &Arc<Self>) -> Result<(ExportSink, ExportStream), StoreError> {
        let control = Arc::new(ExportControl::default());
        {
            let mut in_flight = self.in_flight();
            if in_flight.len() >= self.exports_max {
                return Err(StoreError::Busy);
            }
            in_flight.push(Arc::clone(&control));
        }
        self.metrics.server.exports.increment();
        let slot = ExportSlot { exports: Arc::clone(self), control: Arc::clone(&control) };
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        let sink = ExportSink { chunks: sender, slot, began: clock::now() };
        Ok((sink, ExportStream { chunks: receiver, control, has_streamed: false }))
    }

    fn in_flight(&self) -> MutexGuard<'_, Vec<Arc<ExportControl>>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether exports are in flight.
    pub fn has_any(&self) -> bool {
        !self.in_flight().is_empty()
    }

    /// Cancels the exports whose client has read nothing for this long.
    pub fn cancel_stalled(&self, stalled_min: Duration, why: &str) {
        let now = clock::now();
        for control in self.in_flight().iter() {
            if control.stalled_for(now) >= stalled_min {
                control.cancel(why);
            }
        }
    }

    /// Cancels all exports in flight, and waits until their connections are closed.
    pub fn close(&self) {
        self.cancel_stalled(Duration::ZERO, "the server is shutting down");
        let is_running = |in_flight: &mut Vec<_>| !in_flight.is_empty();
        drop(self.one_ended.wait_timeout_while(self.in_flight(), CLOSE_TIMEOUT, is_running));
    }
}

/// A slot of the limit, released however the export ends.
#[derive(Debug)]
struct ExportSlot {
    exports: Arc<Exports>,
    control: Arc<ExportControl>,
}

impl Drop for ExportSlot {
    fn drop(&mut self) {
        self.exports.in_flight().retain(|control| !Arc::ptr_eq(control, &self.control));
        self.exports.metrics.server.exports.decrement();
        self.exports.one_ended.notify_all();
    }
}

/// The state of an export that its two ends share, and by which it is cancelled from elsewhere.
#[derive(Debug, Default)]
pub struct ExportControl {
    state: Mutex<ExportState>,
    consumer: AtomicWaker,
    producer: Notify,
}

#[derive(Debug, Default)]
struct ExportState {
    end: ExportEnd,
    /// Since when the producer has waited for the client.
    stalled_since: Option<Instant>,
}

#[derive(Debug, Default)]
enum ExportEnd {
    #[default]
    Open,
    /// The last chunk, until the consumer has received it.
    Complete(Bytes),
    /// The error, until the consumer has received it.
    Failed(Option<StoreError>),
}

impl ExportControl {
    fn state(&self) -> MutexGuard<'_, ExportState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_cancelled(&self) -> bool {
        matches!(self.state().end, ExportEnd::Failed(_))
    }

    /// Cancels the export, unless it has ended already.
    pub fn cancel(&self, why: &str) {
        let error = StoreError::Unavailable(format!("cancelled: {why}"));
        self.end_with(ExportEnd::Failed(Some(error)));
    }

    fn end_with(&self, end: ExportEnd) {
        let mut state = self.state();
        if matches!(state.end, ExportEnd::Open) {
            state.end = end;
        }
        drop(state);
        self.consumer.wake();
        self.producer.notify_waiters();
    }

    /// How long the producer has waited for the client.
    fn stalled_for(&self, now: Instant) -> Duration {
        let since = self.state().stalled_since;
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Waits until the export is cancelled.
    pub async fn cancelled(&self) {
        // Created before the check, because it is notified from then on.
        let notified = self.producer.notified();
        if !self.is_cancelled() {
            notified.await;
        }
    }

    /// The end of the export after its chunks: nothing, the last chunk or an error.
    fn take_end(&self) -> Option<Result<Bytes, StoreError>> {
        let again = || StoreError::Unavailable("the export has failed".to_owned());
        match &mut self.state().end {
            ExportEnd::Complete(last) => {
                let last = std::mem::take(last);
                (!last.is_empty()).then_some(Ok(last))
            }
            ExportEnd::Failed(error) => Some(Err(error.take().unwrap_or_else(again))),
            end @ ExportEnd::Open => {
                *end = ExportEnd::Failed(None);
                Some(Err(StoreError::Unavailable("the export was aborted".to_owned())))
            }
        }
    }
}

/// The export was cancelled; the cause is on its way to the consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

impl From<Cancelled> for StoreError {
    fn from(_: Cancelled) -> Self {
        Self::Unavailable("the export was cancelled".to_owned())
    }
}

/// The sending end. Dropped without `finish`, it fails the export.
#[derive(Debug)]
pub struct ExportSink {
    chunks: mpsc::Sender<Bytes>,
    slot: ExportSlot,
    began: Instant,
}

impl ExportSink {
    pub fn control(&self) -> &Arc<ExportControl> {
        &self.slot.control
    }

    /// Sends a chunk; waits until there is capacity or a time limit passes.
    pub async fn send(&self, chunk: Bytes) -> Result<(), Cancelled> {
        let ExportTimeouts { idle, total } = self.slot.exports.timeouts;
        let (now, control) = (clock::now(), self.control());
        let (idle_end, total_end) = (now + idle, self.began + total);
        let cancel_late = || match total_end <= idle_end {
            true => control.cancel(&format!("it took longer than {} seconds", total.as_secs())),
            false => {
                control.cancel(&format!("the client read nothing for {} seconds", idle.as_secs()));
            }
        };
        if now >= total_end {
            cancel_late();
        }
        if control.is_cancelled() {
            return Err(Cancelled);
        }
        let chunk = match self.chunks.try_send(chunk) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(chunk)) => chunk,
            Err(TrySendError::Closed(_)) => return Err(Cancelled),
        };
        control.state().stalled_since = Some(now);
        let is_sent = tokio::select! {
            biased;
            () = control.cancelled() => false,
            sent = self.chunks.send(chunk) => sent.is_ok(),
            () = sleep_until(idle_end.min(total_end).into()) => {
                cancel_late();
                false
            }
        };
        control.state().stalled_since = None;
        if is_sent { Ok(()) } else { Err(Cancelled) }
    }

    /// Ends the export with the last chunk, which may be empty, or with an error. Its slot is free before the
    /// client sees the end.
    pub fn finish(self, last: Result<Bytes, StoreError>) {
        let control = Arc::clone(self.control());
        drop(self.slot);
        control.end_with(match last {
            Ok(chunk) => ExportEnd::Complete(chunk),
            Err(error) => ExportEnd::Failed(Some(error)),
        });
    }
}

/// The receiving end. Dropped, it cancels the producer.
#[derive(Debug)]
pub struct ExportStream {
    chunks: mpsc::Receiver<Bytes>,
    control: Arc<ExportControl>,
    has_streamed: bool,
}

impl ExportStream {
    pub fn control(&self) -> &Arc<ExportControl> {
        &self.control
    }

    /// The next chunk, which is never empty. `None` at the clean end, and never after an error.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, StoreError>>> {
        self.control.consumer.register(context.waker());
        if !self.control.is_cancelled()
            && let Some(chunk) = ready!(self.chunks.poll_recv(context))
        {
            self.has_streamed = true;
            return Poll::Ready(Some(Ok(chunk)));
        }
        Poll::Ready(self.control.take_end())
    }

    /// Waits for the first chunk, so that an early failure is still an error response.
    pub async fn into_body(mut self) -> Result<ExportBody, StoreError> {
        let first = poll_fn(|context| self.poll(context)).await.transpose()?.unwrap_or_default();
        Ok(match self.has_streamed {
            true => ExportBody::Streaming(first, self),
            false => ExportBody::Complete(first),
        })
    }
}

impl Drop for ExportStream {
    fn drop(&mut self) {
        self.control.cancel("the client has disconnected");
    }
}

/// A complete body, or the first chunk of a streaming response.
#[derive(Debug)]
pub enum ExportBody {
    Complete(Bytes),
    Streaming(Bytes, ExportStream),
}

#[cfg(test)]
mod tests;
