//! Refusals because of stored items: references to items that do not exist, and values that another item has.

use super::outcome::RequestRefusal;
use crate::model::{Resource, UniqueRule, UniqueScope};
use crate::problem::{FaultCode, FieldFault};

/// Refuses references to items that do not exist.
pub fn refuse_dangling(pointers: &[String]) -> Result<(), RequestRefusal> {
    if pointers.is_empty() {
        Ok(())
    } else {
        Err(RequestRefusal::Invalid(dangling_faults(pointers)))
    }
}

/// The faults of references to items that do not exist.
pub fn dangling_faults(pointers: &[String]) -> Vec<FieldFault> {
    let fault = |pointer: &String| FieldFault {
        pointer: pointer.clone(),
        code: FaultCode::Reference,
        detail: "no such item".to_owned(),
    };
    pointers.iter().map(fault).collect()
}

/// The refusal for unique rules that other items' values violate. It does not name hidden fields.
pub fn unique_violation(
    resource: &Resource,
    rules: &[&UniqueRule],
    (root, hidden): (&str, &[usize]),
) -> RequestRefusal {
    let faults = rules.iter().flat_map(|unique| unique_faults(resource, unique, (root, hidden)));
    RequestRefusal::NotUnique(faults.collect())
}

fn unique_faults(
    resource: &Resource,
    unique: &UniqueRule,
    (root, hidden): (&str, &[usize]),
) -> Vec<FieldFault> {
    let within = match unique.scope {
        UniqueScope::Resource => "",
        UniqueScope::Parent => " under the same parent",
    };
    let together = if unique.fields.len() > 1 { "these values together" } else { "this value" };
    let fields = unique.fields.iter().filter(|index| !hidden.contains(index));
    let fields = fields.filter_map(|index| resource.fields.get(*index));
    let fault = |name: &str| FieldFault {
        pointer: format!("{root}/{name}"),
        code: FaultCode::Taken,
        detail: format!("another {} has {together}{within}", resource.name),
    };
    fields.map(|field| fault(&field.name)).collect()
}
