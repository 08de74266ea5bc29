//! NDJSON output of a collection: one JSON object a line, without a wrapper.
//!
//! Only for collections; a single item is JSON. What may surprise: the media type is not registered, so it
//! has no parameters; this name is the customary one.

use http::HeaderValue;

use super::accept::Media;
use super::json::write_item;
use super::{Format, Lines, write_lines};

pub static FORMAT: Format = Format {
    media: Media { essence: "application/x-ndjson", parameters: &[] },
    content_type: HeaderValue::from_static("application/x-ndjson"),
    item: |out, view, item| write_lines(&LINES, out, view, std::slice::from_ref(item)),
    items: |out, view, items| write_lines(&LINES, out, view, items),
    page: |out, view, page, _| write_lines(&LINES, out, view, &page.items),
    lines: Some(&LINES),
};

static LINES: Lines = Lines {
    head: |_, _| {},
    line: |out, view, item| {
        write_item(out, view, item);
        out.push(b'\n');
    },
};
