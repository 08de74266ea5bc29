//! A bounded byte channel from the thread that produces an export to the task that sends it.
//!
//! It buffers a few chunks; when it is full, the producer waits (backpressure), and is cancelled if it waits
//! too long. Cancelling discards the chunks that were not consumed yet, so that the consumer sees an error
//! and never a truncated body that ends cleanly.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::clock;
use crate::model::settings::ServerLimits;
use crate::store::error::StoreError;

/// The size of a full chunk.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that the channel buffers.
const CHUNKS_MAX: usize = 2;

/// Time limits of a channel.
#[derive(Debug, Clone, Copy)]
pub struct ChannelTimeouts {
    /// The limit while the consumer reads nothing.
    pub idle: Duration,
    pub total: Duration,
}

impl ChannelTimeouts {
    pub fn from_limits(limits: &ServerLimits) -> Self {
        Self {
            idle: Duration::from_secs(limits.stream_idle_seconds_max.into()),
            total: Duration::from_secs(limits.stream_seconds_max.into()),
        }
    }
}

#[derive(Debug)]
pub struct ByteChannel {
    state: Mutex<ChannelState>,
    capacity_available: Condvar,
    began: Instant,
    timeouts: ChannelTimeouts,
}

#[derive(Debug)]
struct ChannelState {
    chunks: VecDeque<Bytes>,
    end: ChannelEnd,
    has_sent: bool,
    /// The whole body was one chunk.
    is_single_chunk: bool,
    /// The consumer was dropped.
    is_consumer_dropped: bool,
    consumer_waker: Option<Waker>,
    producer_waker: Option<Waker>,
    /// Since when the producer has waited for capacity.
    full_since: Option<Instant>,
}

#[derive(Debug)]
enum ChannelEnd {
    Open,
    Complete,
    /// The error, until the consumer has received it.
    Failed(Option<StoreError>),
}

/// The producer must stop: the consumer was dropped, or the channel was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

/// The error of an export that the server cancelled.
pub fn cancelled_error(why: &str) -> StoreError {
    StoreError::Unavailable(format!("cancelled: {why}"))
}

impl ChannelState {
    fn is_cancelled(&self) -> bool {
        self.is_consumer_dropped || !matches!(self.end, ChannelEnd::Open)
    }

    fn cancel(&mut self, error: StoreError) {
        if matches!(self.end, ChannelEnd::Open) {
            self.end = ChannelEnd::Failed(Some(error));
            self.chunks.clear();
        }
    }
}

impl ByteChannel {
    /// Creates a channel; returns both ends.
    pub fn new_pair(timeouts: ChannelTimeouts) -> (Producer, Consumer) {
        let state = ChannelState {
            chunks: VecDeque::with_capacity(CHUNKS_MAX),
            end: ChannelEnd::Open,
            has_sent: false,
            is_single_chunk: false,
            is_consumer_dropped: false,
            consumer_waker: None,
            producer_waker: None,
            full_since: None,
        };
        let (state, has_room) = (Mutex::new(state), Condvar::new());
        let pipe =
            Arc::new(Self { state, capacity_available: has_room, began: clock::now(), timeouts });
        (Producer(Arc::clone(&pipe)), Consumer(pipe))
    }

    fn state(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_cancelled(&self) -> bool {
        self.state().is_cancelled()
    }

    /// How long the producer has waited for the client.
    pub fn stalled_for(&self, now: Instant) -> Duration {
        let since = self.state().full_since;
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Ends the channel with an error, unless it has ended already.
    pub fn cancel(&self, error: StoreError) {
        let mut state = self.state();
        state.cancel(error);
        self.wake_both(state);
    }

    /// Wakes both sides after a change of the state.
    fn wake_both(&self, mut state: MutexGuard<'_, ChannelState>) {
        let wakers = [state.consumer_waker.take(), state.producer_waker.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
        self.capacity_available.notify_all();
    }

    /// Pushes a chunk if there is capacity; if not, returns the deadline for it.
    fn try_push(
        &self,
        state: &mut ChannelState,
        piece: &mut Option<Bytes>,
        now: Instant,
    ) -> Result<Option<Instant>, Cancelled> {
        if state.is_cancelled() {
            return Err(Cancelled);
        }
        let ChannelTimeouts { idle, total: whole } = self.timeouts;
        let since = state.full_since.unwrap_or(now);
        let (idle_end, whole_end) = (since + idle, self.began + whole);
        let is_full = state.chunks.len() >= CHUNKS_MAX;
        if now >= whole_end {
            state.cancel(cancelled_error(&format!(
                "it took longer than {} seconds",
                whole.as_secs()
            )));
        } else if is_full && now >= idle_end {
            state.cancel(cancelled_error(&format!(
                "the client read nothing for {} seconds",
                idle.as_secs()
            )));
        } else if is_full {
            state.full_since = Some(since);
            return Ok(Some(idle_end.min(whole_end)));
        } else {
            state.chunks.extend(piece.take());
            state.full_since = None;
            state.has_sent = true;
        }
        if let Some(fetcher) = state.consumer_waker.take() {
            fetcher.wake();
        }
        if state.is_cancelled() { Err(Cancelled) } else { Ok(None) }
    }
}

/// The sending end. Dropped without `finish`, it fails the channel.
#[derive(Debug)]
pub struct Producer(Arc<ByteChannel>);

impl Producer {
    pub fn channel(&self) -> &Arc<ByteChannel> {
        &self.0
    }

    /// Sends a chunk; blocks the thread until there is capacity or a time limit passes.
    pub fn blocking_send(&self, piece: Bytes) -> Result<(), Cancelled> {
        let mut piece = Some(piece);
        let mut state = self.0.state();
        loop {
            let now = clock::now();
            let Some(until) = self.0.try_push(&mut state, &mut piece, now)? else { return Ok(()) };
            let wait = until.saturating_duration_since(now);
            let waited = self.0.capacity_available.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends a chunk; waits asynchronously until there is capacity or a time limit passes.
    pub async fn send(&self, piece: Bytes) -> Result<(), Cancelled> {
        let mut piece = Some(piece);
        loop {
            let mut until = None;
            let put = poll_fn(|context| {
                let mut state = self.0.state();
                let put = self.0.try_push(&mut state, &mut piece, clock::now());
                until = put.ok().flatten();
                match until {
                    Some(_) => {
                        state.producer_waker = Some(context.waker().clone());
                        Poll::Pending
                    }
                    None => Poll::Ready(put.map(|_| ())),
                }
            });
            let mut put = std::pin::pin!(put);
            let first = poll_fn(|context| Poll::Ready(put.as_mut().poll(context))).await;
            if let Poll::Ready(done) = first {
                return done;
            }
            let latest = clock::now() + self.0.timeouts.idle;
            if let Ok(done) = tokio::time::timeout_at(latest.into(), put).await {
                return done;
            }
        }
    }

    /// Waits until the channel is cancelled or the consumer is dropped.
    pub async fn cancelled(&self) {
        poll_fn(|context| {
            let mut state = self.0.state();
            if state.is_cancelled() {
                return Poll::Ready(());
            }
            state.producer_waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Ends the channel with the last chunk, which may be empty, or with an error.
    pub fn finish(self, last: Result<Bytes, StoreError>) {
        self.end_with(last);
    }

    fn end_with(&self, last: Result<Bytes, StoreError>) {
        let mut state = self.0.state();
        if !matches!(state.end, ChannelEnd::Open) {
            return;
        }
        match last {
            Ok(piece) => {
                state.is_single_chunk = !state.has_sent;
                state.chunks.extend(Some(piece).filter(|piece| !piece.is_empty()));
                state.end = ChannelEnd::Complete;
            }
            Err(error) => state.cancel(error),
        }
        self.0.wake_both(state);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.end_with(Err(StoreError::Unavailable("the export was aborted".to_owned())));
    }
}

/// The receiving end. Dropped, it cancels the producer.
#[derive(Debug)]
pub struct Consumer(Arc<ByteChannel>);

impl Consumer {
    /// A handle that cancels the export from elsewhere.
    pub fn canceller(&self) -> ExportCanceller {
        ExportCanceller(Arc::downgrade(&self.0))
    }

    /// The next chunk, which is never empty. `None` at the clean end, and never after an error.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, StoreError>>> {
        let mut state = self.0.state();
        if let Some(piece) = state.chunks.pop_front() {
            state.full_since = None;
            let maker = state.producer_waker.take();
            drop(state);
            maker.into_iter().for_each(Waker::wake);
            self.0.capacity_available.notify_all();
            return Poll::Ready(Some(Ok(piece)));
        }
        match &mut state.end {
            ChannelEnd::Open => {
                state.consumer_waker = Some(context.waker().clone());
                Poll::Pending
            }
            ChannelEnd::Complete => Poll::Ready(None),
            ChannelEnd::Failed(error) => {
                let again = || StoreError::Unavailable("the export has failed".to_owned());
                Poll::Ready(Some(Err(error.take().unwrap_or_else(again))))
            }
        }
    }

    /// The first chunk, and whether it is the whole body. Empty if the body is.
    pub async fn first_chunk(&mut self) -> Result<(Bytes, bool), StoreError> {
        let first = poll_fn(|context| self.poll(context)).await.transpose()?;
        Ok((first.unwrap_or_default(), self.0.state().is_single_chunk))
    }
}

/// Cancels an export, unless it has ended already.
#[derive(Debug)]
pub struct ExportCanceller(Weak<ByteChannel>);

impl ExportCanceller {
    pub fn cancel(&self, why: &str) {
        if let Some(pipe) = self.0.upgrade() {
            pipe.cancel(cancelled_error(why));
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_consumer_dropped = true;
        state.chunks.clear();
        self.0.wake_both(state);
    }
}

#[cfg(test)]
mod tests;
