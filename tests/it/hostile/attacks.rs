//! Every attack, and how each must end.

use bench::attack::{ALL, ConnectionEnd};

use super::attack_run::AttackRun;

/// RFC 9113 §7: ENHANCE_YOUR_CALM.
const CALM: ConnectionEnd = ConnectionEnd::GoAway(11);

const DEFAULT_ATTACK: AttackRun = AttackRun {
    limits: "header_seconds_max = 1\nbody_seconds_max = 1\nsend_seconds_max = 1",
    page_bytes: 50_000,
    connections: 20,
    actions_per_second: 1_000,
    milliseconds: 2_500,
    expected_ends: &[],
    allowed_ends: &[],
    megabytes_max: 40,
};

/// Control-frame floods; the final GOAWAY may be lost with the rest of the connection.
const FRAME_FLOOD: AttackRun = AttackRun {
    connections: 4,
    actions_per_second: 40_000,
    milliseconds: 1_000,
    expected_ends: &[CALM],
    allowed_ends: &[ConnectionEnd::Reset],
    ..DEFAULT_ATTACK
};

macro_rules! attack_tests {
    ($($test:ident: $name:literal, $siege:expr;)*) => {
        $(#[test]
        fn $test() {
            $siege.run($name);
        })*

        const NAMES: &[&str] = &[$($name,)*];
    };
}

attack_tests! {
    slow_heads: "slow heads", AttackRun { expected_ends: &[ConnectionEnd::Status(408)], ..DEFAULT_ATTACK };
    large_heads: "large heads without an end", AttackRun { connections: 200, expected_ends: &[ConnectionEnd::Status(408)], ..DEFAULT_ATTACK };
    slow_bodies: "slow bodies", AttackRun { expected_ends: &[ConnectionEnd::Status(408)], ..DEFAULT_ATTACK };
    slow_bodies_behind_large_heads: "slow bodies behind large heads", AttackRun { expected_ends: &[ConnectionEnd::Status(408)], ..DEFAULT_ATTACK };
    stalled_bodies: "large bodies that stall", AttackRun { expected_ends: &[ConnectionEnd::Status(408)], megabytes_max: 100, ..DEFAULT_ATTACK };
    // More than the kernel's socket buffers hold.
    never_reading: "answers never read", AttackRun { page_bytes: 1_000_000, expected_ends: &[ConnectionEnd::Reset], megabytes_max: 100, ..DEFAULT_ATTACK };
    // With the default timeouts, so that only their memory use ends them so soon.
    slow_readers: "answers read byte by byte", AttackRun {
        limits: "",
        page_bytes: 7_750_000, connections: 30, actions_per_second: 30, milliseconds: 9_000,
        expected_ends: &[ConnectionEnd::Reset], allowed_ends: &[ConnectionEnd::Status(503)], megabytes_max: 500,
    };
    pipelining: "pipelining without reading", AttackRun { connections: 4, actions_per_second: 40_000, expected_ends: &[ConnectionEnd::Reset], ..DEFAULT_ATTACK };
    oversized: "oversized requests", AttackRun {
        limits: "",
        actions_per_second: 40,
        milliseconds: 3_000,
        expected_ends: &[ConnectionEnd::Status(413), ConnectionEnd::Status(400)],
        allowed_ends: &[ConnectionEnd::Status(406), ConnectionEnd::Status(414), ConnectionEnd::Status(422), ConnectionEnd::Status(431), ConnectionEnd::Reset],
        megabytes_max: 700,
        ..DEFAULT_ATTACK
    };
    silent: "connections without a word", AttackRun { connections: 200, expected_ends: &[ConnectionEnd::Closed], ..DEFAULT_ATTACK };
    half_closed: "connections half closed", AttackRun { milliseconds: 500, expected_ends: &[ConnectionEnd::Closed], ..DEFAULT_ATTACK };
    crowd: "11,000 connections", AttackRun {
        limits: "connections_max = 100\nidle_seconds_max = 10",
        connections: 200,
        milliseconds: 1_500,
        expected_ends: &[ConnectionEnd::Status(503)],
        // Connections that the server closes without a response, for lack of time.
        allowed_ends: &[ConnectionEnd::Closed, ConnectionEnd::Reset],
        ..DEFAULT_ATTACK
    };
    churn: "connections opened and closed", AttackRun { milliseconds: 1_000, expected_ends: &[ConnectionEnd::Disconnected], ..DEFAULT_ATTACK };
    leavers: "clients that leave in the middle", AttackRun { milliseconds: 1_500, expected_ends: &[ConnectionEnd::Disconnected], allowed_ends: &[ConnectionEnd::Reset, ConnectionEnd::Closed], ..DEFAULT_ATTACK };
    rapid_reset: "HTTP/2 rapid reset", FRAME_FLOOD;
    late_reset: "HTTP/2 reset after a moment", AttackRun { actions_per_second: 2_000, milliseconds: 2_000, ..FRAME_FLOOD };
    continuation: "HTTP/2 CONTINUATION", FRAME_FLOOD;
    empty_data: "HTTP/2 empty DATA", FRAME_FLOOD;
    one_byte_data: "HTTP/2 DATA of one byte", FRAME_FLOOD;
    pings: "HTTP/2 PING", FRAME_FLOOD;
    settings: "HTTP/2 SETTINGS", FRAME_FLOOD;
    window_updates: "HTTP/2 WINDOW_UPDATE", FRAME_FLOOD;
    ignored_frames: "HTTP/2 PRIORITY and unknown frames", FRAME_FLOOD;
    zero_window: "HTTP/2 windows of zero", AttackRun { connections: 2, milliseconds: 4_000, expected_ends: &[ConnectionEnd::Reset], megabytes_max: 100, ..DEFAULT_ATTACK };
    window_drip: "HTTP/2 windows opened byte by byte", AttackRun { connections: 2, milliseconds: 7_000, expected_ends: &[ConnectionEnd::Reset], megabytes_max: 100, ..DEFAULT_ATTACK };
    // Each request gets 408, and then the connection is idle. The other client must not be idle for so long, however
    // busy the machine is.
    open_streams: "HTTP/2 streams left open", AttackRun {
        limits: "body_seconds_max = 1\nidle_seconds_max = 3\nheader_seconds_max = 1",
        connections: 5,
        expected_ends: &[ConnectionEnd::GoAway(0)],
        ..DEFAULT_ATTACK
    };
    header_bomb: "HTTP/2 header tables", AttackRun { actions_per_second: 400, milliseconds: 1_000, allowed_ends: &[ConnectionEnd::Closed], ..FRAME_FLOOD };
    unfinished_head: "HTTP/2 heads without an end", AttackRun { expected_ends: &[ConnectionEnd::Closed], allowed_ends: &[ConnectionEnd::Reset], ..DEFAULT_ATTACK };
}

#[test]
fn attacks_all_have_a_test() {
    let all: Vec<_> = ALL.iter().map(|attack| attack.name).collect();
    assert_eq!(all, NAMES);
}
