//! HTTP/2 frame accounting, against control-frame floods and rapid reset.
//!
//! It tracks frames; hyper interprets them. By itself, hyper answers PING and SETTINGS frames without limit;
//! RFC 9113 §10.5 leaves it to the server to decide how many are too many.

use std::cell::Cell;

use super::deadlines::SweepTime;

use crate::fault::OrBug;

const HEAD_BYTES: usize = 9;
/// A frame with less data than this is hardly worth its header.
const DATA_BYTES_SMALL: usize = 128;

/// A client may answer each frame of data with two window updates, for the stream and for the connection.
const DATA_CREDIT: i64 = 2;
/// A client that reads a large frame in pieces may answer each of them.
const PIECE_BYTES: usize = 512;

/// The cost of a reset: more than the credit of a request, so that resets use up the budget (rapid reset).
const RESET_COST: i64 = 30;

/// The frame types and flags (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// RFC 9113 §6.8 and §7: GOAWAY on stream 0 with ENHANCE_YOUR_CALM. The last stream id is the maximum, since
/// all streams in flight end here.
pub(super) const GOAWAY_ENHANCE_YOUR_CALM: [u8; 17] =
    [0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 11];

/// RFC 9113 §3.4: the bytes that a client sends before its first frame.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The value of a frame by its type, its flags and the bytes of its payload.
type FrameValue = fn(u8, u8, usize) -> i64;

/// The position of one direction's bytes between two frames or inside of one.
#[derive(Debug)]
pub(super) struct FrameTracker {
    value: FrameValue,
    /// The header of the next frame as far as it has arrived.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// The remaining bytes of the frame's payload, or of the preface.
    rest: usize,
}

impl FrameTracker {
    /// A tracker of a client's bytes, from the first byte of the preface. The value of a frame is its cost.
    pub(super) fn of_client() -> Self {
        Self { rest: PREFACE.len(), ..Self::new(received_cost) }
    }

    /// A tracker of the server's bytes. The value of a frame is the credit for the answers of the client.
    pub(super) fn of_server() -> Self {
        Self::new(sent_credit)
    }

    fn new(value: FrameValue) -> Self {
        Self { value, head: [0; HEAD_BYTES], head_bytes: 0, rest: 0 }
    }

    /// Whether the last byte was the last of a frame.
    pub(super) fn is_at_frame_boundary(&self) -> bool {
        self.head_bytes == 0 && self.rest == 0
    }

    /// Tracks bytes and returns the value of the frames that begin there.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) -> i64 {
        let mut value = 0;
        while let Some((first, others)) = bytes.split_first() {
            if self.rest > 0 {
                let passed = self.rest.min(bytes.len());
                self.rest -= passed;
                bytes = bytes.split_at(passed).1;
                continue;
            }
            *self.head.get_mut(self.head_bytes).or_bug("a whole header was reset") = *first;
            self.head_bytes += 1;
            bytes = others;
            if self.head_bytes == HEAD_BYTES {
                self.head_bytes = 0;
                value += self.begin_payload();
            }
        }
        value
    }

    /// Begins the payload of a frame, whose header is complete; returns the value of the frame.
    fn begin_payload(&mut self) -> i64 {
        let [high, middle, low, kind, flags, ..] = self.head;
        self.rest = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        (self.value)(kind, flags, self.rest)
    }
}

fn received_cost(kind: u8, flags: u8, bytes: usize) -> i64 {
    match kind {
        // A request is worth its frames, and hyper limits the size of a head.
        HEADERS | CONTINUATION => 0,
        DATA if flags & END_STREAM != 0 || bytes >= DATA_BYTES_SMALL => 0,
        // A reset discards the work that its request has cost.
        RST_STREAM => RESET_COST,
        // PING, SETTINGS, WINDOW_UPDATE, PRIORITY, unknown types, and DATA with hardly a byte.
        _ => 1,
    }
}

/// A client with small windows makes the server send small frames, which are worth nothing.
fn sent_credit(kind: u8, _: u8, bytes: usize) -> i64 {
    match kind {
        DATA if bytes >= DATA_BYTES_SMALL => {
            DATA_CREDIT.max(i64::try_from(bytes / PIECE_BYTES).unwrap_or(i64::MAX))
        }
        _ => 0,
    }
}

/// The budget for control frames on one connection (a token bucket).
///
/// It refills with time, with requests, and with data sent: a client that does nothing unusual spends a few
/// frames per request, and window updates for the frames of data that it has read.
#[derive(Debug)]
pub(super) struct ControlFrameBudget {
    remaining: Cell<i64>,
    /// Up to when elapsed time is credited.
    refilled_at: Cell<SweepTime>,
}

impl ControlFrameBudget {
    /// The initial value, and the maximum.
    const MAX: i64 = 2_000;
    const PER_SWEEP: i64 = 25;
    const PER_REQUEST: i64 = 10;

    pub(super) fn new(now: SweepTime) -> Self {
        Self { remaining: Cell::new(Self::MAX), refilled_at: Cell::new(now) }
    }

    fn refill(&self, by: i64) {
        self.remaining.set((self.remaining.get().saturating_add(by)).min(Self::MAX));
    }

    pub(super) fn credit_request(&self) {
        self.refill(Self::PER_REQUEST);
    }

    pub(super) fn credit_sent(&self, credit: i64) {
        self.refill(credit);
    }

    pub(super) fn spend(&self, cost: i64, now: SweepTime) {
        let sweeps = now.sweeps_since(self.refilled_at.replace(now));
        self.refill(i64::try_from(sweeps).unwrap_or(i64::MAX).saturating_mul(Self::PER_SWEEP));
        self.remaining.set(self.remaining.get() - cost);
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.remaining.get() < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let head = [0, 0, length, kind, flags, 0, 0, 0, 1];
        [&head[..], &vec![0; usize::from(length)]].concat()
    }

    #[test]
    fn http2_frames_are_found_however_the_bytes_are_split() {
        let all = [
            frame(HEADERS, 4, 30),
            frame(DATA, 0, 0),
            frame(DATA, 0, 200),
            frame(DATA, END_STREAM, 1),
            frame(6, 0, 8),
            frame(4, 0, 0),
            frame(RST_STREAM, 0, 4),
            frame(0x42, 0, 7),
        ]
        .concat();
        let costs = 4 + RESET_COST;
        for size in [1, 2, 8, 9, 10, 33, all.len()] {
            let mut frames = FrameTracker::new(received_cost);
            let sum: i64 = all.chunks(size).map(|bytes| frames.follow(bytes)).sum();
            assert_eq!((sum, frames.is_at_frame_boundary()), (costs, true), "{size}");
        }
    }

    #[test]
    fn http2_sent_data_is_worth_the_window_updates_for_it() {
        let large = [&[0, 0x40, 0, DATA, 0, 0, 0, 0, 1][..], &[0; 16 << 10]].concat();
        let all = [
            frame(HEADERS, 4, 200),
            frame(DATA, 0, 127),
            frame(DATA, 0, 128),
            frame(DATA, END_STREAM, 255),
            frame(8, 0, 4),
            large,
        ]
        .concat();
        for size in [1, 9, 33, 1_000, all.len()] {
            let mut frames = FrameTracker::of_server();
            let sum: i64 = all.chunks(size).map(|bytes| frames.follow(bytes)).sum();
            assert_eq!(
                (sum, frames.is_at_frame_boundary()),
                (2 * DATA_CREDIT + 32, true),
                "{size}"
            );
        }
    }

    #[test]
    fn http2_frames_after_the_preface_are_counted_however_the_bytes_are_split() {
        let all = [PREFACE, &frame(4, 0, 6), &frame(6, 0, 8), &frame(RST_STREAM, 0, 4)].concat();
        for size in [1, 9, 23, 24, 25, all.len()] {
            let mut frames = FrameTracker::of_client();
            let sum: i64 = all.chunks(size).map(|bytes| frames.follow(bytes)).sum();
            assert_eq!((sum, frames.is_at_frame_boundary()), (2 + RESET_COST, true), "{size}");
        }
    }

    #[test]
    fn http2_frames_boundary_is_known() {
        let mut frames = FrameTracker::new(received_cost);
        assert!(frames.is_at_frame_boundary());
        let ping = frame(6, 0, 8);
        for end in 1..ping.len() {
            let mut frames = FrameTracker::new(received_cost);
            frames.follow(&ping[..end]);
            assert!(!frames.is_at_frame_boundary(), "{end}");
        }
        frames.follow(&GOAWAY_ENHANCE_YOUR_CALM);
        assert!(frames.is_at_frame_boundary());
    }

    #[test]
    fn control_frame_budget_is_spent_and_refills() {
        let now = SweepTime::default();
        let allowance = ControlFrameBudget::new(now);
        allowance.spend(ControlFrameBudget::MAX, now);
        assert!(!allowance.is_exhausted());
        allowance.spend(1, now);
        assert!(allowance.is_exhausted());
        allowance.spend(0, now.next());
        assert!(!allowance.is_exhausted(), "a sweep later");
        allowance.credit_request();
        allowance.credit_sent(2);
        assert_eq!(
            allowance.remaining.get(),
            ControlFrameBudget::PER_SWEEP - 1 + ControlFrameBudget::PER_REQUEST + 2
        );
        let later = (0..1_000).fold(now, |time, _| time.next());
        allowance.spend(0, later);
        assert_eq!(allowance.remaining.get(), ControlFrameBudget::MAX);
    }

    #[test]
    fn control_frame_budget_rapid_reset_exhausts_it() {
        let allowance = ControlFrameBudget::new(SweepTime::default());
        let resets = (0..).take_while(|_| {
            allowance.credit_request();
            allowance.spend(RESET_COST, SweepTime::default());
            !allowance.is_exhausted()
        });
        assert!((50..200).contains(&resets.count()));
    }
}
