//! Streaming export of a whole collection from one snapshot.
//!
//! The caller passes the encoder of an item; this module chooses the statements that read the items, once for
//! both backends. Each backend has its own file that runs them.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::intent::ListQuery;
use crate::plan::Collection;
use crate::store::change_log;
use crate::store::context::{ScopedStatements, StoreContext};
use crate::store::driver::Driver;
use crate::store::error::{InternalError, StoreError};
use crate::store::existence::require_parents;
use crate::store::list_page::{list_statements, located_statements};
use crate::store::sql::condition::row_conditions::SelectedBy;
use crate::store::sql::list::ListStatements;
use crate::store::statement::{Columns, Statement};
use crate::value::{Id, Item};

/// The size of a full chunk.
pub const CHUNK_BYTES: usize = 64 << 10;

/// Encodes one item.
pub type ItemEncoder = dyn Fn(&mut Vec<u8>, &Item) + Send;

/// Encodes one item with the ids of its ancestors, the top-level one first.
pub type LocatedItemEncoder = dyn Fn(&mut Vec<u8>, &Item, &[Id]) + Send;

/// How items are encoded: by their values alone, or with their paths.
pub enum ExportEncoder {
    Item(Box<ItemEncoder>),
    LocatedItem(Box<LocatedItemEncoder>),
}

/// The collection to read, and how to encode its items.
pub struct ExportRequest {
    pub collection: Collection,
    pub list: Arc<ListQuery>,
    /// Bytes that precede the first item.
    pub head: Vec<u8>,
    pub write: ExportEncoder,
    /// Where to record the position of the snapshot in the change log, if that is wanted.
    pub start: Option<Arc<OnceLock<SnapshotStart>>>,
}

/// The position of a snapshot in the change log.
#[derive(Debug)]
pub struct SnapshotStart {
    /// The snapshot has every change up to this number.
    pub position: i64,
    /// The numbers above it whose changes the snapshot has too, in order. On PostgreSQL transactions with smaller
    /// numbers may have been in flight, so there is no single number up to which the snapshot has everything.
    pub included: Vec<i64>,
}

/// The maximum number of changes above the low-water mark that a snapshot may have.
const INCLUDED_MAX: usize = 100_000;

impl std::fmt::Debug for ExportRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExportRequest")
            .field("collection", &self.collection)
            .finish_non_exhaustive()
    }
}

impl ExportRequest {
    /// A missing parent (404) takes precedence. This read also opens the snapshot for the rest.
    pub async fn require_parents<D: Driver>(
        &self,
        driver: &mut D,
        context: &StoreContext,
    ) -> Result<(), StoreError> {
        require_parents(driver, context, &self.collection).await
    }

    /// Reads the low-water mark, before a snapshot that may have changes above it.
    pub async fn read_low_watermark<D: Driver>(
        &self,
        driver: &mut D,
    ) -> Result<Option<i64>, StoreError> {
        match self.start {
            Some(_) => Ok(Some(change_log::read_marks(driver).await?.low_watermark)),
            None => Ok(None),
        }
    }

    /// Records the position of the snapshot, as the first read of it. `low_watermark` is the one from before; if
    /// there is a single writer, that of the snapshot itself.
    pub async fn record_start<D: Driver>(
        &self,
        driver: &mut D,
        low_watermark: Option<i64>,
    ) -> Result<(), StoreError> {
        let Some(start) = &self.start else { return Ok(()) };
        let position = match low_watermark {
            Some(low_watermark) => low_watermark,
            None => change_log::read_marks(driver).await?.low_watermark,
        };
        let included = change_log::read_numbers_after(driver, position, INCLUDED_MAX + 1).await?;
        if included.len() > INCLUDED_MAX {
            return Err(StoreError::Busy);
        }
        start.get_or_init(|| SnapshotStart { position, included });
        Ok(())
    }

    /// Whether the ancestors of each item have to be read with it.
    fn finds_ancestors(&self) -> bool {
        matches!(self.write, ExportEncoder::LocatedItem(_)) && self.collection.is_flat()
    }

    /// The statements that read the collection.
    pub fn statements<'a>(&'a self, context: &'a StoreContext) -> ExportStatements<'a> {
        let Self { collection, list, .. } = self;
        let by = SelectedBy::Condition;
        if self.finds_ancestors() {
            return ExportStatements::Filtered(located_statements(context, collection, list, by));
        }
        if list.is_whole_by_id() {
            let reached = context.scoped_statements(collection.resource, &collection.scope);
            let after = list.after.as_ref().map(|after| after.id);
            return ExportStatements::ById { reached, after, collection };
        }
        ExportStatements::Filtered(list_statements(context, collection, list, by))
    }
}

/// The statements of an export.
pub enum ExportStatements<'a> {
    ById { reached: ScopedStatements<'a>, after: Option<Id>, collection: &'a Collection },
    Filtered(ListStatements<'a>),
}

impl ExportStatements<'_> {
    /// The export is the concatenation of their rows, in this order.
    pub fn to_vec(&self) -> Vec<Statement<'_>> {
        match self {
            Self::ById { reached, after, collection } => {
                vec![reached.page(i64::MAX, *after, collection)]
            }
            Self::Filtered(listing) => {
                let sections = listing.sections().into_iter();
                sections.map(|section| listing.page(section, i64::MAX)).collect()
            }
        }
    }
}

/// Encoded items, collected into chunks.
#[derive(Debug)]
pub struct ChunkBuffer(Vec<u8>);

impl ChunkBuffer {
    /// Starts with the bytes of `head`, which is left empty.
    pub fn new(head: &mut Vec<u8>) -> Self {
        let mut out = Self::empty_chunk();
        out.append(head);
        Self(out)
    }

    fn empty_chunk() -> Vec<u8> {
        Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 8)
    }

    /// Encodes one item; returns its size in bytes.
    pub fn write_item(
        &mut self,
        export: &ExportRequest,
        context: &StoreContext,
        row: &dyn Columns,
    ) -> Result<usize, InternalError> {
        let ExportRequest { collection, write, .. } = export;
        let before = self.0.len();
        match write {
            ExportEncoder::LocatedItem(write) if export.finds_ancestors() => {
                let (item, ancestors) = context.read_located_item(collection.resource, row)?;
                write(&mut self.0, &item, &ancestors);
            }
            ExportEncoder::LocatedItem(write) => {
                let item = context.read_item(collection.resource, row)?;
                write(&mut self.0, &item, &collection.ancestors);
            }
            ExportEncoder::Item(write) => {
                write(&mut self.0, &context.read_item(collection.resource, row)?);
            }
        }
        Ok(self.0.len() - before)
    }

    /// The next chunk, if it is full.
    pub fn take_full_chunk(&mut self) -> Option<Bytes> {
        let is_enough = self.0.len() >= CHUNK_BYTES;
        is_enough.then(|| std::mem::replace(&mut self.0, Self::empty_chunk()).into())
    }

    /// The remaining bytes.
    pub fn into_last_chunk(self) -> Bytes {
        self.0.into()
    }
}
