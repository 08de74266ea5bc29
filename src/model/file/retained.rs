//! Retained parts: resources and fields that the database stores and the model file lacks.
//!
//! A deployment that is rolled back runs an older model, without what the newer one has added. The server then
//! continues with both: it serves what the model file declares, keeps the other tables, columns and values as they
//! are, and hides them from every caller (`permit::Rights`). Members of objects are not retained, because a client
//! that replaces an object sends all of it.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::build_model;
use super::toml_tree::{TomlNode, TomlTable};
use crate::model::diff::compare;
use crate::model::expr;
use crate::model::field::{AuditedUser, DefaultSource, Field};
use crate::model::report::Mistakes;
use crate::model::resource::{Model, Resource, UniqueRule};

/// The model of a file with the retained parts of the stored one; `None` if they differ in more than optional fields
/// and resources that the file lacks. `declared` is the model of the file alone.
pub fn read_with_retained(text: &str, declared: &Model, stored: &Model) -> Option<Model> {
    let mut tree = DeTable::parse(text).ok()?.into_inner();
    let stored_tree = DeTable::parse(&stored.shape).ok()?.into_inner();
    RetainedParts { offset: text.len(), realm: any_name(&tree, "realms") }
        .add_resources(&mut tree, stored_tree)?;
    let mistakes = Mistakes::for_shape();
    let mut model = build_model(&TomlTable::new(&tree, &mistakes), &mistakes);
    if !mistakes.is_empty() || !compare(stored, &model).is_empty() {
        return None;
    }
    mark_retained(&mut model, declared)?;
    Some(model)
}

fn any_name(tree: &DeTable<'_>, table: &str) -> Option<String> {
    let (name, _) = tree.get(table)?.get_ref().as_table()?.iter().next()?;
    Some(name.get_ref().to_string())
}

/// Moves what the tree of a model file lacks from the tree of the stored model.
struct RetainedParts {
    /// The length of the file. The reader orders entries by their positions, so those of moved entries begin here.
    offset: usize,
    /// A realm of the file. With several, every resource has to name one.
    realm: Option<String>,
}

impl RetainedParts {
    fn add_resources<'t>(&self, tree: &mut DeTable<'t>, mut stored: DeTable<'t>) -> Option<()> {
        let resources = table_mut(tree.get_mut("resources")?)?;
        let DeValue::Table(stored) = stored.remove("resources")?.into_inner() else { return None };
        for (name, node) in stored {
            match (resources.get_mut(name.get_ref().as_ref()), node.into_inner()) {
                (Some(declared), DeValue::Table(stored)) => {
                    self.add_fields(table_mut(declared)?, stored)?;
                }
                (None, DeValue::Table(mut stored)) => {
                    if stored.contains_key("parent") {
                        // A retained resource is never served, so its flat path stays free for others.
                        insert_at(&mut stored, "flat", DeValue::Boolean(false), 0);
                    }
                    if let Some(realm) = &self.realm
                        && !stored.contains_key("parent")
                    {
                        insert_at(&mut stored, "realm", DeValue::String(realm.clone().into()), 0);
                    }
                    let at = self.offset + name.span().start;
                    insert_at(resources, name.get_ref(), DeValue::Table(stored), at);
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// Moves the fields of one resource, and the unique rules and checks that they take part in.
    fn add_fields<'t>(&self, declared: &mut DeTable<'t>, mut stored: DeTable<'t>) -> Option<()> {
        let DeValue::Table(stored_fields) = stored.remove("fields")?.into_inner() else {
            return None;
        };
        if !declared.contains_key("fields") {
            insert_at(declared, "fields", DeValue::Table(DeTable::new()), self.offset);
        }
        let fields = table_mut(declared.get_mut("fields")?)?;
        let mut moved = Vec::new();
        for (name, node) in stored_fields {
            if !fields.contains_key(name.get_ref().as_ref()) {
                let at = self.offset + name.span().start;
                insert_at(fields, name.get_ref(), node.into_inner(), at);
                moved.push(name.get_ref().to_string());
            }
        }
        for user in AuditedUser::ALL.map(AuditedUser::name) {
            let is_declared = table_mut(declared.get_mut("fields")?)?.contains_key(user);
            let is_on = |table: &DeTable<'_>| {
                table.get(user).is_some_and(|value| value.get_ref().as_bool() == Some(true))
            };
            if is_on(&stored) && !is_declared && !is_on(declared) {
                declared.remove(user);
                insert_at(declared, user, DeValue::Boolean(true), self.offset);
                moved.push(user.to_owned());
            }
        }
        let is_moved = |name: &str| moved.iter().any(|moved| moved == name);
        let has_moved = |group: &TomlNode<'_>| {
            let mut names = group.get_ref().as_array().into_iter().flat_map(|group| group.iter());
            names.any(|name| name.get_ref().as_str().is_some_and(is_moved))
        };
        self.add_elements((declared, &mut stored), "unique", has_moved)?;
        let reads_moved = |check: &TomlNode<'_>| {
            let that = check.get_ref().as_table().and_then(|check| check.get("that"));
            let that = that.and_then(|that| that.get_ref().as_str());
            that.is_some_and(|text| expr::words(text).iter().any(|word| is_moved(word)))
        };
        self.add_elements((declared, &mut stored), "check", reads_moved)
    }

    /// Moves elements of the list with a key.
    fn add_elements<'t>(
        &self,
        (declared, stored): (&mut DeTable<'t>, &mut DeTable<'t>),
        key: &str,
        is_moved: impl Fn(&TomlNode<'_>) -> bool,
    ) -> Option<()> {
        let elements = stored.remove(key).map(Spanned::into_inner);
        let Some(DeValue::Array(elements)) = elements else { return Some(()) };
        let kept: Vec<TomlNode<'t>> = elements.into_iter().filter(is_moved).collect();
        if kept.is_empty() {
            return Some(());
        }
        if !declared.contains_key(key) {
            insert_at(declared, key, DeValue::Array(Default::default()), self.offset);
        }
        let DeValue::Array(list) = declared.get_mut(key)?.get_mut() else { return None };
        kept.into_iter().for_each(|element| list.push(element));
        Some(())
    }
}

fn table_mut<'a, 't>(node: &'a mut TomlNode<'t>) -> Option<&'a mut DeTable<'t>> {
    match node.get_mut() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

fn insert_at<'t>(table: &mut DeTable<'t>, name: &str, value: DeValue<'t>, at: usize) {
    let key = Spanned::new(at..at, name.to_owned().into());
    table.insert(key, Spanned::new(at..at, value));
}

/// Marks what the model file does not declare; `None` if items could not be created without it.
fn mark_retained(model: &mut Model, declared: &Model) -> Option<()> {
    for resource in model.resources.iter_mut().filter(|resource| !resource.is_builtin) {
        let Some(known) = declared.declared().find(|known| known.name == resource.name) else {
            resource.is_retained = true;
            continue;
        };
        for field in resource.fields.iter_mut() {
            field.is_retained = known.field(&field.name).is_none();
        }
        // A default from the user has no value for an anonymous caller, so such a field counts as required.
        let has_source_for_every_caller =
            |field: &Field| field.default_from.as_ref().is_some_and(|from| !from.is_of_user());
        let is_optional = |field: &Field| {
            !field.required || field.computed.is_some() || has_source_for_every_caller(field)
        };
        let mut retained = resource.fields.iter().filter(|field| field.is_retained);
        if !retained.all(is_optional)
            || resource.unique.iter().any(|rule| would_make_new_items_clash(resource, rule))
        {
            return None;
        }
    }
    Some(())
}

/// Whether new items would clash, because they all have the same values of the retained fields of a unique rule.
fn would_make_new_items_clash(resource: &Resource, rule: &UniqueRule) -> bool {
    let fields = || rule.fields.iter().filter_map(|at| resource.fields.get(*at));
    let has_declared = fields().any(|field| !field.is_retained);
    // Of the default sources only a random UUID differs for every item: `now` and the user repeat.
    let is_made_equal = |field: &Field| {
        let has_repeating_source =
            field.default_from.as_ref().is_some_and(|from| *from != DefaultSource::Uuid);
        !has_declared && (has_repeating_source || field.audit.is_some())
    };
    let mut retained = fields().filter(|field| field.is_retained).peekable();
    retained.peek().is_some()
        && retained.all(|field| field.default.is_some() || is_made_equal(field))
}
