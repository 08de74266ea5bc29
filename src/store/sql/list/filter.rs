//! The filters of a list as conditions.
//!
//! What they mean is said in `intent`; here it is said to an engine, in a way that its indexes understand.
//! The one surprising thing: an index holds the beginning of a long text, so a condition may come twice,
//! for what the index has and for the whole.

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

    /// When an item was created, its id tells too, where it begins with the time; and the id has an index.
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

/// Whether a text is not told from all others by the part that the index holds.
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

/// A text of which the index holds only a part.
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
