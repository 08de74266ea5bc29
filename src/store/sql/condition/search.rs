//! Conditions of statements that search many rows.
//!
//! A condition on other items is a lookup for each row (`ConditionWriter`): right for one item, but a list would read
//! rows until it finds enough. Where indexes lead from the caller's value to the rows, the condition is a set instead:
//! `project IN (SELECT id FROM projects WHERE tenant = $1)`. Both are true for the same rows. A set may
//! be false where the lookup is NULL, and NULL where it is false, so this is for conditions that nothing negates.

use super::comparison::ConditionOperand;
use super::{ConditionWriter, TableAlias, ThisRow};
use crate::fault::OrBug;
use crate::model::expr::{ExprNode, MemberTest, Path};
use crate::model::row_filter_index::{self, RelatedComparison};
use crate::store::sql::columns::quote_name;

/// The text is true for the same rows as that of `ConditionWriter`, with the same parameters in the same order.
pub fn write_search(
    writer: &mut ConditionWriter<'_>,
    row: TableAlias<'_>,
    node: &ExprNode,
    is_alternative: bool,
) -> String {
    let set = match node {
        ExprNode::And(left, right) => {
            let left = write_search(writer, row, left, is_alternative);
            let right = write_search(writer, row, right, is_alternative);
            Some(format!("({left} AND {right})"))
        }
        ExprNode::Or(left, right) => {
            let left = write_search(writer, row, left, true);
            let right = write_search(writer, row, right, true);
            Some(format!("({left} OR {right})"))
        }
        ExprNode::Exists(test) => members(writer, row, test, is_alternative),
        _ => related(writer, row, node, is_alternative),
    };
    set.unwrap_or_else(|| writer.operand(row, node, None).text)
}

/// The rows that lead to an item with a value.
fn related(
    writer: &mut ConditionWriter<'_>,
    row: TableAlias<'_>,
    node: &ExprNode,
    is_alternative: bool,
) -> Option<String> {
    let RelatedComparison { to, condition } =
        row_filter_index::related_comparison(writer.model, node)?;
    let (chain, resource) = writer.chain(row, &to.steps);
    let end = TableAlias { resource, alias: &chain.last, this: None };
    let condition = writer.operand(end, &condition, None).text;
    Some(is_in(writer, &chain.key, &chain.select_first_ids(&condition), is_alternative))
}

/// The rows that the members lead to.
fn members(
    writer: &mut ConditionWriter<'_>,
    row: TableAlias<'_>,
    test: &MemberTest,
    is_alternative: bool,
) -> Option<String> {
    let link = row_filter_index::member_link(writer.model, test)?;
    let resource = writer.model.resource(test.resource);
    let alias = writer.next_alias();
    let member = TableAlias { resource, alias: &alias, this: Some(ThisRow::Table(&row, test)) };
    let column = writer.field(member, link.column);
    let rest = link.rest.iter().map(|part| writer.operand(member, part, None).text);
    let rest = rest.collect::<Vec<_>>().join(" AND ");
    let table = quote_name(&resource.table);
    let select = format!("SELECT {} FROM {table} {alias} WHERE {rest}", column.text);
    let key = |writer: &ConditionWriter<'_>, at: TableAlias<'_>, path: &Path| {
        let ConditionOperand { text, kind } = writer.field(at, path);
        (kind == column.kind).then_some(text).or_bug("ids of one resource have one type")
    };
    Some(match link.this {
        ExprNode::Related(to) => {
            let (chain, resource) = writer.chain(row, &to.steps);
            let end = TableAlias { resource, alias: &chain.last, this: None };
            let condition = format!("{} IN ({select})", key(writer, end, &to.path));
            is_in(writer, &chain.key, &chain.select_first_ids(&condition), is_alternative)
        }
        ExprNode::Field(path) => {
            let key = key(writer, row, path);
            is_in(writer, &key, &select, is_alternative)
        }
        _ => return None,
    })
}

/// PostgreSQL joins with the set of `IN`, but an index serves an alternative of `OR` only where it is an array.
fn is_in(writer: &ConditionWriter<'_>, key: &str, select: &str, is_alternative: bool) -> String {
    match is_alternative && writer.dialect.has_arrays {
        true => format!("({key} = ANY (ARRAY({select})))"),
        false => format!("({key} IN ({select}))"),
    }
}
