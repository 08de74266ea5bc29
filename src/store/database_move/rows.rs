//! Rows of any table as values that do not depend on the engine, read in pages, and their checksum.

use sha2::{Digest as _, Sha256};

use crate::store::driver::Driver;
use crate::store::error::{InternalError, StatementError};
use crate::store::sql::database_move::{ColumnClass, MovedTable};
use crate::store::statement::{Bind, Columns, Statement};
use crate::store::table_scan::ScanPageSize;
use crate::value::{Id, Moment};

/// The value of one column of one row.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnValue {
    Null,
    Boolean(bool),
    Integer(i64),
    Real(f64),
    Text(Box<str>),
    Moment(Moment),
    Id(Id),
}

impl ColumnValue {
    fn read(row: &dyn Columns, at: usize, class: ColumnClass) -> Result<Self, InternalError> {
        let value = match class {
            ColumnClass::Text => row.text(at)?.map(|text| Self::Text(text.into())),
            ColumnClass::Integer => row.integer(at)?.map(Self::Integer),
            ColumnClass::Real => row.real(at)?.map(Self::Real),
            ColumnClass::Boolean => row.boolean(at)?.map(Self::Boolean),
            ColumnClass::Moment => row.moment(at)?.map(Self::Moment),
            ColumnClass::Id(kind) => row.id(at, kind)?.map(Self::Id),
        };
        Ok(value.unwrap_or(Self::Null))
    }

    pub fn bind(&self) -> Bind<'_> {
        match self {
            Self::Null => Bind::Null,
            Self::Boolean(boolean) => Bind::Boolean(*boolean),
            Self::Integer(number) => Bind::Integer(*number),
            Self::Real(number) => Bind::Real(*number),
            Self::Text(text) => Bind::Text(text),
            Self::Moment(moment) => Bind::Moment(*moment),
            Self::Id(id) => Bind::Id(*id),
        }
    }

    fn bytes(&self) -> usize {
        let text = match self {
            Self::Text(text) => text.len(),
            _ => 0,
        };
        text + size_of::<Self>()
    }
}

/// A row, in the order of the columns of its table.
pub type TableRow = Vec<ColumnValue>;

/// Reads a table in the order of its key, in pages of limited size.
#[derive(Debug)]
pub struct TableReader<'t> {
    table: &'t MovedTable,
    first: String,
    further: String,
    after: Option<ColumnValue>,
    page_size: ScanPageSize,
}

impl<'t> TableReader<'t> {
    pub fn new<D: Driver>(table: &'t MovedTable) -> Self {
        let (first, further) = (table.first_page(D::DIALECT), table.further_page(D::DIALECT));
        Self { table, first, further, after: None, page_size: ScanPageSize::default() }
    }

    /// The next rows; none after the last one.
    pub async fn next_page<D: Driver>(
        &mut self,
        driver: &mut D,
    ) -> Result<Vec<TableRow>, StatementError> {
        let limit = self.page_size.bind();
        let statement = match &self.after {
            None => Statement::new(&*self.first, vec![limit]),
            Some(key) => Statement::new(&*self.further, vec![limit, key.bind()]),
        };
        let table = self.table;
        let read = |_, row: &dyn Columns| read_row(table, row);
        let mut bytes = 0;
        let is_enough = |row: &TableRow| {
            bytes += row.iter().map(ColumnValue::bytes).sum::<usize>();
            bytes >= ScanPageSize::BYTES_MAX
        };
        let found = driver.query_all(std::slice::from_ref(&statement), read, is_enough).await?;
        let rows: Vec<TableRow> = found.into_iter().flatten().collect();
        self.page_size.adapt(rows.len(), bytes);
        if let Some(key) = rows.last().and_then(|row| row.first()) {
            self.after = Some(key.clone());
        }
        Ok(rows)
    }
}

/// The error of a value that is not of its class names the table, the row and the column.
fn read_row(table: &MovedTable, row: &dyn Columns) -> Result<TableRow, InternalError> {
    let mut values = TableRow::with_capacity(table.columns.len());
    for (at, column) in table.columns.iter().enumerate() {
        let value = ColumnValue::read(row, at, column.class).map_err(|InternalError(cause)| {
            let key = values.first().map_or(String::new(), |key| format!(" {key:?}"));
            InternalError(format!("{}{key}: {}: {cause}", table.label, column.name))
        })?;
        values.push(value);
    }
    Ok(values)
}

/// The number of rows and their checksum, in the order of the key.
#[derive(Debug, Default)]
pub struct RowDigest {
    pub rows: u64,
    hash: Sha256,
}

impl RowDigest {
    /// Each value is written with its class, and a text with its length, so that different rows are different bytes.
    pub fn add(&mut self, row: &TableRow) {
        self.rows += 1;
        for value in row {
            match value {
                ColumnValue::Null => self.hash.update([0]),
                ColumnValue::Boolean(boolean) => self.hash.update([1, u8::from(*boolean)]),
                ColumnValue::Integer(number) | ColumnValue::Id(Id::Integer(number)) => {
                    self.add_tagged(2, &number.to_be_bytes());
                }
                ColumnValue::Real(number) => self.add_tagged(3, &number.to_be_bytes()),
                ColumnValue::Text(text) => {
                    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
                    self.add_tagged(4, &length.to_be_bytes());
                    self.hash.update(text.as_bytes());
                }
                ColumnValue::Moment(moment) => {
                    self.add_tagged(5, &moment.micros().to_be_bytes());
                }
                ColumnValue::Id(Id::Uuid(uuid)) => self.add_tagged(6, uuid.as_bytes()),
            }
        }
    }

    fn add_tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.hash.update([tag]);
        self.hash.update(bytes);
    }

    pub fn checksum(self) -> [u8; 32] {
        self.hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum(rows: &[TableRow]) -> [u8; 32] {
        let mut digest = RowDigest::default();
        rows.iter().for_each(|row| digest.add(row));
        digest.checksum()
    }

    /// Rows that differ only in where a value ends, or in its class, have different checksums.
    #[test]
    fn row_digest_tells_values_classes_and_order_apart() {
        let text = |text: &str| ColumnValue::Text(text.into());
        let rows = [
            vec![vec![text("ab"), text("")]],
            vec![vec![text("a"), text("b")]],
            vec![vec![text(""), text("ab")]],
            vec![vec![text("b"), text("a")]],
            vec![vec![ColumnValue::Null]],
            vec![vec![ColumnValue::Boolean(false)]],
            vec![vec![ColumnValue::Integer(0)]],
            vec![vec![ColumnValue::Real(0.0)]],
            vec![vec![text("")]],
            vec![vec![ColumnValue::Moment(Moment::from_micros(0).unwrap())]],
            vec![],
        ];
        for (at, one) in rows.iter().enumerate() {
            for (other_at, other) in rows.iter().enumerate() {
                assert_eq!(checksum(one) == checksum(other), at == other_at, "{one:?} {other:?}");
            }
        }
    }
}
