//! Tests of the reader: the examples have no mistakes, every broken model has the expected ones, nothing
//! panics.

use std::fs;
use std::path::Path;

use expect_test::expect_file;
use proptest::prelude::*;

use super::*;
use crate::model::resource::Referrer;
use crate::model::{
    Algorithm, AuditedUser, AuthScheme, ChallengeForm, Field, OnDelete, Qop, RealmIndex,
    ResourceIndex, types,
};
use crate::value::Value;

const STORE: &str = include_str!("../../../examples/store/nouns.toml");
const LIBRARY: &str = include_str!("../../../examples/library/nouns.toml");

fn good(text: &str) -> Model {
    read("nouns.toml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn examples_are_read_without_mistakes() {
    for text in [STORE, LIBRARY] {
        good(text);
    }
}

#[test]
fn broken_models_show_their_mistakes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/broken");
    let mut paths: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let mut several = 0;
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let errors = read(name, &text).expect_err(name);
        several += usize::from(errors.mistakes().len() > 1);
        expect_file![path.with_extension("txt")].assert_eq(&errors.render(false));
    }
    assert!(paths.len() >= 44, "{} broken models", paths.len());
    assert!(several >= 6, "{several} of them with several mistakes");
}

#[test]
fn example_store_is_read_as_declared() {
    let model = good(STORE);
    assert_eq!(&*model.title, "Store");
    let [customer, order] = &*model.declared().collect::<Vec<_>>() else { panic!("two resources") };
    assert_eq!((&*customer.plural, customer.depth, customer.parent), ("customers", 0, None));
    assert_eq!((&*order.plural, order.depth, order.parent), ("orders", 1, Some(ResourceIndex(0))));
    assert_eq!(customer.children, [ResourceIndex(1)]);
    assert_eq!(
        (customer.parent_key.as_deref(), order.parent_key.as_deref()),
        (None, Some("customer_id"))
    );
    assert_eq!((order.realm, order.on_delete), (RealmIndex(0), OnDelete::Cascade));
    let names: Vec<&str> = order.fields.iter().map(|field| &*field.name).collect();
    assert_eq!(names, ["status", "currency", "items", "total", "note"]);
    let (_, states) = order.state_field().unwrap();
    assert_eq!(states.successors("placed"), ["paid".into(), "cancelled".into()]);
    assert_eq!(order.fields[1].default, Some(Value::text("EUR")));
    assert!(order.fields[0].filter, "a state is filterable by itself");
    let grants = &model.roles[1].grants;
    assert_eq!((grants[0].verbs.len(), grants[0].condition.is_some()), (3, true));
    assert_eq!(model.roles[0].grants[1].verbs.len(), 5);
}

#[test]
fn example_library_has_every_type_and_relation() {
    fn collect<'f>(fields: impl Iterator<Item = &'f Field>, seen: &mut Vec<&'static str>) {
        for field in fields {
            seen.push(field.kind.name);
            collect(field.rules.fields.iter().chain(field.rules.element.as_deref()), seen);
        }
    }
    let model = good(LIBRARY);
    let mut seen = Vec::new();
    model.resources.iter().for_each(|resource| collect(resource.fields.iter(), &mut seen));
    for kind in types::ALL {
        assert!(seen.contains(&kind.name), "{}", kind.name);
    }
    let find =
        |name: &str| model.resources.iter().find(|resource| &*resource.name == name).unwrap();
    let copy = find("copy");
    assert_eq!(
        model.lineage(copy.index).iter().map(|resource| &*resource.plural).collect::<Vec<_>>(),
        ["branches", "shelves", "copies"]
    );
    assert_eq!((copy.realm, find("person").realm), (RealmIndex(1), RealmIndex(0)));
    assert_eq!(
        copy.referrers,
        [Referrer { resource: find("loan").index, field: 0, on_delete: OnDelete::Cascade }]
    );
    assert_eq!(find("work").unique.len(), 2);
    let librarian = &model.roles[1].grants;
    assert_eq!(librarian.len(), model.declared().count(), "\"*\" is every declared one");
    assert_eq!(
        librarian[find("member").index.0].verbs.len(),
        3,
        "the named resource is not the starred one"
    );
    assert_eq!(model.server.limits.page_items_default, 20);
    assert_eq!(model.server.limits.page_items_max, 500);
}

#[test]
fn shape_round_trips() {
    for text in [STORE, LIBRARY] {
        let shape = good(text).shape;
        let again = read_shape(&shape).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(again.shape, shape);
    }
}

/// Earlier versions accepted keys without an effect, and databases store them.
#[test]
fn shape_of_an_earlier_version_is_read() {
    let shape = "[resources.customer]\nplural = \"customers\"\nrenamed_from = \"client\"\n\n[resources.customer.fields]\nname = { type = \"text\", filter = true, search = true, default = \"$user\", renamed_from = \"n\" }\n";
    let model = read_shape(shape).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(
        model.shape,
        "[resources.customer]\nplural = \"customers\"\n\n[resources.customer.fields]\nname = { type = \"text\", default = \"$user\", filter = true }\n"
    );
}

#[test]
fn shape_contains_only_what_affects_data() {
    let model = good(
        r#"
        title = "T"
        [roles.clerk]
        thing = "*"
        [resources.thing.fields]
        b = { filter = true, type = "decimal", default = 1.5, scale = 3, max = 9, min = "0" } # a comment
        a = { type = "json", default = { x = [1, 2.50, "\u0007\"é"], y = { z = true } }, required = false }
        c = { type = "list", of = { fields = { n = { type = "integer", default = 1 } } }, default = [{ n = 2 }, {}] }
        d = { type = "timestamp", min = 2026-01-01T00:00:00Z, nullable = true }
        [resources.thing]
        id = "uuid"
        changes = "values"
        "#,
    );
    expect_test::expect![[r#"
        [resources.thing]
        plural = "things"

        [resources.thing.fields]
        b = { type = "decimal", default = "1.500", filter = true, scale = 3, min = "0.000", max = "9.000" }
        a = { type = "json", default = { "x" = [1, 2.50, "\u0007\"é"], "y" = { "z" = true } } }
        c = { type = "list", default = [{ n = 2 }, { n = 1 }], of = { type = "object", fields = { n = { type = "integer", default = 1 } } } }
        d = { type = "timestamp", nullable = true, min = "2026-01-01T00:00:00.000000Z" }
    "#]]
    .assert_eq(&model.shape);
    assert_eq!(read_shape(&model.shape).unwrap().shape, model.shape);
}

#[test]
fn realm_not_declared_is_named_nouns() {
    let model = good("title = \"A \\\"shop\\\"\"\n[resources.thing]\n");
    assert_eq!(&*model.realms[0].name, "nouns");
    let realm = model.realm(model.server_realm());
    assert_eq!(realm.schemes, [AuthScheme::Digest, AuthScheme::Basic]);
    assert_eq!(realm.algorithms, [Algorithm::Sha256, Algorithm::Md5]);
    assert_eq!((&realm.qop[..], realm.challenge), (&[Qop::Auth][..], ChallengeForm::Merged));
    assert!(!realm.legacy);
}

#[test]
fn realm_is_read_as_declared() {
    let model = good(
        r#"
        title = "Shop"
        [server]
        realm = "back"
        [realms.front]
        schemes = ["basic"]
        [realms.back]
        schemes = ["basic", "digest"]
        algorithms = ["md5", "sha-256"]
        qop = ["auth-int", "auth"]
        challenge = "separate"
        legacy = true
        [resources.thing]
        realm = "front"
        "#,
    );
    assert_eq!((model.server_realm(), model.resources[0].realm), (RealmIndex(1), RealmIndex(0)));
    assert_eq!(model.realms[0].schemes, [AuthScheme::Basic]);
    let back = &model.realms[1];
    assert_eq!(back.schemes, [AuthScheme::Basic, AuthScheme::Digest]);
    assert_eq!(back.algorithms, [Algorithm::Sha256, Algorithm::Md5], "strongest first");
    assert_eq!(back.qop, [Qop::AuthInt, Qop::Auth]);
    assert_eq!((back.challenge, back.legacy), (ChallengeForm::Separate, true));
}

#[test]
fn model_limits_are_enforced() {
    let check = |text: &str, expected: &str| {
        let shown = read("nouns.toml", text).unwrap_err().render(false);
        assert!(shown.starts_with(&format!("error: {expected}")), "{shown}");
    };
    check(&" ".repeat(1024 * 1024 + 1), "the file is too large: expected at most 1 MiB");
    let resources: String = (0..1001).map(|index| format!("[resources.r{index}]\n")).collect();
    check(&format!("title = \"T\"\n{resources}"), "expected at most 1000 resources, got 1001");
    let fields: String =
        (0..501).map(|index| format!("f{index} = {{ type = \"text\" }}\n")).collect();
    check(
        &format!("title = \"T\"\n[resources.r.fields]\n{fields}"),
        "expected at most 500 fields, got 501",
    );
    let parents: String = (1..18)
        .map(|index| format!("[resources.r{index}]\nparent = \"r{}\"\n", index - 1))
        .collect();
    check(
        &format!("title = \"T\"\n[resources.r0]\n{parents}"),
        "expected at most 16 resources inside one another",
    );
    check(&format!("title = {}", "[".repeat(100_000)), "not valid TOML");
}

/// Fragments of models, to be inserted at wrong positions.
const PIECES: &[&str] = &[
    "",
    " ",
    "\n",
    "=",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    ",",
    ".",
    "#",
    "\"\"\"",
    "é",
    "\u{feff}",
    "\0",
    "type",
    "\"text\"",
    "\"list\"",
    "\"ref\"",
    "-1",
    "1e999",
    "nan",
    "0x7fff_ffff_ffff_ffff",
    "1979-05-27T07:32:00Z",
    "true",
    "[[\"a\"]]",
    "{}",
    "computed = \"a + ",
    "where",
    "sum(",
    "parent",
    "[resources.order]\n",
    "\"*\"",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn read_arbitrary_text_never_panics(text in "(?s).{0,200}") {
        if let Err(errors) = read("nouns.toml", &text) {
            prop_assert!(!errors.render(false).is_empty());
        }
    }

    #[test]
    fn read_damaged_model_never_panics(
        library in any::<bool>(),
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..12, 0..PIECES.len()), 1..5),
    ) {
        let mut text = if library { LIBRARY } else { STORE }.to_owned();
        for (at, length, piece) in cuts {
            let start = text.floor_char_boundary(at.index(text.len().max(1)));
            let end = text.ceil_char_boundary((start + length).min(text.len()));
            text.replace_range(start..end, PIECES[piece]);
        }
        match read("nouns.toml", &text) {
            Ok(model) => prop_assert_eq!(&read_shape(&model.shape).unwrap().shape, &model.shape),
            Err(errors) => prop_assert!(!errors.render(false).is_empty()),
        }
    }
}

/// A reader takes a value by the name of its key, which no compiler checks.
#[test]
fn keys_are_all_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/model/file");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let readers = paths.filter(|path| !path.ends_with("keys.rs") && !path.ends_with("tests.rs"));
    let text: String = readers.map(|path| fs::read_to_string(path).unwrap()).collect();
    let tables = [
        &keys::ROOT,
        &keys::REALM,
        &keys::RESOURCE,
        &keys::FIELD,
        &keys::CHECK,
        &keys::TRANSITION,
        &keys::DEFAULT,
        &keys::DEPRECATED,
        &keys::GRANT,
        &keys::SERVER,
        &keys::RATE_LIMIT,
    ];
    for (table, name) in
        tables.iter().flat_map(|table| table.names().map(move |name| (table, name)))
    {
        let is_audit = AuditedUser::ALL.iter().any(|user| user.name() == name);
        let is_read = is_audit || text.contains(&format!("\"{name}\""));
        assert!(is_read, "{}: nothing reads `{name}`", table.owner);
    }
}

/// The TOML parser limits each dotted key, and not how they nest.
#[test]
fn default_nested_too_deeply_is_refused() {
    let key = vec!["a"; 70].join(".");
    let text = format!(
        "title = \"T\"\n[resources.thing.fields]\nnote = {{ type = \"json\", default = {{ {key} = {{ {key} = 1 }} }} }}\n"
    );
    let mistakes = read("t.toml", &text).unwrap_err().render(false);
    assert!(mistakes.contains("`default` is nested too deeply"), "{mistakes}");
}
