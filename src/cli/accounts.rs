//! Access to users and the key for `nouns user` and `nouns key`, while servers run.
//!
//! This file neither prompts nor prints. A command that revokes access waits until every server has seen the
//! change, so that no server grants the revoked access after the command has ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;

use super::model_source::{database, find_model, key_source, password_file, read_model};
use super::report::{CommandError, command_error};
use crate::auth::LEASE;
use crate::auth::key::{FINGERPRINT_NAME, KeySet};
use crate::auth::key_source::{KeyError, KeySource};
use crate::model::Model;
use crate::model::builtin::{DISABLED, NAME, PASSWORD, ROLES};
use crate::plan::{
    ChangeAuthor, Collection, Outcome, ReadPlan, RequestRefusal as Refused, WriteAction, WritePlan,
};
use crate::store::{AdminStore, Database, FIELDS_KEY, StoreError, missing_fields};
use crate::value::{Id, Item, Value};
use crate::wire::RequestId;

/// After this time every server has seen a change: a request may begin at the end of one lease, and its
/// rights are checked again after another one.
const PROPAGATION_DELAY: Duration =
    LEASE.saturating_mul(2).saturating_add(Duration::from_millis(100));
/// The rows of a page of users.
const PAGE_ROWS: usize = 100;
/// How often a change is retried after a concurrent one (optimistic concurrency).
const ATTEMPTS_MAX: usize = 10;

#[derive(Debug, Args)]
pub struct DatabaseArgs {
    /// The model file [default: nouns.toml here, else the built-in store]
    #[arg(long, value_name = "MODEL")]
    model: Option<PathBuf>,

    /// The database: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// The key file; NOUNS_KEY may hold the key itself [default: nouns.key beside the SQLite file]
    #[arg(long, env = "NOUNS_KEY_FILE", hide_env = true, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// Failpoint of a debug build, for tests
    #[cfg(debug_assertions)]
    #[arg(long, env = "NOUNS_FAULT", hide = true)]
    fault: Option<String>,
}

/// The location of the users and the key; nothing is open yet.
pub struct AccountsLocation {
    pub model: Arc<Model>,
    database: Database,
    key: Result<KeySource, KeyError>,
}

/// The users, and the source of the key.
pub struct Accounts {
    pub model: Arc<Model>,
    pub admin_store: AdminStore,
    key: Result<KeySource, KeyError>,
    /// The file with the first password of `admin`, if its place can be known.
    pub password_file: Option<PathBuf>,
}

impl DatabaseArgs {
    pub fn locate(&self) -> Result<AccountsLocation, CommandError> {
        #[cfg(debug_assertions)]
        if let Some(fault) = &self.fault {
            crate::fault::inject(fault)?;
        }
        let model = Arc::new(read_model(&find_model(self.model.as_deref())?)?);
        let database = database(self.database.as_deref(), &model.server.storage)?;
        let key = key_source(self.key_file.as_deref(), &model.server.storage, &database);
        Ok(AccountsLocation { model, database, key })
    }
}

impl AccountsLocation {
    /// Refuses an invalid key before anything is created.
    pub fn check_key(self) -> Result<Self, CommandError> {
        self.key.clone()?.check()?;
        Ok(self)
    }

    /// Opens an existing database, and creates nothing.
    pub fn open(self) -> Result<Accounts, CommandError> {
        let mut admin_store = AdminStore::open(&self.database, &self.model)?;
        let stored = admin_store.read_system_value(FIELDS_KEY)?.unwrap_or_default();
        if let Some(name) = missing_fields(&self.model, &stored).first() {
            return Err(command_error(format!(
                "the database has no field {name} of users yet: start a server with this model first"
            )));
        }
        let password_file = match &self.key {
            Ok(source) => Some(password_file(&self.database, source)),
            // With PostgreSQL the password file is beside the key file, and no key file is named.
            Err(_) => None,
        };
        Ok(Accounts { model: self.model, admin_store, key: self.key, password_file })
    }
}

impl Accounts {
    /// The source of the key.
    pub fn key_source(&self) -> Result<KeySource, CommandError> {
        Ok(self.key.clone()?)
    }

    pub fn fingerprint(&mut self) -> Result<Option<String>, CommandError> {
        Ok(self.admin_store.read_system_value(FINGERPRINT_NAME)?)
    }

    /// The keys of this database; created where it has none yet.
    pub fn load_or_create_keys(&mut self) -> Result<KeySet, CommandError> {
        let source = self.key_source()?;
        load_or_create_keys(&mut self.admin_store, &source)
    }

    pub fn user(&mut self, name: &str) -> Result<Item, CommandError> {
        match self.admin_store.read(&ReadPlan::User(name.into()))? {
            Outcome::User(Some(user)) => Ok(user),
            _ => Err(command_error(format!(
                "there is no user {name}; list the users with: nouns user list"
            ))),
        }
    }

    /// Calls `with` for every user, page by page.
    pub fn for_each_user(
        &mut self,
        mut with: impl FnMut(&mut Self, &Item) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let mut after = None;
        loop {
            let (users, next) = user_page(&mut self.admin_store, &self.model, after)?;
            for user in &users {
                with(self, user)?;
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    pub fn create(&mut self, values: Vec<Value>) -> Result<(), StoreError> {
        let write = WritePlan::create_user(&self.model, values, command_line_author());
        self.admin_store.write(&write).map(drop)
    }

    pub fn remove(&mut self, user: &Item, is_forced: bool) -> Result<(), StoreError> {
        let dependents_max = self.model.server.limits.cascade_items_max;
        let action = WriteAction::Remove { id: user.id, dependents_max };
        let write = WritePlan::new(Collection::users(&self.model), action, command_line_author());
        let write = WritePlan { can_remove_last_admin: is_forced, ..write };
        self.admin_store.write(&write).map(drop)
    }

    /// Changes one value of a user, and retries after a concurrent change. `value` computes the new value
    /// from the stored user; `None`: nothing to change.
    pub fn change(
        &mut self,
        name: &str,
        (at, is_forced): (usize, bool),
        mut value: impl FnMut(&Item) -> Result<Option<Value>, CommandError>,
    ) -> Result<(), CommandError> {
        self.change_values(name, is_forced, |user| {
            Ok(value(user)?.into_iter().map(|value| (at, value)).collect())
        })
    }

    /// Changes values of a user in one write, as `change` does. `values` returns them with the indices of their
    /// fields; none: nothing to change.
    pub fn change_values(
        &mut self,
        name: &str,
        is_forced: bool,
        mut values: impl FnMut(&Item) -> Result<Vec<(usize, Value)>, CommandError>,
    ) -> Result<(), CommandError> {
        for _ in 0..ATTEMPTS_MAX {
            let user = self.user(name)?;
            let values = values(&user)?;
            if values.is_empty() {
                return Ok(());
            }
            let stored = (user.id, user.version);
            let write = WritePlan::change_user(&self.model, stored, values, command_line_author());
            let write = WritePlan { can_remove_last_admin: is_forced, ..write };
            match self.admin_store.write(&write) {
                Err(StoreError::Refused(Refused::PreconditionFailed(_) | Refused::Missing)) => {}
                Err(StoreError::Refused(Refused::LastAdmin)) => return Err(last_admin_error(name)),
                done => return Ok(done.map(drop)?),
            }
        }
        Err(command_error(format!("{name} was changed concurrently too often; try again")))
    }

    /// Disables a webhook whose secret no key opens. One that has been changed meanwhile stays as it is: the next pass
    /// looks at it again.
    pub fn drop_webhook_secret(&mut self, stored: (Id, i64)) -> Result<(), CommandError> {
        let write = WritePlan::drop_webhook_secret(&self.model, stored, command_line_author());
        match self.admin_store.write(&write) {
            Err(StoreError::Refused(Refused::PreconditionFailed(_) | Refused::Missing)) => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }
}

/// Why the last admin cannot be removed.
pub fn last_admin_error(name: &str) -> CommandError {
    command_error(format!(
        "{name} is the last enabled user with the role admin, without whom nobody could manage users over \
         HTTP; give the role to somebody else first (nouns user roles NAME --role admin), or say --force"
    ))
}

/// A page of users, and the cursor of the next one.
pub fn user_page(
    admin_store: &mut AdminStore,
    model: &Model,
    after: Option<Id>,
) -> Result<(Vec<Item>, Option<Id>), CommandError> {
    match admin_store.read(&ReadPlan::users(model, PAGE_ROWS, after))? {
        Outcome::Page(page) => Ok((page.items, page.next)),
        _ => Err(command_error("the users cannot be read")),
    }
}

/// The author of changes that a command makes.
pub fn command_line_author() -> ChangeAuthor {
    ChangeAuthor::without_user("command line", RequestId::new().as_str())
}

/// The keys of a database; created, and their fingerprint stored, where it has none yet.
pub fn load_or_create_keys(
    admin_store: &mut AdminStore,
    source: &KeySource,
) -> Result<KeySet, CommandError> {
    let stored = admin_store.read_system_value(FINGERPRINT_NAME)?;
    let settled = source.resolve(stored.as_deref())?;
    if let Some(fingerprint) = &settled.fingerprint_to_store {
        let kept = admin_store.write_system_value_if_absent(FINGERPRINT_NAME, fingerprint)?;
        // Another process was faster, with another key.
        if !settled.keys.has_fingerprint(&kept) {
            if settled.is_new_file {
                source.remove_key_file();
            }
            return Err(command_error(source.fingerprint_mismatch(&settled.keys, &kept)));
        }
    }
    Ok(settled.keys)
}

/// Waits until every server has seen the revocation.
pub fn wait_for_servers() {
    thread::sleep(PROPAGATION_DELAY);
}

pub fn user_name(user: &Item) -> &str {
    text(user, NAME)
}

/// The list of roles as JSON text.
pub fn user_roles(user: &Item) -> &str {
    text(user, ROLES)
}

/// The password record, as JSON text.
pub fn password_record(user: &Item) -> &str {
    text(user, PASSWORD)
}

pub fn is_disabled(user: &Item) -> bool {
    user.values.get(DISABLED) == Some(&Value::Boolean(true))
}

fn text(user: &Item, at: usize) -> &str {
    match user.values.get(at) {
        Some(Value::Text(text) | Value::Json(text)) => text,
        _ => "",
    }
}
