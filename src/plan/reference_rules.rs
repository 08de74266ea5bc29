//! The conditions of `ref` fields on the items that they refer to, checked when an item is written.
//!
//! Only a reference that the write sets, or whose condition reads a value that it sets, is checked: the item that it
//! refers to may have changed since.

use crate::model::expr::{ExprNode, PathRoot, UserValues, reference_holds};
use crate::model::{Resource, types};
use crate::permit::{FactReader, StoredRow};
use crate::problem::{FaultCode, FieldFault};
use crate::value::Value;

/// The faults of references to items that do not satisfy their conditions. `is_changed` tells whether the write
/// changes a field. A fault of a hidden field is reported for the whole item.
pub fn reference_faults(
    resource: &Resource,
    (root, hidden): (&str, &[usize]),
    row: StoredRow<'_>,
    is_changed: impl Fn(usize) -> bool,
    facts: &FactReader<'_>,
) -> Vec<FieldFault> {
    let mut faults = Vec::new();
    if !resource.has_reference_rule() {
        return faults;
    }
    let values = resource.fields.iter().zip(row.values).map(|(field, value)| {
        types::try_parse_canonical(field, value.clone()).unwrap_or(Value::Null)
    });
    let values: Vec<Value> = values.collect();
    let related = facts.for_user(UserValues::default());
    for (at, field) in resource.fields.iter().enumerate() {
        let (Some(to), Some(rule)) = (field.rules.reference, &field.rules.reference_rule) else {
            continue;
        };
        let target = values.get(at).and_then(|value| to.id.read_value(value));
        let is_due = is_changed(at) || rule.test.this.iter().any(|this| reads(this, &is_changed));
        let Some(target) = target.filter(|_| is_due) else { continue };
        let row = row.with_values(resource.index, &values);
        if reference_holds(&rule.test, row, target, &related) {
            continue;
        }
        faults.push(match hidden.contains(&at) {
            true => FieldFault::of_hidden_field(root),
            false => FieldFault {
                pointer: format!("{root}/{}", field.name),
                code: FaultCode::Check,
                detail: format!(
                    "expected a {} for which {}",
                    facts.model().resource(to.resource).name,
                    rule.text
                ),
            },
        });
    }
    faults
}

/// Whether a name reads one of the changed fields of its row.
fn reads(node: &ExprNode, is_changed: &impl Fn(usize) -> bool) -> bool {
    let mut is_read = false;
    node.for_each_path(&mut |path| {
        if let PathRoot::Field(at) = path.root {
            is_read |= is_changed(at);
        }
    });
    is_read
}
