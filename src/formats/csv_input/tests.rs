//! Tests of CSV input: the rules of RFC 4180, and the output of spreadsheets and programs.

use expect_test::{Expect, expect};

use super::*;
use crate::model;

const MODEL: &str = r#"
title = "Rows"
[resources.row.fields]
name = { type = "text" }
count = { type = "integer" }
share = { type = "number" }
price = { type = "decimal", scale = 2 }
open = { type = "boolean" }
day = { type = "date" }
tags = { type = "list", of = { type = "text" } }
note = { type = "json" }
"#;

fn read(body: &[u8], rows_max: usize) -> String {
    let model = model::read("model.toml", MODEL).unwrap_or_else(|errors| panic!("{errors}"));
    let resource = model.declared().next().unwrap();
    match to_json_lines(ItemView::all_fields(resource), body, rows_max) {
        Ok(text) => String::from_utf8(text).unwrap(),
        Err(problem) => {
            let parts = problem.parts();
            format!("{}: {}", parts.kind.slug, parts.detail.as_deref().unwrap_or("-"))
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as in every such function")]
fn check(body: &str, expected: Expect) {
    expected.assert_eq(&read(body.as_bytes(), 1000));
}

#[test]
fn csv_cell_is_converted_by_the_type_of_its_field() {
    check(
        "name,count,share,price,open,day,tags,note\r\n\
         Ann,7,0.5,1.50,true,2026-11-15,\"[\"\"a\"\",\"\"b\"\"]\",\"{\"\"k\"\": 1}\"\r\n",
        expect![[r#"
            {"name":"Ann","count":7,"share":0.5,"price":"1.50","open":true,"day":"2026-11-15","tags":["a","b"],"note":{"k":1}}
        "#]],
    );
    // Quotes around a cell do not change its value.
    check(
        "count,open,note,name\n\"7\",\"FALSE\",\"null\",\"null\"\n-1e3,True,\"\"\"x\"\"\",true\n",
        expect![[r#"
            {"count":7,"open":false,"note":null,"name":"null"}
            {"count":-1e3,"open":true,"note":"x","name":"true"}
        "#]],
    );
    // The field type reports an invalid value.
    check(
        "count,share,open\nseven,0x1,yes\n007,+1,1\n 1,.5,\n",
        expect![[r#"
            {"count":"seven","share":"0x1","open":"yes"}
            {"count":"007","share":"+1","open":"1"}
            {"count":" 1","share":".5"}
        "#]],
    );
    // Likewise for a column that is not a field.
    check(
        "id,row_id,nmae\n5,01890a5d-ac96-774b-bcce-b302099a8057,x\n",
        expect![[r#"
            {"id":5,"row_id":"01890a5d-ac96-774b-bcce-b302099a8057","nmae":"x"}
        "#]],
    );
}

#[test]
fn csv_empty_cell_is_no_value_and_quoted_one_is_empty_text() {
    check(
        "name,day,count\n,,\n\"\",,\"\"\n",
        expect![[r#"
        {}
        {"name":"","count":""}
    "#]],
    );
    check(
        "name\n\"\"\n",
        expect![[r#"
        {"name":""}
    "#]],
    );
}

#[test]
fn csv_quoted_cells_contain_commas_quotes_and_newlines() {
    check(
        "\"name\",day\n\"Ann, \"\"the\r\nfirst\"\"\",x\n\"\"\"\",y\n'a',ü\n",
        expect![[r#"
            {"name":"Ann, \"the\r\nfirst\"","day":"x"}
            {"name":"\"","day":"y"}
            {"name":"'a'","day":"ü"}
        "#]],
    );
}

#[test]
fn csv_accepts_common_line_endings() {
    let expected = "{\"name\":\"a\"}\n{\"name\":\"b\"}\n";
    for body in [
        "name\na\nb",
        "name\na\nb\n",
        "name\r\na\r\nb\r\n",
        "name\r\na\nb\r\n",
        "\n\nname\n\na\r\n\r\nb\n\n",
        "\u{feff}name\na\nb\n",
        "\u{feff}\"name\"\r\na\r\nb",
    ] {
        assert_eq!(read(body.as_bytes(), 1000), expected, "{body:?}");
    }
    check("name\n", expect![""]);
}

#[test]
fn csv_syntax_error_names_the_line() {
    let cases = [
        ("", "line 1: expected the names of the columns, got nothing"),
        ("\n\n", "line 1: expected the names of the columns, got nothing"),
        ("name,,day\n", "line 1: expected a name for column 2"),
        ("name;day\n", "line 1: expected commas between the columns, got a semicolon"),
        ("name\tday\n", "line 1: expected commas between the columns, got a tab"),
        ("name,day,\"name\"\n", "line 1: expected each column once, got \"name\" again"),
        ("name,day\na,b\nc\n", "line 3: expected 2 cells, got 1"),
        ("name,day\n\na,b,c\n", "line 3: expected 2 cells, got more"),
        ("name,day\n\"a\nb\",c,\n", "line 2: expected 2 cells, got more"),
        ("name\na\"b\"\n", "line 2: expected quotes around a cell that has one inside"),
        ("name\n \"a\"\n", "line 2: expected quotes around a cell that has one inside"),
        ("name\n\"a\" \n", "line 2: expected a comma after the quote, got \" \\n\""),
        ("name\n\"a\nb\nc\n", "line 2: expected a quote at the end of the cell, got none"),
        ("name\n\"a\n\"\"\n", "line 2: expected a quote at the end of the cell, got none"),
        ("name\n\"a\n\n\"x\n", "line 4: expected a comma after the quote, got \"x\\n\""),
        ("name\ra\r", "line 1: expected a line feed after a carriage return"),
        ("name\na\rb\n", "line 2: expected a line feed after a carriage return"),
        ("tags\n\n[\n", "line 3: tags: expected JSON, got \"[\": expected a value, got the end"),
        ("note\nabc\n", "line 2: note: expected JSON, got \"abc\": expected a value, got \"a\""),
        ("note\n\"\"\n", "line 2: note: expected JSON, got \"\": expected a value, got the end"),
    ];
    for (body, expected) in cases {
        assert_eq!(read(body.as_bytes(), 1000), format!("bad-lines: {expected}"), "{body:?}");
    }
    let expected = "bad-lines: line 3: expected UTF-8, got a byte that does not belong there";
    assert_eq!(read(b"name\na\n\xff\n", 1000), expected);
    let deep = format!("note\n{}1{}\n", "[".repeat(29), "]".repeat(29));
    assert!(read(deep.as_bytes(), 1000).starts_with("{\"note\":[[["), "{deep}");
    let deeper = format!("note\n{}1{}\n", "[".repeat(30), "]".repeat(30));
    assert!(read(deeper.as_bytes(), 1000).starts_with("bad-lines: line 2: note"), "{deeper}");
}

#[test]
fn csv_rows_and_columns_are_limited() {
    let rows = |count: usize| format!("name\n{}", "a\n".repeat(count));
    assert_eq!(read(rows(3).as_bytes(), 3).lines().count(), 3);
    assert_eq!(read(rows(4).as_bytes(), 3), "too-large: at most 3 items at once, got more");
    let columns = |count: usize| (0..count).map(|n| format!("c{n}")).collect::<Vec<_>>().join(",");
    assert_eq!(read(columns(510).as_bytes(), 3), "");
    assert_eq!(read(columns(511).as_bytes(), 3), "bad-lines: line 1: expected 510 cells, got more");
}
