//! May this caller do this here, and with which rows and fields?
//!
//! Pure. What a set of roles may do is worked out once (`rights`); a request takes along what its
//! caller reaches (`reach`), by which the plan, the store and the answer go. Who the caller is, is
//! found out elsewhere.
//! The one surprising thing: for those who may do everything there is nothing to look at, and
//! nothing is.

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

/// Who is asking, and what they may do.
#[derive(Debug, Clone)]
pub struct Caller(Who);

#[derive(Debug, Clone)]
enum Who {
    /// Nobody was asked to prove anything: the server was started with `--open`.
    Open,
    Anyone(Arc<Rights>),
    User(Arc<str>, Arc<Rights>),
}

static ALL: LazyLock<Arc<Rights>> = LazyLock::new(|| Arc::new(Rights::all()));

impl Caller {
    /// Everyone, where nobody is asked.
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

    /// The name that logs and the change log know the caller by.
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

    /// What `$user` stands for; none for anyone.
    pub fn user_name(&self) -> Option<&str> {
        match &self.0 {
            Who::Open | Who::Anyone(_) => None,
            Who::User(name, _) => Some(name),
        }
    }

    /// Whether they have shown who they are.
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

/// Why a caller may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// Nobody knows who they are: 401, and the caller may try again.
    Unproved,
    /// It is known who they are, and they may not: 403.
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

/// The fields, by index, that a caller does not know of at a place, with a verb.
pub fn hidden<'a>(caller: &'a Caller, route: &Route) -> &'a [usize] {
    let resource = route.resource().filter(|_| !caller.is_all());
    let wanted = resource.zip(granted_verb(route.verb));
    let access = wanted.and_then(|(resource, verb)| caller.rights().access(resource, verb));
    access.map_or(&[], |access| &access.hidden)
}

/// Whether nobody is asked who they are.
pub fn is_open(route: &Route) -> bool {
    match (route.verb, &route.place) {
        (Verb::Options, _) => true,
        (_, Place::Health | Place::Ready | Place::Explanation(_) | Place::Server) => true,
        (_, Place::Logout(_)) => true,
        (_, Place::Home | Place::Metrics | Place::Collection(_) | Place::Item(_)) => false,
    }
}

/// Step 5 of the order of checks: the verb alone. Rows and fields are looked at later, as if those
/// out of reach were not there.
pub fn check(caller: &Caller, route: &Route) -> Result<(), Denied> {
    crate::fault::point("permit");
    if caller.is_all() || is_open(route) || is_granted(caller.rights(), route) {
        return Ok(());
    }
    Err(if caller.is_proved() { Denied::NotGranted } else { Denied::Unproved })
}

fn is_granted(rights: &Rights, route: &Route) -> bool {
    match &route.place {
        // Whoever may do something here may see what there is.
        Place::Home => rights.has_any(),
        Place::Collection(address) | Place::Item(address) => granted_verb(route.verb)
            .is_some_and(|verb| rights.access(address.resource, verb).is_some()),
        Place::Metrics => rights.reads_metrics(),
        // Those open to everyone were let in before.
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
