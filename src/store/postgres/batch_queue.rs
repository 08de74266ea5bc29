//! A queue that is sent in batches: requests that arrive while a batch is in flight wait, and are sent together
//! as the next one.
//!
//! The queue has no task of its own: the caller whose request begins a batch gets a `BatchSender`, and starts
//! a task with it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{timeout, timeout_at};

use crate::store::error::StoreError;

/// The limits of a queue.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    /// Requests of one batch.
    pub batch_max: usize,
    /// Requests that wait; more are refused.
    pub waiting_max: usize,
    /// How long a batch waits for the one before it, which may be blocked by something else.
    pub turn_wait_max: Duration,
}

/// Requests of type `T`, each of which gets an answer of type `R`.
#[derive(Debug)]
pub struct BatchQueue<T, R> {
    limits: BatchLimits,
    /// Its permit is held while a batch is in flight.
    turn: Arc<Semaphore>,
    waiting: Mutex<WaitingRequests<T, R>>,
}

#[derive(Debug)]
struct WaitingRequests<T, R> {
    entries: VecDeque<BatchEntry<T, R>>,
    /// Whether there is a `BatchSender` for them.
    has_sender: bool,
    /// The number of the next entry.
    next_number: u64,
}

/// A request, and where its answer goes.
#[derive(Debug)]
pub struct BatchEntry<T, R> {
    pub request: T,
    pub answer: oneshot::Sender<R>,
    number: u64,
}

/// What `push` returns: the answer to come, and the sender of a batch that begins with the request.
type BatchTicket<T, R> = (PendingAnswer<T, R>, Option<BatchSender<T, R>>);

impl<T, R> BatchQueue<T, R> {
    pub fn new(limits: BatchLimits) -> Arc<Self> {
        let waiting =
            WaitingRequests { entries: VecDeque::new(), has_sender: false, next_number: 0 };
        Arc::new(Self { limits, turn: Arc::new(Semaphore::new(1)), waiting: Mutex::new(waiting) })
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingRequests<T, R>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. With a `BatchSender` the caller has to start a task that sends the batch.
    pub fn push(self: &Arc<Self>, request: T) -> Result<BatchTicket<T, R>, StoreError> {
        let mut waiting = self.waiting();
        if waiting.entries.len() >= self.limits.waiting_max {
            return Err(StoreError::Busy);
        }
        let number = waiting.next_number;
        waiting.next_number += 1;
        let (answer, answered) = oneshot::channel();
        waiting.entries.push_back(BatchEntry { request, answer, number });
        let is_first = !std::mem::replace(&mut waiting.has_sender, true);
        let sender = is_first.then(|| BatchSender { queue: Arc::clone(self), is_taken: false });
        Ok((PendingAnswer { queue: Arc::clone(self), number, answered }, sender))
    }
}

/// The right to send the next batch. Dropped before that, it leaves the waiting requests without an answer.
#[derive(Debug)]
pub struct BatchSender<T, R> {
    queue: Arc<BatchQueue<T, R>>,
    is_taken: bool,
}

impl<T, R> BatchSender<T, R> {
    /// Waits until no batch is in flight, but no longer than the limit. The permit is held until the batch has
    /// ended.
    pub async fn wait_for_turn(&self) -> Option<OwnedSemaphorePermit> {
        let BatchQueue { turn, limits, .. } = &*self.queue;
        timeout(limits.turn_wait_max, Arc::clone(turn).acquire_owned()).await.ok()?.ok()
    }

    /// The largest value of the waiting requests.
    pub fn latest<V: Ord>(&self, value: impl Fn(&T) -> V) -> Option<V> {
        self.queue.waiting().entries.iter().map(|entry| value(&entry.request)).max()
    }

    /// Takes the batch; later requests begin another one. The second value is the sender of the requests that
    /// were too many for this one.
    pub fn take(mut self) -> (Vec<BatchEntry<T, R>>, Option<Self>) {
        self.is_taken = true;
        let mut waiting = self.queue.waiting();
        let count = waiting.entries.len().min(self.queue.limits.batch_max);
        let batch = waiting.entries.drain(..count).collect();
        waiting.has_sender = !waiting.entries.is_empty();
        let queue = Arc::clone(&self.queue);
        // Not `then_some`: a sender that is made and dropped here would lock the queue a second time.
        (batch, waiting.has_sender.then(|| Self { queue, is_taken: false }))
    }
}

impl<T, R> Drop for BatchSender<T, R> {
    fn drop(&mut self) {
        if !self.is_taken {
            let mut waiting = self.queue.waiting();
            waiting.has_sender = false;
            waiting.entries.clear();
        }
    }
}

/// An answer to come.
#[derive(Debug)]
pub struct PendingAnswer<T, R> {
    queue: Arc<BatchQueue<T, R>>,
    number: u64,
    answered: oneshot::Receiver<R>,
}

/// Why a request got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerError {
    /// At the deadline it was not sent, and it never will be.
    NotSent,
    /// At the deadline it was sent, and not answered.
    Late,
    /// Its task has ended without an answer.
    Lost,
}

impl<T, R> PendingAnswer<T, R> {
    pub async fn wait(mut self, until: Instant) -> Result<R, AnswerError> {
        match timeout_at(until.into(), &mut self.answered).await {
            Ok(answer) => answer.map_err(|_| AnswerError::Lost),
            Err(_) => {
                let mut waiting = self.queue.waiting();
                let place = waiting.entries.iter().position(|entry| entry.number == self.number);
                match place.and_then(|place| waiting.entries.remove(place)) {
                    Some(_) => Err(AnswerError::NotSent),
                    None => Err(AnswerError::Late),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;
    use crate::clock;

    const LIMITS: BatchLimits =
        BatchLimits { batch_max: 2, waiting_max: 3, turn_wait_max: Duration::from_secs(60) };

    fn run(test: impl Future<Output = ()>) {
        Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    fn requests(batch: &[BatchEntry<u8, u8>]) -> Vec<u8> {
        batch.iter().map(|entry| entry.request).collect()
    }

    #[test]
    fn batch_queue_first_request_gets_the_sender_and_the_rest_joins() {
        let queue = BatchQueue::<u8, u8>::new(LIMITS);
        let (_first, sender) = queue.push(1).unwrap();
        let (_second, none) = queue.push(2).unwrap();
        assert!(none.is_none());
        let (_third, none) = queue.push(3).unwrap();
        assert!(none.is_none());
        assert!(matches!(queue.push(4), Err(StoreError::Busy)));
        let (batch, next) = sender.unwrap().take();
        assert_eq!(requests(&batch), [1, 2]);
        let (batch, next) = next.unwrap().take();
        assert_eq!(requests(&batch), [3]);
        assert!(next.is_none());
        assert!(queue.push(5).unwrap().1.is_some());
    }

    #[test]
    fn batch_queue_request_at_its_deadline_is_sent_or_never_will_be() {
        run(async {
            let queue = BatchQueue::<u8, u8>::new(LIMITS);
            let (late, sender) = queue.push(1).unwrap();
            let (gone, _) = queue.push(2).unwrap();
            let (answered, _) = queue.push(3).unwrap();
            assert_eq!(gone.wait(clock::now()).await, Err(AnswerError::NotSent));
            let (batch, next) = sender.unwrap().take();
            assert_eq!(requests(&batch), [1, 3]);
            assert!(next.is_none());
            assert_eq!(late.wait(clock::now()).await, Err(AnswerError::Late));
            for entry in batch {
                let _ = entry.answer.send(entry.request + 10);
            }
            assert_eq!(answered.wait(clock::now() + LIMITS.turn_wait_max).await, Ok(13));
        });
    }

    #[test]
    fn batch_queue_dropped_sender_loses_the_answers_and_the_next_request_gets_another() {
        run(async {
            let queue = BatchQueue::<u8, u8>::new(LIMITS);
            let (lost, sender) = queue.push(1).unwrap();
            drop(sender);
            let until = clock::now() + LIMITS.turn_wait_max;
            assert_eq!(lost.wait(until).await, Err(AnswerError::Lost));
            assert!(queue.push(2).unwrap().1.is_some());
        });
    }

    #[test]
    fn batch_queue_turn_waits_for_the_batch_in_flight_up_to_the_limit() {
        run(async {
            let limits = BatchLimits { turn_wait_max: Duration::from_millis(1), ..LIMITS };
            let queue = BatchQueue::<u8, u8>::new(limits);
            let (_one, sender) = queue.push(1).unwrap();
            let sender = sender.unwrap();
            let turn = sender.wait_for_turn().await;
            assert!(turn.is_some());
            assert!(sender.wait_for_turn().await.is_none());
            drop(turn);
            assert!(sender.wait_for_turn().await.is_some());
        });
    }
}
