//! Creates that can be batched: they read nothing that is stored, and nothing stored can conflict with them.
//!
//! Several of them can be decided independently and written by one multi-row INSERT: none waits for a row
//! lock that another request holds, and none is refused because of another's write.

use crate::fault;
use crate::model::Model;
use crate::permit::FactReader;
use crate::plan::decide::ScriptResult;
use crate::plan::{
    Outcome, StoredState, WriteAction, WritePlan, WriteRequest, decide, uuids_per_item,
};
use crate::store::change_log::ChangeLogContext;
use crate::store::context::StoreContext;
use crate::store::error::StoreError;
use crate::store::script::ItemWrites;
use crate::store::statement::Statement;
use crate::store::uuid_v7;
use crate::value::{Id, IdKind, Moment};

/// Whether a write can be batched: one top-level item of the model with a generated id, without references or
/// unique rules, without an idempotency key, and by a caller whose rights to it depend on no other items.
pub fn is_batchable(model: &Model, write: &WritePlan) -> bool {
    let WriteAction::Create { drafts, .. } = &write.action else { return false };
    let [draft] = &**drafts else { return false };
    let resource = model.resource(write.collection.resource);
    write.idempotency.is_none()
        && !resource.is_builtin
        && resource.id == IdKind::Uuid
        && resource.parent.is_none()
        && resource.unique.is_empty()
        && draft.references.is_empty()
        && !write.collection.scope.reads_related(resource.index)
}

/// A new item to insert.
pub struct BatchableCreate<'a> {
    log: ChangeLogContext<'a>,
    writes: ItemWrites<'a>,
    result: ScriptResult,
}

impl<'a> BatchableCreate<'a> {
    /// Decides a create that `is_batchable` accepts.
    pub fn decide(
        context: &'a StoreContext,
        write: &'a WritePlan,
        (id, now): (Id, Moment),
    ) -> Result<Self, StoreError> {
        fault::point("transaction");
        let WritePlan { collection, action, preconditions: conditions, author: by, .. } = write;
        if write.has_clear_text(&context.model) {
            return Err(StoreError::internal("a clear-text secret must not be stored"));
        }
        let uuids = uuids_per_item(context.model.resource(collection.resource));
        let uuids = uuid_v7::random_uuids(uuids)?;
        let found = StoredState { ids: vec![id], uuids, ..StoredState::empty(now) };
        let request = WriteRequest { action, conditions, user: by.user_values() };
        let facts = FactReader::without_facts(&context.model);
        let script = decide(&facts, collection, request, found).map_err(StoreError::Refused)?;
        let (saving, _) = ItemWrites::new(context, collection, script.steps);
        Ok(Self {
            log: ChangeLogContext { collection, by, now },
            writes: saving,
            result: script.result,
        })
    }

    pub fn statements(&'a self, context: &'a StoreContext) -> Vec<Statement<'a>> {
        self.writes.statements(context, &self.log, true)
    }

    /// The outcome, once it is written.
    pub fn outcome(self) -> Result<Outcome, StoreError> {
        let outcome = self.result.into_outcome(self.writes.into_items());
        outcome.ok_or_else(|| StoreError::internal("a create returned no item"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::model;
    use crate::plan::{
        Cardinality, ChangeAuthor, Collection, DraftValues, IdempotentRequest, ItemDraft,
        Reference, RenderResponse,
    };

    const MODEL: &str = r#"
title = "T"
[resources.plain.fields]
name = { type = "text" }
[resources.counted]
id = "integer"
[resources.counted.fields]
name = { type = "text" }
[resources.below]
parent = "plain"
[resources.below.fields]
name = { type = "text" }
[resources.single.fields]
name = { type = "text", unique = true }
[resources.referring.fields]
other = { type = "ref", to = "plain" }
"#;

    fn write(label: &str) -> (Model, WritePlan) {
        let model = model::read("nouns.toml", MODEL).unwrap();
        let resource = model.resources.iter().find(|resource| &*resource.label == label).unwrap();
        let collection = Collection { resource: resource.index, ..Collection::users(&model) };
        let values = DraftValues::Complete(Vec::new());
        let draft = ItemDraft { root: "/".into(), values, references: Vec::new() };
        let action = WriteAction::Create { drafts: vec![draft], count: Cardinality::One };
        let by = ChangeAuthor::without_user("open", "-");
        (model, WritePlan::new(collection, action, by))
    }

    fn check(
        label: &str,
        change: impl FnOnce(&mut WritePlan, &mut Vec<ItemDraft>),
        expected: bool,
    ) {
        let (model, mut write) = write(label);
        let WriteAction::Create { drafts, count } = write.action.clone() else { panic!() };
        let mut drafts = drafts;
        change(&mut write, &mut drafts);
        write.action = WriteAction::Create { drafts, count };
        assert_eq!(is_batchable(&model, &write), expected, "{label}");
    }

    #[test]
    fn batchable_create_has_no_parent_reference_unique_rule_or_key() {
        check("plain", |_, _| {}, true);
        for label in ["counted", "below", "single"] {
            check(label, |_, _| {}, false);
        }
        check("plain", |_, drafts| drafts.push(drafts[0].clone()), false);
        check("plain", |_, drafts| drafts.clear(), false);
        // Without a value there is no reference to look up.
        check("referring", |_, _| {}, true);
        let refer = |write: &mut WritePlan, drafts: &mut Vec<ItemDraft>| {
            let to = write.collection.resource;
            let reference =
                Reference { field: 0, to, id: Id::Integer(7), pointer: "/other".into() };
            drafts[0].references.push(reference);
        };
        check("referring", refer, false);
        let keep = |write: &mut WritePlan, _: &mut Vec<ItemDraft>| {
            let (scope, prints, says): (_, _, RenderResponse) =
                ("".into(), Vec::new(), Arc::new(|_| None));
            let (wait, keeps_refusals) = (Duration::ZERO, false);
            write.idempotency = Some(Box::new(IdempotentRequest {
                scope,
                lock_number: 0,
                fingerprints: prints,
                wait_max: wait,
                can_store_refusals: keeps_refusals,
                render: says,
            }));
        };
        check("plain", keep, false);
    }
}
