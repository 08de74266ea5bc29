//! Rows of an import: each is validated as a new item, and for an upsert also as a change of an existing one.
//!
//! Pure: the store looks up the existing items and writes. A row differs from the body of a create in three ways: it
//! may have an id, its parent is a member, and its state need not be the initial one, so that an exported collection
//! can be imported again. The other members that the server sets are ignored.

use uuid::Uuid;

use super::defaults::{DefaultInputs, complete_new_values};
use super::outcome::RequestRefusal;
use super::validate::{self, BodyPurpose, DraftValues, FieldRights, ItemDraft, SentItem};
use crate::fault::OrBug as _;
use crate::intent::JsonMembers;
use crate::json::{self, Json};
use crate::model::expr::UserValues;
use crate::model::{Field, Model, Resource, UniqueRule, UniqueScope, types};
use crate::permit::Access;
use crate::problem::{FaultCode, FaultCollector, FieldFault};
use crate::value::{Id, IdKind, Item, Moment, Value};

/// The largest integer id that a row may have. Later items get larger ones, up to `INTEGER_MAX`: 7 · 10¹² are left.
const INTEGER_ID_MAX: i64 = 9_000_000_000_000_000;

/// How far the time in an id may be ahead of the clock.
const AHEAD_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// The value by which an upsert finds the item of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpsertKey {
    Id,
    /// The index of a unique rule with one field, and the index of the field.
    Rule {
        rule: usize,
        field: usize,
    },
}

impl UpsertKey {
    /// The key of this name: `id`, or a field that is declared unique on its own. An import ignores computed fields.
    pub fn find(resource: &Resource, name: &str) -> Option<Self> {
        if name == "id" {
            return Some(Self::Id);
        }
        let (field, _) = resource.field(name).filter(|(_, field)| field.computed.is_none())?;
        let is_own = |rule: &UniqueRule| rule.fields == [field];
        // A rule for the whole resource finds at most one item; one within a parent needs the parent.
        let rule = resource.unique.iter().position(is_own)?;
        Some(Self::Rule { rule, field })
    }
}

/// The rules by which all rows of an import are validated.
#[derive(Debug)]
pub struct ImportRules<'a> {
    pub model: &'a Model,
    pub resource: &'a Resource,
    pub upsert: Option<UpsertKey>,
    /// The columns of a CSV file; an empty cell of one of them is no value. `None`: each row names its own members.
    pub columns: Option<Vec<Box<str>>>,
    /// The time of the import; the time in an id must not be later.
    pub now: Moment,
}

/// A valid row.
#[derive(Debug)]
pub struct ImportRow {
    pub line: usize,
    /// The JSON pointer of the row in faults: its line number.
    pub root: String,
    pub id: Option<Id>,
    pub parent: Option<Id>,
    /// The row as a new item, or why it cannot be one. Only a row of an upsert may have faults.
    pub new: Result<ItemDraft, Vec<FieldFault>>,
    /// For an upsert: the change of an existing item.
    pub change: Option<ItemDraft>,
}

/// The pointer of a line.
pub fn line_root(line: usize) -> String {
    format!("/{line}")
}

impl ImportRules<'_> {
    /// Checks the names of the columns: those that no item has, and those that every row needs.
    pub fn check_columns(&self, line: usize, names: &[Box<str>]) -> Vec<FieldFault> {
        let resource = self.resource;
        let mut faults = FaultCollector::at_root(line_root(line));
        for name in names {
            if !self.is_ignored(name) && !self.is_own_member(name) && resource.field(name).is_none()
            {
                faults.within(name, |faults| types::add_unknown(name, &resource.fields, faults));
            }
        }
        let has = |name: &str| names.iter().any(|column| **column == *name);
        match self.upsert {
            None => {
                let required = resource.fields.iter().filter(|field| {
                    field.required
                        && field.default.is_none()
                        && field.default_from.is_none()
                        && field.computed.is_none()
                });
                required
                    .filter(|field| !has(&field.name))
                    .for_each(|field| types::add_required(field, &mut faults));
                if let Some(key) = resource.parent_key.as_deref().filter(|key| !has(key)) {
                    faults.add_at(key, FaultCode::Required, self.parent_expected());
                }
            }
            Some(key) => {
                let name = self.key_name(key);
                if !has(name) {
                    let detail = "expected a column with this name, by which --upsert finds items";
                    faults.add_at(name, FaultCode::Required, detail);
                }
            }
        }
        faults.into_list()
    }

    fn key_name(&self, key: UpsertKey) -> &str {
        match key {
            UpsertKey::Id => "id",
            UpsertKey::Rule { field, .. } => {
                &self.resource.fields.get(field).or_bug("a unique rule has fields").name
            }
        }
    }

    /// Members that an export has, and that an import sets itself.
    fn is_ignored(&self, name: &str) -> bool {
        let is_computed = || {
            let field = self.resource.field(name);
            field.is_some_and(|(_, field)| field.computed.is_some())
        };
        matches!(name, "created_at" | "updated_at" | "version") || is_computed()
    }

    /// The id, or the id of the parent.
    fn is_own_member(&self, name: &str) -> bool {
        name == "id" || self.resource.parent_key.as_deref() == Some(name)
    }

    fn audit_field(&self, name: &str) -> Option<(usize, &Field)> {
        self.resource.field(name).filter(|(_, field)| field.audit.is_some() && !field.is_retained)
    }

    fn parent_expected(&self) -> String {
        let parent = self.resource.parent.map(|parent| &*self.model.resource(parent).name);
        format!("expected the id of a {}, got nothing", parent.unwrap_or("parent"))
    }

    /// Validates the members of one line.
    pub fn read_row(
        &self,
        line: usize,
        members: JsonMembers<'_>,
    ) -> Result<ImportRow, Vec<FieldFault>> {
        let root = line_root(line);
        let mut faults = FaultCollector::at_root(root.clone());
        let (mut id, mut parent) = (None, None);
        let mut users = Vec::new();
        let mut sent = Vec::with_capacity(members.len());
        for (name, json) in members {
            if self.is_ignored(&name) {
                continue;
            }
            if name == "id" {
                id = faults.within(&name, |faults| self.read_id(&json, faults));
            } else if self.resource.parent_key.as_deref() == Some(&*name) {
                parent = faults.within(&name, |faults| self.read_parent(&json, faults));
            } else if let Some((at, field)) = self.audit_field(&name) {
                // As the id, it is kept in an export that is imported again.
                let value = match json {
                    Json::Null => Some(Value::Null),
                    json => faults.within(&name, |faults| types::read(field, &json, faults)),
                };
                users.extend(value.map(|value| (at, value)));
            } else {
                sent.push((name, json));
            }
        }
        let mut change = self.upsert.map(|_| self.validate_change(&root, sent.clone()));
        let (mut new, mut new_faults) = self.validate_new(&root, sent);
        for (at, value) in users {
            new.values.set(at, value.clone());
            if let Some((change, _)) = &mut change {
                change.values.set(at, value);
            }
        }
        let mut faults = faults.into_list();
        if let (Some(key), None) = (&self.resource.parent_key, parent)
            && faults.is_empty()
        {
            new_faults.push(FieldFault {
                pointer: format!("{root}/{key}"),
                code: FaultCode::Required,
                detail: self.parent_expected(),
            });
        }
        let Some((change, change_faults)) = change else {
            faults.extend(new_faults);
            let row = || ImportRow { line, root, id, parent, new: Ok(new), change: None };
            return if faults.is_empty() { Ok(row()) } else { Err(faults) };
        };
        faults.extend(change_faults);
        if faults.is_empty() {
            faults.extend(self.check_key(&root, (id, parent), &change));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let new = if new_faults.is_empty() { Ok(new) } else { Err(new_faults) };
        Ok(ImportRow { line, root, id, parent, new, change: Some(change) })
    }

    fn validate_new(&self, root: &str, members: JsonMembers<'_>) -> (ItemDraft, Vec<FieldFault>) {
        let sent = SentItem { root: root.to_owned(), parent: None, members };
        let hidden = &Access::to_declared(self.resource).hidden;
        let rights = FieldRights { hidden, kept_if_omitted: &[], unseen: &[] };
        validate::validate_body(self.resource, sent, BodyPurpose::Create, rights)
    }

    /// Fields without a column keep their stored value.
    fn validate_change(
        &self,
        root: &str,
        members: JsonMembers<'_>,
    ) -> (ItemDraft, Vec<FieldFault>) {
        let is_given = |name: &str| match &self.columns {
            Some(columns) => columns.iter().any(|column| **column == *name),
            None => members.iter().any(|(member, _)| *member == *name),
        };
        let fields = self.resource.fields.iter().enumerate();
        let kept = fields.filter(|(_, field)| !is_given(&field.name)).map(|(at, _)| at);
        let kept: Vec<usize> = kept.collect();
        let sent = SentItem { root: root.to_owned(), parent: None, members };
        let hidden = &Access::to_declared(self.resource).hidden;
        let rights = FieldRights { hidden, kept_if_omitted: &[], unseen: &kept };
        // The id is known when the item is found; `read_row` has taken it out of the members.
        let purpose = BodyPurpose::Patch(Id::Integer(0));
        validate::validate_body(self.resource, sent, purpose, rights)
    }

    /// An upsert needs a value to look for.
    fn check_key(
        &self,
        root: &str,
        (id, parent): (Option<Id>, Option<Id>),
        change: &ItemDraft,
    ) -> Option<FieldFault> {
        let key = self.upsert?;
        if let (UpsertKey::Rule { rule, .. }, None, Some(name)) =
            (key, parent, &self.resource.parent_key)
        {
            let rule = self.resource.unique.get(rule).or_bug("the index of a unique rule");
            if rule.scope == UniqueScope::Parent {
                let pointer = format!("{root}/{name}");
                let detail = self.parent_expected();
                return Some(FieldFault { pointer, code: FaultCode::Required, detail });
            }
        }
        let has_key = match key {
            UpsertKey::Id => id.is_some(),
            UpsertKey::Rule { field, .. } => {
                partial_values(change).get(field).is_some_and(|value| !value.is_null())
            }
        };
        let pointer = format!("{root}/{}", self.key_name(key));
        let detail = "expected a value, by which --upsert finds the item, got nothing".to_owned();
        (!has_key).then_some(FieldFault { pointer, code: FaultCode::Required, detail })
    }

    /// The id of a new item. A UUID is a UUIDv7, since the times and the order of items are derived from it.
    fn read_id(&self, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Id> {
        if matches!(json, Json::Null) {
            return None;
        }
        let Some(id) = parse_id(self.resource.id, json) else {
            let expected = match self.resource.id {
                IdKind::Uuid => "a UUID",
                IdKind::Integer => "a positive integer",
            };
            faults.add(FaultCode::Type, format!("expected {expected}, got {}", shown(json)));
            return None;
        };
        let uuid = match id {
            Id::Uuid(uuid) => uuid,
            Id::Integer(number) if number > INTEGER_ID_MAX => {
                let detail = format!(
                    "expected at most {INTEGER_ID_MAX}, so that new items can have larger ids, got {number}"
                );
                faults.add(FaultCode::Range, detail);
                return None;
            }
            Id::Integer(_) => return Some(id),
        };
        if uuid.get_version_num() != 7 || uuid.get_variant() != uuid::Variant::RFC4122 {
            let detail = "expected a UUIDv7, which begins with the time of creation; \
                 without the column id, items get new ids";
            faults.add(FaultCode::Format, detail);
            return None;
        }
        let latest = self.now.checked_add(AHEAD_MAX).unwrap_or(self.now);
        if id.created_at().is_none_or(|created_at| created_at > latest) {
            faults.add(FaultCode::Range, "expected a UUIDv7 whose time has passed");
            return None;
        }
        Some(id)
    }

    fn read_parent(&self, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Id> {
        let parent = self.model.resource(self.resource.parent.or_bug("it has a parent key"));
        if matches!(json, Json::Null) {
            return None;
        }
        let id = parse_id(parent.id, json);
        if id.is_none() {
            let detail = format!("expected the id of a {}, got {}", parent.name, shown(json));
            faults.add(FaultCode::Type, detail);
        }
        id
    }
}

fn parse_id(kind: IdKind, json: &Json<'_>) -> Option<Id> {
    match (kind, json) {
        (IdKind::Uuid, Json::Text(text)) => kind.parse(&text.to_ascii_lowercase()),
        (IdKind::Integer, Json::Number(text)) => kind.parse(text),
        _ => None,
    }
}

/// A value in a message.
fn shown(json: &Json<'_>) -> String {
    match json {
        Json::Text(text) => json::quote_for_message(text),
        Json::Number(text) => (*text).to_owned(),
        other => other.type_name().to_owned(),
    }
}

/// The values of a draft, with null for those that keep their stored value.
pub fn partial_values(draft: &ItemDraft) -> Vec<Value> {
    match &draft.values {
        DraftValues::Complete(values) => values.clone(),
        DraftValues::Partial(values) => {
            values.iter().map(|value| value.clone().unwrap_or(Value::Null)).collect()
        }
    }
}

/// The place and the time of a new item.
#[derive(Debug, Clone, Copy)]
pub struct NewItemOrigin<'a> {
    pub id: Id,
    pub version: i64,
    /// Whether the row has the id.
    pub is_id_kept: bool,
    pub parent: Option<Id>,
    pub now: Moment,
    /// UUIDs for defaults.
    pub uuids: &'a [Uuid],
}

/// A new item of a row. One that keeps its id keeps the time in it too, and was last changed now.
pub fn new_item(
    resource: &Resource,
    draft: &ItemDraft,
    origin: NewItemOrigin<'_>,
) -> Result<Item, Vec<FieldFault>> {
    let NewItemOrigin { id, version, is_id_kept, parent, now, uuids } = origin;
    let created_at = id.created_at().unwrap_or(now);
    let updated_at = if is_id_kept { now.max(created_at) } else { created_at };
    // The operator who runs `nouns import` has no user name.
    let inputs = DefaultInputs { now: created_at, user: UserValues::default(), uuids };
    let values = complete_new_values(resource, (&draft.root, &[]), &draft.values, inputs)?;
    Ok(Item { id, parent, created_at, updated_at, version, values })
}

/// The faults of a row that the stored data does not allow.
pub fn refusal_faults(resource: &Resource, root: &str, refusal: RequestRefusal) -> Vec<FieldFault> {
    let state = || {
        let field = resource.state_field().and_then(|(at, _)| resource.fields.get(at));
        field.map_or_else(|| root.to_owned(), |field| format!("{root}/{}", field.name))
    };
    match refusal {
        RequestRefusal::Invalid(faults)
        | RequestRefusal::ReadOnly(faults)
        | RequestRefusal::NotUnique(faults)
            if !faults.is_empty() =>
        {
            faults
        }
        RequestRefusal::Transition { from, to, allowed } => {
            let from = from.as_deref().unwrap_or("nothing");
            let allowed = match &*allowed {
                [] => "no other state".to_owned(),
                allowed => allowed.join(" or "),
            };
            let detail = format!("expected {allowed} after {from}, got {to}");
            vec![FieldFault { pointer: state(), code: FaultCode::OneOf, detail }]
        }
        other => {
            let detail = format!("the stored data does not allow it: {other:?}");
            vec![FieldFault { pointer: root.to_owned(), code: FaultCode::Mismatch, detail }]
        }
    }
}
