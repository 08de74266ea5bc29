//! Tests of schema differences: one base model with many changes.

use expect_test::{Expect, expect};

use super::*;
use crate::model::loosened::loosened_rules;
use crate::model::read;

const BASE: &str = r#"
    [resources.customer.fields]
    name = { type = "text", max_length = 10, filter = true }
    kind = { type = "text", one_of = ["a", "b"] }
    size = { type = "decimal", min = 1, max = 9, nullable = true }
    state = { type = "state", initial = "on", next = { on = ["off"], off = [] } }
    lines = { type = "list", max_items = 9, of = { fields = { n = { type = "integer" } } } }
    twice = { type = "decimal", computed = "size * 2" }
    [resources.order]
    parent = "customer"
    [resources.order.fields]
    code = { type = "text", pattern = "^a" }
    friend = { type = "ref", to = "customer" }
"#;

fn model(text: &str) -> Model {
    read("test", &format!("title = \"T\"\n{text}")).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Compares `BASE` with a copy in which parts are replaced.
fn check(changes: &[(&str, &str)], expected: &Expect) {
    let mut text = BASE.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let new = model(&text);
    let lines = compare(&model(BASE), &new).into_iter().map(|difference| match difference {
        Difference::AddResource(index) => format!("add {}\n", new.resource(index).name),
        Difference::AddField(index, field) => {
            format!("add {}.{}\n", new.resource(index).name, new.resource(index).fields[field].name)
        }
        Difference::Change(change) => format!("{:?} {}\n", change.effect, change.describe()),
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn diff_without_effect_on_data_is_empty() {
    check(&[], &expect![[""]]);
    check(
        &[
            ("max_length = 10, filter = true", "max_length = 20, default = \"x\""),
            ("[\"a\", \"b\"]", "[\"b\", \"c\", \"a\"]"),
            ("min = 1, max = 9, nullable = true", "min = 0, max = 10"),
            ("on = [\"off\"], off = []", "on = [\"off\", \"gone\"], off = [], gone = []"),
            (
                "max_items = 9, of = { fields = { n = { type = \"integer\" } } }",
                "of = { fields = { n = { type = \"integer\" }, m = { type = \"text\" } } }",
            ),
            (", pattern = \"^a\"", ""),
            ("parent = \"customer\"", "parent = \"customer\"\non_delete = \"cascade\""),
        ],
        &expect![[""]],
    );
}

#[test]
fn diff_additions_are_applied() {
    check(
        &[(
            "[resources.order]",
            "note = { type = \"text\" }\nvat = { type = \"integer\", default = 19 }\ntag = { type = \"uuid\", unique = true }\n[resources.item]\nparent = \"order\"\n[resources.order]",
        )],
        &expect![[r#"
            add customer.note
            add customer.vat
            add customer.tag
            add item
        "#]],
    );
}

#[test]
fn diff_of_checks_is_checked_unless_no_item_can_break_them() {
    let check_of = |that: &str| {
        let line =
            format!("[resources.customer]\ncheck = [{{ that = \"{that}\", message = \"m\" }}]\n");
        format!(
            "{line}[resources.customer.fields]\nlow = {{ type = \"integer\" }}\nhigh = {{ type = \"integer\", default = 3 }}"
        )
    };
    let added = &expect![[r#"
        add customer.low
        add customer.high
    "#]];
    let fields = "[resources.customer.fields]";
    for that in ["low < high", "high = 3", "not (high > low)"] {
        check(&[(fields, &check_of(that))], added);
    }
    check(
        &[(fields, &check_of("high < 3"))],
        &expect![[r#"
            add customer.low
            add customer.high
            CheckItem(0) customer.high: the check `high < 3` is new, and items that are there may break it
        "#]],
    );
    check(
        &[(fields, &check_of("low < size and size > 2"))],
        &expect![[r#"
            add customer.low
            add customer.high
            CheckItem(0) customer.low+size: the check `low < size and size > 2` is new, and items that are there may break it
        "#]],
    );
}

#[test]
fn diff_of_plural_is_refused() {
    let change = ("parent = \"customer\"", "parent = \"customer\"\nplural = \"orderings\"");
    check(
        &[change],
        &expect![[r#"
            Rename order: the plural changed from orders to orderings, but it is the name of the table
        "#]],
    );
}

#[test]
fn diff_that_could_break_data_is_refused() {
    check(
        &[
            ("max_length = 10", "max_length = 9, min_length = 1, required = true, unique = true"),
            ("[\"a\", \"b\"]", "[\"a\"]"),
            ("min = 1, max = 9, nullable = true", "scale = 3, min = 2"),
            ("on = [\"off\"], off = []", "on = []"),
            (
                "max_items = 9, of = { fields = { n = { type = \"integer\" } } }",
                "max_items = 8, min_items = 1, of = { fields = { n = { type = \"text\" } } }",
            ),
            ("size * 2", "size * 3"),
            ("parent = \"customer\"", "id = \"integer\""),
            (
                "code = { type = \"text\", pattern = \"^a\" }",
                "code = { type = \"text\", pattern = \"^b\" }\nmust = { type = \"text\", required = true }\nsum = { type = \"integer\", computed = \"1\" }",
            ),
            ("to = \"customer\"", "to = \"order\""),
        ],
        &expect![[r#"
            Check customer.name: the field is required now, but items may be without it; give it a fill, or a default instead
            Check customer.name: min_length is stricter now, and values that are there may break it
            Check customer.name: max_length is stricter now, and values that are there may break it
            Check customer.kind: one_of is stricter now, and values that are there may break it
            Rewrite customer.size: the scale changed from 2 to 3
            Check customer.state: the state off was removed, but items may be in it; say where they go with moved_to
            Check customer.lines: min_items is stricter now, and values that are there may break it
            Check customer.lines: max_items is stricter now, and values that are there may break it
            Rewrite customer.lines[].n: the type changed from integer to text
            Rewrite customer.twice: the expression changed, but the values that are there were computed by the old one
            CheckUnique(0) customer.name: the values are unique now, but those that are there may not be
            Refuse order: the parent changed from customer to none, but the items belong where they are
            Refuse order: the kind of id changed from uuid to integer, but ids never change
            Check order.code: pattern is stricter now, and values that are there may break it
            Check order.must: the new field is required, but the items that are there have no value for it; give it a fill, or a default instead
            Rewrite order.sum: the new field is computed, but the items that are there have no value for it
            Overwrite order.friend: the ref points to another resource, where its numbers are other items
        "#]],
    );
}

#[test]
fn diff_with_tighter_bounds_is_refused() {
    check(
        &[("min = 1, max = 9, nullable = true", "min = \"1.01\", max = 8.99, required = true")],
        &expect![[r#"
            Check customer.size: the field is required now, but items may be without it; give it a fill, or a default instead
            Check customer.size: min is stricter now, and values that are there may break it
            Check customer.size: max is stricter now, and values that are there may break it
        "#]],
    );
}

#[test]
fn diff_removals_are_refused() {
    check(
        &[
            ("kind = { type = \"text\", one_of = [\"a\", \"b\"] }", ""),
            (
                "n = { type = \"integer\" }",
                "m = { type = \"integer\", required = true }, k = { type = \"text\", nullable = true }",
            ),
            ("[resources.order", "[resources.purchase"),
            (
                "to = \"customer\"",
                "to = \"customer\" }\n[resources.extra]\n[resources.extra.fields]\nx = { type = \"text\"",
            ),
        ],
        &expect![[r#"
            Check customer.lines[].m: the new field is required, but stored objects do not have it; give it a fill
            Rewrite customer.lines[].k: the new field is nullable, but stored objects do not have it
            Remove customer.lines[].n: the field was removed, but stored objects may have it
            Remove customer.kind: the field was removed, but the database keeps values for it
            add purchase
            add extra
            Remove order: the resource was removed, but the database keeps its items
        "#]],
    );
    let old = model(BASE);
    let new = model("[resources.customer]\n");
    assert!(compare(&old, &new).contains(&Difference::Change(ModelChange {
        resource: old.declared().nth(1).unwrap().index,
        path: "order".into(),
        reason: "the resource was removed, but the database keeps its items".into(),
        effect: MigrationEffect::Remove,
        field: None,
    })));
}

#[test]
fn diff_unique_implied_by_another_is_allowed() {
    let base = |unique: &str, a: &str| {
        let text = format!(
            "[resources.r]\n{unique}\n[resources.r.fields]\na = {{ type = \"text\"{a} }}\nb = {{ type = \"text\" }}\n"
        );
        model(&text)
    };
    let wide = base("", ", unique = true");
    let pair = base("unique = [[\"a\", \"b\"]]", "");
    assert_eq!(compare(&wide, &pair), []);
    assert_eq!(compare(&pair, &wide).len(), 1);
}

#[test]
fn loosened_rules_lists_rules_removed_or_relaxed() {
    let strict = "[resources.r]\nunique = [[\"a\", \"b\"]]\n[resources.r.fields]\n\
        a = { type = \"text\", required = true, unique = true, max_length = 5 }\n\
        b = { type = \"integer\", min = 3 }\n\
        c = { type = \"text\", one_of = [\"x\"] }\n\
        d = { type = \"list\", of = { fields = { n = { type = \"text\", max_length = 5 } } } }\n";
    let strict_model = model(strict);
    assert_eq!(loosened_rules(&strict_model, &strict_model), Vec::<String>::new());
    let more = format!(
        "{strict}e = {{ type = \"text\" }}\n[resources.s.fields]\nx = {{ type = \"text\" }}\n"
    );
    let more = more.replace("[\"x\"]", "[\"x\", \"y\"]");
    assert_eq!(loosened_rules(&strict_model, &model(&more)), Vec::<String>::new());
    // A stricter rule drops nothing.
    let stricter = strict.replace("min = 3", "min = 4");
    assert_eq!(loosened_rules(&strict_model, &model(&stricter)), Vec::<String>::new());
    let looser = strict
        .replace("unique = [[\"a\", \"b\"]]\n", "")
        .replace("required = true, unique = true, max_length = 5", "max_length = 6")
        .replace("min = 3", "min = 2")
        .replace("{ type = \"text\", max_length = 5 } }", "{ type = \"text\" } }");
    let lines = loosened_rules(&strict_model, &model(&looser));
    expect![[r#"
        r.a: the field is required
        r.a: max_length is stricter
        r.b: min is stricter
        r.d[].n: max_length is stricter
        r.a: the values are unique
        r.a+b: the values are unique"#]]
    .assert_eq(&lines.join("\n"));
}

/// Regression: a resource without a parent was compared as if its parent were called `none`.
#[test]
fn diff_of_a_parent_named_none_is_refused() {
    let top = "[resources.none.fields]\nn = { type = \"text\" }\n[resources.a.fields]\nn = { type = \"text\" }\n";
    let nested = format!("{top}[resources.a]\nparent = \"none\"\n");
    for (old, new) in [(top, &*nested), (&*nested, top)] {
        let found = compare(&model(old), &model(new));
        assert!(
            matches!(&*found, [Difference::Change(change)] if change.reason.contains("the parent")),
            "{found:?}"
        );
    }
}

/// The stored model has the version of the texts that follow from a field; a model file does not.
#[test]
fn diff_of_another_version_of_derived_texts_makes_them_anew() {
    let field = "name = { type = \"text\", filter = true, match = true, order = \"unicode\" }";
    let text = format!("title = \"T\"\n[resources.note.fields]\n{field}\n");
    let new = read("m.toml", &text).unwrap();
    let stored = |version: &str| {
        let shape = new.shape.replace("derived_version = 1", version);
        crate::model::read_shape(&shape).unwrap_or_else(|errors| panic!("{errors}"))
    };
    assert_eq!(compare(&stored("derived_version = 1"), &new), []);
    match &compare(&stored("derived_version = 7"), &new)[..] {
        [Difference::Change(change)] => assert_eq!(change.effect, MigrationEffect::Derive),
        other => panic!("{other:?}"),
    }
    let text = text.replace("match = true", "match = true, derived_version = 1");
    assert!(read("m.toml", &text).is_err());
}
