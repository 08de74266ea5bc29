//! Defaults that are made from the declared fields of the user: `default = { from = "user.tenant" }`.

use expect_test::expect;
use serde_json::{Value, json};

use super::{faults, send};
use crate::harness::{Answer, Backend, Folder, Person, Server, Setup, run_nouns};

const MODEL: &str = r#"
title = "Tenants"

[users.fields]
tenant = { type = "text", max_length = 40 }
level  = { type = "integer" }
rate   = { type = "decimal", scale = 1 }
share  = { type = "number" }
trusted = { type = "boolean" }
seen   = { type = "timestamp" }
born   = { type = "date" }

[resources.note.fields]
text    = { type = "text", required = true }
tenant  = { type = "text", default = { from = "user.tenant" }, filter = true }
level   = { type = "integer", default = { from = "user.level" }, max = 10 }
rate    = { type = "decimal", scale = 2, default = { from = "user.rate" } }
share   = { type = "number", default = { from = "user.share" } }
trusted = { type = "boolean", default = { from = "user.trusted" } }
seen    = { type = "timestamp", default = { from = "user.seen" } }
born    = { type = "text", default = { from = "user.born" } }
high    = { type = "boolean", computed = "level > 5" }

[resources.letter.fields]
tenant = { type = "text", required = true, default = { from = "user.tenant" } }

[roles.member]
note = { verbs = "*", where = "tenant = $user.tenant" }

[roles.anyone]
letter = ["get", "post"]
"#;

/// A server with a member of a tenant, and one without a tenant.
struct Tenants {
    server: Server,
    ann: Person,
    nobody: Person,
}

impl Tenants {
    fn open(backend: Backend) -> Self {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let [ann, nobody] =
            ["ann", "nobody"].map(|name| Person::new(name, "correct horse battery"));
        let path = server.add_user(&ann, &["member"]);
        server.add_user(&nobody, &["member"]);
        let fields = json!({"user": {"tenant": "acme", "level": 7, "rate": "1.5", "share": 0.1,
            "trusted": true, "seen": "2026-11-18T10:00:00Z", "born": "1999-12-31"}});
        let set = send(&server, Some(&server.admin()), &format!("PATCH {path}"), &fields);
        assert_eq!(set.status, 200, "{set:?}");
        Self { server, ann, nobody }
    }

    fn send(&self, who: Option<&Person>, line: &str, body: &Value) -> Answer {
        send(&self.server, who, line, body)
    }

    fn note(&self, who: &Person, members: &Value) -> Answer {
        self.send(Some(who), "POST /notes", &json!({"note": members}))
    }
}

on_every_backend! {
    fn default_from_a_user_field_is_made_for_each_new_item(backend: Backend) {
        let tenants = Tenants::open(backend);
        let made = tenants.note(&tenants.ann, &json!({"text": "a"}));
        assert_eq!(made.status, 201, "{made:?}");
        let note = &made.json()["note"];
        for (field, value) in [
            ("tenant", json!("acme")), ("level", json!(7)), ("rate", json!("1.50")), ("share", json!(0.1)),
            ("trusted", json!(true)), ("seen", json!("2026-11-18T10:00:00.000000Z")), ("born", json!("1999-12-31")),
            ("high", json!(true)),
        ] {
            assert_eq!(note[field], value, "{field}");
        }
        // The row filter protects the field, which may be sent too.
        assert_eq!(tenants.note(&tenants.ann, &json!({"text": "b", "tenant": "acme"})).status, 201);
        let other = tenants.note(&tenants.ann, &json!({"text": "b", "tenant": "other"}));
        assert_eq!(faults(&other), "403 outside-grant\n/note/tenant | outside | your roles do not allow items with this value");
        let bulk = json!({"notes": [{"text": "c"}, {"text": "d", "level": 1}]});
        let bulk = tenants.send(Some(&tenants.ann), "POST /notes", &bulk).json();
        assert_eq!((&bulk["notes"][0]["level"], &bulk["notes"][1]["level"]), (&json!(7), &json!(1)));
        assert_eq!(bulk["notes"][1]["tenant"], "acme");
    }

    /// PUT keeps what was made, also by another user.
    fn default_from_a_user_field_is_kept_by_put(backend: Backend) {
        let tenants = Tenants::open(backend);
        let path = tenants.note(&tenants.ann, &json!({"text": "a"})).header("Location").unwrap().to_owned();
        let admin = tenants.server.admin();
        let put = tenants.send(Some(&admin), &format!("PUT {path}"), &json!({"note": {"text": "b"}}));
        assert_eq!((put.status, &put.json()["note"]["tenant"]), (200, &json!("acme")));
        let patched = tenants.send(Some(&admin), &format!("PATCH {path}"), &json!({"note": {"tenant": null}}));
        assert_eq!((patched.status, patched.json()["note"].get("tenant")), (200, None));
    }

    fn default_from_a_user_field_that_the_caller_lacks_is_absent(backend: Backend) {
        let tenants = Tenants::open(backend);
        let admin = tenants.server.admin();
        // The row filter is not true of a note without a tenant.
        assert_eq!(tenants.note(&tenants.nobody, &json!({"text": "a"})).status, 403);
        let made = tenants.note(&admin, &json!({"text": "a"})).json();
        assert_eq!(made["note"].get("tenant"), None, "{made}");
        for who in [None, Some(&tenants.nobody), Some(&admin)] {
            let letter = tenants.send(who, "POST /letters", &json!({"letter": {}}));
            assert_eq!(faults(&letter), "422 invalid-fields\n/letter/tenant | required | expected a text, got nothing");
        }
        let letter = tenants.send(Some(&tenants.ann), "POST /letters", &json!({"letter": {}}));
        assert_eq!(letter.json()["letter"]["tenant"], "acme");
    }

    /// An admin is not restricted, and has fields too. The made value satisfies the rules of its field.
    fn default_from_a_user_field_of_an_admin_and_out_of_range(backend: Backend) {
        let tenants = Tenants::open(backend);
        let admin = tenants.server.admin();
        let found = tenants.send(Some(&admin), &format!("GET /-/users?name={}", admin.name), &json!(null)).json();
        let path = format!("/-/users/{}", found["users"][0]["id"].as_str().unwrap());
        let set = |level: i64| {
            let fields = json!({"user": {"tenant": "root", "level": level}});
            assert_eq!(tenants.send(Some(&admin), &format!("PATCH {path}"), &fields).status, 200);
        };
        set(3);
        let made = tenants.note(&admin, &json!({"text": "a"})).json();
        assert_eq!((&made["note"]["tenant"], &made["note"]["level"]), (&json!("root"), &json!(3)), "{made}");
        set(11);
        let refused = tenants.note(&admin, &json!({"text": "a"}));
        assert_eq!(faults(&refused), "422 invalid-fields\n/note/level | range | expected at most 10, got 11");
    }

    fn default_from_a_user_field_is_described(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let document = server.get("/-/openapi.json").json();
        let about = &document["components"]["schemas"]["note.create"]["properties"]["tenant"]["description"];
        assert_eq!(about, "If it is left out: the `tenant` of the caller, or nothing for a caller without one.");
        let page = server.request("GET /notes", &[("Accept", "text/html")], "");
        assert!(page.text().contains("Without a value: your tenant."), "{}", page.text());
    }

    /// The stored model does not have the fields of users.
    fn default_from_a_user_field_outlives_a_restart(backend: Backend) {
        let tenants = Tenants::open(backend);
        let ann = tenants.ann;
        let server = Setup::new(backend).model(MODEL).with_authentication().start_in(tenants.server.stop());
        let made = send(&server, Some(&ann), "POST /notes", &json!({"note": {"text": "a"}}));
        assert_eq!((made.status, &made.json()["note"]["tenant"]), (201, &json!("acme")));
    }
}

/// The output of `nouns check` for a model with such a field.
fn check(users: &str, field: &str) -> String {
    let folder = Folder::new();
    let model = format!("title = \"T\"\n{users}\n[resources.a.fields]\nx = {{ {field} }}\n");
    std::fs::write(folder.path().join("nouns.toml"), model).unwrap();
    run_nouns(folder.path(), &["check"]).stderr
}

const USERS: &str = "[users.fields]\ntenant = { type = \"text\" }\nrate = { type = \"decimal\", scale = 3 }\nmail = { type = \"email\" }";

#[test]
fn default_from_a_user_field_is_typed() {
    assert_eq!(check(USERS, "type = \"text\", default = { from = \"user.mail\" }"), "");
    let unknown = check("", "type = \"text\", default = { from = \"user.tenant\" }");
    expect![[r#"
        error: users have no field `tenant`
         --> nouns.toml:4:41
          |
        4 | x = { type = "text", default = { from = "user.tenant" } }
          |                                         ^^^^^^^^^^^^^
          |
          = help: declare it: [users.fields]
    "#]]
    .assert_eq(&unknown);
    let misspelt = check(USERS, "type = \"text\", default = { from = \"user.tenent\" }");
    expect![[r#"
        error: users have no field `tenent`
         --> nouns.toml:7:41
          |
        7 | x = { type = "text", default = { from = "user.tenent" } }
          |                                         ^^^^^^^^^^^^^
          |
          = help: did you mean `user.tenant`?
    "#]]
    .assert_eq(&misspelt);
    let other_type = check(USERS, "type = \"integer\", default = { from = \"user.tenant\" }");
    expect![[r#"
        error: a field of type `integer` cannot have a default of type `text`: user.tenant
         --> nouns.toml:7:44
          |
        7 | x = { type = "integer", default = { from = "user.tenant" } }
          |                                            ^^^^^^^^^^^^^
          |
          = help: give both the same type; a `text` can also be made from an email, url, date or uuid
    "#]].assert_eq(&other_type);
}

#[test]
fn default_from_a_user_field_fits_the_rules_of_its_type() {
    let narrower = check(USERS, "type = \"email\", default = { from = \"user.tenant\" }");
    expect![[r#"
        error: a field of type `email` cannot have a default of type `text`: user.tenant
         --> nouns.toml:7:42
          |
        7 | x = { type = "email", default = { from = "user.tenant" } }
          |                                          ^^^^^^^^^^^^^
          |
          = help: give both the same type; a `text` can also be made from an email, url, date or uuid
    "#]].assert_eq(&narrower);
    let scale = check(USERS, "type = \"decimal\", default = { from = \"user.rate\" }");
    expect![[r#"
        error: user.rate has a `scale` of 3, and the field one of 2
         --> nouns.toml:7:44
          |
        7 | x = { type = "decimal", default = { from = "user.rate" } }
          |                                            ^^^^^^^^^^^
          |
          = help: give both the same `scale`
    "#]]
    .assert_eq(&scale);
    let nested = check(
        USERS,
        "type = \"object\", fields = { y = { type = \"text\", default = { from = \"user.tenant\" } } }",
    );
    expect![[r#"
        error: `from` works on fields of the resource itself
         --> nouns.toml:7:68
          |
        7 | x = { type = "object", fields = { y = { type = "text", default = { from = "user.tenant" } } } }
          |                                                                    ^^^^
          |
          = help: inside lists and objects, a default is a constant
    "#]].assert_eq(&nested);
    let word = check(USERS, "type = \"text\", default = { from = \"usr\" }");
    expect![[r#"
        error: `from` expected "now" or "user" or "uuid", got "usr"
         --> nouns.toml:7:41
          |
        7 | x = { type = "text", default = { from = "usr" } }
          |                                         ^^^^^
          |
          = help: did you mean `user`?
    "#]]
    .assert_eq(&word);
}
