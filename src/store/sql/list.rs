//! Keyset pagination: the statements of one filtered and sorted list, made for its query.
//!
//! Every value is bound. Where the first sort key may be NULL, a page is read in two sections, the items with
//! the key and those without, so that each section is one range of the index, however the engine sorts NULL.

mod filter;
mod related_rows;
mod statement_builder;

use related_rows::RelatedRows;
use statement_builder::StatementBuilder;

use crate::fault::{self, OrBug};
use crate::intent::{
    Attribute, AttributeTest, ListQuery, PathForm, SortKey, excludes_null, is_index_range, tests_in,
};
use crate::model::derivation::Derivation;
use crate::model::{Model, Resource};
use crate::permit::AccessScope;
use crate::plan::Collection;
use crate::store::sql::columns::{
    AncestorJoin, ancestor_join, flat_join, select_list, where_clause,
};
use crate::store::sql::condition::row_conditions::{SelectedBy, write_row_conditions};
use crate::store::sql::condition::{ConditionParameter, ConditionWriter, TableAlias};
use crate::store::sql::derived::DerivedColumn;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::expressions::OperandType;
use crate::store::sql::operand::{ListOperand, field_operand};
use crate::store::statement::{Bind, Statement};
use crate::value::{Id, IdKind, Value};

/// Which items of a list a statement reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListSection {
    /// The first sort key is never NULL, or there is none.
    All,
    KeyPresent,
    KeyAbsent,
    /// Items whose first sort key equals that of the cursor, and items beyond it.
    KeyEqual,
    KeyBeyond,
    /// All items, although the first sort key may be NULL.
    Unsplit,
}

/// The statements of one list.
#[derive(Debug)]
pub struct ListStatements<'a> {
    dialect: &'static Dialect,
    resource: &'a Resource,
    list: &'a ListQuery,
    scope: &'a AccessScope,
    select: String,
    from: String,
    /// The columns with the ids of the ancestors, from the nearest, as far as they are joined.
    ancestor_columns: Vec<String>,
    scope_conditions: Vec<String>,
    /// Of the conditions of the scope, then of those of related rows.
    parameters: Vec<ConditionParameter>,
    /// The conditions of the path; their parameters follow.
    path_conditions: Vec<String>,
    ancestor_ids: Vec<Id>,
    /// The related rows that filters test.
    related: Vec<RelatedRows<'a>>,
    sort: Vec<SortColumn<'a>>,
}

/// A sort key with its column.
#[derive(Debug)]
struct SortColumn<'a> {
    key: &'a SortKey,
    operand: ListOperand,
}

/// The alias of the list's own table.
const ITEM_ALIAS: &str = "t0";

impl<'a> ListStatements<'a> {
    pub fn new(
        model: &'a Model,
        dialect: &'static Dialect,
        collection: &'a Collection,
        list: &'a ListQuery,
        by: SelectedBy,
    ) -> Self {
        Self::build(model, dialect, collection, list, (by, 0))
    }

    /// The same for a flat collection, with the ids of the ancestors above the parent after the columns of an item.
    pub fn located(
        model: &'a Model,
        dialect: &'static Dialect,
        collection: &'a Collection,
        list: &'a ListQuery,
        by: SelectedBy,
    ) -> Self {
        let above = model.resource(collection.resource).depth.saturating_sub(1);
        let mut listing = Self::build(model, dialect, collection, list, (by, above));
        for column in listing.ancestor_columns.iter().skip(1).take(above) {
            listing.select.push_str(", ");
            listing.select.push_str(column);
        }
        listing
    }

    /// With the rows of at least `joined` ancestors, of a flat collection.
    fn build(
        model: &'a Model,
        dialect: &'static Dialect,
        collection: &'a Collection,
        list: &'a ListQuery,
        (by, joined): (SelectedBy, usize),
    ) -> Self {
        let Collection { resource, form, ancestors, scope } = collection;
        let resource = model.resource(*resource);
        let mut terms = ConditionWriter::new(model, dialect, 1);
        let scope_conditions = write_row_conditions(&mut terms, resource, scope, by);
        let item = TableAlias { resource, alias: ITEM_ALIAS, this: None };
        let mut related: Vec<RelatedRows<'a>> = Vec::new();
        for AttributeTest { relations, .. } in tests_in(&list.filters) {
            if !relations.is_empty() && !related.iter().any(|rows| rows.are_reached_by(relations)) {
                related.push(RelatedRows::new(&mut terms, item, relations, scope));
            }
        }
        let parameters = terms.parameters;
        let (chain, path_conditions) = match form {
            PathForm::Nested => {
                let chain = ancestor_join(model, resource, scope);
                let conditions = chain.terms(dialect.placeholder, parameters.len() + 1).collect();
                (chain, conditions)
            }
            PathForm::Flat => {
                let joined = joined.max(ancestors_filtered_by(list));
                (flat_join(model, resource, scope, joined), Vec::new())
            }
        };
        let AncestorJoin { from, columns } = chain;
        let ancestor_ids = ancestors.iter().rev().copied().collect();
        let mut listing = Self {
            dialect,
            resource,
            list,
            scope,
            select: select_list(resource, "t0."),
            from,
            ancestor_columns: columns,
            scope_conditions,
            parameters,
            path_conditions,
            ancestor_ids,
            related,
            sort: Vec::new(),
        };
        let column = |key| SortColumn { key, operand: listing.sort_operand(key) };
        listing.sort = list.sort.iter().map(column).collect();
        listing
    }

    /// The sections of a page in order. The next one is read when the ones before have too few items.
    pub fn sections(&self) -> Vec<ListSection> {
        let ListQuery { after, sort, .. } = self.list;
        let Some(SortColumn { key: first, operand }) = self.sort.first() else {
            return vec![ListSection::All];
        };
        let after = after.as_ref().and_then(|after| after.values.first());
        let is_behind_absent = after.map(Value::is_null);
        let has_absent = first.attribute.can_be_null(self.resource)
            && !excludes_null(self.list, &first.attribute);
        let is_pair = sort.len() == 1 && first.is_descending == self.list.is_id_descending;
        let is_split = is_pair && operand.is_expression && !self.dialect.can_index_expression_rows;
        let present: &[ListSection] = match (is_behind_absent, has_absent) {
            (Some(false), _) if is_split => &[ListSection::KeyEqual, ListSection::KeyBeyond],
            (_, false) => &[ListSection::All],
            (_, true) => &[ListSection::KeyPresent],
        };
        // NULL sorts above every value.
        match (is_behind_absent, first.is_descending) {
            _ if !has_absent => present.to_vec(),
            (None | Some(false), false) => [present, &[ListSection::KeyAbsent]].concat(),
            (None | Some(true), true) => [&[ListSection::KeyAbsent], present].concat(),
            (Some(true), false) => vec![ListSection::KeyAbsent],
            (Some(false), true) => present.to_vec(),
        }
    }

    pub fn page(&self, section: ListSection, limit: i64) -> Statement<'_> {
        let mut writer = self.builder();
        // SQLite searches by the first bound of a column in the text, so that the cursor goes before the filters.
        let cursor = self.cursor_conditions(&mut writer, section);
        let all = [self.fixed_conditions(), cursor, self.filter_conditions(&mut writer)].concat();
        let (select, from, order) = (&self.select, &self.from, self.order_by(section));
        let limit = writer.bind(Bind::Integer(limit), OperandType::Units(0));
        let condition = where_clause(&all);
        let text = format!("SELECT {select} FROM {from}{condition} ORDER BY {order} LIMIT {limit}");
        match is_index_range(self.list, self.resource) && self.scope_conditions.is_empty() {
            true => Statement::of_range(text, writer.into_binds()),
            false => Statement::of_list(text, writer.into_binds()),
        }
    }

    /// The first items of each of these parents, of a flat collection, where the engine has lateral joins. It reads as
    /// many rows of a parent as it returns, if an index has their order.
    pub fn of_parents(&self, parents: &[Id], limit: i64) -> Statement<'_> {
        let mut writer = self.builder();
        let mut all = self.conditions(&mut writer);
        let (column, kind) = self.parent_column();
        all.push(format!("{column} = p.id"));
        let parents = parents.iter().map(|id| writer.bind(Bind::Id(*id), kind));
        let parents = parents.map(|id| format!("({id})")).collect::<Vec<_>>().join(", ");
        let limit = writer.bind(Bind::Integer(limit), OperandType::Units(0));
        let (select, order) = (&self.select, self.order_by(ListSection::Unsplit));
        let from = format!("FROM {}{}", self.from, where_clause(&all));
        let first = format!("{from} ORDER BY {order} LIMIT {limit}");
        let keys = self.sort.iter().filter(|sort| sort.key.attribute.has_sort_key(self.resource));
        let keys = keys.map(|sort| format!(", {}", sort.operand.indexed_text)).collect::<String>();
        let text = format!(
            "SELECT {select} FROM (VALUES {parents}) p(id) \
             CROSS JOIN LATERAL (SELECT {select}{keys} {first}) t0 ORDER BY {order}"
        );
        Statement::uncached(text, writer.into_binds())
    }

    /// The first items of one parent, of a flat collection.
    pub fn of_parent(&self, parent: Id, limit: i64) -> Statement<'_> {
        let mut writer = self.builder();
        let mut all = self.conditions(&mut writer);
        let (column, kind) = self.parent_column();
        all.push(format!("{column} = {}", writer.bind(Bind::Id(parent), kind)));
        let limit = writer.bind(Bind::Integer(limit), OperandType::Units(0));
        let (select, from, order) = (&self.select, &self.from, self.order_by(ListSection::Unsplit));
        let condition = where_clause(&all);
        let text = format!("SELECT {select} FROM {from}{condition} ORDER BY {order} LIMIT {limit}");
        Statement::of_list(text, writer.into_binds())
    }

    fn parent_column(&self) -> (&str, OperandType) {
        let key = self.ancestor_columns.first().zip(self.resource.ancestor_keys.first());
        let (column, key) = key.or_bug("only a nested resource has parents");
        (column, id_type(key.id))
    }

    /// The items with these ids.
    pub fn with_ids(&self, ids: &[Id]) -> Statement<'_> {
        let mut writer = self.builder();
        let mut all = self.conditions(&mut writer);
        let ids = ids.iter().map(|id| writer.bind(Bind::Id(*id), id_kind(self.resource)));
        all.push(format!("t0.\"id\" IN ({})", ids.collect::<Vec<_>>().join(", ")));
        let text = format!("SELECT {} FROM {}{}", self.select, self.from, where_clause(&all));
        Statement::uncached(text, writer.into_binds())
    }

    /// Counts the items of all pages.
    pub fn count(&self) -> Statement<'_> {
        let mut writer = self.builder();
        let all = self.conditions(&mut writer);
        Statement::of_list(
            format!("SELECT count(*) FROM {}{}", self.from, where_clause(&all)),
            writer.into_binds(),
        )
    }

    fn builder(&self) -> StatementBuilder<'_> {
        let terms = self.parameters.iter().map(|term| term.bind(self.scope.user()));
        let binds = terms.chain(self.ancestor_ids.iter().map(|id| Bind::Id(*id))).collect();
        StatementBuilder::new(self.dialect, binds)
    }

    /// All conditions but those of the cursor.
    fn conditions<'s>(&'s self, writer: &mut StatementBuilder<'s>) -> Vec<String> {
        [self.fixed_conditions(), self.filter_conditions(writer)].concat()
    }

    /// Those of the scope and of the path.
    fn fixed_conditions(&self) -> Vec<String> {
        self.scope_conditions.iter().chain(&self.path_conditions).cloned().collect()
    }

    fn filter_conditions<'s>(&'s self, writer: &mut StatementBuilder<'s>) -> Vec<String> {
        self.list.filters.iter().map(|term| self.filter(writer, term)).collect()
    }

    /// An attribute of the items.
    fn operand(&self, attribute: &Attribute) -> ListOperand {
        match attribute {
            Attribute::Ancestor(at) => {
                let (columns, keys) = (&self.ancestor_columns, &self.resource.ancestor_keys);
                let (column, key) = columns
                    .get(*at)
                    .zip(keys.get(*at))
                    .or_bug("the ancestors that a list filters by are joined");
                ListOperand::expression(column, id_type(key.id))
            }
            attribute => self.operand_of(self.item(), attribute),
        }
    }

    /// An attribute of a row.
    fn operand_of(&self, row: TableAlias<'_>, attribute: &Attribute) -> ListOperand {
        let TableAlias { resource, alias, .. } = row;
        match attribute {
            Attribute::Id => ListOperand::column(alias, "id", id_kind(resource)),
            Attribute::CreatedAt => ListOperand::column(alias, "created_at", OperandType::Moment),
            Attribute::UpdatedAt => ListOperand::column(alias, "updated_at", OperandType::Moment),
            Attribute::Ancestor(_) => fault::bug("only the items of a list have ancestors"),
            Attribute::Field(at, inner) => {
                let column = resource.fields.get(*at);
                let table = format!("{alias}.");
                let found =
                    column.and_then(|column| field_operand(self.dialect, column, inner, &table));
                found.or_bug("the parser of the query has checked the field against the model")
            }
        }
    }

    /// An attribute of the items, as they are sorted by it.
    fn sort_operand(&self, SortKey { attribute, .. }: &SortKey) -> ListOperand {
        match attribute.has_sort_key(self.resource) {
            true => derived_operand(self.item(), attribute, Derivation::SortKey),
            false => self.operand(attribute),
        }
    }

    /// The row of an item.
    fn item(&self) -> TableAlias<'a> {
        TableAlias { resource: self.resource, alias: ITEM_ALIAS, this: None }
    }

    /// The conditions of the cursor: items after the last one of the previous page.
    fn cursor_conditions<'s>(
        &'s self,
        writer: &mut StatementBuilder<'s>,
        section: ListSection,
    ) -> Vec<String> {
        let after = &self.list.after;
        let first = self.sort.first().map(|sort| &sort.operand.indexed_text);
        let mut all = Vec::new();
        match (section, first) {
            (ListSection::KeyPresent, Some(first)) => all.push(format!("{first} IS NOT NULL")),
            (ListSection::KeyAbsent, Some(first)) => all.push(format!("{first} IS NULL")),
            (_, _) => {}
        }
        let Some(after) = after else { return all };
        let keys: Vec<(&SortColumn<'_>, &Value)> = self.sort.iter().zip(&after.values).collect();
        match (section, keys.as_slice()) {
            // Items without the key come after all items with it.
            (ListSection::KeyAbsent, [(_, value), ..]) if !value.is_null() => {}
            (ListSection::KeyPresent, [(_, value), ..]) if value.is_null() => {}
            (ListSection::KeyAbsent, [_, rest @ ..]) => {
                all.push(self.after_cursor(writer, rest, after.id));
            }
            (
                ListSection::KeyEqual | ListSection::KeyBeyond,
                [(SortColumn { key, operand }, value)],
            ) => {
                let is_same = section == ListSection::KeyEqual;
                let sign = if is_same { "=" } else { direction_operator(key.is_descending) };
                all.push(format!(
                    "{} {sign} {}",
                    operand.indexed_text,
                    writer.value(operand, value)
                ));
                if is_same {
                    all.push(self.after_cursor(writer, &[], after.id));
                }
            }
            (_, [(SortColumn { key, operand }, value)])
                if key.is_descending == self.list.is_id_descending =>
            {
                let value = writer.value(operand, value);
                let id = writer.bind(Bind::Id(after.id), id_kind(self.resource));
                let (key, sign) = (&operand.indexed_text, direction_operator(key.is_descending));
                all.push(format!("({key}, t0.\"id\") {sign} ({value}, {id})"));
            }
            (_, keys) => {
                // A coarse condition that the index can serve, then the exact one.
                if let Some((SortColumn { key, operand }, value)) = keys.first() {
                    let value = writer.value(operand, value);
                    all.push(format!(
                        "{} {}= {value}",
                        operand.indexed_text,
                        direction_operator(key.is_descending)
                    ));
                }
                all.push(self.after_cursor(writer, keys, after.id));
            }
        }
        all
    }

    fn after_cursor<'s>(
        &'s self,
        writer: &mut StatementBuilder<'s>,
        keys: &[(&SortColumn<'_>, &'s Value)],
        id: Id,
    ) -> String {
        let Some(((SortColumn { key, operand }, value), rest)) = keys.split_first() else {
            let sign = direction_operator(self.list.is_id_descending);
            return format!(
                "t0.\"id\" {sign} {}",
                writer.bind(Bind::Id(id), id_kind(self.resource))
            );
        };
        let column = &operand.indexed_text;
        // NULL sorts above every value.
        let (further, same) = match (value.is_null(), key.is_descending) {
            (true, true) => (Some(format!("{column} IS NOT NULL")), format!("{column} IS NULL")),
            (true, false) => (None, format!("{column} IS NULL")),
            (false, is_descending) => {
                let further = writer.value(operand, value);
                let further = format!("{column} {} {further}", direction_operator(is_descending));
                let same = format!("{column} = {}", writer.value(operand, value));
                match !is_descending && key.attribute.can_be_null(self.resource) {
                    true => (Some(format!("{further} OR {column} IS NULL")), same),
                    false => (Some(further), same),
                }
            }
        };
        let rest = self.after_cursor(writer, rest, id);
        match further {
            Some(further) => format!("({further} OR ({same} AND {rest}))"),
            None => format!("({same} AND {rest})"),
        }
    }

    fn order_by(&self, section: ListSection) -> String {
        let mut keys: Vec<String> = Vec::with_capacity(self.sort.len() + 1);
        let is_one = matches!(section, ListSection::KeyAbsent | ListSection::KeyEqual);
        let is_needless = is_one && !self.dialect.is_null_sort_key_needed;
        let sort = self.sort.iter().enumerate().skip(usize::from(is_needless));
        for (number, SortColumn { key, operand }) in sort {
            let column = &operand.indexed_text;
            // Within a section, the first key is NULL in all rows or in none.
            let is_plain = number == 0
                && (section != ListSection::Unsplit || !key.attribute.can_be_null(self.resource));
            let absent = match (is_plain, key.is_descending) {
                (true, true) => " DESC",
                (true, false) => "",
                (_, true) => " DESC NULLS FIRST",
                (_, false) => " NULLS LAST",
            };
            keys.push(format!("{column}{absent}"));
        }
        keys.push(format!("t0.\"id\"{}", if self.list.is_id_descending { " DESC" } else { "" }));
        keys.join(", ")
    }
}

/// How many ancestors, from the nearest, have to be joined for the filters. The row itself has the id of its parent.
fn ancestors_filtered_by(list: &ListQuery) -> usize {
    let joined = tests_in(&list.filters).into_iter().filter_map(|test| match test.attribute {
        Attribute::Ancestor(at) => Some(at),
        _ => None,
    });
    joined.max().unwrap_or(0)
}

/// The column of a text that is derived from a field.
fn derived_operand(
    TableAlias { resource, alias, .. }: TableAlias<'_>,
    attribute: &Attribute,
    derivation: Derivation,
) -> ListOperand {
    let column = match attribute {
        Attribute::Field(at, _) => resource.fields.get(*at),
        _ => None,
    };
    let field = column.or_bug("only fields have derived texts");
    let derived = DerivedColumn { at: 0, field, derivation };
    ListOperand::column(alias, &derived.name(), OperandType::Text)
}

fn id_kind(resource: &Resource) -> OperandType {
    id_type(resource.id)
}

fn id_type(kind: IdKind) -> OperandType {
    match kind {
        IdKind::Uuid => OperandType::Uuid,
        IdKind::Integer => OperandType::Units(0),
    }
}

fn direction_operator(is_descending: bool) -> &'static str {
    if is_descending { "<" } else { ">" }
}

#[cfg(test)]
mod flat_tests;
#[cfg(test)]
mod related_tests;
#[cfg(test)]
mod relation_filter_tests;
#[cfg(test)]
mod row_rule_tests;
#[cfg(test)]
mod test_plans;
#[cfg(test)]
mod tests;
