//! The cache of users: read on demand, and valid while they are known not to have changed.
//!
//! The database has a stamp that every change of the users updates, and a server trusts it for
//! `LEASE` after reading it. So every server sees a change within that time, and a writer that waits that
//! long knows that all servers have seen its change. There is no negative caching. A failed login reads the
//! database once, for a known name as for an unknown one, so that timing reveals nothing.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use quick_cache::sync::Cache;

use super::account::{LEASE, UserAccount};
use super::digest::Ha1;
use super::key::KeySet;
use super::password::{self, PasswordRecord};
use super::seal::SealError;
use super::signing::Signer;
use super::stamp_lease::StampLease;
use super::userhash::{HashedName, UserhashIndex};
use crate::clock;
use crate::json::{self, Json};
use crate::model::{Algorithm, Model, RealmIndex};
use crate::permit::Rights;
use crate::plan::{Outcome, ReadPlan};
use crate::store::{self, StoreError};
use crate::value::{Id, Item, Value};

/// The maximum number of cached users.
const USERS_MAX: usize = 10_000;
/// The maximum number of cached sets of roles: more than any model should need.
const RIGHTS_MAX: usize = 1_000;
/// No user can have this name.
const DECOY_NAME: &str = ":";

/// A user who was looked up.
#[derive(Debug)]
pub struct UserLookup {
    pub user: Option<Arc<UserAccount>>,
    /// Read from the store just now; otherwise cached, and unchanged as far as the lease tells.
    pub is_stored: bool,
}

/// The users of one database.
#[derive(Debug)]
pub struct UserCache {
    model: Arc<Model>,
    signer: Arc<Signer>,
    accounts: Cache<Box<str>, Arc<UserAccount>>,
    rights: Cache<Vec<String>, Arc<Rights>>,
    decoy: OnceLock<Option<Item>>,
    userhashes: UserhashIndex,
    lease: StampLease,
}

impl UserCache {
    pub fn new(model: &Arc<Model>, signer: Arc<Signer>) -> Self {
        Self {
            model: Arc::clone(model),
            signer,
            accounts: Cache::new(USERS_MAX),
            rights: Cache::new(RIGHTS_MAX),
            decoy: OnceLock::new(),
            userhashes: UserhashIndex::default(),
            lease: StampLease::default(),
        }
    }

    /// Invalidates the cache: users may have changed just now.
    pub fn invalidate(&self) {
        self.lease.invalidate();
    }

    /// A user, as of at most one lease ago. With a cached user and a lease that lasts, nothing is awaited.
    pub async fn find(
        &self,
        store: &store::StoreWorker,
        name: &str,
        now: Instant,
    ) -> Result<UserLookup, StoreError> {
        match self.lease.stamp(now).and_then(|stamp| self.cached(name, stamp)) {
            Some(user) => Ok(UserLookup { user: Some(user), is_stored: false }),
            None => Box::pin(self.find_after_stamp(store, name, now)).await,
        }
    }

    async fn find_after_stamp(
        &self,
        store: &store::StoreWorker,
        name: &str,
        now: Instant,
    ) -> Result<UserLookup, StoreError> {
        let stamp = self.leased_stamp(store, now).await?;
        match self.cached(name, stamp) {
            Some(user) => Ok(UserLookup { user: Some(user), is_stored: false }),
            None => Ok(UserLookup { user: self.load(store, name, stamp).await?, is_stored: true }),
        }
    }

    fn cached(&self, name: &str, stamp: i64) -> Option<Arc<UserAccount>> {
        self.accounts.get(name).filter(|user| user.stamp == stamp)
    }

    /// Begins a new lease.
    pub async fn renew_lease(&self, store: &store::StoreWorker) -> Result<(), StoreError> {
        // At that time every present lease has expired, so the stamp is read.
        self.leased_stamp(store, clock::now() + LEASE).await.map(drop)
    }

    /// A user as stored now.
    pub async fn read(
        &self,
        store: &store::StoreWorker,
        name: &str,
        now: Instant,
    ) -> Result<Option<Arc<UserAccount>>, StoreError> {
        // The stamp comes first: a change in between then causes another read.
        let stamp = self.leased_stamp(store, now).await?;
        self.load(store, name, stamp).await
    }

    async fn load(
        &self,
        store: &store::StoreWorker,
        name: &str,
        stamp: i64,
    ) -> Result<Option<Arc<UserAccount>>, StoreError> {
        let found = match store.read(ReadPlan::User(name.into())).await? {
            Outcome::User(found) => found,
            _ => return Err(unexpected_outcome("a user")),
        };
        let Some(item) = found else {
            self.accounts.remove(name);
            // Parsing a user takes time, so an unknown name parses the decoy (constant time).
            if let Some(decoy) = self.decoy() {
                let _ = std::hint::black_box(self.parse_user(decoy, stamp));
            }
            return Ok(None);
        };
        let user = Arc::new(self.parse_user(&item, stamp)?);
        self.accounts.insert(name.into(), Arc::clone(&user));
        Ok(Some(user))
    }

    /// A stand-in for unknown users, of the same cost.
    fn decoy(&self) -> Option<&Item> {
        let made = self.decoy.get_or_init(|| {
            let keys = self.signer.keyring.keys();
            let mut record =
                PasswordRecord { argon2: password::dummy_hash().to_owned(), digests: Vec::new() };
            record.complete(&self.model, &keys, DECOY_NAME, "").ok()?;
            let now = clock::moment();
            let values = vec![
                Value::text(DECOY_NAME),
                Value::Json("[]".into()),
                Value::Boolean(false),
                Value::text(&record.to_string()),
            ];
            let (created_at, updated_at) = (now, now);
            Some(Item {
                id: Id::Integer(1),
                parent: None,
                created_at,
                updated_at,
                version: 1,
                values,
            })
        });
        made.as_ref()
    }

    /// The stamp, read again when its lease is over.
    async fn leased_stamp(
        &self,
        store: &store::StoreWorker,
        now: Instant,
    ) -> Result<i64, StoreError> {
        if let Some(stamp) = self.lease.stamp(now) {
            return Ok(stamp);
        }
        let read = self.lease.begin_read(clock::now());
        let Outcome::Stamp(stamp) = store.read(ReadPlan::UsersStamp).await? else {
            return Err(unexpected_outcome("a stamp"));
        };
        self.lease.end_read(read, stamp, LEASE);
        Ok(stamp)
    }

    fn parse_user(&self, item: &Item, stamp: i64) -> Result<UserAccount, StoreError> {
        let wrong = |what: &str| StoreError::internal(format!("a stored user: {what}"));
        let [name, roles, disabled, secret, fields @ ..] = &*item.values else {
            return Err(wrong("expected at least four values"));
        };
        let (Value::Text(name), Value::Json(roles), Value::Text(secret)) = (name, roles, secret)
        else {
            return Err(wrong("expected a name, roles and a password"));
        };
        let record =
            PasswordRecord::parse(secret).ok_or_else(|| wrong("its password cannot be read"))?;
        let rights =
            self.rights_of_roles(roles).ok_or_else(|| wrong("its roles cannot be read"))?;
        Ok(UserAccount {
            id: item.id,
            version: item.version,
            is_disabled: *disabled == Value::Boolean(true),
            rights,
            fields: fields.into(),
            roles: (&**roles).into(),
            digests: self.open_digests(name, &record),
            name: (&**name).into(),
            record,
            stamp,
        })
    }

    /// The HA1s that the keys can open.
    fn open_digests(
        &self,
        name: &str,
        record: &PasswordRecord,
    ) -> Vec<(RealmIndex, Algorithm, Ha1)> {
        let signer = &self.signer;
        let mut digests = Vec::new();
        for (at, realm) in self.model.realms_with_index() {
            for algorithm in &realm.algorithms {
                let place = (&*realm.name, *algorithm);
                // New keys are accepted if they open the stored HA1.
                let fits = |keys: &KeySet| matches!(record.ha1(keys, name, place), Some(Ok(_)));
                let opened = match record.ha1(&signer.keyring.keys(), name, place) {
                    // Sealed with a newer key than the ones we know.
                    Some(Err(SealError::UnknownKey)) if signer.reload_accepting(fits) => {
                        record.ha1(&signer.keyring.keys(), name, place)
                    }
                    opened => opened,
                };
                let text = opened.and_then(Result::ok);
                let ha1 = text.and_then(|text| Ha1::parse(*algorithm, &text));
                digests.extend(ha1.map(|ha1| (at, *algorithm, ha1)));
            }
        }
        digests
    }

    /// The rights of a set of roles, computed once.
    fn rights_of_roles(&self, roles: &str) -> Option<Arc<Rights>> {
        let mut roles = parse_text_list(roles)?;
        roles.sort_unstable();
        if let Some(rights) = self.rights.get(&roles) {
            return Some(rights);
        }
        let rights = Arc::new(Rights::of_roles(&self.model, roles.iter().map(String::as_str)));
        self.rights.insert(roles, Arc::clone(&rights));
        Some(rights)
    }

    /// The user name for a `userhash`.
    pub async fn find_by_userhash(
        &self,
        store: &store::StoreWorker,
        hashed: HashedName<'_>,
        now: Instant,
    ) -> Result<Option<Arc<str>>, StoreError> {
        let stamp = self.leased_stamp(store, now).await?;
        self.userhashes.find(&self.model, (store, stamp), hashed).await
    }
}

/// The texts of a JSON list.
fn parse_text_list(list: &str) -> Option<Vec<String>> {
    let Json::List(texts) = json::parse(list.as_bytes(), 2).ok()? else { return None };
    let text = |json: Json<'_>| match json {
        Json::Text(text) => Some(text.into_owned()),
        _ => None,
    };
    texts.into_iter().map(text).collect()
}

fn unexpected_outcome(what: &str) -> StoreError {
    StoreError::internal(format!("expected {what} from the store"))
}
