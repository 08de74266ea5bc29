//! Streaming export of a whole collection from one snapshot.
//!
//! The caller passes the encoder of an item; this module chooses the statements that read the items, once for
//! both backends. Each backend has its own file that runs them.
//! The one surprising thing: a collection that fits into one chunk is returned whole, so that a small
//! collection gets an ordinary response.

use std::sync::Arc;

use bytes::Bytes;

use super::driver::{Columns, Driver, Stroke};
use super::pipe::{Fetcher, PIECE_BYTES};
use super::reached::Reached;
use super::rows::read_item;
use super::sql::Listing;
use super::transaction::{self, Context};
use super::{Broken, StoreError};
use crate::intent::List;
use crate::metrics::Metrics;
use crate::plan::Collection;
use crate::value::{Id, Item};

/// Encodes one item.
pub type Scribe = dyn Fn(&mut Vec<u8>, &Item) + Send;

/// The collection to read, and how to encode its items.
pub struct Export {
    pub collection: Collection,
    pub list: Arc<List>,
    /// Bytes that precede the first item.
    pub head: Vec<u8>,
    pub write: Box<Scribe>,
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export").field("collection", &self.collection).finish_non_exhaustive()
    }
}

/// A complete body, or the first chunk of a streaming response.
#[derive(Debug)]
pub enum Exported {
    Whole(Bytes),
    Begun(Bytes, Fetcher),
}

impl Exported {
    /// Waits for the first chunk, so that an early failure is still an error response.
    pub(super) async fn begin(mut fetcher: Fetcher) -> Result<Self, StoreError> {
        Ok(match fetcher.first().await? {
            (first, true) => Self::Whole(first),
            (first, false) => Self::Begun(first, fetcher),
        })
    }
}

impl Export {
    /// A missing parent (404) takes precedence. This read also opens the snapshot for the rest.
    pub(super) async fn check<D: Driver>(
        &self,
        driver: &mut D,
        context: &Context,
    ) -> Result<(), StoreError> {
        transaction::require_parents(driver, context, &self.collection).await
    }

    /// The statements that read the collection.
    pub(super) fn source<'a>(&'a self, context: &'a Context) -> Source<'a> {
        let Self { collection, list, .. } = self;
        if list.is_plain() {
            let reached = context.reached(collection.resource, &collection.reach);
            let after = list.after.as_ref().map(|after| after.id);
            return Source::Plain { reached, after, ancestors: &collection.ancestors };
        }
        Source::Listing(transaction::listing(context, collection, list))
    }
}

/// The statements of an export.
pub(super) enum Source<'a> {
    Plain { reached: Reached<'a>, after: Option<Id>, ancestors: &'a [Id] },
    Listing(Listing<'a>),
}

impl Source<'_> {
    /// The export is the concatenation of their rows, in this order.
    pub(super) fn strokes(&self) -> Vec<Stroke<'_>> {
        match self {
            Self::Plain { reached, after, ancestors } => {
                vec![reached.page(i64::MAX, *after, ancestors)]
            }
            Self::Listing(listing) => {
                let sections = listing.sections().into_iter();
                sections.map(|section| listing.page(section, i64::MAX)).collect()
            }
        }
    }
}

/// Counts an export in the metrics until it is dropped.
#[derive(Debug)]
pub(super) struct Counted(Arc<Metrics>);

impl Counted {
    pub(super) fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.exports.raise();
        Self(Arc::clone(metrics))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.exports.lower();
    }
}

/// Encoded items, collected into chunks.
#[derive(Debug)]
pub(super) struct Press(Vec<u8>);

impl Press {
    /// Starts with the bytes of `head`, which is left empty.
    pub(super) fn new(head: &mut Vec<u8>) -> Self {
        let mut out = Self::room();
        out.append(head);
        Self(out)
    }

    fn room() -> Vec<u8> {
        Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 8)
    }

    /// Encodes one item; returns its size in bytes.
    pub(super) fn write(
        &mut self,
        export: &Export,
        context: &Context,
        row: &dyn Columns,
    ) -> Result<usize, Broken> {
        let resource = context.model.resource(export.collection.resource);
        let item = read_item(&context.model, resource, row, &context.damaged_items)?;
        let before = self.0.len();
        (export.write)(&mut self.0, &item);
        Ok(self.0.len() - before)
    }

    /// The next chunk, if it is full.
    pub(super) fn piece(&mut self) -> Option<Bytes> {
        let is_enough = self.0.len() >= PIECE_BYTES;
        is_enough.then(|| std::mem::replace(&mut self.0, Self::room()).into())
    }

    /// The remaining bytes.
    pub(super) fn rest(self) -> Bytes {
        self.0.into()
    }
}
