//! Expressions in conditions that differ between the engines.

use super::condition::sign;
use crate::model::Class;
use crate::model::expr::Comparison;

/// The SQL type of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// A UUID, where the engine has a type for it.
    Uuid,
    /// An exact number, as an integer in units of this scale.
    Units(u8),
    Real,
    Boolean,
    Moment,
}

type MemberText = fn(&str, &[Box<str>], (Class, u8)) -> String;

#[derive(Debug)]
pub(super) struct Words {
    /// The cast after a placeholder.
    pub(super) cast: fn(Kind) -> &'static str,
    pub(super) has_uuid: bool,
    pub(super) uuid_text: fn(&str) -> String,
    /// A field inside a JSON column, by its path; NULL if it has another type. The number is the scale of a
    /// decimal.
    pub(super) member: MemberText,
    /// The function that finds a text in another one; 0 if it is not found.
    pub(super) position: &'static str,
    /// Units of a scale as a double: the nearest double of the units, divided.
    pub(super) real: fn(&str, u8) -> String,
    /// Compares units with units of a scale that is larger by this many digits.
    pub(super) scaled: fn(Comparison, &str, &str, u8) -> String,
}

pub(super) static SQLITE: Words = Words {
    cast: |_| "",
    has_uuid: false,
    uuid_text: str::to_owned,
    member: |column, names, (class, _)| {
        let path = names.join(".");
        let kind = format!("json_type({column}, '$.{path}')");
        let found = format!("json_extract({column}, '$.{path}')");
        match class {
            Class::Text | Class::Moment => format!("(CASE {kind} WHEN 'text' THEN {found} END)"),
            Class::Integer => format!("(CASE {kind} WHEN 'integer' THEN {found} END)"),
            // All digits of the scale are written, so without the point they are the units.
            Class::Decimal => format!(
                "(CASE {kind} WHEN 'text' THEN CAST(replace({found}, '.', '') AS INTEGER) END)"
            ),
            Class::Real => {
                format!("(CASE WHEN {kind} IN ('integer', 'real') THEN CAST({found} AS REAL) END)")
            }
            Class::Boolean => format!("(CASE {kind} WHEN 'true' THEN 1 WHEN 'false' THEN 0 END)"),
            Class::Json => "NULL".to_owned(),
        }
    },
    position: "instr",
    real: |units, scale| format!("(CAST({units} AS REAL) / {}.0)", tens(scale)),
    // Multiplying could overflow 64 bits, so the side with the larger scale is divided, and rounded in the
    // direction that preserves the comparison.
    scaled: |comparison, less, more, digits| {
        let tens = tens(digits);
        let floor = format!("({more} / {tens} - ({more} % {tens} < 0))");
        let ceiling = format!("({more} / {tens} + ({more} % {tens} > 0))");
        match comparison {
            Comparison::Equal => format!("({less} = {floor} AND {less} = {ceiling})"),
            Comparison::NotEqual => format!("({less} <> {floor} OR {less} <> {ceiling})"),
            Comparison::LessOrEqual | Comparison::Greater => {
                format!("({less} {} {floor})", sign(comparison))
            }
            Comparison::Less | Comparison::GreaterOrEqual => {
                format!("({less} {} {ceiling})", sign(comparison))
            }
        }
    },
};

pub(super) static POSTGRES: Words = Words {
    cast: |kind| match kind {
        Kind::Text => "::text COLLATE \"C\"",
        Kind::Uuid => "::uuid",
        Kind::Units(_) => "::bigint",
        Kind::Real => "::double precision",
        Kind::Boolean => "::boolean",
        Kind::Moment => "::timestamptz",
    },
    has_uuid: true,
    uuid_text: |uuid| format!("{uuid}::text COLLATE \"C\""),
    member: |column, names, (class, scale)| {
        // In an array literal, an unquoted null is NULL.
        let names = names.iter().map(|name| if &**name == "null" { "\"null\"" } else { name });
        let path = names.collect::<Vec<_>>().join(",");
        let found = format!("({column} #>> '{{{path}}}')");
        let (word, value) = match class {
            Class::Text => ("string", format!("{found} COLLATE \"C\"")),
            Class::Moment => ("string", format!("{found}::timestamptz")),
            Class::Integer => ("number", format!("{found}::numeric")),
            Class::Decimal => ("string", format!("({found}::numeric * {})", tens(scale))),
            Class::Real => ("number", format!("{found}::double precision")),
            Class::Boolean => ("boolean", format!("{found}::boolean")),
            Class::Json => ("null", "NULL".to_owned()),
        };
        format!("(CASE WHEN json_typeof({column} #> '{{{path}}}') = '{word}' THEN {value} END)")
    },
    position: "strpos",
    real: |units, scale| format!("({units}::double precision / {}::double precision)", tens(scale)),
    scaled: |comparison, less, more, digits| {
        format!("({less}::numeric * {} {} {more})", tens(digits), sign(comparison))
    },
};

fn tens(digits: u8) -> u64 {
    10u64.saturating_pow(digits.into())
}
