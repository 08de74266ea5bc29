//! Schema inference: a model file for the tables of another program, as far as they fit.
//!
//! A table becomes a resource, a column a field, a foreign key a parent or a reference. What does not fit is left out
//! and noted. The file also has a SELECT for each resource, whose rows `nouns import` accepts. The result is a valid
//! model for any tables: each rule of a field is tried with the reader of model files first.

mod field;
mod names;
mod output;
mod relations;
mod resource;
pub mod sql_text;

use super::database_tables::DatabaseTables;
use super::file::FILE_BYTES_MAX;
use field::shorten;
use names::resource_names;
use output::CommentDetail;
use relations::{InferredId, ItemReference, TableRelations};
use resource::InferredResource;

/// The most resources of a model.
const RESOURCES_MAX: usize = 1000;

/// A model file that was made.
#[derive(Debug)]
pub struct InferredModel {
    pub text: String,
    pub resources: usize,
    /// What does not fit, a line each.
    pub notes: Vec<String>,
}

/// The model of these tables, of which there is at least one.
pub fn infer(tables: &DatabaseTables) -> InferredModel {
    let mut resources_max = RESOURCES_MAX;
    loop {
        if let Some(inferred) = infer_some(tables, resources_max) {
            return inferred;
        }
        // The file would be too long.
        resources_max /= 2;
    }
}

/// The model of the first tables; `None` if the file would be too long.
fn infer_some(tables: &DatabaseTables, resources_max: usize) -> Option<InferredModel> {
    let mut notes = Vec::new();
    for (name, what) in &tables.other_relations {
        notes.push(format!("{}: {what}; it is left out", shorten(name)));
    }
    for table in tables.tables.iter().skip(resources_max) {
        let name = shorten(&table.name);
        notes.push(format!(
            "{name}: a model has at most {resources_max} resources of this size; it is left out"
        ));
    }
    let known = tables.tables.get(..resources_max).unwrap_or(&tables.tables);
    let names = resource_names(known.iter().map(|table| &*table.name));
    let relations = relations::infer(known);
    let parents: Vec<Option<usize>> =
        relations.iter().map(|one| one.parent.as_ref().map(|parent| parent.target)).collect();
    let mut resources = Vec::with_capacity(known.len());
    for (at, (table, relations)) in known.iter().zip(relations).enumerate() {
        let reserved = names::reserved(at, &names, &parents);
        resources.push(InferredResource::new(
            (table, tables.engine),
            relations,
            (at, &names),
            reserved,
        ));
    }
    let order = {
        let all: Vec<&TableRelations> = resources.iter().map(|one| &one.relations).collect();
        // What waits is written by an update of an item, which is found by its id.
        relations::import_order(&all, |at, reference: &ItemReference| {
            let resource = resources.get(at);
            let column = resource.and_then(|one| one.table.column(&reference.column));
            let has_id = resource.is_some_and(|one| one.relations.id != InferredId::New);
            has_id && column.is_some_and(|column| !column.is_required)
        })
    };
    let details = [CommentDetail::Exports, CommentDetail::Notes, CommentDetail::Nothing];
    let mut texts = details
        .into_iter()
        .map(|detail| output::write(tables, (&resources, &order), (&notes, detail)));
    let text = texts.find(|text| text.len() <= FILE_BYTES_MAX)?;
    for resource in &resources {
        let table = shorten(&resource.table.name);
        notes.extend(resource.notes.iter().map(|note| format!("{table}: {note}")));
    }
    Some(InferredModel { text, resources: resources.len(), notes })
}

#[cfg(test)]
mod tests;
