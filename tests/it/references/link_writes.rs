//! What an update of references looks up and writes: what it changes, and nothing else.

use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Person, Server, Setup, run_sql};

const MODEL: &str = r#"
title = "Blog"

[server.limits]
references_max = 3

[resources.tag]
id = "integer"
[resources.tag.fields]
owner = { type = "text" }

[resources.post]
id = "integer"
[resources.post.fields]
title = { type = "text", max_length = 5 }
main = { type = "ref", to = "tag" }
tags = { type = "refs", to = "tag" }

[roles.writer]
post = "*"
tag = { verbs = ["get"], where = "owner = $user" }
"#;

/// Counts the rows of the table of links that are deleted and inserted.
const COUNT_WRITES: [(Backend, &str); 2] = [
    (
        Backend::Sqlite,
        r#"CREATE TABLE writes (kind TEXT);
        CREATE TRIGGER gone AFTER DELETE ON "posts.tags" BEGIN INSERT INTO writes VALUES ('-' || old.target); END;
        CREATE TRIGGER come AFTER INSERT ON "posts.tags" BEGIN INSERT INTO writes VALUES ('+' || new.target); END;"#,
    ),
    (
        Backend::Postgres,
        r#"CREATE TABLE writes (at serial, kind text);
        CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO writes (kind) VALUES ('-' || old.target); RETURN NULL; END $$;
        CREATE FUNCTION come() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO writes (kind) VALUES ('+' || new.target); RETURN NULL; END $$;
        CREATE TRIGGER gone AFTER DELETE ON "posts.tags" FOR EACH ROW EXECUTE FUNCTION gone();
        CREATE TRIGGER come AFTER INSERT ON "posts.tags" FOR EACH ROW EXECUTE FUNCTION come();"#,
    ),
];

fn count_writes(backend: Backend, server: &Server) {
    let (_, sql) = COUNT_WRITES.iter().find(|(of, _)| *of == backend).unwrap();
    run_sql(backend, server.folder(), sql);
}

/// The links that were written since the last call, in their order.
fn writes(backend: Backend, server: &Server) -> String {
    let order = if backend == Backend::Sqlite { "rowid" } else { "at" };
    let rows =
        run_sql(backend, server.folder(), &format!("SELECT kind FROM writes ORDER BY {order}"));
    run_sql(backend, server.folder(), "DELETE FROM writes");
    rows.lines().collect::<Vec<_>>().join(" ")
}

fn post(members: &Value) -> String {
    json!({ "post": members }).to_string()
}

fn faults(answer: &Answer) -> Vec<String> {
    let errors = answer.json()["errors"].as_array().cloned().unwrap_or_default();
    errors.iter().map(|fault| fault["pointer"].as_str().unwrap().to_owned()).collect()
}

on_every_backend! {
    fn refs_update_writes_only_the_difference_in_the_order_of_ids(backend: Backend) {
        let server = Setup::new(backend).model(&MODEL.replace("references_max = 3", "")).start();
        assert_eq!(server.post("/tags", json!({"tags": vec![json!({}); 12]}).to_string()).status, 201);
        count_writes(backend, &server);
        let path = server.create("/posts", post(&json!({"tags": [11, 3, 2]})));
        assert_eq!(writes(backend, &server), "+2 +3 +11");
        let put = |tags: Value| assert_eq!(server.put(&path, post(&json!({"tags": tags}))).status, 200);
        put(json!([12, 11, 2, 10]));
        assert_eq!(writes(backend, &server), "-3 +10 +12");
        // Another order of the same ids.
        put(json!([2, 10, 11, 12]));
        assert_eq!(server.get(&path).json()["post"]["tags"], json!([2, 10, 11, 12]));
        assert_eq!(writes(backend, &server), "");
        put(json!([]));
        assert_eq!(writes(backend, &server).split(' ').count(), 4);
        put(json!([5]));
        assert_eq!(writes(backend, &server), "+5");
    }

    /// `references_max` counts the references that are looked up.
    fn references_that_an_update_leaves_are_not_looked_up(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        assert_eq!(server.post("/tags", json!({"tags": vec![json!({}); 7]}).to_string()).status, 201);
        let too_many = server.post("/posts", post(&json!({"main": 4, "tags": [1, 2, 3]})));
        assert_eq!((too_many.status, too_many.problem().as_str()), (413, "too-large"));
        let path = server.create("/posts", post(&json!({"main": 3, "tags": [1, 2, 3]})));
        let patch = |body: Value| {
            let headers = [("Content-Type", "application/merge-patch+json")];
            server.request(&format!("PATCH {path}"), &headers, post(&body))
        };
        assert_eq!(patch(json!({"main": 7, "tags": [1, 2, 3, 4, 5]})).status, 200);
        assert_eq!(patch(json!({"title": "a"})).status, 200);
        assert_eq!(server.put(&path, post(&json!({"title": "b", "main": 7, "tags": [5, 4, 3, 2, 1]}))).status, 200);
        assert_eq!(faults(&patch(json!({"tags": [5, 4, 9, 3]}))), ["/post/tags/2"]);
        // Another field does not have it.
        assert_eq!(faults(&patch(json!({"main": 8, "tags": [5, 4, 8, 3]}))), ["/post/main", "/post/tags/2"]);
    }

    /// An invalid field does not make a fault of references that may stay.
    fn references_to_invisible_items_stay_in_an_invalid_update(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let ann = Person::new("ann", "as long as it takes");
        server.add_user(&ann, &["writer"]);
        let send = |who: &Person, line: &str, body: Value| {
            server.request(line, &[("Authorization", &who.basic())], body.to_string())
        };
        let admin = server.admin();
        assert_eq!(send(&admin, "POST /tags", json!({"tags": vec![json!({}); 3]})).status, 201);
        assert_eq!(send(&admin, "POST /posts", json!({"post": {"main": 1, "tags": [2, 3]}})).status, 201);
        let put = |members: Value| send(&ann, "PUT /posts/1", json!({"post": members}));
        assert_eq!(put(json!({"title": "fits", "main": 1, "tags": [3]})).status, 200);
        let refused = put(json!({"title": "too long", "main": 1, "tags": [3]}));
        assert_eq!(faults(&refused), ["/post/title"]);
        let refused = put(json!({"title": "too long", "main": 2, "tags": [3, 2]}));
        assert_eq!(faults(&refused), ["/post/title", "/post/main", "/post/tags/1"]);
    }
}
