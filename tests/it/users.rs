//! Users, a built-in resource at `/-/users`.
//!
//! Under `--open`, where every caller may do everything; other files test the permissions.

use std::sync::Barrier;
use std::thread;

use expect_test::expect;
use serde_json::json;

use crate::harness::{Backend, Masks, Person, Server, Setup, run_sql, wait_until};

const ANN: &str = r#"{"user":{"name":"ann","roles":["clerk"],"password":"correct horse"}}"#;

/// How often two concurrent removals are tried.
const ROUNDS: usize = 40;

fn rows(server: &Server, query: &str) -> String {
    Masks::default().text(&run_sql(server.backend(), server.folder(), query))
}

fn stamp(server: &Server) -> i64 {
    let query = "SELECT value FROM nouns_system WHERE name = 'users_stamp'";
    run_sql(server.backend(), server.folder(), query).trim().parse().unwrap()
}

on_every_backend! {
    /// Names that look the same would be different users.
    fn user_name_that_looks_like_another_is_refused(server: Server) {
        let add = |name: &str| server.post("/-/users", json!({"user": {"name": name, "password": "correct horse"}}).to_string());
        assert_eq!(add("ann").status, 201);
        assert_eq!(add("Ann of Green Gables").status, 201);
        // A look-alike of another script, which PRECIS does not compare.
        assert_eq!(add("\u{430}nn").status, 201);
        let names = ["an\u{200b}n", "\u{ff41}\u{ff4e}\u{ff4e}", "ann ", " ann", "ann  b", "\u{202e}ann", "ann\u{3000}b", "\u{fb01}ne"];
        let said = names.map(|name| {
            let answer = add(name);
            assert_eq!((answer.status, answer.problem().as_str()), (422, "invalid-fields"), "{name:?}");
            let error = &answer.json()["errors"][0];
            format!("{} {} {}\n", error["pointer"].as_str().unwrap(), error["code"].as_str().unwrap(), error["detail"].as_str().unwrap())
        });
        expect![[r#"
            /user/name format expected no U+200B, which names may not have (RFC 8265)
            /user/name format expected "ann", which looks like it
            /user/name format expected words with one space between them, and none around them
            /user/name format expected words with one space between them, and none around them
            /user/name format expected words with one space between them, and none around them
            /user/name format expected no U+202E, which names may not have (RFC 8265)
            /user/name format expected no U+3000, which names may not have (RFC 8265)
            /user/name format expected no U+FB01, which names may not have (RFC 8265)
        "#]].assert_eq(&said.concat());
        let list = json!({"users": [{"name": "bob", "password": "correct horse"}, {"name": "bob ", "password": "correct horse"}]});
        assert_eq!(server.post("/-/users", list.to_string()).status, 422);
        assert_eq!(rows(&server, "SELECT count(*) FROM nouns_users").trim(), "3");
    }

    /// They were added before the rule.
    fn user_names_from_before_the_rule_stay_valid(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let old = Person::new("\u{ff42}ob ", "correct horse");
        let path = server.add_user(&Person::new("bob", &old.password), &["clerk"]);
        run_sql(backend, server.folder(), &format!("UPDATE nouns_users SET name = '{}' WHERE name = 'bob'", old.name));
        let get = |person: &Person, path: &str| server.request(&format!("GET {path}"), &[("Authorization", &person.basic())], "");
        wait_until("the server has seen it", || (get(&old, "/customers").status == 200).then_some(()));
        let admin = server.admin();
        let change = |line: &str, body: &str| server.request(&format!("{line} {path}"), &[("Authorization", &admin.basic())], body).status;
        assert_eq!(change("PATCH", r#"{"user":{"roles":["shopper"]}}"#), 200);
        let shown = get(&admin, &path).json();
        assert_eq!(shown["user"]["name"], old.name);
        assert_eq!(change("PUT", &shown.to_string()), 200);
        assert_eq!(change("PATCH", r#"{"user":{"password":"another horse"}}"#), 200);
        assert_eq!(get(&Person::new(&old.name, "another horse"), "/-/health").status, 200);
        assert_eq!(get(&Person::new(&old.name, "another horse"), "/customers").status, 200);
    }

    /// The lifecycle of a user, with every header; the password is in no response.
    fn user_lifecycle_never_shows_the_password(server: Server) {
        let mut masks = Masks::default();
        let created = server.post("/-/users", ANN);
        let path = created.header("Location").unwrap().to_owned();
        let life = [
            created,
            server.get(&path),
            server.put(&path, r#"{"user":{"name":"ann","roles":["admin"],"disabled":true}}"#),
            server.get("/-/users"),
            server.delete(&path),
            server.get(&path),
        ];
        let transcript: Vec<_> = life.iter().map(|answer| masks.answer(answer)).collect();
        expect![[r#"
            HTTP/1.1 201 Created
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            location: /-/users/<id-1>
            etag: "1-<tag-1>"
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 200
            date: <date>

            {"user":{"id":"<id-1>","name":"ann","roles":["clerk"],"disabled":false,"created_at":"<time-1>","updated_at":"<time-1>","version":1}}

            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            etag: "1-<tag-1>"
            last-modified: <date>
            link: </-/changes?subject=/-/users/<id-1>>; rel="version-history"
            x-request-id: <request-2>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 200
            date: <date>

            {"user":{"id":"<id-1>","name":"ann","roles":["clerk"],"disabled":false,"created_at":"<time-1>","updated_at":"<time-1>","version":1}}

            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-3>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 199
            date: <date>

            {"user":{"id":"<id-1>","name":"ann","roles":["admin"],"disabled":true,"created_at":"<time-1>","updated_at":"<time-2>","version":2}}

            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            etag: W/"<tag-2>"
            x-request-id: <request-4>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 234
            date: <date>

            {"users":[{"id":"<id-1>","name":"ann","roles":["admin"],"disabled":true,"created_at":"<time-1>","updated_at":"<time-2>","version":2}],"page":{"limit":50,"next":null}}

            HTTP/1.1 204 No Content
            cache-control: private, no-cache
            x-request-id: <request-5>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            date: <date>



            HTTP/1.1 404 Not Found
            cache-control: private, no-cache
            content-type: application/problem+json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-6>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 178
            date: <date>

            {"type":"/-/problems/not-found","title":"There is no such item","status":404,"instance":"/-/users/<id-1>","request_id":"<request-6>"}"#]].assert_eq(&transcript.join("\n\n"));
        assert!(life.iter().all(|answer| !answer.text().contains("password")));
    }

    /// One entry per change, under a name that no declared resource can have, without any secret.
    fn user_change_log_entries_have_no_secret(server: Server) {
        let path = server.create("/-/users", ANN);
        let same = r#"{"user":{"name":"ann","roles":["clerk"]}}"#;
        assert_eq!(server.put(&path, same).status, 200);
        assert_eq!(server.put(&path, ANN).status, 200);
        assert_eq!(server.put(&path, ANN.replace("clerk", "shopper")).status, 200);
        assert_eq!(server.delete(&path).status, 204);
        let columns = "resource, kind, subject, actor, changed, before, after";
        let log = rows(&server, &format!("SELECT {columns} FROM nouns_changes ORDER BY sequence"));
        expect![[r#"
            -/user|created|/-/users/<id-1>|open|||{"id":"<id-1>","name":"ann","roles":["clerk"],"disabled":false,"created_at":"<time-1>","updated_at":"<time-1>","version":1}
            -/user|updated|/-/users/<id-1>|open|["password"]|{"id":"<id-1>","name":"ann","roles":["clerk"],"disabled":false,"created_at":"<time-1>","updated_at":"<time-1>","version":1}|{"id":"<id-1>","name":"ann","roles":["clerk"],"disabled":false,"created_at":"<time-1>","updated_at":"<time-2>","version":2}
            -/user|updated|/-/users/<id-1>|open|["roles","password"]|{"id":"<id-1>","name":"ann","roles":["clerk"],"disabled":false,"created_at":"<time-1>","updated_at":"<time-2>","version":2}|{"id":"<id-1>","name":"ann","roles":["shopper"],"disabled":false,"created_at":"<time-1>","updated_at":"<time-3>","version":3}
            -/user|deleted|/-/users/<id-1>|open||{"id":"<id-1>","name":"ann","roles":["shopper"],"disabled":false,"created_at":"<time-1>","updated_at":"<time-3>","version":3}|
        "#]].assert_eq(&log);
        assert!(!log.contains("correct horse"));
    }

    /// Fields missing in a PUT are reset to their defaults, but the password stays as it is.
    fn user_put_without_a_password_keeps_it(server: Server) {
        let path = server.create("/-/users", ANN);
        let password = "SELECT password FROM nouns_users";
        run_sql(server.backend(), server.folder(), "UPDATE nouns_users SET password = 'kept'");
        let answer = server.put(&path, r#"{"user":{"name":"ann"}}"#);
        assert_eq!((answer.status, &answer.json()["user"]["roles"]), (200, &json!([])));
        assert_eq!(rows(&server, password).trim(), "kept");
        assert_eq!(server.put(&path, ANN).status, 200);
        assert_ne!(rows(&server, password).trim(), "kept");
        // The sent password is stored nowhere.
        assert!(!rows(&server, password).contains("correct horse"));
    }

    /// A sent password counts as changed, even when it is the same: the version does not reveal it.
    fn user_put_with_the_same_password_is_a_change(server: Server) {
        let path = server.create("/-/users", ANN);
        let version = |answer: crate::harness::Answer| answer.json()["user"]["version"].clone();
        assert_eq!(version(server.put(&path, ANN)), json!(2));
        assert_eq!(version(server.put(&path, ANN)), json!(3));
        let without = r#"{"user":{"name":"ann","roles":["clerk"]}}"#;
        assert_eq!(version(server.put(&path, without)), json!(3));
    }

    /// Every rule of every field, and no response repeats a password.
    fn user_invalid_fields_are_reported_without_the_password(server: Server) {
        let long = "x".repeat(1025);
        let bodies = [
            "{}".to_owned(),
            r#"{"name":"","password":"longenough"}"#.to_owned(),
            r#"{"name":"a:b","password":"longenough"}"#.to_owned(),
            r#"{"name":"a\u0007","password":"longenough"}"#.to_owned(),
            r#"{"name":"e\u0301va","password":"longenough"}"#.to_owned(),
            format!(r#"{{"name":"{}","password":"longenough"}}"#, "n".repeat(201)),
            r#"{"name":"ann","password":"hunter2"}"#.to_owned(),
            format!(r#"{{"name":"ann","password":"{long}"}}"#),
            r#"{"name":"ann","password":null}"#.to_owned(),
            r#"{"name":"ann","password":["hunter2hunter2"]}"#.to_owned(),
            r#"{"name":"ann","password":"longenough","roles":["clerk","boss"]}"#.to_owned(),
            r#"{"name":"ann","password":"longenough","disabled":"no"}"#.to_owned(),
            r#"{"name":"ann","pasword":"hunter2hunter2"}"#.to_owned(),
            r#"{"name":"ann","password":"longenough","id":"x"}"#.to_owned(),
        ];
        let mut told = String::new();
        for body in bodies {
            let answer = server.post("/-/users", format!(r#"{{"user":{body}}}"#));
            assert_eq!(answer.status, 422, "{body}");
            for error in answer.json()["errors"].as_array().unwrap() {
                let part = |name: &str| error[name].as_str().unwrap().to_owned();
                told += &format!("{} {}: {}\n", part("pointer"), part("code"), part("detail"));
            }
            told.push('\n');
            assert!(!answer.text().contains("hunter2"), "{}", answer.text());
            assert!(!answer.text().contains("xxxx"), "{}", answer.text());
        }
        expect![[r#"
            /user/name required: expected a text, got nothing
            /user/password required: expected a text, got nothing

            /user/name length: expected at least 1 character, got 0

            /user/name format: expected a name without a colon

            /user/name format: expected a name without control characters

            /user/name format: expected a name in composed Unicode (NFC)

            /user/name length: expected at most 200 characters, got 201

            /user/password length: expected at least 8 characters, got 7

            /user/password length: expected at most 1024 characters, got 1025

            /user/password null: expected a text, got null

            /user/password type: expected a text, got a list

            /user/roles/1 one_of: expected one of "clerk", "shopper", "admin", got "boss"

            /user/disabled type: expected true or false, got a string

            /user/pasword unknown: no such field; did you mean "password"?
            /user/password required: expected a text, got nothing

            /user/id read_only: set by the server

        "#]].assert_eq(&told);
    }

    fn user_name_taken_is_409(server: Server) {
        server.create("/-/users", ANN);
        let answer = server.post("/-/users", ANN);
        assert_eq!((answer.status, answer.problem().as_str()), (409, "taken"));
        assert_eq!(answer.json()["errors"][0]["pointer"], "/user/name");
        let both = r#"{"users":[{"name":"bea","password":"longenough"},{"name":"bea","password":"longenough"}]}"#;
        let answer = server.post("/-/users", both);
        assert_eq!((answer.status, &answer.json()["errors"][0]["pointer"]), (409, &json!("/users/1/name")));
        assert_eq!(server.get("/-/users").json()["users"].as_array().unwrap().len(), 1);
        // By bytes: another case is another name.
        server.create("/-/users", ANN.replace("ann", "Ann"));
    }

    fn user_name_cannot_be_changed(server: Server) {
        let path = server.create("/-/users", ANN);
        let answer = server.put(&path, ANN.replace("ann", "bea"));
        let errors = json!([{"pointer": "/user/name", "code": "read_only", "detail": "a user keeps its name"}]);
        assert_eq!((answer.status, &answer.json()["errors"]), (422, &errors));
        assert_eq!(server.get(&path).json()["user"]["name"], "ann");
        assert_eq!(server.get(&path).json()["user"]["version"], 1);
    }

    /// The stamp changes with every change of the users, also with one by SQL; refused ones leave it.
    fn users_stamp_differs_after_every_change(server: Server) {
        let before = stamp(&server);
        let path = server.create("/-/users", ANN);
        let created = stamp(&server);
        assert_ne!(created, before);
        assert_eq!(server.post("/-/users", ANN).status, 409);
        assert_eq!(server.put(&path, r#"{"user":{"name":"ann","roles":["clerk"]}}"#).status, 200);
        assert_eq!(stamp(&server), created);
        assert_eq!(server.put(&path, r#"{"user":{"name":"ann","disabled":true}}"#).status, 200);
        let updated = stamp(&server);
        assert_ne!(updated, created);
        run_sql(server.backend(), server.folder(), "UPDATE nouns_users SET disabled = NOT disabled");
        let by_hand = stamp(&server);
        assert_ne!(by_hand, updated);
        assert_eq!(server.delete(&path).status, 204);
        assert_ne!(stamp(&server), by_hand);
    }

    /// Lists, cursors and redirects, below the base path.
    fn users_paths_work_below_the_base_path(backend: Backend) {
        let model = "title = \"T\"\n[server]\nbase_path = \"/api\"\n[resources.user.fields]\nname = { type = \"text\" }\n";
        let server = Setup::new(backend).model(model).start();
        let user = |name: &str| format!(r#"{{"user":{{"name":"{name}","password":"longenough"}}}}"#);
        let own = server.create("/api/-/users", user("ann"));
        server.create("/api/-/users", user("bea"));
        assert!(own.starts_with("/api/-/users/"), "{own}");
        // A model may have users of its own, which are separate from ours.
        let declared = server.create("/api/users", r#"{"user":{"name":"x"}}"#);
        assert!(declared.starts_with("/api/users/"), "{declared}");
        assert_eq!(server.get("/api/users").json()["users"].as_array().unwrap().len(), 1);
        assert_eq!(server.get(&own.replace("/-/", "/")).status, 404);
        let page = server.get("/api/-/users?limit=1");
        let link = page.header("Link").unwrap();
        let next = link.strip_prefix('<').unwrap().split('>').next().unwrap();
        assert!(next.starts_with("/api/-/users?limit=1&cursor="), "{next}");
        assert_eq!(server.get(next).json()["users"][0]["name"], "bea");
        // A cursor of one list is not valid for the other.
        let answer = server.get(&next.replace("/-/", "/"));
        assert_eq!(answer.json()["type"], "/api/-/problems/bad-cursor");
        let moved = server.get("/api/-/users/");
        assert_eq!((moved.status, moved.header("Location")), (308, Some("/api/-/users")));
        let home = server.get("/api").json();
        assert_eq!(home["resources"].as_array().unwrap().len(), 1);
        assert_eq!(home["resources"][0]["path"], "/api/users");
        expect![[r#"
            -/user|/-/users/<id-1>
            -/user|/-/users/<id-2>
            user|/users/<id-3>
        "#]].assert_eq(&rows(&server, "SELECT resource, subject FROM nouns_changes ORDER BY sequence"));
    }

    /// A database from before users gets their table at the next start, and keeps its data.
    fn users_table_is_added_to_an_older_database(server: Server) {
        let order = server.create("/customers", r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#);
        let older = match server.backend() {
            Backend::Sqlite => "DROP TABLE nouns_users",
            Backend::Postgres => "DROP TABLE nouns_users; DROP FUNCTION nouns_count_users()",
        };
        run_sql(server.backend(), server.folder(), older);
        run_sql(server.backend(), server.folder(), "DELETE FROM nouns_system WHERE name = 'users_stamp'");
        let server = server.restart();
        server.create("/-/users", ANN);
        assert_eq!(server.post("/-/users", ANN).status, 409);
        assert_ne!(stamp(&server), 0);
        assert_eq!(server.get(&order).status, 200);
    }

    /// Without an admin nobody could manage users; while there is another one each of them may be
    /// removed.
    fn last_admin_is_409(server: Server) {
        let user = |name: &str, roles: &str| ANN.replace("ann", name).replace("clerk", roles);
        let ann = server.create("/-/users", user("ann", "admin"));
        let bob = server.create("/-/users", user("bob", "clerk"));
        let before = rows(&server, "SELECT * FROM nouns_users ORDER BY name");
        let patch = |path: &str, body: &str| server.request(&format!("PATCH {path}"), &[], body);
        let refused = [
            server.delete(&ann),
            server.put(&ann, r#"{"user":{"name":"ann","roles":["clerk"]}}"#),
            server.put(&ann, r#"{"user":{"name":"ann","roles":["admin"],"disabled":true}}"#),
            patch(&ann, r#"{"user":{"roles":[]}}"#),
            patch(&ann, r#"{"user":{"disabled":true}}"#),
        ];
        for answer in refused {
            assert_eq!((answer.status, &answer.json()["type"]), (409, &json!("/-/problems/last-admin")), "{answer:?}");
        }
        assert_eq!(rows(&server, "SELECT * FROM nouns_users ORDER BY name"), before);
        // Conditions and faults are checked first.
        let unmet = server.request(&format!("DELETE {ann}"), &[("If-Match", "\"9\"")], "");
        assert_eq!(unmet.status, 412);
        assert_eq!(patch(&ann, r#"{"user":{"roles":["boss"]}}"#).status, 422);
        // A change that leaves the role in place is allowed, and so is everything once there is another
        // admin.
        assert_eq!(patch(&ann, r#"{"user":{"roles":["clerk","admin"]}}"#).status, 200);
        assert_eq!(patch(&bob, r#"{"user":{"roles":["admin"],"disabled":true}}"#).status, 200);
        assert_eq!(server.delete(&ann).status, 409, "one who is disabled does not count");
        assert_eq!(patch(&bob, r#"{"user":{"disabled":false}}"#).status, 200);
        assert_eq!(patch(&ann, r#"{"user":{"roles":[]}}"#).status, 200);
        assert_eq!(server.delete(&bob).status, 409);
        assert_eq!(server.delete(&ann).status, 204);
    }

    /// Each of two concurrent removals sees the other admin; one of them is refused.
    fn last_admin_of_two_concurrent_removals_one_is_refused(server: Server) {
        let bodies = ["ann", "bob"].map(|name| ANN.replace("ann", name).replace("clerk", "admin"));
        let mut paths = bodies.clone().map(|body| server.create("/-/users", body));
        for round in 0..ROUNDS {
            let lines = paths.each_ref().map(|path| match round % 2 {
                0 => (format!("DELETE {path}"), ""),
                _ => (format!("PATCH {path}"), r#"{"user":{"disabled":true}}"#),
            });
            let barrier = Barrier::new(2);
            let statuses: Vec<u16> = thread::scope(|scope| {
                let removals = lines.map(|(line, body)| {
                    let (mut client, barrier) = (server.client(), &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        client.request(&line, &[], body).status
                    })
                });
                removals.into_iter().map(|removal| removal.join().unwrap()).collect()
            });
            assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 1, "round {round}: {statuses:?}");
            let gone = statuses.iter().position(|status| *status != 409).unwrap();
            if round % 2 == 0 {
                paths[gone] = server.create("/-/users", &bodies[gone]);
            } else {
                let back = server.request(&format!("PATCH {}", paths[gone]), &[], r#"{"user":{"disabled":false}}"#);
                assert_eq!(back.status, 200);
            }
        }
    }
}
