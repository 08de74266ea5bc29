//! Tests of cursors: encoding and decoding, and cursors that the server did not make.
use proptest::prelude::*;

use super::*;
use crate::model::{self, Model};

fn model() -> Model {
    let text = r#"
title = "Cursors"
[resources.thing]
id = "integer"
[resources.thing.fields]
word = { type = "text", filter = true }
count = { type = "integer", filter = true }
price = { type = "decimal", filter = true }
size = { type = "number", filter = true }
is_new = { type = "boolean", filter = true }
at = { type = "timestamp", filter = true }
[resources.plain.fields]
word = { type = "text" }
"#;
    model::read("cursors.toml", text).unwrap()
}

fn keys(count: usize) -> Vec<SortKey> {
    let key = |at| SortKey { attribute: Attribute::Field(at, Vec::new()), is_descending: false };
    (0..count).map(key).collect()
}

fn here() -> ListHash {
    hash_list("/things", None)
}

#[test]
fn cursor_round_trips_only_in_its_own_list() {
    let model = model();
    let both = [(Id::Integer(7), 0), (Id::Uuid(Uuid::from_u128(0x0189_0a5d)), 1)];
    for (id, resource) in both {
        let (resource, other) = (&model.resources[resource], &model.resources[1 - resource]);
        let after = CursorPosition { id, values: Vec::new() };
        let text = encode(&after, here());
        assert_eq!(decode(&text, here(), resource, &[]), Some(after));
        assert_eq!(decode(&text, here(), other, &[]), None);
        assert_eq!(decode(&text, hash_list("/orders", None), resource, &[]), None);
        assert_eq!(decode(&text, hash_list("/things", Some("a".to_owned())), resource, &[]), None);
        assert_eq!(decode(text.get(1..).unwrap_or(""), here(), resource, &[]), None);
        assert_eq!(decode(&format!("{text}AAAA"), here(), resource, &[]), None);
    }
}

#[test]
fn cursor_values_round_trip_only_as_their_own_type() {
    let model = model();
    let thing = &model.resources[0];
    let moment = Moment::parse("2026-11-15T02:28:14.5Z").unwrap();
    let values = [
        vec![
            Value::text("é"),
            Value::Integer(-3),
            Value::Decimal(Decimal { units: 150, scale: 2 }),
            Value::Number(-0.5),
            Value::Boolean(true),
            Value::Moment(moment),
        ],
        vec![Value::Null; 6],
        vec![
            Value::text(&"𝄞".repeat(256)),
            Value::Integer(i64::MIN),
            Value::Decimal(Decimal { units: i64::MAX, scale: 2 }),
            Value::Number(f64::MAX),
            Value::Boolean(false),
            Value::Moment(moment),
        ],
    ];
    for values in values {
        let after = CursorPosition { id: Id::Integer(1), values };
        let text = encode(&after, here());
        assert!(text.len() < 1_600, "{}", text.len());
        assert_eq!(decode(&text, here(), thing, &keys(6)).as_ref(), Some(&after));
        assert_eq!(decode(&text, here(), thing, &keys(5)), None);
        let mut others = keys(6);
        others.rotate_left(1);
        let is_absent = after.values.iter().all(Value::is_null);
        assert_eq!(decode(&text, here(), thing, &others).is_some(), is_absent);
    }
}

#[test]
fn cursor_with_values_the_store_refuses_is_invalid() {
    let model = model();
    let thing = &model.resources[0];
    let sealed =
        |value| encode(&CursorPosition { id: Id::Integer(1), values: vec![value] }, here());
    assert_eq!(decode(&sealed(Value::text("a\0")), here(), thing, &keys(1)), None);
    let real = [SortKey { attribute: Attribute::Field(3, Vec::new()), is_descending: false }];
    assert_eq!(decode(&sealed(Value::Number(f64::NAN)), here(), thing, &real), None);
    let created = [SortKey { attribute: Attribute::CreatedAt, is_descending: false }];
    assert_eq!(decode(&sealed(Value::Null), here(), thing, &created), None);
}

proptest! {
    #[test]
    fn cursor_decode_never_panics(text in ".{0,60}|[A-Za-z0-9_-]{0,80}") {
        let model = model();
        let _ = decode(&text, here(), &model.resources[0], &keys(3));
    }
}
