//! The rights of a set of roles: the union of their grants.
//!
//! Computed once for each set, from the model alone. A row is accessible if one role grants it. A field is
//! shown if, for every accessible row, a role that grants the row shows the field. A shown field can be changed in
//! the rows of the roles that let it be changed. So a role's rights to some rows never extend to the rows of another
//! role. Every caller also has the rights of
//! `anyone`. Sending credentials never reduces the rights.

use sha2::{Digest as _, Sha256};

use super::related_facts::{FactReader, StoredRow};
use crate::model::builtin::{ADMIN, ANYONE};
use crate::model::expr::{UserValues, holds};
use crate::model::settings::RateLimit;
use crate::model::{
    Expr, Grant, GrantVerb, Model, Resource, ResourceIndex, Role, StateMachine, TransitionLimit,
    types,
};
use crate::value::{Value, hash_u32, hash_u128};

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

/// The rows and fields of one resource that a caller may use with one verb.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Access {
    /// Row filters: a row is accessible if one of them holds; an empty list allows all rows.
    pub row_filters: Vec<Expr>,
    /// Field indices, in order: hidden from the caller.
    pub hidden: Vec<usize>,
    /// Field indices, in order: readable, but writable in no row.
    pub readonly: Vec<usize>,
    /// Fields that are writable in some of the rows only.
    pub writable_in_some: Vec<WritableField>,
    /// A hash of the hidden fields; zero when nothing is hidden.
    pub hidden_hash: u32,
    /// Transitions of the state that the caller's roles do not allow: from, to.
    pub barred_transitions: Vec<(Box<str>, Box<str>)>,
}

/// A field that is writable in the rows for which one of these row filters holds.
#[derive(Debug, Clone, PartialEq)]
pub struct WritableField {
    pub field: usize,
    row_filters: Vec<Expr>,
}

impl WritableField {
    pub fn is_writable_in(
        &self,
        resource: &Resource,
        row: StoredRow<'_>,
        user: UserValues<'_>,
        facts: &FactReader<'_>,
    ) -> bool {
        any_holds(&self.row_filters, resource, row, user, facts)
    }
}

impl Access {
    const UNRESTRICTED: Self = Self {
        row_filters: Vec::new(),
        hidden: Vec::new(),
        readonly: Vec::new(),
        writable_in_some: Vec::new(),
        hidden_hash: 0,
        barred_transitions: Vec::new(),
    };

    /// The states that may follow a state, of those that the caller's roles allow.
    pub fn allowed_successors<'s>(
        &self,
        states: &'s StateMachine,
        from: &str,
    ) -> impl Iterator<Item = &'s str> {
        let is_allowed = move |to: &&'s str| {
            !self.barred_transitions.iter().any(|(one, other)| **one == *from && **other == **to)
        };
        states.successors(from).iter().map(|state| &**state).filter(is_allowed)
    }

    /// Access to all rows and fields.
    pub fn unrestricted() -> &'static Self {
        static UNRESTRICTED: Access = Access::UNRESTRICTED;
        &UNRESTRICTED
    }

    /// Access to all rows, and to all fields but the retained ones.
    pub fn to_declared(resource: &Resource) -> Self {
        let fields = resource.fields.iter().enumerate();
        let hidden: Vec<usize> =
            fields.filter(|(_, field)| field.is_retained).map(|(at, _)| at).collect();
        let hidden_hash = hash_hidden_fields(resource, &hidden);
        Self { hidden, hidden_hash, ..Self::UNRESTRICTED }
    }

    /// Access to no row.
    pub fn none() -> Self {
        Self { row_filters: vec![Expr::always_false()], ..Self::UNRESTRICTED }
    }

    /// Whether the row filters allow a row with these stored values.
    pub fn allows_row(
        &self,
        resource: &Resource,
        row: StoredRow<'_>,
        user: UserValues<'_>,
        facts: &FactReader<'_>,
    ) -> bool {
        self.row_filters.is_empty() || any_holds(&self.row_filters, resource, row, user, facts)
    }

    /// The fields that the caller may not change in at least one row, in order.
    pub fn readonly_in_some_row(&self) -> Vec<usize> {
        let in_some = self.writable_in_some.iter().map(|one| one.field);
        let mut all: Vec<usize> = self.readonly.iter().copied().chain(in_some).collect();
        all.sort_unstable();
        all
    }

    /// Whether the caller may change a shown field in every row.
    pub fn is_writable_in_every_row(&self, field: usize) -> bool {
        !self.readonly.contains(&field)
            && !self.writable_in_some.iter().any(|one| one.field == field)
    }

    /// Whether the row filters depend on other items than the row.
    pub fn reads_related(&self) -> bool {
        self.row_filters.iter().any(Expr::reads_related)
    }

    /// Whether other items than the row decide which of its fields the caller may change.
    pub fn writable_fields_read_related(&self) -> bool {
        let filters = self.writable_in_some.iter().flat_map(|one| &one.row_filters);
        filters.into_iter().any(Expr::reads_related)
    }

    /// `roles`: the names of all roles of the caller.
    fn from_grants<'g>(
        resource: &Resource,
        grants: impl Iterator<Item = &'g Grant>,
        roles: &[&str],
    ) -> Option<Self> {
        let grants: Vec<&Grant> = grants.collect();
        if grants.is_empty() {
            return None;
        }
        let mut only: Vec<Expr> = Vec::new();
        if grants.iter().all(|grant| grant.condition.is_some()) {
            for expression in grants.iter().filter_map(|grant| grant.condition.as_ref()) {
                if !only.contains(expression) {
                    only.push(expression.clone());
                }
            }
        }
        // Whether every accessible row is granted by a role that allows it. Two filters are only compared for
        // equality; neither is known to imply the other.
        let is_everywhere = |allows: &dyn Fn(&Grant) -> bool| {
            let covers = |one: &Grant, other: &Grant| {
                one.condition.is_none() || one.condition == other.condition
            };
            grants
                .iter()
                .all(|grant| grants.iter().any(|other| allows(other) && covers(other, grant)))
        };
        let is_retained = |index: usize| resource.fields.get(index).is_some_and(|f| f.is_retained);
        let shows =
            |index: usize| move |grant: &Grant| !grant.hide.contains(&index) && !is_retained(index);
        let changes = |index: usize| {
            move |grant: &Grant| !grant.hide.contains(&index) && !grant.readonly.contains(&index)
        };
        let fields = 0..resource.fields.len();
        let (shown, hidden): (Vec<usize>, Vec<usize>) =
            fields.partition(|index| is_everywhere(&shows(*index)));
        let (mut readonly, mut writable_in_some) = (Vec::new(), Vec::new());
        for field in shown.into_iter().filter(|index| !is_everywhere(&changes(*index))) {
            let is_writable = changes(field);
            let granting = grants.iter().filter(|grant| is_writable(grant));
            let mut row_filters: Vec<Expr> = Vec::new();
            for condition in granting.filter_map(|grant| grant.condition.as_ref()) {
                if !row_filters.contains(condition) {
                    row_filters.push(condition.clone());
                }
            }
            match row_filters.is_empty() {
                true => readonly.push(field),
                false => writable_in_some.push(WritableField { field, row_filters }),
            }
        }
        let mark = hash_hidden_fields(resource, &hidden);
        let barred_transitions = barred_transitions(resource, roles);
        Some(Self {
            row_filters: only,
            hidden,
            readonly,
            writable_in_some,
            hidden_hash: mark,
            barred_transitions,
        })
    }
}

/// Whether one of the row filters holds for a row with these stored values. A filter that reads a value which cannot be
/// parsed does not hold.
fn any_holds(
    row_filters: &[Expr],
    resource: &Resource,
    row: StoredRow<'_>,
    user: UserValues<'_>,
    facts: &FactReader<'_>,
) -> bool {
    let mut damaged = Vec::new();
    let fields = resource.fields.iter().zip(row.values).enumerate();
    let values = fields.map(|(at, (field, value))| {
        types::try_parse_canonical(field, value.clone()).unwrap_or_else(|_| {
            damaged.push(at);
            Value::Null
        })
    });
    let values: Vec<Value> = values.collect();
    let (row, related) = (row.with_values(resource.index, &values), facts.for_user(user));
    let is_readable = |only: &Expr| !damaged.iter().any(|at| only.reads_field(*at));
    row_filters.iter().any(|only| is_readable(only) && holds(only, row, user, &related))
}

/// The transitions for which a role is needed that is not among these.
fn barred_transitions(resource: &Resource, roles: &[&str]) -> Vec<(Box<str>, Box<str>)> {
    let limits = resource.state_field().map_or(&[][..], |(_, states)| &states.limits);
    let is_barred =
        |limit: &&TransitionLimit| !limit.roles.iter().any(|role| roles.contains(&&**role));
    let barred = limits.iter().filter(is_barred);
    barred.map(|limit| (limit.from.clone(), limit.to.clone())).collect()
}

fn hash_hidden_fields(resource: &Resource, hidden: &[usize]) -> u32 {
    if hidden.is_empty() {
        return 0;
    }
    let mut hash = Sha256::new();
    for field in hidden.iter().filter_map(|index| resource.fields.get(*index)) {
        hash.update(field.name.as_bytes());
        hash.update([0]);
    }
    hash_u32(hash)
}

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
