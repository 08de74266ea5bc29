//! Translation of the model's conditions into SQL.
//!
//! The text is true for exactly the rows for which the condition holds, and NULL where the condition is
//! absent, so that `not` means the same as in our own evaluator. Values are bound: each placeholder has its
//! `ConditionParameter`. The semantics are defined in `model::expr`; this module reproduces them.
//! Exact numbers of different scales are compared within 64-bit integers where the engine has nothing larger.

mod comparison;
mod relation_chain;
pub mod row_conditions;
mod search;

pub use relation_chain::RelatedRow;

use comparison::{ConditionOperand, compare_operands, is_among};
use relation_chain::RelationChain;

use crate::fault::{self, OrBug};
use crate::model::builtin;
use crate::model::expr::{
    Comparison, ExprNode, MemberTest, Path, PathRoot, RelatedPath, RelationStep, UserValues,
};
use crate::model::{Field, Model, Resource, StorageClass};
use crate::permit::MemberQuestion;
use crate::store::sql::columns::quote_name;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::expressions::OperandType;
use crate::store::statement::Bind;
use crate::value::{Decimal, Id, IdKind, Value};

/// The value of a placeholder.
#[derive(Debug, Clone, PartialEq)]
pub enum ConditionParameter {
    Value(Value),
    Id(Id),
    /// The name of the calling user, or NULL.
    User,
    /// A declared field of the calling user, or NULL.
    UserField(usize),
}

impl ConditionParameter {
    pub fn bind<'a>(&'a self, user: UserValues<'a>) -> Bind<'a> {
        match self {
            Self::Value(value) => Bind::value(value),
            Self::Id(id) => Bind::Id(*id),
            Self::User => Bind::optional_text(user.name),
            Self::UserField(at) => Bind::value(user.field(*at)),
        }
    }
}

/// Writes the conditions of one statement and collects their parameters.
#[derive(Debug)]
pub struct ConditionWriter<'m> {
    model: &'m Model,
    dialect: &'static Dialect,
    next: usize,
    /// How many tables of other items have an alias.
    aliases: usize,
    pub parameters: Vec<ConditionParameter>,
}

/// The alias of a resource's table in the statement.
#[derive(Debug, Clone, Copy)]
pub struct TableAlias<'a> {
    pub resource: &'a Resource,
    pub alias: &'a str,
    /// Inside `exists`, the row outside of it.
    pub this: Option<ThisRow<'a>>,
}

/// The row outside of an `exists`.
#[derive(Debug, Clone, Copy)]
pub enum ThisRow<'a> {
    Table(&'a TableAlias<'a>, &'a MemberTest),
    /// Its values, in the order of `MemberTest::this`.
    Values(&'a MemberQuestion),
}

impl<'m> ConditionWriter<'m> {
    /// Placeholders are numbered from `first`.
    pub fn new(model: &'m Model, dialect: &'static Dialect, first: usize) -> Self {
        Self { model, dialect, next: first, aliases: 0, parameters: Vec::new() }
    }

    fn bind(&mut self, term: ConditionParameter, kind: OperandType) -> ConditionOperand {
        let cast = (self.dialect.expressions.cast)(kind);
        let text = format!("{}{}{cast}", self.dialect.placeholder, self.next);
        self.next += 1;
        self.parameters.push(term);
        ConditionOperand { text, kind }
    }

    /// `other_type`: of what it is compared with, which decides the type of a literal.
    fn operand(
        &mut self,
        row: TableAlias<'_>,
        node: &ExprNode,
        other_type: Option<OperandType>,
    ) -> ConditionOperand {
        let truth = ConditionOperand::truth;
        match node {
            ExprNode::Literal(value) => self.literal(value, other_type),
            ExprNode::User => self.bind(ConditionParameter::User, OperandType::Text),
            ExprNode::UserField(at) => {
                let users = self.model.resource(self.model.users);
                let field = builtin::user_field(users, *at).or_bug("the model has checked it");
                self.bind(ConditionParameter::UserField(*at), self.operand_type(field))
            }
            ExprNode::Field(path) => self.field(row, path),
            ExprNode::Related(to) => self.related(row, to),
            ExprNode::This(at) => self.this(row, *at),
            ExprNode::Exists(test) => truth(self.exists(row, test)),
            ExprNode::Contains(list, value) => truth(self.contains(row, (list, value))),
            ExprNode::Not(inner) => truth(format!("(NOT {})", self.operand(row, inner, None).text)),
            ExprNode::And(left, right) => truth(self.join_operands(row, (left, right), "AND")),
            ExprNode::Or(left, right) => truth(self.join_operands(row, (left, right), "OR")),
            ExprNode::Compare(comparison, left, right) => {
                truth(self.compare(row, *comparison, (left, right)))
            }
            ExprNode::In(inner, among) => {
                let inner = self.operand(row, inner, None);
                let among = among.iter().map(|one| self.literal(one, Some(inner.kind)));
                let among: Vec<ConditionOperand> = among.collect();
                truth(is_among(self.dialect.expressions, &inner, &among))
            }
            ExprNode::Negate(_)
            | ExprNode::Arithmetic(..)
            | ExprNode::Sum(..)
            | ExprNode::Count(_)
            | ExprNode::Call(..) => {
                fault::bug("a condition has no arithmetic: the model refuses it")
            }
        }
    }

    fn join_operands(
        &mut self,
        row: TableAlias<'_>,
        (left, right): (&ExprNode, &ExprNode),
        word: &str,
    ) -> String {
        let left = self.operand(row, left, None).text;
        let right = self.operand(row, right, None).text;
        format!("({left} {word} {right})")
    }

    fn literal(&mut self, value: &Value, other_type: Option<OperandType>) -> ConditionOperand {
        let kind = match value {
            Value::Text(text) => {
                let id = IdKind::Uuid.parse(text).filter(|_| other_type == Some(OperandType::Uuid));
                if let Some(id) = id {
                    return self.bind(ConditionParameter::Id(id), OperandType::Uuid);
                }
                OperandType::Text
            }
            Value::Boolean(_) => OperandType::Boolean,
            Value::Integer(_) => OperandType::Units(0),
            Value::Decimal(Decimal { scale, .. }) => OperandType::Units(*scale),
            Value::Number(_) => OperandType::Real,
            Value::Moment(_) => OperandType::Moment,
            Value::Null
            | Value::Json(_)
            | Value::List(_)
            | Value::Object(_)
            | Value::ClearText(_) => fault::bug("the language of conditions has no such literal"),
        };
        self.bind(ConditionParameter::Value(value.clone()), kind)
    }

    fn field(&self, row: TableAlias<'_>, path: &Path) -> ConditionOperand {
        let index = match path.root {
            PathRoot::Field(index) => index,
            PathRoot::Id | PathRoot::Parent | PathRoot::Element => {
                let text = key_column(row.resource, row.alias, path.root);
                return ConditionOperand { text, kind: self.id_type(row.resource, path.root) };
            }
        };
        let column = row.resource.fields.get(index).or_bug(CHECKED);
        let field = column.inner(&path.inner).or_bug(CHECKED);
        let kind = self.operand_type(field);
        let name = format!("{}.{}", row.alias, quote_name(&column.name));
        let text = match path.inner.is_empty() {
            true => name,
            false => (self.dialect.expressions.json_member)(
                &name,
                &path.inner,
                (field.storage_class(), field.rules.scale),
            ),
        };
        ConditionOperand { text, kind }
    }

    /// A value of another item: a subselect by primary keys.
    fn related(&mut self, row: TableAlias<'_>, to: &RelatedPath) -> ConditionOperand {
        let (chain, resource) = self.chain(row, &to.steps);
        let end = TableAlias { resource, alias: &chain.last, this: None };
        let ConditionOperand { text, kind } = self.field(end, &to.path);
        ConditionOperand { text: chain.select(&text), kind }
    }

    /// The tables on the way to another item, and its resource.
    fn chain(
        &mut self,
        row: TableAlias<'_>,
        steps: &[RelationStep],
    ) -> (RelationChain, &'m Resource) {
        let (mut chain, mut end) = (RelationChain::default(), None);
        for step in steps {
            let (resource, alias) =
                end.map_or((row.resource, row.alias), |end| (end, &*chain.last));
            let next = self.follow(TableAlias { resource, alias, this: None }, step);
            let (table, join) = (next.table(), next.join());
            match end {
                None => {
                    chain.from = table;
                    (chain.key, chain.first) = (next.key.clone(), next.alias.clone());
                }
                Some(_) => chain.from = format!("{} JOIN {table} ON {join}", chain.from),
            }
            (chain.last, end) = (next.alias, Some(next.resource));
        }
        (chain, end.or_bug("a path to another item has a step"))
    }

    /// The row that a relation leads to.
    pub fn follow(&mut self, row: TableAlias<'_>, step: &RelationStep) -> RelatedRow<'m> {
        let key = key_column(row.resource, row.alias, step.by);
        RelatedRow { resource: self.model.resource(step.to), alias: self.next_alias(), key }
    }

    fn next_alias(&mut self) -> String {
        self.aliases += 1;
        format!("r{}", self.aliases)
    }

    /// A value of the row outside of `exists`.
    fn this(&mut self, row: TableAlias<'_>, at: usize) -> ConditionOperand {
        match row.this.or_bug("only `exists` has a row outside of it") {
            ThisRow::Table(outside, test) => {
                self.operand(*outside, test.this.get(at).or_bug(CHECKED), None)
            }
            ThisRow::Values(MemberQuestion { test, this, .. }) => {
                let outside = TableAlias {
                    resource: self.model.resource(test.row),
                    alias: "this",
                    this: None,
                };
                let node = test.this.get(at).or_bug(CHECKED);
                let kind = self.operand(outside, node, None).kind;
                let value = this.get(at).or_bug("a question has all values of the row");
                let id = IdKind::Uuid.read_value(value).filter(|_| kind == OperandType::Uuid);
                let value = id.map_or_else(
                    || ConditionParameter::Value(value.clone()),
                    ConditionParameter::Id,
                );
                self.bind(value, kind)
            }
        }
    }

    fn exists(&mut self, row: TableAlias<'_>, test: &MemberTest) -> String {
        let (resource, alias) = (self.model.resource(test.resource), self.next_alias());
        let this = Some(ThisRow::Table(&row, test));
        let member = TableAlias { resource, alias: &alias, this };
        let condition = self.operand(member, &test.condition, None).text;
        let table = quote_name(&resource.table);
        format!("EXISTS (SELECT 1 FROM {table} {alias} WHERE {condition})")
    }

    /// NULL where there is no list or no value.
    fn contains(&mut self, row: TableAlias<'_>, (list, value): (&ExprNode, &ExprNode)) -> String {
        let (list, element) = self.list(row, list);
        let words = self.dialect.expressions;
        // JSON has ids as texts.
        let kind = match self.operand_type(element) {
            OperandType::Uuid => OperandType::Text,
            kind => kind,
        };
        let member = ConditionOperand {
            text: (words.json_element)((element.storage_class(), element.rules.scale)),
            kind,
        };
        let value = self.operand(row, value, Some(kind));
        let is_equal = compare_operands(words, Comparison::Equal, (&member, &value));
        let elements = (words.json_elements)(&list, &[]);
        format!(
            "(CASE WHEN {list} IS NOT NULL AND {} IS NOT NULL THEN EXISTS (SELECT 1 FROM {elements} WHERE {is_equal}) END)",
            value.text
        )
    }

    /// A list, and its element type.
    fn list(&mut self, row: TableAlias<'_>, node: &ExprNode) -> (String, &'m Field) {
        let column = |resource: &'m Resource, path: &Path| {
            let PathRoot::Field(at) = path.root else { fault::bug(CHECKED) };
            let column = resource.fields.get(at).or_bug(CHECKED);
            (quote_name(&column.name), column.rules.element.as_deref().or_bug(CHECKED))
        };
        match node {
            ExprNode::Field(path) => {
                let (name, element) = column(self.model.resource(row.resource.index), path);
                (format!("{}.{name}", row.alias), element)
            }
            ExprNode::Related(to) => {
                let (chain, resource) = self.chain(row, &to.steps);
                let (name, element) = column(resource, &to.path);
                (chain.select(&format!("{}.{name}", chain.last)), element)
            }
            _ => fault::bug("the model allows only these as lists"),
        }
    }

    fn id_type(&self, resource: &Resource, root: PathRoot) -> OperandType {
        let of = match root {
            PathRoot::Parent => self.model.resource(resource.parent.or_bug(CHECKED)),
            PathRoot::Field(_) | PathRoot::Id | PathRoot::Element => resource,
        };
        match of.id {
            IdKind::Uuid if self.dialect.expressions.has_uuid => OperandType::Uuid,
            IdKind::Uuid => OperandType::Text,
            IdKind::Integer => OperandType::Units(0),
        }
    }

    fn operand_type(&self, field: &Field) -> OperandType {
        let is_uuid = |field: &Field| field.rules.reference.is_some_and(|to| to.id == IdKind::Uuid);
        match field.storage_class() {
            StorageClass::Text if self.dialect.expressions.has_uuid && is_uuid(field) => {
                OperandType::Uuid
            }
            StorageClass::Text => OperandType::Text,
            StorageClass::Integer => OperandType::Units(0),
            StorageClass::Decimal => OperandType::Units(field.rules.scale),
            StorageClass::Real => OperandType::Real,
            StorageClass::Boolean => OperandType::Boolean,
            StorageClass::Moment => OperandType::Moment,
            StorageClass::Json => fault::bug("a condition compares scalars: the model checks it"),
        }
    }

    fn compare(
        &mut self,
        row: TableAlias<'_>,
        comparison: Comparison,
        (left, right): (&ExprNode, &ExprNode),
    ) -> String {
        // The type of a literal depends on the other operand, so the other operand is written first.
        let (one, other) = if let ExprNode::Literal(_) = left {
            let other = self.operand(row, right, None);
            (self.operand(row, left, Some(other.kind)), other)
        } else {
            let one = self.operand(row, left, None);
            let other = self.operand(row, right, Some(one.kind));
            (one, other)
        };
        let plain = compare_operands(self.dialect.expressions, comparison, (&one, &other));
        let column = indexed_text_column(row.resource, left)
            .or_else(|| indexed_text_column(row.resource, right));
        let Some(column) = column.filter(|_| comparison == Comparison::Equal) else {
            return plain;
        };
        if one.kind != OperandType::Text || other.kind != OperandType::Text {
            return plain;
        }
        let start = |text: &str| (self.dialect.sort_prefix)(text, column.is_sorted_whole());
        match (start(&one.text), start(&other.text)) {
            // The index holds only a prefix of the text.
            (left, right) if left != one.text => format!("({left} = {right} AND {plain})"),
            _ => plain,
        }
    }
}

const CHECKED: &str = "the model has checked the fields of conditions";

/// The column with an id: the row's own, its parent's, or that of a `ref`.
fn key_column(resource: &Resource, alias: &str, root: PathRoot) -> String {
    let name = match root {
        PathRoot::Field(at) => &*resource.fields.get(at).or_bug(CHECKED).name,
        PathRoot::Parent => resource.parent_key.as_deref().or_bug(CHECKED),
        PathRoot::Id => "id",
        PathRoot::Element => fault::bug("a condition has no `sum`"),
    };
    format!("{alias}.{}", quote_name(name))
}

/// The text column that a node refers to, if it has an index.
fn indexed_text_column<'a>(resource: &'a Resource, node: &ExprNode) -> Option<&'a Field> {
    let ExprNode::Field(Path { root: PathRoot::Field(at), inner }) = node else { return None };
    let column = resource.fields.get(*at)?;
    let is_text = column.storage_class() == StorageClass::Text && column.rules.reference.is_none();
    (inner.is_empty() && column.filter && is_text).then_some(column)
}

#[cfg(test)]
pub mod tests;
