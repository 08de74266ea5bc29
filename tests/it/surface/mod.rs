//! The HTTP interface that every resource has.
//!
//! The built-in store is the model of the documents; the schools have three levels, integer ids,
//! irregular plurals and every type of field.

mod cascade;
mod content_coding;
mod conditional_requests;
mod deprecation;
mod check_order;
mod hints;
mod imports;
mod items;
mod list_etags;
mod lists;
mod negotiation;
mod server_paths;
mod patches;
mod paths;
mod queries;
mod rules;
mod statuses;

use crate::harness::{ANN, Backend, Server, Setup};

const BEA: &str = r#"{"customer":{"name":"Bea","email":"bea@example.com"}}"#;
const TEA: &str = r#"{"order":{"items":[{"product":"tea","quantity":2,"unit_price":350}]}}"#;
const NO_ONE: &str = "/customers/01890a5d-ac96-774b-bcce-b302099a8057";

/// A server of `models/school.toml`.
fn start_schools(backend: Backend) -> Server {
    Setup::new(backend).model(include_str!("../models/school.toml")).start()
}
