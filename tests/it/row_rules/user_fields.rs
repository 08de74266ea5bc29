//! Declared fields of users, and rules that compare them.

use serde_json::{Value, json};

use super::{RowRules, text};
use crate::harness::{Backend, EventSource, Folder, Person, Received, Setup, StreamEnd, run_nouns};

const MODEL: &str = r#"
title = "Tenants"

[users.fields]
tenant = { type = "text", max_length = 10 }
level  = { type = "integer", min = 0 }
since  = { type = "date" }
rate   = { type = "decimal", scale = 2 }

[resources.note.fields]
tenant = { type = "text", filter = true }
level  = { type = "integer" }
text   = { type = "text" }

[roles.member]
note = { verbs = "*", where = "tenant = $user.tenant and (level <= $user.level or not level > 0)" }
"/-/changes" = ["get"]

[roles.rated]
note = { verbs = "*", where = "$user.rate in [1, 2.5] or $user.rate in [7.00, 8.00]" }
"#;

fn user_path(rules: &mut RowRules, name: &str) -> String {
    let found = rules.request("admin", &format!("GET /-/users?name={name}"), &Value::Null).json();
    format!("/-/users/{}", text(&found["users"][0]["id"]))
}

fn set(rules: &mut RowRules, name: &str, fields: &Value) -> u16 {
    let path = user_path(rules, name);
    rules.status("admin", &format!("PATCH {path}"), &json!({"user": fields}))
}

on_every_backend! {
    fn user_fields_are_set_by_admins_and_decide_rows(backend: Backend) {
        let mut rules = RowRules::start(backend, MODEL, &[("ann", "member"), ("bob", "member")]);
        for (tenant, level, note) in [("acme", 1, "a"), ("acme", 3, "b"), ("other", 1, "c"), ("acme", 0, "d")] {
            rules.create("/notes", &json!({"note": {"tenant": tenant, "level": level, "text": note}}));
        }
        // A comparison with an absent field is not true.
        assert_eq!(rules.list("ann", "/notes", "text"), Vec::<String>::new());
        assert_eq!(set(&mut rules, "ann", &json!({"tenant": "acme"})), 200);
        assert_eq!(rules.list("ann", "/notes", "text"), ["d"]);
        assert_eq!(set(&mut rules, "ann", &json!({"level": 2, "since": "2026-11-18"})), 200);
        assert_eq!(rules.list("ann", "/notes", "text"), ["a", "d"]);
        assert_eq!(rules.list("bob", "/notes", "text"), Vec::<String>::new());
        let path = user_path(&mut rules, "ann");
        let shown = rules.request("admin", &format!("GET {path}"), &Value::Null).json();
        assert_eq!(shown["user"]["tenant"], "acme");
        assert_eq!(shown["user"]["level"], 2);
        assert_eq!(shown["user"]["since"], "2026-11-18");
        for wrong in [json!({"tenant": "much too long a name"}), json!({"level": -1}), json!({"level": "x"}), json!({"nothing": 1})] {
            assert_eq!(set(&mut rules, "ann", &wrong), 422, "{wrong}");
        }
        // Nobody gives an item away, or takes one.
        let of = |tenant: &str| json!({"note": {"tenant": tenant, "level": 1, "text": "new"}});
        assert_eq!(rules.status("ann", "POST /notes", &of("other")), 403);
        let made = rules.request("ann", "POST /notes", &of("acme"));
        assert_eq!(made.status, 201, "{made:?}");
        let made = made.header("Location").unwrap().to_owned();
        assert_eq!(rules.status("ann", &format!("PATCH {made}"), &json!({"note": {"tenant": "other"}})), 403);
        assert_eq!(rules.status("ann", &format!("GET {path}"), &Value::Null), 403);
        // Null removes a field.
        assert_eq!(set(&mut rules, "ann", &json!({"level": null})), 200);
        assert_eq!(rules.list("ann", "/notes", "text"), ["d"]);
    }

    /// The literals have other scales than the field.
    fn user_decimal_is_compared_with_a_list_of_numbers(backend: Backend) {
        let mut rules = RowRules::start(backend, MODEL, &[("ann", "rated")]);
        rules.create("/notes", &json!({"note": {"text": "a"}}));
        for (rate, is_listed) in
            [("1.00", true), ("2.50", true), ("8.00", true), ("0.01", false), ("0.25", false), ("100.00", false)]
        {
            assert_eq!(set(&mut rules, "ann", &json!({"rate": rate})), 200, "{rate}");
            assert_eq!(!rules.list("ann", "/notes", "text").is_empty(), is_listed, "{rate}");
            let status = rules.status("ann", "POST /notes", &json!({"note": {"text": "b"}}));
            assert_eq!(status, if is_listed { 201 } else { 403 }, "{rate}");
        }
    }

    /// As a change of roles does.
    fn user_field_change_ends_the_streams_of_the_user(backend: Backend) {
        let mut rules = RowRules::start(backend, MODEL, &[("ann", "member")]);
        assert_eq!(set(&mut rules, "ann", &json!({"tenant": "acme", "level": 5})), 200);
        let login = rules.login("ann");
        let mut stream = EventSource::new("/notes?since=0")
            .header("Authorization", &login)
            .connected(rules.server.address);
        rules.create("/notes", &json!({"note": {"tenant": "other", "text": "a"}}));
        rules.create("/notes", &json!({"note": {"tenant": "acme", "level": 1, "text": "b"}}));
        let event = stream.next_event();
        assert_eq!((event.kind.as_str(), &event.json()["data"]["after"]["text"]), ("created", &json!("b")), "{event:?}");
        assert_eq!(set(&mut rules, "ann", &json!({"tenant": "other"})), 200);
        assert_eq!(stream.receive(), Received::End(StreamEnd::Truncated));
        assert_eq!(rules.changes("ann", "note").len(), 0, "the level of the other note is absent");
        assert_eq!(set(&mut rules, "ann", &json!({"tenant": "acme"})), 200);
        assert_eq!(rules.changes("ann", "note").len(), 1);
    }

    /// Fields are added at a start, kept when they are not declared, and back when they are.
    fn user_fields_survive_a_model_without_them(backend: Backend) {
        let without = MODEL
            .replace("level  = { type = \"integer\", min = 0 }\nsince  = { type = \"date\" }\nrate   = { type = \"decimal\", scale = 2 }\n", "")
            .replace("$user.rate in [1, 2.5] or $user.rate in [7.00, 8.00]", "$user = 'x'")
            .replace(" and (level <= $user.level or not level > 0)", "");
        let setup = |model: &str| Setup::new(backend).model(model).with_authentication();
        let first = Setup::new(backend).model(&without).with_authentication().start();
        let ann = Person::new("ann", "a word for each");
        let path = first.add_user(&ann, &["member"]);
        let folder = first.stop();
        let admin = |server: &crate::harness::Server| server.admin().basic();
        let patch = |server: &crate::harness::Server, body: &str| {
            let login = admin(server);
            server.request(&format!("PATCH {path}"), &[("Authorization", &login)], body).status
        };
        let get = |server: &crate::harness::Server| {
            let login = admin(server);
            server.request(&format!("GET {path}"), &[("Authorization", &login)], "").json()["user"].clone()
        };
        let second = setup(MODEL).start_in(folder);
        assert_eq!(patch(&second, r#"{"user":{"tenant":"acme","level":3}}"#), 200);
        let third = setup(&without).start_in(second.stop());
        let shown = get(&third);
        assert_eq!((&shown["tenant"], &shown["level"]), (&json!("acme"), &Value::Null));
        assert_eq!(patch(&third, r#"{"user":{"tenant":"beta"}}"#), 200);
        let fourth = setup(MODEL).start_in(third.stop());
        let shown = get(&fourth);
        assert_eq!((&shown["tenant"], &shown["level"]), (&json!("beta"), &json!(3)));
        // Another type needs another name.
        let other = MODEL.replace("level  = { type = \"integer\", min = 0 }", "level = { type = \"text\" }")
            .replace(" and (level <= $user.level or not level > 0)", "");
        let Err((failed, _)) = setup(&other).try_start_in(fourth.stop()) else { panic!("it started") };
        assert!(failed.stderr.contains("users.fields.level"), "{}", failed.stderr);
    }
}

#[test]
fn user_command_sets_fields() {
    let server = Setup::new(Backend::Sqlite).model(MODEL).with_authentication().start();
    let (database, key_file) = (server.database(), server.key_file());
    let places = ["--model", "model.toml", "--database", &database];
    let run = |args: &[&str]| {
        let key = ["--key-file", key_file.to_str().unwrap()];
        let done = run_nouns(server.folder(), &[args, &places, &key].concat());
        format!("{}{}", done.stdout, done.stderr)
    };
    server.add_user(&Person::new("ann", "a word for each"), &["member"]);
    let all = ["user", "set", "ann", "--field", "tenant=acme", "--field", "level=4"];
    assert_eq!(run(&all), "nouns: set 2 fields of ann\n");
    let listed = run(&["user", "list", "--json"]);
    assert!(listed.contains(r#""tenant":"acme","level":4"#), "{listed}");
    // All fields in one write: the user was added with version 1.
    let login = server.admin().basic();
    let shown = server.request("GET /-/users?name=ann", &[("Authorization", &login)], "").json();
    assert_eq!(shown["users"][0]["version"], 2, "{shown}");
    assert_eq!(run(&["user", "set", "ann", "--field", "level="]), "nouns: set 1 field of ann\n");
    assert!(!run(&["user", "list", "--json"]).contains("\"level\""));
    for (flag, cause) in [
        ("level=x", "level: "),
        ("tenant", "expected NAME=VALUE"),
        ("nothing=1", "the model declares no users.fields.nothing"),
    ] {
        let said = run(&["user", "set", "ann", "--field", flag]);
        assert!(said.contains(cause), "{said}");
    }
}

#[test]
fn user_field_mistakes_are_found_by_check() {
    let folder = Folder::new();
    let check = |fields: &str| {
        let model = format!(
            "title = \"T\"\n[users.fields]\n{fields}\n[resources.a.fields]\nx = {{ type = \"text\" }}\n"
        );
        std::fs::write(folder.path().join("nouns.toml"), model).unwrap();
        run_nouns(folder.path(), &["check"]).stderr
    };
    for (fields, cause) in [
        ("name = { type = \"text\" }", "`name` cannot be a field of users"),
        ("id = { type = \"text\" }", "`id` cannot be a field of users"),
        ("a = { type = \"text\", required = true }", "`required` is not for fields of users"),
        (
            "a = { type = \"list\", of = { type = \"text\" } }",
            "a field of users has one value, not a `list`",
        ),
        (
            "a = { type = \"ref\", to = \"a\" }",
            "a `ref` can only be a field of the resource itself",
        ),
    ] {
        let said = check(fields);
        assert!(said.contains(cause), "{fields}: {said}");
    }
}
