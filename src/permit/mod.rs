//! Authorization: whether a caller may use a verb on a resource, and with which rows and fields.
//!
//! Pure. `rights` computes what a set of roles may do, once for each set; each request carries the
//! `AccessScope` of its caller (row-level security and hidden fields), which the plan, the store and the
//! response apply. `auth` establishes who the caller is. What may surprise: callers without restrictions have
//! no scope at all, and nothing is checked for them.

mod reach;
mod rights;
mod warnings;

use std::sync::{Arc, LazyLock};

use crate::intent::{Place, Route, Verb};
use crate::model;
use crate::problem::{self, Problem};
pub use reach::{Reach, Unseen};
pub use rights::{Access, Rights};
pub use warnings::warnings;

/// Who sent the request, and what they may do.
#[derive(Debug, Clone)]
pub struct Caller(Who);

#[derive(Debug, Clone)]
enum Who {
    /// The server was started with `--open` and requires no credentials.
    Open,
    Anyone(Arc<Rights>),
    User(Arc<str>, Arc<Rights>),
}

static ALL: LazyLock<Arc<Rights>> = LazyLock::new(|| Arc::new(Rights::all()));

impl Caller {
    /// Every client of a server that was started with `--open`.
    pub fn open() -> Self {
        Self(Who::Open)
    }

    /// A caller without credentials.
    pub fn anyone(rights: Arc<Rights>) -> Self {
        Self(Who::Anyone(rights))
    }

    pub fn user(name: Arc<str>, rights: Arc<Rights>) -> Self {
        Self(Who::User(name, rights))
    }

    /// The caller's name in the log and in the change log.
    pub fn name(&self) -> &str {
        match &self.0 {
            Who::Open => "open",
            Who::Anyone(_) => "anyone",
            Who::User(name, _) => name,
        }
    }

    pub fn rights(&self) -> &Arc<Rights> {
        match &self.0 {
            Who::Open => &ALL,
            Who::Anyone(rights) | Who::User(_, rights) => rights,
        }
    }

    /// The value of `$user` in expressions; `None` for an anonymous caller.
    pub fn user_name(&self) -> Option<&str> {
        match &self.0 {
            Who::Open | Who::Anyone(_) => None,
            Who::User(name, _) => Some(name),
        }
    }

    /// Whether the caller has sent valid credentials.
    pub fn is_proved(&self) -> bool {
        matches!(self.0, Who::User(..))
    }

    fn is_all(&self) -> bool {
        match &self.0 {
            Who::Open => true,
            Who::Anyone(rights) | Who::User(_, rights) => rights.is_all(),
        }
    }
}

/// Why a caller may not do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The caller is anonymous: 401, so that the client can send credentials.
    Unproved,
    /// The caller is known, but their roles do not grant it: 403.
    NotGranted,
}

impl Denied {
    pub fn problem(self) -> Problem {
        Problem::new(match self {
            Self::Unproved => &problem::CREDENTIALS_NEEDED,
            Self::NotGranted => &problem::FORBIDDEN,
        })
    }
}

/// Indices of the fields that are hidden from the caller, for the route's verb and resource.
pub fn hidden<'a>(caller: &'a Caller, route: &Route) -> &'a [usize] {
    let resource = route.resource().filter(|_| !caller.is_all());
    let wanted = resource.zip(granted_verb(route.verb));
    let access = wanted.and_then(|(resource, verb)| caller.rights().access(resource, verb));
    access.map_or(&[], |access| &access.hidden)
}

/// Whether the route is public: the server answers it without credentials.
pub fn is_open(route: &Route) -> bool {
    match (route.verb, &route.place) {
        (Verb::Options, _) => true,
        (_, Place::Health | Place::Ready | Place::Explanation(_) | Place::Server) => true,
        (_, Place::Logout(_)) => true,
        (_, Place::Home | Place::Metrics | Place::Collection(_) | Place::Item(_)) => false,
    }
}

/// Step 5 of the order of checks: the verb alone. The store applies the row filters later, as if filtered
/// rows did not exist.
pub fn check(caller: &Caller, route: &Route) -> Result<(), Denied> {
    crate::fault::point("permit");
    if caller.is_all() || is_open(route) || is_granted(caller.rights(), route) {
        return Ok(());
    }
    Err(if caller.is_proved() { Denied::NotGranted } else { Denied::Unproved })
}

fn is_granted(rights: &Rights, route: &Route) -> bool {
    match &route.place {
        // A caller with any grant may see the list of resources.
        Place::Home => rights.has_any(),
        Place::Collection(address) | Place::Item(address) => granted_verb(route.verb)
            .is_some_and(|verb| rights.access(address.resource, verb).is_some()),
        Place::Metrics => rights.reads_metrics(),
        // `check` has admitted the public ones before.
        Place::Health | Place::Ready | Place::Logout(_) | Place::Explanation(_) | Place::Server => {
            false
        }
    }
}

/// The verb of a grant that a request needs: HEAD counts as GET.
fn granted_verb(verb: Verb) -> Option<model::Verb> {
    match verb {
        Verb::Get | Verb::Head => Some(model::Verb::Get),
        Verb::Post | Verb::PostItems(_) => Some(model::Verb::Post),
        Verb::Put => Some(model::Verb::Put),
        Verb::Patch(_) => Some(model::Verb::Patch),
        Verb::Delete => Some(model::Verb::Delete),
        Verb::Options => None,
    }
}

#[cfg(test)]
mod tests;
