//! The OpenAPI document and the JSON Schemas of resources: what they contain, who sees what of them, and what
//! third-party programs make of them.

mod document;
mod generated_code;
mod roles;
mod third_party;
