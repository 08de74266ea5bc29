//! Two servers that get the same requests, and the first difference between their responses.
//!
//! Others choose the requests.
//! After a connection was closed, the next one waits for the clock's next millisecond: each thread of
//! a server generates its own ids, and these are ordered only by the millisecond.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::integer_ids::{self, IntegerIdMasks};
use super::request_template::{LearnedValues, RequestTemplate};
use crate::harness::{Answer, Client, Masks, Server, Setup, run_sql};

/// The point at which two servers gave different responses.
#[derive(Debug)]
pub struct ResponseDifference {
    /// How many requests it took.
    pub requests: usize,
    pub answers: [String; 2],
}

#[derive(Debug)]
struct BackendSide {
    server: Server,
    client: Option<Client>,
    learned: LearnedValues,
    masks: Masks,
    numbers: IntegerIdMasks,
    /// The requests as they were sent, masked.
    sent: String,
}

impl BackendSide {
    fn new(setup: &Setup) -> Self {
        let server = setup.clone().start();
        integer_ids::set_first_numbers(&server);
        let (learned, masks, numbers) = Default::default();
        Self { server, client: None, learned, masks, numbers, sent: String::new() }
    }

    /// The response as received, and masked.
    fn send(&mut self, ask: &RequestTemplate) -> (Answer, String) {
        let (line, headers, body) = self.learned.request(ask);
        self.record_request(&line, &headers, &body);
        let mut client = self.client.take().unwrap_or_else(|| {
            wait_for_next_millisecond();
            self.server.client()
        });
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = client.request(&line, &headers, &body);
        if answer.header("Connection") != Some("close") {
            self.client = Some(client);
        }
        self.learned.learn(ask.number, &answer);
        let shown = self.numbers.mask(&self.masks.answer(&answer));
        (answer, shown)
    }

    fn record_request(&mut self, line: &str, headers: &[(&str, String)], body: &str) {
        let mut text = format!("{line} HTTP/1.1\n");
        for (name, value) in headers {
            writeln!(text, "{name}: {value}").unwrap();
        }
        write!(text, "\n{body}\n\n").unwrap();
        // A copy: requests must not number the masks of responses.
        let shown = self.numbers.clone().mask(&self.masks.clone().text(&text));
        self.sent.push_str(&shown);
    }

    /// The change log, as far as it does not depend on time. Its numbers may have gaps.
    fn log(&mut self) -> String {
        let columns = "resource, kind, subject, actor, changed, before, after";
        let query = format!("SELECT {columns} FROM nouns_changes ORDER BY sequence");
        let log = run_sql(self.server.backend(), self.server.folder(), &query);
        let lines = log.lines().map(|line| self.numbers.mask(&self.masks.text(line)) + "\n");
        lines.collect()
    }
}

fn wait_for_next_millisecond() {
    let millis = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let began = millis();
    while millis() == began {
        thread::sleep(Duration::from_micros(100));
    }
}

#[derive(Debug)]
pub struct BackendPair {
    sides: [BackendSide; 2],
    requests: usize,
}

impl BackendPair {
    pub fn new(setups: &[Setup; 2]) -> Self {
        Self { sides: [BackendSide::new(&setups[0]), BackendSide::new(&setups[1])], requests: 0 }
    }

    /// The values learned from the responses of the first side.
    pub fn learned(&self) -> &LearnedValues {
        &self.sides[0].learned
    }

    /// Sends a request to both, and returns the response of the first when they agree.
    pub fn send_to_both(&mut self, ask: &RequestTemplate) -> Result<Answer, ResponseDifference> {
        self.requests += 1;
        let [one, other] = &mut self.sides;
        let ((answer, shown), (_, other_shown)) = (one.send(ask), other.send(ask));
        self.compare([shown, other_shown]).map(|()| answer)
    }

    /// At the end, the change logs must be equal as well.
    pub fn compare_logs(&mut self) -> Result<(), ResponseDifference> {
        let [one, other] = &mut self.sides;
        let logs = [one.log(), other.log()];
        self.compare(logs)
    }

    fn compare(&self, answers: [String; 2]) -> Result<(), ResponseDifference> {
        let requests = self.requests;
        if answers[0] == answers[1] {
            Ok(())
        } else {
            Err(ResponseDifference { requests, answers })
        }
    }

    /// Everything sent to the first side, as HTTP text.
    pub fn sent(&self) -> &str {
        &self.sides[0].sent
    }
}
