//! The OpenAPI 3.1 document of a model, and the JSON Schema of each resource, as one caller may use them.
//!
//! Pure: made from the model and the caller's rights alone. The paths and methods come from the table of
//! `intent::route_templates`, by which requests are routed; query parameters from the tables of their parsers;
//! what a caller may not use is left out by the checks of `permit` that admit requests. HEAD and OPTIONS, which
//! every path has, are not listed. The order is stable, so that documents can be compared.

#[macro_use]
mod tree;
mod components;
mod document;
mod enumerations;
mod examples;
mod field_schema;
mod filter_parameters;
mod operations;
mod parameters;
mod pattern;
mod problems;
mod query_extension;
mod related;
mod responses;
mod schemas;
mod security;
mod server_operations;
mod viewer;
mod wrappers;

pub use document::{DocumentPart, create_example, document, document_part, resource_schema};
pub use examples::{patch_text, required_item_text};
pub use viewer::{Viewer, WritableFields};

#[cfg(test)]
mod tests;
