//! The rights of a set of roles: the union of their grants.
//!
//! Computed once for each set, from the model alone; `access` has the rules for rows and fields. Every caller also has
//! the rights of `anyone`. Sending credentials never reduces the rights.

use sha2::{Digest as _, Sha256};

use super::access::Access;
use crate::model::builtin::{ADMIN, ANYONE};
use crate::model::settings::RateLimit;
use crate::model::{GrantVerb, Model, Resource, ResourceIndex, Role};
use crate::value::hash_u128;

/// The combined rights of a caller's roles.
#[derive(Debug)]
pub struct Rights {
    /// By resource; `None` is unrestricted.
    grants: Option<Vec<VerbGrants>>,
    is_admin: bool,
    can_read_metrics: bool,
    can_read_changes: bool,
    /// The rate limit of the caller; `None`: unlimited.
    pub rate_limit: Option<RateLimit>,
    key: u128,
}

type VerbGrants = [Option<Access>; GrantVerb::ALL.len()];

impl Rights {
    /// All rights, including `/-/`; nobody has rights to retained parts.
    pub fn all(model: &Model) -> Self {
        let has_retained = model.retained().next().is_some();
        let of_resource = |resource: &Resource| {
            let access = (!resource.is_retained).then(|| Access::to_declared(resource));
            GrantVerb::ALL.map(|_| access.clone())
        };
        Self {
            grants: has_retained.then(|| model.resources.iter().map(of_resource).collect()),
            is_admin: true,
            can_read_metrics: true,
            can_read_changes: true,
            rate_limit: None,
            key: 0,
        }
    }

    /// The combined rights of these roles. `admin` has all rights; names that the model does not declare
    /// grant nothing.
    pub fn of_roles<'r>(model: &Model, roles: impl Iterator<Item = &'r str>) -> Self {
        let names: Vec<&str> = roles.chain([ANYONE]).collect();
        if names.contains(&ADMIN) {
            return Self::all(model);
        }
        let is_among = |role: &&Role| names.contains(&&*role.name);
        let roles: Vec<&Role> = model.roles.iter().filter(is_among).collect();
        let of_resource = |resource: &Resource| {
            GrantVerb::ALL.map(|verb| {
                // `"*"` also grants retained resources.
                if resource.is_retained {
                    return None;
                }
                let grants = roles.iter().flat_map(|role| &role.grants);
                let grants = grants.filter(|grant| {
                    grant.resource == resource.index && grant.verbs.contains(&verb)
                });
                Access::from_grants(resource, grants, &names)
            })
        };
        let grants = model.resources.iter().map(of_resource).collect();
        let rate_limit = widest_rate_limit(model, &roles);
        Self {
            grants: Some(grants),
            is_admin: false,
            can_read_metrics: roles.iter().any(|role| role.can_read_metrics),
            can_read_changes: roles.iter().any(|role| role.can_read_changes),
            rate_limit,
            key: hash_roles(&roles),
        }
    }

    /// Whether both grant the same, even if the roles differ.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.key == other.key
            || (self.grants == other.grants
                && self.can_read_metrics == other.can_read_metrics
                && self.can_read_changes == other.can_read_changes)
    }

    /// Whether there are neither row filters nor hidden fields nor refused verbs.
    pub fn is_unrestricted(&self) -> bool {
        self.grants.is_none()
    }

    /// Whether the rights are those of `admin`.
    pub fn is_admin(&self) -> bool {
        self.is_admin
    }

    /// Whether the rights grant anything at all.
    pub fn has_any(&self) -> bool {
        match &self.grants {
            None => true,
            Some(grants) => {
                self.can_read_metrics
                    || self.can_read_changes
                    || grants.iter().flatten().any(Option::is_some)
            }
        }
    }

    /// Whether the rights grant reading `/-/metrics`.
    pub fn can_read_metrics(&self) -> bool {
        self.can_read_metrics
    }

    /// Whether the rights grant reading `/-/changes`.
    pub fn can_read_changes(&self) -> bool {
        self.can_read_changes
    }

    /// `None` when the verb is not granted.
    pub fn access(&self, resource: ResourceIndex, verb: GrantVerb) -> Option<&Access> {
        match &self.grants {
            None => Some(Access::unrestricted()),
            Some(grants) => grants.get(resource.0)?.get(verb as usize)?.as_ref(),
        }
    }

    /// Whether the rights grant any verb on the resource.
    pub fn has_any_grant(&self, resource: ResourceIndex) -> bool {
        GrantVerb::ALL.iter().any(|verb| self.access(resource, *verb).is_some())
    }

    /// Equal for equal rights within one model.
    pub fn key(&self) -> u128 {
        self.key
    }
}

/// The rate limit of a caller with these roles: the highest limit of the roles, and no limit if one of them
/// has none. The limit of `anyone` applies only to callers without a role.
fn widest_rate_limit(model: &Model, roles: &[&Role]) -> Option<RateLimit> {
    let limit_of = |name: &str| model.server.rate_limits.iter().find(|limit| *limit.role == *name);
    let own = roles.iter().map(|role| &*role.name).filter(|name| *name != ANYONE);
    let own: Vec<Option<&RateLimit>> = own.map(limit_of).collect();
    if own.is_empty() {
        return limit_of(ANYONE).cloned();
    }
    let own: Option<Vec<&RateLimit>> = own.into_iter().collect();
    let width = |one: &&&RateLimit, other: &&&RateLimit| {
        let product = |a: &RateLimit, b: &RateLimit| u64::from(a.requests) * u64::from(b.seconds);
        let by_rate = product(one, other).cmp(&product(other, one));
        by_rate.then(one.requests.cmp(&other.requests))
    };
    own?.iter().max_by(width).copied().cloned()
}

/// A hash of the declared roles, in the model's order; never zero, which stands for unrestricted.
fn hash_roles(roles: &[&Role]) -> u128 {
    let mut hash = Sha256::new();
    for role in roles {
        hash.update(role.name.as_bytes());
        hash.update([0]);
    }
    hash_u128(hash)
}
