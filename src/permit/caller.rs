//! The sender of a request, with their rights.

use std::sync::Arc;

use super::rights::Rights;
use crate::intent::ReadableResources;
use crate::model::expr::UserValues;
use crate::model::{GrantVerb, Model, ResourceIndex};
use crate::value::Value;

#[derive(Debug, Clone)]
pub struct Caller {
    identity: CallerKind,
    rights: Arc<Rights>,
    /// The values of the declared fields of a user.
    user_fields: Arc<[Value]>,
}

#[derive(Debug, Clone)]
enum CallerKind {
    /// The server was started with `--open` and requires no credentials.
    Open,
    Anonymous,
    User(Arc<str>),
}

impl Caller {
    /// Every client of a server that was started with `--open`.
    pub fn open(model: &Model) -> Self {
        Self::new(CallerKind::Open, Arc::new(Rights::all(model)))
    }

    /// A caller without credentials.
    pub fn anonymous(rights: Arc<Rights>) -> Self {
        Self::new(CallerKind::Anonymous, rights)
    }

    pub fn user(name: Arc<str>, rights: Arc<Rights>) -> Self {
        Self::new(CallerKind::User(name), rights)
    }

    fn new(identity: CallerKind, rights: Arc<Rights>) -> Self {
        Self { identity, rights, user_fields: Arc::default() }
    }

    /// The same user with the values of the declared fields.
    pub fn with_user_fields(self, user_fields: Arc<[Value]>) -> Self {
        Self { user_fields, ..self }
    }

    /// The values of the declared fields of a user.
    pub fn user_fields(&self) -> &Arc<[Value]> {
        &self.user_fields
    }

    /// The values of `$user` in expressions.
    pub fn user_values(&self) -> UserValues<'_> {
        UserValues { name: self.user_name(), fields: &self.user_fields }
    }

    /// Whether the server requires no credentials at all.
    pub fn is_open(&self) -> bool {
        matches!(self.identity, CallerKind::Open)
    }

    /// The caller's name in the log and in the change log.
    pub fn name(&self) -> &str {
        match &self.identity {
            CallerKind::Open => "open",
            CallerKind::Anonymous => "anyone",
            CallerKind::User(name) => name,
        }
    }

    pub fn rights(&self) -> &Arc<Rights> {
        &self.rights
    }

    /// The value of `$user` in expressions; `None` for an anonymous caller.
    pub fn user_name(&self) -> Option<&str> {
        match &self.identity {
            CallerKind::Open | CallerKind::Anonymous => None,
            CallerKind::User(name) => Some(name),
        }
    }

    /// Whether the caller has sent valid credentials.
    pub fn is_authenticated(&self) -> bool {
        self.user_name().is_some()
    }

    pub fn is_unrestricted(&self) -> bool {
        self.rights.is_unrestricted()
    }
}

impl ReadableResources for Caller {
    fn hidden(&self, resource: ResourceIndex) -> Option<&[usize]> {
        self.rights.access(resource, GrantVerb::Get).map(|access| &*access.hidden)
    }
}
