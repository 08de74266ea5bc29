//! Creates that can be batched: they read nothing that is stored, and nothing stored can conflict with them.
//!
//! Several of them can be decided independently and written by one multi-row INSERT: none waits for a row
//! lock that another request holds, and none is refused because of another's write.

use super::StoreError;
use super::driver::Stroke;
use super::script::{Log, Saving};
use super::transaction::Context;
use crate::fault;
use crate::model::Model;
use crate::plan::decide::Said;
use crate::plan::{Action, Found, Outcome, Write, decide};
use crate::value::{Id, IdKind, Moment};

/// Whether a write can be batched: one top-level item with a generated id, without references or unique
/// rules, and without an idempotency key.
pub(super) fn is_plain(model: &Model, write: &Write) -> bool {
    let Action::Create { drafts, .. } = &write.action else { return false };
    let [draft] = &**drafts else { return false };
    let resource = model.resource(write.collection.resource);
    write.once.is_none()
        && resource.id == IdKind::Uuid
        && resource.parent.is_none()
        && resource.unique.is_empty()
        && draft.references.is_empty()
}

/// A new item to insert.
pub(super) struct Creation<'a> {
    log: Log<'a>,
    saving: Saving<'a>,
    said: Said,
}

impl<'a> Creation<'a> {
    /// Decides a create that `is_batchable` accepts.
    pub(super) fn decide(
        context: &'a Context,
        write: &'a Write,
        (id, now): (Id, Moment),
    ) -> Result<Self, StoreError> {
        fault::point("transaction");
        let Write { collection, action, conditions, by, .. } = write;
        if write.has_clear(&context.model) {
            return Err(StoreError::broken("a secret on its way to the disk as it was sent"));
        }
        let found = Found { ids: vec![id], ..Found::at(now) };
        let script = decide(&context.model, collection, (action.clone(), conditions), found)
            .map_err(StoreError::Refused)?;
        let (saving, _) = Saving::new(context, collection, script.steps);
        Ok(Self { log: Log { collection, by, now }, saving, said: script.said })
    }

    pub(super) fn strokes(&'a self, context: &'a Context) -> Vec<Stroke<'a>> {
        self.saving.strokes(context, &self.log)
    }

    /// The outcome, once it is written.
    pub(super) fn outcome(self) -> Result<Outcome, StoreError> {
        let outcome = self.said.outcome(self.saving.into_items());
        outcome.ok_or_else(|| StoreError::broken("a create without an item"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::model;
    use crate::plan::{By, Collection, Count, Draft, Once, Reference, Says, Values};

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

    fn write(label: &str) -> (Model, Write) {
        let model = model::read("nouns.toml", MODEL).unwrap();
        let resource = model.resources.iter().find(|resource| &*resource.label == label).unwrap();
        let collection = Collection { resource: resource.index, ..Collection::users(&model) };
        let values = Values::Complete(Vec::new());
        let draft = Draft { root: "/".into(), values, references: Vec::new() };
        let action = Action::Create { drafts: vec![draft], count: Count::One };
        let by = By { actor: "open".into(), request_id: "-".into() };
        (model, Write::new(collection, action, by))
    }

    fn check(label: &str, change: impl FnOnce(&mut Write, &mut Vec<Draft>), expected: bool) {
        let (model, mut write) = write(label);
        let Action::Create { drafts, count } = write.action.clone() else { panic!() };
        let mut drafts = drafts;
        change(&mut write, &mut drafts);
        write.action = Action::Create { drafts, count };
        assert_eq!(is_plain(&model, &write), expected, "{label}");
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
        let refer = |write: &mut Write, drafts: &mut Vec<Draft>| {
            let to = write.collection.resource;
            let reference = Reference { to, id: Id::Integer(7), pointer: "/other".into() };
            drafts[0].references.push(reference);
        };
        check("referring", refer, false);
        let keep = |write: &mut Write, _: &mut Vec<Draft>| {
            let (scope, prints, says): (_, _, Says) = ("".into(), Vec::new(), Arc::new(|_| None));
            let (wait, keeps_refusals) = (Duration::ZERO, false);
            write.once =
                Some(Box::new(Once { scope, number: 0, prints, wait, keeps_refusals, says }));
        };
        check("plain", keep, false);
    }
}
