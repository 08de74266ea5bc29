//! Facts about other items that row filters depend on: items that a path leads to, and answers to `exists`.
//!
//! Evaluation does no I/O. It records the facts that it lacks; the store looks them up, and the evaluation runs again.
//! A write uses the facts that its transaction reads. A change in the log uses the items as they were then, and the
//! memberships as they are now, like the roles of the caller.

use std::cell::RefCell;
use std::sync::Arc;

use crate::model::expr::{
    Candidates, ExprRow, MemberTest, PathRoot, RelationFacts, RowVersion, UserValues,
};
use crate::model::{ChangeLogDetail, Model, ResourceIndex, types};
use crate::value::{Id, Item, Value};

/// A fact that an evaluation lacks.
#[derive(Debug, Clone, PartialEq)]
pub enum RelatedFact {
    Item(ResourceIndex, Id),
    Member(MemberQuestion),
}

/// Whether one of the candidates satisfies a test, for a row and a user.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberQuestion {
    pub test: Arc<MemberTest>,
    /// The values of the row that it reads.
    pub this: Vec<Value>,
    pub candidates: Candidates,
    pub user: UserSnapshot,
}

/// The values of `$user`, owned, so that a question can be kept.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UserSnapshot {
    name: Option<Box<str>>,
    fields: Vec<Value>,
}

impl UserSnapshot {
    pub fn new(user: UserValues<'_>) -> Self {
        Self { name: user.name.map(Into::into), fields: user.fields.to_vec() }
    }

    pub fn values(&self) -> UserValues<'_> {
        UserValues { name: self.name.as_deref(), fields: &self.fields }
    }
}

/// The result of looking for an item among the known facts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ItemLookup<'a> {
    Unknown,
    /// There was no such item, or its values cannot be read.
    Absent,
    Present(&'a Item),
}

/// Facts that were looked up.
pub trait KnownFacts {
    fn item(&self, resource: ResourceIndex, id: Id) -> ItemLookup<'_>;

    fn member(&self, question: &MemberQuestion) -> Option<bool>;
}

/// For row filters that need no facts, and to find out which ones are needed.
#[derive(Debug, Clone, Copy)]
pub struct NoFacts;

impl KnownFacts for NoFacts {
    fn item(&self, _: ResourceIndex, _: Id) -> ItemLookup<'_> {
        ItemLookup::Unknown
    }

    fn member(&self, _: &MemberQuestion) -> Option<bool> {
        None
    }
}

/// The facts of one decision.
#[derive(Debug, Clone, Default)]
pub struct LoadedFacts {
    items: Vec<((ResourceIndex, Id), Option<Item>)>,
    members: Vec<(MemberQuestion, bool)>,
}

impl LoadedFacts {
    pub fn add_item(&mut self, of: (ResourceIndex, Id), item: Option<Item>) {
        self.items.push((of, item));
    }

    pub fn add_member(&mut self, question: MemberQuestion, is_member: bool) {
        self.members.push((question, is_member));
    }

    /// Forgets the answers to `exists`, which hold for one change only.
    pub fn clear_members(&mut self) {
        self.members.clear();
    }
}

impl KnownFacts for LoadedFacts {
    fn item(&self, resource: ResourceIndex, id: Id) -> ItemLookup<'_> {
        match self.items.iter().find(|(of, _)| *of == (resource, id)) {
            None => ItemLookup::Unknown,
            Some((_, item)) => item.as_ref().map_or(ItemLookup::Absent, ItemLookup::Present),
        }
    }

    fn member(&self, question: &MemberQuestion) -> Option<bool> {
        self.members.iter().find(|(known, _)| known == question).map(|(_, is_member)| *is_member)
    }
}

/// Whether facts are those of now, or those at the time of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactTime {
    Now,
    Past,
}

/// Reads facts for the evaluation of row filters, and collects those that it lacks.
pub struct FactReader<'a> {
    model: &'a Model,
    known: &'a dyn KnownFacts,
    time: FactTime,
    needed: RefCell<Vec<RelatedFact>>,
}

impl<'a> FactReader<'a> {
    pub fn new(model: &'a Model, known: &'a dyn KnownFacts, time: FactTime) -> Self {
        Self { model, known, time, needed: RefCell::default() }
    }

    /// For row filters that need no facts.
    pub fn without_facts(model: &'a Model) -> Self {
        Self::new(model, &NoFacts, FactTime::Now)
    }

    /// The facts that were not known. Unless there are none, the results of the evaluations are not valid.
    pub fn into_needed(self) -> Vec<RelatedFact> {
        self.needed.into_inner()
    }

    /// Whether something was not known.
    pub fn has_needed(&self) -> bool {
        !self.needed.borrow().is_empty()
    }

    /// The result of an evaluation, and whether all facts for it were known.
    pub fn attempt<T>(&self, evaluate: impl FnOnce(&Self) -> T) -> (T, bool) {
        let part = Self::new(self.model, self.known, self.time);
        let result = evaluate(&part);
        let needed = part.into_needed();
        let is_known = needed.is_empty();
        needed.into_iter().for_each(|fact| self.add_needed(fact));
        (result, is_known)
    }

    pub fn model(&self) -> &'a Model {
        self.model
    }

    /// Looks for an item among the known facts, and records it as needed if it is not there.
    pub fn item(&self, resource: ResourceIndex, id: Id) -> ItemLookup<'a> {
        // Without values in the log, nothing could tell what the item was like.
        let is_logged = self.model.resource(resource).changes == ChangeLogDetail::Values;
        if self.time == FactTime::Past && !is_logged {
            return ItemLookup::Absent;
        }
        let found = self.known.item(resource, id);
        if found == ItemLookup::Unknown {
            self.add_needed(RelatedFact::Item(resource, id));
        }
        found
    }

    fn add_needed(&self, fact: RelatedFact) {
        let mut needed = self.needed.borrow_mut();
        if !needed.contains(&fact) {
            needed.push(fact);
        }
    }

    /// As an evaluation for one user reads it.
    pub fn for_user(&'a self, user: UserValues<'a>) -> UserFacts<'a> {
        UserFacts { facts: self, user }
    }
}

/// The facts of one decision, for one user.
pub struct UserFacts<'a> {
    facts: &'a FactReader<'a>,
    user: UserValues<'a>,
}

impl RelationFacts for UserFacts<'_> {
    fn value(&self, resource: ResourceIndex, id: Id, root: PathRoot) -> Option<Value> {
        let item = match self.facts.item(resource, id) {
            ItemLookup::Unknown => return None,
            ItemLookup::Absent => return Some(Value::Null),
            ItemLookup::Present(item) => item,
        };
        Some(match root {
            PathRoot::Id => item.id.into(),
            PathRoot::Parent => item.parent.map_or(Value::Null, Value::from),
            PathRoot::Field(at) => {
                let field = self.facts.model.resource(resource).fields.get(at);
                let found = field.zip(item.values.get(at));
                let value = found.map(|(field, value)| {
                    types::try_parse_canonical(field, value.clone()).unwrap_or(Value::Null)
                });
                value.unwrap_or(Value::Null)
            }
            PathRoot::Element => Value::Null,
        })
    }

    fn exists(
        &self,
        test: &Arc<MemberTest>,
        this: Vec<Value>,
        candidates: Candidates,
    ) -> Option<bool> {
        let (test, user) = (Arc::clone(test), UserSnapshot::new(self.user));
        let question = MemberQuestion { test, this, candidates, user };
        let found = self.facts.known.member(&question);
        if found.is_none() {
            self.facts.add_needed(RelatedFact::Member(question));
        }
        found
    }
}

/// A row whose values are as stored: lists and objects are not parsed.
#[derive(Debug, Clone, Copy)]
pub struct StoredRow<'a> {
    pub id: Id,
    pub parent: Option<Id>,
    pub values: &'a [Value],
    pub version: RowVersion,
}

impl<'a> StoredRow<'a> {
    pub fn of(item: &'a Item) -> Self {
        let Item { id, parent, values, .. } = item;
        Self { id: *id, parent: *parent, values, version: RowVersion::Stored }
    }

    /// The row with its values parsed.
    pub fn with_values<'v>(&self, resource: ResourceIndex, values: &'v [Value]) -> ExprRow<'v> {
        ExprRow { resource, id: self.id, parent: self.parent, values, version: self.version }
    }
}
