//! Authorization: whether a caller may use a verb on a resource, and with which rows and fields.
//!
//! Pure. `rights` computes the rights of a set of roles, once for each set; each request carries the
//! `AccessScope` of its caller (row-level security and hidden fields), which the plan, the store and the
//! response apply. `auth` identifies the caller. The scope of a caller without restrictions has
//! no row filters and no hidden fields.

mod access;
mod access_scope;
mod fact_cache;
mod caller;
pub mod change_visibility;
mod related_facts;
mod rights;
mod warnings;

use crate::intent::{RequestVerb, Route, RouteTarget};
use crate::model::{GrantVerb, ResourceIndex};
use crate::problem::{self, Problem};
pub use access::{Access, ParsedRow};
pub use access_scope::{AccessScope, UnreadableFields};
pub use caller::Caller;
pub use fact_cache::{FactCache, ItemState};
pub use related_facts::{
    FactReader, FactTime, KnownFacts, LoadedFacts, MemberQuestion, NoFacts, RelatedFact, StoredRow,
};
pub use rights::Rights;
pub use warnings::warnings;

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

/// The grant that a route requires.
enum RouteRequirement {
    /// Not even credentials.
    Nothing,
    /// A caller with any grant may see the list of resources, and the description of what it grants.
    AnyGrant,
    /// Any grant of this resource.
    AnyGrantOf(ResourceIndex),
    Metrics,
    Changes,
    Verb(ResourceIndex, GrantVerb),
}

fn requirement(route: &Route) -> RouteRequirement {
    match (&route.target, granted_verb(route.verb)) {
        (_, None) => RouteRequirement::Nothing,
        (
            RouteTarget::Health
            | RouteTarget::Ready
            | RouteTarget::ProblemPage(_)
            | RouteTarget::Asset(_)
            | RouteTarget::Server
            | RouteTarget::Logout(_),
            _,
        ) => RouteRequirement::Nothing,
        (RouteTarget::Home | RouteTarget::OpenApi | RouteTarget::Docs(None), _) => {
            RouteRequirement::AnyGrant
        }
        (RouteTarget::Schema(resource) | RouteTarget::Docs(Some(resource)), _) => {
            RouteRequirement::AnyGrantOf(*resource)
        }
        (RouteTarget::Metrics, _) => RouteRequirement::Metrics,
        (RouteTarget::Changes, _) => RouteRequirement::Changes,
        (RouteTarget::Collection(address) | RouteTarget::Item(address), Some(verb)) => {
            RouteRequirement::Verb(address.resource, verb)
        }
    }
}

/// Whether the route is public: the server answers it without credentials.
pub fn is_public(route: &Route) -> bool {
    matches!(requirement(route), RouteRequirement::Nothing)
}

/// Step 5 of the order of checks: the verb alone. The store applies the row filters later, as if filtered
/// rows did not exist.
pub fn check(caller: &Caller, route: &Route) -> Result<(), AccessDenied> {
    crate::fault::point("permit");
    let rights = caller.rights();
    let is_granted = match requirement(route) {
        RouteRequirement::Nothing => true,
        RouteRequirement::AnyGrant => rights.has_any(),
        RouteRequirement::AnyGrantOf(resource) => rights.has_any_grant(resource),
        RouteRequirement::Metrics => rights.can_read_metrics(),
        RouteRequirement::Changes => rights.can_read_changes(),
        RouteRequirement::Verb(resource, verb) => rights.access(resource, verb).is_some(),
    };
    match (is_granted, caller.is_authenticated()) {
        (true, _) => Ok(()),
        (false, true) => Err(AccessDenied::NotGranted),
        (false, false) => Err(AccessDenied::Unauthenticated),
    }
}

/// The verb of a grant that a request needs: HEAD and QUERY count as GET, and OPTIONS is public.
fn granted_verb(verb: RequestVerb) -> Option<GrantVerb> {
    match verb {
        RequestVerb::Get | RequestVerb::Head | RequestVerb::Watch { .. } | RequestVerb::Query => {
            Some(GrantVerb::Get)
        }
        RequestVerb::Post | RequestVerb::PostItems(_) => Some(GrantVerb::Post),
        RequestVerb::Put => Some(GrantVerb::Put),
        RequestVerb::Patch(_) => Some(GrantVerb::Patch),
        RequestVerb::Delete => Some(GrantVerb::Delete),
        RequestVerb::Options => None,
    }
}

#[cfg(test)]
mod tests;
