//! A copy of a list that a client keeps by its events, and the list itself to compare it with.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;

use crate::harness::{Client, StreamEvent};

/// A copy of a list that a client keeps by the events.
#[derive(Debug, Default)]
pub struct ListCopy {
    pub items: BTreeMap<String, Value>,
    pub is_synced: bool,
}

impl ListCopy {
    pub fn apply(&mut self, event: &StreamEvent) {
        let json = event.json();
        let subject = json["subject"].as_str().unwrap_or_default().to_owned();
        match &*event.kind {
            "reset" => *self = Self::default(),
            "synced" => self.is_synced = true,
            "item" => {
                let former = self.items.insert(subject, json["data"]["after"].clone());
                assert_eq!(former, None, "an item comes twice in a snapshot: {json}");
            }
            "created" | "updated" => {
                let version = |item: &Value| item["version"].as_i64().unwrap();
                let after = json["data"]["after"].clone();
                let former = self.items.insert(subject, after.clone());
                // A change that the snapshot has already must not come again.
                assert!(former.is_none_or(|former| version(&former) < version(&after)), "{json}");
            }
            "deleted" | "left" => {
                assert!(self.items.remove(&subject).is_some(), "{json}");
            }
            other => panic!("{other}"),
        }
    }
}

/// All pages of a list, by the path of each item. `target` has a query already.
pub fn fetch_list(address: SocketAddr, target: &str, login: &str) -> BTreeMap<String, Value> {
    let plural = target.trim_start_matches('/').split('?').next().unwrap();
    let client = &mut Client::connect(address);
    let (mut items, mut next) = (BTreeMap::new(), target.to_owned());
    loop {
        let page = client.request(&format!("GET {next}"), &[("Authorization", login)], "").json();
        for item in page[plural].as_array().unwrap() {
            let id = &item["id"];
            let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
            items.insert(format!("/{plural}/{id}"), item.clone());
        }
        let Some(cursor) = page["page"]["next"].as_str() else { return items };
        next = format!("{target}&cursor={cursor}");
    }
}
