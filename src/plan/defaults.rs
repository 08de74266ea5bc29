//! Defaults that are made for each new item: the time, the name of the user or another field of it, a UUID.
//!
//! They are made inside the transaction, when the time of creation and the user are known, and satisfy the rules of
//! their fields like values that were sent.

use uuid::Uuid;

use super::validate::{DraftValues, complete_values};
use crate::fault::OrBug as _;
use crate::json;
use crate::model::expr::UserValues;
use crate::model::{DefaultSource, Field, Resource, StorageClass, types};
use crate::problem::{FaultCollector, FieldFault};
use crate::value::{Moment, Value};

/// The characters of a date at the beginning of a timestamp.
const DATE_CHARS: usize = "2026-11-15".len();

const EACH_HAS_ONE: &str = "there is a UUID for each field that needs one";

/// The values that made defaults of one new item can use.
#[derive(Debug, Clone, Copy)]
pub struct DefaultInputs<'a> {
    /// The time of creation.
    pub now: Moment,
    /// What a caller does not have stays without a value.
    pub user: UserValues<'a>,
    /// `uuids_per_item` of them.
    pub uuids: &'a [Uuid],
}

/// The number of UUIDs that the defaults of a new item may need.
pub fn uuids_per_item(resource: &Resource) -> usize {
    resource.fields.iter().filter(|field| field.default_from == Some(DefaultSource::Uuid)).count()
}

/// The values of a new item as they will be stored; those that a draft leaves open are made. A fault of a hidden field
/// is reported for the whole item.
pub fn complete_new_values(
    resource: &Resource,
    (root, hidden): (&str, &[usize]),
    values: &DraftValues,
    inputs: DefaultInputs<'_>,
) -> Result<Vec<Value>, Vec<FieldFault>> {
    let values = match values {
        DraftValues::Complete(values) => return Ok(values.clone()),
        DraftValues::Partial(values) => values,
    };
    let (mut faults, mut complete) = (Vec::new(), Vec::with_capacity(values.len()));
    let mut uuids = inputs.uuids.iter();
    for (at, (field, value)) in resource.fields.iter().zip(values).enumerate() {
        let made = field.default_from.as_ref().map_or(Value::Null, |source| match source {
            DefaultSource::Now => Value::text(&moment_text(field, inputs.now)),
            DefaultSource::User => user_value(inputs.user.name),
            DefaultSource::UserField { at, .. } => inputs.user.field(*at).clone(),
            DefaultSource::Uuid => Value::text(&uuids.next().or_bug(EACH_HAS_ONE).to_string()),
        });
        complete.push(match value {
            Some(value) => value.clone(),
            None if field.audit.is_some() => user_value(inputs.user.name),
            None => make(field, &made, &mut |fault: FieldFault| {
                faults.push(match hidden.contains(&at) {
                    true => FieldFault::of_hidden_field(root),
                    false => FieldFault { pointer: format!("{root}{}", fault.pointer), ..fault },
                });
            }),
        });
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    complete_values(resource, (root, hidden), complete)
}

/// The value of `created_by` and `updated_by`.
pub fn user_value(user: Option<&str>) -> Value {
    user.map_or(Value::Null, Value::text)
}

/// A value that is made, checked as one that was sent.
fn make(field: &Field, made: &Value, add: &mut dyn FnMut(FieldFault)) -> Value {
    let mut faults = FaultCollector::at_root(String::new());
    let value = if made.is_null() {
        if field.required && !field.nullable {
            types::add_required(field, &mut faults);
        }
        None
    } else {
        let text = json::value_to_text(made);
        let sent = json::parse(text.as_bytes(), 1).or_bug("a written value is valid JSON");
        faults.within(&field.name, |faults| types::read_new(field, &sent, faults))
    };
    faults.into_list().into_iter().for_each(add);
    value.unwrap_or(Value::Null)
}

fn moment_text(field: &Field, now: Moment) -> String {
    let mut text = now.to_string();
    if field.storage_class() == StorageClass::Text {
        text.truncate(DATE_CHARS);
    }
    text
}
