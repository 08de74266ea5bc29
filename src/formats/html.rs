//! The media types of pages and of the files that they load. `pages` makes a page from the JSON of the same
//! reply, so that this format writes none itself.

use http::HeaderValue;

use super::accept::MediaType;
use super::format::Format;
use super::json;

pub static FORMAT: Format = Format {
    media: MediaType { essence: "text/html", parameters: &[] },
    content_type: HeaderValue::from_static("text/html; charset=utf-8"),
    ..json::FORMAT
};

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
