//! The tables that a path in a condition joins.

use crate::model::Resource;
use crate::store::sql::columns::{quote_name, where_clause};

/// A row that a relation leads to.
#[derive(Debug)]
pub struct RelatedRow<'m> {
    pub resource: &'m Resource,
    pub alias: String,
    /// The column of the row before it that has its id.
    pub key: String,
}

impl RelatedRow<'_> {
    pub fn table(&self) -> String {
        format!("{} {}", quote_name(&self.resource.table), self.alias)
    }

    pub fn join(&self) -> String {
        format!("{}.\"id\" = {}", self.alias, self.key)
    }

    /// Whether it is there and the conditions hold for it.
    pub fn exists_with(&self, conditions: &[String]) -> String {
        let Self { alias, key, .. } = self;
        let table = self.table();
        format!("{key} IN (SELECT {alias}.\"id\" FROM {table}{})", where_clause(conditions))
    }
}

/// The tables on the way from a row to another item.
#[derive(Debug, Default)]
pub struct RelationChain {
    /// The column of the row with the id of the first item.
    pub key: String,
    pub from: String,
    /// The alias of the first table.
    pub first: String,
    /// The alias of the last table.
    pub last: String,
}

impl RelationChain {
    /// A value of the other item, which is NULL where there is no item.
    pub fn select(&self, value: &str) -> String {
        format!("(SELECT {value} FROM {} WHERE {}.\"id\" = {})", self.from, self.first, self.key)
    }

    /// The ids of all first items of chains for whose last item a condition holds.
    pub fn select_first_ids(&self, condition: &str) -> String {
        format!("SELECT {}.\"id\" FROM {} WHERE {condition}", self.first, self.from)
    }
}
