//! Patches applied to a stored item; the result is validated as if it had been sent with PUT.
//!
//! Pure: the store calls it inside its transaction, with the item it has locked. The patched document is what
//! the caller would read with GET. So a patch can neither see nor change a hidden field, and members that the
//! server sets are ignored in the result. What may surprise: a field that the caller may patch but not read
//! is not in the document either. A `test` operation on it always fails, an `add` sets it, and a field that
//! the patch does not name keeps its value.

use super::admit::{self, Aim, Draft, FieldRights, Sent};
use super::{Collection, Refusal};
use crate::formats::{View, json as written};
use crate::intent::Patch;
use crate::json::patch::{self, Failed, Why};
use crate::json::{self, Json};
use crate::model::{Field, Model, Resource};
use crate::permit::{Access, Unseen};
use crate::problem::{Code, Fault};
use crate::value::Item;

/// Both documents were parsed before, with smaller limits.
const DEPTH_MAX: usize = 64;

/// The draft that a patch makes of an item.
pub fn patched(
    model: &Model,
    collection: &Collection,
    patch: &Patch,
    stored: &Item,
) -> Result<Draft, Refusal> {
    let resource = model.resource(collection.resource);
    let reach = &collection.reach;
    let (hidden, unseen) = (reach.hidden(resource.index), reach.unseen(resource, stored));
    let text = visible_text(resource, (hidden, unseen), stored);
    let bytes_max = model.server.limits.body_bytes_max;
    let (root, document, removed) = match patch {
        Patch::Merge(sent) => {
            let sent = read(sent)?;
            let removed = removed_unseen(resource, unseen, &sent);
            let (root, document) = merged(resource, visible(resource, unseen, &text)?, sent)?;
            (root, document, removed)
        }
        Patch::Operations(sent) => {
            let steps = patch::operations(read(sent)?).map_err(|_| unreadable())?;
            let document = patch::apply(visible(resource, unseen, &text)?, &steps, bytes_max);
            let document = document.map_err(|why| failed(&why))?;
            (format!("/{}", resource.name), document, Vec::new())
        }
    };
    if document.bytes() > bytes_max {
        return Err(whole(Code::Length, format!("expected at most {bytes_max} bytes")));
    }
    let members = members(resource, document)?;
    let stays = |at: &usize| unseen.contains(*at) && !removed.contains(at);
    let stays: Vec<usize> = (0..resource.fields.len()).filter(stays).collect();
    let kept = [hidden, &stays].concat();
    refuse_stateless(resource, &kept, (&root, &members))?;
    let access = reach.access(resource.index);
    let is_there = |at: usize| match unseen.contains(at) {
        true => removed.contains(&at),
        false => stored.values.get(at).is_some_and(|value| !value.is_null()),
    };
    refuse_readonly(resource, access, is_there, (&root, &members))?;
    let sent = Sent { root, parent: stored.parent, members };
    let rights = FieldRights { access, unseen: &stays };
    let (draft, faults) = admit::admit(resource, sent, Aim::Replace(stored.id), rights);
    if faults.is_empty() { Ok(draft) } else { Err(Refusal::Invalid(faults)) }
}

/// The item as the caller would read it, as JSON text.
fn visible_text(
    resource: &Resource,
    (hidden, unseen): (&[usize], Unseen<'_>),
    stored: &Item,
) -> Vec<u8> {
    let is_hidden = |at: &usize| hidden.contains(at) || unseen.contains(*at);
    let hidden: Vec<usize> = (0..resource.fields.len()).filter(is_hidden).collect();
    let mut text = Vec::with_capacity(512);
    (written::FORMAT.item)(&mut text, View { resource, hidden: &hidden, chosen: None }, stored);
    text
}

/// The document to patch. For an item that GET does not show to the caller it has only the ids from the path.
fn visible<'a>(
    resource: &Resource,
    unseen: Unseen<'_>,
    text: &'a [u8],
) -> Result<Json<'a>, Refusal> {
    let mut document = read(text)?;
    if unseen.is_all()
        && let Json::Object(wrapped) = &mut document
        && let Some((_, Json::Object(members))) = wrapped.first_mut()
    {
        let key = resource.parent_key.as_deref();
        members.retain(|(name, _)| name == "id" || Some(&**name) == key);
    }
    Ok(document)
}

/// Indices of the fields that a merge patch removes although the caller cannot see them: they are not in the
/// patched document, so `merge` cannot remove them.
fn removed_unseen(resource: &Resource, unseen: Unseen<'_>, sent: &Json<'_>) -> Vec<usize> {
    let Json::Object(wrapped) = sent else { return Vec::new() };
    let Some((_, Json::Object(members))) = wrapped.first() else { return Vec::new() };
    let nulls = members.iter().filter(|(_, value)| matches!(value, Json::Null));
    let fields = nulls.filter_map(|(name, _)| resource.field(name));
    fields.map(|(index, _)| index).filter(|index| unseen.contains(*index)).collect()
}

fn read(text: &[u8]) -> Result<Json<'_>, Refusal> {
    json::parse(text, DEPTH_MAX).map_err(|_| unreadable())
}

/// Unreachable for a request, since `intent` has parsed the patch before.
fn unreadable() -> Refusal {
    Refusal::Patch("the patch cannot be read".to_owned())
}

/// Applies a merge patch. The pointers of its faults begin with the wrapper that was sent, which may be the
/// plural.
fn merged<'a>(
    resource: &Resource,
    mut document: Json<'a>,
    sent: Json<'a>,
) -> Result<(String, Json<'a>), Refusal> {
    let Json::Object(mut sent) = sent else { return Err(unreadable()) };
    let (wrapper, fields) = sent.pop().ok_or_else(unreadable)?;
    let name = resource.name.to_string();
    patch::merge(&mut document, Json::Object(vec![(name.into(), fields)]));
    Ok((format!("/{wrapper}"), document))
}

fn failed(failed: &Failed) -> Refusal {
    match &failed.why {
        Why::TooLarge => whole(Code::Length, failed.to_string()),
        Why::Missing(_) | Why::Different(_) | Why::Inside(_) => Refusal::Patch(failed.to_string()),
    }
}

/// The members of the patched item. The document must still be one object under its wrapper.
fn members<'a>(
    resource: &Resource,
    document: Json<'a>,
) -> Result<crate::intent::Members<'a>, Refusal> {
    let expected = || {
        let detail =
            format!(r#"expected an object under "{}", and nothing beside it"#, resource.name);
        whole(Code::Type, detail)
    };
    let Json::Object(mut wrapped) = document else { return Err(expected()) };
    match (wrapped.pop(), wrapped.len()) {
        (Some((name, Json::Object(members))), 0) if *name == *resource.name => Ok(members),
        _ => Err(expected()),
    }
}

fn whole(code: Code, detail: String) -> Refusal {
    Refusal::Invalid(vec![Fault { pointer: String::new(), code, detail }])
}

/// Refuses a patch that removes a field that the caller may only read.
fn refuse_readonly(
    resource: &Resource,
    access: Option<&Access>,
    is_there: impl Fn(usize) -> bool,
    (root, members): (&str, &[crate::intent::Member<'_>]),
) -> Result<(), Refusal> {
    let Some(access) = access else { return Ok(()) };
    let is_taken = |at: &usize, field: &Field| {
        let is_shown = !access.hidden.contains(at) && field.computed.is_none() && !field.secret;
        is_shown && is_there(*at) && !members.iter().any(|(name, _)| **name == *field.name)
    };
    let fields = access.readonly.iter().filter_map(|at| resource.fields.get(*at).zip(Some(at)));
    let fault = |field: &Field| Fault {
        pointer: format!("{root}/{}", field.name),
        code: Code::ReadOnly,
        detail: "your roles do not let you take it away".to_owned(),
    };
    let taken = fields.filter(|(field, at)| is_taken(at, field));
    let faults: Vec<Fault> = taken.map(|(field, _)| fault(field)).collect();
    if faults.is_empty() { Ok(()) } else { Err(Refusal::ReadOnly(faults)) }
}

/// Refuses a patch that removes the state. A PUT that leaves out the state keeps it, but a patch removes
/// explicitly.
fn refuse_stateless(
    resource: &Resource,
    hidden: &[usize],
    (root, members): (&str, &[crate::intent::Member<'_>]),
) -> Result<(), Refusal> {
    let Some((index, _)) = resource.state().filter(|(index, _)| !hidden.contains(index)) else {
        return Ok(());
    };
    let Some(field) = resource.fields.get(index) else { return Ok(()) };
    if members.iter().any(|(name, _)| **name == *field.name) {
        return Ok(());
    }
    let pointer = format!("{root}/{}", field.name);
    let detail = "a state cannot be taken away".to_owned();
    Err(Refusal::Invalid(vec![Fault { pointer, code: Code::Null, detail }]))
}
