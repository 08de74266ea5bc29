//! Turns: of all requests that come under one name, one at a time goes on, and the others wait in order.
//!
//! It keeps nothing of a name that nobody has; so there are never more names than requests.
//! The one surprising thing: only so many may wait, in all and under one name, because whoever waits holds
//! memory. The rest are sent away at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many wait at most.
const WAITING_MAX: usize = 1_024;
/// So many of them under one name.
const WAITING_EACH_MAX: usize = 128;

/// Who has which name.
#[derive(Debug, Default)]
pub struct Turns {
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    /// With how many have it, the one that works among them.
    all: HashMap<Box<str>, (Arc<Semaphore>, usize)>,
    waiting: usize,
}

/// A name, as long as it is had; the next one's turn comes with its end.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
    name: &'a str,
    is_waiting: bool,
    turn: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Waits for one's turn; nothing when it does not come in time, or too many wait.
    pub async fn take<'a>(&'a self, name: &'a str, until: Instant) -> Option<Turn<'a>> {
        let mut mine = Turn { turns: self, name, is_waiting: false, turn: None };
        let semaphore = {
            let mut names = self.names();
            let is_full = names.waiting >= WAITING_MAX;
            let entry = names.all.entry(name.into());
            let (semaphore, count) = entry.or_insert_with(|| (Arc::new(Semaphore::new(1)), 0));
            // Counted even if it is sent away: its end counts back.
            *count += 1;
            let (semaphore, count) = (Arc::clone(semaphore), *count);
            if let Ok(turn) = Arc::clone(&semaphore).try_acquire_owned() {
                mine.turn = Some(turn);
                return Some(mine);
            }
            // One works, and this one is counted.
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

    /// How many wait, and how many names there are.
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
    async fn one_at_a_time_in_order_and_names_apart() {
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
    async fn whoever_waits_too_long_or_leaves_is_forgotten() {
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
    async fn only_so_many_wait() {
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
