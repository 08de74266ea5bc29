//! The file of an import: its rows, validated, in batches; the faults of its lines.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader};

use super::progress::{Progress, with_separators};
use super::record_reader::{Record, RecordContent, RecordPosition, RecordReader};
use super::transfer::FileFormat;
use crate::formats::ItemView;
use crate::formats::csv_input::{CsvTable, LineError};
use crate::intent::parse_item;
use crate::permit::Access;
use crate::plan::{ImportRow, ImportRules, UpsertKey, line_root, partial_values};
use crate::problem::{FaultCode, FieldFault};
use crate::store::{ImportSource, ImportedBatch};
use crate::value::{Id, truncate_for_message};

/// The rows of a batch, and their size in the file.
const BATCH_ROWS_MAX: usize = 1_000;
const BATCH_BYTES_MAX: u64 = 4 << 20;
const BUFFER_BYTES: usize = 64 << 10;

/// The faults that are listed; the others are counted.
const LISTED_MAX: usize = 100;

/// Faults of lines.
#[derive(Debug, Default)]
pub struct LineFaults {
    listed: Vec<String>,
    count: u64,
    /// Whether the lines behind the last fault were not examined.
    is_cut: bool,
}

impl LineFaults {
    /// Adds faults whose pointers begin with the number of a line.
    pub fn add(&mut self, faults: Vec<FieldFault>) {
        for FieldFault { pointer, detail, .. } in faults {
            self.count += 1;
            if self.listed.len() < LISTED_MAX {
                let place = pointer.strip_prefix('/').unwrap_or(&pointer);
                let place = match place.split_once('/') {
                    Some((line, field)) => format!("line {line}: {}", printable(field)),
                    None => format!("line {place}"),
                };
                self.listed.push(format!("{place}: {detail}"));
            }
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether more faults would only be counted.
    pub fn is_full(&self) -> bool {
        self.listed.len() >= LISTED_MAX
    }

    /// A line for each fault, and what is not listed.
    pub fn lines(&self) -> String {
        let mut text: String = self.listed.iter().map(|line| format!("\n  {line}")).collect();
        let listed = u64::try_from(self.listed.len()).unwrap_or(u64::MAX);
        if self.count > listed {
            text.push_str(&format!("\n  and {} more", with_separators(self.count - listed)));
        }
        if self.is_cut {
            text.push_str("\n  the lines after it were not examined");
        }
        text
    }
}

/// The name of a member as a terminal can show it.
fn printable(name: &str) -> String {
    let name = truncate_for_message(name);
    let shown = |c: char| match c.is_control() {
        true => c.escape_unicode().to_string(),
        false => c.to_string(),
    };
    name.chars().map(shown).collect()
}

/// The faults of one row.
struct RowFaults {
    faults: Vec<FieldFault>,
    /// Whether the next row cannot be found.
    is_last: bool,
}

impl RowFaults {
    fn new(faults: Vec<FieldFault>) -> Self {
        Self { faults, is_last: false }
    }
}

/// The rows of a valid file.
#[derive(Debug, Default)]
pub struct CheckedRows {
    pub rows: u64,
    /// The largest integer id.
    pub last_id: Option<i64>,
}

/// The file, read from its beginning or from a position.
pub struct ImportFile<'a> {
    reader: RecordReader<BufReader<File>>,
    /// The header of CSV.
    table: Option<CsvTable>,
    rules: ImportRules<'a>,
    /// A row of CSV as JSON.
    json: Vec<u8>,
}

impl<'a> ImportFile<'a> {
    /// Reads the header of CSV; its faults end the import.
    pub fn open(
        file: File,
        format: FileFormat,
        rules: ImportRules<'a>,
    ) -> io::Result<Result<Self, LineFaults>> {
        let bytes_max = rules.model.server.limits.body_bytes_max;
        let input = BufReader::with_capacity(BUFFER_BYTES, file);
        let reader = RecordReader::new(input, format, bytes_max)?;
        let mut file = Self { reader, table: None, rules, json: Vec::new() };
        let mut faults = LineFaults::default();
        if format == FileFormat::Csv {
            faults.add(file.read_header()?);
        }
        faults.is_cut = !faults.is_empty();
        Ok(if faults.is_empty() { Ok(file) } else { Err(faults) })
    }

    fn read_header(&mut self) -> io::Result<Vec<FieldFault>> {
        let access = Access::to_declared(self.rules.resource);
        let view = ItemView { hidden: &access.hidden, ..ItemView::all_fields(self.rules.resource) };
        let table = match self.reader.next_record()? {
            Some(Record { line, content: RecordContent::Bytes }) => {
                CsvTable::from_header(view, self.reader.bytes(), line).map(|table| (line, table))
            }
            Some(Record { line, content: RecordContent::TooLong }) => {
                return Ok(vec![self.too_long(line)]);
            }
            None => CsvTable::from_header(view, b"", 1).map(|table| (1, table)),
        };
        let (line, table) = match table {
            Ok(read) => read,
            Err(error) => return Ok(vec![line_fault(error)]),
        };
        let names: Vec<Box<str>> = table.names().map(Box::from).collect();
        let faults = self.rules.check_columns(line, &names);
        self.table = Some(table);
        self.rules.columns = Some(names);
        Ok(faults)
    }

    fn too_long(&self, line: usize) -> FieldFault {
        let bytes_max = self.rules.model.server.limits.body_bytes_max;
        let detail = format!("expected at most {bytes_max} bytes");
        FieldFault { pointer: line_root(line), code: FaultCode::Length, detail }
    }

    pub fn position(&self) -> (RecordPosition, String) {
        (self.reader.position(), self.reader.digest())
    }

    /// Seeks to a position, if the bytes before it have the stored digest.
    pub fn resume(&mut self, position: RecordPosition, digest: &str) -> io::Result<bool> {
        self.reader.skip_to(position)?;
        Ok(self.position() == (position, digest.to_owned()))
    }

    /// The next row; `None` at the end.
    fn next_row(&mut self) -> io::Result<Option<Result<ImportRow, RowFaults>>> {
        let record = self.reader.next_record()?;
        Ok(record.map(|Record { line, content }| match content {
            RecordContent::Bytes => self.read_record(line),
            RecordContent::TooLong => {
                let is_last = self.table.is_some();
                Err(RowFaults { faults: vec![self.too_long(line)], is_last })
            }
        }))
    }

    fn read_record(&mut self, line: usize) -> Result<ImportRow, RowFaults> {
        let bytes = match &self.table {
            None => self.reader.bytes(),
            Some(table) => {
                self.json.clear();
                let converted = table.convert_row(&mut self.json, self.reader.bytes(), line);
                converted.map_err(|error| RowFaults {
                    is_last: error.is_row_end_unknown,
                    faults: vec![line_fault(error)],
                })?;
                &self.json
            }
        };
        let members = parse_item(bytes).map_err(|detail| {
            let pointer = line_root(line);
            RowFaults::new(vec![FieldFault { pointer, code: FaultCode::Format, detail }])
        })?;
        self.rules.read_row(line, members).map_err(RowFaults::new)
    }

    /// Validates all lines.
    pub fn check_all(&mut self, bytes_total: u64) -> io::Result<Result<CheckedRows, LineFaults>> {
        let mut progress = Progress::new("checking", Some(bytes_total));
        let (mut checked, mut faults) = (CheckedRows::default(), LineFaults::default());
        while let Some(row) = self.next_row()? {
            checked.rows += 1;
            progress.update(checked.rows, self.reader.position().offset);
            match row {
                Ok(ImportRow { id: Some(Id::Integer(id)), .. }) => {
                    checked.last_id = checked.last_id.max(Some(id));
                }
                Ok(_) => {}
                Err(RowFaults { faults: found, is_last }) => {
                    faults.add(found);
                    faults.is_cut = is_last;
                    if is_last {
                        break;
                    }
                }
            }
        }
        Ok(if faults.is_empty() { Ok(checked) } else { Err(faults) })
    }
}

fn line_fault(error: LineError) -> FieldFault {
    FieldFault { pointer: line_root(error.line), code: FaultCode::Format, detail: error.words }
}

/// The batches of a file that `check_all` has found valid, and what became of them.
pub struct ImportBatches<'a> {
    file: ImportFile<'a>,
    upsert: Option<UpsertKey>,
    /// A row that has to wait for those before it.
    pending: Option<ImportRow>,
    /// The position after the last batch, and the digest of the bytes before it.
    pub end: (RecordPosition, String),
    pub total: ImportedBatch,
    pub faults: LineFaults,
    pub is_dry_run: bool,
    progress: Progress,
    rows: u64,
}

impl<'a> ImportBatches<'a> {
    pub fn new(file: ImportFile<'a>, is_dry_run: bool, bytes_total: u64) -> Self {
        let verb = if is_dry_run { "checking" } else { "importing" };
        Self {
            upsert: file.rules.upsert,
            end: file.position(),
            file,
            pending: None,
            total: ImportedBatch::default(),
            faults: LineFaults::default(),
            is_dry_run,
            progress: Progress::new(verb, Some(bytes_total)),
            rows: 0,
        }
    }

    fn fill_batch(&mut self) -> io::Result<Result<Vec<ImportRow>, LineFaults>> {
        let mut known = BatchKeys::default();
        let mut rows = Vec::new();
        if let Some(row) = self.pending.take() {
            known.add(&row, self.upsert);
            rows.push(row);
        }
        let start = self.file.reader.position().offset;
        while rows.len() < BATCH_ROWS_MAX
            && self.file.reader.position().offset - start < BATCH_BYTES_MAX
        {
            match self.file.next_row()? {
                None => break,
                Some(Ok(row)) if known.has_to_wait(&row, self.upsert) => {
                    self.pending = Some(row);
                    self.end = self.file.reader.before_last();
                    return Ok(Ok(rows));
                }
                Some(Ok(row)) => {
                    known.add(&row, self.upsert);
                    rows.push(row);
                }
                Some(Err(RowFaults { faults: found, .. })) => {
                    let mut faults = LineFaults::default();
                    faults.add(found);
                    return Ok(Err(faults));
                }
            }
        }
        self.end = self.file.position();
        Ok(Ok(rows))
    }
}

impl ImportSource for ImportBatches<'_> {
    fn next_batch(&mut self) -> Result<Vec<ImportRow>, String> {
        let rows = self.fill_batch().map_err(|error| format!("cannot read the file: {error}"))?;
        let changed =
            |faults: LineFaults| format!("the file was changed meanwhile:{}", faults.lines());
        let rows = rows.map_err(changed)?;
        self.rows += u64::try_from(rows.len()).unwrap_or(0);
        Ok(rows)
    }

    fn record(&mut self, batch: ImportedBatch) {
        let ImportedBatch { created, updated, unchanged, faults } = batch;
        self.total.created += created;
        self.total.updated += updated;
        self.total.unchanged += unchanged;
        self.faults.add(faults);
        self.progress.update(self.rows, self.end.0.offset);
    }

    fn is_rolled_back(&self) -> bool {
        self.is_dry_run || !self.faults.is_empty()
    }

    fn is_over(&self) -> bool {
        self.faults.is_full()
    }
}

/// The rows of a batch, as far as later rows depend on them: these rows start another batch.
#[derive(Debug, Default)]
struct BatchKeys {
    ids: HashSet<Id>,
    /// The values by which an upsert finds items.
    keys: HashSet<String>,
}

impl BatchKeys {
    fn key(row: &ImportRow, upsert: Option<UpsertKey>) -> Option<String> {
        let UpsertKey::Rule { field, .. } = upsert? else { return None };
        let values = partial_values(row.change.as_ref()?);
        Some(format!("{:?} {:?}", row.parent, values.get(field)?))
    }

    fn add(&mut self, row: &ImportRow, upsert: Option<UpsertKey>) {
        self.ids.extend(row.id);
        self.keys.extend(Self::key(row, upsert));
    }

    fn has_to_wait(&self, row: &ImportRow, upsert: Option<UpsertKey>) -> bool {
        let is_id_known = upsert.is_some() && row.id.is_some_and(|id| self.ids.contains(&id));
        let drafts = row.new.iter().chain(&row.change);
        let mut references = drafts.flat_map(|draft| &draft.references);
        is_id_known
            || Self::key(row, upsert).is_some_and(|key| self.keys.contains(&key))
            || references.any(|reference| self.ids.contains(&reference.id))
    }
}
