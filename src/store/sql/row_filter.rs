//! Row-level security: the statements of a resource for callers with access to some of its rows.
//!
//! They are the statements of `TableStatements` with conditions added: the conditions of the request's verb
//! for the rows themselves, and those of GET for the rows of their ancestors.

use super::condition::{ConditionParameter, ConditionWriter, TableAlias};
use super::{AncestorJoin, Dialect, ddl, select_list, unique_columns};
use crate::model::{Model, Resource};
use crate::permit::AccessScope;
use crate::store::driver::Bind;

/// The statements of one resource within an access scope. "chain" stands for the ids of the ancestors from
/// the nearest; the parameters of the conditions come after it.
#[derive(Debug)]
pub(in crate::store) struct RowFilter {
    /// 1: id, then the chain.
    pub(in crate::store) item: String,
    /// As `item`, and locks the row against changes until the transaction ends.
    pub(in crate::store) item_for_update: String,
    /// As `item`, and locks the row against changes and new children until the transaction ends.
    pub(in crate::store) item_for_delete: String,
    /// 1: id, then the chain.
    pub(in crate::store) exists: String,
    /// 1: id.
    pub(in crate::store) exists_anywhere: String,
    /// 1: the limit, then the chain.
    pub(in crate::store) page: String,
    /// Keyset pagination. 1: the limit, 2: after which id, then the chain.
    pub(in crate::store) page_after: String,
    parameters: Vec<ConditionParameter>,
}

impl RowFilter {
    pub(in crate::store) fn new(
        model: &Model,
        dialect: &'static Dialect,
        resource: &Resource,
        reach: &AccessScope,
    ) -> Self {
        let p = dialect.placeholder;
        let chain = ancestor_join(model, resource, reach);
        let (from, select) = (&chain.from, select_list(resource, "t0."));
        let within = |other: &str, first: usize| {
            let tied = chain.where_clause(other, p, first);
            let next = first + chain.columns.len();
            append_conditions(tied, &conditions(model, dialect, resource, reach, next).0)
        };
        let by_id = within(&format!("t0.\"id\" = {p}1"), 2);
        let after = within(&format!("t0.\"id\" > {p}2"), 3);
        let whole = within("", 2);
        let (anywhere, terms) = conditions(model, dialect, resource, reach, 2);
        let anywhere = append_conditions(format!(" WHERE t0.\"id\" = {p}1"), &anywhere);
        let Dialect { lock_for_update, lock_for_delete, .. } = dialect;
        Self {
            item: format!("SELECT {select} FROM {from}{by_id}"),
            item_for_update: format!("SELECT {select} FROM {from}{by_id}{lock_for_update}"),
            item_for_delete: format!("SELECT {select} FROM {from}{by_id}{lock_for_delete}"),
            exists: format!("SELECT 1 FROM {from}{by_id}"),
            exists_anywhere: format!("SELECT 1 FROM {from}{anywhere}"),
            page: format!("SELECT {select} FROM {from}{whole} ORDER BY t0.\"id\" LIMIT {p}1"),
            page_after: format!("SELECT {select} FROM {from}{after} ORDER BY t0.\"id\" LIMIT {p}1"),
            parameters: terms,
        }
    }

    /// The parameters of the conditions.
    pub(in crate::store) fn binds<'a>(
        &'a self,
        reach: &'a AccessScope,
    ) -> impl Iterator<Item = Bind<'a>> {
        self.parameters.iter().map(|term| term.bind(reach.user_name()))
    }
}

/// For each unique rule: finds another visible row with these values. 1: id, then the rule's columns, then
/// the parameters of the conditions.
pub(in crate::store) fn visible_unique_conflicts(
    model: &Model,
    dialect: &'static Dialect,
    resource: &Resource,
    reach: &AccessScope,
) -> Vec<(String, Vec<ConditionParameter>)> {
    let p = dialect.placeholder;
    let from = ancestor_join(model, resource, reach).from;
    let holders = resource.unique.iter().map(|unique| {
        let columns = unique_columns(resource, unique);
        let same = columns.iter().zip(2..).map(|(column, number)| {
            format!(" AND {}", ddl::equals_parameter(resource, ("t0.", column), number, dialect))
        });
        let same = same.collect::<String>();
        let (within, terms) = conditions(model, dialect, resource, reach, 2 + columns.len());
        let condition = append_conditions(format!(" WHERE t0.\"id\" <> {p}1{same}"), &within);
        (format!("SELECT 1 FROM {from}{condition} LIMIT 1"), terms)
    });
    holders.collect()
}

pub(super) fn ancestor_join(
    model: &Model,
    resource: &Resource,
    reach: &AccessScope,
) -> AncestorJoin {
    let mut above = model.lineage(resource.index);
    above.pop();
    let is_limited = above.iter().any(|above| !reach.read_row_filters(above.index).is_empty());
    AncestorJoin::new(model, resource, is_limited)
}

/// The conditions of the rows themselves, and of their ancestors.
pub(super) fn conditions(
    model: &Model,
    dialect: &'static Dialect,
    resource: &Resource,
    reach: &AccessScope,
    first: usize,
) -> (Vec<String>, Vec<ConditionParameter>) {
    let mut terms = ConditionWriter::new(dialect, first);
    let mut texts = Vec::new();
    for (depth, level) in model.lineage(resource.index).into_iter().rev().enumerate() {
        let conditions = match depth {
            0 => reach.row_filters(level.index),
            _ => reach.read_row_filters(level.index),
        };
        let row = TableAlias { resource: level, alias: &format!("t{depth}") };
        texts.extend(terms.any_of(row, conditions));
    }
    (texts, terms.parameters)
}

fn append_conditions(tied: String, conditions: &[String]) -> String {
    conditions.iter().fold(tied, |text, condition| match text.is_empty() {
        true => format!(" WHERE {condition}"),
        false => format!("{text} AND {condition}"),
    })
}
