//! The thread that hashes passwords, one at a time.
//!
//! It knows neither what it hashes nor the consequences of a wrong password. After a wrong password it pauses
//! three times as long as that hash took, so that wrong passwords never use more than a quarter of a core,
//! and correct ones wait only while there are wrong ones.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::sync::oneshot;

use super::fair_queue::{FairQueue, HashPriority, HasherBusy, NextJob};
use crate::clock;

/// The niceness of the thread: with all cores busy it gets a quarter of a worker thread's share, otherwise
/// as much as it can use.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// Whether the hash showed that the password was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongPassword {
    Yes,
    No,
}

/// A job whose caller waits for the result.
trait HashJob: Send {
    /// Whether the caller still waits.
    fn has_receiver(&self) -> bool;
    fn run(self: Box<Self>) -> WrongPassword;
}

struct HashTask<T, F> {
    work: F,
    answer: oneshot::Sender<thread::Result<T>>,
}

impl<T: Send, F: FnOnce() -> (T, WrongPassword) + Send> HashJob for HashTask<T, F> {
    fn has_receiver(&self) -> bool {
        !self.answer.is_closed()
    }

    fn run(self: Box<Self>) -> WrongPassword {
        let Self { work, answer } = *self;
        let (done, wrong) = match catch_unwind(AssertUnwindSafe(work)) {
            Ok((done, wrong)) => (Ok(done), wrong),
            Err(panic) => (Err(panic), WrongPassword::No),
        };
        // The caller may have stopped waiting.
        let _ = answer.send(done);
        wrong
    }
}

/// The thread and its queue. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Hasher {
    shared: Arc<HasherState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct HasherState {
    queue: Mutex<FairQueue<Box<dyn HashJob>>>,
    changed: Condvar,
}

impl std::fmt::Debug for dyn HashJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashJob")
    }
}

impl Hasher {
    pub fn start() -> io::Result<Self> {
        let shared =
            Arc::new(HasherState { queue: Mutex::new(FairQueue::new()), changed: Condvar::new() });
        let thread = thread::Builder::new().name("nouns-hasher".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                lower_thread_priority();
                shared.run_jobs();
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Waits in the queue and runs the job on the thread. A panic of the job resumes in the caller.
    /// Dropping the future while it waits cancels the job.
    pub async fn run<T: Send + 'static>(
        &self,
        who: HashPriority,
        work: impl FnOnce() -> (T, WrongPassword) + Send + 'static,
    ) -> Result<T, HasherBusy> {
        let (answer, answered) = oneshot::channel();
        self.shared.lock_queue().enqueue(who, Box::new(HashTask { work, answer }))?;
        self.shared.changed.notify_one();
        match answered.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) => resume_unwind(panic),
            // The job was evicted from the queue, or the thread has ended.
            Err(_) => Err(HasherBusy),
        }
    }

    /// The number of waiting jobs.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.shared.lock_queue().len()
    }
}

impl Drop for Hasher {
    fn drop(&mut self) {
        // Closing the queue drops the senders of the waiting jobs, which notifies their callers.
        self.shared.lock_queue().close();
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl HasherState {
    fn lock_queue(&self) -> MutexGuard<'_, FairQueue<Box<dyn HashJob>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_jobs(&self) {
        while let Some(job) = self.next() {
            if !job.has_receiver() {
                continue;
            }
            let began = clock::now();
            let wrong = job.run();
            if wrong == WrongPassword::Yes {
                self.lock_queue().start_cooldown(began, clock::now());
            }
        }
    }

    /// The next job; `None` at shutdown.
    fn next(&self) -> Option<Box<dyn HashJob>> {
        let mut line = self.lock_queue();
        loop {
            let now: Instant = clock::now();
            line = match line.next(now) {
                NextJob::Run(job) => return Some(job),
                NextJob::Idle => self.changed.wait(line).unwrap_or_else(PoisonError::into_inner),
                NextJob::CoolDown(time) => {
                    let woken = self.changed.wait_timeout(line, time);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                NextJob::End => return None,
            };
        }
    }
}

/// Does so on Linux only, where niceness is per thread: elsewhere it would slow down the whole process.
fn lower_thread_priority() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICENESS);
}

#[cfg(test)]
mod tests;
