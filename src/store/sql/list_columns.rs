//! The columns of a resource as its lists select, filter and sort by them, made once for all lists.

use crate::intent::Attribute;
use crate::model::Resource;
use crate::store::sql::columns::select_list;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::expressions::OperandType;
use crate::store::sql::operand::{ListOperand, field_operand};
use crate::value::IdKind;

/// The alias of the list's own table.
pub const ITEM_ALIAS: &str = "t0";

/// With the alias of the list's own table.
#[derive(Debug)]
pub struct ListColumns {
    pub dialect: &'static Dialect,
    pub select: String,
    id: ListOperand,
    created_at: ListOperand,
    updated_at: ListOperand,
    /// In the order of the fields; `None` for those that no list filters or sorts by.
    fields: Vec<Option<ListOperand>>,
}

impl ListColumns {
    pub fn new(resource: &Resource, dialect: &'static Dialect) -> Self {
        let table = format!("{ITEM_ALIAS}.");
        let field = |field| field_operand(dialect, field, &[], &table);
        Self {
            dialect,
            select: select_list(resource, &table),
            id: ListOperand::column(ITEM_ALIAS, "id", id_kind(resource)),
            created_at: ListOperand::column(ITEM_ALIAS, "created_at", OperandType::Moment),
            updated_at: ListOperand::column(ITEM_ALIAS, "updated_at", OperandType::Moment),
            fields: resource.fields.iter().map(field).collect(),
        }
    }

    /// The operand of an attribute that is a whole column.
    pub fn operand(&self, attribute: &Attribute) -> Option<&ListOperand> {
        match attribute {
            Attribute::Id => Some(&self.id),
            Attribute::CreatedAt => Some(&self.created_at),
            Attribute::UpdatedAt => Some(&self.updated_at),
            Attribute::Field(at, inner) if inner.is_empty() => self.fields.get(*at)?.as_ref(),
            Attribute::Field(..) | Attribute::Ancestor(_) => None,
        }
    }
}

pub fn id_kind(resource: &Resource) -> OperandType {
    id_type(resource.id)
}

pub fn id_type(kind: IdKind) -> OperandType {
    match kind {
        IdKind::Uuid => OperandType::Uuid,
        IdKind::Integer => OperandType::Units(0),
    }
}
