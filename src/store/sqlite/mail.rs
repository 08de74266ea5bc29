//! Completion queue: delivers the results of a group commit from the writer thread to the worker threads.
//!
//! Waking a thread is a system call, so the results of one commit for one thread are pushed into its queue
//! and wake it once; a task on that thread then dispatches them without any system call.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::fault;
use crate::plan::Outcome;
use crate::store::StoreError;

pub(super) type Answer = Result<Outcome, StoreError>;

/// Results that one worker thread has not dispatched yet.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    letters: Mutex<Vec<(oneshot::Sender<Answer>, Answer)>>,
    arrived: Notify,
}

/// The address of one result.
#[derive(Debug)]
pub(super) struct Ticket {
    mailbox: Arc<Mailbox>,
    to: oneshot::Sender<Answer>,
}

impl Ticket {
    /// Whether the request has stopped waiting.
    pub(super) fn is_closed(&self) -> bool {
        self.to.is_closed()
    }
}

impl Mailbox {
    pub(super) fn ticket(self: &Arc<Self>) -> (Ticket, oneshot::Receiver<Answer>) {
        let (to, answered) = oneshot::channel();
        (Ticket { mailbox: Arc::clone(self), to }, answered)
    }

    /// Dispatches results on the worker thread, for as long as that thread lives.
    pub(super) async fn deliver(self: Arc<Self>) {
        loop {
            self.arrived.notified().await;
            self.hand_out();
        }
    }

    pub(super) fn hand_out(&self) {
        let letters = mem::take(&mut *self.letters());
        for (to, answer) in letters {
            // The client may have disconnected.
            let _ = to.send(answer);
        }
    }

    fn letters(&self) -> MutexGuard<'_, Vec<(oneshot::Sender<Answer>, Answer)>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pushes every result into its queue, then wakes each thread once.
pub(super) fn send_all(answers: impl IntoIterator<Item = (Ticket, Answer)>) {
    let mut asleep = Asleep(Vec::new());
    for (Ticket { mailbox, to }, answer) in answers {
        fault::point("answer");
        let is_first = {
            let mut letters = mailbox.letters();
            letters.push((to, answer));
            letters.len() == 1
        };
        if is_first {
            asleep.0.push(mailbox);
        }
    }
}

/// The queues whose threads to wake; on drop, so that they are woken even after a panic.
struct Asleep(Vec<Arc<Mailbox>>);

impl Drop for Asleep {
    fn drop(&mut self) {
        for mailbox in &self.0 {
            mailbox.arrived.notify_one();
        }
    }
}
