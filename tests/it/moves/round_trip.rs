//! There and back.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use expect_test::expect;
use serde_json::json;

use super::*;
use crate::harness::wait_until;
use crate::webhooks::hooks::HookServer;
use crate::webhooks::receiver::{Receiver, ReceiverAction};
use crate::webhooks::verify_signature;

/// The counts that a move prints.
const MOVED: &str = "  customers: 5\n  orders: 3\n  parcels: 6\n  reviews: 2\n  users: 2\n  webhooks: 1\n  deliveries: 3\n";

/// Deliveries of the one webhook, which is disabled, so that nothing changes them.
fn insert_deliveries(place: &Place) {
    for (number, status) in [(1, "dead"), (2, "delivered"), (3, "pending")] {
        let id = format!("01890a5d-ac96-774b-bcce-b3020999{number:04x}");
        // Retention deletes older ones.
        let time = "(SELECT max(time) FROM nouns_changes)";
        place.sql(&format!(
            "INSERT INTO nouns_deliveries (id, webhook_id, created_at, updated_at, version, sequence, type, subject, status, \
             attempts, next_attempt, response_status, error) SELECT '{id}', id, {time}, {time}, 1, {number}, \
             'nouns.customer.created', '/customers/1', '{status}', 7, NULL, 500, 'answered 500' FROM nouns_webhooks"
        ));
        let no = if place.backend == Backend::Sqlite { "0" } else { "false" };
        place.sql(&format!(
            "INSERT INTO nouns_delivery_queue (delivery_id, webhook_id, subject, sequence, body, tries, waiting, due, \
             claim_token) SELECT '{id}', id, '/customers/1', {number}, '{{}}', 3, {no}, NULL, 'token' FROM nouns_webhooks"
        ));
    }
}

/// The rows that no client sees.
fn hidden_rows(place: &Place) -> String {
    let flag = |column: &str| format!("CASE WHEN {column} THEN 1 ELSE 0 END");
    let (waiting, active) = (flag("waiting"), flag("active"));
    let rows = [
        "SELECT name, password FROM nouns_users ORDER BY name".to_owned(),
        "SELECT secret FROM nouns_webhooks".to_owned(),
        format!(
            "SELECT delivery_id, webhook_id, subject, sequence, body, tries, {waiting}, claim_token FROM nouns_delivery_queue ORDER BY 1"
        ),
        format!("SELECT webhook_id, position, {active} FROM nouns_webhook_positions"),
        "SELECT scope, fingerprint, bytes, answer FROM nouns_keys ORDER BY 1".to_owned(),
        "SELECT name, value FROM nouns_system WHERE name NOT IN \
         ('format', 'started_at', 'database_id', 'users_stamp') ORDER BY name"
            .to_owned(),
    ];
    rows.map(|sql| place.sql(&sql)).join("--\n")
}

/// Logs in as each person with both schemes; a wrong password is refused.
fn check_logins(server: &Server, people: &[Person]) {
    for person in people {
        let basic = server.request("GET /customers", &[("Authorization", &person.basic())], "");
        assert_eq!(basic.status, 200, "{basic:?}");
        let digest = person.log_in(server, "/customers").request(server, "GET /customers", "");
        assert_eq!((digest.status, &digest.body), (200, &basic.body));
        let wrong = Person::new(&person.name, "wrong horse battery").basic();
        assert_eq!(server.request("GET /customers", &[("Authorization", &wrong)], "").status, 401);
    }
    let delete = server.request("DELETE /-/users/x", &[("Authorization", &people[1].basic())], "");
    assert_eq!(delete.status, 403, "{delete:?}");
}

on_every_backend! {
    fn move_there_and_back_keeps_every_byte(backend: Backend) {
        let (server, people) = filled(backend);
        let session = Session { server: &server, login: people[0].basic() };
        let key = [("Authorization", &*session.login), ("Idempotency-Key", "one")];
        let body = r#"{"review":{}}"#;
        let first = server.request("POST /reviews", &key, body);
        assert_eq!(first.status, 201, "{first:?}");
        session.succeed(&format!("DELETE {}", first.header("Location").unwrap()), "");
        let place = Place { backend, folder: server.stop() };
        insert_deliveries(&place);
        if backend == Backend::Postgres {
            // Transactions that were rolled back have used numbers up.
            place.sql("SELECT nextval('nouns_changes_sequence') FROM generate_series(1, 5)");
        }
        let key_file = place.path().join("nouns.key");
        let server = place.serve(&key_file);
        let contents = Session { server: &server, login: people[0].basic() }.contents();
        let mut place = Place { backend, folder: server.stop() };
        let hidden = hidden_rows(&place);
        let keys = Folder::new();
        let key_file = keys.path().join("nouns.key");
        fs::copy(place.path().join("nouns.key"), &key_file).unwrap();
        for _ in 0..2 {
            let before = place.dump();
            let target = Place::new(other(place.backend));
            let printed = place.move_to(&target);
            assert!(printed.contains(MOVED), "{printed}");
            assert!(place.dump() == before, "the source was changed");
            assert_eq!(hidden_rows(&target), hidden);
            let server = target.serve(&key_file);
            let session = Session { server: &server, login: people[0].basic() };
            let moved = session.contents();
            assert_eq!(moved.keys().collect::<Vec<_>>(), contents.keys().collect::<Vec<_>>());
            for (path, answer) in &contents {
                assert_eq!(&moved[path], answer, "{path}");
            }
            check_logins(&server, &people);
            // The stored response of before is replayed, and nothing is created.
            let key = [("Authorization", &*session.login), ("Idempotency-Key", "one")];
            let again = server.request("POST /reviews", &key, body);
            assert_eq!((again.status, &again.body), (201, &first.body));
            assert_eq!(again.header("Idempotent-Replayed"), Some("true"));
            place = Place { backend: other(place.backend), folder: server.stop() };
        }

        let server = place.serve(&key_file);
        let session = Session { server: &server, login: people[0].basic() };
        let position = session.request("GET /-/changes", "");
        let position: i64 = position.header("Changes-Position").unwrap().parse().unwrap();
        let (_, review) = session.create("/reviews", "review", &json!({}));
        assert_eq!(review["id"], 5, "numbers of deleted items are not used again");
        let after = session.request(&format!("GET /-/changes?since={position}"), "").json();
        assert_eq!(after["changes"].as_array().unwrap().len(), 1, "{after}");
        assert_eq!(after["changes"][0]["sequence"], position + 1);
        // The rules of the model are in force.
        let taken = session.request("POST /customers", r#"{"customer":{"name":"x","email":"ann@example.com"}}"#);
        assert_eq!((taken.status, taken.problem().as_str()), (409, "taken"), "{taken:?}");
    }

    /// Rows in many pages; some of them large.
    fn move_of_many_rows_keeps_all(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let mut lines: String = (0..6_000).map(|at| format!("{{\"name\":\"n{at}\",\"score\":{at}}}\n")).collect();
        for at in 0..40 {
            let large = "x".repeat(100_000);
            let _ = writeln!(lines, "{{\"name\":\"l{at}\",\"extra\":\"{large}\"}}");
        }
        let place = Place { backend, folder: server.stop() };
        fs::write(place.path().join("new.ndjson"), lines).unwrap();
        let database = place.database();
        let import = ["import", "customer", "new.ndjson", "--model", "model.toml", "--database", &database];
        assert_eq!(run(EXECUTABLE, place.path(), &import, "").code, Some(0));
        let target = Place::new(other(backend));
        let printed = place.move_to(&target);
        assert!(printed.contains("  customers: 6,040\n  changes: 6,040\n"), "{printed}");
        let back = Place::new(backend);
        target.move_to(&back);
        let rows = "SELECT id, name, email, score, extra FROM customers ORDER BY id";
        assert!(back.sql(rows) == place.sql(rows));
        let log = "SELECT * FROM nouns_changes ORDER BY sequence";
        assert!(back.sql(log) == place.sql(log));
    }

    /// What a receiver has refused until the move is sent after it, with the same secret.
    fn move_keeps_pending_deliveries_of_webhooks(backend: Backend) {
        let server = HookServer::start(backend);
        let is_up = Arc::new(AtomicBool::new(false));
        let is_up_now = Arc::clone(&is_up);
        let receiver = Receiver::start(move |_, _| {
            ReceiverAction::status(if is_up_now.load(Ordering::Relaxed) { 204 } else { 500 })
        });
        let hook = server.create_hook(&receiver, &["customer.*"]);
        let ann = server.create_customer("Ann");
        server.rename(&ann, 2);
        wait_until("the first attempt is recorded", || {
            let attempts = |one: &Value| one["attempts"].as_i64().unwrap();
            let all = server.deliveries(&hook);
            (all.len() == 3 && all.iter().any(|one| attempts(one) >= 1)).then_some(())
        });
        let HookServer { server, login } = server;
        let place = Place { backend, folder: server.stop() };
        let target = Place::new(other(backend));
        place.move_to(&target);
        fs::copy(place.path().join("nouns.key"), target.path().join("nouns.key")).unwrap();
        is_up.store(true, Ordering::Relaxed);
        let before = receiver.requests().len();
        let server = HookServer::start_again(target.backend, target.folder, login);
        server.make_due();
        server.wait_for_deliveries(&hook, 3, "delivered");
        let requests = receiver.requests().split_off(before);
        assert_eq!(requests.len(), 3, "{requests:?}");
        requests.iter().for_each(|request| verify_signature(request, &hook.secret));
        // The webhook goes on with the next change.
        server.rename(&ann, 1);
        server.wait_for_deliveries(&hook, 4, "delivered");
    }
}

/// A field of users of each storage class.
const USER_FIELDS: &str = r#"
[users.fields]
tenant = { type = "text" }
level = { type = "integer" }
rate = { type = "decimal", scale = 3 }
share = { type = "number" }
active = { type = "boolean" }
seen = { type = "timestamp" }
"#;

on_every_backend! {
    /// Also those that the model of the last server does not declare.
    fn move_keeps_the_declared_fields_of_users(backend: Backend) {
        let resources = "[resources.note.fields]\ntext = { type = \"text\" }\n[roles.member]\nnote = [\"get\"]\n";
        let [with_fields, without] = [USER_FIELDS, ""].map(|fields| format!("title = \"T\"\n{fields}{resources}"));
        let server = Setup::new(backend).model(&with_fields).with_authentication().start();
        let login = server.admin().basic();
        let fields = json!({"name": "ann", "password": "correct horse battery", "roles": ["member"], "tenant": "a\u{1f680}",
            "level": -7, "rate": "1.005", "share": 0.1, "active": true, "seen": "2026-11-15T02:28:14.123456Z"});
        let (ann, _) = Session { server: &server, login: login.clone() }.create("/-/users", "user", &fields);
        let read = |server: &Server| server.request(&format!("GET {ann}"), &[("Authorization", &login)], "").body;
        let before = read(&server);
        let folder = server.stop();
        let keys = Folder::new();
        let key_file = keys.path().join("nouns.key");
        fs::copy(folder.path().join("nouns.key"), &key_file).unwrap();
        let start = |backend: Backend, model: &str, folder: Folder| {
            Setup::new(backend).model(model).key_file(key_file.clone()).start_in(folder)
        };
        let server = start(backend, &without, folder);
        let mut place = Place { backend, folder: server.stop() };
        for _ in 0..2 {
            let target = Place::new(other(place.backend));
            place.move_to(&target);
            let backend = target.backend;
            let server = start(backend, &with_fields, target.folder);
            assert_eq!(read(&server), before, "{backend:?}");
            place = Place { backend, folder: server.stop() };
        }
    }
}

/// A server with an older model keeps the values of fields and resources that it does not declare; so does a move.
#[test]
fn move_keeps_what_the_served_model_lacks() {
    let older = "title = \"T\"\n[resources.note.fields]\ntext = { type = \"text\" }\n";
    let newer = format!(
        "{older}size = {{ type = \"integer\" }}\n[resources.tag.fields]\nname = {{ type = \"text\" }}\n"
    );
    let server = Setup::new(Backend::Sqlite).model(&newer).start();
    let note = server.create("/notes", r#"{"note":{"text":"a","size":7}}"#);
    let tag = server.create("/tags", r#"{"tag":{"name":"x"}}"#);
    let before = [server.get(&note).body, server.get(&tag).body];
    let server = Setup::new(Backend::Sqlite).model(older).start_in(server.stop());
    let place = Place { backend: Backend::Sqlite, folder: server.stop() };
    let target = Place::new(Backend::Postgres);
    place.move_to(&target);
    let server = Setup::new(Backend::Postgres).model(&newer).start_in(target.folder);
    assert_eq!([server.get(&note).body, server.get(&tag).body], before);
}

#[test]
fn move_says_what_it_moved_and_how_to_go_on() {
    let (server, _) = filled(Backend::Sqlite);
    let place = Place { backend: Backend::Sqlite, folder: server.stop() };
    place.sql("CREATE TABLE notes (text)");
    let target = Place::new(Backend::Postgres);
    let ended = place.try_move(&target);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    expect![[r#"
        nouns: moved SOURCE to TARGET; all counts and checksums are equal:
          customers: 5
          orders: 3
          parcels: 6
          reviews: 2
          users: 2
          webhooks: 1
          changes: 31
          positions of webhooks: 1
        nouns: SOURCE was not changed; serve the new database, with the same key: nouns serve --database TARGET --key-file FOLDER/nouns.key
        nouns: warning: SOURCE also has tables that are not of nouns, which were not moved: notes
    "#]].assert_eq(&place.mask(&target, &(ended.stdout + &ended.stderr)));
    let back = Place::new(Backend::Sqlite);
    let ended = target.try_move(&back);
    let fingerprint = regex::Regex::new("fingerprint [0-9a-f]+").unwrap();
    let said = target.mask(&back, &(ended.stdout + &ended.stderr));
    expect![[r#"
        nouns: moved SOURCE to TARGET; all counts and checksums are equal:
          customers: 5
          orders: 3
          parcels: 6
          reviews: 2
          users: 2
          webhooks: 1
          changes: 31
          positions of webhooks: 1
        nouns: SOURCE was not changed; serve the new database, with the same key: nouns serve --database TARGET --key-file FILE
        nouns: warning: the new database needs the same key, of fingerprint …, and it was not found; name it with --key-file
    "#]].assert_eq(&fingerprint.replace(&said, "fingerprint …"));
}
