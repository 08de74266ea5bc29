//! Completion queue: delivers the results of a group commit from the writer thread to the worker threads.
//!
//! Waking a thread is a system call, so the results of one commit for one thread are pushed into its queue
//! and wake it once; a task on that thread then dispatches them without any system call.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::fault;
use crate::plan::Outcome;
use crate::store::error::StoreError;

pub type WriteResult = Result<Outcome, StoreError>;

/// Results that one worker thread has not dispatched yet.
#[derive(Debug, Default)]
pub struct CompletionQueue {
    results: Mutex<Vec<(oneshot::Sender<WriteResult>, WriteResult)>>,
    ready: Notify,
}

/// The address of one result.
#[derive(Debug)]
pub struct ReplyHandle {
    queue: Arc<CompletionQueue>,
    sender: oneshot::Sender<WriteResult>,
}

impl ReplyHandle {
    /// Whether the request has stopped waiting.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl CompletionQueue {
    pub fn reply_handle(self: &Arc<Self>) -> (ReplyHandle, oneshot::Receiver<WriteResult>) {
        let (to, answered) = oneshot::channel();
        (ReplyHandle { queue: Arc::clone(self), sender: to }, answered)
    }

    /// Dispatches results on the worker thread, for as long as that thread lives.
    pub async fn run_dispatcher(self: Arc<Self>) {
        loop {
            self.ready.notified().await;
            self.dispatch();
        }
    }

    pub fn dispatch(&self) {
        let results = mem::take(&mut *self.pending());
        for (to, answer) in results {
            // The client may have disconnected.
            let _ = to.send(answer);
        }
    }

    fn pending(&self) -> MutexGuard<'_, Vec<(oneshot::Sender<WriteResult>, WriteResult)>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pushes every result into its queue, then wakes each thread once.
pub fn complete_all(answers: impl IntoIterator<Item = (ReplyHandle, WriteResult)>) {
    let mut asleep = WakeList(Vec::new());
    for (ReplyHandle { queue, sender: to }, answer) in answers {
        fault::point("answer");
        let is_first = {
            let mut results = queue.pending();
            results.push((to, answer));
            results.len() == 1
        };
        if is_first {
            asleep.0.push(queue);
        }
    }
}

/// The queues whose threads to wake; on drop, so that they are woken even after a panic.
struct WakeList(Vec<Arc<CompletionQueue>>);

impl Drop for WakeList {
    fn drop(&mut self) {
        for queue in &self.0 {
            queue.ready.notify_one();
        }
    }
}
