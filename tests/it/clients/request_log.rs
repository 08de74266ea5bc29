//! The requests of a client, read from the servers' logs.
//!
//! A browser sends more requests than the test asks for, so only the store's own paths count.

use std::borrow::Borrow;

use serde_json::Value;

use crate::harness::{Server, wait_until};

pub struct RequestLog<'a, S> {
    servers: &'a [S],
    /// How much of each log was read.
    read_bytes: Vec<usize>,
}

/// One line of a log.
#[derive(Debug)]
pub struct LoggedRequest {
    pub status: u64,
    pub problem: String,
    pub server: usize,
}

impl<'a, S: Borrow<Server>> RequestLog<'a, S> {
    pub fn new(servers: &'a [S]) -> Self {
        let mut watch = Self { servers, read_bytes: vec![0; servers.len()] };
        watch.new_requests();
        watch
    }

    /// All requests since the last call.
    pub fn new_requests(&mut self) -> Vec<LoggedRequest> {
        let mut all = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            let server = server.borrow();
            // A line is in the log before its response is sent, so this is the last one.
            let last = server.get("/nothing").header("X-Request-Id").unwrap().to_owned();
            let log = wait_until("the line is logged", || {
                Some(server.log()).filter(|log| log.contains(&last))
            });
            let end = log.rfind('\n').map_or(0, |at| at + 1);
            for line in log[self.read_bytes[index]..end].lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
                if text("message") == "request" && text("path").starts_with("/customers") {
                    let status = line["status"].as_u64().unwrap();
                    all.push(LoggedRequest { status, problem: text("problem"), server: index });
                }
            }
            self.read_bytes[index] = end;
        }
        all
    }
}
