//! Servers with webhooks: how tests create webhooks, change items and look at deliveries.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::receiver::{ReceivedRequest, Receiver};
use crate::harness::{Answer, Backend, Folder, Server, Setup, run_sql, wait_until};

pub const MODEL: &str = r#"
title = "Shop"

[server]
webhook_allow_private = true

[resources.customer.fields]
name   = { type = "text", required = true }
status = { type = "text", filter = true }

[resources.order.fields]
total = { type = "integer", filter = true }
"#;

/// A server whose webhooks may lead to this machine, and the credentials of its admin.
pub struct HookServer {
    pub server: Server,
    pub login: String,
}

/// A webhook of a server.
#[derive(Debug, Clone)]
pub struct Hook {
    pub path: String,
    pub secret: String,
}

impl HookServer {
    pub fn start(backend: Backend) -> Self {
        Self::start_with(Setup::new(backend), Folder::new())
    }

    pub fn start_with(setup: Setup, folder: Folder) -> Self {
        let server = setup.model(MODEL).with_authentication().start_in(folder);
        let login = server.admin().basic();
        Self { server, login }
    }

    /// Starts again in the same folder, after a stop or a kill.
    pub fn start_again(backend: Backend, folder: Folder, login: String) -> Self {
        let server = Setup::new(backend).model(MODEL).with_authentication().start_in(folder);
        Self { server, login }
    }

    pub fn request(&self, line: &str, body: impl AsRef<[u8]>) -> Answer {
        self.server.request(line, &[("Authorization", &self.login)], body)
    }

    pub fn create_hook(&self, receiver: &Receiver, events: &[&str]) -> Hook {
        self.create(&json!({"url": receiver.url(), "events": events}))
    }

    pub fn create(&self, webhook: &Value) -> Hook {
        let answer = self.request("POST /-/webhooks", json!({ "webhook": webhook }).to_string());
        assert_eq!(answer.status, 201, "{answer:?}");
        let path = answer.header("Location").unwrap().to_owned();
        Hook { path, secret: answer.json()["webhook"]["secret"].as_str().unwrap().to_owned() }
    }

    pub fn patch(&self, path: &str, body: &Value) -> Answer {
        let line = format!("PATCH {path}");
        let headers =
            [("Authorization", &*self.login), ("Content-Type", "application/merge-patch+json")];
        let answer = self.server.request(&line, &headers, body.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    }

    /// Creates a customer; returns its path.
    pub fn create_customer(&self, name: &str) -> String {
        let answer =
            self.request("POST /customers", json!({"customer": {"name": name}}).to_string());
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.header("Location").unwrap().to_owned()
    }

    /// Changes the name of a customer some times: `1`, `2`, and so on.
    pub fn rename(&self, customer: &str, times: usize) {
        for number in 1..=times {
            self.patch(customer, &json!({"customer": {"name": number.to_string()}}));
        }
    }

    pub fn get(&self, path: &str) -> Value {
        let answer = self.request(&format!("GET {path}"), "");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    pub fn deliveries(&self, hook: &Hook) -> Vec<Value> {
        let list = self.get(&format!("{}/deliveries?limit=200", hook.path));
        list["deliveries"].as_array().unwrap().clone()
    }

    /// Waits until a webhook has this many deliveries, all with this status.
    pub fn wait_for_deliveries(&self, hook: &Hook, count: usize, status: &str) -> Vec<Value> {
        wait_until(&format!("{count} deliveries are {status}"), || {
            let all = self.deliveries(hook);
            (all.len() == count && all.iter().all(|one| one["status"] == status)).then_some(all)
        })
    }

    /// The attempts of this server with a result.
    pub fn attempts(&self, result: &str) -> usize {
        let answer = self.request("GET /-/metrics", "");
        let name = format!("nouns_webhook_attempts_total{{result=\"{result}\"}} ");
        let mut values = answer.text().lines().filter_map(|line| line.strip_prefix(&*name));
        values.next().unwrap().parse().unwrap()
    }

    pub fn sql(&self, text: &str) -> String {
        run_sql(self.server.backend(), self.server.folder(), text)
    }

    /// Ends the backoff of all deliveries, as if their time had come.
    pub fn make_due(&self) {
        self.sql(
            "UPDATE nouns_delivery_queue SET due = '2020-01-01T00:00:00.000000Z' \
             WHERE due IS NOT NULL AND claim_token IS NULL",
        );
    }
}

/// The event in a request.
pub fn event(request: &ReceivedRequest) -> Value {
    serde_json::from_str(&request.body).unwrap()
}

/// The change log numbers of the events about each subject, in the order of arrival.
pub fn sequences_by_subject(requests: &[ReceivedRequest]) -> HashMap<String, Vec<i64>> {
    let mut all: HashMap<String, Vec<i64>> = HashMap::new();
    for request in requests {
        let event = event(request);
        let sequence = event["sequence"].as_str().unwrap().parse().unwrap();
        all.entry(event["subject"].as_str().unwrap().to_owned()).or_default().push(sequence);
    }
    all
}
