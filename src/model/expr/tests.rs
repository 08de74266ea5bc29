//! Tests of expressions on the fields of one example resource.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::model::{Model, read};
use crate::value::{Decimal, Moment, Value};

pub fn model() -> Model {
    let text = r#"
        title = "T"
        [resources.thing.fields]
        a     = { type = "integer" }
        b     = { type = "integer" }
        price = { type = "decimal" }
        ratio = { type = "number" }
        flag  = { type = "boolean" }
        name  = { type = "text" }
        day   = { type = "date" }
        at    = { type = "timestamp" }
        items = { type = "list", of = { fields = { quantity = { type = "integer" }, price = { type = "decimal" } } } }
        sizes = { type = "list", of = { type = "integer" } }
        box   = { type = "object", fields = { width = { type = "integer" }, inner = { type = "object", fields = { depth = { type = "integer" } } } } }
        state = { type = "state", initial = "open", next = { open = ["closed"], closed = [] } }
        [resources.target.fields]
        integer = { type = "integer" }
        decimal = { type = "decimal" }
        number  = { type = "number" }
        boolean = { type = "boolean" }
        text    = { type = "text" }
    "#;
    read("test", text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The names of a `computed`.
fn item_scope(model: &Model) -> ExprScope<'_> {
    let fields = &model.resources[0].fields;
    ExprScope { fields, invalid_fields: &[], computed_fields: &[], relations: None }
}

pub fn values() -> Vec<Value> {
    let item = |quantity: Option<i64>, units: i64| {
        let mut members: Vec<(Box<str>, Value)> =
            vec![("price".into(), Value::Decimal(Decimal { units, scale: 2 }))];
        members.extend(quantity.map(|quantity| ("quantity".into(), Value::Integer(quantity))));
        Value::Object(members)
    };
    vec![
        Value::Integer(6),
        Value::Null,
        Value::Decimal(Decimal { units: 250, scale: 2 }),
        Value::Number(0.5),
        Value::Boolean(true),
        Value::text("ann"),
        Value::text("2026-11-15"),
        Value::Moment(Moment::parse("2026-11-15T02:28:14Z").unwrap()),
        Value::List(vec![item(Some(2), 150), item(Some(1), 1), item(None, 500)]),
        Value::List(vec![Value::Integer(3), Value::Integer(4)]),
        Value::Object(vec![
            ("width".into(), Value::Integer(7)),
            ("inner".into(), Value::Object(vec![("depth".into(), Value::Integer(9))])),
        ]),
        Value::text("open"),
    ]
}

#[test]
fn text_functions_of_unicode_texts() {
    let mut values = values();
    values[5] = Value::text("\u{2003}ÄNNE Straße ΣΑΣ\n");
    let shown = |kind: &str, text: &str| format!("{text} → {}\n", compute(kind, text, &values));
    let texts = [
        "lower(name)",
        "trim(name)",
        "lower(trim(name))",
        "concat(trim(name), ' ', state)",
        "concat('a')",
        "lower(concat('A', 'B'))",
    ];
    let numbers = ["length(name)", "length(trim(name)) * 2", "length('')", "length(day)"];
    let tests = ["length(name) > 3", "lower(state) = 'open'", "lower(state) in ['open', 'x']"];
    let mut all: String = texts.iter().map(|text| shown("text", text)).collect();
    all += &numbers.iter().map(|text| shown("integer", text)).collect::<String>();
    all += &tests.iter().map(|text| shown("boolean", text)).collect::<String>();
    expect![[r#"
        lower(name) → Text("\u{2003}änne straße σας\n")
        trim(name) → Text("ÄNNE Straße ΣΑΣ")
        lower(trim(name)) → Text("änne straße σας")
        concat(trim(name), ' ', state) → Text("ÄNNE Straße ΣΑΣ open")
        concat('a') → Text("a")
        lower(concat('A', 'B')) → Text("ab")
        length(name) → Integer(17)
        length(trim(name)) * 2 → Integer(30)
        length('') → Integer(0)
        length(day) → Integer(10)
        length(name) > 3 → Boolean(true)
        lower(state) = 'open' → Boolean(true)
        lower(state) in ['open', 'x'] → Boolean(true)
    "#]]
    .assert_eq(&all);
    // Absent texts: `concat` skips them.
    values[5] = Value::Null;
    let shown = |kind: &str, text: &str| format!("{text} → {}\n", compute(kind, text, &values));
    let texts = ["lower(name)", "trim(name)", "concat(name, '-', state)", "concat(name, name)"];
    let mut all: String = texts.iter().map(|text| shown("text", text)).collect();
    all += &shown("integer", "length(name)");
    expect![[r#"
        lower(name) → Null
        trim(name) → Null
        concat(name, '-', state) → Text("-open")
        concat(name, name) → Null
        length(name) → Null
    "#]]
    .assert_eq(&all);
}

#[test]
fn text_functions_have_types() {
    check(
        "text",
        &[
            "lower(a)",
            "lower(name, name)",
            "concat()",
            "length(name)",
            "name",
            "upper(name)",
            "concat(name, 1)",
        ],
        &expect![[r#"
            lower(a) → 6..7 expected a text here, got an exact number
            lower(name, name) → 0..17 expected `lower(text)`, got 2 arguments
            concat() → 0..8 expected `concat(text, text, …)`, got 0 arguments
            length(name) → 0..12 expected an expression for a text, got an exact number
            name → Text("ann")
            upper(name) → 0..5 there is no function `upper`
            concat(name, 1) → 13..14 expected a text here, got an exact number
        "#]],
    );
    check(
        "integer",
        &["lower(name)", "length(items)", "length(name, name)"],
        &expect![[r#"
        lower(name) → 0..11 expected an expression for an integer, got a text
        length(items) → 7..12 `items` is of type `list`, which has no single value
        length(name, name) → 0..18 expected `length(text)`, got 2 arguments
    "#]],
    );
}

/// An expression that repeats a long text does not take memory without bound.
#[test]
fn text_function_concat_has_a_limit() {
    let mut values = values();
    values[5] = Value::text(&"x".repeat(300_000));
    assert!(compute("text", "concat(name, name, name)", &values).starts_with("Text("));
    let long = compute("text", "length(concat(name, name, name, name)) > 1", &values);
    assert!(!long.starts_with("Text("), "{long}");
    assert_eq!(
        compute("integer", "length(concat(name, name, name, name))", &values),
        "the computed value is out of range"
    );
}

/// The value of an expression as a field of type `kind`, or the error.
fn compute(kind: &str, text: &str, values: &[Value]) -> String {
    let model = model();
    let (_, target) = model.resources[1].field(kind).unwrap();
    let scope = item_scope(&model);
    match parse_computed(text, target, scope) {
        Ok(expression) => match evaluate(&expression, values) {
            Ok(value) => format!("{value:?}"),
            Err(overflow) => overflow.to_string(),
        },
        Err(ExprError::Mistake { at, message, .. }) => format!("{at:?} {message}"),
        Err(failure) => format!("{failure:?}"),
    }
}

fn check(kind: &str, texts: &[&str], expected: &Expect) {
    let shown: Vec<String> =
        texts.iter().map(|text| format!("{text} → {}\n", compute(kind, text, &values()))).collect();
    expected.assert_eq(&shown.concat());
}

#[test]
fn computed_arithmetic_is_exact() {
    check(
        "decimal",
        &[
            "a + 1",
            "a - 10",
            "a * price",
            "1 / 4",
            "1 / 3 * 3",
            "1 / 3",
            "-a",
            "-(a + 1)",
            "2 + 3 * 4",
            "(2 + 3) * 4",
            "10 - 2 - 3",
            "0.1 + 0.2",
            "--a",
        ],
        &expect![[r#"
            a + 1 → Decimal(Decimal { units: 700, scale: 2 })
            a - 10 → Decimal(Decimal { units: -400, scale: 2 })
            a * price → Decimal(Decimal { units: 1500, scale: 2 })
            1 / 4 → Decimal(Decimal { units: 25, scale: 2 })
            1 / 3 * 3 → Decimal(Decimal { units: 100, scale: 2 })
            1 / 3 → the computed value is not exact in this field
            -a → Decimal(Decimal { units: -600, scale: 2 })
            -(a + 1) → Decimal(Decimal { units: -700, scale: 2 })
            2 + 3 * 4 → Decimal(Decimal { units: 1400, scale: 2 })
            (2 + 3) * 4 → Decimal(Decimal { units: 2000, scale: 2 })
            10 - 2 - 3 → Decimal(Decimal { units: 500, scale: 2 })
            0.1 + 0.2 → Decimal(Decimal { units: 30, scale: 2 })
            --a → Decimal(Decimal { units: 600, scale: 2 })
        "#]],
    );
}

#[test]
fn computed_value_that_does_not_fit_is_an_overflow() {
    check(
        "integer",
        &[
            "9007199254740991",
            "9007199254740991 + 1",
            "a / 4",
            "a / (6 - a)",
            "9007199254740991 * 9007199254740991 * 9007199254740991",
            "price",
        ],
        &expect![[r#"
            9007199254740991 → Integer(9007199254740991)
            9007199254740991 + 1 → the computed value is out of range
            a / 4 → the computed value is not exact in this field
            a / (6 - a) → the computed value is a division by zero
            9007199254740991 * 9007199254740991 * 9007199254740991 → the computed value is out of range
            price → the computed value is not exact in this field
        "#]],
    );
}

#[test]
fn computed_with_number_operand_uses_doubles() {
    check(
        "number",
        &["ratio * 3", "a", "ratio / 0", "a / 4"],
        &expect![[r#"
        ratio * 3 → Number(1.5)
        a → Number(6.0)
        ratio / 0 → the computed value is a division by zero
        a / 4 → Number(1.5)
    "#]],
    );
    check(
        "integer",
        &["ratio * 2"],
        &expect![[r#"
        ratio * 2 → 0..9 expected an expression for an integer, got a number of type `number`
    "#]],
    );
}

#[test]
fn computed_sum_and_count_of_lists() {
    check(
        "decimal",
        &[
            "sum(items, quantity * price)",
            "sum(items, price)",
            "sum(items, a)",
            "count(items)",
            "sum(sizes)",
            "sum(sizes, a)",
            "box.width + box.inner.depth",
        ],
        &expect![[r#"
            sum(items, quantity * price) → Decimal(Decimal { units: 301, scale: 2 })
            sum(items, price) → Decimal(Decimal { units: 651, scale: 2 })
            sum(items, a) → Decimal(Decimal { units: 1800, scale: 2 })
            count(items) → Decimal(Decimal { units: 300, scale: 2 })
            sum(sizes) → Decimal(Decimal { units: 700, scale: 2 })
            sum(sizes, a) → Decimal(Decimal { units: 1200, scale: 2 })
            box.width + box.inner.depth → Decimal(Decimal { units: 1600, scale: 2 })
        "#]],
    );
    let absent = vec![Value::Null; 12];
    assert_eq!(compute("integer", "sum(items, quantity)", &absent), "Integer(0)");
    assert_eq!(compute("integer", "count(items)", &absent), "Integer(0)");
}

#[test]
fn computed_with_null_operand_is_null() {
    check(
        "boolean",
        &[
            "b = 1",
            "not b = 1",
            "b = 1 and flag",
            "b = 1 and not flag",
            "b = 1 or flag",
            "b = 1 or not flag",
            "b in [1, 2]",
            "a != b",
        ],
        &expect![[r#"
            b = 1 → Null
            not b = 1 → Null
            b = 1 and flag → Null
            b = 1 and not flag → Boolean(false)
            b = 1 or flag → Boolean(true)
            b = 1 or not flag → Null
            b in [1, 2] → Null
            a != b → Null
        "#]],
    );
    assert_eq!(compute("integer", "a + b", &values()), "Null");
}

#[test]
fn comparison_checks_operand_types() {
    check(
        "boolean",
        &[
            "a > 5.5",
            "5.5 < a",
            "price = 2.5",
            "ratio < price",
            "name = 'ann'",
            "name < \"b\"",
            "day >= '2026-11-15'",
            "at < '2026-11-15T03:28:15+01:00'",
            "state = 'open'",
            "state in ['closed']",
            "flag = true",
            "flag",
            "not (a = 6 and flag)",
            "name = name",
        ],
        &expect![[r#"
            a > 5.5 → Boolean(true)
            5.5 < a → Boolean(true)
            price = 2.5 → Boolean(true)
            ratio < price → Boolean(true)
            name = 'ann' → Boolean(true)
            name < "b" → Boolean(true)
            day >= '2026-11-15' → Boolean(true)
            at < '2026-11-15T03:28:15+01:00' → Boolean(true)
            state = 'open' → Boolean(true)
            state in ['closed'] → Boolean(false)
            flag = true → Boolean(true)
            flag → Boolean(true)
            not (a = 6 and flag) → Boolean(false)
            name = name → Boolean(true)
        "#]],
    );
    check(
        "boolean",
        &[
            "name = a",
            "flag < true",
            "a and flag",
            "at = day",
            "1 in [1, 'x']",
            "state = $user",
            "07 = a",
            "sum(items, sum(sizes)) = 1",
            "a = 1.1234567891",
        ],
        &expect![[r#"
            name = a → 0..8 expected two values of one kind, got a text and an exact number
            flag < true → 0..11 true and false have no order: only `=` and `!=` compare them
            a and flag → 0..1 expected true or false here, got an exact number
            at = day → 0..8 expected two values of one kind, got a timestamp and a text
            1 in [1, 'x'] → 9..12 expected an exact number, got a text
            state = $user → 8..13 `$user` is not known in `computed`
            07 = a → 0..2 expected a number such as 1 or 1.5, got 07
            sum(items, sum(sizes)) = 1 → 11..21 a `sum` cannot stand inside another
            a = 1.1234567891 → 4..16 expected at most 18 digits and 9 decimals
        "#]],
    );
}

#[test]
fn expression_size_and_depth_are_limited() {
    let deep = |open: &str, close: &str| format!("{}a{} = 1", open.repeat(40), close.repeat(40));
    for text in [
        deep("(", ")"),
        deep("-", ""),
        format!("{}flag", "not ".repeat(40)),
        format!("a = 1{}", " + 1".repeat(300)),
    ] {
        let shown = compute("boolean", &text, &values());
        assert!(shown.contains("expected at most"), "{shown}");
    }
    let chain = format!("a = 1{}", " + 1".repeat(200));
    assert_eq!(compute("boolean", &chain, &values()), "Boolean(false)");
}

const WORDS: &[&str] = &[
    "a",
    "b",
    "price",
    "ratio",
    "flag",
    "name",
    "day",
    "items",
    "box.width",
    "sum(items,",
    "sum(",
    "count(",
    ")",
    "(",
    "[",
    "]",
    ",",
    ".",
    "+",
    "-",
    "*",
    "/",
    "=",
    "!=",
    "<",
    ">=",
    "and",
    "or",
    "not",
    "in",
    "$user",
    "1",
    "0",
    "9007199254740991",
    "0.5",
    "'x'",
    "\"",
    "'",
    "é",
    "true",
];

proptest! {
    #[test]
    fn expression_arbitrary_text_never_panics(words in proptest::collection::vec(0..WORDS.len(), 0..12), noise in "(?s).{0,8}") {
        let mut text: String = words.into_iter().map(|word| format!("{} ", WORDS[word])).collect();
        text.push_str(&noise);
        for kind in ["integer", "decimal", "number", "boolean"] {
            compute(kind, &text, &values());
        }
    }
}
