//! A collection that is read whole, from one state of the data, and given out piece by piece.
//!
//! How an item is written is told from outside; which statement reads the items is said here, once for
//! every backend. Each backend has a file of its own that runs it.
//! The one surprising thing: what fits into one piece is given out as one, so that a small collection is
//! an answer like any other.

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

/// Writes one item.
pub type Scribe = dyn Fn(&mut Vec<u8>, &Item) + Send;

/// What is to be read, and how it is written.
pub struct Export {
    pub collection: Collection,
    pub list: Arc<List>,
    /// What comes before the first item.
    pub head: Vec<u8>,
    pub write: Box<Scribe>,
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export").field("collection", &self.collection).finish_non_exhaustive()
    }
}

/// What came of it: an end, or a beginning.
#[derive(Debug)]
pub enum Exported {
    Whole(Bytes),
    Begun(Bytes, Fetcher),
}

impl Exported {
    /// Waits until it is known whether there is something to send at all.
    pub(super) async fn begin(mut fetcher: Fetcher) -> Result<Self, StoreError> {
        Ok(match fetcher.first().await? {
            (first, true) => Self::Whole(first),
            (first, false) => Self::Begun(first, fetcher),
        })
    }
}

impl Export {
    /// 404 comes before everything else. It begins the state of the data that all the rest is read from.
    pub(super) async fn check<D: Driver>(
        &self,
        driver: &mut D,
        context: &Context,
    ) -> Result<(), StoreError> {
        transaction::require_parents(driver, context, &self.collection).await
    }

    /// Where its statements come from.
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
    /// All of it is what the first one reads, then the second, and so on.
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

/// An export that is counted, until it is dropped.
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

/// Items on their way to become pieces.
#[derive(Debug)]
pub(super) struct Press(Vec<u8>);

impl Press {
    /// What comes first is taken out of `head`.
    pub(super) fn new(head: &mut Vec<u8>) -> Self {
        let mut out = Self::room();
        out.append(head);
        Self(out)
    }

    fn room() -> Vec<u8> {
        Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 8)
    }

    /// Writes one item, and says how many bytes it has.
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

    /// A piece, if there is enough for one.
    pub(super) fn piece(&mut self) -> Option<Bytes> {
        let is_enough = self.0.len() >= PIECE_BYTES;
        is_enough.then(|| std::mem::replace(&mut self.0, Self::room()).into())
    }

    /// All that is left.
    pub(super) fn rest(self) -> Bytes {
        self.0.into()
    }
}
