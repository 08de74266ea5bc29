//! All SQL statements: no other module writes SQL.
//!
//! The texts are made once, at startup, from the model: names come only from it and are quoted, values are
//! always bound. The differences between the engines are data in a `Dialect`. Parameters are numbered, and
//! the comment of each statement lists them. DDL is in `ddl`.

pub mod changes;
pub mod columns;
pub mod condition;
pub mod database_move;
pub mod ddl;
pub mod derived;
pub mod deliveries;
pub mod dialect;
pub mod expressions;
pub mod idempotency;
pub mod insert;
pub mod links;
pub mod list;
pub mod migration;
pub mod operand;
pub mod read_statements;
pub mod statements;
pub mod transfer;
pub mod unique;
pub mod webhooks;
#[cfg(test)]
mod tests;
