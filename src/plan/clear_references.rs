//! An item whose references are cleared, because the items that they refer to are removed.

use super::defaults::user_value;
use super::validate::compute;
use crate::fault::OrBug as _;
use crate::model::{AuditedUser, Resource, types};
use crate::value::{Id, Item, Moment, Value};

/// The item after its references were cleared, with the indices of the changed fields; `None` if it does not refer to
/// those items any more. `references`: the index of a field, with the id of a removed item.
///
/// The checks of the resource are not evaluated: a removed item must not stay because of another item's values.
pub fn clear_references(
    resource: &Resource,
    stored: &Item,
    references: &[(usize, Id)],
    (user, now): (Option<&str>, Moment),
) -> Option<(Item, Vec<usize>)> {
    let fields = resource.fields.iter().zip(&stored.values);
    let mut values: Vec<Value> =
        fields.map(|(field, value)| types::parse_canonical(field, value.clone())).collect();
    let mut is_cleared = false;
    for (at, removed) in references {
        let value = values.get_mut(*at).or_bug("an item has a value for each field");
        let removed = Value::from(*removed);
        match value {
            Value::List(ids) if ids.contains(&removed) => {
                ids.retain(|id| *id != removed);
                is_cleared = true;
            }
            value if *value == removed => {
                *value = Value::Null;
                is_cleared = true;
            }
            _ => {}
        }
    }
    if !is_cleared {
        return None;
    }
    let fields = resource.fields.iter();
    let editor = fields.clone().position(|field| field.audit == Some(AuditedUser::LastEditor));
    if let Some(value) = editor.and_then(|at| values.get_mut(at)) {
        *value = user_value(user);
    }
    // A value that overflows stays as it is.
    let _overflows = compute(resource, &mut values);
    let values: Vec<Value> = values.into_iter().map(types::canonicalize).collect();
    let pairs = stored.values.iter().zip(&values).enumerate();
    let changed = pairs.filter(|(_, (old, new))| old != new).map(|(at, _)| at).collect();
    let updated_at = now.max(stored.updated_at);
    let after = Item { updated_at, version: stored.version + 1, values, ..stored.clone() };
    Some((after, changed))
}
