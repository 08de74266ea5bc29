//! `/-/webhooks` and `/-/webhooks/:id/deliveries` as resources: life cycle, rules, rights, secrets.
//!
//! The harness searches the database, the files and the log of every server for secrets of webhooks, and fails when a
//! secret is shown a second time.

use std::thread;

use expect_test::expect;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Masks, Person, Server, Setup, run_sql, wait_until};

const MODEL: &str = r#"
title = "Shop"

[resources.customer.fields]
name   = { type = "text", required = true }
status = { type = "text", filter = true }

[resources.order.fields]
total = { type = "integer", filter = true }

[resources.visit]
changes = "ids"

[resources.visit.fields]
place = { type = "text", filter = true }

[roles.watcher]
"/-/webhooks" = ["get"]

[roles.operator]
"/-/webhooks" = ["get", "patch", "delete"]

[roles.sender]
"/-/webhooks" = "*"

[roles.clerk]
"*" = "*"
"#;

/// A server, and the credentials of one of its users.
struct Session {
    server: Server,
    login: String,
}

impl Session {
    fn start(backend: Backend) -> Self {
        Self::start_with(Setup::new(backend).model(MODEL))
    }

    fn start_with(setup: Setup) -> Self {
        let server = setup.with_authentication().start();
        let login = server.admin().basic();
        Self { server, login }
    }

    fn request(&self, line: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request_as(&self.login, line, body)
    }

    fn request_as(&self, login: &str, line: &str, body: impl AsRef<[u8]>) -> Answer {
        self.server.request(line, &[("Authorization", login)], body)
    }

    /// Creates a webhook; returns its path and its secret.
    fn create(&self, webhook: &Value) -> (String, String) {
        let answer = self.request("POST /-/webhooks", json!({ "webhook": webhook }).to_string());
        assert_eq!(answer.status, 201, "{answer:?}");
        let path = answer.header("Location").unwrap().to_owned();
        (path, answer.json()["webhook"]["secret"].as_str().unwrap().to_owned())
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.request(&format!("GET {path}"), "");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    fn sql(&self, text: &str) -> String {
        run_sql(self.server.backend(), self.server.folder(), text)
    }

    /// Inserts a delivery with its queue row, as the server does; returns its id.
    fn insert_delivery(&self, webhook: &str, (number, status): (u32, &str)) -> String {
        let id = format!("01890a5d-ac96-774b-bcce-b3020999{number:04x}");
        let webhook = webhook.rsplit('/').next().unwrap();
        let time = "2026-11-15T02:28:14.000000Z";
        self.sql(&format!(
            "INSERT INTO nouns_deliveries (id, webhook_id, created_at, updated_at, version, sequence, type, subject, status, attempts, \
             next_attempt, response_status, error) VALUES ('{id}', '{webhook}', '{time}', '{time}', 1, {number}, \
             'nouns.customer.created', '/customers/1', '{status}', 7, NULL, 500, 'answered 500')"
        ));
        self.sql(&format!(
            "INSERT INTO nouns_delivery_queue (delivery_id, webhook_id, subject, sequence, body, due, claim_token, claimed_until) \
             VALUES ('{id}', '{webhook}', '/customers/1', {number}, '{{}}', NULL, 'x', '{time}')"
        ));
        id
    }
}

fn hook() -> Value {
    json!({"url": "https://example.com/hook", "events": ["customer.*"]})
}

/// The pointer, the code and the detail of each error of a 422.
fn faults(answer: &Answer) -> String {
    assert_eq!((answer.status, answer.problem().as_str()), (422, "invalid-fields"), "{answer:?}");
    let errors = answer.json()["errors"].clone();
    let line = |error: &Value| {
        let text = |name: &str| error[name].as_str().unwrap().to_owned();
        format!("{} {} {}\n", text("pointer"), text("code"), text("detail"))
    };
    errors.as_array().unwrap().iter().map(line).collect()
}

/// Replaces secrets, which are random.
fn without_secrets(text: &str) -> String {
    let secret = regex::Regex::new("whsec_[0-9A-Za-z+/=]+").unwrap();
    secret.replace_all(text, "whsec_<secret>").into_owned()
}

on_every_backend! {
    fn webhook_lifecycle_shows_the_secret_once(backend: Backend) {
        let session = Session::start(backend);
        let mut masks = Masks::default();
        let created = session.request("POST /-/webhooks", json!({"webhook": hook()}).to_string());
        assert_eq!(created.status, 201, "{created:?}");
        let path = created.header("Location").unwrap().to_owned();
        let list = session.request("GET /-/webhooks", "");
        let life = [
            ("POST", created),
            ("GET", session.request(&format!("GET {path}"), "")),
            ("PUT", session.request(&format!("PUT {path}"), json!({"webhook": {"url": "https://example.org/", "events": ["*"], "enabled": false}}).to_string())),
            ("PATCH", session.request(&format!("PATCH {path}"), json!({"webhook": {"enabled": true, "events": ["customer.updated"], "filter": "status=paid"}}).to_string())),
            ("GET", session.request("GET /-/webhooks?enabled=true", "")),
            ("GET", session.request(&format!("GET {path}/deliveries"), "")),
            ("DELETE", session.request(&format!("DELETE {path}"), "")),
            ("GET", session.request(&format!("GET {path}"), "")),
            ("GET", session.request(&format!("GET {path}/deliveries"), "")),
        ];
        assert_eq!(list.json()["webhooks"].as_array().unwrap().len(), 1);
        let line = |(verb, answer): (&str, Answer)| {
            let line = format!("{verb} {} {}", answer.status, masks.text(&without_secrets(answer.text())));
            format!("{}\n", line.trim_end())
        };
        expect![[r#"
            POST 201 {"webhook":{"id":"<id-1>","url":"https://example.com/hook","events":["customer.*"],"filter":null,"enabled":true,"secret":"whsec_<secret>","previous_secret_expires":null,"disabled_reason":null,"created_at":"<time-1>","updated_at":"<time-1>","version":1}}
            GET 200 {"webhook":{"id":"<id-1>","url":"https://example.com/hook","events":["customer.*"],"filter":null,"enabled":true,"previous_secret_expires":null,"disabled_reason":null,"created_at":"<time-1>","updated_at":"<time-1>","version":1}}
            PUT 200 {"webhook":{"id":"<id-1>","url":"https://example.org/","events":["*"],"filter":null,"enabled":false,"previous_secret_expires":null,"disabled_reason":null,"created_at":"<time-1>","updated_at":"<time-2>","version":2}}
            PATCH 200 {"webhook":{"id":"<id-1>","url":"https://example.org/","events":["customer.updated"],"filter":"status=paid","enabled":true,"previous_secret_expires":null,"disabled_reason":null,"created_at":"<time-1>","updated_at":"<time-3>","version":3}}
            GET 200 {"webhooks":[{"id":"<id-1>","url":"https://example.org/","events":["customer.updated"],"filter":"status=paid","enabled":true,"previous_secret_expires":null,"disabled_reason":null,"created_at":"<time-1>","updated_at":"<time-3>","version":3}],"page":{"limit":50,"next":null}}
            GET 200 {"deliveries":[],"page":{"limit":50,"next":null}}
            DELETE 204
            GET 404 {"type":"/-/problems/not-found","title":"There is no such item","status":404,"instance":"/-/webhooks/<id-1>","request_id":"<request-1>"}
            GET 404 {"type":"/-/problems/not-found","title":"There is no such item","status":404,"instance":"/-/webhooks/<id-1>/deliveries","request_id":"<request-2>"}
        "#]].assert_eq(&life.map(line).concat());
    }

    /// Client's own secret, in every format.
    fn webhook_secret_of_the_client_is_shown_in_the_response(backend: Backend) {
        let session = Session::start(backend);
        let own = |byte: u8| format!("whsec_{}", base64_of(&[byte; 24]));
        let with_secret = |secret: &str| json!({"url": "https://example.com/", "events": ["*"], "secret": secret});
        let (_, shown) = session.create(&with_secret(&own(1)));
        assert_eq!(shown, own(1));
        let many = format!("{}\n{}\n", with_secret(&own(2)), hook());
        let headers = [("Authorization", &*session.login), ("Accept", "text/csv"), ("Content-Type", "application/x-ndjson")];
        let answer = session.server.request("POST /-/webhooks", &headers, many);
        assert_eq!(answer.status, 201, "{answer:?}");
        assert!(answer.text().contains(&own(2)), "{answer:?}");
        assert_eq!(answer.text().matches("whsec_").count(), 2, "{answer:?}");
        for accept in ["text/csv", "application/x-ndjson", "application/json"] {
            let answer = session.server.request("GET /-/webhooks", &[("Authorization", &session.login), ("Accept", accept)], "");
            assert_eq!(answer.status, 200);
            assert!(!answer.text().contains("whsec_") && !answer.text().contains("\"secret\""), "{answer:?}");
        }
        assert_eq!(session.request("GET /-/webhooks?fields=secret", "").status, 400);
        assert_eq!(session.request("GET /-/webhooks?secret:exists=true", "").status, 400);
        assert_eq!(session.sql("SELECT count(*) FROM nouns_webhooks WHERE secret LIKE '%whsec%'").trim(), "0");
    }

    fn webhook_rotation_keeps_the_previous_secret_for_a_day(backend: Backend) {
        let session = Session::start(backend);
        let (path, first) = session.create(&hook());
        let stored = || session.sql("SELECT secret FROM nouns_webhooks").trim().to_owned();
        let only = stored();
        assert!(!only.contains(' '), "{only}");
        let answer = session.request(&format!("PATCH {path}"), r#"{"webhook":{"secret":null}}"#);
        assert_eq!(answer.status, 200, "{answer:?}");
        let webhook = &answer.json()["webhook"];
        let second = webhook["secret"].as_str().unwrap();
        assert_ne!(second, first);
        let expires = webhook["previous_secret_expires"].as_str().unwrap();
        let day = |time: &str| time.split('T').next().unwrap().to_owned();
        assert_ne!(day(expires), day(webhook["updated_at"].as_str().unwrap()));
        let both = stored();
        assert_eq!(both.split(' ').nth(1), Some(&*only), "{both}");
        // A second rotation within the day drops the oldest.
        let own = format!("whsec_{}", base64_of(&[7; 64]));
        let body = json!({"webhook": {"url": "https://example.com/", "events": ["*"], "secret": own}});
        let answer = session.request(&format!("PUT {path}"), body.to_string());
        assert_eq!((answer.status, answer.json()["webhook"]["secret"].as_str()), (200, Some(&*own)));
        let last = stored();
        assert_eq!(last.split(' ').skip(1).collect::<Vec<_>>(), [both.split(' ').next().unwrap()], "{last}");
        // JSON Patch asks for a new one too.
        let patch = r#"[{"op":"add","path":"/webhook/secret","value":null}]"#;
        let headers = [("Authorization", &*session.login), ("Content-Type", "application/json-patch+json")];
        let answer = session.server.request(&format!("PATCH {path}"), &headers, patch);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.json()["webhook"]["secret"].is_string(), "{answer:?}");
        // Without a secret nothing is rotated, and nothing is shown.
        let now = stored();
        let answer = session.request(&format!("PATCH {path}"), r#"{"webhook":{"enabled":false}}"#);
        assert_eq!(answer.json()["webhook"]["secret"], Value::Null, "{answer:?}");
        let shown = session.get(&path);
        assert_eq!(session.request(&format!("PUT {path}"), shown.to_string()).status, 200);
        assert_eq!(stored(), now);
        let changes = session.get("/-/changes?resource=-/webhook");
        assert!(!changes.to_string().contains("whsec_"), "{changes}");
        assert_eq!(changes["changes"][1]["changed"], json!(["previous_secret_expires"]));
    }

    /// RELIABILITY: addresses of the own network, in every spelling.
    fn webhook_url_into_the_own_network_is_refused(backend: Backend) {
        let session = Session::start(backend);
        let urls = [
            "https://127.0.0.1/", "https://0.0.0.0/", "https://[::1]/", "https://[::]/", "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:7f00:1]/", "https://[64:ff9b::127.0.0.1]/", "https://[2002:7f00:1::]/", "https://2130706433/",
            "https://0x7f000001/", "https://0177.0.0.1/", "https://127.1/", "https://169.254.169.254/latest/meta-data/",
            "https://[fd00:ec2::254]/", "https://10.0.0.1/", "https://172.16.0.1/", "https://192.168.1.1/", "https://100.64.0.1/",
            "https://168.63.129.16/", "https://[fe80::1]/", "https://224.0.0.1/", "https://255.255.255.255/",
            "https://localhost/", "https://LocalHost.:8443/", "https://a.localhost/",
            "http://example.com/", "https://user@example.com/", "https://user:word@example.com/", "https://example.com/#top",
            "ftp://example.com/", "//example.com/", "example.com", "", "https://", "https://exa mple.com/", "https://[1]/",
            "https://127.0.0.1%2eexample.com/", "https://example.com\\@127.0.0.1/", "file:///etc/passwd",
        ];
        let long = format!("https://example.com/{}", "a".repeat(2000));
        for url in urls.into_iter().chain([&*long]) {
            let body = json!({"webhook": {"url": url, "events": ["*"]}});
            let said = faults(&session.request("POST /-/webhooks", body.to_string()));
            assert!(said.starts_with("/webhook/url format "), "{url}: {said}");
        }
        let (path, _) = session.create(&hook());
        let patch = |url: &str| session.request(&format!("PATCH {path}"), json!({"webhook": {"url": url}}).to_string());
        for url in urls {
            assert_eq!(patch(url).status, 422, "{url}");
        }
        assert_eq!(patch("https://8.8.8.8:8443/x?y=%20").status, 200);
        assert_eq!(session.sql("SELECT count(*) FROM nouns_webhooks").trim(), "1");
    }

    fn webhook_url_may_be_private_if_the_model_allows_it(backend: Backend) {
        let model = format!("{MODEL}\n[server]\nwebhook_allow_private = true\n");
        let session = Session::start_with(Setup::new(backend).model(&model));
        for url in ["http://127.0.0.1:8000/", "https://[::1]/", "http://localhost/", "http://169.254.169.254/"] {
            session.create(&json!({"url": url, "events": ["*"]}));
        }
        for url in ["http://0.0.0.0/", "http://[::]/", "http://224.0.0.1/", "http://2130706433/", "http://a@127.0.0.1/"] {
            let body = json!({"webhook": {"url": url, "events": ["*"]}});
            assert_eq!(session.request("POST /-/webhooks", body.to_string()).status, 422, "{url}");
        }
        // A webhook from before can still be paused.
        let folder = session.server.stop();
        let server = Setup::new(backend).model(MODEL).with_authentication().start_in(folder);
        let session = Session { login: server.admin().basic(), server };
        let path = format!("/-/webhooks/{}", session.get("/-/webhooks")["webhooks"][0]["id"].as_str().unwrap());
        assert_eq!(session.request(&format!("PATCH {path}"), r#"{"webhook":{"enabled":false}}"#).status, 200);
        assert_eq!(session.request(&format!("PATCH {path}"), r#"{"webhook":{"url":"http://localhost/a"}}"#).status, 422);
    }

    fn webhook_events_and_filter_are_checked_against_the_model(backend: Backend) {
        let session = Session::start(backend);
        let said = [
            json!({"url": "https://example.com/"}),
            json!({"url": "https://example.com/", "events": []}),
            json!({"url": "https://example.com/", "events": ["custmer.*", "customer.creatd", "customer.left", "user.*", "customers"]}),
            json!({"url": "https://example.com/", "events": vec!["*"; 101]}),
            json!({"url": "https://example.com/", "events": ["*"], "filter": "status=paid"}),
            json!({"url": "https://example.com/", "events": ["customer.*"], "filter": "stats=paid"}),
            json!({"url": "https://example.com/", "events": ["customer.*"], "filter": "status=paid&limit=5"}),
            json!({"url": "https://example.com/", "events": ["order.*"], "filter": "total:gt=many"}),
            json!({"url": "https://example.com/", "events": ["visit.*"], "filter": "place=here"}),
            json!({"url": "https://example.com/", "events": ["*"], "secret": "whsec_short"}),
            json!({"url": "https://example.com/", "events": ["*"], "disabled_reason": "x", "previous_secret_expires": null}),
            json!({"url": "https://example.com/", "events": ["*"], "paused": true}),
        ].map(|webhook| faults(&session.request("POST /-/webhooks", json!({"webhook": webhook}).to_string())));
        expect![[r#"
            /webhook/events required expected a list, got nothing
            /webhook/events items expected at least 1 item, got 0
            /webhook/events/0 format no such resource: "custmer"; did you mean "customer"?
            /webhook/events/1 format no such kind: "creatd"; did you mean "created"? (there are *, created, updated, deleted)
            /webhook/events/2 format no such kind: "left" (there are *, created, updated, deleted)
            /webhook/events/3 format no such resource: "user"
            /webhook/events/4 format expected "*", or a resource and a kind, such as "order.*" or "order.created", got "customers"
            /webhook/events items expected at most 100 items, got 101
            /webhook/filter format expected events of one resource, because a filter has its fields
            /webhook/filter format stats: no such parameter here (there are limit, cursor, sort, fields, count, id, created_at, updated_at, status); did you mean "status"?
            /webhook/filter format limit: expected filters alone
            /webhook/filter format total:gt: expected an integer, got "many"
            /webhook/filter format the change log has no values of visits, so no filter
            /webhook/secret format expected whsec_ and 24 to 64 bytes in base64
            /webhook/disabled_reason read_only set by the server
            /webhook/previous_secret_expires read_only set by the server
            /webhook/paused unknown no such field
        "#]].assert_eq(&said.concat());
        // The filter of the stored webhook does not fit the new events.
        let (path, _) = session.create(&json!({"url": "https://example.com/", "events": ["customer.left"], "filter": "status=paid"}));
        let answer = session.request(&format!("PATCH {path}"), r#"{"webhook":{"events":["*"]}}"#);
        expect![[r#"
            /webhook/filter format expected events of one resource, because a filter has its fields
        "#]].assert_eq(&faults(&answer));
        assert_eq!(session.request(&format!("PATCH {path}"), r#"{"webhook":{"events":["*"],"filter":null}}"#).status, 200);
        assert_eq!(session.get(&path)["webhook"]["filter"], Value::Null);
    }

    fn webhook_request_with_an_idempotency_key_gets_the_secret_again(backend: Backend) {
        let session = Session::start(backend);
        let send = |line: &str, key: &str, body: &str| {
            session.server.request(line, &[("Authorization", &session.login), ("Idempotency-Key", key)], body)
        };
        let body = json!({"webhook": hook()}).to_string();
        let first = send("POST /-/webhooks", "a", &body);
        assert_eq!(first.status, 201, "{first:?}");
        let again = send("POST /-/webhooks", "a", &body);
        assert_eq!((again.status, again.header("Idempotent-Replayed")), (201, Some("true")), "{again:?}");
        assert_eq!(again.json(), first.json());
        assert_eq!(again.header("Location"), first.header("Location"));
        assert!(again.json()["webhook"]["secret"].as_str().unwrap().starts_with("whsec_"));
        let path = first.header("Location").unwrap();
        let patch = r#"{"webhook":{"secret":null}}"#;
        let rotated = send(&format!("PATCH {path}"), "b", patch);
        let again = send(&format!("PATCH {path}"), "b", patch);
        assert_eq!((rotated.status, again.status), (200, 200), "{rotated:?} {again:?}");
        assert_eq!(again.json(), rotated.json());
        assert_ne!(again.json()["webhook"]["secret"], first.json()["webhook"]["secret"]);
        assert_eq!(session.get("/-/webhooks")["webhooks"].as_array().unwrap().len(), 1);
        let kept = session.sql("SELECT answer FROM nouns_keys");
        assert!(!kept.contains("whsec_") && !kept.contains("example.com"), "{kept}");
        // A response without a secret is stored as it is.
        let paused = send(&format!("PATCH {path}"), "c", r#"{"webhook":{"enabled":false}}"#);
        assert_eq!(paused.status, 200);
        assert_eq!(send(&format!("PATCH {path}"), "c", r#"{"webhook":{"enabled":false}}"#).json(), paused.json());
        let wrong = send("POST /-/webhooks", "d", r#"{"webhook":{"url":"https://127.0.0.1/","events":["*"]}}"#);
        assert_eq!(wrong.status, 422);
    }

    fn webhook_grants_include_the_deliveries(backend: Backend) {
        let session = Session::start(backend);
        let (path, _) = session.create(&hook());
        let delivery = session.insert_delivery(&path, (1, "dead"));
        let delivery = format!("{path}/deliveries/{delivery}");
        let mut table = String::new();
        for role in ["watcher", "operator", "sender", "clerk", "anyone"] {
            let person = Person::new(role, "correct horse");
            let login = person.basic();
            if role != "anyone" {
                session.server.add_user(&person, &[role]);
            }
            let mut statuses = Vec::new();
            for (line, body) in [
                ("GET /-/webhooks".to_owned(), String::new()),
                (format!("GET {path}"), String::new()),
                (format!("GET {path}/deliveries"), String::new()),
                ("POST /-/webhooks".to_owned(), json!({"webhook": hook()}).to_string()),
                (format!("PATCH {path}"), r#"{"webhook":{"enabled":true}}"#.to_owned()),
                (format!("PATCH {delivery}"), r#"{"delivery":{"status":"pending"}}"#.to_owned()),
                (format!("DELETE {path}0"), String::new()),
            ] {
                let answer = match role {
                    "anyone" => session.server.request(&line, &[], body),
                    _ => session.request_as(&login, &line, body),
                };
                statuses.push(answer.status.to_string());
            }
            table += &format!("{role} {}\n", statuses.join(" "));
        }
        expect![[r#"
            watcher 200 200 200 403 403 403 403
            operator 200 200 200 403 200 200 404
            sender 200 200 200 201 200 200 404
            clerk 403 403 403 403 403 403 403
            anyone 401 401 401 401 401 401 401
        "#]].assert_eq(&table);
    }

    fn webhooks_max_holds_for_concurrent_requests(backend: Backend) {
        let model = format!("{MODEL}\n[server.limits]\nwebhooks_max = 3\n");
        let session = Session::start_with(Setup::new(backend).model(&model));
        let statuses: Vec<u16> = thread::scope(|scope| {
            let (address, login) = (session.server.address, session.login.as_str());
            let create = move || {
                let body = json!({"webhook": hook()}).to_string();
                Client::connect(address).request("POST /-/webhooks", &[("Authorization", login)], body).status
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 3, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 5, "{statuses:?}");
        let answer = session.request("POST /-/webhooks", json!({"webhook": hook()}).to_string());
        assert_eq!(answer.problem(), "too-many-webhooks");
        let path = format!("/-/webhooks/{}", session.get("/-/webhooks")["webhooks"][0]["id"].as_str().unwrap());
        assert_eq!(session.request(&format!("DELETE {path}"), "").status, 204);
        let many = json!({"webhooks": [hook(), hook()]});
        assert_eq!(session.request("POST /-/webhooks", many.to_string()).status, 409);
        session.create(&hook());
        assert_eq!(session.sql("SELECT count(*) FROM nouns_webhooks").trim(), "3");
    }

    fn delivery_is_read_filtered_sent_again_and_deleted(backend: Backend) {
        let session = Session::start(backend);
        let (path, _) = session.create(&hook());
        let (other, _) = session.create(&hook());
        let ids = [(1, "dead"), (2, "delivered"), (3, "pending")].map(|of| session.insert_delivery(&path, of));
        let list = format!("{path}/deliveries");
        let item = |at: usize| format!("{list}/{}", ids[at]);
        let mut masks = Masks::default();
        let shown = session.request(&format!("GET {list}?status=dead"), "");
        expect![[r#"{"deliveries":[{"id":"<id-1>","webhook_id":"<id-2>","sequence":1,"type":"nouns.customer.created","subject":"/customers/1","status":"dead","attempts":7,"next_attempt":null,"response_status":500,"error":"answered 500","created_at":"<time-1>","updated_at":"<time-1>","version":1}],"page":{"limit":50,"next":null}}"#]].assert_eq(&masks.text(shown.text()));
        let patch = |at: usize, body: &str| session.request(&format!("PATCH {}", item(at)), body);
        let again = patch(0, r#"{"delivery":{"status":"pending"}}"#);
        assert_eq!(again.status, 200, "{again:?}");
        let delivery = &again.json()["delivery"];
        assert_eq!((&delivery["status"], &delivery["attempts"], &delivery["version"]), (&json!("pending"), &json!(0), &json!(2)));
        assert_eq!(delivery["next_attempt"], delivery["updated_at"]);
        let queue = "SELECT count(*) FROM nouns_delivery_queue WHERE due IS NOT NULL AND claim_token IS NULL AND claimed_until IS NULL";
        assert_eq!(session.sql(queue).trim(), "1");
        assert_eq!(patch(1, r#"{"delivery":{"status":"pending"}}"#).status, 200);
        let answers = [
            patch(2, r#"{"delivery":{"status":"pending"}}"#),
            patch(2, r#"{"delivery":{"status":"dead"}}"#),
            patch(2, r#"{"delivery":{"attempts":1}}"#),
            patch(2, r#"{"delivery":{"error":null}}"#),
            patch(2, r#"{"delivery":{"status":"sent"}}"#),
            patch(2, r#"{"delivery":{"body":"x"}}"#),
            session.request(&format!("POST {list}"), r#"{"delivery":{}}"#),
            session.request(&format!("PUT {}", item(2)), r#"{"delivery":{}}"#),
            session.request(&format!("OPTIONS {}", item(2)), ""),
            session.request(&format!("OPTIONS {list}"), ""),
            session.request(&format!("GET {other}/deliveries/{}", ids[2]), ""),
            session.request(&format!("DELETE {}", item(2)), ""),
            session.request(&format!("GET {}", item(2)), ""),
        ];
        let line = |answer: Answer| {
            let problem = if answer.status >= 400 { answer.problem() } else { String::new() };
            let line = format!("{} {problem} {}", answer.status, answer.header("Allow").unwrap_or(""));
            format!("{}\n", line.trim_end())
        };
        expect![[r#"
            200
            409 transition-not-allowed
            422 invalid-fields
            422 invalid-fields
            422 invalid-fields
            422 invalid-fields
            405 method-not-allowed GET, HEAD, OPTIONS
            405 method-not-allowed GET, HEAD, PATCH, DELETE, OPTIONS
            204  GET, HEAD, PATCH, DELETE, OPTIONS
            204  GET, HEAD, OPTIONS
            404 not-found
            204
            404 not-found
        "#]].assert_eq(&answers.map(line).concat());
        assert_eq!(session.sql("SELECT count(*) FROM nouns_delivery_queue").trim(), "2");
        let stream = session.server.request(&format!("GET {list}"), &[("Authorization", &session.login), ("Accept", "text/event-stream")], "");
        assert_eq!(stream.status, 403, "{stream:?}");
    }

    /// The server changes deliveries without entries in the change log.
    fn delivery_list_tag_changes_with_the_rows(backend: Backend) {
        let session = Session::start(backend);
        let (path, _) = session.create(&hook());
        session.insert_delivery(&path, (1, "pending"));
        let list = format!("GET {path}/deliveries");
        let tag = session.request(&list, "").header("ETag").unwrap().to_owned();
        let get = || session.server.request(&list, &[("Authorization", &session.login), ("If-None-Match", &tag)], "").status;
        assert_eq!(get(), 304);
        session.sql("UPDATE nouns_deliveries SET status = 'delivered', version = 2");
        assert_eq!(get(), 200);
    }

    /// The deliveries are invisible at once, and deleted later, in batches.
    fn webhook_deleted_with_many_deliveries(backend: Backend) {
        let session = Session::start(backend);
        let (path, _) = session.create(&hook());
        let (kept, _) = session.create(&hook());
        for number in 1..=40 {
            session.insert_delivery(&path, (number, "dead"));
        }
        let stays = session.insert_delivery(&kept, (41, "dead"));
        let first = format!("{path}/deliveries/01890a5d-ac96-774b-bcce-b30209990001");
        assert_eq!(session.request(&format!("GET {first}"), "").status, 200);
        assert_eq!(session.request(&format!("DELETE {path}"), "").status, 204);
        assert_eq!(session.request(&format!("GET {path}/deliveries"), "").status, 404);
        for verb in ["GET", "PATCH", "DELETE"] {
            let answer = session.request(&format!("{verb} {first}"), r#"{"delivery":{"status":"pending"}}"#);
            assert_eq!(answer.status, 404, "{verb}");
        }
        assert_eq!(session.get("/-/changes?resource=-/delivery")["changes"], json!([]));
        // A start sweeps.
        let folder = session.server.stop();
        let server = Setup::new(backend).model(MODEL).with_authentication().start_in(folder);
        let session = Session { login: server.admin().basic(), server };
        wait_until("the deliveries are deleted", || (session.sql("SELECT count(*) FROM nouns_deliveries").trim() == "1").then_some(()));
        assert_eq!(session.sql("SELECT count(*) FROM nouns_delivery_queue").trim(), "1");
        assert_eq!(session.request(&format!("GET {kept}/deliveries/{stays}"), "").status, 200);
    }

    /// A database of an earlier version.
    fn webhook_tables_are_created_in_an_existing_database(backend: Backend) {
        let session = Session::start(backend);
        session.create(&hook());
        for table in ["nouns_delivery_queue", "nouns_deliveries", "nouns_webhook_positions", "nouns_webhooks"] {
            session.sql(&format!("DROP TABLE {table}"));
        }
        session.sql("DELETE FROM nouns_system WHERE name = 'webhooks'");
        let session = Session { server: session.server.restart(), login: session.login };
        assert_eq!(session.get("/-/webhooks")["webhooks"], json!([]));
        session.create(&hook());
    }

    /// Without authentication there is no key to seal secrets with.
    fn webhook_on_a_server_without_a_key_is_refused(server: Server) {
        let body = json!({"webhook": {"url": "https://example.com/", "events": ["*"]}}).to_string();
        let answer = server.post("/-/webhooks", &body);
        assert_eq!((answer.status, answer.problem().as_str()), (409, "no-server-key"));
        let answer = server.request("POST /-/webhooks", &[("Idempotency-Key", "a")], &body);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "bad-idempotency-key"));
        assert_eq!(server.get("/-/webhooks").json()["webhooks"], json!([]));
    }
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
