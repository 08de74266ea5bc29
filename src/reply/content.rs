//! The body of an answer: whole, or pieces that come one after another.
//!
//! Who makes the pieces is not known here, and nothing is kept: whoever makes them waits until they are
//! asked for.
//! The one surprising thing: a flow may end in the middle, and then it says why. The connection is cut, so
//! that the client cannot take a part for the whole.

use std::error::Error;
use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;

/// The body of an answer.
#[derive(Debug)]
pub enum Content {
    Whole(Bytes),
    Flow(Flow),
}

impl Content {
    /// All of it, if it is known.
    pub fn whole(&self) -> Option<&Bytes> {
        match self {
            Self::Whole(bytes) => Some(bytes),
            Self::Flow(_) => None,
        }
    }

    /// Bytes that are kept for it.
    pub fn held_bytes(&self) -> usize {
        self.whole().map_or(0, Bytes::len)
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Whole(bytes.into())
    }
}

/// Something that makes the pieces of a body. Dropped before its end, it lets go of all that it has.
pub trait Pieces {
    /// The next piece, which is not empty; `None` at the end.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>>;
}

/// A body in pieces.
pub struct Flow(Box<dyn Pieces + Send>);

impl Flow {
    pub fn new(pieces: impl Pieces + Send + 'static) -> Self {
        Self(Box::new(pieces))
    }
}

impl Pieces for Flow {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        self.0.poll_piece(context)
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flow")
    }
}

/// Why a body ends in the middle; for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut(pub String);

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Cut {}
