//! Holds a body against the model: every field checked, every fault found, defaults filled in.
//!
//! What comes out is a `Draft`: all that can be known of the item without looking at stored data.
//! What a client got from GET it can send back with PUT: the members the server sets are checked
//! for their type and otherwise not looked at.

use std::borrow::Cow;

use crate::intent::Members;
use crate::json::{self, Json};
use crate::model::{Field, Model, Resource, ResourceIndex, types};
use crate::problem::{Code, Fault, Faults};
use crate::value::{Id, IdKind, Moment, Value};

/// An item to be, as far as the request alone tells.
#[derive(Debug)]
pub struct Draft {
    /// The JSON pointer of its object in the body.
    pub root: String,
    pub values: Values,
    pub references: Vec<Reference>,
}

/// The values of a draft, by the resource's field order.
#[derive(Debug, PartialEq)]
pub enum Values {
    /// As they will be stored.
    Complete(Vec<Value>),
    /// `None` stays as it is stored; what is computed waits for it.
    Partial(Vec<Option<Value>>),
}

/// A `ref` value, to be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub to: ResourceIndex,
    pub id: Id,
    pub pointer: String,
}

/// What the client sent for one item.
#[derive(Debug)]
pub(super) struct Sent<'a> {
    pub(super) root: String,
    pub(super) parent: Option<Id>,
    pub(super) members: Members<'a>,
}

/// What the body is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Aim {
    Create,
    Replace(Id),
}

pub(super) fn admit(
    model: &Model,
    resource: &Resource,
    sent: Sent<'_>,
    aim: Aim,
) -> (Draft, Vec<Fault>) {
    let Sent { root, parent, members } = sent;
    let mut faults = Faults::at(root.clone());
    let mut given: Vec<Option<Value>> = resource.fields.iter().map(|_| None).collect();
    let mut seen = vec![false; resource.fields.len()];
    for (name, json) in members {
        let mark = faults.enter(&name);
        match resource.field(&name) {
            Some((index, field)) => {
                let value = admit_field(field, &json, aim, &mut faults);
                if let (Some(to), Some(seen)) = (given.get_mut(index), seen.get_mut(index)) {
                    (*to, *seen) = (value, true);
                }
            }
            None => admit_own(model, resource, (&name, &json), (aim, parent), &mut faults),
        }
        faults.leave(mark);
    }
    let fields = resource.fields.iter().zip(given).zip(seen);
    let values: Vec<Option<Value>> = fields
        .map(|((field, value), seen)| match value {
            // It was sent and has its fault, or it is computed.
            None if seen || field.computed.is_some() => Some(Value::Null),
            None => left_out(field, aim, &mut faults),
            value => value,
        })
        .collect();
    let references = resource.fields.iter().zip(&values);
    let references =
        references.filter_map(|(field, value)| reference(field, value.as_ref(), &root)).collect();
    let faults_found = faults.into_list();
    let draft = Draft { root, values: Values::Partial(values), references };
    if faults_found.is_empty() { finish(resource, draft) } else { (draft, faults_found) }
}

/// Completes a draft of which nothing stays as it is stored.
fn finish(resource: &Resource, mut draft: Draft) -> (Draft, Vec<Fault>) {
    let Values::Partial(values) = draft.values else { return (draft, Vec::new()) };
    if values.iter().any(Option::is_none) {
        draft.values = Values::Partial(values);
        return (draft, Vec::new());
    }
    let (values, faults) =
        match complete(resource, &draft.root, values.into_iter().flatten().collect()) {
            Ok(values) => (values, Vec::new()),
            Err(faults) => (Vec::new(), faults),
        };
    draft.values = Values::Complete(values);
    (draft, faults)
}

/// Computes what follows from the other fields, and seals lists and objects as they are stored.
pub(super) fn complete(
    resource: &Resource,
    root: &str,
    mut values: Vec<Value>,
) -> Result<Vec<Value>, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut computed = Vec::new();
    for (index, field) in resource.fields.iter().enumerate() {
        let Some(expression) = &field.computed else { continue };
        match expression.evaluate(&values) {
            Ok(value) => computed.push((index, value)),
            Err(overflow) => faults.push(Fault {
                pointer: format!("{root}/{}", field.name),
                code: Code::Overflow,
                detail: overflow.to_string(),
            }),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    for (index, value) in computed {
        if let Some(slot) = values.get_mut(index) {
            *slot = value;
        }
    }
    Ok(values.into_iter().map(types::seal).collect())
}

fn admit_field(field: &Field, json: &Json<'_>, aim: Aim, faults: &mut Faults) -> Option<Value> {
    match (field.computed.is_some(), aim) {
        (false, _) => types::read(field, json, faults),
        (true, Aim::Create) => {
            faults.add(Code::ReadOnly, "computed by the server");
            None
        }
        (true, Aim::Replace(_)) => {
            let mut scratch = Faults::at(String::new());
            types::read(field, json, &mut scratch);
            for fault in scratch.into_list() {
                if matches!(fault.code, Code::Type | Code::Null | Code::Format) {
                    faults.add(fault.code, fault.detail);
                }
            }
            None
        }
    }
}

/// The members every item has beside its declared fields.
fn admit_own(
    model: &Model,
    resource: &Resource,
    (name, json): (&Cow<'_, str>, &Json<'_>),
    (aim, parent): (Aim, Option<Id>),
    faults: &mut Faults,
) {
    let parent = resource.parent.map(|index| model.resource(index)).zip(parent);
    let parent = parent.filter(|(resource, _)| is_parent_key(name, &resource.name));
    match (&**name, aim, parent) {
        (_, _, Some((parent, id))) => same_id(json, parent.id, id, faults),
        ("id", Aim::Replace(id), None) => same_id(json, resource.id, id, faults),
        ("created_at" | "updated_at", Aim::Replace(_), None) => match json {
            Json::Text(text) if Moment::parse(text).is_some() => {}
            other => faults.add(Code::Type, format!("expected a timestamp, got {}", other.kind())),
        },
        ("version", Aim::Replace(_), None) => match json {
            Json::Number(text) if json::integer(text).is_some() => {}
            other => faults.add(Code::Type, format!("expected an integer, got {}", other.kind())),
        },
        ("id" | "created_at" | "updated_at" | "version", Aim::Create, None) => {
            faults.add(Code::ReadOnly, "set by the server");
        }
        (unknown, _, None) => types::add_unknown(unknown, &resource.fields, faults),
    }
}

fn is_parent_key(name: &str, parent: &str) -> bool {
    name.strip_suffix("_id") == Some(parent)
}

fn same_id(json: &Json<'_>, kind: IdKind, id: Id, faults: &mut Faults) {
    let sent = match (json, kind) {
        (Json::Text(text), IdKind::Uuid) => kind.parse(text),
        (Json::Number(text), IdKind::Integer) => json::integer(text).map(Id::Integer),
        (
            Json::Null
            | Json::Boolean(_)
            | Json::Number(_)
            | Json::Text(_)
            | Json::List(_)
            | Json::Object(_),
            _,
        ) => None,
    };
    if sent != Some(id) {
        faults.add(Code::Mismatch, format!("the path says {id}"));
    }
}

/// PUT replaces: what is left out goes to its default, but a state stays (`None`).
fn left_out(field: &Field, aim: Aim, faults: &mut Faults) -> Option<Value> {
    match (&field.rules.states, aim, &field.default) {
        (Some(_), Aim::Replace(_), _) => None,
        (Some(states), Aim::Create, _) => Some(Value::Text(states.initial.clone())),
        (None, _, Some(default)) => Some(default.clone()),
        (None, _, None) => {
            if field.required {
                types::add_required(field, faults);
            }
            Some(Value::Null)
        }
    }
}

fn reference(field: &Field, value: Option<&Value>, root: &str) -> Option<Reference> {
    let target = field.rules.to?;
    let id = match value? {
        Value::Text(text) => target.id.parse(text)?,
        Value::Integer(number) => Id::Integer(*number),
        Value::Null
        | Value::Boolean(_)
        | Value::Number(_)
        | Value::Decimal(_)
        | Value::Moment(_) => return None,
        Value::Json(_) | Value::List(_) | Value::Object(_) => return None,
    };
    Some(Reference { to: target.resource, id, pointer: format!("{root}/{}", field.name) })
}
