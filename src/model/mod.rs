//! The model: everything the author declared, validated once at startup.
//!
//! `file` reads the TOML text and reports all mistakes together; all other modules rely on its guarantees:
//! indices are valid, defaults fit their fields, expressions are type-checked, parents form trees, names are
//! unique.

pub mod builtin;
pub mod conversion;
mod cors_origins;
pub mod database_tables;
pub mod derivation;
pub mod diff;
pub mod expr;
mod field;
mod file;
pub mod infer;
mod ip_network;
pub mod loosened;
mod nearest;
mod report;
mod resource;
pub mod row_filter_index;
mod rule_diff;
pub mod schema;
pub mod settings;
mod type_conversion;
pub mod types;

pub use derivation::SORTED_CHARS_MAX;
pub use expr::Expr;
pub use field::{
    AuditedUser, DefaultSource, Deprecated, Field, FieldRules, OnDelete, ReferenceTarget,
    ResourceIndex, StateMachine, StorageClass, TextOrder, TransitionLimit,
};
pub use file::retained::read_with_retained;
pub use file::{read, read_shape, read_storage_settings};
pub use ip_network::Network;
pub use nearest::nearest;
pub use resource::{
    Algorithm, AncestorKey, AuthScheme, ChallengeForm, ChangeLogDetail, Grant, GrantVerb,
    ItemCheck, Model, Qop, Realm, Resource, Role, UniqueConflict, UniqueRule, UniqueScope,
};
pub use settings::RealmIndex;
