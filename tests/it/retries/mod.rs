//! Idempotency: a request that is retried under its `Idempotency-Key` is done once, and every response
//! to it is the same.
//!
//! This file tests one client and one server; `concurrent_clients` has many clients, killed servers and
//! replicas, `limits` has waiting, storage and expiry; `tests/it/database_faults/idempotency.rs` loses the
//! database at every message.
//! A replayed problem names the request of its first response, so its `request_id` is not that of the
//! retry.

mod limits;
mod concurrent_clients;
mod rights;
mod users;

use serde_json::{Value, json};

use crate::harness::{ANN, Answer, Backend, Person, Server, Setup, run_sql};

const BEA: &str = r#"{"customer":{"name":"Bea","email":"bea@example.com"}}"#;
const NO_ONE: &str = "/customers/01890a5d-ac96-774b-bcce-b302099a8057";
const KEY: &str = "Idempotency-Key";
const REPLAYED: &str = "Idempotent-Replayed";

type Headers<'a> = &'a [(&'a str, &'a str)];

fn post(server: &Server, path: &str, key: &str, body: &str) -> Answer {
    server.request(&format!("POST {path}"), &[(KEY, key)], body)
}

fn count(server: &Server, plural: &str) -> usize {
    let page = server.get(&format!("/{plural}?limit=500")).json();
    page[plural].as_array().unwrap().len()
}

/// How many responses are stored.
fn stored_responses(server: &Server) -> String {
    run_sql(server.backend(), server.folder(), "SELECT count(*) FROM nouns_keys").trim().to_owned()
}

/// The slug of a problem, whichever request it was for.
fn slug(answer: &Answer) -> String {
    let text = answer.json()["type"].as_str().unwrap_or_default().to_owned();
    text.strip_prefix("/-/problems/").unwrap_or_default().to_owned()
}

/// The part of a response that belongs to it, and not to its request.
fn replayed_part(answer: &Answer) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let is_of_request = |name: &str| {
        ["date", "x-request-id", "idempotent-replayed", "authentication-info"]
            .contains(&name.to_ascii_lowercase().as_str())
    };
    let headers = answer.headers.iter().filter(|(name, _)| !is_of_request(name)).cloned();
    (answer.status, headers.collect(), answer.body.clone())
}

#[track_caller]
fn check_replay(first: &Answer, again: &Answer) {
    assert_eq!(replayed_part(first), replayed_part(again));
    assert_eq!((first.header(REPLAYED), again.header(REPLAYED)), (None, Some("true")));
    assert_ne!(first.header("X-Request-Id"), again.header("X-Request-Id"));
}

on_every_backend! {
    fn idempotency_create_retried_is_done_once(server: Server) {
        let first = post(&server, "/customers", "\"k-1\"", ANN);
        assert_eq!(first.status, 201, "{first:?}");
        for header in ["Location", "ETag", "Content-Type", "Vary", "Cache-Control"] {
            assert!(first.header(header).is_some(), "{header}: {first:?}");
        }
        // Both spellings are one key.
        for key in ["\"k-1\"", "k-1"] {
            check_replay(&first, &post(&server, "/customers", key, ANN));
        }
        assert_eq!(count(&server, "customers"), 1);
        assert_eq!(server.get(first.header("Location").unwrap()).json(), first.json());
        // Another key is another request, and so is none.
        assert_eq!(post(&server, "/customers", "k-2", ANN).header(REPLAYED), None);
        assert_eq!(server.post("/customers", ANN).header(REPLAYED), None);
        assert_eq!((count(&server, "customers"), stored_responses(&server).as_str()), (3, "2"));
    }

    /// The item was changed and deleted meanwhile: the replayed response stays the same.
    fn idempotency_replay_equals_the_first_response(server: Server) {
        let first = post(&server, "/customers", "k", ANN);
        let path = first.header("Location").unwrap();
        assert_eq!(server.put(path, BEA).status, 200);
        check_replay(&first, &post(&server, "/customers", "k", ANN));
        assert_eq!(server.delete(path).status, 204);
        check_replay(&first, &post(&server, "/customers", "k", ANN));
        assert_eq!(count(&server, "customers"), 0);
        let server = server.restart();
        check_replay(&first, &post(&server, "/customers", "k", ANN));
        assert_eq!(count(&server, "customers"), 0);
    }

    fn idempotency_bulk_create_retried_is_done_once(server: Server) {
        let items: Vec<_> = (0..200).map(|n| json!({"name": format!("{n}"), "email": "a@example.com", })).collect();
        let body = json!({ "customers": items }).to_string();
        let first = post(&server, "/customers", "k", &body);
        assert_eq!((first.status, first.header("Location")), (201, None), "{first:?}");
        check_replay(&first, &post(&server, "/customers", "k", &body));
        assert_eq!(count(&server, "customers"), 200);
    }

    /// A patch that is not idempotent by itself.
    fn idempotency_patch_retried_is_done_once(server: Server) {
        let orders = format!("{}/orders", server.create("/customers", ANN));
        let order = server.create(&orders, r#"{"order":{"items":[{"product":"tea","unit_price":350}]}}"#);
        let add = r#"[{"op":"add","path":"/order/items/-","value":{"product":"cake","unit_price":5}}]"#;
        let headers = [(KEY, "k"), ("Content-Type", "application/json-patch+json")];
        let first = server.request(&format!("PATCH {order}"), &headers, add);
        assert_eq!((first.status, &first.json()["order"]["total"]), (200, &json!(355)), "{first:?}");
        assert_eq!(first.header("ETag"), server.get(&order).header("ETag"));
        check_replay(&first, &server.request(&format!("PATCH {order}"), &headers, add));
        assert_eq!(server.get(&order).json(), first.json());
        let tag = first.header("ETag").unwrap().to_owned();
        let more = [headers[0], headers[1], ("If-Match", &*tag)];
        let other = server.request(&format!("PATCH {order}"), &more, add);
        assert_eq!((other.status, slug(&other).as_str()), (422, "idempotency-key-used"), "a condition more");
    }

    fn idempotency_key_reused_for_another_request_is_refused(server: Server) {
        let first = post(&server, "/customers", "k", ANN);
        let type_said = ("Content-Type", "application/json");
        let rows: [(&str, Headers<'_>, &str); 3] = [
            ("another body", &[(KEY, "k")], BEA),
            ("another spelling of the body", &[(KEY, "k")], &ANN.replace(',', ", ")),
            ("a type that was not said", &[(KEY, "k"), type_said], ANN),
        ];
        for (what, headers, body) in rows {
            let answer = server.request("POST /customers", headers, body);
            assert_eq!((answer.status, answer.problem().as_str()), (422, "idempotency-key-used"), "{what}");
            assert_eq!(answer.header(REPLAYED), None, "{what}");
        }
        check_replay(&first, &post(&server, "/customers", "k", ANN));
        assert_eq!(count(&server, "customers"), 1);
    }

    /// A response is stored in one content type: a client that does not accept it does not get it.
    fn idempotency_replay_respects_accept(server: Server) {
        let orders = format!("{NO_ONE}/orders");
        let body = r#"{"order":{"items":[{"product":"tea","unit_price":350}]}}"#;
        let send = |key: &str, accept: &str| {
            server.request(&format!("POST {orders}"), &[(KEY, key), ("Accept", accept)], body)
        };
        let first = send("k", "application/json, application/problem+json");
        assert_eq!((first.status, first.header("Content-Type")), (404, Some("application/problem+json")), "{first:?}");
        let other = send("k", "application/json");
        assert_eq!((other.status, other.header("Content-Type")), (422, Some("application/json")), "{other:?}");
        // Another `Accept` with the same result.
        check_replay(&first, &send("k", "application/problem+json;q=0.9, application/json;q=0.5"));
        check_replay(&first, &send("k", "*/*"));
    }

    fn idempotency_key_is_scoped_to_method_and_path(server: Server) {
        let path = server.create("/customers", ANN);
        let orders = format!("{path}/orders");
        let body = r#"{"order":{"items":[{"product":"tea","unit_price":350}]}}"#;
        assert_eq!(post(&server, "/customers", "k", BEA).status, 201);
        let order = post(&server, &orders, "k", body);
        assert_eq!((order.status, order.header(REPLAYED)), (201, None));
        let patch = |path: &str, text: &str| server.request(&format!("PATCH {path}"), &[(KEY, "k")], text);
        let renamed = patch(&path, r#"{"customer":{"name":"Cleo"}}"#);
        assert_eq!((renamed.status, renamed.header(REPLAYED)), (200, None));
        let noted = patch(order.header("Location").unwrap(), r#"{"order":{"note":"x"}}"#);
        assert_eq!((noted.status, noted.header(REPLAYED)), (200, None));
        assert_eq!(stored_responses(&server), "4");
    }

    fn idempotency_key_malformed_is_refused(server: Server) {
        let long = "k".repeat(256);
        for key in ["", "\"\"", "a b", "\"a", "\"a\\b\"", "a,b", "\"a\";p=1", &long] {
            let answer = post(&server, "/customers", key, ANN);
            assert_eq!((answer.status, answer.problem().as_str()), (400, "bad-idempotency-key"), "{key}");
        }
        let twice = server.request("POST /customers", &[(KEY, "a"), (KEY, "a")], ANN);
        assert_eq!((twice.status, twice.problem().as_str()), (400, "bad-idempotency-key"));
        assert_eq!(count(&server, "customers"), 0);
        let path = server.create("/customers", ANN);
        let patch = server.request(&format!("PATCH {path}"), &[(KEY, "a b")], BEA);
        assert_eq!(patch.problem(), "bad-idempotency-key");
        // Methods that are idempotent by nature need no key, and theirs is ignored.
        for (line, body) in [("GET", ""), ("PUT", ANN), ("HEAD", ""), ("DELETE", "")] {
            let answer = server.send(format!(
                "{line} {path} HTTP/1.1\r\nHost: localhost\r\n{KEY}: a b\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
            assert!(matches!(answer.status, 200 | 204), "{line}: {answer:?}");
        }
        assert_eq!(stored_responses(&server), "0");
    }

    /// A refusal that depends on stored data is stored, and is replayed even when the data changes.
    fn idempotency_data_dependent_refusals_are_stored(backend: Backend) {
        let server = Setup::new(backend).model(include_str!("../models/school.toml")).start();
        let mia = r#"{"person":{"name":"Mia","badge":"gold"}}"#;
        let holder = server.create("/people", mia);
        let taken = post(&server, "/people", "taken", mia);
        assert_eq!((taken.status, slug(&taken).as_str()), (409, "taken"), "{taken:?}");
        let many = format!(r#"{{"people":[{{"name":"Bob"}},{}]}}"#, r#"{"name":"Eve","badge":"gold"}"#);
        let many_taken = post(&server, "/people", "many", &many);
        assert_eq!((many_taken.status, slug(&many_taken).as_str()), (409, "taken"), "{many_taken:?}");
        let long: Vec<_> = (0..150).map(|n| json!({"name": format!("{n}")})).chain([json!({"name": "Eve", "badge": "gold"})]).collect();
        let long = json!({ "people": long }).to_string();
        let long_taken = post(&server, "/people", "long", &long);
        assert_eq!((long_taken.status, slug(&long_taken).as_str()), (409, "taken"), "{long_taken:?}");
        assert_eq!(count(&server, "people"), 1);
        // The value is free by now.
        assert_eq!(server.delete(&holder).status, 204);
        check_replay(&taken, &post(&server, "/people", "taken", mia));
        check_replay(&many_taken, &post(&server, "/people", "many", &many));
        check_replay(&long_taken, &post(&server, "/people", "long", &long));
        assert_eq!((count(&server, "people"), stored_responses(&server).as_str()), (0, "3"));
        let created = post(&server, "/people", "anew", mia);
        assert_eq!(created.status, 201, "{created:?}");
    }

    fn idempotency_failed_condition_and_patch_are_stored(server: Server) {
        let path = server.create("/customers", ANN);
        let send = |headers: &[(&str, &str)], body: &str| server.request(&format!("PATCH {path}"), headers, body);
        let unmet = [(KEY, "unmet"), ("If-Match", "\"7\"")];
        let patch = r#"{"customer":{"name":"Cleo"}}"#;
        let first = send(&unmet, patch);
        assert_eq!((first.status, slug(&first).as_str()), (412, "precondition-failed"));
        assert!(first.header("ETag").is_some());
        let invalid = [(KEY, "invalid"), ("Content-Type", "application/json")];
        let wrong = send(&invalid, r#"{"customer":{"email":"nobody"}}"#);
        assert_eq!((wrong.status, slug(&wrong).as_str()), (422, "invalid-fields"));
        let steps = [(KEY, "steps"), ("Content-Type", "application/json-patch+json")];
        let test = r#"[{"op":"test","path":"/customer/name","value":"Bea"}]"#;
        let failed = send(&steps, test);
        assert_eq!((failed.status, slug(&failed).as_str()), (409, "patch-failed"));
        assert_eq!(server.put(&path, BEA).status, 200);
        check_replay(&first, &send(&unmet, patch));
        check_replay(&failed, &send(&steps, test));
        check_replay(&wrong, &send(&invalid, r#"{"customer":{"email":"nobody"}}"#));
        let missing = server.request(&format!("PATCH {NO_ONE}"), &[(KEY, "gone")], patch);
        assert_eq!((missing.status, slug(&missing).as_str()), (404, "not-found"));
        check_replay(&missing, &server.request(&format!("PATCH {NO_ONE}"), &[(KEY, "gone")], patch));
    }

    /// A refusal of the request by itself is the same every time, and uses up no key.
    fn idempotency_refusals_before_the_store_are_not_stored(server: Server) {
        let rows: [(Headers<'_>, &str, u16); 6] = [
            (&[(KEY, "k")], "{", 400),
            (&[(KEY, "k")], r#"{"customer":{"name":"Ann"}}"#, 422),
            (&[(KEY, "k")], r#"{"person":{}}"#, 400),
            (&[(KEY, "k"), ("Content-Type", "text/plain")], ANN, 415),
            (&[(KEY, "k"), ("Accept", "image/png")], ANN, 406),
            (&[(KEY, "k"), ("Sec-Fetch-Site", "cross-site")], ANN, 403),
        ];
        for (headers, body, status) in rows {
            assert_eq!(server.request("POST /customers", headers, body).status, status);
        }
        assert_eq!(server.request("POST /customers?x=1", &[(KEY, "k")], ANN).status, 400);
        assert_eq!(stored_responses(&server), "0");
        let answer = post(&server, "/customers", "k", ANN);
        assert_eq!((answer.status, answer.header(REPLAYED)), (201, None));
    }

    /// 428 depends on the headers alone; 403 on permissions, which may change.
    fn idempotency_refusals_by_headers_or_permissions_are_not_stored(backend: Backend) {
        let model = "title = \"T\"\n[resources.thing]\nrequire_if_match = true\n[resources.thing.fields]\nname = { type = \"text\" }\n";
        let server = Setup::new(backend).model(model).start();
        let path = server.create("/things", r#"{"thing":{"name":"a"}}"#);
        let send = |headers: &[(&str, &str)]| server.request(&format!("PATCH {path}"), headers, r#"{"thing":{"name":"b"}}"#);
        assert_eq!((send(&[(KEY, "k")]).status, stored_responses(&server).as_str()), (428, "0"));
        assert_eq!(send(&[(KEY, "k"), ("If-Match", "\"1\"")]).status, 200);
        assert_eq!(stored_responses(&server), "1");
    }

    fn idempotency_keys_are_separate_for_each_caller(backend: Backend) {
        let model = "title = \"T\"\n[resources.thing.fields]\nname = { type = \"text\" }\n[resources.note.fields]\ntext = { type = \"text\" }\n\
            [roles.maker]\nthing = [\"get\", \"post\"]\n[roles.half]\nthing = [\"get\", \"post\"]\nnote = { verbs = [\"get\", \"post\"], readonly = [\"text\"] }\n\
            [roles.anyone]\nthing = [\"post\"]\n";
        let server = Setup::new(backend).model(model).with_authentication().start();
        let (ann, bea) = (Person::new("ann", "correct horse 1"), Person::new("bea", "correct horse 2"));
        server.add_user(&ann, &["maker"]);
        server.add_user(&bea, &["half"]);
        let body = r#"{"thing":{"name":"a"}}"#;
        let send = |who: Option<&Person>, body: &str| {
            let credentials = who.map(Person::basic);
            let headers = [Some((KEY, "k")), credentials.as_deref().map(|basic| ("Authorization", basic))];
            server.request("POST /things", &headers.into_iter().flatten().collect::<Vec<_>>(), body)
        };
        let admin = server.admin();
        for who in [Some(&ann), Some(&bea), Some(&admin), None] {
            let first = send(who, body);
            assert_eq!((first.status, first.header(REPLAYED)), (201, None), "{who:?}: {first:?}");
            check_replay(&first, &send(who, body));
        }
        let wrong = Person::new("ann", "wrong");
        assert_eq!(send(Some(&wrong), body).status, 401, "who it is comes first");
        // Refused by permissions: not stored.
        let before = stored_responses(&server);
        let readonly = server.request("POST /notes", &[(KEY, "r"), ("Authorization", &bea.basic())], r#"{"note":{"text":"x"}}"#);
        assert_eq!((readonly.status, stored_responses(&server)), (403, before), "{readonly:?}");
    }

    /// A database from before idempotency keys.
    fn idempotency_table_is_added_to_an_older_database(backend: Backend) {
        let server = Server::on(backend);
        let path = server.create("/customers", ANN);
        let folder = server.stop();
        run_sql(backend, folder.path(), "DROP TABLE nouns_keys");
        run_sql(backend, folder.path(), "DELETE FROM nouns_system WHERE name = 'keys_form'");
        let server = Setup::new(backend).start_in(folder);
        let first = post(&server, "/customers", "k", BEA);
        assert_eq!(first.status, 201, "{first:?}");
        check_replay(&first, &post(&server, "/customers", "k", BEA));
        assert_eq!((server.get(&path).status, stored_responses(&server).as_str()), (200, "1"));
    }

    /// Neither the key nor the body can be read from the stored fingerprints.
    fn idempotency_stores_only_fingerprints_of_a_request(server: Server) {
        post(&server, "/customers", "a-key-to-be-found", ANN);
        let row = run_sql(server.backend(), server.folder(), "SELECT scope, fingerprint, bytes, length(answer) FROM nouns_keys");
        let (scope, rest) = row.trim().split_once('|').unwrap();
        assert_eq!(scope.len(), 43, "{row}");
        let numbers: Vec<_> = rest.split('|').skip(1).collect();
        assert_eq!(numbers[0], numbers[1], "{row}");
        let all = run_sql(server.backend(), server.folder(), "SELECT * FROM nouns_keys");
        assert!(!all.contains("a-key-to-be-found"), "{all}");
    }

    fn idempotency_replayed_problem_is_named_in_the_log(server: Server) {
        let body = r#"{"order":{"items":[{"product":"tea","unit_price":350}]}}"#;
        let first = post(&server, &format!("{NO_ONE}/orders"), "k", body);
        let again = post(&server, &format!("{NO_ONE}/orders"), "k", body);
        for answer in [&first, &again] {
            let id = answer.header("X-Request-Id").unwrap().to_owned();
            let line = crate::harness::wait_until("the request is logged", || {
                let log = server.log();
                let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
                lines.into_iter().find(|line| line["request_id"] == id.as_str() && line["status"] == 404)
            });
            assert_eq!(line["problem"], "not-found", "{line}");
        }
        assert_eq!(first.json()["request_id"], again.json()["request_id"]);
    }
}
