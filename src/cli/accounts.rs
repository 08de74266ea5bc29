//! Access to users and the key for `nouns user` and `nouns key`, while servers run.
//!
//! This file neither prompts nor prints. The one surprising thing: a command that takes something away
//! waits until every server has seen the change, so that when the command has ended no server accepts what
//! was revoked.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;

use super::{Refusal, database, find_model, key_source, read_model, refusal};
use crate::auth::LEASE;
use crate::auth::key::{FINGERPRINT, KeyError, Keys, Source};
use crate::model::Model;
use crate::model::own::{DISABLED, NAME, PASSWORD, ROLES};
use crate::plan::{Action, By, Collection, Outcome, Read, Refusal as Refused, Write};
use crate::store::{Beside, Database, StoreError};
use crate::value::{Id, Item, Value};
use crate::wire::RequestId;

/// After this time every server has seen a change: a request may begin at the end of one lease, and its
/// rights are checked again after another one.
const SEEN_BY_ALL: Duration = LEASE.saturating_mul(2).saturating_add(Duration::from_millis(100));
/// The rows of a page of users.
const PAGE: usize = 100;
/// How often a change is retried after a concurrent one (optimistic concurrency).
const TRIES: usize = 10;

#[derive(Debug, Args)]
pub(super) struct Place {
    /// The model file [default: nouns.toml here, else the built-in store]
    #[arg(long, value_name = "MODEL")]
    model: Option<PathBuf>,

    /// Where the data lives: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// The file that holds the key; NOUNS_KEY may hold the key itself [default: nouns.key beside the SQLite file]
    #[arg(long, env = "NOUNS_KEY_FILE", hide_env = true, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// Where a debug build panics, for tests
    #[cfg(debug_assertions)]
    #[arg(long, env = "NOUNS_FAULT", hide = true)]
    fault: Option<String>,
}

/// Where the users and the key are; nothing is open yet.
pub(super) struct Found {
    pub(super) model: Arc<Model>,
    database: Database,
    key: Result<Source, KeyError>,
}

/// The users, and the source of the key.
pub(super) struct Accounts {
    pub(super) model: Arc<Model>,
    pub(super) beside: Beside,
    key: Result<Source, KeyError>,
    /// The file with the first password of `admin`, if its place can be known.
    pub(super) password_file: Option<PathBuf>,
}

impl Place {
    pub(super) fn find(&self) -> Result<Found, Refusal> {
        #[cfg(debug_assertions)]
        if let Some(fault) = &self.fault {
            crate::fault::plant(fault).map_err(refusal)?;
        }
        let model = Arc::new(read_model(&find_model(self.model.as_deref())?)?);
        let database = database(self.database.as_deref(), &model)?;
        let key = key_source(self.key_file.as_deref(), &model, &database);
        Ok(Found { model, database, key })
    }
}

impl Found {
    /// Refuses an invalid key before anything is created.
    pub(super) fn check_key(self) -> Result<Self, Refusal> {
        match &self.key {
            Err(error) => return Err(refusal(error)),
            Ok(source) => source.check().map_err(refusal)?,
        }
        Ok(self)
    }

    /// Opens an existing database, and creates nothing.
    pub(super) fn open(self) -> Result<Accounts, Refusal> {
        let beside = Beside::open(&self.database, &self.model).map_err(refusal)?;
        let password_file = match &self.key {
            Ok(source) => Some(self.database.password_file(&source.folder())),
            // With PostgreSQL it is beside the key file, which is not named.
            Err(_) => None,
        };
        Ok(Accounts { model: self.model, beside, key: self.key, password_file })
    }
}

impl Accounts {
    /// The source of the key.
    pub(super) fn source(&self) -> Result<Source, Refusal> {
        self.key.clone().map_err(refusal)
    }

    pub(super) fn fingerprint(&mut self) -> Result<Option<String>, Refusal> {
        self.beside.recall(FINGERPRINT).map_err(refusal)
    }

    /// The keys of this database; created where it has none yet.
    pub(super) fn keys(&mut self) -> Result<Keys, Refusal> {
        let source = self.source()?;
        keys(&mut self.beside, &source)
    }

    pub(super) fn user(&mut self, name: &str) -> Result<Item, Refusal> {
        match self.beside.read(&Read::User(name.into())).map_err(refusal)? {
            Outcome::User(Some(user)) => Ok(user),
            _ => Err(refusal(format!("there is no user {name}; those there are: nouns user list"))),
        }
    }

    /// Calls `with` for every user, page by page.
    pub(super) fn each_user(
        &mut self,
        mut with: impl FnMut(&mut Self, &Item) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut after = None;
        loop {
            let (users, next) = user_page(&mut self.beside, &self.model, after)?;
            for user in &users {
                with(self, user)?;
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    pub(super) fn create(&mut self, values: Vec<Value>) -> Result<(), StoreError> {
        let write = Write::create_user(&self.model, values, by());
        self.beside.write(write).map(drop)
    }

    pub(super) fn remove(&mut self, user: &Item, is_forced: bool) -> Result<(), StoreError> {
        let dependents_max = self.model.server.limits.cascade_items_max;
        let action = Action::Remove { id: user.id, dependents_max };
        let write = Write::new(Collection::users(&self.model), action, by());
        let write = Write { is_forced, ..write };
        self.beside.write(write).map(drop)
    }

    /// Changes one value of a user, and retries after a concurrent change. `value` computes it from what is
    /// stored; `None`: nothing to change.
    pub(super) fn change(
        &mut self,
        name: &str,
        (at, is_forced): (usize, bool),
        mut value: impl FnMut(&Item) -> Result<Option<Value>, Refusal>,
    ) -> Result<(), Refusal> {
        for _ in 0..TRIES {
            let user = self.user(name)?;
            let Some(value) = value(&user)? else { return Ok(()) };
            let stored = (user.id, user.version);
            let write = Write::change_user(&self.model, stored, (at, value), by());
            match self.beside.write(Write { is_forced, ..write }) {
                Err(StoreError::Refused(Refused::Unmet(_) | Refused::Missing)) => {}
                Err(StoreError::Refused(Refused::LastAdmin)) => return Err(last_admin(name)),
                done => return done.map(drop).map_err(refusal),
            }
        }
        Err(refusal(format!("{name} is changed by others again and again; try again")))
    }
}

/// Why the last admin cannot be removed.
pub(super) fn last_admin(name: &str) -> Refusal {
    refusal(format!(
        "{name} is the last enabled user with the role admin, without whom nobody could manage users over \
         HTTP; give the role to somebody else first (nouns user roles NAME --role admin), or say --force"
    ))
}

/// A page of users, and the cursor of the next one.
pub(super) fn user_page(
    beside: &mut Beside,
    model: &Model,
    after: Option<Id>,
) -> Result<(Vec<Item>, Option<Id>), Refusal> {
    match beside.read(&Read::users(model, PAGE, after)).map_err(refusal)? {
        Outcome::Page(page) => Ok((page.items, page.next)),
        _ => Err(refusal("the users cannot be read")),
    }
}

fn by() -> By {
    By { actor: "command line".into(), request_id: RequestId::new().as_str().into() }
}

/// The keys of a database; created, and their fingerprint stored, where it has none yet.
pub(super) fn keys(beside: &mut Beside, source: &Source) -> Result<Keys, Refusal> {
    let stored = beside.recall(FINGERPRINT).map_err(refusal)?;
    let settled = source.settle(stored.as_deref()).map_err(refusal)?;
    if let Some(fingerprint) = &settled.remember {
        let kept = beside.remember_first(FINGERPRINT, fingerprint).map_err(refusal)?;
        // Another process was faster, with another key.
        if !settled.keys.has(&kept) {
            if settled.is_made {
                source.unmake();
            }
            return Err(refusal(source.misfit(&settled.keys, &kept)));
        }
    }
    Ok(settled.keys)
}

/// Waits until every server has seen what was revoked.
pub(super) fn wait_for_servers() {
    thread::sleep(SEEN_BY_ALL);
}

pub(super) fn name(user: &Item) -> &str {
    text(user, NAME)
}

/// The list of roles as JSON text.
pub(super) fn roles(user: &Item) -> &str {
    text(user, ROLES)
}

/// The password record, as JSON text.
pub(super) fn record(user: &Item) -> &str {
    text(user, PASSWORD)
}

pub(super) fn is_disabled(user: &Item) -> bool {
    user.values.get(DISABLED) == Some(&Value::Boolean(true))
}

fn text(user: &Item, at: usize) -> &str {
    match user.values.get(at) {
        Some(Value::Text(text) | Value::Json(text)) => text,
        _ => "",
    }
}
