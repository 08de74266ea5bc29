//! The secrets of webhooks: shown once, rotated, stored encrypted, replayed to retries.
//!
//! The harness searches the database, the files and the log of every server for secrets of webhooks, and fails when a
//! secret is shown a second time.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::hooks::HookServer;
use super::receiver::{Receiver, ReceiverAction};
use super::session::{Session, base64_of, hook};
use super::verify_signature;
use crate::harness::{Backend, DEBUG_EXECUTABLE, Process, Server, run_nouns, wait_until};

on_every_backend! {
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
        assert_eq!(answer.header("Cache-Control"), Some("no-store"));
        for accept in ["text/csv", "application/x-ndjson", "application/json"] {
            let answer = session.server.request("GET /-/webhooks", &[("Authorization", &session.login), ("Accept", accept)], "");
            assert_eq!(answer.status, 200);
            assert!(!answer.text().contains("whsec_") && !answer.text().contains("\"secret\""), "{answer:?}");
        }
        // A refused request leaves nothing behind, in the log either.
        let refused = json!({"webhook": {"url": "https://127.0.0.1/", "events": ["*"], "secret": own(3)}});
        assert_eq!(session.request("POST /-/webhooks", refused.to_string()).status, 422);
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
        assert_eq!(answer.header("Cache-Control"), Some("private, no-cache"));
        let shown = session.get(&path);
        assert_eq!(session.request(&format!("PUT {path}"), shown.to_string()).status, 200);
        assert_eq!(stored(), now);
        let changes = session.get("/-/changes?resource=-/webhook");
        assert!(!changes.to_string().contains("whsec_"), "{changes}");
        assert_eq!(changes["changes"][1]["changed"], json!(["secret", "previous_secret_expires"]));
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
        assert_eq!([&first, &again].map(|answer| answer.header("Cache-Control")), [Some("no-store"); 2]);
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

    /// Without authentication there is no key to seal secrets with.
    fn webhook_on_a_server_without_a_key_is_refused(server: Server) {
        let body = json!({"webhook": {"url": "https://example.com/", "events": ["*"]}}).to_string();
        let answer = server.post("/-/webhooks", &body);
        assert_eq!((answer.status, answer.problem().as_str()), (409, "no-server-key"));
        let answer = server.request("POST /-/webhooks", &[("Idempotency-Key", "a")], &body);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "bad-idempotency-key"));
        assert_eq!(server.get("/-/webhooks").json()["webhooks"], json!([]));
    }

    /// The command opens what the old key has sealed, and seals it with the new one.
    fn webhook_secrets_are_resealed_when_the_key_is_rotated(backend: Backend) {
        let session = Session::start(backend);
        let (path, _) = session.create(&hook());
        assert_eq!(session.request(&format!("PATCH {path}"), r#"{"webhook":{"secret":null}}"#).status, 200);
        let stored = || session.sql("SELECT secret FROM nouns_webhooks").trim().to_owned();
        let before = stored();
        let (database, key) = (session.server.database(), session.server.key_file());
        let rotate = |more: &[&str]| {
            let key = key.to_str().unwrap();
            let args = ["key", "rotate", "--model", "model.toml", "--database", &database, "--key-file", key];
            run_nouns(session.server.folder(), &[&args[..], more].concat())
        };
        let done = rotate(&[]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stdout.ends_with("; resealed the secrets of 1 webhook\n"), "{done:?}");
        let after = stored();
        assert_eq!(after.split(' ').count(), 2, "{after}");
        assert!(before.split(' ').all(|sealed| !after.contains(sealed)), "{after}");
        assert_eq!(session.get(&path)["webhook"]["version"], 2);
        assert_eq!(rotate(&[]).code, Some(0));
        // The key is lost: nothing opens the secrets.
        fs::remove_file(&key).unwrap();
        let done = rotate(&["--lost"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stdout.contains("; dropped the secrets of 1 webhook, "), "{done:?}");
        let session = Session { server: session.server.restart(), login: session.login };
        let webhook = session.get(&path)["webhook"].clone();
        let reason = "the key that sealed its secret is lost: set a new secret";
        assert_eq!((&webhook["enabled"], &webhook["disabled_reason"]), (&json!(false), &json!(reason)));
        // This is a change of the webhook, unlike the resealing: the history has all of its versions.
        assert_eq!((&webhook["version"], &webhook["previous_secret_expires"]), (&json!(3), &Value::Null));
        let log = session.get(&format!("/-/changes?subject={path}&kind=updated"));
        let last = log["changes"].as_array().unwrap().iter().max_by_key(|one| one["sequence"].as_i64());
        assert_eq!(last.unwrap()["actor"], "command line", "{log}");
        for (version, is_enabled) in [(1, true), (2, true), (3, false)] {
            let then = session.get(&format!("{path}?version={version}"))["webhook"].clone();
            assert_eq!((&then["version"], &then["enabled"]), (&json!(version), &json!(is_enabled)));
        }
        assert!(!log.to_string().contains("whsec_"), "{log}");
        let answer = session.request(&format!("PATCH {path}"), r#"{"webhook":{"secret":null,"enabled":true}}"#);
        let webhook = answer.json()["webhook"].clone();
        assert!(webhook["secret"].is_string(), "{webhook}");
        assert_eq!([&webhook["disabled_reason"], &webhook["previous_secret_expires"]], [&Value::Null; 2]);
    }

    /// Killed between the records that it seals again: a running server opens all secrets at any time, and the next run
    /// finishes.
    fn webhook_secrets_survive_an_interrupted_rotation_of_the_key(backend: Backend) {
        let server = HookServer::start(backend);
        let receivers = [(), ()].map(|()| Receiver::always(ReceiverAction::status(204)));
        let hooks = receivers.each_ref().map(|one| server.create_hook(one, &["customer.created"]));
        let rotate = |server: &HookServer, fault: &str| {
            let (database, key) = (server.server.database(), server.server.key_file());
            let mut command = Command::new(DEBUG_EXECUTABLE);
            command.args(["key", "rotate", "--model", "model.toml", "--database", &database, "--key-file"]);
            command.arg(key).env_clear().env("NOUNS_FAULT", fault).current_dir(server.server.folder());
            Process::spawn(&mut command).end()
        };
        let check_deliveries = |server: &HookServer, count: usize| {
            server.create_customer("Ann");
            for (receiver, hook) in receivers.iter().zip(&hooks) {
                wait_until("it is sent", || {
                    server.make_due();
                    (receiver.requests().len() == count).then_some(())
                });
                verify_signature(receiver.requests().last().unwrap(), &hook.secret);
            }
        };
        check_deliveries(&server, 1);
        let sealed = |server: &HookServer| server.sql("SELECT secret FROM nouns_webhooks ORDER BY id");
        let former = sealed(&server);
        // Before the first webhook, between the two, and after the second one.
        for (count, (fault, changed)) in (2..).zip([("rotate:5", 0), ("rotate:3", 1), ("rotate:3", 2)]) {
            let ended = rotate(&server, fault);
            assert!(ended.stderr.contains("planted at rotate"), "{ended:?}");
            let now = sealed(&server);
            let are_changed = former.lines().zip(now.lines()).map(|(before, now)| before != now);
            assert_eq!(are_changed.filter(|is_changed| *is_changed).count(), changed, "{fault}");
            check_deliveries(&server, count);
        }
        let former = sealed(&server);
        let ended = rotate(&server, "none:1");
        assert_eq!((ended.code, sealed(&server)), (Some(0), former), "{ended:?}");
        check_deliveries(&server, 5);
        let HookServer { server: running, login } = server;
        let server = HookServer::start_again(backend, running.stop(), login);
        check_deliveries(&server, 6);
    }
}
