//! A keyed mutex: of all requests with the same key one at a time proceeds, and the others wait in order.
//!
//! A key without a holder has no entry, so there are never more entries than requests. The number of waiting
//! requests is limited, in all and per key, because each of them holds memory. Requests over the limit are
//! refused immediately.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of waiting requests.
const WAITING_MAX: usize = 1_024;
/// The maximum number of waiting requests per key.
const WAITING_PER_KEY_MAX: usize = 128;

/// The locked keys.
#[derive(Debug, Default)]
pub struct KeyedMutex {
    entries: Mutex<KeyedMutexEntries>,
}

#[derive(Debug, Default)]
struct KeyedMutexEntries {
    /// Each key with the number of its requests, including the one that holds the lock.
    by_key: HashMap<Box<str>, (Arc<Semaphore>, usize)>,
    waiting: usize,
}

/// A lock on a key; dropping it hands the lock to the next request.
#[derive(Debug)]
pub struct KeyedMutexGuard<'a> {
    mutex: &'a KeyedMutex,
    key: &'a str,
    is_waiting: bool,
    permit: Option<OwnedSemaphorePermit>,
}

impl KeyedMutex {
    /// Waits for the lock; `None` when it does not become free in time, or too many wait.
    pub async fn lock<'a>(&'a self, name: &'a str, until: Instant) -> Option<KeyedMutexGuard<'a>> {
        let mut mine = KeyedMutexGuard { mutex: self, key: name, is_waiting: false, permit: None };
        let semaphore = {
            let mut names = self.lock_entries();
            let is_full = names.waiting >= WAITING_MAX;
            let entry = names.by_key.entry(name.into());
            let (semaphore, count) = entry.or_insert_with(|| (Arc::new(Semaphore::new(1)), 0));
            // A refused request is counted too: dropping `mine` subtracts it.
            *count += 1;
            let (semaphore, count) = (Arc::clone(semaphore), *count);
            if let Ok(turn) = Arc::clone(&semaphore).try_acquire_owned() {
                mine.permit = Some(turn);
                return Some(mine);
            }
            // The count includes the holder of the lock and this request.
            if is_full || count > WAITING_PER_KEY_MAX + 1 {
                drop(names);
                return None;
            }
            names.waiting += 1;
            mine.is_waiting = true;
            semaphore
        };
        let turn = tokio::time::timeout_at(until.into(), semaphore.acquire_owned()).await;
        mine.permit = Some(turn.ok()?.ok()?);
        self.lock_entries().waiting -= 1;
        mine.is_waiting = false;
        Some(mine)
    }

    fn lock_entries(&self) -> MutexGuard<'_, KeyedMutexEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyedMutexGuard<'_> {
    fn drop(&mut self) {
        let mut names = self.mutex.lock_entries();
        if self.is_waiting {
            names.waiting -= 1;
        }
        if let Some((_, count)) = names.by_key.get_mut(self.key) {
            *count -= 1;
            if *count == 0 {
                names.by_key.remove(self.key);
            }
        }
        drop(self.permit.take());
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

    /// The number of waiting requests, and the number of keys.
    fn counts(turns: &KeyedMutex) -> (usize, usize) {
        let names = turns.lock_entries();
        (names.waiting, names.by_key.len())
    }

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn keyed_mutex_is_fair_and_keys_are_independent() {
        let turns = KeyedMutex::default();
        let first = turns.lock("a", soon()).await.unwrap();
        let other = turns.lock("b", soon()).await.unwrap();
        let (mut second, mut third) =
            (pin!(turns.lock("a", soon())), pin!(turns.lock("a", soon())));
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        drop(first);
        assert!(poll(third.as_mut()).is_none());
        let second = poll(second).unwrap().unwrap();
        assert_eq!(turns.lock_entries().waiting, 1);
        drop((second, other));
        drop(third.await.unwrap());
        assert_eq!(counts(&turns), (0, 0));
    }

    #[tokio::test]
    async fn keyed_mutex_removes_waiters_that_time_out_or_disconnect() {
        let turns = KeyedMutex::default();
        let first = turns.lock("a", soon()).await.unwrap();
        assert!(turns.lock("a", clock::now()).await.is_none());
        {
            let mut left = pin!(turns.lock("a", soon()));
            assert!(poll(left.as_mut()).is_none());
            assert_eq!(turns.lock_entries().waiting, 1);
        }
        assert_eq!(counts(&turns), (0, 1));
        drop(first);
        assert!(turns.lock_entries().by_key.is_empty());
    }

    #[tokio::test]
    async fn keyed_mutex_limits_the_number_of_waiters() {
        let turns = KeyedMutex::default();
        let first = turns.lock("a", soon()).await.unwrap();
        let mut waiting: Vec<_> =
            (0..WAITING_PER_KEY_MAX).map(|_| Box::pin(turns.lock("a", soon()))).collect();
        for one in &mut waiting {
            assert!(poll(one.as_mut()).is_none());
        }
        assert!(turns.lock("a", soon()).await.is_none(), "one too many under this name");
        let names: Vec<_> = (0..WAITING_MAX).map(|number| number.to_string()).collect();
        let mut held = Vec::new();
        for name in &names {
            held.push(turns.lock(name, soon()).await.unwrap());
        }
        let mut more: Vec<_> =
            names.iter().map(|name| Box::pin(turns.lock(name, soon()))).collect();
        let sent_away = more.iter_mut().filter_map(|one| poll(one.as_mut())).count();
        assert_eq!(sent_away, WAITING_PER_KEY_MAX, "as many as wait under the other name");
        drop((first, waiting, more, held));
        assert_eq!(counts(&turns), (0, 0));
    }
}
