//! HTTP/1 message framing on the byte stream: where each head and each body ends.
//!
//! hyper parses the messages. This module decides how many bytes hyper gets from one read, keeps the
//! head that is being parsed, and refuses the one thing that hyper's chunked decoder wrongly accepts.
//! The framing of a body is not parsed a second time. A read never crosses the end of a head, so hyper has
//! consumed every byte it got when it hands over a request, and the body that follows has exactly the length
//! that hyper found.

use std::io::{self, BufRead};

use crate::fault::OrBug;

/// A kept head with more capacity than this is freed and not reused.
const HEAD_CAPACITY_MAX: usize = 2 << 10;

/// How hyper delimits the body of the request that it has just parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyLength {
    Known(u64),
    Chunked,
}

/// The position in the messages of one connection.
#[derive(Debug, Default)]
pub(super) struct MessageFraming {
    state: FramingState,
    /// The bytes of the current head so far: hyper discards a head that it refuses after parsing.
    head: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum FramingState {
    Head(HeadState),
    Body(u64),
    Chunked(ChunkState),
}

impl Default for FramingState {
    fn default() -> Self {
        Self::Head(HeadState::InLine)
    }
}

/// RFC 9112 §2.2: lines end with CR LF or LF, and an empty one ends the head.
#[derive(Debug, Clone, Copy)]
enum HeadState {
    InLine,
    LineStart,
    LineStartCr,
}

/// The position in a chunked body (RFC 9112 §7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    SizeStart,
    Size(u64),
    Extension(u64),
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

impl MessageFraming {
    /// Follows bytes that have arrived. Returns how many of them hyper may get now: at least one, and none
    /// beyond the end of the current head or body.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.state {
            FramingState::Head(state) => {
                let passed = follow_head(state, bytes).unwrap_or(bytes.len());
                self.head.extend_from_slice(bytes.split_at(passed).0);
                Ok(passed)
            }
            FramingState::Body(rest) => {
                let passed = bytes.len().min(usize::try_from(*rest).unwrap_or(usize::MAX));
                *rest -= passed as u64;
                if *rest == 0 {
                    self.state = FramingState::default();
                }
                Ok(passed)
            }
            FramingState::Chunked(state) => {
                let passed = follow_chunks(state, bytes)?;
                if *state == ChunkState::End {
                    self.state = FramingState::default();
                }
                Ok(passed)
            }
        }
    }

    /// Follows bytes of a head that hyper does not get yet. True when they contain the end of the head.
    pub(super) fn ends_head(&mut self, bytes: &[u8]) -> bool {
        match &mut self.state {
            FramingState::Head(state) => follow_head(state, bytes).is_some(),
            FramingState::Body(_) | FramingState::Chunked(_) => false,
        }
    }

    /// Whether the last body has ended, and the next head may have begun.
    pub(super) fn is_in_head(&self) -> bool {
        matches!(self.state, FramingState::Head(_))
    }

    /// Begins the body, after hyper has parsed the head.
    pub(super) fn begin_body(&mut self, length: BodyLength) {
        self.state = match length {
            BodyLength::Known(0) => FramingState::default(),
            BodyLength::Known(bytes) => FramingState::Body(bytes),
            BodyLength::Chunked => FramingState::Chunked(ChunkState::SizeStart),
        };
        self.head.clear();
        if self.head.capacity() > HEAD_CAPACITY_MAX {
            self.head = Vec::new();
        }
    }

    /// Restarts the head, which will be read again from its first byte.
    pub(super) fn restart_head(&mut self) {
        *self = Self::default();
    }

    /// The current head as far as hyper has received it; the connection is ending.
    pub(super) fn take_head(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.head)
    }

    /// Whether the request target has a fragment. The parser of URIs drops it, so hyper's request does
    /// not show it.
    pub(super) fn has_fragment(&self) -> bool {
        let mut lines = self.head.split(|byte| *byte == b'\n');
        let line = lines.find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
        line.split(|byte| *byte == b' ').nth(1).is_some_and(|target| target.contains(&b'#'))
    }
}

/// Advances to the next empty line, where every head ends. Empty lines before a request line (RFC 9112 §2.2)
/// count too; hyper then asks for more.
fn follow_head(state: &mut HeadState, bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match (*state, byte) {
            (HeadState::InLine, _) => {
                let mut rest = bytes.split_at(at).1;
                at += rest.skip_until(b'\n').or_bug("memory can be read");
                if bytes.get(at - 1) == Some(&b'\n') {
                    *state = HeadState::LineStart;
                }
                continue;
            }
            (HeadState::LineStart | HeadState::LineStartCr, b'\n') => {
                *state = HeadState::InLine;
                return Some(at + 1);
            }
            (HeadState::LineStart, b'\r') => *state = HeadState::LineStartCr,
            (HeadState::LineStart | HeadState::LineStartCr, _) => *state = HeadState::InLine,
        }
        at += 1;
    }
    None
}

/// Advances to the end of the body. hyper treats a bare LF in the trailer section as part of the line, and
/// all that follows as more of the section; other parsers of the stream may see the end of the message there,
/// so a bare LF is refused: RFC 9112 §11.2.
fn follow_chunks(state: &mut ChunkState, bytes: &[u8]) -> io::Result<usize> {
    use ChunkState as S;
    let mut at = 0;
    while let (Some(&byte), true) = (bytes.get(at), *state != S::End) {
        if let S::Data(rest) = *state {
            let here = bytes.len() - at;
            let passed = here.min(usize::try_from(rest).unwrap_or(usize::MAX));
            at += passed;
            *state = match rest - passed as u64 {
                0 => S::DataCr,
                rest => S::Data(rest),
            };
            continue;
        }
        at += 1;
        let digit = char::from(byte).to_digit(16).map(u64::from);
        *state = match (*state, byte, digit) {
            (S::SizeStart, _, Some(digit)) => S::Size(digit),
            (S::Size(size), _, Some(digit)) => {
                let size = size.checked_mul(16).ok_or_else(|| malformed("chunk size"))?;
                S::Size(size + digit)
            }
            (S::Size(size) | S::Extension(size), b'\r', _) => S::SizeLf(size),
            (S::Size(size), b' ' | b'\t' | b';', _) => S::Extension(size),
            (S::Extension(_), b'\n', _) => return Err(malformed("chunk extension")),
            (S::Extension(size), ..) => S::Extension(size),
            (S::SizeLf(0), b'\n', _) => S::TrailerStart,
            (S::SizeLf(size), b'\n', _) => S::Data(size),
            (S::DataCr, b'\r', _) => S::DataLf,
            (S::DataLf, b'\n', _) => S::SizeStart,
            (S::TrailerStart, b'\r', _) => S::EndLf,
            (S::Trailer, b'\r', _) => S::TrailerLf,
            (S::TrailerStart | S::Trailer, b'\n', _) => return Err(malformed("trailer section")),
            (S::TrailerStart | S::Trailer, ..) => S::Trailer,
            (S::TrailerLf, b'\n', _) => S::TrailerStart,
            (S::EndLf, b'\n', _) => S::End,
            _ => return Err(malformed("chunk")),
        };
    }
    Ok(at)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    /// The pieces that hyper gets, with a body of this length behind each head.
    fn pieces(text: &str, size: usize, length: BodyLength) -> io::Result<Vec<String>> {
        let mut framing = MessageFraming::default();
        let (mut pieces, mut piece) = (Vec::new(), String::new());
        for read in text.as_bytes().chunks(size) {
            let mut rest = read;
            while !rest.is_empty() {
                let was_in_head = matches!(framing.state, FramingState::Head(_));
                let passed = framing.follow(rest)?;
                assert!(passed > 0 && passed <= rest.len());
                let (now, later) = rest.split_at(passed);
                piece.push_str(std::str::from_utf8(now).unwrap());
                rest = later;
                let is_whole = if was_in_head {
                    piece.ends_with("\n\r\n") || piece.ends_with("\n\n")
                } else {
                    matches!(framing.state, FramingState::Head(_))
                };
                if is_whole {
                    if was_in_head {
                        assert_eq!(framing.take_head(), piece.as_bytes());
                        framing.begin_body(length);
                    }
                    pieces.push(std::mem::take(&mut piece));
                }
            }
        }
        assert!(piece.is_empty(), "{piece:?} is left");
        Ok(pieces)
    }

    #[test]
    fn framing_reads_end_with_each_head_and_body_however_split() {
        let with_lf = GET.replace("\r\n", "\n");
        let chunked = "3\r\na\nb\r\n00A ;x=\"y\"\r\n0\r\n\r\n0\r\n\r\n\r\n0\r\nA: b\r\nC:\r\n\r\n";
        for (body, length) in [
            ("", BodyLength::Known(0)),
            ("\r\n\r\nG", BodyLength::Known(5)),
            (chunked, BodyLength::Chunked),
            ("0\r\n\r\n", BodyLength::Chunked),
        ] {
            let text = [GET, body, &with_lf, body, GET, body].concat();
            let expected: Vec<&str> = [GET, body, &with_lf, body, GET, body]
                .into_iter()
                .filter(|p| !p.is_empty())
                .collect();
            for size in 1..=text.len() {
                assert_eq!(pieces(&text, size, length).unwrap(), expected, "{size}");
            }
        }
    }

    #[test]
    fn framing_malformed_chunks_are_refused_however_split() {
        for body in [
            "0\r\nA: b\n\n",
            "0\r\nA: b\n\r\n",
            "0\r\nA: b\r\n\n",
            "0\r\n\n",
            "0\r\n\rx",
            "0\r\nA: b\rx",
            "0\n",
            "0;a\n",
            "\r\n",
            "g\r\n",
            "fffffffffffffffff\r\n",
            "1\r\nab",
            "1\r\na\rb",
        ] {
            let text = [GET, body, GET].concat();
            for size in 1..=text.len() {
                let refused = pieces(&text, size, BodyLength::Chunked);
                assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidData, "{body:?}");
            }
        }
    }

    #[test]
    fn framing_fragment_is_found_in_the_target_only() {
        for (head, expected) in [
            ("GET /#a HTTP/1.1\r\nX: y\r\n\r\n", true),
            ("\r\nGET http://a/?b#c HTTP/1.1\r\n\r\n", true),
            ("G#T / HTTP/1.1\r\nX: /#\r\n\r\n", false),
            ("GET /%23 HTTP/1.1\r\n\r\n", false),
        ] {
            let mut framing = MessageFraming::default();
            for byte in head.as_bytes() {
                assert_eq!(framing.follow(&[*byte]).unwrap(), 1);
            }
            assert_eq!(framing.has_fragment(), expected, "{head:?}");
        }
    }
}
