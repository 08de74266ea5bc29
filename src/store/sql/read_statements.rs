//! The statements that read items of one resource within an access scope (row-level security).
//!
//! For a restricted scope they have conditions: those of the request's verb for the rows themselves, and those of
//! GET for the rows of their ancestors.

use crate::fault;
use crate::model::{Model, Resource, UniqueRule};
use crate::permit::AccessScope;
use crate::store::sql::columns::{
    AncestorJoin, ancestor_join, flat_join, select_list, where_clause,
};
use crate::store::sql::condition::ConditionParameter;
use crate::store::sql::condition::row_conditions::{SelectedBy, row_conditions};
use crate::store::sql::dialect::Dialect;
use crate::store::sql::unique::{equals_parameter, unique_columns};
use crate::store::statement::Bind;

/// The statements of one resource within an access scope. "chain" stands for the ids of the ancestors from
/// the nearest; the parameters of the conditions come last.
#[derive(Debug)]
pub struct ReadStatements {
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
    /// The item under any parent. 1: id.
    pub item_anywhere: String,
    /// 1: the limit, then the chain.
    pub page: String,
    /// Keyset pagination. 1: the limit, 2: after which id, then the chain.
    pub page_after: String,
    /// Those that read across parents; `None` for a top-level resource.
    pub flat: Option<FlatStatements>,
    /// For each unique rule: finds another row with these values. 1: id, then the rule's columns.
    pub unique_conflicts: Vec<String>,
    condition_parameters: Vec<ConditionParameter>,
}

/// The statements that read a nested resource across all parents. The parameters of the conditions come last.
#[derive(Debug)]
pub struct FlatStatements {
    /// The item, and after its columns the ids of its ancestors above the parent. 1: id.
    pub item: String,
    /// 1: the limit.
    pub page: String,
    /// Keyset pagination. 1: the limit, 2: after which id.
    pub page_after: String,
}

impl FlatStatements {
    fn new(
        model: &Model,
        dialect: &'static Dialect,
        resource: &Resource,
        scope: &AccessScope,
    ) -> Option<Self> {
        resource.parent?;
        let p = dialect.placeholder;
        let where_all = |own: Option<String>, first: usize, by| {
            let (conditions, _) = row_conditions(model, dialect, resource, scope, (first, by));
            where_clause(&own.into_iter().chain(conditions).collect::<Vec<_>>())
        };
        let by_id = where_all(Some(format!("t0.\"id\" = {p}1")), 2, SelectedBy::Key);
        let whole = where_all(None, 2, SelectedBy::Condition);
        let after = where_all(Some(format!("t0.\"id\" > {p}2")), 3, SelectedBy::Condition);
        let chain = ancestor_join(model, resource, scope);
        let select = select_list(resource, "t0.");
        let located = [&*select].into_iter().chain(chain.columns.iter().skip(1).map(|one| &**one));
        let located = located.collect::<Vec<_>>().join(", ");
        let from = flat_join(model, resource, scope, 0).from;
        let page = |condition| {
            format!("SELECT {select} FROM {from}{condition} ORDER BY t0.\"id\" LIMIT {p}1")
        };
        Some(Self {
            item: format!("SELECT {located} FROM {}{by_id}", chain.from),
            page: page(whole),
            page_after: page(after),
        })
    }
}

impl ReadStatements {
    pub fn new(
        model: &Model,
        dialect: &'static Dialect,
        resource: &Resource,
        scope: &AccessScope,
    ) -> Self {
        let p = dialect.placeholder;
        let chain = ancestor_join(model, resource, scope);
        let conditions = |first, by| row_conditions(model, dialect, resource, scope, (first, by));
        let where_all = |own: Option<String>, first: usize, by| {
            let (conditions, _) = conditions(first + chain.columns.len(), by);
            let terms = own.into_iter().chain(chain.terms(p, first));
            where_clause(&terms.chain(conditions).collect::<Vec<_>>())
        };
        let by_id = where_all(Some(format!("t0.\"id\" = {p}1")), 2, SelectedBy::Key);
        let whole = where_all(None, 2, SelectedBy::Condition);
        let after = where_all(Some(format!("t0.\"id\" > {p}2")), 3, SelectedBy::Condition);
        let (tested, condition_parameters) = conditions(2, SelectedBy::Key);
        if condition_parameters != conditions(2, SelectedBy::Condition).1 {
            fault::bug("a condition has the same parameters in both forms");
        }
        // Without conditions the ancestors need not be joined.
        let table = AncestorJoin::table(resource);
        let searched = if tested.is_empty() { &table } else { &chain.from };
        let anywhere = [&[format!("t0.\"id\" = {p}1")], tested.as_slice()].concat();
        let unique_conflict = |unique: &UniqueRule| {
            let columns = unique_columns(resource, unique);
            let same = columns.iter().zip(2..);
            let same =
                same.map(|(column, at)| equals_parameter(resource, ("t0.", column), at, dialect));
            let terms = [format!("t0.\"id\" <> {p}1")].into_iter().chain(same);
            let (conditions, _) = conditions(2 + columns.len(), SelectedBy::Key);
            let terms: Vec<_> = terms.chain(conditions).collect();
            format!("SELECT 1 FROM {searched}{} LIMIT 1", where_clause(&terms))
        };
        let (from, select) = (&chain.from, select_list(resource, "t0."));
        let Dialect { lock_for_update, lock_for_delete, .. } = dialect;
        Self {
            item: format!("SELECT {select} FROM {from}{by_id}"),
            item_for_update: format!("SELECT {select} FROM {from}{by_id}{lock_for_update}"),
            item_for_delete: format!("SELECT {select} FROM {from}{by_id}{lock_for_delete}"),
            exists: format!("SELECT 1 FROM {from}{by_id}"),
            exists_anywhere: format!("SELECT 1 FROM {searched}{}", where_clause(&anywhere)),
            item_anywhere: format!("SELECT {select} FROM {searched}{}", where_clause(&anywhere)),
            page: format!("SELECT {select} FROM {from}{whole} ORDER BY t0.\"id\" LIMIT {p}1"),
            page_after: format!("SELECT {select} FROM {from}{after} ORDER BY t0.\"id\" LIMIT {p}1"),
            flat: FlatStatements::new(model, dialect, resource, scope),
            unique_conflicts: resource.unique.iter().map(unique_conflict).collect(),
            condition_parameters,
        }
    }

    /// The parameters of the conditions.
    pub fn condition_binds<'a>(&'a self, scope: &'a AccessScope) -> impl Iterator<Item = Bind<'a>> {
        self.condition_parameters.iter().map(|parameter| parameter.bind(scope.user()))
    }
}
