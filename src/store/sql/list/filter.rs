//! The filters of a list as SQL conditions.
//!
//! `intent` defines what they mean; this module writes them in a form that the indexes can serve.
//! The one surprising thing: an index holds a prefix of a long text, so a condition may appear twice, for the
//! prefix and for the whole text.

use super::super::condition::sign;
use super::{Listing, Operand, Writer, id_kind};
use crate::intent::{Aspect, Term as Filter, Test, start};
use crate::model::SORTED_CHARS_MAX;
use crate::model::expr::Comparison;
use crate::store::driver::Bind;
use crate::value::{Id, IdKind, Value};

impl Listing<'_> {
    pub(super) fn filter<'s>(&'s self, writer: &mut Writer<'s>, filter: &'s Filter) -> String {
        let operand = self.operand(&filter.aspect);
        let Operand { text: whole, start: begin, .. } = &operand;
        match &filter.test {
            Test::Exists(true) => format!("{begin} IS NOT NULL"),
            Test::Exists(false) => format!("{begin} IS NULL"),
            Test::Contains(part) => {
                let part = writer.text(part);
                format!("{}({whole}, {part}) > 0", self.dialect.words.position)
            }
            Test::Prefix(from, to) if operand.is_cut && is_long(from) => {
                let first = writer.text(start(from));
                let range = range(writer, whole, (from, to.as_deref()));
                format!("({begin} = {first} AND {range})")
            }
            Test::Prefix(from, to) => format!("({})", range(writer, begin, (from, to.as_deref()))),
            Test::Compare(comparison, value) => {
                let meant = compare(writer, &operand, *comparison, value);
                match self.by_id(writer, &filter.aspect, *comparison, value) {
                    Some(range) => format!("({range} AND {meant})"),
                    None => meant,
                }
            }
            Test::In(values) => {
                let is_long = |value: &Value| matches!(value, Value::Text(text) if is_long(text));
                let all = among(writer, &operand, values, |text| text);
                match operand.is_cut && values.iter().any(is_long) {
                    true => {
                        let begins = among(writer, &operand, values, start);
                        format!("({begin} IN ({begins}) AND {whole} IN ({all}))")
                    }
                    false => format!("{begin} IN ({all})"),
                }
            }
        }
    }

    /// A condition on `created_at` as a range of UUIDv7 ids, which begin with the time: the id has an index.
    fn by_id(
        &self,
        writer: &mut Writer<'_>,
        aspect: &Aspect,
        comparison: Comparison,
        value: &Value,
    ) -> Option<String> {
        let Value::Moment(moment) = value else { return None };
        if *aspect != Aspect::CreatedAt || self.resource.id != IdKind::Uuid {
            return None;
        }
        let (first, last) = Id::all_at(*moment);
        let mut at = |sign: &str, id| {
            let id = writer.bind(Bind::Id(id), id_kind(self.resource));
            format!("t0.\"id\" {sign} {id}")
        };
        match comparison {
            Comparison::Equal => Some(format!("{} AND {}", at(">=", first), at("<=", last))),
            Comparison::Greater | Comparison::GreaterOrEqual => Some(at(">=", first)),
            Comparison::Less | Comparison::LessOrEqual => Some(at("<=", last)),
            Comparison::NotEqual => None,
        }
    }
}

/// Whether the indexed prefix of a text may be the same as that of another text.
fn is_long(text: &str) -> bool {
    text.chars().nth(SORTED_CHARS_MAX - 1).is_some()
}

fn compare<'s>(
    writer: &mut Writer<'s>,
    operand: &Operand,
    comparison: Comparison,
    value: &'s Value,
) -> String {
    let Operand { text: whole, start: begin, .. } = operand;
    let sign = sign(comparison);
    let Some(long) = long(operand, value) else {
        return format!("{begin} {sign} {}", writer.value(operand, value));
    };
    let bound = writer.value(operand, value);
    let coarse = match comparison {
        Comparison::NotEqual => return format!("{whole} {sign} {bound}"),
        Comparison::Equal => "=",
        Comparison::Less | Comparison::LessOrEqual => "<=",
        Comparison::Greater | Comparison::GreaterOrEqual => ">=",
    };
    format!("({begin} {coarse} {} AND {whole} {sign} {bound})", writer.text(start(long)))
}

/// The text, if the index holds only a prefix of it.
fn long<'v>(operand: &Operand, value: &'v Value) -> Option<&'v str> {
    match value {
        Value::Text(text) if operand.is_cut && is_long(text) => Some(text),
        _ => None,
    }
}

fn among<'s>(
    writer: &mut Writer<'s>,
    operand: &Operand,
    values: &'s [Value],
    part: fn(&str) -> &str,
) -> String {
    let all = values.iter().map(|value| match value {
        Value::Text(text) if operand.is_cut => writer.text(part(text)),
        value => writer.value(operand, value),
    });
    all.collect::<Vec<_>>().join(", ")
}

fn range<'s>(
    writer: &mut Writer<'s>,
    column: &str,
    (from, to): (&'s str, Option<&'s str>),
) -> String {
    let from = format!("{column} >= {}", writer.text(from));
    match to {
        Some(to) => format!("{from} AND {column} < {}", writer.text(to)),
        None => from,
    }
}
