//! The bounded queue of writes for the writer thread.
//!
//! A write whose client has disconnected stays in the queue, and the writer skips it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::metrics;
use crate::plan::{DeliveryTask, WritePlan};
use crate::reservation::SharedReservation;
use crate::store::error::{StoreError, writer_stopped_error};
use crate::store::sqlite::completions::ReplyHandle;

const QUEUED_WRITES_MAX: usize = 4_096;

/// The work of a queued write.
#[derive(Debug)]
pub enum QueuedWork {
    Write(Box<WritePlan>),
    Delivery(Box<DeliveryTask>),
}

/// A queued write.
#[derive(Debug)]
pub struct QueuedWrite {
    pub work: QueuedWork,
    pub bytes: usize,
    /// Set by the writer that starts the write, or by its deadline, whichever is first.
    pub is_claimed: Arc<AtomicBool>,
    pub reply_handle: ReplyHandle,
    /// The memory reservation of the request, held until the write has ended.
    pub _memory: Option<Arc<SharedReservation>>,
}

/// The sending end.
#[derive(Debug)]
pub struct WriteQueue {
    sender: Mutex<Option<SyncSender<QueuedWrite>>>,
    metrics: Arc<metrics::WriterMetrics>,
}

/// The writer's end.
#[derive(Debug)]
pub struct WriteReceiver {
    receiver: Receiver<QueuedWrite>,
    metrics: Arc<metrics::WriterMetrics>,
}

impl WriteReceiver {
    pub fn recv_timeout(&self, wait: Duration) -> Result<QueuedWrite, RecvTimeoutError> {
        self.receiver.recv_timeout(wait).inspect(|_| self.metrics.waiting.decrement())
    }

    pub fn try_recv(&self) -> Option<QueuedWrite> {
        self.receiver.try_recv().ok().inspect(|_| self.metrics.waiting.decrement())
    }
}

impl QueuedWrite {
    /// Whether the client has disconnected, or the deadline has passed.
    pub fn is_abandoned(&self) -> bool {
        self.reply_handle.is_closed() || self.is_claimed.load(Ordering::Acquire)
    }
}

impl WriteQueue {
    pub fn new(counted: &Arc<metrics::WriterMetrics>) -> (Self, WriteReceiver) {
        let (sender, receiver) = sync_channel(QUEUED_WRITES_MAX);
        let queue = Self { sender: Mutex::new(Some(sender)), metrics: Arc::clone(counted) };
        (queue, WriteReceiver { receiver, metrics: Arc::clone(counted) })
    }

    pub fn push(&self, job: QueuedWrite) -> Result<(), StoreError> {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = sender.as_ref().ok_or(StoreError::Busy)?;
        // Incremented before the writer can receive the write, so that the gauge never goes below zero.
        self.metrics.waiting.increment();
        sender.try_send(job).map_err(|refused| {
            self.metrics.waiting.decrement();
            match refused {
                TrySendError::Full(_) => StoreError::Busy,
                TrySendError::Disconnected(_) => writer_stopped_error(),
            }
        })
    }

    pub fn close(&self) {
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
