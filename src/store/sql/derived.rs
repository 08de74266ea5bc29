//! The columns of derived texts (`model::derivation`), after those of the fields. Reads leave them out: only filters and
//! orders use them.

use crate::model::derivation::Derivation;
use crate::model::{Field, Resource};

/// The column of a text that is derived from that of a field.
#[derive(Debug, Clone, Copy)]
pub struct DerivedColumn<'r> {
    /// The index of the field.
    pub at: usize,
    pub field: &'r Field,
    pub derivation: Derivation,
}

impl DerivedColumn<'_> {
    /// No field has such a name.
    pub fn name(&self) -> String {
        let word = match self.derivation {
            Derivation::Folded => "folded",
            Derivation::SortKey => "order",
        };
        format!("nouns.{word}.{}", self.field.name)
    }
}

/// All of a resource, in the order of their fields.
pub fn derived_columns(resource: &Resource) -> impl Iterator<Item = DerivedColumn<'_>> {
    resource.fields.iter().enumerate().flat_map(|(at, field)| derived_from(at, field))
}

/// Those of one field.
pub fn derived_from(at: usize, field: &Field) -> impl Iterator<Item = DerivedColumn<'_>> {
    field.derivations().map(move |derivation| DerivedColumn { at, field, derivation })
}

/// Those of changed fields.
pub fn changed_derived<'r>(
    resource: &'r Resource,
    changed: &[usize],
) -> impl Iterator<Item = DerivedColumn<'r>> {
    derived_columns(resource).filter(|derived| changed.contains(&derived.at))
}
