//! References that an update leaves as they are: they may stay, although the caller can no longer see their targets.

use super::validate::{DraftValues, ItemDraft};
use crate::model::{Resource, types};
use crate::permit::UnreadableFields;
use crate::value::{Item, Value};

/// Whether the reference at a pointer equals the stored one. Never where the caller may not see the stored
/// value.
pub(super) fn is_stored_reference(
    resource: &Resource,
    unseen: UnreadableFields<'_>,
    (stored, draft): (&Item, &ItemDraft),
    pointer: &str,
) -> bool {
    let place = pointer.strip_prefix(&*draft.root).and_then(|rest| rest.strip_prefix('/'));
    // One of many references has its place in the list after the name.
    let (name, element) = match place.and_then(|place| place.split_once('/')) {
        Some((name, at)) => (Some(name), at.parse::<usize>().ok()),
        None => (place, None),
    };
    let Some((index, field)) = name.and_then(|name| resource.field(name)) else { return false };
    if unseen.contains(index) {
        return false;
    }
    let sent = match &draft.values {
        DraftValues::Complete(values) => values.get(index),
        DraftValues::Partial(values) => values.get(index).and_then(Option::as_ref),
    };
    let Some((sent, stored)) = sent.zip(stored.values.get(index)) else { return false };
    let Some(at) = element else { return sent == stored };
    let [sent, stored] = [sent, stored].map(|value| types::parse_canonical(field, value.clone()));
    match (sent, stored) {
        (Value::List(sent), Value::List(stored)) => {
            sent.get(at).is_some_and(|sent| stored.contains(sent))
        }
        _ => false,
    }
}
