//! Conditions as both engines keep them, and texts that are no SQL.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn check(conditions: &[&str], expected: &Expect) {
    let mut seen = String::new();
    for condition in conditions {
        let ConditionRules { rules, is_complete } = parse_condition(condition);
        let rules: Vec<String> =
            rules.iter().map(|rule| format!("{} {:?}", rule.column, rule.condition)).collect();
        let end = if is_complete { "" } else { " …" };
        seen += &format!("{condition}\n  {}{end}\n", rules.join("; "));
    }
    expected.assert_eq(&seen);
}

/// As SQLite keeps them, and as PostgreSQL prints them.
#[test]
fn condition_of_a_check_is_rules_of_columns() {
    check(
        &[
            "status IN ('new', 'it''s')",
            "((status)::text = ANY ((ARRAY['new'::character varying, 'old'::character varying])::text[]))",
            "(kind = ANY (ARRAY[1, 2]))",
            "(status = 'a'::text) OR (status = 'b'::text) OR status IS NULL",
            "(\"Unit Price\" >= (0)::numeric)",
            "price > 0 AND price < 100.5",
            "0 <= price",
            "age BETWEEN 0 AND 150 AND size = 3",
            "(char_length((code)::text) = 5)",
            "length(code) <= 5",
            "(length(btrim(code)) > 0)",
            "x IS NOT NULL",
            "(x IS NULL) OR (x > '-1'::integer)",
            "a < b",
            "price > 0 AND a < b",
            "(email ~~ '%@%'::text)",
            "-5 <= x",
            "starts < '2026-01-01'::date",
            "x IN (1, y)",
            "((a = 1) AND (b = 2)) OR (a = 2)",
            "it's broken",
        ],
        &expect![[r#"
            status IN ('new', 'it''s')
              status OneOf([Text("new"), Text("it's")])
            ((status)::text = ANY ((ARRAY['new'::character varying, 'old'::character varying])::text[]))
              status OneOf([Text("new"), Text("old")])
            (kind = ANY (ARRAY[1, 2]))
              kind OneOf([Number("1"), Number("2")])
            (status = 'a'::text) OR (status = 'b'::text) OR status IS NULL
              status OneOf([Text("a"), Text("b")])
            ("Unit Price" >= (0)::numeric)
              Unit Price AtLeast(Number("0"))
            price > 0 AND price < 100.5
              price Above(Number("0")); price Below(Number("100.5"))
            0 <= price
              price AtLeast(Number("0"))
            age BETWEEN 0 AND 150 AND size = 3
              age AtLeast(Number("0")); age AtMost(Number("150")); size OneOf([Number("3")])
            (char_length((code)::text) = 5)
              code LengthAtLeast(5); code LengthAtMost(5)
            length(code) <= 5
              code LengthAtMost(5)
            (length(btrim(code)) > 0)
               …
            x IS NOT NULL
              x Present
            (x IS NULL) OR (x > '-1'::integer)
              x Above(Text("-1"))
            a < b
               …
            price > 0 AND a < b
              price Above(Number("0")) …
            (email ~~ '%@%'::text)
               …
            -5 <= x
              x AtLeast(Number("-5"))
            starts < '2026-01-01'::date
              starts Below(Text("2026-01-01"))
            x IN (1, y)
               …
            ((a = 1) AND (b = 2)) OR (a = 2)
               …
            it's broken
               …
        "#]],
    );
}

#[test]
fn literal_of_a_default_is_a_constant() {
    for (text, expected) in [
        ("'it''s'::character varying", Some(SqlLiteral::Text("it's".to_owned()))),
        ("(-1.5)", Some(SqlLiteral::Number("-1.5".to_owned()))),
        ("'-1'::integer", Some(SqlLiteral::Text("-1".to_owned()))),
        ("TRUE", Some(SqlLiteral::Boolean(true))),
        ("now()", None),
        ("CURRENT_TIMESTAMP", None),
        ("nextval('a'::regclass)", None),
        ("'a' || 'b'", None),
        ("", None),
    ] {
        assert_eq!(parse_literal(text), expected, "{text}");
    }
}

#[test]
fn checks_of_a_create_table_are_found_outside_of_quotes_and_comments() {
    let sql = "CREATE TABLE \"check (x)\" ( -- check (1)\n a INT CHECK(a > 0) /* check (2) */,\n \
               b TEXT DEFAULT 'check (3)' check ( b IN ('(', ')') ), [check (4)] INT, CONSTRAINT c CHECK ((a) < (b)))";
    assert_eq!(find_checks(sql), ["a > 0", "b IN ('(', ')')", "(a) < (b)"]);
    assert!(find_checks("CHECK (").is_empty());
}

proptest! {
    #[test]
    fn sql_of_any_text_never_panics(text in ".*") {
        let _ = (parse_condition(&text), parse_literal(&text), find_checks(&text));
    }

    #[test]
    fn sql_of_any_tokens_never_panics(
        tokens in prop::collection::vec(prop::sample::select(vec![
            "a", "\"b\"", "'c'", "1", "1.5e", "-", "(", ")", "[", "]", ",", "::", "text", "and", "or", "between", "in", "is",
            "not", "null", "any", "array", "=", "<=", "length", "check", "/*", "--", "é",
        ]), 0..30)
    ) {
        let text = tokens.join(" ");
        let _ = (parse_condition(&text), parse_literal(&text), find_checks(&text));
    }
}
