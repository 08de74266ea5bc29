//! The one thread that hashes passwords, one at a time.
//!
//! What is hashed, and what a wrong password means for its user, is not known here.
//! The one surprising thing: after a wrong password it rests three times as long as that one took, so
//! that wrong ones never take more than a quarter of a core, while right ones wait for nothing as long
//! as nobody is wrong.

mod line;

use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::clock;
use line::{Line, Next};

/// How much the thread stands back for those that serve: a quarter of the share of one of them when
/// all cores are busy, everything when they are not.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// Who asks for a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Already known, such as an admin who sets a password: goes first.
    Proved,
    /// Somebody at this address, who still has to show who they are.
    Unproved(IpAddr),
}

/// Whether what was hashed turned out to be a wrong password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    Yes,
    No,
}

/// So many are waiting already, or the server is ending: to be tried again in a second or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// A piece of work that somebody waits for.
trait Job: Send {
    /// Whoever asked has not gone away.
    fn is_wanted(&self) -> bool;
    fn run(self: Box<Self>) -> Wrong;
}

struct Task<T, F> {
    work: F,
    answer: oneshot::Sender<thread::Result<T>>,
}

impl<T: Send, F: FnOnce() -> (T, Wrong) + Send> Job for Task<T, F> {
    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    fn run(self: Box<Self>) -> Wrong {
        let Self { work, answer } = *self;
        let (done, wrong) = match catch_unwind(AssertUnwindSafe(work)) {
            Ok((done, wrong)) => (Ok(done), wrong),
            Err(panic) => (Err(panic), Wrong::No),
        };
        // Whoever asked may have gone away meanwhile.
        let _ = answer.send(done);
        wrong
    }
}

/// The thread, and who waits for it. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Hasher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    line: Mutex<Line<Box<dyn Job>>>,
    changed: Condvar,
}

impl std::fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

impl Hasher {
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared { line: Mutex::new(Line::new()), changed: Condvar::new() });
        let thread = thread::Builder::new().name("nouns-hasher".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                stand_back();
                shared.work();
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Waits for its turn and does the work on the thread. A panic in it is one of the caller's.
    /// Dropped while it waits, the work is not done.
    pub async fn run<T: Send + 'static>(
        &self,
        who: Who,
        work: impl FnOnce() -> (T, Wrong) + Send + 'static,
    ) -> Result<T, Full> {
        let (answer, answered) = oneshot::channel();
        self.shared.line().join(who, Box::new(Task { work, answer }))?;
        self.shared.changed.notify_one();
        match answered.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) => resume_unwind(panic),
            // Made to give up its place, or the thread has ended.
            Err(_) => Err(Full),
        }
    }

    /// How many wait.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.shared.line().len()
    }
}

impl Drop for Hasher {
    fn drop(&mut self) {
        // Those who wait are told by their answers being dropped.
        self.shared.line().close();
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn line(&self) -> MutexGuard<'_, Line<Box<dyn Job>>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            if !job.is_wanted() {
                continue;
            }
            let began = clock::now();
            let wrong = job.run();
            if wrong == Wrong::Yes {
                self.line().rest(began, clock::now());
            }
        }
    }

    /// The next piece of work; `None` at the end.
    fn next(&self) -> Option<Box<dyn Job>> {
        let mut line = self.line();
        loop {
            let now: Instant = clock::now();
            line = match line.next(now) {
                Next::Work(job) => return Some(job),
                Next::Nothing => self.changed.wait(line).unwrap_or_else(PoisonError::into_inner),
                Next::Rest(time) => {
                    let woken = self.changed.wait_timeout(line, time);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                Next::End => return None,
            };
        }
    }
}

/// Only where it concerns this thread alone: elsewhere it would slow down the whole process.
fn stand_back() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICENESS);
}

#[cfg(test)]
mod tests;
