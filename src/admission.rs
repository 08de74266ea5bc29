//! Admission control: limits on executing requests, on waiting requests, and on all memory that clients make
//! the server hold; requests beyond these limits are refused (load shedding).
//!
//! Memory of bodies and responses is counted when it is allocated and released, memory of connections by the
//! sweep of their worker (`ConnectionBytes`). Memory pressure begins at half of the limit. From then on slow
//! requests are aborted early, because a few that never finish would otherwise keep all others out.

mod stream_limit;
mod keyed_mutex;

use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use crate::clock;
use crate::model::settings::ServerLimits;
use crate::rate_window::FixedWindowCounters;
use crate::reservation::SharedReservation;
use crate::store::StoreError;
pub use keyed_mutex::{KeyedMutex, KeyedMutexGuard};
pub use stream_limit::{CallerKey, StreamLimit, StreamLimiter, StreamPermit};

/// A body or response up to this size is refused only when memory is exhausted and its client is slow.
pub const SMALL_BYTES_MAX: usize = 16 << 10;
/// Long polls that read the change log at the same time. One change wakes all of them (thundering herd), and the
/// other requests should not have to wait for them.
const LONG_POLL_READS_MAX: usize = 8;

/// Levels of memory pressure. Each level includes the consequences of the lower levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryPressure {
    None,
    /// Half of `memory_bytes_max` is in use: slow large requests are aborted early.
    Elevated,
    /// The whole limit is in use: nothing large is admitted, and every slow request is aborted early.
    High,
    /// The limit is exceeded by a quarter: no connection is accepted, and no incomplete body is awaited.
    Exhausted,
}

impl MemoryPressure {
    /// Whether a slow request that holds this many bytes is aborted early.
    pub fn hurries(self, bytes: usize) -> bool {
        self >= Self::High || (self == Self::Elevated && bytes > SMALL_BYTES_MAX)
    }
}

/// Limits the requests in flight and the memory that clients use.
#[derive(Debug)]
pub struct AdmissionControl {
    /// Bytes of bodies, of responses, and of work on them.
    reserved_bytes: Arc<AtomicUsize>,
    /// Bytes of connections, with the heads and the small responses on them.
    connection_bytes: Arc<AtomicUsize>,
    memory_bytes_max: usize,
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    long_poll_turns: Semaphore,
    /// The maximum number of requests in flight; as many more may wait.
    requests_max: usize,
    pub streams: Arc<StreamLimiter>,
    /// Serializes requests with the same `Idempotency-Key`.
    pub idempotency_locks: KeyedMutex,
    /// Rate-limit windows of the callers whose roles are limited; allocated at first use.
    pub rate_counters: LazyLock<FixedWindowCounters>,
}

impl AdmissionControl {
    pub fn new(limits: &ServerLimits) -> Self {
        let requests_max = limits.requests_max;
        Self {
            reserved_bytes: Arc::default(),
            connection_bytes: Arc::default(),
            memory_bytes_max: limits.memory_bytes_max,
            permits: Arc::new(Semaphore::new(requests_max)),
            waiting: AtomicUsize::new(0),
            long_poll_turns: Semaphore::new(LONG_POLL_READS_MAX),
            requests_max,
            streams: StreamLimiter::new(limits.streams_max, limits.streams_per_caller_max),
            idempotency_locks: KeyedMutex::default(),
            rate_counters: LazyLock::new(|| FixedWindowCounters::new(clock::now())),
        }
    }

    /// Requests that are admitted and not done.
    pub fn in_flight(&self) -> usize {
        self.requests_max.saturating_sub(self.permits.available_permits())
    }

    /// Requests that wait for a permit.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub fn reserved_bytes(&self) -> usize {
        self.reserved_bytes.load(Ordering::Relaxed)
    }

    pub fn connection_bytes(&self) -> usize {
        self.connection_bytes.load(Ordering::Relaxed)
    }

    /// The memory of the connections of one worker: zero until its first sweep.
    pub fn reserve_connections(&self) -> ConnectionBytes {
        ConnectionBytes { counter: Arc::clone(&self.connection_bytes), bytes: 0 }
    }

    pub fn memory_pressure(&self) -> MemoryPressure {
        let bytes = self.reserved_bytes().saturating_add(self.connection_bytes());
        let max = self.memory_bytes_max;
        match bytes {
            _ if bytes <= max / 2 => MemoryPressure::None,
            _ if bytes <= max => MemoryPressure::Elevated,
            _ if bytes <= max.saturating_add(max / 4) => MemoryPressure::High,
            _ => MemoryPressure::Exhausted,
        }
    }

    /// Whether this many bytes, beside those of connections, are within the limit.
    fn fits(&self, held_bytes: usize) -> bool {
        held_bytes.saturating_add(self.connection_bytes()) <= self.memory_bytes_max
    }

    /// A memory reservation that is empty at first, and grows: with a body as it arrives, or by an encoder.
    pub fn reserve_memory(&self) -> MemoryReservation<'_> {
        MemoryReservation { admission: self, bytes: Cell::new(0), shared: OnceCell::new() }
    }

    /// Whether a response of this size may be buffered until its client has read it.
    pub fn has_memory_for(&self, bytes: usize) -> bool {
        bytes <= SMALL_BYTES_MAX || self.fits(self.reserved_bytes().saturating_add(bytes))
    }

    /// Reserves memory for a response, until `release`.
    pub fn reserve(&self, bytes: usize) {
        self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reserves the memory of bytes that several streams send, until the last of them has dropped them.
    pub fn share_bytes(&self, bytes: Vec<u8>) -> Bytes {
        if bytes.is_empty() {
            return Bytes::new();
        }
        self.reserve(bytes.len());
        let reservation = SharedReservation::from_counted(&self.reserved_bytes, bytes.len());
        Bytes::from_owner(ReservedBytes { bytes, _reservation: reservation })
    }

    pub fn release(&self, bytes: usize) {
        self.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Waits for a permit until the deadline. Work that continues when its client disconnects owns its permit.
    pub async fn admit(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, StoreError> {
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait_for_permit(deadline).await?,
        };
        crate::fault::point("admission");
        Ok(permit)
    }

    /// Waits until it is the turn of a long poll that a change has woken. It is not refused because the queue is
    /// full: it was waiting before the requests in the queue came. `None` if the deadline passes first.
    pub async fn admit_long_poll(&self, deadline: Instant) -> Option<LongPollPermits<'_>> {
        let permits = async {
            let turn = self.long_poll_turns.acquire().await.ok()?;
            let request = Arc::clone(&self.permits).acquire_owned().await.ok()?;
            Some(LongPollPermits { request, _turn: turn })
        };
        timeout_at(deadline.into(), permits).await.ok().flatten()
    }

    async fn wait_for_permit(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, StoreError> {
        let _slot = QueueSlot::acquire(self)?;
        let permit = Arc::clone(&self.permits).acquire_owned();
        match timeout_at(deadline.into(), permit).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(StoreError::Busy),
        }
    }
}

/// Bytes with their reservation.
struct ReservedBytes {
    bytes: Vec<u8>,
    _reservation: Arc<SharedReservation>,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The permits of a long poll that reads the log.
#[derive(Debug)]
pub struct LongPollPermits<'a> {
    pub request: OwnedSemaphorePermit,
    pub _turn: SemaphorePermit<'a>,
}

/// Runs blocking work on another thread, so that the other connections of this event loop need not wait. A
/// panic of the work resumes in the caller. Work that has not begun when its client disconnects is
/// cancelled; work that has begun continues, so it owns the reservation of a large body that it uses.
pub async fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    let mut task = AbortOnDrop(tokio::task::spawn_blocking(work));
    match (&mut task.0).await {
        Ok(done) => Ok(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The server is shutting down.
            Err(_) => Err(StoreError::Busy),
        },
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The memory of one body; released when its request and all work that shares it have ended.
#[derive(Debug)]
pub struct MemoryReservation<'a> {
    admission: &'a AdmissionControl,
    /// The bytes that are not shared yet.
    bytes: Cell<usize>,
    shared: OnceCell<Arc<SharedReservation>>,
}

impl MemoryReservation<'_> {
    /// Reserves more; false when there is no memory for it.
    pub fn grow(&self, bytes: usize) -> bool {
        let all = self.bytes.get() + bytes;
        self.bytes.set(all);
        let held = self.admission.reserved_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        all <= SMALL_BYTES_MAX || self.admission.fits(held)
    }

    /// The reservation, for work that may outlive the request; `None` where nothing is reserved.
    pub fn share(&self) -> Option<Arc<SharedReservation>> {
        if self.shared.get().is_none() && self.bytes.get() == 0 {
            return None;
        }
        let share =
            || SharedReservation::from_counted(&self.admission.reserved_bytes, self.bytes.take());
        Some(Arc::clone(self.shared.get_or_init(share)))
    }

    /// Hands the bytes to a reservation that lasts longer.
    pub fn move_to(self, other: &SharedReservation) {
        other.add_counted(self.bytes.take());
    }

    /// Whether this body should be aborted if it is slow, because of memory pressure.
    pub fn is_hurried(&self) -> bool {
        self.admission.memory_pressure().hurries(self.bytes.get())
    }

    /// Whether memory is exhausted, so that an incomplete body is not waited for.
    pub fn is_exhausted(&self) -> bool {
        self.admission.memory_pressure() == MemoryPressure::Exhausted
    }
}

impl Drop for MemoryReservation<'_> {
    fn drop(&mut self) {
        self.admission.release(self.bytes.get());
    }
}

/// The memory of the connections of one worker, as of its last sweep; released with the worker.
#[derive(Debug)]
pub struct ConnectionBytes {
    counter: Arc<AtomicUsize>,
    bytes: usize,
}

impl ConnectionBytes {
    pub fn set(&mut self, bytes: usize) {
        // Adds the new value before it subtracts the old one: the counter never falls below the others'
        // bytes.
        self.counter.fetch_add(bytes, Ordering::Relaxed);
        self.counter.fetch_sub(std::mem::replace(&mut self.bytes, bytes), Ordering::Relaxed);
    }
}

impl Drop for ConnectionBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A slot in the queue; released also when the client disconnects.
struct QueueSlot<'a>(&'a AdmissionControl);

impl<'a> QueueSlot<'a> {
    fn acquire(admission: &'a AdmissionControl) -> Result<Self, StoreError> {
        let slot = Self(admission);
        if admission.waiting.fetch_add(1, Ordering::Relaxed) < admission.requests_max {
            Ok(slot)
        } else {
            Err(StoreError::Busy)
        }
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_by_bodies_answers_and_connections_and_given_back() {
        let limits = ServerLimits { requests_max: 1, ..ServerLimits::default() };
        let (admission, max) = (AdmissionControl::new(&limits), limits.memory_bytes_max);
        let large = admission.reserve_memory();
        assert!(large.grow(max - SMALL_BYTES_MAX - 10));
        assert!(admission.memory_pressure() == MemoryPressure::Elevated && large.is_hurried());
        admission.reserve(SMALL_BYTES_MAX);
        let other = admission.reserve_memory();
        assert!(other.grow(10) && !other.is_hurried());
        assert!(other.grow(SMALL_BYTES_MAX - 10), "what is small always finds room");
        assert!(!other.grow(1));
        assert!(
            admission.has_memory_for(SMALL_BYTES_MAX)
                && !admission.has_memory_for(SMALL_BYTES_MAX + 1)
        );
        assert!(
            admission.reserve_memory().is_hurried(),
            "the slow ones, however small, when all is taken"
        );
        drop(large);
        assert!(other.grow(1) && !other.is_hurried());
        let mut connections = admission.reserve_connections();
        connections.set(max);
        assert!(
            admission.memory_pressure() == MemoryPressure::High
                && !admission.has_memory_for(SMALL_BYTES_MAX + 1)
        );
        connections.set(max + max / 4);
        assert!(admission.memory_pressure() == MemoryPressure::Exhausted && other.is_exhausted());
        drop(connections);
        drop(other);
        admission.release(SMALL_BYTES_MAX);
        assert_eq!((admission.reserved_bytes(), admission.connection_bytes()), (0, 0));
        assert_eq!(admission.memory_pressure(), MemoryPressure::None);
    }

    #[tokio::test]
    async fn long_polls_take_turns_and_leave_the_queue_to_other_requests() {
        let limits = ServerLimits { requests_max: 20, ..ServerLimits::default() };
        let admission = AdmissionControl::new(&limits);
        let long_ago = clock::now();
        let mut turns = Vec::new();
        while let Some(turn) = admission.admit_long_poll(long_ago).await {
            turns.push(turn);
        }
        assert_eq!(
            (turns.len(), admission.in_flight()),
            (LONG_POLL_READS_MAX, LONG_POLL_READS_MAX)
        );
        let mut others = Vec::new();
        while let Ok(other) = admission.admit(long_ago).await {
            others.push(other);
        }
        assert_eq!((others.len(), admission.in_flight()), (12, 20));
        turns.clear();
        assert!(admission.admit_long_poll(long_ago).await.is_some());
        assert_eq!((admission.in_flight(), admission.waiting()), (12, 0));
    }

    #[test]
    fn shared_memory_reservation_lasts_until_the_last_holder_drops_it() {
        let admission =
            AdmissionControl::new(&ServerLimits { requests_max: 1, ..ServerLimits::default() });
        let memory = admission.reserve_memory();
        assert!(memory.share().is_none(), "there is nothing to share yet");
        assert!(memory.grow(10));
        let (one, other) = (memory.share(), memory.share());
        assert_eq!(admission.reserved_bytes(), 10);
        drop(memory);
        drop(one);
        assert_eq!(admission.reserved_bytes(), 10);
        drop(other);
        assert_eq!(admission.reserved_bytes(), 0);
    }

    #[test]
    fn shared_bytes_are_reserved_until_their_last_part_is_dropped() {
        let admission = AdmissionControl::new(&ServerLimits::default());
        let mut rest = admission.share_bytes(vec![7; 1000]);
        let first = rest.split_to(10);
        drop(rest);
        assert_eq!((&*first, admission.reserved_bytes()), (&[7; 10][..], 1000));
        drop(first);
        assert_eq!((admission.share_bytes(Vec::new()).len(), admission.reserved_bytes()), (0, 0));
    }

    #[test]
    fn memory_moved_to_a_shared_reservation_is_released_with_it() {
        let admission = AdmissionControl::new(&ServerLimits::default());
        let (body, values) = (admission.reserve_memory(), admission.reserve_memory());
        assert!(body.grow(10) && values.grow(1000));
        let shared = body.share().unwrap();
        values.move_to(&shared);
        drop(body);
        assert_eq!(admission.reserved_bytes(), 1010);
        drop(shared);
        assert_eq!(admission.reserved_bytes(), 0);
    }

    #[tokio::test]
    async fn spawn_blocking_unstarted_work_is_cancelled_with_its_request() {
        let admission = Arc::new(AdmissionControl::new(&ServerLimits {
            requests_max: 1,
            ..ServerLimits::default()
        }));
        let memory = admission.reserve_memory();
        assert!(memory.grow(10));
        let share = memory.share();
        {
            let mut work = std::pin::pin!(spawn_blocking(move || drop(share)));
            let polled =
                work.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
            // The work may have ended already; the test needs only that no task waits for it.
            drop(polled);
        }
        drop(memory);
        while admission.reserved_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
