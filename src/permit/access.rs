//! The rows and fields of one resource that a caller may use with one verb: what several grants allow together.
//!
//! A row is accessible if one grant covers it. A field is shown if, for every accessible row, a grant that covers the
//! row shows the field. A field that is shown, and that not every grant lets be changed, can be changed if one grant
//! that lets it be changed covers the row, before the write and after it. So a grant's rights to the fields of some
//! rows never extend to the rows of another grant. Rows are less strict: a write may take a row from one grant to
//! another, which neither of them allows alone.

use std::cell::OnceCell;

use sha2::{Digest as _, Sha256};

use super::related_facts::{FactReader, StoredRow};
use crate::model::expr::{ExprRow, UserValues, holds};
use crate::model::{Expr, Grant, Resource, StateMachine, TransitionLimit, types};
use crate::value::{Value, hash_u32};

/// The rows and fields of one resource that a caller may use with one verb.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Access {
    /// Row filters: a row is accessible if one of them holds; an empty list allows all rows.
    pub row_filters: Vec<Expr>,
    /// Field indices, in order: hidden from the caller.
    pub hidden: Vec<usize>,
    /// Field indices, in order: readable, but writable in no row.
    pub readonly: Vec<usize>,
    /// The limited fields: writable in some of the rows only.
    pub limited_fields: Vec<LimitedFields>,
    /// The indices of the read-only and of the limited fields, in order.
    pub readonly_or_limited: Vec<usize>,
    /// A hash of the hidden fields; zero when nothing is hidden.
    pub hidden_hash: u32,
    /// Transitions of the state that the caller's roles do not allow: from, to.
    pub barred_transitions: Vec<(Box<str>, Box<str>)>,
}

/// Limited fields that the same grants let the caller change.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitedFields {
    /// Field indices, in order.
    pub fields: Vec<usize>,
    /// The row filters of those grants.
    row_filters: Vec<Expr>,
}

impl LimitedFields {
    /// Whether one of the grants covers all of these rows: the row that a write replaces, and the one that it stores.
    pub fn are_writable(
        &self,
        rows: &[&ParsedRow<'_>],
        user: UserValues<'_>,
        facts: &FactReader<'_>,
    ) -> bool {
        let covers = |filter: &Expr| rows.iter().all(|row| row.satisfies(filter, user, facts));
        self.row_filters.iter().any(covers)
    }
}

/// A row whose values are parsed when a row filter first needs them.
pub struct ParsedRow<'a> {
    resource: &'a Resource,
    row: StoredRow<'a>,
    parsed: OnceCell<ParsedValues>,
}

struct ParsedValues {
    values: Vec<Value>,
    /// The indices of those that cannot be parsed.
    damaged: Vec<usize>,
}

impl<'a> ParsedRow<'a> {
    pub fn new(resource: &'a Resource, row: StoredRow<'a>) -> Self {
        Self { resource, row, parsed: OnceCell::new() }
    }

    /// The values as they are stored.
    pub fn stored(&self) -> &'a [Value] {
        self.row.values
    }

    /// The row for expressions. A value that cannot be parsed is absent.
    pub fn expr_row(&self) -> ExprRow<'_> {
        self.row.with_values(self.resource.index, &self.parsed().values)
    }

    fn parsed(&self) -> &ParsedValues {
        self.parsed.get_or_init(|| {
            let mut damaged = Vec::new();
            let fields = self.resource.fields.iter().zip(self.row.values).enumerate();
            let values = fields.map(|(at, (field, value))| {
                types::try_parse_canonical(field, value.clone()).unwrap_or_else(|_| {
                    damaged.push(at);
                    Value::Null
                })
            });
            ParsedValues { values: values.collect(), damaged }
        })
    }

    /// Whether a row filter holds. One that reads a value which cannot be parsed does not hold.
    fn satisfies(&self, filter: &Expr, user: UserValues<'_>, facts: &FactReader<'_>) -> bool {
        !self.parsed().damaged.iter().any(|at| filter.reads_field(*at))
            && holds(filter, self.expr_row(), user, &facts.for_user(user))
    }
}

impl Access {
    const UNRESTRICTED: Self = Self {
        row_filters: Vec::new(),
        hidden: Vec::new(),
        readonly: Vec::new(),
        limited_fields: Vec::new(),
        readonly_or_limited: Vec::new(),
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
        self.allows_parsed_row(&ParsedRow::new(resource, row), user, facts)
    }

    pub fn allows_parsed_row(
        &self,
        row: &ParsedRow<'_>,
        user: UserValues<'_>,
        facts: &FactReader<'_>,
    ) -> bool {
        let is_covered = |filter: &Expr| row.satisfies(filter, user, facts);
        self.row_filters.is_empty() || self.row_filters.iter().any(is_covered)
    }

    /// Whether it has all rows that another access has. Two filters are only compared for equality.
    pub fn covers_rows_of(&self, other: &Self) -> bool {
        let is_known = |filter: &Expr| self.row_filters.contains(filter);
        self.row_filters.is_empty()
            || (!other.row_filters.is_empty() && other.row_filters.iter().all(is_known))
    }

    /// Whether a field is limited: the caller may change it in some rows only.
    pub fn is_limited(&self, field: usize) -> bool {
        self.limited_fields.iter().any(|limited| limited.fields.contains(&field))
    }

    /// Whether the row filters depend on other items than the row.
    pub fn reads_related(&self) -> bool {
        self.row_filters.iter().any(Expr::reads_related)
    }

    /// Whether other items than the row decide which of its limited fields the caller may change.
    pub fn limited_fields_read_related(&self) -> bool {
        let mut filters = self.limited_fields.iter().flat_map(|limited| &limited.row_filters);
        filters.any(Expr::reads_related)
    }

    /// `roles`: the names of all roles of the caller.
    pub fn from_grants<'g>(
        resource: &Resource,
        grants: impl Iterator<Item = &'g Grant>,
        roles: &[&str],
    ) -> Option<Self> {
        let grants: Vec<&Grant> = grants.collect();
        if grants.is_empty() {
            return None;
        }
        let row_filters = match grants.iter().all(|grant| grant.condition.is_some()) {
            true => distinct_filters(grants.iter()),
            false => Vec::new(),
        };
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
        let (mut readonly, mut limited_fields) = (Vec::new(), Vec::<LimitedFields>::new());
        let is_guarded = |field: &usize| !is_everywhere(&changes(*field));
        let readonly_or_limited: Vec<usize> = shown.into_iter().filter(is_guarded).collect();
        for field in &readonly_or_limited {
            let is_writable = changes(*field);
            let filters = distinct_filters(grants.iter().filter(|grant| is_writable(grant)));
            let same = limited_fields.iter_mut().find(|limited| limited.row_filters == filters);
            match same {
                _ if filters.is_empty() => readonly.push(*field),
                Some(limited) => limited.fields.push(*field),
                None => limited_fields
                    .push(LimitedFields { fields: vec![*field], row_filters: filters }),
            }
        }
        let hidden_hash = hash_hidden_fields(resource, &hidden);
        let barred_transitions = barred_transitions(resource, roles);
        Some(Self {
            row_filters,
            hidden,
            readonly,
            limited_fields,
            readonly_or_limited,
            hidden_hash,
            barred_transitions,
        })
    }
}

/// The row filters of these grants, each once.
fn distinct_filters<'g>(grants: impl Iterator<Item = &'g &'g Grant>) -> Vec<Expr> {
    let mut filters: Vec<Expr> = Vec::new();
    for filter in grants.filter_map(|grant| grant.condition.as_ref()) {
        if !filters.contains(filter) {
            filters.push(filter.clone());
        }
    }
    filters
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
