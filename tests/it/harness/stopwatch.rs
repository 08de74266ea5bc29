//! A stopwatch that does not count the pauses of the machine.
//!
//! A test that says how long something may take at most would fail on a machine whose processors are
//! taken away for seconds, as a busy host of virtual machines does. A thread that sleeps all the time
//! measures how late it wakes up.

use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(5);
/// A shorter delay is no pause.
const DELAY_MIN: Duration = Duration::from_millis(20);

/// The pauses since the first stopwatch was started.
#[derive(Debug)]
struct Pauses {
    total: Duration,
    /// When the thread woke up last.
    woke_at: Instant,
}

impl Pauses {
    /// The sum until now, with the one that is going on.
    fn until_now() -> Duration {
        let pauses = PAUSES.lock().unwrap();
        pauses.total + Self::pause(pauses.woke_at)
    }

    fn pause(slept_since: Instant) -> Duration {
        let delay = slept_since.elapsed().saturating_sub(INTERVAL);
        if delay >= DELAY_MIN { delay } else { Duration::ZERO }
    }
}

static PAUSES: LazyLock<&'static Mutex<Pauses>> = LazyLock::new(|| {
    let pauses: &Mutex<Pauses> =
        Box::leak(Box::new(Mutex::new(Pauses { total: Duration::ZERO, woke_at: Instant::now() })));
    thread::spawn(move || {
        loop {
            thread::sleep(INTERVAL);
            let mut pauses = pauses.lock().unwrap();
            let pause = Pauses::pause(pauses.woke_at);
            *pauses = Pauses { total: pauses.total + pause, woke_at: Instant::now() };
        }
    });
    pauses
});

/// Measures the time since it was started, without pauses: for upper bounds, never for lower ones.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    began: Instant,
    pauses_before: Duration,
}

impl Stopwatch {
    pub fn start() -> Self {
        let pauses_before = Pauses::until_now();
        Self { began: Instant::now(), pauses_before }
    }

    pub fn elapsed(&self) -> Duration {
        let pauses = Pauses::until_now().saturating_sub(self.pauses_before);
        self.began.elapsed().saturating_sub(pauses)
    }
}
