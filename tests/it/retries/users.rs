//! Keys where passwords are sent: nothing of a password is kept, and a patch of a user is done once too.

use serde_json::json;

use super::{KEY, REPLAYED, check_again, kept, slug};
use crate::harness::{Answer, Backend, Folder, Person, Server, Setup, sql};

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
    fn a_user_is_made_once(backend: Backend) {
        let server = Setup::new(backend).closed().start();
        let body = r#"{"user":{"name":"ann","password":"correct horse 1","roles":["clerk"]}}"#;
        let first = send(&server, "POST /-/users", "k", body);
        assert_eq!(first.status, 201, "{first:?}");
        check_again(&first, &send(&server, "POST /-/users", "k", body));
        let other = send(&server, "POST /-/users", "k", &body.replace("horse 1", "horse 2"));
        assert_eq!((other.status, slug(&other).as_str()), (422, "idempotency-key-used"));
        assert_eq!(users(&server), 2);
        let all = sql(backend, server.folder(), "SELECT * FROM nouns_keys");
        assert!(!all.contains("correct") && !all.contains("password"), "{all}");
        // Made with the key, and not a digest that anybody could try passwords against.
        assert_eq!(sql(backend, server.folder(), "SELECT count(*) FROM nouns_keys WHERE fingerprint LIKE '-.%'").trim(), "0");
    }

    fn a_patch_of_a_user_is_done_once(backend: Backend) {
        let server = Setup::new(backend).closed().start();
        let ann = Person::new("ann", "correct horse 1");
        let path = server.add_user(&ann, &["clerk"]);
        let line = format!("PATCH {path}");
        let patch = r#"{"user":{"password":"correct horse 2"}}"#;
        let first = send(&server, &line, "k", patch);
        assert_eq!((first.status, first.json()["user"]["version"].clone()), (200, json!(2)), "{first:?}");
        assert!(first.header("ETag").is_some());
        // Changed by somebody else meanwhile: the retry undoes nothing of it.
        let later = send(&server, &line, "later", r#"{"user":{"password":"correct horse 3"}}"#);
        assert_eq!(later.status, 200);
        check_again(&first, &send(&server, &line, "k", patch));
        let now = Person::new("ann", "correct horse 3");
        let login = server.request("GET /customers", &[("Authorization", &now.basic())], "");
        assert_eq!(login.status, 200, "{login:?}");
        let other = send(&server, &line, "k", r#"{"user":{"password":"correct horse 4"}}"#);
        assert_eq!((other.status, slug(&other).as_str()), (422, "idempotency-key-used"));
        // A refusal has no effect, and is looked into again.
        let before = kept(&server);
        let wrong = send(&server, &line, "wrong", r#"{"user":{"roles":["nobody"]}}"#);
        assert_eq!((wrong.status, wrong.header(REPLAYED)), (422, None), "{wrong:?}");
        assert_eq!(kept(&server), before);
    }

    /// Without a key of its own a server could only keep what lets others try passwords.
    fn an_open_server_without_a_key_takes_none_for_users(server: Server) {
        let body = r#"{"user":{"name":"ann","password":"correct horse 1"}}"#;
        let answer = server.request("POST /-/users", &[(KEY, "k")], body);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "bad-idempotency-key"), "{answer:?}");
        assert_eq!(server.request("POST /-/users", &[], body).status, 201);
        assert_eq!(kept(&server), "0");
    }
}

/// Whatever server made the mark, another one with the same key knows it.
#[test]
fn another_server_tells_what_was_done() {
    let first = Setup::new(Backend::Postgres).closed().start();
    let second =
        Setup::replica(first.database()).key_file(first.key_file()).start_in(Folder::new());
    let basic = first.admin().basic();
    let body = r#"{"user":{"name":"ann","password":"correct horse 1","roles":["clerk"]}}"#;
    let send = |server: &Server, body: &str| {
        server.request("POST /-/users", &[(KEY, "k"), ("Authorization", &basic)], body)
    };
    let told = send(&first, body);
    assert_eq!(told.status, 201, "{told:?}");
    check_again(&told, &send(&second, body));
    let other = send(&second, &body.replace("horse 1", "horse 2"));
    assert_eq!((other.status, slug(&other).as_str()), (422, "idempotency-key-used"));
}
