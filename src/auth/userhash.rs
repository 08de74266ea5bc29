//! The names behind a `userhash` (RFC 7616 §3.4.4).
//!
//! Our challenges do not offer `userhash`, but clients may send it. The hashes are not stored: the server
//! computes those of all names at the first use, and again after a user has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::digest;
use crate::model::builtin::NAME;
use crate::model::{Algorithm, Model, RealmIndex};
use crate::plan::{Outcome, ReadPlan};
use crate::store::{StoreError, StoreWorker};
use crate::value::Value;

/// With more users than this, `userhash` is not supported.
const HASHED_NAMES_MAX: usize = 10_000;
/// The rows of a page when all names are read.
const PAGE_ROWS: usize = 500;

/// A name as a client has hashed it.
#[derive(Debug, Clone, Copy)]
pub struct HashedName<'a> {
    pub realm: RealmIndex,
    pub algorithm: Algorithm,
    pub hash: &'a str,
}

/// Names by realm, algorithm and hash.
type NamesByHash = HashMap<(RealmIndex, Algorithm, String), Arc<str>>;

/// The hashes of all names, with the stamp of the users at which they were computed.
#[derive(Debug, Default)]
pub struct UserhashIndex(Mutex<Option<(i64, NamesByHash)>>);

impl UserhashIndex {
    /// The name with this hash. `stamp` is that of the users now.
    pub async fn find(
        &self,
        model: &Model,
        (store, stamp): (&StoreWorker, i64),
        HashedName { realm, algorithm, hash }: HashedName<'_>,
    ) -> Result<Option<Arc<str>>, StoreError> {
        let key = (realm, algorithm, hash.to_ascii_lowercase());
        if let Some((_, names)) = self.lock().as_ref().filter(|(made_at, _)| *made_at == stamp) {
            return Ok(names.get(&key).cloned());
        }
        let names = hash_names(model, &all_names(model, store).await?);
        let found = names.get(&key).cloned();
        *self.lock() = Some((stamp, names));
        Ok(found)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(i64, NamesByHash)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash_names(model: &Model, names: &[Arc<str>]) -> NamesByHash {
    let mut all = HashMap::new();
    for (at, realm) in model.realms_with_index() {
        for algorithm in &realm.algorithms {
            for name in names {
                let hash = digest::userhash(*algorithm, name, &realm.name);
                all.insert((at, *algorithm, hash.as_text().to_owned()), Arc::clone(name));
            }
        }
    }
    all
}

/// The names of all users; none if there are too many.
async fn all_names(model: &Model, store: &StoreWorker) -> Result<Vec<Arc<str>>, StoreError> {
    let mut names: Vec<Arc<str>> = Vec::new();
    let mut after = None;
    loop {
        let Outcome::Page(page) = store.read(ReadPlan::users(model, PAGE_ROWS, after)).await?
        else {
            return Err(StoreError::internal("expected a page from the store"));
        };
        for item in &page.items {
            let Some(Value::Text(name)) = item.values.get(NAME) else {
                return Err(StoreError::internal("a stored user has no name"));
            };
            names.push((&**name).into());
        }
        after = page.next;
        if after.is_none() {
            return Ok(names);
        }
        if names.len() > HASHED_NAMES_MAX {
            return Ok(Vec::new());
        }
    }
}
