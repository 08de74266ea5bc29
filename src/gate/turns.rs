//! A keyed mutex: of all requests with the same key one at a time goes on, and the others wait in order.
//!
//! A key without a holder has no entry, so there are never more entries than requests. The one surprising
//! thing: the number of waiting requests is limited, in all and per key, because each of them holds memory.
//! Requests over the limit are refused at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of waiting requests.
const WAITING_MAX: usize = 1_024;
/// The maximum number of them per key.
const WAITING_EACH_MAX: usize = 128;

/// The locked keys.
#[derive(Debug, Default)]
pub struct Turns {
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    /// Each key with the number of its requests, including the one that holds the lock.
    all: HashMap<Box<str>, (Arc<Semaphore>, usize)>,
    waiting: usize,
}

/// A lock on a key; dropping it hands the lock to the next request.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
    name: &'a str,
    is_waiting: bool,
    turn: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Waits for the lock; `None` when it does not become free in time, or too many wait.
    pub async fn take<'a>(&'a self, name: &'a str, until: Instant) -> Option<Turn<'a>> {
        let mut mine = Turn { turns: self, name, is_waiting: false, turn: None };
        let semaphore = {
            let mut names = self.names();
            let is_full = names.waiting >= WAITING_MAX;
            let entry = names.all.entry(name.into());
            let (semaphore, count) = entry.or_insert_with(|| (Arc::new(Semaphore::new(1)), 0));
            // Counted even if it is refused: dropping `mine` subtracts it.
            *count += 1;
            let (semaphore, count) = (Arc::clone(semaphore), *count);
            if let Ok(turn) = Arc::clone(&semaphore).try_acquire_owned() {
                mine.turn = Some(turn);
                return Some(mine);
            }
            // One holds the lock, and this one is counted.
            if is_full || count > WAITING_EACH_MAX + 1 {
                drop(names);
                return None;
            }
            names.waiting += 1;
            mine.is_waiting = true;
            semaphore
        };
        let turn = tokio::time::timeout_at(until.into(), semaphore.acquire_owned()).await;
        mine.turn = Some(turn.ok()?.ok()?);
        self.names().waiting -= 1;
        mine.is_waiting = false;
        Some(mine)
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut names = self.turns.names();
        if self.is_waiting {
            names.waiting -= 1;
        }
        if let Some((_, count)) = names.all.get_mut(self.name) {
            *count -= 1;
            if *count == 0 {
                names.all.remove(self.name);
            }
        }
        drop(self.turn.take());
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::*;
    use crate::clock;

    fn soon() -> Instant {
        clock::now() + Duration::from_secs(60)
    }

    /// How many wait, and how many keys there are.
    fn counts(turns: &Turns) -> (usize, usize) {
        let names = turns.names();
        (names.waiting, names.all.len())
    }

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn keyed_mutex_is_fair_and_keys_are_independent() {
        let turns = Turns::default();
        let first = turns.take("a", soon()).await.unwrap();
        let other = turns.take("b", soon()).await.unwrap();
        let (mut second, mut third) =
            (pin!(turns.take("a", soon())), pin!(turns.take("a", soon())));
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        drop(first);
        assert!(poll(third.as_mut()).is_none());
        let second = poll(second).unwrap().unwrap();
        assert_eq!(turns.names().waiting, 1);
        drop((second, other));
        drop(third.await.unwrap());
        assert_eq!(counts(&turns), (0, 0));
    }

    #[tokio::test]
    async fn keyed_mutex_forgets_waiters_that_time_out_or_leave() {
        let turns = Turns::default();
        let first = turns.take("a", soon()).await.unwrap();
        assert!(turns.take("a", clock::now()).await.is_none());
        {
            let mut left = pin!(turns.take("a", soon()));
            assert!(poll(left.as_mut()).is_none());
            assert_eq!(turns.names().waiting, 1);
        }
        assert_eq!(counts(&turns), (0, 1));
        drop(first);
        assert!(turns.names().all.is_empty());
    }

    #[tokio::test]
    async fn keyed_mutex_limits_the_number_of_waiters() {
        let turns = Turns::default();
        let first = turns.take("a", soon()).await.unwrap();
        let mut waiting: Vec<_> =
            (0..WAITING_EACH_MAX).map(|_| Box::pin(turns.take("a", soon()))).collect();
        for one in &mut waiting {
            assert!(poll(one.as_mut()).is_none());
        }
        assert!(turns.take("a", soon()).await.is_none(), "one too many under this name");
        let names: Vec<_> = (0..WAITING_MAX).map(|number| number.to_string()).collect();
        let mut held = Vec::new();
        for name in &names {
            held.push(turns.take(name, soon()).await.unwrap());
        }
        let mut more: Vec<_> =
            names.iter().map(|name| Box::pin(turns.take(name, soon()))).collect();
        let sent_away = more.iter_mut().filter_map(|one| poll(one.as_mut())).count();
        assert_eq!(sent_away, WAITING_EACH_MAX, "as many as wait under the other name");
        drop((first, waiting, more, held));
        assert_eq!(counts(&turns), (0, 0));
    }
}
