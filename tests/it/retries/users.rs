//! Idempotency keys in requests with passwords: no password is stored, and a patch of a user is done
//! once too.

use serde_json::json;

use super::{KEY, REPLAYED, check_replay, slug, stored_responses};
use crate::harness::{Answer, Backend, Folder, Person, Server, Setup, run_sql};

fn send(server: &Server, line: &str, key: &str, body: &str) -> Answer {
    let basic = server.admin().basic();
    server.request(line, &[(KEY, key), ("Authorization", &basic)], body)
}

fn users(server: &Server) -> usize {
    let basic = server.admin().basic();
    let page = server.request("GET /-/users", &[("Authorization", &basic)], "");
    page.json()["users"].as_array().unwrap().len()
}

on_every_backend! {
    fn idempotency_user_create_retried_is_done_once(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let body = r#"{"user":{"name":"ann","password":"correct horse 1","roles":["clerk"]}}"#;
        let first = send(&server, "POST /-/users", "k", body);
        assert_eq!(first.status, 201, "{first:?}");
        check_replay(&first, &send(&server, "POST /-/users", "k", body));
        let other = send(&server, "POST /-/users", "k", &body.replace("horse 1", "horse 2"));
        assert_eq!((other.status, slug(&other).as_str()), (422, "idempotency-key-used"));
        assert_eq!(users(&server), 2);
        let all = run_sql(backend, server.folder(), "SELECT * FROM nouns_keys");
        assert!(!all.contains("correct") && !all.contains("password"), "{all}");
        // A keyed MAC, not a plain hash against which passwords could be guessed.
        assert_eq!(run_sql(backend, server.folder(), "SELECT count(*) FROM nouns_keys WHERE fingerprint LIKE '-.%'").trim(), "0");
    }

    fn idempotency_user_patch_retried_is_done_once(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let ann = Person::new("ann", "correct horse 1");
        let path = server.add_user(&ann, &["clerk"]);
        let line = format!("PATCH {path}");
        let patch = r#"{"user":{"password":"correct horse 2"}}"#;
        let first = send(&server, &line, "k", patch);
        assert_eq!((first.status, first.json()["user"]["version"].clone()), (200, json!(2)), "{first:?}");
        assert!(first.header("ETag").is_some());
        // Another caller has changed it meanwhile: the retry does not revert it.
        let later = send(&server, &line, "later", r#"{"user":{"password":"correct horse 3"}}"#);
        assert_eq!(later.status, 200);
        check_replay(&first, &send(&server, &line, "k", patch));
        let now = Person::new("ann", "correct horse 3");
        let login = server.request("GET /customers", &[("Authorization", &now.basic())], "");
        assert_eq!(login.status, 200, "{login:?}");
        let other = send(&server, &line, "k", r#"{"user":{"password":"correct horse 4"}}"#);
        assert_eq!((other.status, slug(&other).as_str()), (422, "idempotency-key-used"));
        // A refusal has no effect, and is evaluated again.
        let before = stored_responses(&server);
        let wrong = send(&server, &line, "wrong", r#"{"user":{"roles":["nobody"]}}"#);
        assert_eq!((wrong.status, wrong.header(REPLAYED)), (422, None), "{wrong:?}");
        assert_eq!(stored_responses(&server), before);
    }

    /// Without an encryption key a server could only store a hash against which passwords could be
    /// guessed.
    fn idempotency_key_for_users_without_a_server_key_is_refused(server: Server) {
        let body = r#"{"user":{"name":"ann","password":"correct horse 1"}}"#;
        let answer = server.request("POST /-/users", &[(KEY, "k")], body);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "bad-idempotency-key"), "{answer:?}");
        assert_eq!(server.request("POST /-/users", &[], body).status, 201);
        assert_eq!(stored_responses(&server), "0");
    }
}

/// Another server with the same encryption key recognizes the fingerprint.
#[test]
fn idempotency_user_create_is_replayed_by_another_server() {
    let first = Setup::new(Backend::Postgres).with_authentication().start();
    let second =
        Setup::replica(first.database()).key_file(first.key_file()).start_in(Folder::new());
    let basic = first.admin().basic();
    let body = r#"{"user":{"name":"ann","password":"correct horse 1","roles":["clerk"]}}"#;
    let send = |server: &Server, body: &str| {
        server.request("POST /-/users", &[(KEY, "k"), ("Authorization", &basic)], body)
    };
    let told = send(&first, body);
    assert_eq!(told.status, 201, "{told:?}");
    check_replay(&told, &send(&second, body));
    let other = send(&second, &body.replace("horse 1", "horse 2"));
    assert_eq!((other.status, slug(&other).as_str()), (422, "idempotency-key-used"));
}
