//! Random values for the fields of a model, valid and invalid ones, as JSON text.
//!
//! They are chosen where backends may differ: at the ends of ranges, in number formats, in letters that
//! a locale would sort or fold, and in missing values.
//! There are few of each, so that unique values often conflict.

use toml::Table;
use toml::Value::{Array, String as Text};

use super::world::KnownWorld;
use crate::durability::seeded_random::SeededRandom;

const TEXTS: &[&str] = &[
    r#""Ann""#,
    r#""ann""#,
    r#""ANN""#,
    r#""Ånn""#,
    r#""Z""#,
    r#""z""#,
    r#""ä""#,
    r#""_""#,
    r#""""#,
    r#"" ""#,
    r#""日本""#,
    r#""😀""#,
    r#""A\u0308""#,
    r#""ß""#,
    r#""null""#,
    r#""0""#,
    r#""O'Neil""#,
    r#""\"q\"""#,
    r#""\\""#,
    r#""%_""#,
    r#""a\nb\t""#,
    r#""\u0001\u007f""#,
    r#""$1 ?1""#,
    r#""{a,b}""#,
    r#""\ud83d\ude00""#,
];
const WRONG_TEXTS: &[&str] =
    &[r#""a\u0000b""#, "7", "true", "[]", "{}", r#""more than twelve characters""#];
const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "-0",
    "2",
    "1.0",
    "1e3",
    "9007199254740991",
    "-9007199254740991",
    "-3",
    "1E+2",
    "100",
];
const WRONG_INTEGERS: &[&str] = &["9007199254740992", "1.5", "\"1\"", "true", "1e400", "-1e-1"];
const NUMBERS: &[&str] = &[
    "0",
    "-0.0",
    "0.1",
    "1e300",
    "-1e300",
    "5e-324",
    "1.7976931348623157e308",
    "1e21",
    "123456789.125",
    "1.0",
    "-2.5e-10",
    "100",
    "1e2",
    "3",
];
const WRONG_NUMBERS: &[&str] = &["1e400", "\"1\"", "false", "0.12345678901234567891", "[1]"];
const DECIMALS: &[&str] = &[
    r#""1.50""#,
    "1.5",
    r#""0.00""#,
    r#""-0.00""#,
    "0",
    "12",
    r#""99999999999999.99""#,
    r#""-99999999999999.99""#,
    r#""1.500""#,
    "1e1",
    r#""-0.01""#,
    r#""9.99""#,
    "10",
];
const WRONG_DECIMALS: &[&str] =
    &[r#""1.50505""#, r#""abc""#, "1e20", "true", r#""""#, r#""12345678901234567890""#];
const BOOLEANS: &[&str] = &["true", "false"];
const WRONG_BOOLEANS: &[&str] = &["\"true\"", "1", "[]"];
const DATES: &[&str] = &[
    r#""2026-11-15""#,
    r#""0001-01-02""#,
    r#""9999-12-31""#,
    r#""2024-02-29""#,
    r#""1969-12-31""#,
    r#""1582-10-10""#,
    r#""0001-01-01""#,
    r#""2000-01-01""#,
];
const WRONG_DATES: &[&str] =
    &[r#""2023-02-29""#, r#""0000-01-01""#, r#""2026-1-1""#, "20261115", r#""infinity""#];
const TIMESTAMPS: &[&str] = &[
    r#""2026-11-15T02:28:14Z""#,
    r#""2026-11-15T02:28:14.123456+05:30""#,
    r#""0001-01-01T00:00:00Z""#,
    r#""9999-12-31T23:59:59.999999Z""#,
    r#""1969-12-31T23:59:59.9Z""#,
    r#""2026-11-15T02:28:14.000000Z""#,
    r#""1883-11-18T12:03:58-04:56""#,
    r#""2000-01-01T00:00:00.000001Z""#,
    r#""2026-11-15t02:28:14.5z""#,
];
const WRONG_TIMESTAMPS: &[&str] = &[
    r#""2026-11-15""#,
    r#""2026-11-15T25:00:00Z""#,
    r#""2026-11-15T02:28:14.1234567Z""#,
    r#""2016-12-31T23:59:60Z""#,
    r#""0001-01-01T00:00:00+01:00""#,
    "1",
    r#""now""#,
];
const UUIDS: &[&str] = &[
    r#""01a1dd40-1167-7192-9063-0df3ed2ec1a6""#,
    r#""01A1DD40-1167-7192-9063-0DF3ED2EC1A6""#,
    r#""00000000-0000-0000-0000-000000000000""#,
    r#""ffffffff-ffff-ffff-ffff-ffffffffffff""#,
    r#""12345678-1234-4234-8234-123456789abc""#,
];
const WRONG_UUIDS: &[&str] = &[
    r#""abc""#,
    "1",
    r#""{01a1dd40-1167-7192-9063-0df3ed2ec1a6}""#,
    r#""01a1dd40116771929063-0df3ed2ec1a6""#,
];
/// None that could be the id of an item on one side alone.
const WRONG_REFS: &[&str] = &[r#""abc""#, "0", "-1", "999999", "true", "1e400", r#""""#];
const MAILS: &[&str] =
    &[r#""ann@example.com""#, r#""Ann@Example.com""#, r#""o'neil+x@example.org""#];
const WRONG_MAILS: &[&str] = &[r#""ann""#, r#""a@b@c""#, "1", r#""ann @example.com""#];
const URLS: &[&str] =
    &[r#""https://example.com/a?b=c#d""#, r#""http://[::1]:80/""#, r#""HTTPS://EXAMPLE.com""#];
const WRONG_URLS: &[&str] = &[r#""example.com""#, r#""ftp://example.com""#, "1", r#""https://""#];
const JSONS: &[&str] = &[
    "null",
    "true",
    "0",
    "-0",
    "1.0",
    "1e2",
    "0.1",
    r#""text""#,
    r#""\u0000""#,
    "[]",
    "{}",
    r#"{"b":1,"a":[null,{"":2}]}"#,
    r#"[1.50, 1e300 ,-0.0]"#,
    r#"{"A":1,"a":2,"ä":"\u00e4"}"#,
    r#""\u2028\"\\\/""#,
    "[[[[[]]]]]",
    "123456789012345678",
];
const WRONG_JSONS: &[&str] = &["1e400", "0.12345678901234567891", r#"{"a":1,"a":2}"#];
const CODES: &[&str] =
    &[r#""AB""#, r#""CD""#, r#""XY""#, r#""ZZ""#, r#""AA""#, r#""BB""#, r#""QQ""#];

/// A value for a field of the model: about one of `wrong_every` is wrong.
pub fn value(
    field: &Table,
    chance: &mut SeededRandom,
    world: &KnownWorld,
    wrong_every: usize,
) -> String {
    let is_wrong = chance.below(wrong_every) == 0;
    let null_every = if field.contains_key("nullable") { 8 } else { 3 * wrong_every };
    if chance.below(null_every) == 0 {
        return "null".to_owned();
    }
    let (right, wrong) = match field.get("type").and_then(toml::Value::as_str).unwrap_or("object") {
        "text" if field.contains_key("pattern") => (CODES, WRONG_TEXTS),
        "text" if !is_wrong && field.contains_key("one_of") => return one_of(field, chance),
        "text" => (TEXTS, WRONG_TEXTS),
        "integer" => (INTEGERS, WRONG_INTEGERS),
        "number" => (NUMBERS, WRONG_NUMBERS),
        "decimal" => (DECIMALS, WRONG_DECIMALS),
        "boolean" => (BOOLEANS, WRONG_BOOLEANS),
        "date" => (DATES, WRONG_DATES),
        "timestamp" => (TIMESTAMPS, WRONG_TIMESTAMPS),
        "uuid" => (UUIDS, WRONG_UUIDS),
        "email" => (MAILS, WRONG_MAILS),
        "url" => (URLS, WRONG_URLS),
        "json" => (JSONS, WRONG_JSONS),
        "state" => return state(field, chance, is_wrong),
        "ref" if is_wrong => (WRONG_REFS, WRONG_REFS),
        "ref" => return world.some_id(field["to"].as_str().unwrap(), chance),
        "list" => return list(field["of"].as_table().unwrap(), chance, world, wrong_every),
        "object" => {
            let fields = field["fields"].as_table().unwrap();
            return draft(fields, chance, world, wrong_every * 2);
        }
        other => panic!("no values for {other}"),
    };
    let of = if is_wrong { wrong } else { right };
    (*chance.one_of(of).unwrap()).to_owned()
}

/// An object with most of its fields.
pub fn draft(
    fields: &Table,
    chance: &mut SeededRandom,
    world: &KnownWorld,
    wrong_every: usize,
) -> String {
    let mut members = Vec::new();
    for (name, field) in fields {
        let field = field.as_table().unwrap();
        let is_kept = match (field.contains_key("required"), field.contains_key("computed")) {
            (true, _) => chance.below(3 * wrong_every) > 0,
            // Read-only: refused on create.
            (_, true) => chance.below(3 * wrong_every) == 0,
            _ => chance.below(3) > 0,
        };
        if is_kept {
            members.push(format!("\"{name}\":{}", value(field, chance, world, wrong_every)));
        }
    }
    if chance.below(3 * wrong_every) == 0 {
        members.push(r#""nmae":1"#.to_owned());
    }
    format!("{{{}}}", members.join(","))
}

fn list(of: &Table, chance: &mut SeededRandom, world: &KnownWorld, wrong_every: usize) -> String {
    let count = chance.below(4) + chance.below(2) * chance.below(2);
    let mut of = of.clone();
    if !of.contains_key("type") {
        of.insert("type".to_owned(), Text("object".to_owned()));
    }
    let items: Vec<_> = (0..count).map(|_| value(&of, chance, world, wrong_every * 3)).collect();
    format!("[{}]", items.join(","))
}

fn one_of(field: &Table, chance: &mut SeededRandom) -> String {
    let Array(words) = &field["one_of"] else { panic!("one_of is a list") };
    format!("{:?}", chance.one_of(words).unwrap().as_str().unwrap())
}

fn state(field: &Table, chance: &mut SeededRandom, is_wrong: bool) -> String {
    let states: Vec<_> = field["next"].as_table().unwrap().keys().collect();
    match chance.below(3) {
        _ if is_wrong => r#""none""#.to_owned(),
        // A permitted state of a new item.
        0 => format!("{:?}", field["initial"].as_str().unwrap()),
        _ => format!("{:?}", chance.one_of(&states).unwrap()),
    }
}
