//! The filters of a list as SQL conditions.
//!
//! `intent` defines their meaning; this module writes them in a form that the indexes can serve.
//! An index holds a prefix of a long text, so a condition may appear twice, for the prefix and for the whole
//! text.

use crate::fault::OrBug as _;
use crate::intent::{
    Attribute, AttributeTest, Filter, FilterTest, is_longer_than_index, sort_prefix,
};
use crate::model::derivation::Derivation;
use crate::model::expr::Comparison;
use crate::store::sql::columns::quote_name;
use crate::store::sql::condition::TableAlias;
use crate::store::sql::ddl::link_table;
use crate::store::sql::expressions::comparison_operator;
use crate::store::sql::list::{
    ListStatements, StatementBuilder, derived_operand, id_kind, id_type,
};
use crate::store::sql::operand::{ListOperand, element_operand};
use crate::store::statement::Bind;
use crate::value::{Id, IdKind, Value};

impl ListStatements<'_> {
    /// The condition is true where the filter holds. Elsewhere it is false or NULL, which `IS NOT TRUE` inverts alike.
    pub fn filter<'s>(&'s self, writer: &mut StatementBuilder<'s>, filter: &'s Filter) -> String {
        self.filter_is(writer, filter, true)
    }

    /// The condition is true where the filter holds, or where it does not hold. With related items that the caller
    /// cannot see neither is true, so that the opposite of such a filter is not made from it.
    fn filter_is<'s>(
        &'s self,
        writer: &mut StatementBuilder<'s>,
        filter: &'s Filter,
        holds: bool,
    ) -> String {
        if !holds && !filter.reads_related() {
            return format!("({}) IS NOT TRUE", self.filter(writer, filter));
        }
        let mut join = |filters: &'s [Filter], word: &str| {
            let all = filters.iter().map(|filter| self.filter_is(writer, filter, holds));
            format!("({})", all.collect::<Vec<_>>().join(word))
        };
        match filter {
            Filter::All(filters) => join(filters, if holds { " AND " } else { " OR " }),
            Filter::Any(filters) => join(filters, if holds { " OR " } else { " AND " }),
            Filter::Not(filter) => self.filter_is(writer, filter, !holds),
            Filter::Test(test) if test.relations.is_empty() => {
                let operand = self.operand(&test.attribute);
                self.test(writer, self.item(), &operand, test)
            }
            Filter::Test(test) => self.related_test(writer, test, holds),
        }
    }

    /// An item without a related one has no value.
    fn related_test<'s>(
        &'s self,
        writer: &mut StatementBuilder<'s>,
        test: &'s AttributeTest,
        holds: bool,
    ) -> String {
        let rows = self.related.iter().find(|rows| rows.are_reached_by(&test.relations));
        let rows = rows.or_bug("the rows of all filters are known");
        let operand = self.operand_of(rows.last(), &test.attribute);
        let condition = self.test(writer, rows.last(), &operand, test);
        let is_absence = test.test == FilterTest::Exists(false);
        match holds {
            true => rows.have(condition, is_absence),
            false => rows.have(format!("({condition}) IS NOT TRUE"), !is_absence),
        }
    }

    fn test<'s>(
        &'s self,
        writer: &mut StatementBuilder<'s>,
        row: TableAlias<'_>,
        operand: &ListOperand,
        test: &'s AttributeTest,
    ) -> String {
        let ListOperand { text: whole, indexed_text: begin, .. } = operand;
        let mut bound = |comparison, value: &'s Value| {
            let meant = compare(writer, operand, comparison, value);
            match created_at_id_range(writer, row, (&test.attribute, comparison), value) {
                Some(range) => format!("({range} AND {meant})"),
                None => meant,
            }
        };
        match &test.test {
            FilterTest::Exists(true) => format!("{begin} IS NOT NULL"),
            FilterTest::Exists(false) => format!("{begin} IS NULL"),
            FilterTest::Contains(part) => {
                let part = writer.text(part);
                format!("{}({whole}, {part}) > 0", self.dialect.expressions.position_function)
            }
            FilterTest::Match(part) => {
                let folded = derived_operand(row, &test.attribute, Derivation::Folded);
                let part = writer.text(&part.folded);
                let position = self.dialect.expressions.position_function;
                format!("{position}({}, {part}) > 0", folded.text)
            }
            FilterTest::Prefix(from, to) if operand.is_prefix && is_longer_than_index(from) => {
                let first = writer.text(sort_prefix(from));
                let range = prefix_range(writer, whole, (from, to.as_deref()));
                format!("({begin} = {first} AND {range})")
            }
            FilterTest::Prefix(from, to) => {
                format!("({})", prefix_range(writer, begin, (from, to.as_deref())))
            }
            FilterTest::Compare(comparison, value) => bound(*comparison, value),
            FilterTest::Between(from, to) => format!(
                "({} AND {})",
                bound(Comparison::GreaterOrEqual, from),
                bound(Comparison::LessOrEqual, to)
            ),
            FilterTest::Has(value) => self.has_element(writer, row, (&test.attribute, value)),
            FilterTest::In(values) => {
                let is_long = |value: &Value| matches!(value, Value::Text(text) if is_longer_than_index(text));
                let all = in_list(writer, operand, values, |text| text);
                match operand.is_prefix && values.iter().any(is_long) {
                    true => {
                        let begins = in_list(writer, operand, values, sort_prefix);
                        format!("({begin} IN ({begins}) AND {whole} IN ({all}))")
                    }
                    false => format!("{begin} IN ({all})"),
                }
            }
        }
    }

    /// Whether a list has an element. References are found by their links; no index has the elements of other lists.
    fn has_element<'s>(
        &'s self,
        writer: &mut StatementBuilder<'s>,
        TableAlias { resource, alias, .. }: TableAlias<'_>,
        (attribute, value): (&Attribute, &'s Value),
    ) -> String {
        let found = match attribute {
            Attribute::Field(at, inner) => resource.fields.get(*at).zip(Some(inner)),
            _ => None,
        };
        if let Some((column, _)) = found
            && let Some(target) = column.many_references()
        {
            let operand = ListOperand::expression("\"target\"", id_type(target.id));
            let (value, table) = (writer.value(&operand, value), link_table(resource, column));
            let table = quote_name(&table);
            return format!(
                "{alias}.\"id\" IN (SELECT \"item\" FROM {table} WHERE \"target\" = {value})"
            );
        }
        let table = format!("{alias}.");
        let found =
            found.and_then(|(column, inner)| element_operand(self.dialect, column, inner, &table));
        let (from, operand) = found.or_bug("the parser of the query has checked the field");
        let value = writer.value(&operand, value);
        format!("EXISTS (SELECT 1 FROM {from} WHERE {} = {value})", operand.text)
    }
}

/// A condition on `created_at` as a range of UUIDv7 ids, which begin with the time: the id has an index.
fn created_at_id_range(
    writer: &mut StatementBuilder<'_>,
    TableAlias { resource, alias, .. }: TableAlias<'_>,
    (attribute, comparison): (&Attribute, Comparison),
    value: &Value,
) -> Option<String> {
    let Value::Moment(moment) = value else { return None };
    if *attribute != Attribute::CreatedAt || resource.id != IdKind::Uuid {
        return None;
    }
    let (first, last) = Id::range_at(*moment);
    let mut at = |sign: &str, id| {
        let id = writer.bind(Bind::Id(id), id_kind(resource));
        format!("{alias}.\"id\" {sign} {id}")
    };
    match comparison {
        Comparison::Equal => Some(format!("{} AND {}", at(">=", first), at("<=", last))),
        Comparison::Greater | Comparison::GreaterOrEqual => Some(at(">=", first)),
        Comparison::Less | Comparison::LessOrEqual => Some(at("<=", last)),
        Comparison::NotEqual => None,
    }
}

fn compare<'s>(
    writer: &mut StatementBuilder<'s>,
    operand: &ListOperand,
    comparison: Comparison,
    value: &'s Value,
) -> String {
    let ListOperand { text: whole, indexed_text: begin, .. } = operand;
    let sign = comparison_operator(comparison);
    let Some(long) = truncated_text(operand, value) else {
        return format!("{begin} {sign} {}", writer.value(operand, value));
    };
    let bound = writer.value(operand, value);
    let coarse = match comparison {
        Comparison::NotEqual => return format!("{whole} {sign} {bound}"),
        Comparison::Equal => "=",
        Comparison::Less | Comparison::LessOrEqual => "<=",
        Comparison::Greater | Comparison::GreaterOrEqual => ">=",
    };
    format!("({begin} {coarse} {} AND {whole} {sign} {bound})", writer.text(sort_prefix(long)))
}

/// The text, if the index holds only a prefix of it.
fn truncated_text<'v>(operand: &ListOperand, value: &'v Value) -> Option<&'v str> {
    match value {
        Value::Text(text) if operand.is_prefix && is_longer_than_index(text) => Some(text),
        _ => None,
    }
}

fn in_list<'s>(
    writer: &mut StatementBuilder<'s>,
    operand: &ListOperand,
    values: &'s [Value],
    part: fn(&str) -> &str,
) -> String {
    let all = values.iter().map(|value| match value {
        Value::Text(text) if operand.is_prefix => writer.text(part(text)),
        value => writer.value(operand, value),
    });
    all.collect::<Vec<_>>().join(", ")
}

fn prefix_range<'s>(
    writer: &mut StatementBuilder<'s>,
    column: &str,
    (from, to): (&'s str, Option<&'s str>),
) -> String {
    let from = format!("{column} >= {}", writer.text(from));
    match to {
        Some(to) => format!("{from} AND {column} < {}", writer.text(to)),
        None => from,
    }
}

#[cfg(test)]
mod tests;
