//! The log's writer thread, and the buffer between it and the requests.
//!
//! It handles bytes and does not look into them. The thread batches lines for a few milliseconds, so that
//! under load a request pays for a copy and not for a system call.

use std::io::Write;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use super::line;
use super::record::{Level, LogStyle};
use crate::clock;

const BUFFER_BYTES_MAX: usize = 4 << 20;
const BATCH_DELAY: Duration = Duration::from_millis(5);
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct LogWriter {
    state: Mutex<WriterState>,
    /// Wakes the thread.
    work_available: Condvar,
    /// Wakes `flush` when everything is written.
    drained: Condvar,
}

#[derive(Debug, Default)]
struct WriterState {
    buffer: Vec<u8>,
    dropped: u64,
    /// Lines dropped since the start, including those that were reported.
    dropped_ever: u64,
    /// The thread waits for work.
    is_idle: bool,
    /// Set when the thread should write immediately and not wait for more lines.
    should_flush: bool,
    /// Whether lines were moved out of the buffer and are not yet written.
    is_writing: bool,
}

impl WriterState {
    fn has_work(&self) -> bool {
        !self.buffer.is_empty() || self.dropped > 0
    }
}

impl LogWriter {
    pub fn start(style: LogStyle, target: impl Write + Send + 'static) -> io::Result<Arc<Self>> {
        let writer = Arc::new(Self {
            state: Mutex::default(),
            work_available: Condvar::new(),
            drained: Condvar::new(),
        });
        let shared = Arc::clone(&writer);
        thread::Builder::new().name("log".to_owned()).spawn(move || shared.run(style, target))?;
        Ok(writer)
    }

    pub fn append(&self, line: &[u8], level: Level) {
        let mut state = self.lock();
        if state.buffer.len() + line.len() > BUFFER_BYTES_MAX {
            state.dropped += 1;
            state.dropped_ever += 1;
        } else {
            state.buffer.extend_from_slice(line);
        }
        let hurry = level == Level::Error && !mem::replace(&mut state.should_flush, true);
        if mem::take(&mut state.is_idle) || hurry {
            drop(state);
            self.work_available.notify_one();
        }
    }

    pub fn dropped_total(&self) -> u64 {
        self.lock().dropped_ever
    }

    pub fn flush(&self) {
        let mut state = self.lock();
        state.should_flush = true;
        self.work_available.notify_one();
        // The result tells only whether it timed out, and there is nothing to do about that.
        let _waited = self
            .drained
            .wait_timeout_while(state, FLUSH_TIMEOUT, |state| state.has_work() || state.is_writing)
            .unwrap_or_else(PoisonError::into_inner);
    }

    fn run(&self, style: LogStyle, mut target: impl Write) {
        let mut spare = Vec::new();
        // A panic loses the current batch; later lines are written.
        while catch_unwind(AssertUnwindSafe(|| self.write_batches(style, &mut target, &mut spare)))
            .is_err()
        {
            spare.clear();
        }
    }

    /// Writes batches of lines for ever.
    fn write_batches(&self, style: LogStyle, target: &mut impl Write, spare: &mut Vec<u8>) {
        let mut note = Vec::new();
        loop {
            let dropped = self.take_batch(spare);
            crate::fault::point("log");
            // There is no other place to report to when stderr itself fails.
            let _ = target.write_all(spare);
            spare.clear();
            if dropped > 0 {
                note.clear();
                line::event(
                    &mut note,
                    style,
                    &line::LogEvent {
                        time: clock::moment(),
                        level: Level::Warning,
                        message: "log lines were dropped: they came faster than they could be written",
                        pairs: &[("dropped", &dropped)],
                    },
                );
                note.push(b'\n');
                let _ = target.write_all(&note);
            }
            let _ = target.flush();
            self.finish_batch();
        }
    }

    /// Waits for work and takes it: the lines, in exchange for an empty buffer, and the number dropped.
    fn take_batch(&self, spare: &mut Vec<u8>) -> u64 {
        let mut state = self.lock();
        while !state.has_work() {
            state.is_idle = true;
            state.should_flush = false;
            self.drained.notify_all();
            state = self.work_available.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_idle = false;
        state.should_flush = false;
        state.is_writing = true;
        mem::swap(&mut state.buffer, spare);
        mem::take(&mut state.dropped)
    }

    /// Marks the batch as written, then waits for the next batch to fill.
    fn finish_batch(&self) {
        let mut state = self.lock();
        state.is_writing = false;
        if !state.has_work() {
            self.drained.notify_all();
        }
        let _waited = self
            .work_available
            .wait_timeout_while(state, BATCH_DELAY, |state| !state.should_flush)
            .unwrap_or_else(PoisonError::into_inner);
    }

    fn lock(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Forwards the written bytes; blocks while the test holds `gate`.
    struct BlockingTarget {
        gate: Arc<Mutex<()>>,
        sent: mpsc::Sender<Vec<u8>>,
    }

    impl Write for BlockingTarget {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _open = self.gate.lock().unwrap();
            self.sent.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start() -> (Arc<LogWriter>, Arc<Mutex<()>>, mpsc::Receiver<Vec<u8>>) {
        let write_lock = Arc::new(Mutex::new(()));
        let (sent, received) = mpsc::channel();
        let target = BlockingTarget { gate: Arc::clone(&write_lock), sent };
        (LogWriter::start(LogStyle::Json, target).unwrap(), write_lock, received)
    }

    #[test]
    fn log_lines_are_written_in_order_without_a_flush() {
        let (writer, _write_lock, received) = start();
        for number in 0..1000 {
            writer.append(format!("{number}\n").as_bytes(), Level::Info);
        }
        let mut text = Vec::new();
        while text.iter().filter(|byte| **byte == b'\n').count() < 1000 {
            text.extend(received.recv_timeout(Duration::from_secs(10)).unwrap());
        }
        let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn log_flush_returns_only_after_all_lines_are_written() {
        let (writer, _write_lock, received) = start();
        writer.append(b"one\n", Level::Info);
        writer.flush();
        assert_eq!(received.try_iter().flatten().collect::<Vec<_>>(), b"one\n");
        writer.flush();
    }

    #[test]
    fn log_full_buffer_drops_and_counts_lines() {
        let (writer, write_lock, received) = start();
        let closed = write_lock.lock().unwrap();
        let line = vec![b'x'; 1 << 20];
        // The thread may write one buffer while another one fills: more than two never fit.
        for _ in 0..12 {
            writer.append(&line, Level::Info);
        }
        drop(closed);
        writer.flush();
        let text: Vec<u8> = received.try_iter().flatten().collect();
        let kept = text.iter().filter(|byte| **byte == b'x').count() >> 20;
        assert!((4..=8).contains(&kept), "{kept}");
        let notes =
            String::from_utf8(text.into_iter().filter(|byte| *byte != b'x').collect()).unwrap();
        // The thread writes one note after each batch with dropped lines, so there may be several notes.
        let counts =
            notes.split("\"dropped\":\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let noted: usize = counts.map(|count| count.parse::<usize>().unwrap()).sum();
        assert_eq!(noted, 12 - kept, "{notes}");
        assert_eq!(writer.dropped_total(), 12 - kept as u64);
    }
}
