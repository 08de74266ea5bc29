//! Conversion of a stored item to a changed model, and its validation by the new rules: pure, one row at a time.
//!
//! Values of fields that did not change are copied: stored values stay valid.

use super::diff::{MigrationEffect, ModelChange};
use super::expr::{evaluate, fails};
use super::field::Field;
use super::resource::{ItemCheck, Resource};
use super::{type_conversion, types};
use crate::json;
use crate::problem::{FaultCode, FaultCollector, FieldFault};
use crate::value::Value;

/// The conversion of the items of one resource.
#[derive(Debug)]
pub struct RowConversion<'m> {
    fields: Vec<FieldConversion<'m>>,
    /// The checks of the new resource that items may break now, each with its index.
    checks: Vec<(usize, &'m ItemCheck)>,
}

/// The part of the new resource that an item does not fit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnfitPart {
    /// By its name.
    Field(String),
    /// By its index.
    Check(usize),
}

/// Why an item cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversionFault {
    pub part: UnfitPart,
    pub detail: String,
}

impl ConversionFault {
    fn new(fault: FieldFault) -> Self {
        let name = fault.pointer.split('/').nth(1).unwrap_or_default().to_owned();
        Self { part: UnfitPart::Field(name), detail: fault.detail }
    }
}

/// The conversion of one field.
#[derive(Debug)]
struct FieldConversion<'m> {
    /// The field of the old resource, and its index.
    from: Option<(usize, &'m Field)>,
    to: &'m Field,
    is_changed: bool,
    is_written: bool,
}

impl<'m> RowConversion<'m> {
    /// `changes` are those of this resource.
    pub fn new(before: &'m Resource, after: &'m Resource, changes: &[&ModelChange]) -> Self {
        let effects = |at: usize| {
            let own = changes.iter().filter(move |change| change.field == Some(at));
            let is_of_values = |effect: &MigrationEffect| {
                !matches!(effect, MigrationEffect::Rename | MigrationEffect::Derive)
            };
            own.map(|change| change.effect).filter(is_of_values)
        };
        let is_rewrite = |effect| {
            use MigrationEffect::{Overwrite, Remove, Rewrite};
            matches!(effect, Rewrite | Overwrite | Remove)
        };
        let mut fields: Vec<_> = after
            .fields
            .iter()
            .enumerate()
            .map(|(at, to)| FieldConversion {
                from: to.find_former(&before.fields),
                to,
                is_changed: effects(at).next().is_some(),
                // A new field needs its column, also where no value is written.
                is_written: effects(at).any(is_rewrite)
                    || (to.find_former(&before.fields).is_none() && effects(at).next().is_some()),
            })
            .collect();
        // A computed value may depend on any field that is written.
        if fields.iter().any(|field| field.is_written) {
            for field in fields.iter_mut().filter(|field| field.to.computed.is_some()) {
                field.is_written = true;
            }
        }
        let is_affected = |index: usize, check: &ItemCheck| {
            let mut read = check.that.field_paths().into_iter();
            changes.iter().any(|change| change.effect == MigrationEffect::CheckItem(index))
                || read.any(|(at, _)| fields.get(at).is_some_and(FieldConversion::is_affected))
        };
        let checks = after.checks.iter().enumerate();
        let checks = checks.filter(|(index, check)| is_affected(*index, check)).collect();
        Self { fields, checks }
    }

    /// Whether any row has to be read.
    pub fn is_needed(&self) -> bool {
        !self.checks.is_empty() || self.fields.iter().any(FieldConversion::is_affected)
    }

    /// The fields of the new resource whose values are written.
    pub fn written(&self) -> impl Iterator<Item = usize> {
        self.fields.iter().enumerate().filter_map(|(at, field)| field.is_written.then_some(at))
    }

    /// The values of the new resource, as they are stored, or the faults of this item.
    pub fn convert(&self, stored: &[Value]) -> Result<Vec<Value>, Vec<ConversionFault>> {
        let mut faults = FaultCollector::at_root(String::new());
        let mut values: Vec<Value> =
            self.fields.iter().map(|field| field.convert(stored, &mut faults)).collect();
        let faults = faults.into_list();
        if !faults.is_empty() {
            return Err(faults.into_iter().map(ConversionFault::new).collect());
        }
        let mut overflows = Vec::new();
        let mut computed = Vec::new();
        for (at, field) in self.fields.iter().enumerate() {
            let Some(expression) = field.to.computed.as_ref().filter(|_| field.is_written) else {
                continue;
            };
            match evaluate(expression, &values) {
                Ok(value) => computed.push((at, value)),
                Err(overflow) => overflows.push(ConversionFault {
                    part: UnfitPart::Field(field.to.name.to_string()),
                    detail: overflow.to_string(),
                }),
            }
        }
        if !overflows.is_empty() {
            return Err(overflows);
        }
        for (at, value) in computed {
            if let Some(slot) = values.get_mut(at) {
                *slot = value;
            }
        }
        let broken = self.checks.iter().filter(|(_, check)| fails(&check.that, &values));
        let faults: Vec<_> = broken
            .map(|(index, check)| ConversionFault {
                part: UnfitPart::Check(*index),
                detail: check.message.to_string(),
            })
            .collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(values.into_iter().map(types::canonicalize).collect())
    }
}

impl FieldConversion<'_> {
    /// Whether its values may be other ones, or have to satisfy other rules.
    fn is_affected(&self) -> bool {
        self.is_changed || self.is_written
    }

    fn convert(&self, stored: &[Value], faults: &mut FaultCollector) -> Value {
        let to = self.to;
        let value = self.from.and_then(|(at, from)| Some((from, stored.get(at)?)));
        match value {
            _ if to.computed.is_some() && self.is_written => Value::Null,
            Some((_, value)) if !self.is_changed => {
                let parsed = types::try_parse_canonical(to, value.clone());
                parsed.unwrap_or_else(|_| self.refuse(value, faults))
            }
            Some((from, value)) if !value.is_null() => {
                let converted = faults
                    .within(&to.name, |faults| type_conversion::convert(from, to, value, faults));
                converted.unwrap_or(Value::Null)
            }
            _ => match (&to.fill, &to.default) {
                (Some(fill), _)
                    if type_conversion::needs_fill(self.from.map(|(_, from)| from), to) =>
                {
                    fill.clone()
                }
                // Items that are there get the default of a new field, and keep none of a known one.
                // The default of a state is its initial state, without which no item can be.
                (_, Some(default)) if self.from.is_none() || to.rules.states.is_some() => {
                    default.clone()
                }
                _ => {
                    if to.required && !to.nullable {
                        types::add_required(to, faults);
                    }
                    Value::Null
                }
            },
        }
    }

    fn refuse(&self, value: &Value, faults: &mut FaultCollector) -> Value {
        let detail = type_conversion::expected(self.to, &json::value_to_text(value));
        faults.add_at(&self.to.name, FaultCode::Format, detail);
        Value::Null
    }
}

#[cfg(test)]
mod tests;
