//! The tables that a path in a condition joins.

/// The tables on the way from a row to another item.
#[derive(Debug, Default)]
pub struct RelationChain {
    pub from: String,
    /// The condition that leads from the row to the first table.
    pub join: String,
    /// The alias of the last table.
    pub last: String,
}

impl RelationChain {
    pub fn select(&self, value: &str) -> String {
        format!("(SELECT {value} FROM {} WHERE {})", self.from, self.join)
    }
}
