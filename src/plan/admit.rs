//! Validation of a request body against the model: checks every field, collects every fault, fills in
//! defaults.
//!
//! The result is an `ItemDraft`: all that can be known of the item without stored data. A client can send
//! back with PUT what it got from GET: members that the server sets are checked for their type and otherwise
//! ignored.

use crate::intent::{Member, Members};
use crate::json::{self, Json};
use crate::model::{Field, Resource, ResourceIndex, types};
use crate::permit::Access;
use crate::problem::{Code, Fault, Faults};
use crate::value::{Clear, Id, IdKind, Moment, Value};

/// An item that a request wants to create or replace, as far as the request alone determines it.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The JSON pointer of its object in the body.
    pub root: String,
    pub values: Values,
    pub references: Vec<Reference>,
}

/// The values of a draft, in the resource's field order.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// As they will be stored.
    Complete(Vec<Value>),
    /// `None` keeps the stored value; computed fields wait until the stored values are known.
    Partial(Vec<Option<Value>>),
}

/// A `ref` value, to be looked up by the store.
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

/// What the request says about the item outside its body.
#[derive(Debug, Clone, Copy)]
struct Path<'a> {
    aim: Aim,
    parent: Option<Id>,
    hidden: &'a [usize],
}

/// What the write does with the body.
#[derive(Debug, Clone, Copy)]
pub(super) enum Aim {
    Create,
    Replace(Id),
}

/// What the caller may do with the fields.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FieldRights<'a> {
    /// `None`: every field can be read and changed.
    pub(super) access: Option<&'a Access>,
    /// Fields that GET does not show to the caller. A field of these that the body leaves out keeps its
    /// stored value, so that a client can PUT what it got from GET.
    pub(super) unseen: &'a [usize],
}

pub(super) fn admit(
    resource: &Resource,
    sent: Sent<'_>,
    aim: Aim,
    FieldRights { access, unseen }: FieldRights<'_>,
) -> (Draft, Vec<Fault>) {
    let (hidden, readonly) = match access {
        None => (&[][..], &[][..]),
        Some(access) => (&*access.hidden, &*access.readonly),
    };
    let Sent { root, parent, members } = sent;
    // Capacity for one field name, which is appended and truncated for each member.
    let mut at = String::with_capacity(root.len() + 32);
    at.push_str(&root);
    let mut faults = Faults::at(at);
    // By field: not sent, sent with a fault, or sent.
    let mut given: Vec<Option<Option<Value>>> = resource.fields.iter().map(|_| None).collect();
    for member in members {
        let mark = faults.enter(&member.0);
        match resource.field(&member.0).filter(|(index, _)| !hidden.contains(index)) {
            Some((index, field)) => {
                let value = admit_field(field, &member.1, aim, &mut faults);
                if let Some(given) = given.get_mut(index) {
                    *given = Some(value);
                }
            }
            None => admit_own(resource, Path { aim, parent, hidden }, &member, &mut faults),
        }
        faults.leave(mark);
    }
    let fields = resource.fields.iter().enumerate();
    let values = given.into_iter().zip(fields).map(|(given, (index, field))| match given {
        Some(Some(value)) => Some(value),
        Some(None) => Some(Value::Null),
        None if field.computed.is_some() => Some(Value::Null),
        None if hidden.contains(&index) || readonly.contains(&index) => kept(field, aim),
        None if unseen.contains(&index) && matches!(aim, Aim::Replace(_)) => None,
        None => left_out(field, aim, &mut faults),
    });
    let values: Vec<Option<Value>> = values.collect();
    let references = resource.fields.iter().zip(&values);
    let references =
        references.filter_map(|(field, value)| reference(field, value.as_ref(), &root)).collect();
    let faults = faults.into_list();
    // A computed value would only repeat the faults of its operands.
    let finished =
        if faults.is_empty() { finish(resource, (&root, hidden), values) } else { Err(faults) };
    match finished {
        Ok(values) => (Draft { root, values, references }, Vec::new()),
        Err(faults) => (Draft { root, values: Values::Partial(Vec::new()), references }, faults),
    }
}

/// Completes the values, unless some of them keep their stored value.
fn finish(
    resource: &Resource,
    place: (&str, &[usize]),
    values: Vec<Option<Value>>,
) -> Result<Values, Vec<Fault>> {
    if values.iter().any(Option::is_none) {
        return Ok(Values::Partial(values));
    }
    complete(resource, place, values.into_iter().flatten().collect()).map(Values::Complete)
}

/// Evaluates the computed fields, and canonicalizes lists and objects to the JSON text that is stored. A
/// fault of a hidden field is reported for the whole item.
pub(super) fn complete(
    resource: &Resource,
    (root, hidden): (&str, &[usize]),
    mut values: Vec<Value>,
) -> Result<Vec<Value>, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut computed = Vec::new();
    for (index, field) in resource.fields.iter().enumerate() {
        let Some(expression) = &field.computed else { continue };
        match expression.evaluate(&values) {
            Ok(value) => computed.push((index, value)),
            Err(overflow) => faults.push(Fault {
                pointer: match hidden.contains(&index) {
                    true => root.to_owned(),
                    false => format!("{root}/{}", field.name),
                },
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
    let read = match aim {
        Aim::Create => types::read_new,
        Aim::Replace(_) => types::read,
    };
    match (field.computed.is_some(), aim) {
        (false, _) => read(field, json, faults).map(|value| match value {
            Value::Text(text) if field.secret => Value::Clear(Clear::new(text)),
            value => value,
        }),
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

/// Validates a member that every item has in addition to its declared fields.
fn admit_own(resource: &Resource, path: Path<'_>, (name, json): &Member<'_>, faults: &mut Faults) {
    if let (Some(key), Some(id)) = (&resource.parent_key, path.parent)
        && **key == **name
    {
        return same_id(json, id, faults);
    }
    match (&**name, path.aim) {
        ("id", Aim::Replace(id)) => same_id(json, id, faults),
        ("created_at" | "updated_at", Aim::Replace(_)) => match json {
            Json::Text(text) if Moment::parse(text).is_some() => {}
            other => faults.add(Code::Type, format!("expected a timestamp, got {}", other.kind())),
        },
        ("version", Aim::Replace(_)) => match json {
            Json::Number(text) if json::integer(text).is_some() => {}
            other => faults.add(Code::Type, format!("expected an integer, got {}", other.kind())),
        },
        ("id" | "created_at" | "updated_at" | "version", Aim::Create) => {
            faults.add(Code::ReadOnly, "set by the server");
        }
        (unknown, _) => {
            let known = resource.fields.iter().enumerate();
            let known = known.filter(|(index, _)| !path.hidden.contains(index));
            types::add_unknown(unknown, known.map(|(_, field)| field), faults);
        }
    }
}

fn same_id(json: &Json<'_>, id: Id, faults: &mut Faults) {
    let is_same = match (json, id) {
        // A UUID in a body, unlike in a path, may have upper-case digits.
        (Json::Text(text), Id::Uuid(_)) => {
            IdKind::Uuid.parse(&text.to_ascii_lowercase()) == Some(id)
        }
        (Json::Number(text), Id::Integer(number)) => json::integer(text) == Some(number),
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
        faults.add(Code::Mismatch, format!("the path says {id}"));
    }
}

/// The value of a field that the body leaves out. PUT replaces the item, so the field gets its default; a
/// state and a secret keep the stored value (`None`).
fn left_out(field: &Field, aim: Aim, faults: &mut Faults) -> Option<Value> {
    let stays = field.rules.states.is_some() || field.secret;
    match (aim, &field.default) {
        (Aim::Replace(_), _) if stays => None,
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

/// The value of a field that the body leaves out and the caller may not change: the stored one, or the
/// default of a new item.
fn kept(field: &Field, aim: Aim) -> Option<Value> {
    match aim {
        Aim::Replace(_) => None,
        Aim::Create => Some(field.default.clone().unwrap_or(Value::Null)),
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
        Value::Json(_) | Value::List(_) | Value::Object(_) | Value::Clear(_) => return None,
    };
    Some(Reference { to: target.resource, id, pointer: format!("{root}/{}", field.name) })
}
