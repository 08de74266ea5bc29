//! One table as a resource: its key, its fields, and the rules that concern several of them.

use std::collections::BTreeSet;

use super::field::{self, InferredField, Notes, shorten};
use super::names::{FIELD_CHARS_MAX, free_name, snake_case};
use super::relations::{InferredId, TableRelations};
use super::sql_text::parse_condition;
use crate::model::database_tables::{ColumnDefinition, TableDefinition, TableEngine};

/// The most fields of a resource.
const FIELDS_MAX: usize = 500;

/// A resource of the model that is made.
#[derive(Debug)]
pub struct InferredResource<'t> {
    pub table: &'t TableDefinition,
    pub name: String,
    pub relations: TableRelations,
    pub parent_name: Option<String>,
    pub fields: Vec<InferredField>,
    /// Groups of fields that are unique together.
    pub unique: Vec<Vec<String>>,
    pub notes: Notes,
}

impl<'t> InferredResource<'t> {
    /// `names`: those of all resources. `taken`: names that no field can have.
    pub fn new(
        (table, engine): (&'t TableDefinition, TableEngine),
        relations: TableRelations,
        (at, names): (usize, &[String]),
        taken: BTreeSet<String>,
    ) -> Self {
        let parent_name = relations.parent.as_ref().and_then(|one| names.get(one.target).cloned());
        let mut resource = Self {
            table,
            name: names.get(at).cloned().unwrap_or_default(),
            relations,
            parent_name,
            fields: Vec::new(),
            unique: Vec::new(),
            notes: Vec::new(),
        };
        resource.note_key();
        resource.infer_fields(engine, names, taken);
        resource.infer_unique();
        resource.infer_checks();
        resource.notes.extend(table.other_rules.iter().map(|rule| shorten(rule)));
        resource
    }

    fn note_key(&mut self) {
        let key: Vec<String> = self.table.primary_key.iter().map(|name| shorten(name)).collect();
        let note = match (self.relations.id, &*key) {
            (InferredId::Integer, _) => return,
            (InferredId::Uuid, _) => {
                "an import keeps UUIDs of version 7; the SELECT changes others into that form, also in references".to_owned()
            }
            (InferredId::New, []) => "it has no primary key; its items get new ids".to_owned(),
            (InferredId::New, [key]) => {
                format!("{key}: the key is no number and no UUID; it is a unique field, and items get new ids")
            }
            (InferredId::New, key) => format!(
                "its key has several columns ({}); they are unique together, and items get new ids",
                key.join(", ")
            ),
        };
        self.notes.push(note);
    }

    fn infer_fields(&mut self, engine: TableEngine, names: &[String], mut taken: BTreeSet<String>) {
        let parent = self.relations.parent.as_ref().map(|parent| parent.column.clone());
        for column in &self.table.columns {
            if self.fields.len() >= FIELDS_MAX {
                let name = shorten(&column.name);
                self.notes.push(format!(
                    "{name}: a resource has at most {FIELDS_MAX} fields; it is left out"
                ));
                continue;
            }
            let is_id = self.relations.id != InferredId::New
                && self.table.primary_key == [column.name.clone()];
            let reference = self.relations.references.iter().find(|one| one.column == column.name);
            let target = reference.and_then(|one| Some((names.get(one.target)?, one.on_delete)));
            match target {
                _ if parent.as_ref() == Some(&column.name) => {}
                Some((target, on_delete)) => {
                    // `customer_id` refers to a customer.
                    let wanted = snake_case(&column.name);
                    let wanted = wanted.strip_suffix("_id").unwrap_or(&wanted);
                    let wanted = if is_id || wanted == "id" { target } else { wanted };
                    let name = field_name(wanted, self.fields.len(), &mut taken);
                    let target = (&**target, on_delete);
                    let mut notes = Notes::new();
                    let mut field = field::reference((column, name), target, engine, &mut notes);
                    self.notes.extend(notes);
                    if is_id {
                        field.keys.push(("unique", "true".to_owned()));
                    }
                    self.fields.push(field);
                }
                None if is_id => {}
                None => {
                    self.note_foreign_key(column);
                    let name = field_name(&snake_case(&column.name), self.fields.len(), &mut taken);
                    let mut notes = Notes::new();
                    self.fields.extend(field::infer((column, name), engine, &mut notes));
                    self.notes.extend(notes);
                }
            }
        }
        for key in self.table.foreign_keys.iter().filter(|key| key.columns.len() > 1) {
            let columns = key.columns.iter().map(|(column, _)| shorten(column));
            let (columns, target) = (columns.collect::<Vec<_>>().join(", "), shorten(&key.target));
            self.notes
                .push(format!("{columns}: they refer to {target} together; they are plain fields"));
        }
    }

    /// A foreign key by another value than an id.
    fn note_foreign_key(&mut self, column: &ColumnDefinition) {
        let is_of_column =
            |columns: &[(String, String)]| matches!(columns, [(from, _)] if *from == column.name);
        if let Some(key) = self.table.foreign_keys.iter().find(|key| is_of_column(&key.columns)) {
            let (name, target) = (shorten(&column.name), shorten(&key.target));
            self.notes.push(format!(
                "{name}: it refers to {target} by a value that is no id there; it is a plain field"
            ));
        }
    }

    fn field_mut(&mut self, column: &str) -> Option<&mut InferredField> {
        self.fields.iter_mut().find(|field| field.column == column)
    }

    fn infer_unique(&mut self) {
        let key = (self.relations.id == InferredId::New).then_some(&self.table.primary_key);
        let groups = self.table.unique.iter().chain(key).filter(|group| !group.is_empty());
        for group in groups {
            if self.relations.id != InferredId::New && *group == self.table.primary_key {
                continue;
            }
            let ignores_case = |column: &&String| {
                self.table.column(column).is_some_and(|column| column.ignores_case)
            };
            if let Some(column) = group.iter().find(ignores_case) {
                let column = shorten(column);
                self.notes.push(format!(
                    "{column}: it is unique there without regard to case; here case counts (see lower, in computed fields)"
                ));
            }
            if !self.add_unique(group) {
                let columns: Vec<String> = group.iter().map(|column| shorten(column)).collect();
                self.notes.push(format!(
                    "the unique rule of {} cannot be in a model",
                    columns.join(", ")
                ));
            }
        }
        for column in &self.table.indexed {
            if let Some(field) = self.field_mut(column) {
                field.try_key("filter", "true");
            }
        }
    }

    fn add_unique(&mut self, group: &[String]) -> bool {
        let parent = self.relations.parent.as_ref().map(|parent| parent.column.clone());
        let mut own: Vec<&String> = Vec::new();
        for column in group.iter().filter(|column| Some(*column) != parent.as_ref()) {
            if !own.contains(&column) {
                own.push(column);
            }
        }
        if let [column] = *own {
            let is_in_parent = parent.is_some_and(|parent| group.contains(&parent));
            let Some(field) = self.field_mut(column) else { return false };
            match (field.has("unique"), is_in_parent) {
                // Unique in the resource is also unique in each parent.
                (true, true) => true,
                (true, false) => {
                    field.remove("unique");
                    field.try_key("unique", "true")
                }
                (false, true) => field.try_key("unique", "\"parent\""),
                (false, false) => field.try_key("unique", "true"),
            }
        } else {
            let field =
                |column: &&String| self.fields.iter().find(|field| field.column == **column);
            let fields: Option<Vec<&InferredField>> = own.iter().map(field).collect();
            let fields = fields
                .filter(|all| all.len() > 1 && all.iter().all(|field| field.can_be_in_group()));
            let Some(fields) = fields else { return false };
            let names: Vec<String> = fields.iter().map(|field| field.name.clone()).collect();
            let is_known = self.unique.iter().any(|known| {
                known.len() == names.len() && names.iter().all(|name| known.contains(name))
            });
            if !is_known {
                self.unique.push(names);
            }
            true
        }
    }

    fn infer_checks(&mut self) {
        for check in &self.table.checks {
            let found = parse_condition(check);
            let mut is_kept = found.is_complete;
            for rule in &found.rules {
                // SQLite ignores the case of names, but two columns of PostgreSQL may differ in it.
                let mut columns = self.fields.iter().map(|field| &field.column);
                let is_exact = columns.any(|column| *column == rule.column);
                let is_column = |field: &&mut InferredField| match is_exact {
                    true => field.column == rule.column,
                    false => field.column.eq_ignore_ascii_case(&rule.column),
                };
                let field = self.fields.iter_mut().find(is_column);
                is_kept &= field.is_some_and(|field| field.try_rule(&rule.condition));
            }
            if !is_kept {
                let check = shorten(check);
                self.notes.push(format!("CHECK ({check}) cannot be in a model, or not all of it"));
            }
        }
    }
}

/// The name of a field, which is taken from now on.
fn field_name(wanted: &str, at: usize, taken: &mut BTreeSet<String>) -> String {
    let name = match wanted {
        "" => format!("column_{}", at + 1),
        // The server uses this name itself.
        name if taken.contains(name) => format!("original_{name}"),
        name => name.to_owned(),
    };
    let name = free_name(&name, FIELD_CHARS_MAX, |name| taken.contains(name));
    taken.insert(name.clone());
    name
}
