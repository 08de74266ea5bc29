//! HTTP clients that others wrote, and how they log in.
//!
//! A client is a file in `tests/clients/` that does what it is told (`driver.rs` says how), and a row
//! of `ALL` for each scheme it has, with what it does by itself. `docs/clients.md` shows the rows.
//! The one surprising thing: a client that is better than its row is no fault, since the newest version
//! of each is not on every machine; a client that is worse is one.

mod balancer;
mod driver;
mod logins;
mod table;

use serde_json::Value;

use crate::harness::{Client, Server, wait_until};

/// A client with one of its schemes.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    /// In `tests/clients/`.
    file: &'static str,
    /// As the file calls it.
    scheme: &'static str,
    asks: Asks,
    /// How many 401 a request with a wrong password gets at most.
    refusals_max: usize,
    letters: Letters,
}

/// When a client sends a request without credentials, to be asked for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// It sends the password along from the start.
    Never,
    /// It goes on with the nonce of the first answer.
    Once,
    EachTime,
}

/// The letters of names and passwords that a client can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Letters {
    Ascii,
    Latin1,
    All,
}

const ALL: &[Kind] = {
    use Asks::{EachTime, Never, Once};
    use Letters::{All, Ascii, Latin1};
    &[
        kind("curl --digest", ("curl.sh", "digest"), EachTime, 2, All),
        kind("curl --anyauth", ("curl.sh", "anyauth"), EachTime, 2, All),
        kind("curl --basic", ("curl.sh", "basic"), Never, 1, All),
        kind("requests, HTTPDigestAuth", ("python-requests.py", "digest"), Once, 2, Latin1),
        kind("requests, HTTPBasicAuth", ("python-requests.py", "basic"), Never, 1, Latin1),
        kind("urllib, HTTPDigestAuthHandler", ("python-urllib.py", "digest"), EachTime, 7, Ascii),
        kind("urllib, HTTPBasicAuthHandler", ("python-urllib.py", "basic"), EachTime, 2, All),
        kind("Node, digest-fetch", ("digest-fetch.mjs", "digest"), Once, 2, Latin1),
        kind("Node, digest-fetch with basic", ("digest-fetch.mjs", "basic"), Never, 1, Latin1),
    ]
};

const fn kind(
    name: &'static str,
    (file, scheme): (&'static str, &'static str),
    asks: Asks,
    refusals_max: usize,
    letters: Letters,
) -> Kind {
    Kind { name, file, scheme, asks, refusals_max, letters }
}

/// What some servers wrote to their logs about requests.
struct Watch<'a> {
    servers: &'a [Server],
    /// How much of each log was read.
    read: Vec<usize>,
}

/// One line of a log.
#[derive(Debug)]
struct Asked {
    status: u64,
    problem: String,
    server: usize,
}

impl<'a> Watch<'a> {
    fn new(servers: &'a [Server]) -> Self {
        let mut watch = Self { servers, read: vec![0; servers.len()] };
        watch.take();
        watch
    }

    /// All requests since the last call.
    fn take(&mut self) -> Vec<Asked> {
        let mut all = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            // A line is in the log before its answer is sent, so this is the last one.
            let last = Client::connect(server.address).request("GET /nothing", &[], "");
            let last = last.header("X-Request-Id").unwrap().to_owned();
            let log = wait_until("the line is logged", || {
                Some(server.log()).filter(|log| log.contains(&last))
            });
            for line in log[self.read[index]..].lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
                if text("message") == "request" && text("request_id") != last {
                    let status = line["status"].as_u64().unwrap();
                    all.push(Asked { status, problem: text("problem"), server: index });
                }
            }
            self.read[index] = log.len();
        }
        all
    }
}
