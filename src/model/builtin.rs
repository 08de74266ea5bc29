//! The built-in resources, which no model file declares: the users, the webhooks and their deliveries.
//!
//! They are ordinary resources, so that all code for resources serves them too; their paths are under `/-/`,
//! and their tables begin with `nouns_`. They are not part of the shape that a database stores, because they
//! belong to the program and not to the model.

pub mod delivery;
pub mod webhook;

use super::{
    ChangeLogDetail, Field, FieldRules, OnDelete, RealmIndex, Resource, ResourceIndex, Role,
    UniqueConflict, UniqueRule, UniqueScope, types,
};
use crate::value::{IdKind, Item, Value};

/// The role with all rights; no model can declare it.
pub const ADMIN: &str = "admin";
/// The role that every caller has, also without credentials.
pub const ANYONE: &str = "anyone";

/// Indices of the fields of a user.
pub const NAME: usize = 0;
pub const ROLES: usize = 1;
pub const DISABLED: usize = 2;
pub const PASSWORD: usize = 3;
/// The declared fields are behind the others.
pub const DECLARED: usize = 4;

/// Of the name of a user.
pub const NAME_CHARS_MAX: usize = 200;
const ROLES_MAX: usize = 50;
const PASSWORD_CHARS_MIN: usize = 8;
const PASSWORD_CHARS_MAX: usize = 1024;

/// The indices of the users, the webhooks and the deliveries, which come after all resources of the file.
pub fn indices(declared: usize) -> [ResourceIndex; 3] {
    [0, 1, 2].map(|at| ResourceIndex(declared + at))
}

/// Whether a stored user is enabled and has the role `admin`.
pub fn is_enabled_admin(user: &Item) -> bool {
    let is_disabled = user.values.get(DISABLED) == Some(&Value::Boolean(true));
    // The roles are a JSON list of names; each name is in quotes.
    let is_admin = match user.values.get(ROLES) {
        Some(Value::Text(roles) | Value::Json(roles)) => roles.contains("\"admin\""),
        _ => false,
    };
    is_admin && !is_disabled
}

/// A declared field of the users, by its index among them.
pub fn user_field(users: &Resource, at: usize) -> Option<&Field> {
    users.fields.get(DECLARED + at)
}

/// The names that a declared field of users cannot have, besides those of every item.
pub const OWN_USER_FIELDS: [&str; 4] = ["name", "roles", "disabled", "password"];

/// The resource of the users. `realm` is the realm of `/-/`; `declared` are the fields of the model file.
pub fn users_resource(
    index: ResourceIndex,
    realm: RealmIndex,
    roles: &[Role],
    declared: Vec<Field>,
) -> Resource {
    let own = [name_field(), roles_field(roles), disabled_field(), password_field()];
    Resource {
        index,
        name: "user".into(),
        plural: "users".into(),
        is_builtin: true,
        is_server_made: false,
        is_retained: false,
        table: "nouns_users".into(),
        // A model may declare its own resource `user`.
        label: "-/user".into(),
        parent: None,
        parent_key: None,
        ancestor_keys: Vec::new(),
        flat: None,
        children: Vec::new(),
        referrers: Vec::new(),
        depth: 0,
        on_delete: OnDelete::Restrict,
        id: IdKind::Uuid,
        realm,
        fields: own.into_iter().chain(declared).collect(),
        unique: vec![UniqueRule { fields: vec![NAME], scope: UniqueScope::Resource }],
        conflict: UniqueConflict::Silent,
        checks: Vec::new(),
        require_if_match: false,
        changes: ChangeLogDetail::Values,
        deprecated: None,
        renamed_from: None,
    }
}

/// A field of texts that are not empty.
fn text_field(name: &str, chars_max: usize) -> Field {
    let rules =
        FieldRules { min_length: Some(1), max_length: Some(chars_max), ..FieldRules::default() };
    Field { rules, ..Field::new(name, &types::TEXT) }
}

/// Fixed, because the stored password hashes of Digest are computed from the name.
fn name_field() -> Field {
    Field {
        kind: &types::USER_NAME,
        required: true,
        fixed: true,
        filter: true,
        ..text_field("name", NAME_CHARS_MAX)
    }
}

fn roles_field(roles: &[Role]) -> Field {
    let declared = roles.iter().map(|role| &*role.name);
    let one_of = declared.chain([ADMIN]).map(Value::text).collect();
    let of = Field {
        rules: FieldRules { one_of, ..FieldRules::default() },
        ..Field::new("of", &types::TEXT)
    };
    let rules = FieldRules {
        element: Some(Box::new(of)),
        max_items: Some(ROLES_MAX),
        ..FieldRules::default()
    };
    Field { default: Some(Value::List(Vec::new())), rules, ..Field::new("roles", &types::LIST) }
}

fn disabled_field() -> Field {
    Field { default: Some(Value::Boolean(false)), ..Field::new("disabled", &types::BOOLEAN) }
}

fn password_field() -> Field {
    let rules = FieldRules {
        min_length: Some(PASSWORD_CHARS_MIN),
        max_length: Some(PASSWORD_CHARS_MAX),
        ..FieldRules::default()
    };
    Field { required: true, secret: true, rules, ..Field::new("password", &types::PASSWORD) }
}
