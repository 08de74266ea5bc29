//! Tests of patches: the examples of both RFCs, and random patches against another implementation.

use proptest::prelude::*;

use super::*;
use crate::json;

const MAX: usize = 1 << 20;

fn read(text: &str) -> Json<'_> {
    json::parse(text.as_bytes(), 64).unwrap()
}

fn shown(json: &Json<'_>) -> serde_json::Value {
    match json {
        Json::Null => serde_json::Value::Null,
        Json::Boolean(flag) => (*flag).into(),
        Json::Number(text) => serde_json::from_str(text).unwrap(),
        Json::Text(text) => (&**text).into(),
        Json::List(list) => list.iter().map(shown).collect(),
        Json::Object(members) => {
            members.iter().map(|(name, value)| (name.to_string(), shown(value))).collect()
        }
    }
}

fn patched(document: &str, patch: &str) -> Result<serde_json::Value, String> {
    let steps = parse_operations(read(patch)).map_err(|why| format!("400 {why}"))?;
    let done = apply(read(document), &steps, MAX).map_err(|failed| failed.to_string())?;
    Ok(shown(&done))
}

/// RFC 7396, appendix A.
#[test]
fn merge_patch_examples_of_rfc_7396() {
    for (original, patch, result) in [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
        (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
        (r#"{"a":"foo"}"#, "null", "null"),
        (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        // Section 3.
        (
            r#"{"title":"Goodbye!","author":{"givenName":"John","familyName":"Doe"},"tags":["example","sample"],"content":"This will be unchanged"}"#,
            r#"{"title":"Hello!","phoneNumber":"+01-123-456-7890","author":{"familyName":null},"tags":["example"]}"#,
            r#"{"title":"Hello!","author":{"givenName":"John"},"tags":["example"],"content":"This will be unchanged","phoneNumber":"+01-123-456-7890"}"#,
        ),
    ] {
        let mut document = read(original);
        merge(&mut document, read(patch));
        assert_eq!(shown(&document), shown(&read(result)), "{original} {patch}");
    }
}

/// RFC 6902, appendix A; A.13 has a duplicate key, which no body may have.
#[test]
fn json_patch_examples_of_rfc_6902() {
    for (document, patch, result) in [
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/baz","value":"qux"}]"#,
            r#"{"baz":"qux","foo":"bar"}"#,
        ),
        (
            r#"{"foo":["bar","baz"]}"#,
            r#"[{"op":"add","path":"/foo/1","value":"qux"}]"#,
            r#"{"foo":["bar","qux","baz"]}"#,
        ),
        (r#"{"baz":"qux","foo":"bar"}"#, r#"[{"op":"remove","path":"/baz"}]"#, r#"{"foo":"bar"}"#),
        (
            r#"{"foo":["bar","qux","baz"]}"#,
            r#"[{"op":"remove","path":"/foo/1"}]"#,
            r#"{"foo":["bar","baz"]}"#,
        ),
        (
            r#"{"baz":"qux","foo":"bar"}"#,
            r#"[{"op":"replace","path":"/baz","value":"boo"}]"#,
            r#"{"baz":"boo","foo":"bar"}"#,
        ),
        (
            r#"{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}"#,
            r#"[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]"#,
            r#"{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}"#,
        ),
        (
            r#"{"foo":["all","grass","cows","eat"]}"#,
            r#"[{"op":"move","from":"/foo/1","path":"/foo/3"}]"#,
            r#"{"foo":["all","cows","eat","grass"]}"#,
        ),
        (
            r#"{"baz":"qux","foo":["a",2,"c"]}"#,
            r#"[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}]"#,
            r#"{"baz":"qux","foo":["a",2,"c"]}"#,
        ),
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/child","value":{"grandchild":{}}}]"#,
            r#"{"foo":"bar","child":{"grandchild":{}}}"#,
        ),
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/baz","value":"qux","xyz":123}]"#,
            r#"{"foo":"bar","baz":"qux"}"#,
        ),
        (r#"{"/":9,"~1":10}"#, r#"[{"op":"test","path":"/~01","value":10}]"#, r#"{"/":9,"~1":10}"#),
        (
            r#"{"foo":["bar"]}"#,
            r#"[{"op":"add","path":"/foo/-","value":["abc","def"]}]"#,
            r#"{"foo":["bar",["abc","def"]]}"#,
        ),
    ] {
        assert_eq!(patched(document, patch), Ok(shown(&read(result))), "{patch}");
    }
}

#[test]
fn json_patch_further_examples() {
    for (document, patch, result) in [
        (r#"{"a":0}"#, r#"[{"op":"test","path":"/a","value":-0.0}]"#, r#"{"a":0}"#),
        (
            r#"{"a":1}"#,
            r#"[{"op":"test","path":"/a","value":1.0},{"op":"test","path":"/a","value":10e-1}]"#,
            r#"{"a":1}"#,
        ),
        (
            r#"{"a":{"x":1,"y":[2]}}"#,
            r#"[{"op":"test","path":"/a","value":{"y":[2],"x":1}}]"#,
            r#"{"a":{"x":1,"y":[2]}}"#,
        ),
        (
            r#"{"a":1}"#,
            r#"[{"op":"copy","from":"/a","path":"/b"},{"op":"move","from":"/a","path":"/a"}]"#,
            r#"{"a":1,"b":1}"#,
        ),
        (r#"{"a":1}"#, r#"[{"op":"replace","path":"","value":[]}]"#, "[]"),
        (r#"{"a":1}"#, r#"[{"op":"remove","path":""}]"#, "null"),
        ("{}", "[]", "{}"),
    ] {
        assert_eq!(patched(document, patch), Ok(shown(&read(result))), "{patch}");
    }
}

#[test]
fn json_patch_failure_names_operation_and_reason() {
    for (document, patch, expected) in [
        (
            r#"{"baz":"qux"}"#,
            r#"[{"op":"test","path":"/baz","value":"bar"}]"#,
            "operation 0: the value at \"/baz\" is another one",
        ),
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/baz/bat","value":"qux"}]"#,
            "operation 0: there is nothing at \"/baz/bat\"",
        ),
        (
            r#"{"/":9,"~1":10}"#,
            r#"[{"op":"test","path":"/~01","value":"10"}]"#,
            "operation 0: the value at \"/~01\" is another one",
        ),
        (
            r#"{"a":[1]}"#,
            r#"[{"op":"remove","path":"/a/0"},{"op":"remove","path":"/a/0"}]"#,
            "operation 1: there is nothing at \"/a/0\"",
        ),
        (
            r#"{"a":[1]}"#,
            r#"[{"op":"add","path":"/a/2","value":1}]"#,
            "operation 0: there is nothing at \"/a/2\"",
        ),
        (
            r#"{"a":[1]}"#,
            r#"[{"op":"add","path":"/a/00","value":1}]"#,
            "operation 0: there is nothing at \"/a/00\"",
        ),
        (
            r#"{"a":[1]}"#,
            r#"[{"op":"replace","path":"/a/-","value":1}]"#,
            "operation 0: there is nothing at \"/a/-\"",
        ),
        (
            r#"{"a":{}}"#,
            r#"[{"op":"move","from":"/a","path":"/a/b"}]"#,
            "operation 0: \"/a\" cannot be moved into itself",
        ),
        (
            "{}",
            r#"[{"op":"add","path":"a","value":1}]"#,
            "400 operation 0: expected path to be a JSON pointer",
        ),
        (
            "{}",
            r#"[{"op":"add","path":"/~2","value":1}]"#,
            "400 operation 0: expected path to be a JSON pointer",
        ),
        ("{}", r#"[{"op":"add","path":"/a"}]"#, "400 operation 0: expected a value"),
        ("{}", r#"[{"path":"/a"}]"#, "400 operation 0: expected op"),
        (
            "{}",
            r#"[{"op":"swap","path":"/a"}]"#,
            "400 operation 0: expected op to be add, remove, replace, move, copy or test",
        ),
        ("{}", r#"[{"op":"copy","path":"/a"}]"#, "400 operation 0: expected from"),
        (
            "{}",
            r#"[{"op":1,"path":"/a"}]"#,
            "400 operation 0: expected op as a string, got a number",
        ),
        ("{}", "[7]", "400 operation 0: expected an object, got a number"),
        ("{}", "{}", "400 expected a list of operations, got an object"),
    ] {
        assert_eq!(patched(document, patch), Err(expected.to_owned()), "{patch}");
    }
}

/// A short patch that doubles a document ten times, one that shifts a long list, and a long one.
#[test]
fn json_patch_work_is_limited() {
    let double = |count| {
        format!("[{}]", vec![r#"{"op":"copy","from":"/0","path":"/0/-"}"#; count].join(","))
    };
    let big = format!(r#"[["{}"]]"#, "x".repeat(10_000));
    let too_much = |at| format!("operation {at}: it makes too much of a small patch");
    assert_eq!(patched(&big, &double(20)).unwrap_err(), too_much(6));
    assert_eq!(patched("[[]]", &double(40)).unwrap_err(), too_much(18));
    let deeper = r#"{"op":"copy","from":"","path":"/a"}"#;
    let deeper = format!("[{}]", vec![deeper; 40].join(","));
    assert_eq!(patched(r#"{"a":1}"#, &deeper).unwrap_err(), too_much(30));
    let list = format!("[{}]", vec!["1"; 100_000].join(","));
    let shift = r#"{"op":"add","path":"/0","value":0}"#;
    let shifted = format!("[{}]", vec![shift; 20].join(","));
    assert_eq!(
        patched(&list, &shifted).unwrap_err(),
        "operation 9: it makes too much of a small patch"
    );
    // Many names in another order and a patch with as many: no step is quadratic.
    let names = |count: usize, suffix: &str| {
        (0..count).map(|at| format!("\"{at}{suffix}\":{at}")).collect::<Vec<_>>()
    };
    let (forth, mut back) = (names(60_000, ""), names(60_000, ""));
    back.reverse();
    let object = |members: &[String]| format!("{{{}}}", members.join(","));
    let test = format!(r#"[{{"op":"test","path":"","value":{}}}]"#, object(&back));
    assert!(patched(&object(&forth), &test).is_ok());
    let (text, other) = (object(&forth), object(&names(60_000, "x")));
    let mut merged = read(&text);
    merge(&mut merged, read(&other));
    let nulls = object(&(0..60_000).map(|at| format!("\"{at}\":null")).collect::<Vec<_>>());
    merge(&mut merged, read(&nulls));
    assert!(
        matches!(&merged, Json::Object(members) if members.len() == 60_000 && members[0].0 == "0x")
    );
    let removes: Vec<_> =
        (0..900).map(|at| format!(r#"{{"op":"remove","path":"/{at}"}}"#)).collect();
    assert_eq!(
        patched(&object(&forth), &format!("[{}]", removes.join(","))).unwrap_err(),
        too_much(0)
    );
    let long = format!("[{}]", vec![r#"{"op":"remove","path":""}"#; 1_001].join(","));
    assert_eq!(patched("{}", &long).unwrap_err(), "400 at most 1000 operations, got 1001");
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        (-3i64..3).prop_map(Into::into),
        "[ab~/]{0,2}".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
            proptest::collection::btree_map("[ab~/0]{0,2}", inner, 0..3)
                .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

fn any_pointer() -> impl Strategy<Value = String> {
    "(/(a|b|0|1|-|~0|~1|)){0,3}"
}

fn any_operation() -> impl Strategy<Value = serde_json::Value> {
    let names = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]);
    (names, any_pointer(), any_pointer(), any_json()).prop_map(|(op, path, from, value)| {
        serde_json::json!({"op": op, "path": path, "from": from, "value": value})
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn merge_patch_agrees_with_json_patch_crate(document in any_json(), patch in any_json()) {
        let (text, sent) = (document.to_string(), patch.to_string());
        let mut ours = read(&text);
        merge(&mut ours, read(&sent));
        let mut theirs = document;
        json_patch::merge(&mut theirs, &patch);
        prop_assert_eq!(shown(&ours), theirs);
    }

    #[test]
    fn json_patch_agrees_with_json_patch_crate(
        document in any_json(),
        steps in proptest::collection::vec(any_operation(), 0..4),
    ) {
        // The other implementation cannot remove the whole document.
        let is_root = |name: &str, step: &serde_json::Value| step[name] == "";
        let takes = |step: &serde_json::Value| {
            (step["op"] == "remove" && is_root("path", step)) || (step["op"] == "move" && is_root("from", step))
        };
        prop_assume!(!steps.iter().any(takes));
        let sent = serde_json::Value::from(steps);
        let ours = patched(&document.to_string(), &sent.to_string());
        let theirs: json_patch::Patch = serde_json::from_value(sent).unwrap();
        let mut result = document;
        // Without its rollback, which can panic.
        let is_done = json_patch::patch_unsafe(&mut result, &theirs).is_ok();
        prop_assert_eq!(ours.ok(), is_done.then_some(result));
    }
}
