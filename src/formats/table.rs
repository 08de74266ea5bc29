//! CSV input (RFC 4180): converts a table of new items to NDJSON.
//!
//! The header line names the columns, and the class of the field decides how a cell is written as JSON; the
//! field type validates the value, as for any JSON. Nothing is guessed: a misplaced quote, a row of another
//! length or a duplicate name is an error with its line number. What may surprise: an empty cell is no value
//! and `""` is the empty text, so it matters whether a cell is quoted.

use std::borrow::Cow;
use std::collections::HashSet;

use super::View;
use crate::json;
use crate::model::Class;
use crate::problem::{self, Problem};
use crate::value::cut;

/// No model has as many fields or as long a name. Each name is repeated for every row, so without these
/// limits a small body would expand to a large one.
const COLUMNS_MAX: usize = 510;
const NAME_CHARS_MAX: usize = 48;
/// Nesting depth of the JSON in a cell: the wrapper, the list and the item around it are three levels.
const CELL_DEPTH_MAX: usize = 29;

/// One line of JSON for each row of the table.
pub fn lines(view: View<'_>, body: &[u8], rows_max: usize) -> Result<Vec<u8>, Problem> {
    let text = utf8(body)?;
    // Excel writes a byte order mark.
    let rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { rest, line: 1 };
    let columns = match reader.row(COLUMNS_MAX)? {
        Some((line, names)) => columns(view, line, names)?,
        None => return Err(bad(1, "expected the names of the columns, got nothing")),
    };
    let mut out = Vec::with_capacity(body.len() * 2);
    let mut rows = 0;
    while let Some((line, cells)) = reader.row(columns.len())? {
        rows += 1;
        if rows > rows_max {
            return Err(too_many(rows_max));
        }
        if cells.len() < columns.len() {
            let (expected, got) = (columns.len(), cells.len());
            return Err(bad(line, &format!("expected {expected} cells, got {got}")));
        }
        out.push(b'{');
        let before = out.len();
        for (column, cell) in columns.iter().zip(&cells) {
            if cell.is_quoted || !cell.text.is_empty() {
                if out.len() > before {
                    out.push(b',');
                }
                json::write_text(&mut out, &column.name);
                out.push(b':');
                write_cell(&mut out, column, &cell.text).map_err(|words| bad(line, &words))?;
            }
        }
        out.extend_from_slice(b"}\n");
    }
    Ok(out)
}

/// The problem for a list with more items than the limit.
pub fn too_many(items_max: usize) -> Problem {
    let detail = format!("at most {items_max} items at once, got more");
    Problem::new(&problem::TOO_LARGE).detail(detail)
}

/// The problem for a line that cannot be parsed.
pub fn bad(line: usize, words: &str) -> Problem {
    Problem::new(&problem::BAD_LINES).detail(format!("line {line}: {words}"))
}

fn utf8(body: &[u8]) -> Result<&str, Problem> {
    str::from_utf8(body).map_err(|invalid| {
        let valid = body.get(..invalid.valid_up_to()).unwrap_or_default();
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        bad(line, "expected UTF-8, got a byte that does not belong there")
    })
}

#[derive(Debug)]
struct Column<'a> {
    name: Cow<'a, str>,
    /// The class of the field; `None` if the column is not a field.
    class: Option<Class>,
}

fn columns<'a>(
    view: View<'_>,
    line: usize,
    names: Vec<Cell<'a>>,
) -> Result<Vec<Column<'a>>, Problem> {
    let mut seen = HashSet::new();
    for (index, Cell { text, .. }) in names.iter().enumerate() {
        if text.is_empty() {
            return Err(bad(line, &format!("expected a name for column {}", index + 1)));
        }
        if text.chars().nth(NAME_CHARS_MAX).is_some() {
            let name = json::quoted(text);
            return Err(bad(line, &format!("expected the name of a field, got {name}")));
        }
        if !seen.insert(text) {
            let name = json::quoted(text);
            return Err(bad(line, &format!("expected each column once, got {name} again")));
        }
    }
    let column = |name: Cell<'a>| {
        let field = view.resource.field(&name.text);
        // A hidden field is treated like an unknown name.
        let field = field.filter(|(at, _)| !view.hidden.contains(at));
        let class = field.map(|(_, field)| field.kind.class(field));
        Column { name: name.text, class }
    };
    Ok(names.into_iter().map(column).collect())
}

/// Writes one cell as JSON. A cell that does not look like a value of its class becomes a JSON string, and
/// the field type reports what is wrong with it.
fn write_cell(out: &mut Vec<u8>, column: &Column<'_>, text: &str) -> Result<(), String> {
    match column.class {
        // An id is a number or a text, and its form tells which.
        Some(Class::Integer | Class::Real) | None if json::is_number(text) => {
            out.extend_from_slice(text.as_bytes());
        }
        // Excel writes TRUE, and Python True.
        Some(Class::Boolean) if text.eq_ignore_ascii_case("true") => {
            out.extend_from_slice(b"true");
        }
        Some(Class::Boolean) if text.eq_ignore_ascii_case("false") => {
            out.extend_from_slice(b"false");
        }
        Some(Class::Json) => {
            let value = json::parse(text.as_bytes(), CELL_DEPTH_MAX).map_err(|error| {
                let (name, text) = (cut(&column.name), json::quoted(text));
                format!("{name}: expected JSON, got {text}: {}", error.message)
            })?;
            json::write(out, &value);
        }
        // A decimal may be sent as a string, which is never rounded.
        Some(
            Class::Text
            | Class::Decimal
            | Class::Moment
            | Class::Integer
            | Class::Real
            | Class::Boolean,
        )
        | None => json::write_text(out, text),
    }
    Ok(())
}

#[derive(Debug)]
struct Cell<'a> {
    text: Cow<'a, str>,
    is_quoted: bool,
}

/// The unparsed rest of a table, and its line number.
struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Reader<'a> {
    /// Parses the next row, with its line number; `None` at the end. Empty lines are not rows.
    fn row(&mut self, cells_max: usize) -> Result<Option<(usize, Vec<Cell<'a>>)>, Problem> {
        while self.end_line() {}
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (line, mut cells) = (self.line, Vec::new());
        loop {
            if cells.len() == cells_max {
                return Err(bad(line, &format!("expected {cells_max} cells, got more")));
            }
            cells.push(self.cell()?);
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
            } else if self.end_line() || self.rest.is_empty() {
                return Ok(Some((line, cells)));
            } else {
                return Err(self.misplaced());
            }
        }
    }

    /// CR LF, as RFC 4180 requires, or LF alone, as most programs write.
    fn end_line(&mut self) -> bool {
        let rest = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n'));
        if let Some(rest) = rest {
            (self.rest, self.line) = (rest, self.line + 1);
        }
        rest.is_some()
    }

    fn cell(&mut self) -> Result<Cell<'a>, Problem> {
        let Some(inside) = self.rest.strip_prefix('"') else {
            let end = self.rest.find([',', '"', '\r', '\n']).unwrap_or(self.rest.len());
            let (text, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
            self.rest = rest;
            return Ok(Cell { text: Cow::Borrowed(text), is_quoted: false });
        };
        let (begin, mut from) = (self.line, 0);
        loop {
            let quote = inside.get(from..).and_then(|rest| rest.find('"')).map(|at| from + at);
            let Some((text, rest)) = quote.and_then(|quote| inside.split_at_checked(quote)) else {
                return Err(bad(begin, "expected a quote at the end of the cell, got none"));
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
            return Ok(Cell { text, is_quoted: true });
        }
    }

    /// The problem for text after a cell that is neither a comma nor a line end.
    fn misplaced(&self) -> Problem {
        let words = match self.rest.chars().next() {
            Some('"') => "expected quotes around a cell that has one inside".to_owned(),
            Some('\r') => "expected a line feed after a carriage return".to_owned(),
            _ => format!("expected a comma after the quote, got {}", json::quoted(self.rest)),
        };
        bad(self.line, &words)
    }
}

#[cfg(test)]
mod tests;
