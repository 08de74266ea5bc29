//! A stopwatch that does not count the pauses of the machine.
//!
//! A test that says how long something may take at most would fail on a machine whose processors are
//! taken away for seconds, as a busy host of virtual machines does. A thread that sleeps all the time
//! measures how late it wakes up.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(5);
/// A shorter delay is no pause.
const DELAY_MIN: Duration = Duration::from_millis(20);

/// The sum of all pauses since the first stopwatch was started, in microseconds.
static PAUSED_MICROS: LazyLock<&'static AtomicU64> = LazyLock::new(|| {
    static MICROS: AtomicU64 = AtomicU64::new(0);
    thread::spawn(|| {
        loop {
            let before = Instant::now();
            thread::sleep(INTERVAL);
            let delay = before.elapsed().saturating_sub(INTERVAL);
            if delay >= DELAY_MIN {
                MICROS.fetch_add(delay.as_micros().try_into().unwrap(), Ordering::Relaxed);
            }
        }
    });
    &MICROS
});

/// Measures the time since it was started, without pauses: for upper bounds, never for lower ones.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    began: Instant,
    paused_micros: u64,
}

impl Stopwatch {
    pub fn start() -> Self {
        let paused_micros = PAUSED_MICROS.load(Ordering::Relaxed);
        Self { began: Instant::now(), paused_micros }
    }

    pub fn elapsed(&self) -> Duration {
        let paused = PAUSED_MICROS.load(Ordering::Relaxed) - self.paused_micros;
        self.began.elapsed().saturating_sub(Duration::from_micros(paused))
    }
}
