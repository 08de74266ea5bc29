//! NDJSON output of a collection: one JSON object a line, without a wrapper.
//!
//! Only for collections; a single item is JSON. The media type is not registered, so it has no parameters;
//! this name is the customary one.

use http::HeaderValue;

use super::accept::MediaType;
use super::format::{Format, StreamWriter, write_stream};
use super::json::write_item;

pub static FORMAT: Format = Format {
    media: MediaType { essence: "application/x-ndjson", parameters: &[] },
    content_type: HeaderValue::from_static("application/x-ndjson"),
    item: |out, view, item| write_stream(&LINES, out, view, std::slice::from_ref(item)),
    items: |out, view, items| write_stream(&LINES, out, view, items),
    page: |out, view, page, _| write_stream(&LINES, out, view, &page.items),
    stream_writer: Some(&LINES),
};

static LINES: StreamWriter = StreamWriter {
    has_related: true,
    head: |_, _| {},
    line: |out, view, item| {
        write_item(out, view, item);
        out.push(b'\n');
    },
};
