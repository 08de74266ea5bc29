//! Encoding and decoding of values in PostgreSQL's binary format.
//!
//! Column types are not checked. The tables are ours, and a value that does not have its class's format is
//! reported as damaged data.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use crate::store::error::InternalError;
use crate::store::statement::{Bind, Columns};
use crate::value::{Id, IdKind, Moment};

/// PostgreSQL counts time from 2000-01-01.
const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;

impl ToSql for Bind<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Boolean(boolean) => out.put_u8((*boolean).into()),
            Self::Integer(number) | Self::Id(Id::Integer(number)) => out.put_i64(*number),
            Self::Real(number) => out.put_f64(*number),
            Self::Text(text) => out.put_slice(text.as_bytes()),
            Self::Moment(moment) => out.put_i64(moment.micros() - POSTGRES_EPOCH_MICROS),
            Self::MomentText(moment) => out.put_slice(&moment.canonical_text()),
            Self::Id(Id::Uuid(uuid)) => out.put_slice(uuid.as_bytes()),
            Self::Derived(derivation, text) => out.put_slice(derivation.derive(text).as_bytes()),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// The bytes of a column, whatever its type.
struct RawColumn<'a>(&'a [u8]);

impl<'a> FromSql<'a> for RawColumn<'a> {
    fn from_sql(_: &Type, bytes: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(bytes))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Decodes a column with `read`.
fn decode_column<'a, T>(
    row: &'a Row,
    at: usize,
    expected: &str,
    read: impl FnOnce(&'a [u8]) -> Option<T>,
) -> Result<Option<T>, InternalError> {
    let broken = || InternalError(format!("column {at} of a stored row: expected {expected}"));
    match row.try_get::<_, Option<RawColumn<'a>>>(at) {
        Ok(None) => Ok(None),
        Ok(Some(RawColumn(bytes))) => read(bytes).map(Some).ok_or_else(broken),
        Err(_) => Err(broken()),
    }
}

fn decode_integer(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

impl Columns for Row {
    fn integer(&self, at: usize) -> Result<Option<i64>, InternalError> {
        decode_column(self, at, "an integer", decode_integer)
    }

    fn real(&self, at: usize) -> Result<Option<f64>, InternalError> {
        decode_column(self, at, "a number", |bytes| bytes.try_into().ok().map(f64::from_be_bytes))
    }

    fn boolean(&self, at: usize) -> Result<Option<bool>, InternalError> {
        decode_column(self, at, "a boolean", |bytes| match bytes {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        })
    }

    fn text(&self, at: usize) -> Result<Option<&str>, InternalError> {
        decode_column(self, at, "text in UTF-8", |bytes| str::from_utf8(bytes).ok())
    }

    fn moment(&self, at: usize) -> Result<Option<Moment>, InternalError> {
        decode_column(self, at, "a timestamp", |bytes| {
            Moment::from_micros(decode_integer(bytes)?.checked_add(POSTGRES_EPOCH_MICROS)?)
        })
    }

    fn id(&self, at: usize, kind: IdKind) -> Result<Option<Id>, InternalError> {
        match kind {
            IdKind::Integer => Ok(self.integer(at)?.map(Id::Integer)),
            IdKind::Uuid => decode_column(self, at, "a uuid", |bytes| {
                Uuid::from_slice(bytes).ok().map(Id::Uuid)
            }),
        }
    }
}
