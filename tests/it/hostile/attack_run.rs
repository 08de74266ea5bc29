//! One attack on one server, with another client during it.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use bench::attack::{self, AttackResult, AttackStrength, ConnectionEnd};

use crate::harness::{Backend, Client, Server, Setup, is_soak, wait_until};

/// The parameters of an attack, and its expected result.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttackRun {
    /// Lines of `[server.limits]`.
    pub(super) limits: &'static str,
    /// The size of the list that attackers request.
    pub(super) page_bytes: usize,
    pub(super) connections: usize,
    pub(super) actions_per_second: u32,
    /// At least this long, and until each of the expected ends has occurred.
    pub(super) milliseconds: u64,
    /// At least one connection ends like this...
    pub(super) expected_ends: &'static [ConnectionEnd],
    /// ... and none in another way than these or those.
    pub(super) allowed_ends: &'static [ConnectionEnd],
    /// The maximum memory.
    pub(super) megabytes_max: u64,
}

/// The model of servers that are attacked, with these lines of `[server.limits]`.
pub(super) fn besieged(limits: &str) -> String {
    format!(
        "title = \"Besieged\"\n[server]\nhttp2_prior_knowledge = true\n\
         [resources.customer.fields]\nname = {{ type = \"text\" }}\nemail = {{ type = \"email\" }}\n\
         note = {{ type = \"text\" }}\n[server.limits]\n{limits}\n"
    )
}

pub(super) fn start(limits: &str) -> Server {
    Setup::new(Backend::Sqlite).model(&besieged(limits)).start()
}

/// Creates 500 customers, so that `GET /customers?limit=500` returns about `page_bytes`.
pub(super) fn fill_first_page(server: &Server, page_bytes: usize) {
    const ITEMS: usize = 500;
    let note = "x".repeat(page_bytes / ITEMS);
    let item = format!("{{\"name\":\"Large\",\"note\":\"{note}\"}}");
    for _ in 0..ITEMS / 100 {
        let body = format!("{{\"customers\":[{}]}}", vec![item.as_str(); 100].join(","));
        let answer = server.post("/customers", body);
        assert_eq!(answer.status, 201, "{answer:?}");
    }
}

/// Anonymous memory of the process.
pub(super) fn memory_megabytes(server: &Server) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", server.process_id())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1000
}

pub(super) fn open_files(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.process_id())).unwrap().count()
}

/// Another client during the attack; every response must be a success.
struct OtherClient {
    client: Client,
    item: String,
}

impl OtherClient {
    fn new(server: &Server) -> Self {
        let item = server.create("/customers", r#"{"customer":{"name":"Ann"}}"#);
        Self { client: server.client(), item }
    }

    fn send_request(&mut self) {
        let shown = self.client.request(&format!("GET {}", self.item), &[], "");
        assert_eq!(shown.status, 200, "{shown:?}");
        let created = self.client.request("POST /customers", &[], r#"{"customer":{"name":"Bob"}}"#);
        assert_eq!(created.status, 201, "{created:?}");
    }
}

impl AttackRun {
    fn strength(&self, name: &str) -> AttackStrength {
        if is_soak() {
            return attack::find_attack(name).unwrap().force;
        }
        AttackStrength {
            connections: self.connections,
            actions_per_second: self.actions_per_second,
            time: Duration::from_millis(self.milliseconds),
            awaited_ends: self.expected_ends,
        }
    }

    /// Runs the attack with this name.
    pub(super) fn run(&self, name: &'static str) -> AttackResult {
        let soak = is_soak();
        let server = start(if soak { "" } else { self.limits });
        fill_first_page(&server, if soak { 7_750_000 } else { self.page_bytes });
        let mut other = OtherClient::new(&server);
        other.send_request();
        let (files, before) = (open_files(&server), memory_megabytes(&server));
        let mut peak = before;
        let (done, is_done) = mpsc::channel();
        let (address, force) = (server.address, self.strength(name));
        let attacker = thread::spawn(move || {
            let tally = attack::run(attack::find_attack(name).unwrap(), address, force).unwrap();
            done.send(()).unwrap();
            tally
        });
        while is_done.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
            other.send_request();
            peak = peak.max(memory_megabytes(&server));
        }
        let tally = attacker.join().unwrap();
        other.send_request();
        wait_until("every file is given back", || (open_files(&server) <= files).then_some(()));
        println!("{before} MB, then {peak} MB; {tally}");
        self.check_result(&tally, soak);
        assert!(soak || peak <= before + self.megabytes_max, "{before} MB, then {peak} MB");
        check_log(&server.log());
        tally
    }

    fn check_result(&self, tally: &AttackResult, soak: bool) {
        // A connection may still be open when the time is over.
        let known = |end: &ConnectionEnd| {
            *end == ConnectionEnd::StillOpen
                || self.expected_ends.contains(end)
                || self.allowed_ends.contains(end)
        };
        assert!(tally.actions > 0 && tally.ends.keys().all(known), "{tally}");
        assert!(soak || self.expected_ends.iter().all(|end| tally.count(*end) > 0), "{tally}");
    }
}

/// An attack is not a server fault: no 500, no panic, no error in the log.
fn check_log(log: &str) {
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        // A refusal for lack of capacity is logged as an error for the operator.
        assert!(line["level"] != "error" || line["status"] == 503, "{line}");
    }
}
