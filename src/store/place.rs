//! The version of a collection: the number of its last entry in the change log, from which list ETags are
//! made.
//!
//! Written once for both backends. It reads no list and writes nothing.
//! The invariant: a version is given out only at or below the low-water mark, which is read before the list.
//! So the list contains every change up to its version, and while no larger number appears, the list is
//! unchanged.

use super::driver::{Bind, Columns, Driver, Stroke};
use super::transaction::Context;
use super::{Broken, StoreError};
use crate::intent::List;
use crate::intent::conditions::Verdict;
use crate::plan::{Collection, Refusal};
use crate::value::Page;

/// A collection as the change log identifies it.
#[derive(Debug)]
pub(super) struct Standing<'a> {
    sql: &'a str,
    resource: &'a str,
    parent: Option<String>,
}

/// The last change of a collection, and the low-water mark of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    at: i64,
    settled: i64,
}

/// A row of one of the two statements.
enum Seen {
    Place(Found),
    Parent,
}

impl<'a> Standing<'a> {
    /// `None` for callers with a row filter: they must not learn of changes to rows that they cannot see.
    pub(super) fn of(context: &'a Context, collection: &Collection) -> Option<Self> {
        let Collection { resource, ancestors, reach } = collection;
        if !reach.rows(*resource).is_empty() {
            return None;
        }
        let parent = ancestors.last().map(ToString::to_string);
        let [top, nested] = &context.sql.places;
        let sql = if parent.is_some() { nested } else { top };
        Some(Self { sql, resource: &context.model.resource(*resource).label, parent })
    }

    /// The statement that reads the position; it needs a newer low-water mark only above the known one.
    pub(super) fn stroke(&self, settled: i64) -> Stroke<'_> {
        let mut binds = vec![Bind::Integer(settled), Bind::Text(self.resource)];
        binds.extend(self.parent.as_deref().map(Bind::Text));
        Stroke::new(self.sql, binds)
    }
}

pub(super) fn read(row: &dyn Columns) -> Result<Found, Broken> {
    let number = |at| {
        let missing = || Broken("a place in the change log without a number".to_owned());
        row.integer(at)?.ok_or_else(missing)
    };
    Ok(Found { at: number(0)?, settled: number(1)? })
}

/// The version, if it is at or below the low-water mark.
pub(super) fn settled<D: Driver>(driver: &D, found: &[Found]) -> Option<i64> {
    let Found { at, settled } = *found.first()?;
    driver.settle(settled);
    (at <= settled).then_some(at)
}

/// Answers a conditional request without reading the list: a page without items if the list is unchanged. A
/// missing parent takes precedence.
pub(super) async fn unchanged<D: Driver>(
    driver: &mut D,
    context: &Context,
    collection: &Collection,
    list: &List,
) -> Result<Option<Page>, StoreError> {
    if list.conditions.is_none() {
        return Ok(None);
    }
    let Some(standing) = Standing::of(context, collection) else { return Ok(None) };
    let seen = collection.reach.seen();
    let parent = context.parent(collection, &seen);
    // An ETag is given out only at or below the low-water mark, so there is no need to check that
    // again.
    let place = standing.stroke(i64::MAX);
    let look = parent.as_ref().map(|(parent, id, above)| parent.exists(*id, above));
    let strokes: Vec<_> = [place].into_iter().chain(look).collect();
    let read = |at: usize, row: &dyn Columns| match at {
        0 => read(row).map(Seen::Place),
        _ => Ok(Seen::Parent),
    };
    let rows = driver.rows_each(&strokes, read).await?;
    if rows.iter().skip(1).any(Vec::is_empty) {
        return Err(StoreError::Refused(Refusal::Missing));
    }
    let found = rows.into_iter().flatten().find_map(|seen| match seen {
        Seen::Place(found) => Some(found.at),
        Seen::Parent => None,
    });
    let position = found.filter(|at| list.conditions.judge_list(Some(*at)) != Verdict::Holds);
    Ok(position.map(|position| Page {
        items: Vec::new(),
        limit: list.limit,
        next: None,
        total: None,
        position: Some(position),
    }))
}

#[cfg(test)]
mod tests;
