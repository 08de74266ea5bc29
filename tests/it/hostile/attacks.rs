//! Every attack, and how each must end.

use bench::attack::{ALL, End};

use super::siege::Siege;

/// RFC 9113 §7: ENHANCE_YOUR_CALM.
const CALM: End = End::GoAway(11);

const USUAL: Siege = Siege {
    limits: "header_seconds_max = 1\nbody_seconds_max = 1\nsending_seconds_max = 1",
    page_bytes: 50_000,
    connections: 20,
    actions_per_second: 1_000,
    milliseconds: 2_500,
    cut: &[],
    also: &[],
    megabytes_max: 40,
};

/// Control-frame floods; the final GOAWAY may be lost with the rest of the connection.
const FLOOD: Siege = Siege {
    connections: 4,
    actions_per_second: 40_000,
    milliseconds: 1_000,
    cut: &[CALM],
    also: &[End::Reset],
    ..USUAL
};

macro_rules! sieges {
    ($($test:ident: $name:literal, $siege:expr;)*) => {
        $(#[test]
        fn $test() {
            $siege.run($name);
        })*

        const NAMES: &[&str] = &[$($name,)*];
    };
}

sieges! {
    slow_heads: "slow heads", Siege { cut: &[End::Status(408)], ..USUAL };
    large_heads: "large heads without an end", Siege { connections: 200, cut: &[End::Status(408)], ..USUAL };
    slow_bodies: "slow bodies", Siege { cut: &[End::Status(408)], ..USUAL };
    slow_bodies_behind_large_heads: "slow bodies behind large heads", Siege { cut: &[End::Status(408)], ..USUAL };
    stalled_bodies: "large bodies that stall", Siege { cut: &[End::Status(408)], megabytes_max: 100, ..USUAL };
    // More than the kernel's socket buffers hold.
    never_reading: "answers never read", Siege { page_bytes: 1_000_000, cut: &[End::Reset], megabytes_max: 100, ..USUAL };
    // With the default timeouts, so that only their memory use ends them so soon.
    slow_readers: "answers read byte by byte", Siege {
        limits: "",
        page_bytes: 7_750_000, connections: 30, actions_per_second: 30, milliseconds: 9_000,
        cut: &[End::Reset], also: &[End::Status(503)], megabytes_max: 500,
    };
    pipelining: "pipelining without reading", Siege { connections: 4, actions_per_second: 40_000, cut: &[End::Reset], ..USUAL };
    oversized: "oversized requests", Siege {
        limits: "",
        actions_per_second: 40,
        milliseconds: 3_000,
        cut: &[End::Status(413), End::Status(400)],
        also: &[End::Status(406), End::Status(414), End::Status(422), End::Status(431), End::Reset],
        megabytes_max: 700,
        ..USUAL
    };
    silent: "connections without a word", Siege { connections: 200, cut: &[End::Closed], ..USUAL };
    half_closed: "connections half closed", Siege { milliseconds: 500, cut: &[End::Closed], ..USUAL };
    crowd: "11,000 connections", Siege {
        limits: "connections_max = 100\nidle_seconds_max = 10",
        connections: 200,
        milliseconds: 1_500,
        cut: &[End::Status(503)],
        // Connections that the server closes without a response, for lack of time.
        also: &[End::Closed, End::Reset],
        ..USUAL
    };
    churn: "connections opened and closed", Siege { milliseconds: 1_000, cut: &[End::Left], ..USUAL };
    leavers: "clients that leave in the middle", Siege { milliseconds: 1_500, cut: &[End::Left], also: &[End::Reset, End::Closed], ..USUAL };
    rapid_reset: "HTTP/2 rapid reset", FLOOD;
    late_reset: "HTTP/2 reset after a moment", Siege { actions_per_second: 2_000, milliseconds: 2_000, ..FLOOD };
    continuation: "HTTP/2 CONTINUATION", FLOOD;
    empty_data: "HTTP/2 empty DATA", FLOOD;
    one_byte_data: "HTTP/2 DATA of one byte", FLOOD;
    pings: "HTTP/2 PING", FLOOD;
    settings: "HTTP/2 SETTINGS", FLOOD;
    window_updates: "HTTP/2 WINDOW_UPDATE", FLOOD;
    ignored_frames: "HTTP/2 PRIORITY and unknown frames", FLOOD;
    zero_window: "HTTP/2 windows of zero", Siege { connections: 2, milliseconds: 4_000, cut: &[End::Reset], megabytes_max: 100, ..USUAL };
    window_drip: "HTTP/2 windows opened byte by byte", Siege { connections: 2, milliseconds: 7_000, cut: &[End::Reset], megabytes_max: 100, ..USUAL };
    // Each request gets 408, and then the connection is idle.
    open_streams: "HTTP/2 streams left open", Siege {
        limits: "body_seconds_max = 1\nidle_seconds_max = 1\nheader_seconds_max = 1",
        connections: 5,
        milliseconds: 4_500,
        cut: &[End::GoAway(0)],
        ..USUAL
    };
    header_bomb: "HTTP/2 header tables", Siege { actions_per_second: 400, milliseconds: 1_000, also: &[End::Closed], ..FLOOD };
    unfinished_head: "HTTP/2 heads without an end", Siege { cut: &[End::Closed], also: &[End::Reset], ..USUAL };
}

#[test]
fn attacks_all_have_a_test() {
    let all: Vec<_> = ALL.iter().map(|attack| attack.name).collect();
    assert_eq!(all, NAMES);
}
