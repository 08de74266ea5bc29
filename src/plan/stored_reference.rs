//! References that an update leaves as they are: they are not looked up again, and may stay although the caller can no
//! longer see their targets.

use std::collections::{BTreeMap, BTreeSet};

use super::validate::Reference;
use crate::fault::OrBug as _;
use crate::model::{Field, Resource, types};
use crate::permit::UnreadableFields;
use crate::value::{Id, Item, Value};

/// The references that the stored item does not have in the same field. Always those of a field whose stored value the
/// caller may not see: a response must not reveal whether a reference is the stored one.
pub fn changed_references<'r>(
    resource: &Resource,
    unseen: UnreadableFields<'_>,
    stored: &Item,
    references: impl Iterator<Item = &'r Reference>,
) -> Vec<&'r Reference> {
    let mut known: BTreeMap<usize, BTreeSet<Id>> = BTreeMap::new();
    let is_stored = |reference: &&Reference| {
        let ids = known.entry(reference.field).or_insert_with_key(|at| {
            if unseen.contains(*at) {
                return BTreeSet::new();
            }
            let field = resource.fields.get(*at).zip(stored.values.get(*at));
            let (field, value) = field.or_bug("a reference is the value of a field");
            reference_ids(field, value)
        });
        ids.contains(&reference.id)
    };
    let (_, changed) = references.partition::<Vec<_>, _>(is_stored);
    changed
}

/// The ids in a stored value of type `ref` or `refs`.
pub fn reference_ids(field: &Field, value: &Value) -> BTreeSet<Id> {
    if let Some(target) = field.rules.reference {
        return target.id.read_value(value).into_iter().collect();
    }
    let target = field.many_references();
    match (target, types::try_parse_canonical(field, value.clone())) {
        (Some(target), Ok(Value::List(values))) => {
            values.iter().filter_map(|value| target.id.read_value(value)).collect()
        }
        _ => BTreeSet::new(),
    }
}
