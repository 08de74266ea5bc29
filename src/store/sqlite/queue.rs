//! The bounded queue of writes for the writer thread.
//!
//! The one surprising thing: a write whose client has disconnected stays in the queue, and the writer skips
//! it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::mail::Ticket;
use super::writer::stopped;
use crate::metrics;
use crate::plan::Write;
use crate::reservation::Reservation;
use crate::store::StoreError;

const WAITING_MAX: usize = 4_096;

/// A queued write.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) write: Box<Write>,
    pub(super) bytes: usize,
    /// Set by whichever comes first: the writer that starts it, or its deadline.
    pub(super) claimed: Arc<AtomicBool>,
    pub(super) answer: Ticket,
    /// The memory reservation of the request, held while the write is here.
    pub(super) memory: Option<Arc<Reservation>>,
}

/// The sending end.
#[derive(Debug)]
pub(super) struct Queue {
    sender: Mutex<Option<SyncSender<Job>>>,
    counted: Arc<metrics::Writer>,
}

/// The writer's end.
#[derive(Debug)]
pub(super) struct Jobs {
    receiver: Receiver<Job>,
    counted: Arc<metrics::Writer>,
}

impl Jobs {
    pub(super) fn next_within(&self, wait: Duration) -> Result<Job, RecvTimeoutError> {
        self.receiver.recv_timeout(wait).inspect(|_| self.counted.waiting.lower())
    }

    pub(super) fn next_waiting(&self) -> Option<Job> {
        self.receiver.try_recv().ok().inspect(|_| self.counted.waiting.lower())
    }
}

impl Job {
    /// Whether the client has disconnected, or the deadline has passed.
    pub(super) fn is_abandoned(&self) -> bool {
        self.answer.is_closed() || self.claimed.load(Ordering::Acquire)
    }
}

impl Queue {
    pub(super) fn new(counted: &Arc<metrics::Writer>) -> (Self, Jobs) {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let queue = Self { sender: Mutex::new(Some(sender)), counted: Arc::clone(counted) };
        (queue, Jobs { receiver, counted: Arc::clone(counted) })
    }

    pub(super) fn push(&self, job: Job) -> Result<(), StoreError> {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = sender.as_ref().ok_or(StoreError::Busy)?;
        // Before the writer can take it, so that the gauge never goes below zero.
        self.counted.waiting.raise();
        sender.try_send(job).map_err(|refused| {
            self.counted.waiting.lower();
            match refused {
                TrySendError::Full(_) => StoreError::Busy,
                TrySendError::Disconnected(_) => stopped(),
            }
        })
    }

    pub(super) fn close(&self) {
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
