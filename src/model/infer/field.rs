//! One column as a field: its type, the rules that fit, and the SQL that exports its values.
//!
//! Every rule is tried with the reader of model files, and left out, with a note, if it refuses the field with it.

use super::sql_text::{RuleCondition, SqlLiteral, parse_literal};
use crate::model::database_tables::{ColumnDefinition, ColumnKind, DeleteAction, TableEngine};
use crate::model::file;
use crate::model::file::shape::toml_string;

/// The limits of a decimal.
const DECIMAL_DIGITS_MAX: i64 = 18;
const DECIMAL_SCALE_MAX: i64 = 9;

/// A field of the model that is made.
#[derive(Debug)]
pub struct InferredField {
    pub name: String,
    /// The keys with their values, as TOML.
    pub keys: Vec<(&'static str, String)>,
    /// The column it comes from.
    pub column: String,
    /// The expression that exports its values.
    pub select: String,
}

impl InferredField {
    pub fn to_toml(&self) -> String {
        let keys: Vec<String> =
            self.keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        format!("{{ {} }}", keys.join(", "))
    }

    pub fn kind(&self) -> &str {
        self.keys.first().map_or("", |(_, kind)| kind.trim_matches('"'))
    }

    pub fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|(known, _)| *known == key)
    }

    /// Whether a model may have this field.
    fn is_valid(&self) -> bool {
        // A reference leads to the one other resource.
        let value = |(key, value): &(&str, String)| match *key {
            "to" => "to = \"item\"".to_owned(),
            key => format!("{key} = {value}"),
        };
        let keys: Vec<String> = self.keys.iter().map(value).collect();
        let text = format!(
            "title = \"T\"\n[resources.item.fields]\nx = {{ type = \"text\" }}\n[resources.child]\nparent = \"item\"\n\
             [resources.child.fields]\ntried = {{ {} }}\n",
            keys.join(", ")
        );
        file::read("a field", &text).is_ok()
    }

    /// Adds a key, if the field may have it.
    pub fn try_key(&mut self, key: &'static str, value: &str) -> bool {
        if self.has(key) {
            return false;
        }
        self.keys.push((key, value.to_owned()));
        let is_valid = self.is_valid();
        if !is_valid {
            self.remove(key);
        }
        is_valid
    }

    /// Whether it can be in a group of fields that are unique together.
    pub fn can_be_in_group(&self) -> bool {
        !["json", "list"].contains(&self.kind())
    }

    pub fn remove(&mut self, key: &str) {
        self.keys.retain(|(known, _)| *known != key);
    }

    /// Adds the rule of a check constraint; false if the field cannot have it.
    pub fn try_rule(&mut self, condition: &RuleCondition) -> bool {
        let number = |number: u64| number.to_string();
        match condition {
            RuleCondition::Present => {
                let is_needed = !self.has("default") && !self.has("required");
                !is_needed || self.try_key("required", "true")
            }
            RuleCondition::OneOf(values) => {
                let values = values.iter().map(|value| self.literal(value));
                let Some(values) = values.collect::<Option<Vec<_>>>() else { return false };
                self.try_key("one_of", &format!("[{}]", values.join(", ")))
            }
            RuleCondition::AtLeast(value) => self.try_literal("min", value),
            RuleCondition::AtMost(value) => self.try_literal("max", value),
            RuleCondition::Above(value) => self.try_next("min", value, 1),
            RuleCondition::Below(value) => self.try_next("max", value, -1),
            RuleCondition::LengthAtLeast(length) => self.try_key("min_length", &number(*length)),
            RuleCondition::LengthAtMost(length) => {
                let known = self.keys.iter().find(|(key, _)| *key == "max_length");
                let known = known.and_then(|(_, value)| value.parse::<u64>().ok());
                if known.is_some_and(|known| known <= *length) {
                    return true;
                }
                self.remove("max_length");
                self.try_key("max_length", &number(*length))
            }
        }
    }

    fn try_literal(&mut self, key: &'static str, value: &SqlLiteral) -> bool {
        match self.literal(value) {
            Some(value) => self.try_key(key, &value),
            None => false,
        }
    }

    /// An exclusive bound is the next value of an integer.
    fn try_next(&mut self, key: &'static str, value: &SqlLiteral, step: i64) -> bool {
        let (SqlLiteral::Number(number) | SqlLiteral::Text(number)) = value else { return false };
        let next = number.parse::<i64>().ok().and_then(|number| number.checked_add(step));
        match next.filter(|_| self.kind() == "integer") {
            Some(next) => self.try_key(key, &next.to_string()),
            None => false,
        }
    }

    /// A constant of SQL as a value of this field.
    fn literal(&self, value: &SqlLiteral) -> Option<String> {
        let number = |text: &str| match text.parse::<i64>() {
            Ok(number) => Some(number.to_string()),
            Err(_) => text.parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| format!("{n:?}")),
        };
        match (self.kind(), value) {
            ("boolean", SqlLiteral::Boolean(boolean)) => Some(boolean.to_string()),
            ("boolean", SqlLiteral::Number(text)) => match &**text {
                "0" => Some("false".to_owned()),
                "1" => Some("true".to_owned()),
                _ => None,
            },
            ("boolean", SqlLiteral::Text(text)) => match &*text.to_ascii_lowercase() {
                "f" | "false" => Some("false".to_owned()),
                "t" | "true" => Some("true".to_owned()),
                _ => None,
            },
            ("integer" | "number", SqlLiteral::Number(text) | SqlLiteral::Text(text)) => {
                number(text)
            }
            ("decimal", SqlLiteral::Number(text) | SqlLiteral::Text(text)) => {
                Some(toml_string(text))
            }
            ("text" | "date" | "timestamp" | "uuid", SqlLiteral::Text(text)) => {
                Some(toml_string(text))
            }
            ("text", SqlLiteral::Number(text)) => Some(toml_string(text)),
            _ => None,
        }
    }
}

/// What does not fit, for the reader.
pub type Notes = Vec<String>;

/// The field of a column that is no key and no reference; `None` if it cannot be one.
pub fn infer(
    (column, name): (&ColumnDefinition, String),
    engine: TableEngine,
    notes: &mut Notes,
) -> Option<InferredField> {
    let mut note = |text: String| notes.push(format!("{}: {text}", shorten(&column.name)));
    if column.is_generated {
        note("the database computes it; it is left out (see computed)".to_owned());
        return None;
    }
    let Some(keys) = kind_keys(&column.kind, &column.declared, &mut note) else {
        note(format!("nouns stores no {}; it is left out", shorten(&column.declared)));
        return None;
    };
    let select = select(column, engine);
    let mut field = InferredField { name, keys, column: column.name.clone(), select };
    match column.default.as_deref() {
        None if column.is_required => {
            field.try_key("required", "true");
        }
        None => {}
        Some(default) if default.eq_ignore_ascii_case("null") => {}
        Some(default) => {
            let value = parse_literal(default).and_then(|value| field.literal(&value));
            let is_kept = value.is_some_and(|value| field.try_key("default", &value));
            if is_kept && !column.is_required {
                note("rows without a value get its default when they are imported".to_owned());
            }
            if !is_kept {
                note(format!(
                    "its default {} cannot be in a model; it is not required",
                    shorten(default)
                ));
            }
        }
    }
    Some(field)
}

/// The field of a column that holds the id of an item.
pub fn reference(
    (column, name): (&ColumnDefinition, String),
    (target, on_delete): (&str, DeleteAction),
    engine: TableEngine,
    notes: &mut Notes,
) -> InferredField {
    let select = id_value(column, engine);
    let mut keys = vec![("type", "\"ref\"".to_owned()), ("to", toml_string(target))];
    let mut note = |action: &str| {
        let name = shorten(&column.name);
        notes.push(format!("{name}: deleting the other row {action}; here that is refused"));
    };
    match on_delete {
        DeleteAction::Refuse => {}
        DeleteAction::Cascade => keys.push(("on_delete", "\"cascade\"".to_owned())),
        DeleteAction::SetNull if !column.is_required => {
            keys.push(("on_delete", "\"clear\"".to_owned()));
        }
        DeleteAction::SetNull => note("sets it to NULL, which it cannot be"),
        DeleteAction::SetDefault => note("sets it to its default"),
    }
    if column.is_required {
        keys.push(("required", "true".to_owned()));
    }
    InferredField { name, keys, column: column.name.clone(), select }
}

/// The keys of a type; `None` for binary data.
fn kind_keys(
    kind: &ColumnKind,
    declared: &str,
    note: &mut dyn FnMut(String),
) -> Option<Vec<(&'static str, String)>> {
    let mut field = InferredField {
        name: String::new(),
        keys: vec![("type", format!("\"{}\"", type_name(kind)?))],
        column: String::new(),
        select: String::new(),
    };
    match kind {
        ColumnKind::Text { chars_max: Some(chars_max), .. } => {
            field.try_key("max_length", &chars_max.to_string());
        }
        ColumnKind::Numeric(digits) => {
            let scale = decimal_scale(*digits, note);
            field.try_key("scale", &scale.to_string());
        }
        ColumnKind::Choice(values) => {
            let values: Vec<String> = values.iter().map(|value| toml_string(value)).collect();
            field.try_key("one_of", &format!("[{}]", values.join(", ")));
        }
        ColumnKind::List(element) if field.kind() == "list" => {
            let keys = kind_keys(element, declared, note)?;
            let element = InferredField {
                keys,
                name: String::new(),
                column: String::new(),
                select: String::new(),
            };
            field.keys.push(("of", element.to_toml()));
        }
        ColumnKind::Other => note(format!("{} is a text in the model", shorten(declared))),
        _ => {}
    }
    Some(field.keys)
}

/// The type of the model; `None` for binary data.
fn type_name(kind: &ColumnKind) -> Option<&'static str> {
    Some(match kind {
        ColumnKind::Text { .. } | ColumnKind::Choice(_) | ColumnKind::Other => "text",
        ColumnKind::Integer => "integer",
        ColumnKind::Real => "number",
        ColumnKind::Numeric(_) => "decimal",
        ColumnKind::Boolean => "boolean",
        ColumnKind::Date => "date",
        ColumnKind::Timestamp { .. } => "timestamp",
        ColumnKind::Uuid => "uuid",
        ColumnKind::Json => "json",
        // An element of a list is never null, and JSON in JSON needs no list.
        ColumnKind::List(element) => match type_name(element)? {
            "list" | "json" | "timestamp" => "json",
            _ => "list",
        },
        ColumnKind::Binary => return None,
    })
}

fn decimal_scale(digits: Option<(i64, i64)>, note: &mut dyn FnMut(String)) -> i64 {
    let limits = format!(
        "here it has at most {DECIMAL_DIGITS_MAX}, and at most {DECIMAL_SCALE_MAX} of them after the point"
    );
    match digits {
        None => note(format!("its digits are not limited; {limits}")),
        Some((precision, scale)) if precision > DECIMAL_DIGITS_MAX || scale > DECIMAL_SCALE_MAX => {
            note(format!("it has {precision} digits, {scale} of them after the point; {limits}"));
        }
        Some(_) => {}
    }
    digits.map_or(DECIMAL_SCALE_MAX, |(_, scale)| scale.clamp(0, DECIMAL_SCALE_MAX))
}

/// A quoted name, in both engines.
pub fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The expression that exports a value as an import reads it.
fn select(column: &ColumnDefinition, engine: TableEngine) -> String {
    let name = quote(&column.name);
    match (engine, &column.kind) {
        (TableEngine::Postgres, ColumnKind::Timestamp { has_zone }) => {
            let zone = if *has_zone { " AT TIME ZONE 'UTC'" } else { "" };
            format!("to_char({name}{zone}, 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")
        }
        (TableEngine::Postgres, ColumnKind::List(_)) => format!("to_json({name})"),
        (TableEngine::Postgres, ColumnKind::Text { is_padded: true, .. }) => {
            format!("rtrim({name})")
        }
        (TableEngine::Postgres, ColumnKind::Boolean) => {
            format!("CASE WHEN {name} THEN 'true' WHEN NOT {name} THEN 'false' END")
        }
        (TableEngine::Postgres, ColumnKind::Numeric(_)) => format!("{name}::numeric"),
        (TableEngine::Postgres, ColumnKind::Other | ColumnKind::Choice(_)) => {
            format!("{name}::text")
        }
        (TableEngine::Sqlite, ColumnKind::Boolean) => {
            format!("CASE {name} WHEN 0 THEN 'false' WHEN 1 THEN 'true' ELSE {name} END")
        }
        // SQLite's functions know milliseconds; six decimals are kept as they are. A text that is no time stays, so
        // that the import names its line.
        (TableEngine::Sqlite, ColumnKind::Timestamp { .. }) => format!(
            "coalesce(CASE WHEN {name} GLOB '*:[0-9][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]*' AND substr({name}, 20, 1) = '.' \
             THEN strftime('%Y-%m-%dT%H:%M:%S', substr({name}, 1, 19) || substr({name}, 27)) || substr({name}, 20, 7) || 'Z' END, \
             strftime('%Y-%m-%dT%H:%M:%fZ', {name}, CASE typeof({name}) WHEN 'integer' THEN 'unixepoch' ELSE '+0 days' END), {name})"
        ),
        (TableEngine::Sqlite, ColumnKind::Date) => format!("coalesce(date({name}), {name})"),
        _ => name,
    }
}

/// The expression that exports an id, also as a reference. A UUID of another version gets version 7, and a time that
/// has passed; so does each reference to it.
pub fn id_value(column: &ColumnDefinition, engine: TableEngine) -> String {
    let name = quote(&column.name);
    if column.kind != ColumnKind::Uuid {
        return name;
    }
    let text = match engine {
        TableEngine::Sqlite => format!("lower({name})"),
        TableEngine::Postgres => format!("{name}::text"),
    };
    format!(
        "CASE substr({text}, 15, 1) WHEN '7' THEN {text} ELSE '00' || substr({text}, 3, 12) || '7' || substr({text}, 16) END"
    )
}

/// A text of the database in one line of a comment.
pub fn one_line(text: &str) -> String {
    let is_break = |c: char| c.is_control() || c == '\u{2028}' || c == '\u{2029}';
    text.chars().map(|c| if is_break(c) { ' ' } else { c }).collect()
}

/// The most characters of a name or a condition in a note.
const SHOWN_CHARS_MAX: usize = 120;

/// A text of the database in a note.
pub fn shorten(text: &str) -> String {
    let line = one_line(text);
    match line.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
