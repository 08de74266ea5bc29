//! `/-/webhooks` as a resource: life cycle, rules of its fields, rights, limits, tables.

use std::thread;

use expect_test::expect;
use serde_json::{Value, json};

use super::session::{MODEL, Session, faults, hook, without_secrets};
use crate::harness::{Answer, Backend, Client, Masks, Person, Setup};

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
            json!({"url": null, "events": "*", "filter": "", "enabled": "yes", "secret": 7}),
            json!({"url": ["https://example.com/"], "events": [1, null, "customer.*\u{0}"], "filter": 5}),
            json!({"url": "https://example.com/", "events": ["a".repeat(101)]}),
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
            /webhook/filter format stats: no such parameter here (there are limit, cursor, sort, fields, count, any, not, id, created_at, updated_at, status); did you mean "status"?
            /webhook/filter format limit: expected filters alone
            /webhook/filter format total:gt: expected an integer, got "many"
            /webhook/filter format the change log has no values of visits, so no filter
            /webhook/secret format expected whsec_ and 24 to 64 bytes in base64
            /webhook/disabled_reason read_only set by the server
            /webhook/previous_secret_expires read_only set by the server
            /webhook/paused unknown no such field
            /webhook/url null expected an https address, got null
            /webhook/events type expected a list, got a string
            /webhook/filter length expected at least 1 character, got 0
            /webhook/enabled type expected true or false, got a string
            /webhook/secret type expected whsec_ and 24 to 64 bytes in base64, got a number
            /webhook/url type expected an https address, got a list
            /webhook/events/0 type expected a text, got a number
            /webhook/events/1 null expected a text, got null
            /webhook/events/2 format expected a text without the NUL character
            /webhook/filter type expected a text, got a number
            /webhook/events/0 length expected at most 100 characters, got 101
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

    fn webhook_list_with_several_faults_reports_all_of_them(backend: Backend) {
        let session = Session::start(backend);
        let bad = [
            json!({"url": "https://127.0.0.1/", "events": ["custmer.*", "customer.*"]}),
            hook(),
            json!({"url": "https://example.com/", "events": ["*"], "filter": "status=paid"}),
            json!({"url": "https://10.0.0.1/", "events": ["order.*"]}),
        ];
        let answer = session.request("POST /-/webhooks", json!({"webhooks": bad}).to_string());
        expect![[r#"
            /webhooks/0/url format expected a public host: the address of this one is not public
            /webhooks/0/events/0 format no such resource: "custmer"; did you mean "customer"?
            /webhooks/2/filter format expected events of one resource, because a filter has its fields
            /webhooks/3/url format expected a public host: the address of this one is not public
        "#]].assert_eq(&faults(&answer));
        assert_eq!(session.get("/-/webhooks")["webhooks"], json!([]));
    }

    fn webhook_values_of_the_server_cannot_be_changed(backend: Backend) {
        let session = Session::start(backend);
        let (path, _) = session.create(&hook());
        session.sql("UPDATE nouns_webhooks SET enabled = false, disabled_reason = 'answered 410'");
        let shown = session.get(&path);
        assert_eq!(shown["webhook"]["disabled_reason"], "answered 410");
        let put = |webhook: &Value| session.request(&format!("PUT {path}"), webhook.to_string());
        let mut changed = shown.clone();
        changed["webhook"]["disabled_reason"] = "none".into();
        changed["webhook"]["previous_secret_expires"] = "2026-11-15T02:28:14Z".into();
        let patch = |body: &str| session.request(&format!("PATCH {path}"), body);
        let said = [put(&changed), patch(r#"{"webhook":{"disabled_reason":"x"}}"#), patch(r#"{"webhook":{"disabled_reason":null}}"#)];
        expect![[r#"
            /webhook/previous_secret_expires read_only set by the server
            /webhook/disabled_reason read_only set by the server
            /webhook/disabled_reason read_only set by the server
            /webhook/disabled_reason read_only set by the server
        "#]].assert_eq(&said.map(|answer| faults(&answer)).concat());
        // What GET shows can be sent back.
        assert_eq!(put(&shown).status, 200);
        let tag = session.request(&format!("GET {path}"), "").header("ETag").unwrap().to_owned();
        let conditional = |tag: &str| {
            let headers = [("Authorization", &*session.login), ("If-Match", tag)];
            session.server.request(&format!("PATCH {path}"), &headers, r#"{"webhook":{"enabled":true}}"#)
        };
        assert_eq!(conditional("\"9-00000000\"").status, 412);
        let enabled = conditional(&tag);
        assert_eq!(enabled.status, 200, "{enabled:?}");
        assert_eq!(enabled.json()["webhook"]["disabled_reason"], Value::Null);
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
}
