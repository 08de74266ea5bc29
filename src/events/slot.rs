//! The part of an event stream that others reach: they wake it, deliver its pages of the log, and learn when a chunk
//! is sent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use bytes::Bytes;

use crate::admission::CallerKey;

/// The events of a page of the log, which may be none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatchUpPage {
    pub bytes: Bytes,
    /// The number of events.
    pub count: usize,
    /// The position of the stream after the page.
    pub position: i64,
    /// The number of the last event of the page.
    pub last_event: Option<i64>,
    /// Whether the last event ends the stream.
    pub is_last: bool,
}

#[derive(Debug)]
pub struct StreamSlot {
    pub caller: CallerKey,
    state: Mutex<SlotState>,
}

#[derive(Debug, Default)]
struct SlotState {
    task: Option<Waker>,
    /// Whether the server has not sent the last chunk completely.
    is_chunk_in_flight: bool,
    /// Whether to send a comment, so that a client that has gone is noticed.
    is_probed: bool,
    catch_up: CatchUp,
}

#[derive(Debug, Default)]
enum CatchUp {
    #[default]
    Idle,
    Queued,
    Done(Result<CatchUpPage, String>),
}

/// The state of the page that a stream waits for.
#[derive(Debug)]
pub enum PageState {
    /// The stream has to request it now.
    NotRequested,
    Requested,
    Arrived(CatchUpPage),
}

impl StreamSlot {
    pub fn new(caller: CallerKey) -> Arc<Self> {
        Arc::new(Self { caller, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the stream be woken. Returns whether it may send another chunk.
    pub fn register(&self, context: &Context<'_>) -> bool {
        let mut state = self.state();
        state.task = Some(context.waker().clone());
        !state.is_chunk_in_flight
    }

    pub fn wake(&self) {
        let task = self.state().task.take();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Makes the stream send a comment.
    pub fn probe(&self) {
        self.state().is_probed = true;
        self.wake();
    }

    pub fn take_probe(&self) -> bool {
        std::mem::take(&mut self.state().is_probed)
    }

    /// Delivers a page, or the cause of a failure.
    pub fn deliver(&self, page: Result<CatchUpPage, String>) {
        self.state().catch_up = CatchUp::Done(page);
        self.wake();
    }

    /// The page, if it has arrived. If none is requested, the caller requests one.
    pub fn take_page(&self) -> Result<PageState, String> {
        let mut state = self.state();
        match std::mem::replace(&mut state.catch_up, CatchUp::Queued) {
            CatchUp::Idle => Ok(PageState::NotRequested),
            CatchUp::Queued => Ok(PageState::Requested),
            CatchUp::Done(page) => {
                state.catch_up = CatchUp::Idle;
                page.map(PageState::Arrived)
            }
        }
    }

    /// A chunk on its way to the client; until it is dropped, the stream may send no other.
    pub fn begin_chunk(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.state().is_chunk_in_flight = true;
        Bytes::from_owner(ChunkInFlight { bytes, slot: Arc::clone(self) })
    }
}

/// A chunk, which tells its stream when it is sent.
struct ChunkInFlight {
    bytes: Bytes,
    slot: Arc<StreamSlot>,
}

impl AsRef<[u8]> for ChunkInFlight {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for ChunkInFlight {
    fn drop(&mut self) {
        self.slot.state().is_chunk_in_flight = false;
        self.slot.wake();
    }
}
