//! Response bodies: whole, or a stream of chunks.
//!
//! The producer of the chunks is unknown here, and nothing is buffered: a producer is polled for each chunk
//! (backpressure). A stream may fail in the middle, and then reports the reason. The server closes the
//! connection, so that the client cannot mistake the truncated body for the whole.

use std::error::Error;
use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;

/// A response body.
#[derive(Debug)]
pub enum ResponseBody {
    Whole(Bytes),
    Stream(BodyStream),
}

impl ResponseBody {
    /// The whole body, if it is not a stream.
    pub fn whole(&self) -> Option<&Bytes> {
        match self {
            Self::Whole(bytes) => Some(bytes),
            Self::Stream(_) => None,
        }
    }

    /// The number of its bytes in memory.
    pub fn buffered_bytes(&self) -> usize {
        self.whole().map_or(0, Bytes::len)
    }
}

impl From<Vec<u8>> for ResponseBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Whole(bytes.into())
    }
}

/// A source of body chunks. Dropped before its end, it releases all that it holds.
pub trait BodyChunks {
    /// The next chunk, which is not empty; `None` at the end.
    fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamAborted>>>;
}

/// A body in chunks.
pub struct BodyStream(Box<dyn BodyChunks + Send>);

impl BodyStream {
    pub fn new(pieces: impl BodyChunks + Send + 'static) -> Self {
        Self(Box::new(pieces))
    }
}

impl BodyChunks for BodyStream {
    fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamAborted>>> {
        self.0.poll_chunk(context)
    }
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyStream")
    }
}

/// Why a stream was aborted; for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamAborted(pub String);

impl fmt::Display for StreamAborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for StreamAborted {}
