//! The thread that hashes passwords, one at a time.
//!
//! It does not know what is hashed, nor what a wrong password means for its user. The one surprising thing:
//! after a wrong password it pauses three times as long as that hash took, so that wrong passwords never
//! take more than a quarter of a core, while correct ones do not wait as long as there are no wrong ones.

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

/// The niceness of the thread: with all cores busy it gets a quarter of a worker thread's share, otherwise
/// as much as it can use.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// The priority of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// An authenticated caller, such as an admin who sets a password: goes first.
    Proved,
    /// A client at this address, not authenticated yet.
    Unproved(IpAddr),
}

/// Whether the hash showed that the password was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    Yes,
    No,
}

/// The queue is full, or the server is shutting down: the client may retry in a second or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// A job whose caller waits for the result.
trait Job: Send {
    /// Whether the caller still waits.
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
        // The caller may have gone away meanwhile.
        let _ = answer.send(done);
        wrong
    }
}

/// The thread and its queue. The thread ends when this is dropped.
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

    /// Waits in the queue and runs the job on the thread. A panic of the job resumes in the caller.
    /// Dropping the future while it waits cancels the job.
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
            // The job was evicted from the queue, or the thread has ended.
            Err(_) => Err(Full),
        }
    }

    /// The number of waiting jobs.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.shared.line().len()
    }
}

impl Drop for Hasher {
    fn drop(&mut self) {
        // Dropping their senders notifies the waiting callers.
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

    /// The next job; `None` at shutdown.
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

/// Only on Linux, where niceness is per thread: elsewhere it would slow down the whole process.
fn stand_back() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICENESS);
}

#[cfg(test)]
mod tests;
