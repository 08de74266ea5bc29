//! A change as one line of a terminal: cut at its width, with the values of some of the changed fields.
//!
//! Pure text. Callers chose most of it, so nothing reaches the terminal that moves its cursor.

use std::io::Write as _;

use crate::json::{self, Json};
use crate::log::is_dangerous;
use crate::value::Change;

/// The changed fields whose values are shown.
const FIELDS_MAX: usize = 3;
const VALUE_COLUMNS_MAX: usize = 24;
/// The room for the changed fields behind a subject that is shown in full.
const FIELDS_COLUMNS: usize = 40;
/// Subjects are padded up to this width, so that what follows them is aligned.
const SUBJECT_COLUMNS_MAX: usize = 96;
/// The width of a UUID; shorter ids are shown in full.
const UUID_COLUMNS: usize = 36;
/// The last digits of a UUID are random; its first are the time.
const SHORT_ID_DIGITS: usize = 6;
/// Deeper values than a model can declare.
const DEPTH_MAX: usize = 128;

const DIM: &str = "2";

/// Writes lines whose columns grow with what they have shown.
#[derive(Debug)]
pub struct ChangeLines {
    has_colours: bool,
    subject_columns: usize,
    actor_columns: usize,
}

impl ChangeLines {
    pub fn new(has_colours: bool) -> Self {
        Self { has_colours, subject_columns: 0, actor_columns: 0 }
    }

    pub fn write(&mut self, out: &mut Vec<u8>, change: &Change, width: usize) {
        let time = change.time.to_string();
        // The month, the day and the time of the day, without their fraction.
        let (day, time) =
            (time.get(5..10).unwrap_or_default(), time.get(11..19).unwrap_or_default());
        let mut line = TerminalLine { out, has_colours: self.has_colours, columns_left: width };
        line.write(DIM, &format!("{:>7}  {day} {time}  ", change.sequence));
        line.write(kind_colour(&change.kind), &format!("{:<7}", change.kind));
        let (subject, actor) = (escape(&change.subject), escape(&change.actor));
        let full = subject.chars().count() + actor.chars().count() + FIELDS_COLUMNS;
        let subject = if full <= line.columns_left { subject } else { shorten_ids(&subject) };
        let subject_columns = subject.chars().count().min(SUBJECT_COLUMNS_MAX);
        self.subject_columns = self.subject_columns.max(subject_columns);
        self.actor_columns = self.actor_columns.max(actor.chars().count());
        line.write("", &format!("  {subject:<width$}", width = self.subject_columns));
        let fields = changed_fields(change);
        // Nothing follows the last column, so that a copied line has no blanks at its end.
        let actor_columns = if fields.is_empty() { 0 } else { self.actor_columns };
        line.write(DIM, &format!("  {actor:<actor_columns$}"));
        if !fields.is_empty() {
            line.write("", &format!("  {fields}"));
        }
        out.push(b'\n');
    }
}

fn kind_colour(kind: &str) -> &'static str {
    match kind {
        "created" => "32",
        "updated" => "33",
        "deleted" => "31",
        _ => "",
    }
}

/// A line that ends at the right edge of the terminal.
struct TerminalLine<'a> {
    out: &'a mut Vec<u8>,
    has_colours: bool,
    columns_left: usize,
}

impl TerminalLine<'_> {
    fn write(&mut self, colour: &str, text: &str) {
        let text = truncate_columns(text, self.columns_left);
        self.columns_left = self.columns_left.saturating_sub(columns(&text));
        if text.is_empty() {
            return;
        }
        let _ = match self.has_colours && !colour.is_empty() {
            true => write!(self.out, "\x1b[{colour}m{text}\x1b[0m"),
            false => write!(self.out, "{text}"),
        };
    }
}

/// `status: placed → paid, total: 350 → 700`; the names alone where the log has no values.
fn changed_fields(change: &Change) -> String {
    let Some(Json::List(names)) = parse(change.changed.as_ref()) else { return String::new() };
    let (before, after) = (parse(change.before.as_ref()), parse(change.after.as_ref()));
    let mut fields = Vec::new();
    for name in names.iter().take(FIELDS_MAX) {
        let Json::Text(name) = name else { continue };
        fields.push(match (&before, &after) {
            (Some(before), Some(after)) => {
                format!("{}: {} → {}", escape(name), member(before, name), member(after, name))
            }
            _ => escape(name),
        });
    }
    if names.len() > FIELDS_MAX {
        fields.push(format!("+{}", names.len() - FIELDS_MAX));
    }
    fields.join(", ")
}

fn parse(text: Option<&String>) -> Option<Json<'_>> {
    json::parse(text?.as_bytes(), DEPTH_MAX).ok()
}

fn member(item: &Json<'_>, name: &str) -> String {
    let Json::Object(members) = item else { return String::new() };
    let found = members.iter().find(|(known, _)| known == name);
    let text = match found.map(|(_, value)| value) {
        None => "null".to_owned(),
        Some(Json::Text(text)) => escape(text),
        Some(value) => escape(&json::to_text(value)),
    };
    truncate_columns(&text, VALUE_COLUMNS_MAX)
}

/// `/customers/…34cae6/orders/…77ab01`.
fn shorten_ids(subject: &str) -> String {
    let shorten = |segment: &str| match segment.len() == UUID_COLUMNS {
        true => {
            format!("…{}", segment.get(UUID_COLUMNS - SHORT_ID_DIGITS..).unwrap_or_default())
        }
        false => segment.to_owned(),
    };
    subject.split('/').map(shorten).collect::<Vec<_>>().join("/")
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match is_dangerous(c) {
            true => escaped.extend(c.escape_unicode()),
            false => escaped.push(c),
        }
    }
    escaped
}

/// The columns that a text takes at most: characters of East Asian scripts and pictures take two.
fn columns(text: &str) -> usize {
    text.chars().map(char_columns).sum()
}

fn char_columns(c: char) -> usize {
    if c < '\u{1100}' || ('\u{2000}'..'\u{2600}').contains(&c) { 1 } else { 2 }
}

/// The text, or its beginning and an ellipsis.
fn truncate_columns(text: &str, columns_max: usize) -> String {
    if columns(text) <= columns_max {
        return text.to_owned();
    }
    let mut left = columns_max.saturating_sub(1);
    let fits = |c: &char| {
        let fitting = left.checked_sub(char_columns(*c));
        left = fitting.unwrap_or(0);
        fitting.is_some()
    };
    let mut kept: String = text.chars().take_while(fits).collect();
    if columns_max > 0 {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::value::Moment;

    fn change(kind: &str, subject: &str) -> Change {
        Change {
            sequence: 4711,
            time: Moment::parse("2026-11-17T03:20:01.000123Z").unwrap(),
            resource: "order".to_owned(),
            id: "x".to_owned(),
            subject: subject.to_owned(),
            kind: kind.to_owned(),
            actor: "ann".to_owned(),
            request_id: "r".to_owned(),
            changed: None,
            before: None,
            after: None,
        }
    }

    fn update(changed: &str, before: &str, after: &str) -> Change {
        let order = "/customers/01a1e4be-ac5e-7e9f-95b4-b71f9234cae6/orders/01a1e4be-ac5e-7e9f-95b4-b71f92770001";
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (changed, before, after) = (some(changed), some(before), some(after));
        Change { changed, before, after, ..change("updated", order) }
    }

    fn some_changes() -> [Change; 4] {
        let values = update(
            r#"["status","total"]"#,
            r#"{"status":"placed","total":350,"note":null}"#,
            r#"{"status":"paid","total":700,"note":null}"#,
        );
        [
            change("created", "/customers/7"),
            values,
            update(r#"["word"]"#, "", ""),
            change("deleted", "/customers/7"),
        ]
    }

    fn check(changes: &[Change], (width, has_colours): (usize, bool), expected: &Expect) {
        let (mut out, mut lines) = (Vec::new(), ChangeLines::new(has_colours));
        changes.iter().for_each(|change| lines.write(&mut out, change, width));
        let text = String::from_utf8(out).unwrap().replace('\x1b', "␛");
        // A mark at the left edge keeps the indentation.
        let lines: String = text.lines().map(|line| format!("|{line}\n")).collect();
        expected.assert_eq(&lines);
    }

    #[test]
    fn change_line_is_cut_at_the_width_of_the_terminal() {
        check(
            &some_changes(),
            (200, false),
            &expect![[r#"
            |   4711  11-17 03:20:01  created  /customers/7  ann
            |   4711  11-17 03:20:01  updated  /customers/01a1e4be-ac5e-7e9f-95b4-b71f9234cae6/orders/01a1e4be-ac5e-7e9f-95b4-b71f92770001  ann  status: placed → paid, total: 350 → 700
            |   4711  11-17 03:20:01  updated  /customers/01a1e4be-ac5e-7e9f-95b4-b71f9234cae6/orders/01a1e4be-ac5e-7e9f-95b4-b71f92770001  ann  word
            |   4711  11-17 03:20:01  deleted  /customers/7                                                                                 ann
        "#]],
        );
        check(
            &some_changes(),
            (80, false),
            &expect![[r#"
            |   4711  11-17 03:20:01  created  /customers/7  ann
            |   4711  11-17 03:20:01  updated  /customers/…34cae6/orders/…770001  ann  statu…
            |   4711  11-17 03:20:01  updated  /customers/…34cae6/orders/…770001  ann  word
            |   4711  11-17 03:20:01  deleted  /customers/7                       ann
        "#]],
        );
        check(
            &some_changes()[1..2],
            (30, false),
            &expect![[r#"
            |   4711  11-17 03:20:01  upda…
        "#]],
        );
        for width in 0..220 {
            for change in some_changes() {
                let mut out = Vec::new();
                ChangeLines::new(false).write(&mut out, &change, width);
                let line = String::from_utf8(out).unwrap();
                assert!(columns(line.trim_end_matches('\n')) <= width, "{width}: {line:?}");
            }
        }
    }

    #[test]
    fn change_line_colours_the_kind() {
        check(
            &some_changes(),
            (100, true),
            &expect![[r#"
            |␛[2m   4711  11-17 03:20:01  ␛[0m␛[32mcreated␛[0m  /customers/7␛[2m  ann␛[0m
            |␛[2m   4711  11-17 03:20:01  ␛[0m␛[33mupdated␛[0m  /customers/…34cae6/orders/…770001␛[2m  ann␛[0m  status: placed → paid, to…
            |␛[2m   4711  11-17 03:20:01  ␛[0m␛[33mupdated␛[0m  /customers/…34cae6/orders/…770001␛[2m  ann␛[0m  word
            |␛[2m   4711  11-17 03:20:01  ␛[0m␛[31mdeleted␛[0m  /customers/7                     ␛[2m  ann␛[0m
        "#]],
        );
    }

    #[test]
    fn change_line_escapes_what_a_terminal_would_obey() {
        let wild = update(
            r#"["a","b","c","d","e"]"#,
            r#"{"a":"\u001b[2J\r","b":"漢字漢字漢字漢字漢字漢字漢字","c":[1,{"x":"\u202e"}]}"#,
            r#"{"a":"\u009b1m","b":true,"c":"0123456789012345678901234"}"#,
        );
        check(
            &[Change { actor: "ann\u{1b}c".to_owned(), ..wild }],
            (240, false),
            &expect![[r#"
                |   4711  11-17 03:20:01  updated  /customers/01a1e4be-ac5e-7e9f-95b4-b71f9234cae6/orders/01a1e4be-ac5e-7e9f-95b4-b71f92770001  ann\u{1b}c  a: \u{1b}[2J\u{d} → \u{9b}1m, b: 漢字漢字漢字漢字漢字漢… → true, c: [1,{"x":"\u{202e}"}] → 012345678…
            "#]],
        );
    }
}
