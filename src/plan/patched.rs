//! An item with a patch applied, held against the model as if all of it had been sent.
//!
//! Pure: the store calls it inside its transaction, with the item it has locked.
//! The document that is patched is what the caller would read. So what is hidden can be neither seen nor
//! changed, and what the server sets is not looked at afterwards.

use super::admit::{self, Aim, Draft, Sent};
use super::{Collection, Refusal};
use crate::formats::{View, json as written};
use crate::intent::Patch;
use crate::json::patch::{self, Failed, Why};
use crate::json::{self, Json};
use crate::model::{Field, Model, Resource};
use crate::permit::Access;
use crate::problem::{Code, Fault};
use crate::value::Item;

/// Both were read before, within limits.
const DEPTH_MAX: usize = 64;

/// What an item becomes.
pub fn patched(
    model: &Model,
    collection: &Collection,
    patch: &Patch,
    stored: &Item,
) -> Result<Draft, Refusal> {
    let resource = model.resource(collection.resource);
    let hidden = collection.reach.hidden(collection.resource);
    let mut text = Vec::with_capacity(512);
    (written::FORMAT.item)(&mut text, View { resource, hidden, chosen: None }, stored);
    let bytes_max = model.server.limits.body_bytes_max;
    let (root, document) = match patch {
        Patch::Merge(sent) => merged(resource, read(&text)?, read(sent)?)?,
        Patch::Operations(sent) => {
            let steps = patch::operations(read(sent)?).map_err(|_| unreadable())?;
            let document = patch::apply(read(&text)?, &steps, bytes_max);
            let document = document.map_err(|why| failed(&why))?;
            (format!("/{}", resource.name), document)
        }
    };
    if document.bytes() > bytes_max {
        return Err(whole(Code::Length, format!("expected at most {bytes_max} bytes")));
    }
    let members = members(resource, document)?;
    refuse_stateless(resource, hidden, (&root, &members))?;
    let access = collection.reach.access(collection.resource);
    refuse_readonly(resource, access, stored, (&root, &members))?;
    let sent = Sent { root, parent: stored.parent, members };
    let (draft, faults) = admit::admit(resource, sent, Aim::Replace(stored.id), access);
    if faults.is_empty() { Ok(draft) } else { Err(Refusal::Invalid(faults)) }
}

fn read(text: &[u8]) -> Result<Json<'_>, Refusal> {
    json::parse(text, DEPTH_MAX).map_err(|_| unreadable())
}

/// What `intent` has read before.
fn unreadable() -> Refusal {
    Refusal::Patch("the patch cannot be read".to_owned())
}

/// Under the wrapper that was sent, which may be the plural.
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

/// Still an object of fields under its wrapper, and nothing beside it.
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

/// In the same way, what the caller may only read cannot be taken away.
fn refuse_readonly(
    resource: &Resource,
    access: Option<&Access>,
    stored: &Item,
    (root, members): (&str, &[crate::intent::Member<'_>]),
) -> Result<(), Refusal> {
    let Some(access) = access else { return Ok(()) };
    let is_taken = |at: &usize, field: &Field| {
        let is_shown = !access.hidden.contains(at) && field.computed.is_none() && !field.secret;
        let is_stored = stored.values.get(*at).is_some_and(|value| !value.is_null());
        is_shown && is_stored && !members.iter().any(|(name, _)| **name == *field.name)
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

/// A `PUT` without a state leaves it; a patch that takes it away means it.
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
