//! Expressions in conditions that differ between the engines.

use crate::model::StorageClass;
use crate::model::expr::Comparison;

/// The SQL type of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperandType {
    Text,
    /// A UUID, where the engine has a type for it.
    Uuid,
    /// An exact number, as an integer in units of this scale.
    Units(u8),
    Real,
    Boolean,
    Moment,
}

type JsonMemberExpression = fn(&str, &[Box<str>], (StorageClass, u8)) -> String;

#[derive(Debug)]
pub struct ExpressionSyntax {
    /// The cast after a placeholder.
    pub cast: fn(OperandType) -> &'static str,
    pub has_uuid: bool,
    pub uuid_text: fn(&str) -> String,
    /// A field inside a JSON column, by its path; NULL if it has another type. The number is the scale of a
    /// decimal. A list is its text, and an object is not expected.
    pub json_member: JsonMemberExpression,
    /// The elements of a list in a JSON column, by its path, as rows.
    pub json_elements: fn(&str, &[Box<str>]) -> String,
    /// The element of such a row; NULL if it has another type. The number is the scale of a decimal.
    pub json_element: fn((StorageClass, u8)) -> String,
    /// The function that finds a text in another one; 0 if it is not found.
    pub position_function: &'static str,
    /// Units of a scale as a double: the nearest double of the units, divided.
    pub as_real: fn(&str, u8) -> String,
    /// Compares units with units of a scale that is larger by this many digits.
    pub compare_scaled: fn(Comparison, &str, &str, u8) -> String,
}

pub static SQLITE: ExpressionSyntax = ExpressionSyntax {
    cast: |_| "",
    has_uuid: false,
    uuid_text: str::to_owned,
    json_member: |column, names, (class, _)| {
        let path = names.join(".");
        let kind = format!("json_type({column}, '$.{path}')");
        let found = format!("json_extract({column}, '$.{path}')");
        sqlite_json_value(&kind, &found, class)
    },
    // Of another value than a list, `json_each` returns the value itself or its members.
    json_elements: |column, names| {
        let path: String = names.iter().map(|name| format!(".{name}")).collect();
        let list = match names.is_empty() {
            true => column.to_owned(),
            false => format!("json_extract({column}, '${path}')"),
        };
        format!("json_each(CASE json_type({column}, '${path}') WHEN 'array' THEN {list} END) AS e")
    },
    json_element: |(class, _)| sqlite_json_value("e.type", "e.value", class),
    position_function: "instr",
    as_real: |units, scale| format!("(CAST({units} AS REAL) / {}.0)", power_of_ten(scale)),
    // Multiplying could overflow 64 bits, so the side with the larger scale is divided, and rounded in the
    // direction that preserves the comparison.
    compare_scaled: |comparison, less, more, digits| {
        let tens = power_of_ten(digits);
        let floor = format!("({more} / {tens} - ({more} % {tens} < 0))");
        let ceiling = format!("({more} / {tens} + ({more} % {tens} > 0))");
        match comparison {
            Comparison::Equal => format!("({less} = {floor} AND {less} = {ceiling})"),
            Comparison::NotEqual => format!("({less} <> {floor} OR {less} <> {ceiling})"),
            Comparison::LessOrEqual | Comparison::Greater => {
                format!("({less} {} {floor})", comparison_operator(comparison))
            }
            Comparison::Less | Comparison::GreaterOrEqual => {
                format!("({less} {} {ceiling})", comparison_operator(comparison))
            }
        }
    },
};

pub static POSTGRES: ExpressionSyntax = ExpressionSyntax {
    cast: |kind| match kind {
        OperandType::Text => "::text COLLATE \"C\"",
        OperandType::Uuid => "::uuid",
        OperandType::Units(_) => "::bigint",
        OperandType::Real => "::double precision",
        OperandType::Boolean => "::boolean",
        OperandType::Moment => "::timestamptz",
    },
    has_uuid: true,
    uuid_text: |uuid| format!("{uuid}::text COLLATE \"C\""),
    json_member: |column, names, (class, scale)| {
        let path = postgres_json_path(names);
        let kind = format!("json_typeof({column} #> '{path}')");
        postgres_json_value(&kind, &format!("({column} #>> '{path}')"), (class, scale))
    },
    json_elements: |column, names| {
        let list = format!("{column} #> '{}'", postgres_json_path(names));
        format!(
            "json_array_elements(CASE WHEN json_typeof({list}) = 'array' THEN {list} END) AS e(value)"
        )
    },
    json_element: |(class, scale)| {
        postgres_json_value("json_typeof(e.value)", "(e.value #>> '{}')", (class, scale))
    },
    position_function: "strpos",
    as_real: |units, scale| {
        format!("({units}::double precision / {}::double precision)", power_of_ten(scale))
    },
    compare_scaled: |comparison, less, more, digits| {
        format!(
            "({less}::numeric * {} {} {more})",
            power_of_ten(digits),
            comparison_operator(comparison)
        )
    },
};

/// A value inside a JSON column, of a kind that SQLite finds out; NULL if it has another type.
fn sqlite_json_value(kind: &str, found: &str, class: StorageClass) -> String {
    match class {
        StorageClass::Text | StorageClass::Moment => {
            format!("(CASE {kind} WHEN 'text' THEN {found} END)")
        }
        StorageClass::Integer => format!("(CASE {kind} WHEN 'integer' THEN {found} END)"),
        // All digits of the scale are written, so without the point they are the units.
        StorageClass::Decimal => {
            format!("(CASE {kind} WHEN 'text' THEN CAST(replace({found}, '.', '') AS INTEGER) END)")
        }
        StorageClass::Real => {
            format!("(CASE WHEN {kind} IN ('integer', 'real') THEN CAST({found} AS REAL) END)")
        }
        StorageClass::Boolean => {
            format!("(CASE {kind} WHEN 'true' THEN 1 WHEN 'false' THEN 0 END)")
        }
        StorageClass::Json => format!("(CASE {kind} WHEN 'array' THEN {found} END)"),
    }
}

/// The same on PostgreSQL.
fn postgres_json_value(kind: &str, found: &str, (class, scale): (StorageClass, u8)) -> String {
    let (word, value) = match class {
        StorageClass::Text => ("string", format!("{found} COLLATE \"C\"")),
        StorageClass::Moment => ("string", format!("{found}::timestamptz")),
        StorageClass::Integer => ("number", format!("{found}::numeric")),
        StorageClass::Decimal => {
            ("string", format!("({found}::numeric * {})", power_of_ten(scale)))
        }
        StorageClass::Real => ("number", format!("{found}::double precision")),
        StorageClass::Boolean => ("boolean", format!("{found}::boolean")),
        StorageClass::Json => ("array", found.to_owned()),
    };
    format!("(CASE WHEN {kind} = '{word}' THEN {value} END)")
}

/// A path as an array literal, in which an unquoted null is NULL.
fn postgres_json_path(names: &[Box<str>]) -> String {
    let names = names.iter().map(|name| if &**name == "null" { "\"null\"" } else { name });
    format!("{{{}}}", names.collect::<Vec<_>>().join(","))
}

fn power_of_ten(digits: u8) -> u64 {
    10u64.saturating_pow(digits.into())
}

pub fn comparison_operator(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::NotEqual => "<>",
        Comparison::Equal
        | Comparison::Less
        | Comparison::LessOrEqual
        | Comparison::Greater
        | Comparison::GreaterOrEqual => comparison.as_str(),
    }
}
