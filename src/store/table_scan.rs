//! Table scan: all items of a resource, under all parents, in the order of their ids.
//!
//! The rows are read in pages of limited size (keyset pagination), so that memory stays constant. The caller has
//! begun the transaction whose snapshot they are read from.

use std::ops::ControlFlow;
use std::slice;

use crate::fault::OrBug as _;
use crate::model::ResourceIndex;
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::StoreError;
use crate::store::sql::transfer::{table_page, table_page_after};
use crate::store::statement::{Bind, Columns, Statement};
use crate::value::Item;

/// The rows of the first page, and the maximum of any page.
const PAGE_ROWS_FIRST: usize = 64;
const PAGE_ROWS_MAX: usize = 2_000;
/// The size of an item without its values.
const ITEM_BYTES: usize = 128;

/// The number of rows of the next page, by the size of those before.
#[derive(Debug)]
pub struct ScanPageSize {
    rows: usize,
}

impl Default for ScanPageSize {
    fn default() -> Self {
        Self { rows: PAGE_ROWS_FIRST }
    }
}

impl ScanPageSize {
    /// A page ends with the row that exceeds this size.
    pub const BYTES_MAX: usize = 1 << 20;

    /// The limit of a statement.
    pub fn bind(&self) -> Bind<'static> {
        Bind::Integer(i64::try_from(self.rows).unwrap_or(i64::MAX))
    }

    /// Aims at half of the limit, by the size of the last page.
    pub fn adapt(&mut self, rows: usize, bytes: usize) {
        let wanted = Self::BYTES_MAX / 2 * rows / bytes.max(1);
        self.rows = wanted.clamp(1, PAGE_ROWS_MAX);
    }
}

/// Reads all items, until `with` breaks.
pub async fn scan<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    resource: ResourceIndex,
    with: &mut dyn FnMut(&Item) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let scanned = context.model.resource(resource);
    let first = table_page(scanned, D::DIALECT);
    let further = table_page_after(scanned, D::DIALECT);
    let (mut after, mut page_size) = (None, ScanPageSize::default());
    loop {
        let limit = page_size.bind();
        let statement = match after {
            None => Statement::new(&*first, vec![limit]),
            Some(id) => Statement::new(&*further, vec![limit, Bind::Id(id)]),
        };
        let mut bytes = 0;
        let is_enough = |item: &Item| {
            bytes += item.approximate_bytes() + ITEM_BYTES;
            bytes >= ScanPageSize::BYTES_MAX
        };
        let read = |_, row: &dyn Columns| context.read_item(resource, row);
        let pages = driver.query_all(slice::from_ref(&statement), read, is_enough).await?;
        let items = pages.into_iter().next().or_bug("a result for each statement");
        let Some(last) = items.last() else { return Ok(()) };
        after = Some(last.id);
        if items.iter().any(|item| with(item).is_break()) {
            return Ok(());
        }
        page_size.adapt(items.len(), bytes);
    }
}
