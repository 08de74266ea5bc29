//! Server-Sent Events (WHATWG HTML §9.2): the framing of a stream of events.
//!
//! Only the framing; `cloud_event` writes the data. A block that has an id and no data dispatches nothing at
//! the client, but moves its `lastEventId` (§9.2.6: an empty data buffer ends the dispatch after the id is set).
//! Such blocks are the first block of a stream and every heartbeat, so that a client that is cut off resumes
//! there.

use http::HeaderValue;

use super::accept::MediaType;
use super::format::Format;
use super::json;
use crate::fault;
use crate::json::write_integer;

/// Streams of events have no form for single items or pages: the route decides that the format applies.
pub static FORMAT: Format = Format {
    media: MediaType { essence: "text/event-stream", parameters: &[] },
    content_type: HeaderValue::from_static("text/event-stream"),
    item: json::FORMAT.item,
    items: json::FORMAT.items,
    page: json::FORMAT.page,
    stream_writer: None,
};

/// Whether the client has chosen an event stream.
pub fn is_chosen(format: &Format) -> bool {
    format.media == FORMAT.media
}

/// Writes an event. Without an id, a client that is cut off after it resumes at an earlier event.
pub fn write_event(out: &mut Vec<u8>, id: Option<i64>, event: &str, data: &[u8]) {
    // A line break would end the field: our JSON has none, because texts escape control characters.
    if data.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        fault::bug("the data of an event is one line");
    }
    if let Some(id) = id {
        write_id_line(out, id);
    }
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\n\n");
}

/// The block of an event without its id.
pub fn without_id(block: &[u8]) -> &[u8] {
    let end = block.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    match block.split_at_checked(end) {
        Some((line, rest)) if line.starts_with(b"id: ") => rest,
        _ => block,
    }
}

/// Writes the first block: how long the client waits before it reconnects, and where it resumes. Without a position
/// it forgets an earlier one, and begins anew.
pub fn write_start(out: &mut Vec<u8>, retry_ms: u32, position: Option<i64>) {
    write_retry_line(out, retry_ms);
    match position {
        Some(position) => write_id_line(out, position),
        None => out.extend_from_slice(b"id:\n"),
    }
    out.push(b'\n');
}

/// Writes a heartbeat: a comment, with the position that the client resumes at.
pub fn write_heartbeat(out: &mut Vec<u8>, position: Option<i64>) {
    if let Some(position) = position {
        write_id_line(out, position);
    }
    out.extend_from_slice(b":\n\n");
}

/// Writes the last block of a stream that the server ends.
pub fn write_end(out: &mut Vec<u8>, retry_ms: u32) {
    write_retry_line(out, retry_ms);
    out.push(b'\n');
}

fn write_id_line(out: &mut Vec<u8>, id: i64) {
    out.extend_from_slice(b"id: ");
    write_integer(out, id);
    out.push(b'\n');
}

fn write_retry_line(out: &mut Vec<u8>, retry_ms: u32) {
    out.extend_from_slice(b"retry: ");
    write_integer(out, retry_ms);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(write: impl FnOnce(&mut Vec<u8>), expected: &Expect) {
        let mut out = Vec::new();
        write(&mut out);
        expected.assert_eq(str::from_utf8(&out).unwrap());
    }

    #[test]
    fn event_stream_blocks_end_with_an_empty_line() {
        check(
            |out| write_start(out, 2_000, Some(4_711)),
            &expect![[r#"
            retry: 2000
            id: 4711

        "#]],
        );
        check(
            |out| write_event(out, Some(4_712), "updated", br#"{"a":1}"#),
            &expect![[r#"
                id: 4712
                event: updated
                data: {"a":1}

            "#]],
        );
        check(
            |out| write_event(out, None, "item", b"{}"),
            &expect![[r#"
                event: item
                data: {}

            "#]],
        );
        check(
            |out| write_heartbeat(out, Some(5_120)),
            &expect![[r#"
            id: 5120
            :

        "#]],
        );
        check(
            |out| write_end(out, 3_000),
            &expect![[r#"
            retry: 3000

        "#]],
        );
    }

    #[test]
    #[should_panic(expected = "one line")]
    fn event_stream_data_with_a_line_break_is_a_bug() {
        write_event(&mut Vec::new(), None, "item", b"{\n}");
    }
}
