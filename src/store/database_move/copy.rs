//! The copy itself, written once for all pairs of engines: inside a transaction of the source that no other session can
//! write to meanwhile, and one transaction of the target, which its caller commits.
//!
//! The rows are copied as values of their classes, so that ids, versions, times and the numbers of the change log stay.
//! Indexes and foreign keys are made after them, which is faster, and needs no order of the tables. Then every row of
//! the target is read again: the number of rows and the checksum of each table have to be those of the source.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::OrBug as _;
use crate::model::{Model, Resource};
use crate::store::change_log;
use crate::store::database_move::rows::{ColumnValue, RowDigest, TableReader};
use crate::store::driver::Driver;
use crate::store::error::{InternalError, OpenError, StatementError};
use crate::store::schema;
use crate::store::sql::columns::quote_name;
use crate::store::sql::database_move::{MovedTable, OWN_PREFIX, SYSTEM_VALUES};
use crate::store::statement::{Bind, Columns};
use crate::store::{integer_ids, links, present_parts, system_values, users};
use crate::value::{Id, IdKind};

/// Values of `nouns_system` that are about one database and not about its contents: the target has its own.
const VALUES_OF_DATABASE: [&str; 5] =
    ["format", "started_at", "database_id", users::STAMP_KEY, users::FIELDS_KEY];

/// Why nothing was moved.
#[derive(Debug)]
pub enum MoveError {
    /// The message is complete.
    Refused(String),
    Source(StatementError),
    Target(StatementError),
    /// The target did not confirm its commit, so that it is empty or complete.
    CommitUnknown(String),
}

impl From<OpenError> for MoveError {
    fn from(error: OpenError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl MoveError {
    /// A database that cannot be opened, and that another flag names than in all other commands.
    pub fn about_target(error: &OpenError) -> Self {
        Self::Refused(error.to_string().replace("--database", "--to"))
    }

    pub fn describe(&self, source: &str, target: &str) -> OpenError {
        OpenError::new(match self {
            Self::Refused(message) => message.clone(),
            Self::Source(failure) => format!(
                "cannot read {source} ({}); nothing was moved, and {target} is as it was",
                failure.message()
            ),
            Self::Target(StatementError::Storage(cause) | StatementError::Sync(cause)) => format!(
                "cannot write {target} ({cause}); nothing was moved: check that it can be reached and that its disk has \
                 space, and move again"
            ),
            Self::Target(failure) => {
                format!("cannot write {target} ({}); nothing was moved", failure.message())
            }
            Self::CommitUnknown(cause) => format!(
                "it is not known whether {target} is complete, because its commit was not confirmed ({cause}); move \
                 again: if it is complete, it is refused as not empty"
            ),
        })
    }
}

/// The tables that a refusal names.
const NAMED_TABLES_MAX: usize = 5;

/// The refusal of a target that holds tables.
pub fn not_empty_message(shown: &str, tables: &[String]) -> String {
    let (named, more) = tables.split_at(tables.len().min(NAMED_TABLES_MAX));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    let named = named.join(", ");
    format!("{shown} is not empty: it holds {named}{more}; name another --to")
}

/// The progress of a move, in rows.
#[derive(Debug, Clone, Copy)]
pub struct MoveProgress {
    pub copied: u64,
    /// Rows that were copied, and rows that were compared.
    pub done: u64,
    pub total: u64,
}

/// Reports progress.
pub type ReportMove<'a> = &'a mut dyn FnMut(MoveProgress);

/// What was moved.
#[derive(Debug)]
pub struct MoveSummary {
    /// The contents of each table, such as `orders`, and the number of rows.
    pub tables: Vec<(String, u64)>,
    /// Tables of the source that are not of nouns, and were not moved.
    pub other_tables: Vec<String>,
    /// All values of `nouns_system` that were moved.
    pub system_values: BTreeMap<String, String>,
}

/// A copied table, as the source has it.
struct CopiedTable {
    digest: RowDigest,
    /// The largest id, if ids are numbers.
    id_max: Option<i64>,
}

/// Copies everything from the source, and compares it. Neither transaction is ended.
pub async fn run<S: Driver, T: Driver>(
    source: &mut S,
    target: &mut T,
    report: ReportMove<'_>,
) -> Result<MoveSummary, MoveError> {
    let model = stored_model(source).await?;
    let tables = MovedTable::all(&model);
    lock_tables(source, &tables).await.map_err(MoveError::Source)?;
    let other_tables = check_columns(source, (&model, &tables)).await?;
    let values = read_values(source).await.map_err(MoveError::Source)?;
    let last_change = change_log::read_marks(source).await.map_err(MoveError::Source)?.reached;
    let mut counts = Vec::with_capacity(tables.len());
    for table in &tables {
        counts.push(count_rows(source, table).await.map_err(MoveError::Source)?);
    }
    let total = counts.iter().sum::<u64>().saturating_mul(2);
    let mut work = MoveWork { progress: MoveProgress { copied: 0, done: 0, total }, report };

    crate::fault::point("move");
    schema::create_tables(target, &model).await.map_err(MoveError::Target)?;
    for resource in resources_with_numbers(&model) {
        let last = integer_ids::read_last(source, resource).await.map_err(MoveError::Source)?;
        if let Some(last) = last {
            integer_ids::raise_last(target, resource, last).await.map_err(MoveError::Target)?;
        }
    }
    let mut copied = Vec::with_capacity(tables.len());
    for (table, count) in tables.iter().zip(&counts) {
        crate::fault::point("move");
        let one = work.copy_table(source, target, table).await?;
        if one.digest.rows != *count {
            return Err(unreadable_table(table, *count, one.digest.rows));
        }
        copied.push(one);
    }
    let finished = finish(target, (&model, &copied), (&values, last_change)).await;
    finished.map_err(MoveError::Target)?;
    crate::fault::point("move");
    let mut summary = Vec::with_capacity(tables.len());
    for (table, one) in tables.iter().zip(copied) {
        let rows = one.digest.rows;
        work.compare_table(target, table, one.digest).await?;
        summary.push((table.label.clone(), rows));
    }
    if read_values(target).await.map_err(MoveError::Target)? != values {
        return Err(MoveError::Refused(
            "the copied settings of the server differ from those of the source; nothing was moved"
                .to_owned(),
        ));
    }
    crate::fault::point("move");
    Ok(MoveSummary { tables: summary, other_tables, system_values: values })
}

/// The model that the tables of the source have.
async fn stored_model<S: Driver>(source: &mut S) -> Result<Model, MoveError> {
    let values = read_values(source).await.map_err(MoveError::Source)?;
    if values.contains_key(schema::UNFINISHED) {
        let message = "a start with another model has not built all of its indexes yet; start a server with that model \
                       once, stop it, and move again";
        return Err(MoveError::Refused(message.to_owned()));
    }
    let shape = values.get("model").ok_or_else(|| {
        let cause = "the database does not record its model".to_owned();
        MoveError::Source(StatementError::Internal(InternalError(cause)))
    })?;
    let mut model = schema::read_stored(shape).map_err(MoveError::Source)?;
    // The shape has no users: their declared fields are recorded apart from it.
    let fields = system_values::read(source, users::FIELDS_KEY).await.map_err(MoveError::Source)?;
    let fields = users::stored_fields(&fields.unwrap_or_default()).map_err(MoveError::Source)?;
    model.resources.get_mut(model.users.0).or_bug("a model has users").fields.extend(fields);
    Ok(model)
}

/// Keeps commands of the operator from writing what would not be moved.
async fn lock_tables<S: Driver>(
    source: &mut S,
    tables: &[MovedTable],
) -> Result<(), StatementError> {
    let Some(lock) = S::DIALECT.lock_for_reading else { return Ok(()) };
    for table in tables {
        source.execute(&lock(&quote_name(&table.name)), &[]).await?;
    }
    source.execute(&lock("nouns_system"), &[]).await.map(drop)
}

/// Refuses a source that has other columns than its model says: their values would be lost. Returns the tables that are
/// not of nouns.
async fn check_columns<S: Driver>(
    source: &mut S,
    (model, tables): (&Model, &[MovedTable]),
) -> Result<Vec<String>, MoveError> {
    let found = present_parts::read_columns(source).await.map_err(MoveError::Source)?;
    for table in tables {
        let has = |column: &str| found.contains(&(table.name.clone(), column.to_owned()));
        if let Some(column) = table.columns.iter().find(|column| !has(&column.name)) {
            return Err(MoveError::Refused(format!(
                "the table {} has no column {}: the database is of another version of nouns; start a server of this \
                 one once (nouns serve), stop it, and move again",
                table.name, column.name
            )));
        }
    }
    let mut others = BTreeSet::new();
    // They follow from the lists of references, and the move makes them again.
    let links: Vec<String> = links::link_tables(model).collect();
    for (name, column) in found.into_iter().filter(|(name, _)| !links.contains(name)) {
        match tables.iter().find(|table| table.name == name) {
            Some(table) if table.columns.iter().all(|known| known.name != column) => {
                return Err(MoveError::Refused(format!(
                    "the table {name} has a column {column} that its model does not have, and whose values would be lost; \
                     drop it, or move it to a table of its own, and move again"
                )));
            }
            None if !name.starts_with(OWN_PREFIX) => drop(others.insert(name)),
            Some(_) | None => {}
        }
    }
    Ok(others.into_iter().collect())
}

/// The values of `nouns_system` that are moved.
async fn read_values<D: Driver>(
    driver: &mut D,
) -> Result<BTreeMap<String, String>, StatementError> {
    let read = |row: &dyn Columns| Ok((row.required_text(0)?, row.required_text(1)?));
    let values = driver.query(SYSTEM_VALUES, &[], read).await?.into_iter();
    Ok(values.filter(|(name, _)| !VALUES_OF_DATABASE.contains(&&**name)).collect())
}

async fn count_rows<D: Driver>(driver: &mut D, table: &MovedTable) -> Result<u64, StatementError> {
    let count = driver.query_one(&table.count(), &[], |row| row.required_integer(0)).await?;
    Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
}

fn unreadable_table(table: &MovedTable, count: u64, read: u64) -> MoveError {
    MoveError::Refused(format!(
        "{}: the source counts {count} rows, and {read} can be read: it may be damaged; nothing was moved: check it \
         with: nouns doctor",
        table.label
    ))
}

fn resources_with_numbers(model: &Model) -> impl Iterator<Item = &Resource> {
    model.resources.iter().filter(|resource| resource.id == IdKind::Integer)
}

/// The reading, copying and comparing of tables, with its progress.
struct MoveWork<'a> {
    progress: MoveProgress,
    report: ReportMove<'a>,
}

impl MoveWork<'_> {
    fn advance(&mut self, copied: usize, compared: usize) {
        let [copied, compared] =
            [copied, compared].map(|rows| u64::try_from(rows).unwrap_or(u64::MAX));
        self.progress.copied += copied;
        self.progress.done += copied + compared;
        (self.report)(self.progress);
    }

    async fn copy_table<S: Driver, T: Driver>(
        &mut self,
        source: &mut S,
        target: &mut T,
        table: &MovedTable,
    ) -> Result<CopiedTable, MoveError> {
        let (mut reader, insert) = (TableReader::new::<S>(table), table.insert(T::DIALECT));
        let mut copied = CopiedTable { digest: RowDigest::default(), id_max: None };
        loop {
            let rows = reader.next_page(source).await.map_err(MoveError::Source)?;
            for row in &rows {
                copied.digest.add(row);
                if let Some(ColumnValue::Id(Id::Integer(id))) = row.first() {
                    copied.id_max = copied.id_max.max(Some(*id));
                }
            }
            let binds: Vec<Vec<Bind<'_>>> =
                rows.iter().map(|row| row.iter().map(ColumnValue::bind).collect()).collect();
            if binds.is_empty() {
                return Ok(copied);
            }
            target.insert_rows(&insert, &binds).await.map_err(MoveError::Target)?;
            self.advance(rows.len(), 0);
        }
    }

    /// Reads the table of the target, and compares it with what was read from the source.
    async fn compare_table<T: Driver>(
        &mut self,
        target: &mut T,
        table: &MovedTable,
        expected: RowDigest,
    ) -> Result<(), MoveError> {
        let mut reader = TableReader::new::<T>(table);
        let mut found = RowDigest::default();
        loop {
            let rows = reader.next_page(target).await.map_err(MoveError::Target)?;
            if rows.is_empty() {
                break;
            }
            rows.iter().for_each(|row| found.add(row));
            self.advance(0, rows.len());
        }
        let counted = count_rows(target, table).await.map_err(MoveError::Target)?;
        let (rows, read) = (expected.rows, found.rows);
        if [counted, read] != [rows, rows] {
            return Err(MoveError::Refused(format!(
                "{}: expected {rows} rows in the target, got {read}; nothing was moved",
                table.label
            )));
        }
        match expected.checksum() == found.checksum() {
            true => Ok(()),
            false => Err(MoveError::Refused(format!(
                "{}: the checksum of the {rows} rows in the target differs from that of the source; nothing was moved",
                table.label
            ))),
        }
    }
}

/// Makes what follows the rows: numbers, values, indexes and foreign keys.
async fn finish<T: Driver>(
    target: &mut T,
    (model, copied): (&Model, &[CopiedTable]),
    (values, last_change): (&BTreeMap<String, String>, i64),
) -> Result<(), StatementError> {
    for (resource, CopiedTable { id_max, .. }) in model.resources.iter().zip(copied) {
        if let Some(id) = id_max {
            integer_ids::raise_last(target, resource, *id).await?;
        }
    }
    if let (Some(set), true) = (T::DIALECT.set_last_change, last_change > 0) {
        target.query(set, &[Bind::Integer(last_change)], |_| Ok(())).await?;
    }
    for (name, value) in values {
        system_values::write(target, name, value).await?;
    }
    crate::fault::point("move");
    schema::create_indexes(target, model).await
}

#[cfg(test)]
mod tests;
