//! The conditions of the rows that a caller may use, and of the question of an `exists`.

use super::search::write_search;
use super::{ConditionParameter, ConditionWriter, TableAlias, ThisRow};
use crate::model::expr::{Candidates, PathRoot, RelationStep};
use crate::model::{Expr, Model, OnDelete, Resource};
use crate::permit::{AccessScope, MemberQuestion};
use crate::store::sql::columns::{filters_ancestors, quote_name};
use crate::store::sql::dialect::Dialect;

/// The question of an `exists` for a row whose values are known: finds a row if the answer is yes.
pub fn member_statement(
    model: &Model,
    dialect: &'static Dialect,
    question: &MemberQuestion,
) -> (String, Vec<ConditionParameter>) {
    let MemberQuestion { test, candidates, .. } = question;
    let mut writer = ConditionWriter::new(model, dialect, 1);
    let resource = model.resource(test.resource);
    let this = Some(ThisRow::Values(question));
    let member = TableAlias { resource, alias: "t0", this };
    let mut condition = writer.operand(member, &test.condition, None).text;
    let limit = match candidates {
        Candidates::Only(id) => Some(("=", id)),
        Candidates::AllBut(id) => Some(("<>", id)),
        Candidates::All => None,
    };
    if let Some((sign, id)) = limit {
        let kind = writer.id_type(resource, PathRoot::Id);
        let id = writer.bind(ConditionParameter::Id(*id), kind).text;
        condition = format!("{condition} AND t0.\"id\" {sign} {id}");
    }
    let table = quote_name(&resource.table);
    (format!("SELECT 1 FROM {table} t0 WHERE {condition} LIMIT 1"), writer.parameters)
}

/// What selects the rows of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectedBy {
    /// Known ids or parents. The conditions are tested for each of these rows.
    Key,
    /// The conditions. The rows are searched by indexes.
    Condition,
}

/// The conditions of a scope, of the rows themselves and of their ancestors, and their parameters, which are the same
/// for both forms. Placeholders are numbered from `first`.
pub fn row_conditions(
    model: &Model,
    dialect: &'static Dialect,
    resource: &Resource,
    scope: &AccessScope,
    (first, by): (usize, SelectedBy),
) -> (Vec<String>, Vec<ConditionParameter>) {
    let mut terms = ConditionWriter::new(model, dialect, first);
    let conditions = write_row_conditions(&mut terms, resource, scope, by);
    (conditions, terms.parameters)
}

/// The same, as the first conditions of a statement.
pub fn write_row_conditions(
    terms: &mut ConditionWriter<'_>,
    resource: &Resource,
    scope: &AccessScope,
    by: SelectedBy,
) -> Vec<String> {
    let mut texts = Vec::new();
    for (depth, level) in terms.model.lineage(resource.index).into_iter().rev().enumerate() {
        let conditions = match depth {
            0 => &scope.access(level.index).row_filters,
            _ => &scope.read_access(level.index).row_filters,
        };
        let row = TableAlias { resource: level, alias: &format!("t{depth}"), this: None };
        texts.extend(any_of(terms, row, conditions, by));
    }
    texts
}

/// The disjunction of some conditions; `None` if there are none.
fn any_of(
    terms: &mut ConditionWriter<'_>,
    row: TableAlias<'_>,
    conditions: &[Expr],
    by: SelectedBy,
) -> Option<String> {
    let texts = conditions.iter().map(|one| match by {
        SelectedBy::Key => terms.operand(row, &one.root, None).text,
        SelectedBy::Condition => write_search(terms, row, &one.root, conditions.len() > 1),
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| format!("({})", texts.join(" OR ")))
}

/// The conditions of a row that GET shows to the caller: its own, and those of its ancestors.
pub fn visible_conditions(
    terms: &mut ConditionWriter<'_>,
    row: TableAlias<'_>,
    scope: &AccessScope,
) -> Vec<String> {
    let resource = row.resource;
    let filters = &scope.read_access(resource.index).row_filters;
    let own = any_of(terms, row, filters, SelectedBy::Condition);
    let mut all: Vec<String> = own.into_iter().collect();
    // Without a foreign key, a row does not prove that its parent exists.
    let is_decided_above = resource.on_delete == OnDelete::DeleteLater
        || filters_ancestors(terms.model, resource, scope);
    if let Some(parent) = resource.parent.filter(|_| is_decided_above) {
        let id = terms.model.resource(parent).id;
        let above = terms.follow(row, &RelationStep { by: PathRoot::Parent, to: parent, id });
        let parent = TableAlias { resource: above.resource, alias: &above.alias, this: None };
        let conditions = visible_conditions(terms, parent, scope);
        all.push(above.exists_with(&conditions));
    }
    all
}
