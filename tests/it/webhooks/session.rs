//! A server with webhooks, and an administrator of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Server, Setup, run_sql};

pub const MODEL: &str = r#"
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
pub struct Session {
    pub server: Server,
    pub login: String,
}

impl Session {
    pub fn start(backend: Backend) -> Self {
        Self::start_with(Setup::new(backend).model(MODEL))
    }

    pub fn start_with(setup: Setup) -> Self {
        let server = setup.with_authentication().start();
        let login = server.admin().basic();
        Self { server, login }
    }

    pub fn request(&self, line: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request_as(&self.login, line, body)
    }

    pub fn request_as(&self, login: &str, line: &str, body: impl AsRef<[u8]>) -> Answer {
        self.server.request(line, &[("Authorization", login)], body)
    }

    /// Creates a webhook; returns its path and its secret.
    pub fn create(&self, webhook: &Value) -> (String, String) {
        let answer = self.request("POST /-/webhooks", json!({ "webhook": webhook }).to_string());
        assert_eq!(answer.status, 201, "{answer:?}");
        let path = answer.header("Location").unwrap().to_owned();
        (path, answer.json()["webhook"]["secret"].as_str().unwrap().to_owned())
    }

    pub fn get(&self, path: &str) -> Value {
        let answer = self.request(&format!("GET {path}"), "");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    pub fn sql(&self, text: &str) -> String {
        run_sql(self.server.backend(), self.server.folder(), text)
    }

    /// Inserts a delivery with its queue row, as the server does; returns its id. It is dated now, since the server
    /// deletes old ones.
    pub fn insert_delivery(&self, webhook: &str, (number, status): (u32, &str)) -> String {
        let id = format!("01890a5d-ac96-774b-bcce-b3020999{number:04x}");
        let webhook = webhook.rsplit('/').next().unwrap();
        let time = days_ago(self.server.backend(), 0);
        self.sql(&format!(
            "INSERT INTO nouns_deliveries (id, webhook_id, created_at, updated_at, version, sequence, type, subject, status, attempts, \
             next_attempt, response_status, error) VALUES ('{id}', '{webhook}', {time}, {time}, 1, {number}, \
             'nouns.customer.created', '/customers/1', '{status}', 7, NULL, 500, 'answered 500')"
        ));
        let no = if self.server.backend() == Backend::Sqlite { "0" } else { "false" };
        self.sql(&format!(
            "INSERT INTO nouns_delivery_queue (delivery_id, webhook_id, subject, sequence, body, tries, waiting, due, claim_token) \
             VALUES ('{id}', '{webhook}', '/customers/1', {number}, '{{}}', 3, {no}, NULL, NULL)"
        ));
        id
    }
}

/// A time as an SQL expression.
pub fn days_ago(backend: Backend, days: u32) -> String {
    match backend {
        Backend::Sqlite => format!("strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-{days} days')"),
        Backend::Postgres => format!("now() - interval '{days} days'"),
    }
}

pub fn hook() -> Value {
    json!({"url": "https://example.com/hook", "events": ["customer.*"]})
}

/// The pointer, the code and the detail of each error of a 422.
pub fn faults(answer: &Answer) -> String {
    assert_eq!((answer.status, answer.problem().as_str()), (422, "invalid-fields"), "{answer:?}");
    let lines = answer.faults().into_iter().map(|fault| fault.replace(" | ", " ") + "\n");
    lines.collect()
}

/// Replaces secrets, which are random.
pub fn without_secrets(text: &str) -> String {
    let secret = regex::Regex::new("whsec_[0-9A-Za-z+/=]+").unwrap();
    secret.replace_all(text, "whsec_<secret>").into_owned()
}

pub fn base64_of(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
