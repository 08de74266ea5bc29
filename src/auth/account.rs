//! A user as parsed from the store: the password hashes that a login is compared with, and the user's rights.

use std::sync::Arc;
use std::time::Duration;

use super::digest::Ha1;
use super::password::PasswordRecord;
use crate::model::{Algorithm, RealmIndex};
use crate::permit::Rights;
use crate::plan::RightsHolder;
use crate::value::{Id, Item, Value};

/// How long a server uses cached users without reading the users stamp again. Commands that change users
/// wait longer before they report success.
pub const LEASE: Duration = Duration::from_millis(500);

/// A stored user, parsed.
#[derive(Debug)]
pub struct UserAccount {
    pub id: Id,
    pub name: Arc<str>,
    pub version: i64,
    pub is_disabled: bool,
    pub rights: Arc<Rights>,
    /// The values of the declared fields.
    pub fields: Arc<[Value]>,
    /// The list of roles, as stored.
    pub(super) roles: Box<str>,
    pub record: PasswordRecord,
    /// HA1 by realm and algorithm; `None` if it was never computed, or if no key decrypts it.
    pub(super) digests: Vec<(RealmIndex, Algorithm, Ha1)>,
    /// The users stamp when this user was read.
    pub(super) stamp: i64,
}

impl UserAccount {
    #[cfg(test)]
    pub fn example(id: i64) -> Self {
        let model = "title = \"A\"\n[resources.a.fields]\nx = { type = \"text\" }\n";
        let model = crate::model::read("m.toml", model).unwrap();
        Self {
            id: Id::Integer(id),
            name: "ann".into(),
            version: 1,
            is_disabled: false,
            rights: Arc::new(Rights::all(&model)),
            fields: Arc::default(),
            roles: r#"["admin"]"#.into(),
            record: PasswordRecord { argon2: "a hash".to_owned(), digests: Vec::new() },
            digests: Vec::new(),
            stamp: 0,
        }
    }

    /// Whether both may do the same: row filters may compare the declared fields.
    pub fn has_same_rights(&self, other: &Self) -> bool {
        self.rights.is_equivalent(&other.rights) && self.fields == other.fields
    }

    pub fn ha1(&self, realm: RealmIndex, algorithm: Algorithm) -> Option<&Ha1> {
        let found = self.digests.iter().find(|(r, a, _)| (*r, *a) == (realm, algorithm));
        found.map(|(_, _, ha1)| ha1)
    }

    /// Whether both are the same user with the same password. Equal names are not enough: the user may have
    /// been deleted and another one created with that name.
    pub fn is_same_login(&self, other: &Self) -> bool {
        let is_same = self.id == other.id && self.record.argon2 == other.record.argon2;
        is_same && !other.is_disabled
    }
}

impl RightsHolder for UserAccount {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_still_valid(&self, stored: Option<&Item>) -> bool {
        let Some(Item { id, values, .. }) = stored else { return false };
        let [_, Value::Json(roles), disabled, Value::Text(secret), fields @ ..] = &**values else {
            return false;
        };
        let is_same = *id == self.id && **roles == *self.roles && *fields == *self.fields;
        is_same
            && *disabled != Value::Boolean(true)
            && PasswordRecord::parse(secret)
                .is_some_and(|record| record.argon2 == self.record.argon2)
    }
}
