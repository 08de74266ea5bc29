//! A cache of facts about items, for readers of the change log. The state of an item holds for a range of sequence
//! numbers, the answer to an `exists` for one change.
//!
//! Whether a caller sees the change of an item may depend on the items above it, and on those that a row filter names,
//! as they were then. A lookup costs a read of the store, and changes below one parent mostly come together, so the
//! states are kept. No I/O here.

use std::collections::HashMap;

use super::related_facts::{ItemLookup, KnownFacts, LoadedFacts, MemberQuestion};
use crate::intent::LoggedChange;
use crate::model::{Model, ResourceIndex};
use crate::value::{ChangeKind, Id, Item};

/// The cache is emptied when it is larger than this.
const BYTES_MAX: usize = 4 << 20;
/// The size of an entry without the values of its item.
const ENTRY_BYTES: usize = 128;

/// The state of an item at some sequence number of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemState {
    /// `None`: there was no such item, or its values are not stored or not readable.
    pub item: Option<Item>,
    /// The sequence number of the entry that ended this state; `None` if it has not ended.
    pub until: Option<i64>,
}

impl ItemState {
    fn approximate_bytes(&self) -> usize {
        ENTRY_BYTES + self.item.as_ref().map_or(0, Item::approximate_bytes)
    }
}

#[derive(Debug, Default)]
pub struct FactCache {
    /// The number of the change that is judged.
    sequence: i64,
    known: HashMap<(ResourceIndex, Id), (i64, ItemState)>,
    bytes: usize,
    /// The answers to `exists` for the change that is judged.
    members: LoadedFacts,
}

impl FactCache {
    /// Prepares for another change. The states that it needs stay until the next one, whatever their size is.
    pub fn move_to(&mut self, sequence: i64) {
        if self.bytes > BYTES_MAX {
            self.clear();
        }
        self.sequence = sequence;
        self.members.clear_members();
    }

    /// As `move_to`, for a reader that passes every change of the log in order, also those that happened after a
    /// state was looked up.
    pub fn pass(&mut self, model: &Model, logged: &LoggedChange) {
        self.move_to(logged.change.sequence);
        let Some(path) = &logged.path else { return };
        if let Some((_, state)) = self.known.remove(&(path.resource, path.id)) {
            self.bytes = self.bytes.saturating_sub(state.approximate_bytes());
            let item = match logged.kind {
                Some(ChangeKind::Created | ChangeKind::Updated) => logged.after(model).cloned(),
                Some(ChangeKind::Deleted) | None => None,
            };
            self.insert((path.resource, path.id), ItemState { item, until: None });
        }
    }

    /// Adds the state at the number of the change that is judged.
    pub fn insert(&mut self, of: (ResourceIndex, Id), state: ItemState) {
        self.bytes += state.approximate_bytes();
        if let Some((_, former)) = self.known.insert(of, (self.sequence, state)) {
            self.bytes = self.bytes.saturating_sub(former.approximate_bytes());
        }
    }

    /// Adds the answer to an `exists`, for the change that is judged.
    pub fn add_member(&mut self, question: MemberQuestion, is_member: bool) {
        self.members.add_member(question, is_member);
    }

    pub fn clear(&mut self) {
        self.known.clear();
        self.bytes = 0;
    }
}

impl KnownFacts for FactCache {
    fn item(&self, resource: ResourceIndex, id: Id) -> ItemLookup<'_> {
        match self.known.get(&(resource, id)) {
            Some((from, state))
                if *from <= self.sequence
                    && state.until.is_none_or(|until| self.sequence < until) =>
            {
                state.item.as_ref().map_or(ItemLookup::Absent, ItemLookup::Present)
            }
            _ => ItemLookup::Unknown,
        }
    }

    fn member(&self, question: &MemberQuestion) -> Option<bool> {
        self.members.member(question)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use crate::value::{Change, Moment};

    const MODEL: &str = "title = \"Shop\"\n[resources.team]\nid = \"integer\"\n[resources.team.fields]\n\
        lead = { type = \"text\" }\n";
    const TEAM: ResourceIndex = ResourceIndex(0);

    fn change(sequence: i64, kind: &str, lead: Option<&str>) -> Change {
        Change {
            sequence,
            time: Moment::parse("2026-11-17T03:20:01Z").unwrap(),
            resource: "team".to_owned(),
            id: "1".to_owned(),
            subject: "/teams/1".to_owned(),
            kind: kind.to_owned(),
            actor: "ann".to_owned(),
            request_id: "r".to_owned(),
            changed: None,
            before: None,
            after: lead.map(|lead| {
                format!(
                    r#"{{"id":1,"lead":"{lead}","created_at":"2026-11-17T03:20:01Z","updated_at":"2026-11-17T03:20:01Z","version":3}}"#
                )
            }),
        }
    }

    fn item(model: &Model, lead: &str) -> Option<Item> {
        LoggedChange::new(model, change(1, "created", Some(lead))).after(model).cloned()
    }

    #[test]
    fn fact_cache_knows_a_state_for_its_range_of_numbers_only() {
        let model = model::read("m.toml", MODEL).unwrap();
        let (mut cache, ann) = (FactCache::default(), item(&model, "ann"));
        cache.move_to(5);
        cache.insert((TEAM, Id::Integer(1)), ItemState { item: ann, until: Some(8) });
        for (sequence, is_known) in [(4, false), (5, true), (7, true), (8, false)] {
            cache.move_to(sequence);
            let state = cache.item(TEAM, Id::Integer(1));
            assert_eq!(state != ItemLookup::Unknown, is_known, "{sequence}");
            assert_eq!(cache.item(TEAM, Id::Integer(2)), ItemLookup::Unknown);
        }
    }

    #[test]
    fn fact_cache_follows_the_changes_that_pass() {
        let model = model::read("m.toml", MODEL).unwrap();
        let mut cache = FactCache::default();
        let pass = |cache: &mut FactCache, sequence, kind, lead| {
            cache.pass(&model, &LoggedChange::new(&model, change(sequence, kind, lead)));
        };
        // An item that was never looked up is not cached.
        pass(&mut cache, 4, "updated", Some("ann"));
        assert_eq!(cache.item(TEAM, Id::Integer(1)), ItemLookup::Unknown);
        let state = ItemState { item: item(&model, "ann"), until: None };
        cache.insert((TEAM, Id::Integer(1)), state);
        pass(&mut cache, 6, "updated", Some("bob"));
        let bob = item(&model, "bob").unwrap();
        assert_eq!(cache.item(TEAM, Id::Integer(1)), ItemLookup::Present(&bob));
        pass(&mut cache, 7, "deleted", None);
        assert_eq!(cache.item(TEAM, Id::Integer(1)), ItemLookup::Absent);
    }

    #[test]
    fn fact_cache_over_its_size_forgets_everything_at_the_next_change() {
        let model = model::read("m.toml", MODEL).unwrap();
        let (mut cache, large) = (FactCache::default(), item(&model, &"x".repeat(3 << 20)));
        cache.move_to(1);
        for id in 1..=2 {
            let state = ItemState { item: large.clone(), until: None };
            cache.insert((TEAM, Id::Integer(id)), state);
        }
        assert_ne!(cache.item(TEAM, Id::Integer(1)), ItemLookup::Unknown);
        cache.move_to(2);
        assert_eq!(cache.item(TEAM, Id::Integer(1)), ItemLookup::Unknown);
        assert_eq!(cache.bytes, 0);
    }
}
