//! The writer's answers on their way back to the worker threads.
//!
//! To wake a thread is a system call, so all answers of one commit to one thread are put into its
//! mailbox and wake it once; there, a task hands them out, which costs no call at all.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::fault;
use crate::plan::Outcome;
use crate::store::StoreError;

pub(super) type Answer = Result<Outcome, StoreError>;

/// Answers that one worker thread has not handed out yet.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    letters: Mutex<Vec<(oneshot::Sender<Answer>, Answer)>>,
    arrived: Notify,
}

/// Where an answer is waited for.
#[derive(Debug)]
pub(super) struct Ticket {
    mailbox: Arc<Mailbox>,
    to: oneshot::Sender<Answer>,
}

impl Ticket {
    /// Whether nobody waits any more.
    pub(super) fn is_closed(&self) -> bool {
        self.to.is_closed()
    }
}

impl Mailbox {
    pub(super) fn ticket(self: &Arc<Self>) -> (Ticket, oneshot::Receiver<Answer>) {
        let (to, answered) = oneshot::channel();
        (Ticket { mailbox: Arc::clone(self), to }, answered)
    }

    /// Hands out what arrives, on the thread that waits for it, for as long as that thread lives.
    pub(super) async fn deliver(self: Arc<Self>) {
        loop {
            self.arrived.notified().await;
            self.hand_out();
        }
    }

    pub(super) fn hand_out(&self) {
        let letters = mem::take(&mut *self.letters());
        for (to, answer) in letters {
            // The client may have left.
            let _ = to.send(answer);
        }
    }

    fn letters(&self) -> MutexGuard<'_, Vec<(oneshot::Sender<Answer>, Answer)>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts every answer into its mailbox, then wakes each thread once.
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

/// The mailboxes to be looked at. They are, even when a panic comes between.
struct Asleep(Vec<Arc<Mailbox>>);

impl Drop for Asleep {
    fn drop(&mut self) {
        for mailbox in &self.0 {
            mailbox.arrived.notify_one();
        }
    }
}
