//! Builds the statements of a list.

use crate::store::sql::dialect::Dialect;
use crate::store::sql::expressions::OperandType;
use crate::store::sql::operand::ListOperand;
use crate::store::statement::Bind;
use crate::value::{IdKind, Value};

/// Builds a statement and collects its parameters.
pub struct StatementBuilder<'s> {
    dialect: &'static Dialect,
    binds: Vec<Bind<'s>>,
}

impl<'s> StatementBuilder<'s> {
    pub fn new(dialect: &'static Dialect, binds: Vec<Bind<'s>>) -> Self {
        Self { dialect, binds }
    }

    pub fn into_binds(self) -> Vec<Bind<'s>> {
        self.binds
    }

    pub fn bind(&mut self, bind: Bind<'s>, kind: OperandType) -> String {
        self.binds.push(bind);
        let (p, cast) = (self.dialect.placeholder, (self.dialect.expressions.cast)(kind));
        format!("{p}{}{cast}", self.binds.len())
    }

    pub fn value(&mut self, operand: &ListOperand, value: &'s Value) -> String {
        self.bind(bind(operand, value), operand.kind)
    }

    pub fn text(&mut self, text: &'s str) -> String {
        self.bind(Bind::Text(text), OperandType::Text)
    }
}

fn bind<'v>(operand: &ListOperand, value: &'v Value) -> Bind<'v> {
    match value {
        Value::Text(text) if operand.kind == OperandType::Uuid => {
            IdKind::Uuid.parse(text).map_or(Bind::Null, Bind::Id)
        }
        Value::Moment(moment) if operand.is_canonical_text => Bind::MomentText(*moment),
        value => Bind::value(value),
    }
}
