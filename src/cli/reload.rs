//! Reload: a changed model file is applied at SIGHUP, without a restart of the process.
//!
//! The check runs while the server serves. A model that is wrong, that needs a migration or that changes what only
//! the start of a process can is refused with a message, and the server continues with the one that it has.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::model_source::{ModelSource, find_model, retain_stored};
use super::report::{CommandError, command_error};
use super::serve_args::ServeArgs;
use super::serve_settings::{ProcessSettings, trusted_proxies};
use crate::log::{Level, Logger};
use crate::model::diff::{Difference, compare};
use crate::model::{self, Model};
use crate::store::{AdminStore, Database};

/// A model file as it was read.
#[derive(Clone)]
pub struct LoadedModel {
    pub source: Arc<ModelSource>,
    /// Without retained parts.
    pub declared: Arc<Model>,
}

/// What a reload needs to know of the running server.
pub struct ReloadContext {
    pub flags: Arc<ServeArgs>,
    pub settings: Arc<ProcessSettings>,
    pub database: Arc<Database>,
    pub log: Logger,
}

/// The model to be served next, once a check has accepted one.
#[derive(Default)]
pub struct AcceptedModel(Mutex<Option<LoadedModel>>);

impl AcceptedModel {
    pub fn take(&self) -> Option<LoadedModel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ReloadContext {
    /// Reads the model file again; whether it has changed and can be applied.
    pub fn check(
        &self,
        current: &LoadedModel,
        bound: &[Vec<SocketAddr>],
        accepted: &AcceptedModel,
    ) -> bool {
        match self.read_changed(current, bound) {
            Ok(None) => {
                self.log.event(Level::Info, "SIGHUP: the model has not changed", &[]);
                false
            }
            Ok(Some(changed)) => {
                *accepted.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(changed);
                let message = "applying the changed model: finishing requests in flight";
                self.log.event(Level::Info, message, &[]);
                true
            }
            Err(error) => {
                let message =
                    "the changed model was not applied, and the previous one is still served";
                self.log.event(Level::Error, message, &[("cause", &error.0.trim_end())]);
                false
            }
        }
    }

    /// `None` if it has not changed.
    fn read_changed(
        &self,
        current: &LoadedModel,
        bound: &[Vec<SocketAddr>],
    ) -> Result<Option<LoadedModel>, CommandError> {
        if self.flags.demo {
            return Ok(None);
        }
        let source = find_model(self.flags.model.as_deref())?;
        // A model file that is missing for a moment must not make room for the roles of the built-in store.
        if source.name != current.source.name {
            return Err(command_error(format!(
                "the server was started with {}, and would now read {}; put the model file back, or restart the server",
                current.source.name, source.name
            )));
        }
        if source.text == current.source.text {
            return Ok(None);
        }
        let declared = model::read(&source.name, &source.text);
        let declared = Arc::new(declared.map_err(|errors| CommandError(errors.render(false)))?);
        let changed = self.settings.changed_keys(&ProcessSettings::resolve(&self.flags, &declared));
        if !changed.is_empty() {
            return Err(command_error(format!(
                "{} of [server] changed, which takes a restart",
                changed.join(", ")
            )));
        }
        let declared_proxies = declared.server.behind_proxy.as_deref();
        let proxies = trusted_proxies(&self.flags.behind_proxy, declared_proxies)?;
        self.settings.redirect_addresses(&declared)?;
        self.settings.check_exposure(&declared, bound, &proxies)?;
        self.refuse_migration(&source, &declared)?;
        Ok(Some(LoadedModel { source: Arc::new(source), declared }))
    }

    fn refuse_migration(
        &self,
        source: &ModelSource,
        declared: &Arc<Model>,
    ) -> Result<(), CommandError> {
        let mut admin_store = AdminStore::open_read_only(&self.database, declared)?;
        if retain_stored(source, declared, &mut admin_store)?.is_some() {
            return Ok(());
        }
        let stored = admin_store.read_system_value("model")?;
        let stored = stored.and_then(|shape| model::read_shape(&shape).ok());
        let stored = stored.ok_or_else(|| command_error("the stored model cannot be read"))?;
        let changes =
            compare(&stored, declared).into_iter().filter_map(|difference| match difference {
                Difference::Change(change) => Some(change.describe()),
                Difference::AddResource(_) | Difference::AddField(..) => None,
            });
        let changes: Vec<String> = changes.collect();
        match changes.is_empty() {
            true => Ok(()),
            false => Err(command_error(format!(
                "it needs a migration: {}; see the steps with: nouns plan; stop the servers and apply them with: nouns migrate",
                changes.join("; ")
            ))),
        }
    }
}
