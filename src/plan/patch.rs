//! Patches applied to a stored item; the result is validated as if it had been sent with PUT, but for lists and objects
//! that the patch leaves as they are.
//!
//! Pure: the store calls it inside its transaction, with the item it has locked. The patched document is what
//! the caller would read with GET. So a patch can neither see nor change a hidden field, and members that the
//! server sets are ignored in the result. A field that the caller may patch but not read is not in the
//! document either. A `test` operation on it always fails, an `add` sets it, and a field that the patch does
//! not name keeps its value.

use std::borrow::Cow;

use super::collection::Collection;
use super::item_rights::{ItemRights, RefusalReason};
use super::outcome::RequestRefusal;
use super::validate::{self, BodyPurpose, FieldRights, ItemDraft, SentItem};
use crate::fault::{self, OrBug};
use crate::formats::{ItemView, json as written};
use crate::intent::Patch;
use crate::json::patch::{self, PatchError, PatchFailure};
use crate::json::{self, Json};
use crate::model::{Field, Resource};
use crate::permit::{FactReader, ParsedRow, StoredRow, UnreadableFields};
use crate::problem::{FaultCode, FieldFault};
use crate::value::{Item, Value};

/// Both documents were parsed before, with smaller limits.
const DEPTH_MAX: usize = 64;

/// The draft that a patch makes of an item.
pub fn apply_patch(
    facts: &FactReader<'_>,
    collection: &Collection,
    patch: &Patch,
    stored: &Item,
) -> Result<ItemDraft, RequestRefusal> {
    let model = facts.model();
    let resource = model.resource(collection.resource);
    let reach = &collection.scope;
    let access = reach.access(resource.index);
    let (hidden, unseen) = (&*access.hidden, reach.unreadable(resource, stored, facts));
    let text = visible_json(resource, (hidden, unseen), stored);
    let bytes_max = model.server.limits.body_bytes_max;
    let mut renewed = Vec::new();
    let (root, document, removed) = match patch {
        Patch::MergePatch(sent) => {
            let sent = parse_sent(sent);
            let removed = removed_unreadable(resource, unseen, &sent);
            renewed = renewed_secrets(resource, hidden, &sent);
            let (root, document) =
                apply_merge_patch(resource, visible_document(resource, unseen, &text)?, sent);
            (root, document, removed)
        }
        Patch::JsonPatch(sent) => {
            let steps = patch::parse_operations(parse_sent(sent)).or_bug(PARSED_BEFORE);
            let document =
                patch::apply(visible_document(resource, unseen, &text)?, &steps, bytes_max);
            let document = document.map_err(|why| patch_refusal(&why))?;
            (format!("/{}", resource.name), document, Vec::new())
        }
    };
    if document.approximate_bytes() > bytes_max {
        return Err(whole_item_fault(
            FaultCode::Length,
            format!("expected at most {bytes_max} bytes"),
        ));
    }
    let mut members = unwrap_members(resource, document)?;
    members.extend(renewed.into_iter().map(|name| (name.into(), Json::Null)));
    let stays = |at: &usize| unseen.contains(*at) && !removed.contains(at);
    let stays: Vec<usize> = (0..resource.fields.len()).filter(stays).collect();
    let kept = [hidden, &stays].concat();
    refuse_state_removal(resource, &kept, (&root, &members))?;
    refuse_server_set_removal(resource, stored, (&root, &members))?;
    let is_there = |at: usize| match unseen.contains(at) {
        true => removed.contains(&at),
        false => stored.values.get(at).is_some_and(|value| !value.is_null()),
    };
    let is_removed = |at: usize, field: &Field| {
        let is_shown = !hidden.contains(&at) && !field.secret;
        is_shown && is_there(at) && !members.iter().any(|(name, _)| **name == *field.name)
    };
    let rights = ItemRights::new(collection, facts);
    refuse_readonly_removal(resource, rights, stored, (&root, is_removed))?;
    let stays_absent = |at: usize, field: &Field| {
        let has_later_default = field.default.is_some() && !field.nullable;
        !is_there(at) && (has_later_default || access.readonly_or_limited.contains(&at))
    };
    let is_visible = |at: usize| !hidden.contains(&at) && !unseen.contains(at);
    let (members, mut kept_if_omitted) =
        split_unchanged((resource, stored), members, is_visible, stays_absent);
    kept_if_omitted.extend(access.readonly.iter());
    let sent = SentItem { root, parent: stored.parent, members };
    let rights = FieldRights { hidden, kept_if_omitted: &kept_if_omitted, unseen: &stays };
    let (draft, faults) =
        validate::validate_body(resource, sent, BodyPurpose::Patch(stored.id), rights);
    if faults.is_empty() { Ok(draft) } else { Err(RequestRefusal::Invalid(faults)) }
}

/// The members without the lists and objects that the patch has left as they are, and the indices of the fields that
/// keep their values: those, and the absent ones that the patch does not name. A default that was declared later would
/// be a change.
fn split_unchanged<'a>(
    (resource, stored): (&Resource, &Item),
    mut members: Vec<(Cow<'a, str>, Json<'a>)>,
    is_visible: impl Fn(usize) -> bool,
    stays_absent: impl Fn(usize, &Field) -> bool,
) -> (Vec<(Cow<'a, str>, Json<'a>)>, Vec<usize>) {
    let mut kept = Vec::new();
    for (at, field) in resource.fields.iter().enumerate() {
        let found = members.iter().position(|(name, _)| **name == *field.name);
        let sent = found.and_then(|found| members.get(found).map(|(_, sent)| (found, sent)));
        match (sent, stored.values.get(at)) {
            (None, _) if stays_absent(at, field) => kept.push(at),
            (Some((found, sent)), Some(Value::Json(text)))
                // A comparison would reveal the value of a field that the caller cannot read.
                if is_visible(at)
                    && json::parse(text.as_bytes(), DEPTH_MAX).as_ref() == Ok(sent) =>
            {
                members.remove(found);
                kept.push(at);
            }
            _ => {}
        }
    }
    (members, kept)
}

/// The item as the caller would read it, as JSON text.
fn visible_json(
    resource: &Resource,
    (hidden, unseen): (&[usize], UnreadableFields<'_>),
    stored: &Item,
) -> Vec<u8> {
    let is_hidden = |at: &usize| hidden.contains(at) || unseen.contains(*at);
    let hidden: Vec<usize> = (0..resource.fields.len()).filter(is_hidden).collect();
    let mut text = Vec::with_capacity(512);
    (written::FORMAT.item)(
        &mut text,
        ItemView { hidden: &hidden, ..ItemView::all_fields(resource) },
        stored,
    );
    text
}

/// The document to patch. For an item that GET does not show to the caller it has only the ids from the path.
fn visible_document<'a>(
    resource: &Resource,
    unseen: UnreadableFields<'_>,
    text: &'a [u8],
) -> Result<Json<'a>, RequestRefusal> {
    let mut document = json::parse(text, DEPTH_MAX)
        .map_err(|_| RequestRefusal::Patch("the patch cannot be read".to_owned()))?;
    if unseen.is_whole_item()
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
fn removed_unreadable(
    resource: &Resource,
    unseen: UnreadableFields<'_>,
    sent: &Json<'_>,
) -> Vec<usize> {
    let fields = null_fields(resource, sent);
    fields.map(|(index, _)| index).filter(|index| unseen.contains(*index)).collect()
}

/// The fields for which a merge patch has null.
fn null_fields<'a>(
    resource: &'a Resource,
    sent: &Json<'_>,
) -> impl Iterator<Item = (usize, &'a Field)> {
    let Json::Object(wrapped) = sent else { fault::bug(PARSED_BEFORE) };
    let Some((_, Json::Object(members))) = wrapped.first() else { fault::bug(PARSED_BEFORE) };
    let nulls = members.iter().filter(|(_, value)| matches!(value, Json::Null));
    nulls.filter_map(|(name, _)| resource.field(name))
}

/// The names of the secrets for which a merge patch has null: the server makes new ones. They are not in the patched
/// document, so `merge` cannot set them.
fn renewed_secrets<'a>(resource: &'a Resource, hidden: &[usize], sent: &Json<'_>) -> Vec<&'a str> {
    let is_renewed =
        |(at, field): &(usize, &Field)| field.secret && field.nullable && !hidden.contains(at);
    let fields = null_fields(resource, sent).filter(is_renewed);
    fields.map(|(_, field)| &*field.name).collect()
}

const PARSED_BEFORE: &str = "`intent` has parsed the patch";

fn parse_sent(patch: &[u8]) -> Json<'_> {
    json::parse(patch, DEPTH_MAX).or_bug(PARSED_BEFORE)
}

/// Applies a merge patch. The pointers of its faults begin with the wrapper that was sent, which may be the
/// plural.
fn apply_merge_patch<'a>(
    resource: &Resource,
    mut document: Json<'a>,
    sent: Json<'a>,
) -> (String, Json<'a>) {
    let Json::Object(mut sent) = sent else { fault::bug(PARSED_BEFORE) };
    let (wrapper, fields) = sent.pop().or_bug(PARSED_BEFORE);
    let name = resource.name.to_string();
    patch::merge(&mut document, Json::Object(vec![(name.into(), fields)]));
    (format!("/{wrapper}"), document)
}

fn patch_refusal(failed: &PatchError) -> RequestRefusal {
    match &failed.reason {
        PatchFailure::TooLarge => whole_item_fault(FaultCode::Length, failed.to_string()),
        PatchFailure::Missing(_) | PatchFailure::Different(_) | PatchFailure::IntoItself(_) => {
            RequestRefusal::Patch(failed.to_string())
        }
    }
}

/// The members of the patched item. The document must still be one object under its wrapper.
fn unwrap_members<'a>(
    resource: &Resource,
    document: Json<'a>,
) -> Result<crate::intent::JsonMembers<'a>, RequestRefusal> {
    let expected = || {
        let detail =
            format!(r#"expected an object under "{}", and nothing beside it"#, resource.name);
        whole_item_fault(FaultCode::Type, detail)
    };
    let Json::Object(mut wrapped) = document else { return Err(expected()) };
    match (wrapped.pop(), wrapped.len()) {
        (Some((name, Json::Object(members))), 0) if *name == *resource.name => Ok(members),
        _ => Err(expected()),
    }
}

fn whole_item_fault(code: FaultCode, detail: String) -> RequestRefusal {
    RequestRefusal::Invalid(vec![FieldFault { pointer: String::new(), code, detail }])
}

/// Refuses a patch that removes a field which the caller may not change in the stored item.
fn refuse_readonly_removal(
    resource: &Resource,
    rights: ItemRights<'_>,
    stored: &Item,
    (root, is_removed): (&str, impl Fn(usize, &Field) -> bool),
) -> Result<(), RequestRefusal> {
    let row = ParsedRow::new(resource, StoredRow::of(stored));
    let fault = |(field, reason): (&Field, RefusalReason)| FieldFault {
        pointer: format!("{root}/{}", field.name),
        code: FaultCode::ReadOnly,
        detail: format!("your roles do not let you take it away{}", reason.scope()),
    };
    let refused = rights.refused_fields(resource, &[&row], is_removed).into_iter();
    let faults: Vec<FieldFault> = refused.map(fault).collect();
    if faults.is_empty() { Ok(()) } else { Err(RequestRefusal::ReadOnly(faults)) }
}

/// Refuses a patch that removes a value that the server has set.
fn refuse_server_set_removal(
    resource: &Resource,
    stored: &Item,
    (root, members): (&str, &[crate::intent::JsonMember<'_>]),
) -> Result<(), RequestRefusal> {
    let fields = resource.fields.iter().zip(&stored.values);
    let is_removed = |(field, value): &(&Field, &Value)| {
        field.server_set
            && !value.is_null()
            && !members.iter().any(|(name, _)| **name == *field.name)
    };
    let fault = |field: &Field| FieldFault {
        pointer: format!("{root}/{}", field.name),
        code: FaultCode::ReadOnly,
        detail: validate::SET_BY_SERVER.to_owned(),
    };
    let removed = fields.filter(is_removed);
    let faults: Vec<FieldFault> = removed.map(|(field, _)| fault(field)).collect();
    if faults.is_empty() { Ok(()) } else { Err(RequestRefusal::Invalid(faults)) }
}

/// Refuses a patch that removes the state. A PUT that leaves out the state keeps it, but a patch removes
/// explicitly.
fn refuse_state_removal(
    resource: &Resource,
    hidden: &[usize],
    (root, members): (&str, &[crate::intent::JsonMember<'_>]),
) -> Result<(), RequestRefusal> {
    let Some((index, _)) = resource.state_field().filter(|(index, _)| !hidden.contains(index))
    else {
        return Ok(());
    };
    let Some(field) = resource.fields.get(index) else { return Ok(()) };
    if members.iter().any(|(name, _)| **name == *field.name) {
        return Ok(());
    }
    let pointer = format!("{root}/{}", field.name);
    let detail = "a state cannot be taken away".to_owned();
    Err(RequestRefusal::Invalid(vec![FieldFault { pointer, code: FaultCode::Null, detail }]))
}
