//! CSV input (RFC 4180): converts a table of new items to NDJSON, the table of a request at once and that of a file
//! row by row.
//!
//! The header line names the columns, and the class of the field decides how a cell is written as JSON; the
//! field type validates the value, as for any JSON. Nothing is guessed: a misplaced quote, a row of another
//! length or a duplicate name is an error with its line number. An empty cell is no value and `""` is the
//! empty text, so it matters whether a cell is quoted. Of a field that can be null, an empty cell is null, as in an export,
//! and not the default.

use std::borrow::Cow;
use std::collections::HashSet;

use super::format::ItemView;
use crate::json;
use crate::model::StorageClass;
use crate::problem::{self, Problem};
use crate::value::truncate_for_message;

/// No model has as many fields or as long a name. Each name is repeated for every row, so without these
/// limits a small body would expand to a large one.
const COLUMNS_MAX: usize = 510;
const NAME_CHARS_MAX: usize = 48;
/// Nesting depth of the JSON in a cell: the wrapper, the list and the item around it are three levels.
const CELL_DEPTH_MAX: usize = 29;

/// Why a line cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub struct LineError {
    pub line: usize,
    pub words: String,
    /// Whether a misplaced quote leaves it open where the next row begins.
    pub is_row_end_unknown: bool,
}

impl LineError {
    fn new(line: usize, words: impl Into<String>) -> Self {
        Self { line, words: words.into(), is_row_end_unknown: false }
    }

    fn misplaced_quote(line: usize, words: impl Into<String>) -> Self {
        Self { is_row_end_unknown: true, ..Self::new(line, words) }
    }
}

impl From<LineError> for Problem {
    fn from(error: LineError) -> Self {
        bad_line(error.line, &error.words)
    }
}

/// Converts each row of the table to one line of JSON.
pub fn to_json_lines(view: ItemView<'_>, body: &[u8], rows_max: usize) -> Result<Vec<u8>, Problem> {
    let text = check_utf8(body, 1)?;
    // Excel writes a byte order mark.
    let rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = CsvReader { rest, line: 1 };
    let table = CsvTable::read(view, &mut reader)?;
    let mut out = Vec::with_capacity(body.len() * 2);
    let mut rows = 0;
    while let Some(row) = reader.read_row(table.columns.len())? {
        rows += 1;
        if rows > rows_max {
            return Err(too_many_items(rows_max));
        }
        table.write_row(&mut out, &row)?;
    }
    Ok(out)
}

/// The columns of a table, by which its rows become JSON. For a table that is read row by row.
#[derive(Debug)]
pub struct CsvTable {
    columns: Vec<CsvColumn>,
}

impl CsvTable {
    /// Parses the header line.
    pub fn from_header(view: ItemView<'_>, header: &[u8], line: usize) -> Result<Self, LineError> {
        Self::read(view, &mut CsvReader { rest: check_utf8(header, line)?, line })
    }

    fn read(view: ItemView<'_>, reader: &mut CsvReader<'_>) -> Result<Self, LineError> {
        match reader.read_row(COLUMNS_MAX)? {
            Some((line, names)) => read_columns(view, line, names).map(|columns| Self { columns }),
            None => Err(LineError::new(1, "expected the names of the columns, got nothing")),
        }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| &*column.name)
    }

    /// Writes one row, which begins at `line`, as a line of JSON.
    pub fn convert_row(&self, out: &mut Vec<u8>, row: &[u8], line: usize) -> Result<(), LineError> {
        let mut reader = CsvReader { rest: check_utf8(row, line)?, line };
        match reader.read_row(self.columns.len())? {
            Some(row) => self.write_row(out, &row),
            None => Err(LineError::new(line, "expected a row, got nothing")),
        }
    }

    fn write_row(
        &self,
        out: &mut Vec<u8>,
        (line, cells): &(usize, Vec<CsvCell<'_>>),
    ) -> Result<(), LineError> {
        if cells.len() < self.columns.len() {
            let (expected, got) = (self.columns.len(), cells.len());
            return Err(LineError::new(*line, format!("expected {expected} cells, got {got}")));
        }
        out.push(b'{');
        let before = out.len();
        for (column, cell) in self.columns.iter().zip(cells) {
            let is_empty = cell.text.is_empty() && !cell.is_quoted;
            if is_empty && !column.writes_null {
                continue;
            }
            if out.len() > before {
                out.push(b',');
            }
            json::write_text(out, &column.name);
            out.push(b':');
            if is_empty {
                out.extend_from_slice(b"null");
                continue;
            }
            let written = write_cell(out, column, &cell.text);
            written.map_err(|words| LineError::new(*line, words))?;
        }
        out.extend_from_slice(b"}\n");
        Ok(())
    }
}

/// The problem for a list with more items than the limit.
pub fn too_many_items(items_max: usize) -> Problem {
    let detail = format!("at most {items_max} items at once, got more");
    Problem::new(&problem::TOO_LARGE).detail(detail)
}

/// The problem for a line that cannot be parsed.
pub fn bad_line(line: usize, words: &str) -> Problem {
    Problem::new(&problem::BAD_LINES).detail(format!("line {line}: {words}"))
}

fn check_utf8(body: &[u8], line: usize) -> Result<&str, LineError> {
    str::from_utf8(body).map_err(|invalid| {
        let valid = body.get(..invalid.valid_up_to()).unwrap_or_default();
        let line = line + valid.iter().filter(|byte| **byte == b'\n').count();
        LineError::new(line, "expected UTF-8, got a byte that does not belong there")
    })
}

#[derive(Debug)]
struct CsvColumn {
    name: Box<str>,
    /// The class of the field; `None` if the column is not a field.
    class: Option<StorageClass>,
    /// Whether an empty cell is written as null, where an absent field would be something else.
    writes_null: bool,
}

fn read_columns(
    view: ItemView<'_>,
    line: usize,
    names: Vec<CsvCell<'_>>,
) -> Result<Vec<CsvColumn>, LineError> {
    let mut seen = HashSet::new();
    for (index, CsvCell { text, .. }) in names.iter().enumerate() {
        let fail = |words: String| Err(LineError::new(line, words));
        if text.is_empty() {
            return fail(format!("expected a name for column {}", index + 1));
        }
        // As spreadsheets write it where the comma is the decimal separator.
        if let Some(separator) = text.chars().find(|c| matches!(c, ';' | '\t')) {
            let name = if separator == ';' { "a semicolon" } else { "a tab" };
            return fail(format!("expected commas between the columns, got {name}"));
        }
        if text.chars().nth(NAME_CHARS_MAX).is_some() {
            let name = json::quote_for_message(text);
            return fail(format!("expected the name of a field, got {name}"));
        }
        if !seen.insert(text) {
            let name = json::quote_for_message(text);
            return fail(format!("expected each column once, got {name} again"));
        }
    }
    let column = |name: CsvCell<'_>| {
        let field = view.resource.field(&name.text);
        // A hidden field is treated like an unknown name.
        let field = field.filter(|(at, _)| !view.hidden.contains(at));
        let class = field.map(|(_, field)| field.storage_class());
        let writes_null = field.is_some_and(|(_, field)| {
            let has_default = field.default.is_some() || field.default_from.is_some();
            field.nullable && (field.required || has_default)
        });
        CsvColumn { name: name.text.into(), class, writes_null }
    };
    Ok(names.into_iter().map(column).collect())
}

/// Writes one cell as JSON. A cell that does not look like a value of its class becomes a JSON string, and
/// the field type reports what is wrong with it.
fn write_cell(out: &mut Vec<u8>, column: &CsvColumn, text: &str) -> Result<(), String> {
    match column.class {
        // An id is a number or a text, and its form tells which.
        Some(StorageClass::Integer | StorageClass::Real) | None if json::is_number(text) => {
            out.extend_from_slice(text.as_bytes());
        }
        // Excel writes TRUE, and Python True.
        Some(StorageClass::Boolean) if text.eq_ignore_ascii_case("true") => {
            out.extend_from_slice(b"true");
        }
        Some(StorageClass::Boolean) if text.eq_ignore_ascii_case("false") => {
            out.extend_from_slice(b"false");
        }
        Some(StorageClass::Json) => {
            let value = json::parse(text.as_bytes(), CELL_DEPTH_MAX).map_err(|error| {
                let (name, text) =
                    (truncate_for_message(&column.name), json::quote_for_message(text));
                format!("{name}: expected JSON, got {text}: {}", error.message)
            })?;
            json::write(out, &value);
        }
        // A decimal may be sent as a string, which is never rounded.
        Some(
            StorageClass::Text
            | StorageClass::Decimal
            | StorageClass::Moment
            | StorageClass::Integer
            | StorageClass::Real
            | StorageClass::Boolean,
        )
        | None => json::write_text(out, text),
    }
    Ok(())
}

#[derive(Debug)]
struct CsvCell<'a> {
    text: Cow<'a, str>,
    is_quoted: bool,
}

/// The unparsed rest of a table, and its line number.
struct CsvReader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> CsvReader<'a> {
    /// Parses the next row, with its line number; `None` at the end. Empty lines are not rows.
    fn read_row(
        &mut self,
        cells_max: usize,
    ) -> Result<Option<(usize, Vec<CsvCell<'a>>)>, LineError> {
        while self.take_line_end() {}
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (line, mut cells) = (self.line, Vec::new());
        loop {
            if cells.len() == cells_max {
                let words = format!("expected {cells_max} cells, got more");
                return Err(LineError::new(line, words));
            }
            cells.push(self.read_cell()?);
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
            } else if self.take_line_end() || self.rest.is_empty() {
                return Ok(Some((line, cells)));
            } else {
                return Err(self.misplaced_text());
            }
        }
    }

    /// CR LF, as RFC 4180 requires, or LF alone, as most programs write.
    fn take_line_end(&mut self) -> bool {
        let rest = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n'));
        if let Some(rest) = rest {
            (self.rest, self.line) = (rest, self.line + 1);
        }
        rest.is_some()
    }

    fn read_cell(&mut self) -> Result<CsvCell<'a>, LineError> {
        let Some(inside) = self.rest.strip_prefix('"') else {
            let end = self.rest.find([',', '"', '\r', '\n']).unwrap_or(self.rest.len());
            let (text, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
            self.rest = rest;
            return Ok(CsvCell { text: Cow::Borrowed(text), is_quoted: false });
        };
        let (begin, mut from) = (self.line, 0);
        loop {
            let quote = inside.get(from..).and_then(|rest| rest.find('"')).map(|at| from + at);
            let Some((text, rest)) = quote.and_then(|quote| inside.split_at_checked(quote)) else {
                let words = "expected a quote at the end of the cell, got none";
                return Err(LineError::misplaced_quote(begin, words));
            };
            if rest.starts_with("\"\"") {
                from = text.len() + 2;
                continue;
            }
            self.line += text.matches('\n').count();
            self.rest = rest.strip_prefix('"').unwrap_or(rest);
            let is_doubled = from > 0;
            let text =
                if is_doubled { text.replace("\"\"", "\"").into() } else { Cow::Borrowed(text) };
            return Ok(CsvCell { text, is_quoted: true });
        }
    }

    /// The error for text after a cell that is neither a comma nor a line end.
    fn misplaced_text(&self) -> LineError {
        let words = match self.rest.chars().next() {
            Some('"') => "expected quotes around a cell that has one inside".to_owned(),
            Some('\r') => "expected a line feed after a carriage return".to_owned(),
            _ => format!(
                "expected a comma after the quote, got {}",
                json::quote_for_message(self.rest)
            ),
        };
        LineError::misplaced_quote(self.line, words)
    }
}

#[cfg(test)]
mod tests;
