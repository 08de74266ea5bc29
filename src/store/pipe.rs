//! A bounded byte channel from the thread that produces an export to the task that sends it.
//!
//! It buffers a few chunks; when it is full, the producer waits (backpressure), and is cancelled if it waits
//! too long.
//! The one surprising thing: cancelling discards the chunks that were not consumed yet, so that the consumer
//! sees an error and never a truncated body that ends cleanly.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::StoreError;
use crate::clock;
use crate::model::settings::Limits;

/// The size of a full chunk.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Chunks that the channel buffers.
const PIECES_MAX: usize = 2;

/// Time limits of a channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// While the consumer takes nothing.
    pub(super) idle: Duration,
    pub(super) whole: Duration,
}

impl Patience {
    pub(super) fn of(limits: &Limits) -> Self {
        Self {
            idle: Duration::from_secs(limits.stream_idle_seconds_max.into()),
            whole: Duration::from_secs(limits.stream_seconds_max.into()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Pipe {
    state: Mutex<State>,
    has_room: Condvar,
    began: Instant,
    patience: Patience,
}

#[derive(Debug)]
struct State {
    pieces: VecDeque<Bytes>,
    end: End,
    has_sent: bool,
    /// The whole body was one chunk.
    is_one: bool,
    /// The consumer was dropped.
    is_left: bool,
    fetcher: Option<Waker>,
    maker: Option<Waker>,
    /// Since when the producer has waited for capacity.
    full_since: Option<Instant>,
}

#[derive(Debug)]
enum End {
    None,
    Whole,
    /// The error, until the consumer has taken it.
    Broken(Option<StoreError>),
}

/// The producer must stop: the consumer was dropped, or the channel was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Halted;

/// The error of an export that the server cancelled.
pub(super) fn cut(why: &str) -> StoreError {
    StoreError::Unavailable(format!("cut: {why}"))
}

impl State {
    fn is_halted(&self) -> bool {
        self.is_left || !matches!(self.end, End::None)
    }

    fn cut(&mut self, error: StoreError) {
        if matches!(self.end, End::None) {
            self.end = End::Broken(Some(error));
            self.pieces.clear();
        }
    }
}

impl Pipe {
    /// Creates a channel; returns both ends.
    pub(super) fn open(patience: Patience) -> (Maker, Fetcher) {
        let state = State {
            pieces: VecDeque::with_capacity(PIECES_MAX),
            end: End::None,
            has_sent: false,
            is_one: false,
            is_left: false,
            fetcher: None,
            maker: None,
            full_since: None,
        };
        let (state, has_room) = (Mutex::new(state), Condvar::new());
        let pipe = Arc::new(Self { state, has_room, began: clock::now(), patience });
        (Maker(Arc::clone(&pipe)), Fetcher(pipe))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_halted(&self) -> bool {
        self.state().is_halted()
    }

    /// How long the producer has waited for the client.
    pub(super) fn stalled_for(&self, now: Instant) -> Duration {
        let since = self.state().full_since;
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Ends the channel with an error, unless it has ended already.
    pub(super) fn cut(&self, error: StoreError) {
        let mut state = self.state();
        state.cut(error);
        self.wake(state);
    }

    /// Wakes both sides after a change of the state.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let wakers = [state.fetcher.take(), state.maker.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
        self.has_room.notify_all();
    }

    /// Pushes a chunk if there is capacity; if not, returns the deadline for it.
    fn put(
        &self,
        state: &mut State,
        piece: &mut Option<Bytes>,
        now: Instant,
    ) -> Result<Option<Instant>, Halted> {
        if state.is_halted() {
            return Err(Halted);
        }
        let Patience { idle, whole } = self.patience;
        let since = state.full_since.unwrap_or(now);
        let (idle_end, whole_end) = (since + idle, self.began + whole);
        let is_full = state.pieces.len() >= PIECES_MAX;
        if now >= whole_end {
            state.cut(cut(&format!("it took longer than {} seconds", whole.as_secs())));
        } else if is_full && now >= idle_end {
            state.cut(cut(&format!("the client read nothing for {} seconds", idle.as_secs())));
        } else if is_full {
            state.full_since = Some(since);
            return Ok(Some(idle_end.min(whole_end)));
        } else {
            state.pieces.extend(piece.take());
            state.full_since = None;
            state.has_sent = true;
        }
        if let Some(fetcher) = state.fetcher.take() {
            fetcher.wake();
        }
        if state.is_halted() { Err(Halted) } else { Ok(None) }
    }
}

/// The sending end. Dropped without `finish`, it fails the channel.
#[derive(Debug)]
pub(super) struct Maker(Arc<Pipe>);

impl Maker {
    pub(super) fn pipe(&self) -> &Arc<Pipe> {
        &self.0
    }

    /// Sends a chunk; blocks the thread until there is capacity or a time limit passes.
    pub(super) fn send_here(&self, piece: Bytes) -> Result<(), Halted> {
        let mut piece = Some(piece);
        let mut state = self.0.state();
        loop {
            let now = clock::now();
            let Some(until) = self.0.put(&mut state, &mut piece, now)? else { return Ok(()) };
            let wait = until.saturating_duration_since(now);
            let waited = self.0.has_room.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends a chunk; waits asynchronously until there is capacity or a time limit passes.
    pub(super) async fn send(&self, piece: Bytes) -> Result<(), Halted> {
        let mut piece = Some(piece);
        loop {
            let mut until = None;
            let put = poll_fn(|context| {
                let mut state = self.0.state();
                let put = self.0.put(&mut state, &mut piece, clock::now());
                until = put.ok().flatten();
                match until {
                    Some(_) => {
                        state.maker = Some(context.waker().clone());
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
            let latest = clock::now() + self.0.patience.idle;
            if let Ok(done) = tokio::time::timeout_at(latest.into(), put).await {
                return done;
            }
        }
    }

    /// Waits until the channel is cancelled or the consumer is dropped.
    pub(super) async fn halted(&self) {
        poll_fn(|context| {
            let mut state = self.0.state();
            if state.is_halted() {
                return Poll::Ready(());
            }
            state.maker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Ends the channel with the last chunk, which may be empty, or with an error.
    pub(super) fn finish(self, last: Result<Bytes, StoreError>) {
        self.end(last);
    }

    fn end(&self, last: Result<Bytes, StoreError>) {
        let mut state = self.0.state();
        if !matches!(state.end, End::None) {
            return;
        }
        match last {
            Ok(piece) => {
                state.is_one = !state.has_sent;
                state.pieces.extend(Some(piece).filter(|piece| !piece.is_empty()));
                state.end = End::Whole;
            }
            Err(error) => state.cut(error),
        }
        self.0.wake(state);
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.end(Err(StoreError::Unavailable("the export broke off".to_owned())));
    }
}

/// The receiving end. Dropped, it cancels the producer.
#[derive(Debug)]
pub struct Fetcher(Arc<Pipe>);

impl Fetcher {
    /// A handle that cancels the export from elsewhere.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::downgrade(&self.0))
    }

    /// The next chunk, which is never empty. `None` at the clean end, and never after an error.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, StoreError>>> {
        let mut state = self.0.state();
        if let Some(piece) = state.pieces.pop_front() {
            state.full_since = None;
            let maker = state.maker.take();
            drop(state);
            maker.into_iter().for_each(Waker::wake);
            self.0.has_room.notify_all();
            return Poll::Ready(Some(Ok(piece)));
        }
        match &mut state.end {
            End::None => {
                state.fetcher = Some(context.waker().clone());
                Poll::Pending
            }
            End::Whole => Poll::Ready(None),
            End::Broken(error) => {
                let again = || StoreError::Unavailable("the export has broken off".to_owned());
                Poll::Ready(Some(Err(error.take().unwrap_or_else(again))))
            }
        }
    }

    /// The first chunk, and whether it is the whole body. Empty if the body is.
    pub(super) async fn first(&mut self) -> Result<(Bytes, bool), StoreError> {
        let first = poll_fn(|context| self.poll(context)).await.transpose()?;
        Ok((first.unwrap_or_default(), self.0.state().is_one))
    }
}

/// Cancels an export, unless it has ended already.
#[derive(Debug)]
pub struct Stopper(Weak<Pipe>);

impl Stopper {
    pub fn cut(&self, why: &str) {
        if let Some(pipe) = self.0.upgrade() {
            pipe.cut(cut(why));
        }
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_left = true;
        state.pieces.clear();
        self.0.wake(state);
    }
}

#[cfg(test)]
mod tests;
