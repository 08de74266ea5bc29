//! Where a collection stands in the change log: the number of its last change, by which a client's copy of
//! it is known to be right.
//!
//! Once for every backend. No list is read here, and nothing is written.
//! The one surprising thing: a number is told only when no smaller one can come any more, found out
//! before the list is read. So the list has every change up to its number, and as long as no larger one
//! is there, nothing has changed.

use super::driver::{Bind, Columns, Driver, Stroke};
use super::transaction::Context;
use super::{Broken, StoreError};
use crate::intent::List;
use crate::intent::conditions::Verdict;
use crate::plan::{Collection, Refusal};
use crate::value::Page;

/// A collection as the change log names it.
#[derive(Debug)]
pub(super) struct Standing<'a> {
    sql: &'a str,
    resource: &'a str,
    parent: Option<String>,
}

/// A place, and the number up to which the log is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    at: i64,
    settled: i64,
}

/// What one of two statements has found.
enum Seen {
    Place(Found),
    Parent,
}

impl<'a> Standing<'a> {
    /// `None` for those who reach only some of its rows: of the others they learn nothing, also not when
    /// they change.
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

    /// `settled`: up to which number the log is known to be complete.
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

/// The place, if nothing smaller can come any more.
pub(super) fn settled<D: Driver>(driver: &D, found: &[Found]) -> Option<i64> {
    let Found { at, settled } = *found.first()?;
    driver.settle(settled);
    (at <= settled).then_some(at)
}

/// What is said to whom asks whether the list has changed, when that can be said without reading it: the
/// page without its items. That the parent is there comes first.
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
    // A tag was given for a number that was settled by then, so that need not be asked again.
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
