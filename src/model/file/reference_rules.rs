//! The conditions of `ref` fields, which need the fields of all resources.

use std::sync::Arc;

use super::expression;
use super::resource::ResourceDraft;
use super::resource_names::ResourceNames;
use crate::model::expr::{self, RelationScope, ResourceScope};
use crate::model::field::{Field, ReferenceRule, ResourceIndex};

/// Sets the rule of each `ref` field that has `where`.
pub fn read(names: &ResourceNames<'_>, drafts: &mut [ResourceDraft<'_>]) {
    let found = find(names, drafts);
    for (resource, field, rule) in found {
        let fields = drafts.get_mut(resource).map(|draft| &mut draft.resource.fields);
        if let Some(field) = fields.and_then(|fields| fields.get_mut(field)) {
            field.rules.reference_rule = Some(rule);
        }
    }
}

/// Each rule with the indices of its resource and its field.
fn find(
    names: &ResourceNames<'_>,
    drafts: &[ResourceDraft<'_>],
) -> Vec<(usize, usize, ReferenceRule)> {
    let resources: Vec<ResourceScope<'_>> = drafts.iter().map(ResourceDraft::names).collect();
    let mut found = Vec::new();
    for (index, (header, draft)) in names.headers.iter().zip(drafts).enumerate() {
        let row = ResourceIndex(index);
        let relations = RelationScope { resources: &resources, row, user_fields: &[] };
        for entry in header.table.table("fields").unwrap_or_default().entries {
            let field = draft.resource.field(entry.key.value);
            let reference = |field: &Field| field.rules.reference;
            let Some((at, to)) = field.and_then(|(at, field)| Some((at, reference(field)?))) else {
                continue;
            };
            let Some(text) = entry.table().and_then(|table| table.text("where")) else { continue };
            let parsed = expr::parse_reference_rule(text.value, relations, to.resource);
            let Some(test) = expression::read(&text, parsed) else { continue };
            found.push((
                index,
                at,
                ReferenceRule { text: text.value.into(), test: Arc::new(test) },
            ));
        }
    }
    found
}
