//! Validation of a request body against the model: checks every field, collects every fault, fills in
//! defaults.
//!
//! The result is an `ItemDraft`: all that can be known of the item without stored data. A client can send
//! back with PUT what it got from GET: members that the server sets are checked for their type and otherwise
//! ignored.

use crate::fault::OrBug;
use crate::intent::{JsonMember, JsonMembers};
use crate::json::{self, Json};
use crate::model::expr::{ComputedFault, evaluate, fails};
use crate::model::{Field, ItemCheck, Resource, ResourceIndex, types};
use crate::problem::{FaultCode, FaultCollector, FieldFault};
use crate::value::{ClearText, Id, IdKind, Moment, Value};

/// The detail of a fault of a member that clients cannot set.
pub(super) const SET_BY_SERVER: &str = "set by the server";

/// An item that a request wants to create or replace, as far as the request alone determines it.
#[derive(Debug, Clone)]
pub struct ItemDraft {
    /// The JSON pointer of its object in the body; empty for a draft of the server itself, which may also change what
    /// only the server sets.
    pub root: String,
    pub values: DraftValues,
    pub references: Vec<Reference>,
}

impl ItemDraft {
    /// Whether a secret is still in clear text.
    pub fn has_clear_text(&self) -> bool {
        let is_clear = |value: &Value| matches!(value, Value::ClearText(_));
        match &self.values {
            DraftValues::Complete(values) => values.iter().any(is_clear),
            DraftValues::Partial(values) => values.iter().flatten().any(is_clear),
        }
    }
}

/// The values of a draft, in the resource's field order.
#[derive(Debug, Clone, PartialEq)]
pub enum DraftValues {
    /// The values as they will be stored.
    Complete(Vec<Value>),
    /// `None` keeps the stored value; computed fields wait until the stored values are known.
    Partial(Vec<Option<Value>>),
}

impl DraftValues {
    /// Sets a value that the draft leaves open.
    pub(super) fn set(&mut self, at: usize, value: Value) {
        if let Self::Partial(values) = self
            && let Some(place) = values.get_mut(at)
        {
            *place = Some(value);
        }
    }

    /// Whether the draft itself has a value of this field, by index.
    pub(super) fn is_set(&self, at: usize) -> bool {
        match self {
            Self::Complete(_) => true,
            Self::Partial(values) => values.get(at).is_some_and(Option::is_some),
        }
    }
}

/// A `ref` value, to be looked up by the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The index of the field that it is a value of, or one of the values.
    pub field: usize,
    pub to: ResourceIndex,
    pub id: Id,
    pub pointer: String,
}

/// The data that the client sent for one item.
#[derive(Debug)]
pub(super) struct SentItem<'a> {
    pub(super) root: String,
    pub(super) parent: Option<Id>,
    pub(super) members: JsonMembers<'a>,
}

/// The facts about the item that the request states outside its body.
#[derive(Debug, Clone, Copy)]
struct BodyContext<'a> {
    purpose: BodyPurpose,
    parent: Option<Id>,
    hidden: &'a [usize],
}

/// The purpose of the body: what the write does with it.
#[derive(Debug, Clone, Copy)]
pub(super) enum BodyPurpose {
    Create,
    Replace(Id),
    /// The item after a patch: what it lacks was removed, or was not there.
    Patch(Id),
}

/// The caller's rights to the fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldRights<'a> {
    pub(super) hidden: &'a [usize],
    /// Fields that the caller may not change, at least not in every item. If the body leaves out such a field, it keeps
    /// its stored value; in a new item it gets its default.
    pub(super) kept_if_omitted: &'a [usize],
    /// Fields that GET does not show to the caller. If the body leaves out such a field, it keeps its stored
    /// value, so that a client can PUT what it got from GET.
    pub(super) unseen: &'a [usize],
}

pub(super) fn validate_body(
    resource: &Resource,
    sent: SentItem<'_>,
    aim: BodyPurpose,
    FieldRights { hidden, kept_if_omitted, unseen }: FieldRights<'_>,
) -> (ItemDraft, Vec<FieldFault>) {
    let SentItem { root, parent, members } = sent;
    // Capacity for one field name, which is appended and truncated for each member.
    let mut at = String::with_capacity(root.len() + 32);
    at.push_str(&root);
    let mut faults = FaultCollector::at_root(at);
    // By field: not sent, sent with a fault, or sent.
    let mut given: Vec<Option<Option<Value>>> = resource.fields.iter().map(|_| None).collect();
    for member in members {
        faults.within(&member.0, |faults| {
            match resource.field(&member.0).filter(|(index, _)| !hidden.contains(index)) {
                Some((index, field)) => {
                    let value = validate_field(field, &member.1, aim, faults);
                    *given.get_mut(index).or_bug("there is one for each field") = Some(value);
                }
                None => validate_builtin_member(
                    resource,
                    BodyContext { purpose: aim, parent, hidden },
                    &member,
                    faults,
                ),
            }
        });
    }
    let fields = resource.fields.iter().enumerate();
    let values = given.into_iter().zip(fields).map(|(given, (index, field))| match given {
        // The name of the user is known later.
        _ if field.audit.is_some() => None,
        Some(Some(value)) => Some(value),
        Some(None) => Some(Value::Null),
        None if field.computed.is_some() => Some(Value::Null),
        None if hidden.contains(&index) || kept_if_omitted.contains(&index) => {
            value_of_omitted_kept(field, aim)
        }
        None if unseen.contains(&index) && !matches!(aim, BodyPurpose::Create) => None,
        None => value_of_omitted(field, aim, &mut faults),
    });
    let values: Vec<Option<Value>> = values.collect();
    let references = resource.fields.iter().enumerate().zip(&values);
    let references =
        references.flat_map(|(field, value)| find_references(field, value.as_ref(), &root));
    let references = references.collect();
    let faults = faults.into_list();
    // A computed value would only repeat the faults of its operands.
    let finished = if faults.is_empty() {
        complete_unless_partial(resource, (&root, hidden), values)
    } else {
        Err(faults)
    };
    match finished {
        Ok(values) => (ItemDraft { root, values, references }, Vec::new()),
        Err(faults) => {
            (ItemDraft { root, values: DraftValues::Partial(Vec::new()), references }, faults)
        }
    }
}

/// Completes the values, unless some of them keep their stored value.
fn complete_unless_partial(
    resource: &Resource,
    place: (&str, &[usize]),
    values: Vec<Option<Value>>,
) -> Result<DraftValues, Vec<FieldFault>> {
    if values.iter().any(Option::is_none) {
        return Ok(DraftValues::Partial(values));
    }
    complete_values(resource, place, values.into_iter().flatten().collect())
        .map(DraftValues::Complete)
}

/// Evaluates the computed fields and the checks, and canonicalizes lists and objects to the JSON text that is stored. A
/// fault of a hidden field is reported for the whole item.
pub(super) fn complete_values(
    resource: &Resource,
    (root, hidden): (&str, &[usize]),
    mut values: Vec<Value>,
) -> Result<Vec<Value>, Vec<FieldFault>> {
    let fault = |(index, overflow): (usize, ComputedFault)| FieldFault {
        pointer: match resource.fields.get(index).filter(|_| !hidden.contains(&index)) {
            None => root.to_owned(),
            Some(field) => format!("{root}/{}", field.name),
        },
        code: FaultCode::Overflow,
        detail: overflow.to_string(),
    };
    let overflows = compute(resource, &mut values);
    let mut faults: Vec<FieldFault> = overflows.into_iter().map(fault).collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    let broken = resource.checks.iter().filter(|check| fails(&check.that, &values));
    faults.extend(broken.flat_map(|check| check_faults(resource, (root, hidden), check)));
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(values.into_iter().map(types::canonicalize).collect())
}

/// Evaluates the computed fields, and returns those that overflow, which keep their values.
pub(super) fn compute(resource: &Resource, values: &mut [Value]) -> Vec<(usize, ComputedFault)> {
    let (mut computed, mut faults) = (Vec::new(), Vec::new());
    for (index, field) in resource.fields.iter().enumerate() {
        let Some(expression) = &field.computed else { continue };
        match evaluate(expression, values) {
            Ok(value) => computed.push((index, value)),
            Err(overflow) => faults.push((index, overflow)),
        }
    }
    for (index, value) in computed {
        *values.get_mut(index).or_bug("there is one for each field") = value;
    }
    faults
}

/// The faults of a broken check, one for each field that it names. If a check reads a hidden field, the
/// faults name neither that field nor the message, because the message may describe the field.
fn check_faults(
    resource: &Resource,
    (root, hidden): (&str, &[usize]),
    check: &ItemCheck,
) -> Vec<FieldFault> {
    let paths = check.that.field_paths();
    let is_known = paths.iter().all(|(index, _)| !hidden.contains(index));
    let detail = if is_known { &*check.message } else { FaultCode::Check.meaning() };
    let fault =
        |pointer: String| FieldFault { pointer, code: FaultCode::Check, detail: detail.to_owned() };
    let shown = paths.iter().filter(|(index, _)| !hidden.contains(index));
    let pointers = shown.filter_map(|(index, inner)| {
        let field = resource.fields.get(*index)?;
        let names = [&field.name].into_iter().chain(inner);
        Some(names.fold(root.to_owned(), |pointer, name| format!("{pointer}/{name}")))
    });
    let faults: Vec<FieldFault> = pointers.map(fault).collect();
    if faults.is_empty() { vec![FieldFault::of_hidden_field(root)] } else { faults }
}

fn validate_field(
    field: &Field,
    json: &Json<'_>,
    aim: BodyPurpose,
    faults: &mut FaultCollector,
) -> Option<Value> {
    let read = match aim {
        BodyPurpose::Create => types::read_new,
        BodyPurpose::Replace(_) | BodyPurpose::Patch(_) => types::read,
    };
    match (field.is_made_by_server(), aim) {
        (false, BodyPurpose::Create) if field.server_set => {
            faults.add(FaultCode::ReadOnly, SET_BY_SERVER);
            None
        }
        (false, _) => read(field, json, faults).map(|value| match value {
            Value::Text(text) if field.secret => Value::ClearText(ClearText::new(text)),
            Value::Null if field.secret => Value::ClearText(ClearText::to_generate()),
            value => value,
        }),
        (true, BodyPurpose::Create) => {
            let is_computed = field.computed.is_some();
            let detail = if is_computed { "computed by the server" } else { SET_BY_SERVER };
            faults.add(FaultCode::ReadOnly, detail);
            None
        }
        (true, BodyPurpose::Replace(_) | BodyPurpose::Patch(_)) => {
            let mut scratch = FaultCollector::at_root(String::new());
            types::read(field, json, &mut scratch);
            for fault in scratch.into_list() {
                if matches!(fault.code, FaultCode::Type | FaultCode::Null | FaultCode::Format) {
                    faults.add(fault.code, fault.detail);
                }
            }
            None
        }
    }
}

/// Validates a member that every item has in addition to its declared fields.
fn validate_builtin_member(
    resource: &Resource,
    path: BodyContext<'_>,
    (name, json): &JsonMember<'_>,
    faults: &mut FaultCollector,
) {
    if let (Some(key), Some(id)) = (&resource.parent_key, path.parent)
        && **key == **name
    {
        return check_id(json, id, faults);
    }
    use BodyPurpose::{Create, Patch, Replace};
    match (&**name, path.purpose) {
        ("id", Replace(id) | Patch(id)) => check_id(json, id, faults),
        ("created_at" | "updated_at", Replace(_) | Patch(_)) => match json {
            Json::Text(text) if Moment::parse(text).is_some() => {}
            other => faults
                .add(FaultCode::Type, format!("expected a timestamp, got {}", other.type_name())),
        },
        ("version", Replace(_) | Patch(_)) => match json {
            Json::Number(text) if json::parse_integer(text).is_some() => {}
            other => faults
                .add(FaultCode::Type, format!("expected an integer, got {}", other.type_name())),
        },
        ("id" | "created_at" | "updated_at" | "version", Create) => {
            faults.add(FaultCode::ReadOnly, SET_BY_SERVER);
        }
        (unknown, _) => {
            let known = resource.fields.iter().enumerate();
            let known = known.filter(|(index, _)| !path.hidden.contains(index));
            types::add_unknown(unknown, known.map(|(_, field)| field), faults);
        }
    }
}

fn check_id(json: &Json<'_>, id: Id, faults: &mut FaultCollector) {
    let is_same = match (json, id) {
        // A UUID in a body, unlike in a path, may have upper-case digits.
        (Json::Text(text), Id::Uuid(_)) => {
            IdKind::Uuid.parse(&text.to_ascii_lowercase()) == Some(id)
        }
        (Json::Number(text), Id::Integer(number)) => json::parse_integer(text) == Some(number),
        (
            Json::Null
            | Json::Boolean(_)
            | Json::Number(_)
            | Json::Text(_)
            | Json::List(_)
            | Json::Object(_),
            _,
        ) => false,
    };
    if !is_same {
        faults.add(FaultCode::Mismatch, format!("the path says {id}"));
    }
}

/// The value of a field that the body leaves out. PUT replaces the item, so the field gets its default. A state, a
/// secret and what the server sets keep the stored value (`None`), and so does a default that is made for each new
/// item; in a new item it is made later (`None` too).
fn value_of_omitted(field: &Field, aim: BodyPurpose, faults: &mut FaultCollector) -> Option<Value> {
    let stays = field.rules.states.is_some() || field.secret || field.server_set;
    let is_made = field.default_from.is_some();
    match (aim, &field.default) {
        (BodyPurpose::Replace(_) | BodyPurpose::Patch(_), _) if stays => None,
        (BodyPurpose::Create | BodyPurpose::Replace(_), _) if is_made => None,
        (BodyPurpose::Create, _) if field.secret && field.nullable => {
            Some(Value::ClearText(ClearText::to_generate()))
        }
        // The default of a state field is its initial state.
        (_, Some(default)) => Some(default.clone()),
        (_, None) => {
            if field.required {
                types::add_required(field, faults);
            }
            Some(Value::Null)
        }
    }
}

/// The value of a field that the body leaves out and the caller may not always change: the stored one, or the
/// default of a new item.
fn value_of_omitted_kept(field: &Field, aim: BodyPurpose) -> Option<Value> {
    match aim {
        BodyPurpose::Replace(_) | BodyPurpose::Patch(_) => None,
        BodyPurpose::Create if field.default_from.is_some() => None,
        BodyPurpose::Create => Some(field.default.clone().unwrap_or(Value::Null)),
    }
}

fn find_references(
    (index, field): (usize, &Field),
    value: Option<&Value>,
    root: &str,
) -> Vec<Reference> {
    let pointer = format!("{root}/{}", field.name);
    match (value, &field.rules.element) {
        (Some(Value::List(values)), Some(element)) => {
            let values = values.iter().enumerate();
            let found = values.filter_map(|(at, value)| {
                find_reference((index, element), value, &format!("{pointer}/{at}"))
            });
            found.collect()
        }
        (Some(value), None) => {
            find_reference((index, field), value, &pointer).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn find_reference((index, of): (usize, &Field), value: &Value, pointer: &str) -> Option<Reference> {
    let target = of.rules.reference?;
    let id = target.id.read_value(value)?;
    Some(Reference { field: index, to: target.resource, id, pointer: pointer.to_owned() })
}
