//! SQL statements with their parameters, and the rows that they return.

use std::borrow::Cow;

use crate::fault;
use crate::model::derivation::Derivation;
use crate::store::error::InternalError;
use crate::value::{Decimal, Id, IdKind, Moment, Value};

/// An SQL statement with its parameters.
#[derive(Debug)]
pub struct Statement<'a> {
    pub sql: Cow<'a, str>,
    pub binds: Vec<Bind<'a>>,
    pub reuse: StatementReuse,
    /// Whether it has to change exactly one row, as those that write an item do.
    pub changes_one_row: bool,
}

/// Whether a connection keeps a statement prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementReuse {
    /// One of the texts that the model makes.
    Always,
    /// Reads a range of one index: the best plan does not depend on its values.
    OfRanges,
    /// Made for the query of a list. Clients repeat few of these texts, but can send any number of them.
    OfLists,
    Never,
}

impl<'a> Statement<'a> {
    pub fn new(sql: impl Into<Cow<'a, str>>, binds: Vec<Bind<'a>>) -> Self {
        Self { sql: sql.into(), binds, reuse: StatementReuse::Always, changes_one_row: true }
    }

    /// A statement that is made for the query of a list.
    pub fn of_list(sql: String, binds: Vec<Bind<'a>>) -> Self {
        Self { sql: sql.into(), binds, reuse: StatementReuse::OfLists, changes_one_row: true }
    }

    /// A statement that reads a range of one index.
    pub fn of_range(sql: String, binds: Vec<Bind<'a>>) -> Self {
        Self { reuse: StatementReuse::OfRanges, ..Self::of_list(sql, binds) }
    }

    /// The same statement, which may change any number of rows.
    pub fn with_any_rows(self) -> Self {
        Self { changes_one_row: false, ..self }
    }

    /// A statement that is made for one query.
    pub fn uncached(sql: String, binds: Vec<Bind<'a>>) -> Self {
        Self { sql: sql.into(), binds, reuse: StatementReuse::Never, changes_one_row: true }
    }
}

/// Inserts rows into a table, all with values for the same columns.
#[derive(Debug)]
pub struct BulkInsert {
    /// Inserts one row. Its parameters are the columns.
    pub row: String,
    /// The COPY statement of an engine that has one, in its binary format.
    pub copy: String,
}

/// The value of a statement's parameter.
#[derive(Debug, Clone, Copy)]
pub enum Bind<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Real(f64),
    Text(&'a str),
    Moment(Moment),
    /// As text in its canonical form.
    MomentText(Moment),
    Id(Id),
    /// The text that is derived from this one.
    Derived(Derivation, &'a str),
}

impl<'a> Bind<'a> {
    /// A field's value in its storage class. Lists and objects are canonical JSON by now, and a secret is
    /// never stored in clear text.
    pub fn value(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::List(_) | Value::Object(_) | Value::ClearText(_) => {
                fault::bug("a list, an object or a clear-text secret reached the store")
            }
            Value::Boolean(boolean) => Self::Boolean(*boolean),
            Value::Integer(number) => Self::Integer(*number),
            Value::Decimal(Decimal { units, .. }) => Self::Integer(*units),
            Value::Number(number) => Self::Real(*number),
            Value::Text(text) | Value::Json(text) => Self::Text(text),
            Value::Moment(moment) => Self::Moment(*moment),
        }
    }

    pub fn optional_text(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

/// The columns of one row, by position.
pub trait Columns {
    fn integer(&self, at: usize) -> Result<Option<i64>, InternalError>;
    fn real(&self, at: usize) -> Result<Option<f64>, InternalError>;
    fn boolean(&self, at: usize) -> Result<Option<bool>, InternalError>;
    fn text(&self, at: usize) -> Result<Option<&str>, InternalError>;
    fn moment(&self, at: usize) -> Result<Option<Moment>, InternalError>;
    fn id(&self, at: usize, kind: IdKind) -> Result<Option<Id>, InternalError>;

    fn required_integer(&self, at: usize) -> Result<i64, InternalError> {
        required(at, self.integer(at))
    }

    fn required_text(&self, at: usize) -> Result<String, InternalError> {
        required(at, self.text(at)).map(str::to_owned)
    }

    fn required_moment(&self, at: usize) -> Result<Moment, InternalError> {
        required(at, self.moment(at))
    }

    fn optional_text(&self, at: usize) -> Result<Option<String>, InternalError> {
        Ok(self.text(at)?.map(str::to_owned))
    }
}

fn required<T>(at: usize, read: Result<Option<T>, InternalError>) -> Result<T, InternalError> {
    read?.ok_or_else(|| InternalError(format!("column {at} of a stored row: expected a value")))
}
