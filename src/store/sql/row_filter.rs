//! Row-level security: the statements of a resource for callers with access to some of its rows.
//!
//! They are the statements of `TableStatements` with conditions added: the conditions of the request's verb
//! for the rows themselves, and those of GET for the rows of their ancestors.

use crate::model::{Model, Resource};
use crate::permit::AccessScope;
use crate::store::sql::columns::{ancestor_join, select_list};
use crate::store::sql::condition::{ConditionParameter, row_conditions};
use crate::store::sql::dialect::Dialect;
use crate::store::sql::unique::{equals_parameter, unique_columns};
use crate::store::statement::Bind;

/// The statements of one resource within an access scope. "chain" stands for the ids of the ancestors from
/// the nearest; the parameters of the conditions come after it.
#[derive(Debug)]
pub struct RowFilter {
    /// 1: id, then the chain.
    pub item: String,
    /// As `item`, and locks the row against changes until the transaction ends.
    pub item_for_update: String,
    /// As `item`, and locks the row against changes and new children until the transaction ends.
    pub item_for_delete: String,
    /// 1: id, then the chain.
    pub exists: String,
    /// 1: id.
    pub exists_anywhere: String,
    /// 1: the limit, then the chain.
    pub page: String,
    /// Keyset pagination. 1: the limit, 2: after which id, then the chain.
    pub page_after: String,
    parameters: Vec<ConditionParameter>,
}

impl RowFilter {
    pub fn new(
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
            append_conditions(tied, &row_conditions(model, dialect, resource, reach, next).0)
        };
        let by_id = within(&format!("t0.\"id\" = {p}1"), 2);
        let after = within(&format!("t0.\"id\" > {p}2"), 3);
        let whole = within("", 2);
        let (anywhere, terms) = row_conditions(model, dialect, resource, reach, 2);
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
    pub fn binds<'a>(&'a self, reach: &'a AccessScope) -> impl Iterator<Item = Bind<'a>> {
        self.parameters.iter().map(|term| term.bind(reach.user_name()))
    }
}

/// For each unique rule: finds another visible row with these values. 1: id, then the rule's columns, then
/// the parameters of the conditions.
pub fn visible_unique_conflicts(
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
            format!(" AND {}", equals_parameter(resource, ("t0.", column), number, dialect))
        });
        let same = same.collect::<String>();
        let (within, terms) = row_conditions(model, dialect, resource, reach, 2 + columns.len());
        let condition = append_conditions(format!(" WHERE t0.\"id\" <> {p}1{same}"), &within);
        (format!("SELECT 1 FROM {from}{condition} LIMIT 1"), terms)
    });
    holders.collect()
}

fn append_conditions(tied: String, conditions: &[String]) -> String {
    conditions.iter().fold(tied, |text, condition| match text.is_empty() {
        true => format!(" WHERE {condition}"),
        false => format!("{text} AND {condition}"),
    })
}
