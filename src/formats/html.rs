//! The media types of pages and of the files that they load. `pages` makes a page from the JSON of the same
//! reply, so that this format writes none itself.

use http::HeaderValue;

use super::accept::{Accept, MediaType};
use super::format::Format;
use super::json;

pub static FORMAT: Format = Format {
    media: MediaType { essence: "text/html", parameters: &[] },
    content_type: HeaderValue::from_static("text/html; charset=utf-8"),
    ..json::FORMAT
};

const XHTML: MediaType = MediaType { essence: "application/xhtml+xml", parameters: &[] };

/// Whether the client may get a page: it lists `text/html` by name. A client that accepts `*/*` too must also list
/// `application/xhtml+xml`, as browsers do: Java's `HttpURLConnection` sends `text/html, image/gif, image/jpeg,
/// */*; q=0.2` with every request, and expects no page.
pub fn is_wanted(accept: &Accept<'_>) -> bool {
    accept.names(&FORMAT.media) && (accept.names(&XHTML) || !accept.has_full_wildcard())
}

/// Whether the response is a page.
pub fn is_chosen(format: &Format) -> bool {
    format.media == FORMAT.media
}

/// A file that every page loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asset {
    Stylesheet,
    Script,
}

impl Asset {
    pub const ALL: [Self; 2] = [Self::Stylesheet, Self::Script];

    /// Its name in paths.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Stylesheet => "nouns.css",
            Self::Script => "nouns.js",
        }
    }

    pub fn media(self) -> MediaType {
        let essence = match self {
            Self::Stylesheet => "text/css",
            Self::Script => "text/javascript",
        };
        MediaType { essence, parameters: &[] }
    }

    /// The value of `Content-Type`.
    pub fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Stylesheet => "text/css; charset=utf-8",
            Self::Script => "text/javascript; charset=utf-8",
        })
    }
}
