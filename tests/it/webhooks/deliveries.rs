//! `/-/webhooks/:id/deliveries`: read, sent again, deleted. The rows are those that the server writes.

use expect_test::expect;
use serde_json::json;

use super::session::{MODEL, Session, days_ago, hook};
use crate::harness::{Answer, Backend, Masks, Setup, wait_until};

on_every_backend! {
    fn delivery_is_read_filtered_sent_again_and_deleted(backend: Backend) {
        let session = Session::start(backend);
        // Of a disabled webhook nothing is sent.
        let disabled = json!({"url": "https://example.com/hook", "events": ["customer.*"], "enabled": false});
        let (path, _) = session.create(&disabled);
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
        let queue = "SELECT count(*) FROM nouns_delivery_queue WHERE due IS NOT NULL AND claim_token IS NULL AND tries = 0";
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
            405 method-not-allowed GET, HEAD, QUERY, OPTIONS
            405 method-not-allowed GET, HEAD, PATCH, DELETE, OPTIONS
            204  GET, HEAD, PATCH, DELETE, OPTIONS
            204  GET, HEAD, QUERY, OPTIONS
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
        for number in 1..=10 {
            session.insert_delivery(&path, (number, "dead"));
        }
        let stays = session.insert_delivery(&kept, (41, "dead"));
        // More than one batch.
        let (owner, time) = (path.rsplit('/').next().unwrap(), days_ago(backend, 0));
        let row = |number: u32| {
            let id = format!("01890a5d-ac96-774b-bcce-b3021000{number:04x}");
            format!("('{id}', '{owner}', {time}, {time}, 1, {number}, 'x', '/customers/1', 'dead', 14)")
        };
        session.sql(&format!(
            "INSERT INTO nouns_deliveries (id, webhook_id, created_at, updated_at, version, sequence, type, subject, status, attempts) VALUES {}",
            (101..=2600).map(row).collect::<Vec<_>>().join(", ")
        ));
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
}
