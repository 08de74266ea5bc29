//! Authorization: whether a caller may use a verb on a resource, and with which rows and fields.
//!
//! Pure. `rights` computes the rights of a set of roles, once for each set; each request carries the
//! `AccessScope` of its caller (row-level security and hidden fields), which the plan, the store and the
//! response apply. `auth` identifies the caller. Callers without restrictions have no scope at all, and
//! nothing is checked for them.

mod access_scope;
mod rights;
mod warnings;

use std::sync::{Arc, LazyLock};

use crate::intent::{RequestVerb, Route, RouteTarget};
use crate::model;
use crate::problem::{self, Problem};
pub use access_scope::{AccessScope, UnreadableFields};
pub use rights::{Access, Rights};
pub use warnings::warnings;

/// The sender of a request, with their rights.
#[derive(Debug, Clone)]
pub struct Caller(CallerKind);

#[derive(Debug, Clone)]
enum CallerKind {
    /// The server was started with `--open` and requires no credentials.
    Open,
    Anonymous(Arc<Rights>),
    User(Arc<str>, Arc<Rights>),
}

static UNRESTRICTED: LazyLock<Arc<Rights>> = LazyLock::new(|| Arc::new(Rights::unrestricted()));

impl Caller {
    /// Every client of a server that was started with `--open`.
    pub fn open() -> Self {
        Self(CallerKind::Open)
    }

    /// A caller without credentials.
    pub fn anonymous(rights: Arc<Rights>) -> Self {
        Self(CallerKind::Anonymous(rights))
    }

    pub fn user(name: Arc<str>, rights: Arc<Rights>) -> Self {
        Self(CallerKind::User(name, rights))
    }

    /// The caller's name in the log and in the change log.
    pub fn name(&self) -> &str {
        match &self.0 {
            CallerKind::Open => "open",
            CallerKind::Anonymous(_) => "anyone",
            CallerKind::User(name, _) => name,
        }
    }

    pub fn rights(&self) -> &Arc<Rights> {
        match &self.0 {
            CallerKind::Open => &UNRESTRICTED,
            CallerKind::Anonymous(rights) | CallerKind::User(_, rights) => rights,
        }
    }

    /// The value of `$user` in expressions; `None` for an anonymous caller.
    pub fn user_name(&self) -> Option<&str> {
        match &self.0 {
            CallerKind::Open | CallerKind::Anonymous(_) => None,
            CallerKind::User(name, _) => Some(name),
        }
    }

    /// Whether the caller has sent valid credentials.
    pub fn is_authenticated(&self) -> bool {
        matches!(self.0, CallerKind::User(..))
    }

    fn is_unrestricted(&self) -> bool {
        match &self.0 {
            CallerKind::Open => true,
            CallerKind::Anonymous(rights) | CallerKind::User(_, rights) => rights.is_unrestricted(),
        }
    }
}

/// Why a caller is denied access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDenied {
    /// The caller is anonymous: 401, so that the client can send credentials.
    Unauthenticated,
    /// The caller is known, but their roles do not grant it: 403.
    NotGranted,
}

impl AccessDenied {
    pub fn problem(self) -> Problem {
        Problem::new(match self {
            Self::Unauthenticated => &problem::CREDENTIALS_NEEDED,
            Self::NotGranted => &problem::FORBIDDEN,
        })
    }
}

/// Indices of the fields that are hidden from the caller, for the route's verb and resource.
pub fn hidden_fields<'a>(caller: &'a Caller, route: &Route) -> &'a [usize] {
    let resource = route.resource().filter(|_| !caller.is_unrestricted());
    let wanted = resource.zip(granted_verb(route.verb));
    let access = wanted.and_then(|(resource, verb)| caller.rights().access(resource, verb));
    access.map_or(&[], |access| &access.hidden)
}

/// Whether the route is public: the server answers it without credentials.
pub fn is_public(route: &Route) -> bool {
    match (route.verb, &route.target) {
        (RequestVerb::Options, _) => true,
        (
            _,
            RouteTarget::Health
            | RouteTarget::Ready
            | RouteTarget::ProblemPage(_)
            | RouteTarget::Server,
        ) => true,
        (_, RouteTarget::Logout(_)) => true,
        (
            _,
            RouteTarget::Home
            | RouteTarget::Metrics
            | RouteTarget::Collection(_)
            | RouteTarget::Item(_),
        ) => false,
    }
}

/// Step 5 of the order of checks: the verb alone. The store applies the row filters later, as if filtered
/// rows did not exist.
pub fn check(caller: &Caller, route: &Route) -> Result<(), AccessDenied> {
    crate::fault::point("permit");
    if caller.is_unrestricted() || is_public(route) || is_granted(caller.rights(), route) {
        return Ok(());
    }
    Err(if caller.is_authenticated() {
        AccessDenied::NotGranted
    } else {
        AccessDenied::Unauthenticated
    })
}

fn is_granted(rights: &Rights, route: &Route) -> bool {
    match &route.target {
        // A caller with any grant may see the list of resources.
        RouteTarget::Home => rights.has_any(),
        RouteTarget::Collection(address) | RouteTarget::Item(address) => granted_verb(route.verb)
            .is_some_and(|verb| rights.access(address.resource, verb).is_some()),
        RouteTarget::Metrics => rights.can_read_metrics(),
        // `check` has admitted public routes before.
        RouteTarget::Health
        | RouteTarget::Ready
        | RouteTarget::Logout(_)
        | RouteTarget::ProblemPage(_)
        | RouteTarget::Server => false,
    }
}

/// The verb of a grant that a request needs: HEAD counts as GET.
fn granted_verb(verb: RequestVerb) -> Option<model::GrantVerb> {
    match verb {
        RequestVerb::Get | RequestVerb::Head => Some(model::GrantVerb::Get),
        RequestVerb::Post | RequestVerb::PostItems(_) => Some(model::GrantVerb::Post),
        RequestVerb::Put => Some(model::GrantVerb::Put),
        RequestVerb::Patch(_) => Some(model::GrantVerb::Patch),
        RequestVerb::Delete => Some(model::GrantVerb::Delete),
        RequestVerb::Options => None,
    }
}

#[cfg(test)]
mod tests;
