//! Each kind of request, with a fault at any message of its exchange with PostgreSQL.
//!
//! The response is compared with what is stored afterwards: done once, completely or not at all, with
//! its entry in the change log; and the next request succeeds.
//! `tables` tests every message with the faults whose results are always the same; this file has the
//! others.

use std::thread;
use std::time::Duration;

use super::proxy::{ConnectionNumber, Fault, FaultKind, MessagePosition, MessageSender};
use super::{ProxiedServer, RETRIES_MAX, StoredCounts};
use crate::harness::Stopwatch;
use crate::harness::{Answer, is_soak};

/// A kind of request: creates what it needs, and returns the line and the body.
pub(super) type RequestKind = fn(&mut FaultFixture) -> (String, String);

pub(super) const LIMITS: &str = "request_seconds_max = 20\nstatement_seconds_max = 10";
/// With a connection that drops everything, the server gives up after this, and 5 s more.
const SHORT_LIMITS: &str = "request_seconds_max = 1\nstatement_seconds_max = 1";
/// A second, five more, and an allowance for a slow machine.
const ANSWER_MAX: Duration = Duration::from_secs(16);

/// A server with the items that the requests refer to.
pub(super) struct FaultFixture {
    pub(super) server: ProxiedServer,
    person: String,
    team: String,
    serial: usize,
    /// With the short limits a request on a busy machine may time out without a fault.
    may_time_out: bool,
}

impl FaultFixture {
    pub(super) fn new(limits: &str) -> Self {
        let mut bench = ProxiedServer::start(limits);
        let person = bench.create("/people", r#"{"person":{"name":"Ann"}}"#.to_owned());
        // By a PUT, which can be retried: its badge is unique.
        let badge = r#"{"person":{"name":"Ann","badge":"a"}}"#.to_owned();
        let answer = bench.retry_unavailable(&(format!("PUT {person}"), badge));
        assert_eq!(answer.status, 200, "{answer:?}");
        let team = bench.create("/teams", r#"{"team":{"name":"One"}}"#.to_owned());
        let other = bench.create("/teams", r#"{"team":{"name":"Two"}}"#.to_owned());
        let may_time_out = limits == SHORT_LIMITS;
        let mut fixture = Self { server: bench, person, team: other, serial: 0, may_time_out };
        let (line, body) = create_child(&mut fixture);
        fixture.server.create(line.strip_prefix("POST ").unwrap(), body);
        Self { team, ..fixture }
    }

    pub(super) fn next_name(&mut self) -> String {
        self.serial += 1;
        format!("n{}", self.serial)
    }

    fn person_id(&self) -> &str {
        self.person.rsplit_once('/').unwrap().1
    }
}

pub(super) fn create(fixture: &mut FaultFixture) -> (String, String) {
    ("POST /people".to_owned(), format!(r#"{{"person":{{"name":"{}"}}}}"#, fixture.next_name()))
}

pub(super) fn create_with_integer_id(fixture: &mut FaultFixture) -> (String, String) {
    ("POST /teams".to_owned(), format!(r#"{{"team":{{"name":"{}"}}}}"#, fixture.next_name()))
}

pub(super) fn create_child(fixture: &mut FaultFixture) -> (String, String) {
    let (title, owner) = (fixture.next_name(), fixture.person_id());
    let body = format!(r#"{{"task":{{"title":"{title}","owner":"{owner}"}}}}"#);
    (format!("POST {}/tasks", fixture.team), body)
}

pub(super) fn create_many(fixture: &mut FaultFixture) -> (String, String) {
    let names =
        [fixture.next_name(), fixture.next_name()].map(|name| format!(r#"{{"name":"{name}"}}"#));
    ("POST /people".to_owned(), format!(r#"{{"people":[{}]}}"#, names.join(",")))
}

pub(super) fn create_taken(fixture: &mut FaultFixture) -> (String, String) {
    let body = format!(r#"{{"person":{{"name":"{}","badge":"a"}}}}"#, fixture.next_name());
    ("POST /people".to_owned(), body)
}

pub(super) fn create_many_taken(fixture: &mut FaultFixture) -> (String, String) {
    let name = fixture.next_name();
    let body = format!(r#"{{"people":[{{"name":"{name}"}},{{"name":"{name}","badge":"a"}}]}}"#);
    ("POST /people".to_owned(), body)
}

pub(super) fn create_without_parent(fixture: &mut FaultFixture) -> (String, String) {
    let body = format!(r#"{{"task":{{"title":"{}"}}}}"#, fixture.next_name());
    ("POST /teams/999999/tasks".to_owned(), body)
}

pub(super) fn put(fixture: &mut FaultFixture) -> (String, String) {
    let (before, after) = (fixture.next_name(), fixture.next_name());
    let path = fixture.server.create("/people", format!(r#"{{"person":{{"name":"{before}"}}}}"#));
    (format!("PUT {path}"), format!(r#"{{"person":{{"name":"{after}"}}}}"#))
}

pub(super) fn put_unchanged(fixture: &mut FaultFixture) -> (String, String) {
    let person = r#"{"person":{"name":"Ann","badge":"a"}}"#;
    (format!("PUT {}", fixture.person), person.to_owned())
}

pub(super) fn put_taken(fixture: &mut FaultFixture) -> (String, String) {
    let (line, _) = put(fixture);
    (line, r#"{"person":{"name":"Bob","badge":"a"}}"#.to_owned())
}

pub(super) fn put_with_missing_reference(fixture: &mut FaultFixture) -> (String, String) {
    let (line, _) = create_child(fixture);
    let task = fixture.server.create(
        line.strip_prefix("POST ").unwrap(),
        format!(r#"{{"task":{{"title":"{}"}}}}"#, fixture.serial),
    );
    let owner = "00000000-0000-7000-8000-000000000000";
    (format!("PUT {task}"), format!(r#"{{"task":{{"title":"x","owner":"{owner}"}}}}"#))
}

pub(super) fn put_missing(_: &mut FaultFixture) -> (String, String) {
    let line = "PUT /people/00000000-0000-7000-8000-000000000000";
    (line.to_owned(), r#"{"person":{"name":"Nobody"}}"#.to_owned())
}

pub(super) fn delete_referenced(fixture: &mut FaultFixture) -> (String, String) {
    (format!("DELETE {}", fixture.person), String::new())
}

pub(super) fn delete(fixture: &mut FaultFixture) -> (String, String) {
    let name = fixture.next_name();
    let team = fixture.server.create("/teams", format!(r#"{{"team":{{"name":"{name}"}}}}"#));
    fixture.server.create(&format!("{team}/tasks"), format!(r#"{{"task":{{"title":"{name}"}}}}"#));
    (format!("DELETE {team}"), String::new())
}

pub(super) fn get(fixture: &mut FaultFixture) -> (String, String) {
    (format!("GET {}", fixture.person), String::new())
}

pub(super) fn list(_: &mut FaultFixture) -> (String, String) {
    ("GET /people?limit=1".to_owned(), String::new())
}

pub(super) fn list_without_parent(fixture: &mut FaultFixture) -> (String, String) {
    (format!("GET {}/tasks", fixture.team), String::new())
}

/// A request without a fault, as the baseline.
pub(super) struct BaselineRun {
    pub(super) status: u16,
    pub(super) messages: Vec<(MessageSender, char)>,
    pub(super) change: StoredCounts,
}

impl FaultFixture {
    /// `is_new`: over a connection that has to be opened first.
    pub(super) fn run_baseline(&mut self, kind: RequestKind, is_new: bool) -> BaselineRun {
        repeat_baseline(|| self.try_run_baseline(kind, is_new))
    }

    /// `None` when the request timed out.
    fn try_run_baseline(&mut self, kind: RequestKind, is_new: bool) -> Option<BaselineRun> {
        self.warm_up(kind);
        let request = kind(self);
        if is_new {
            self.server.close_database_connections();
        }
        let before = self.server.counts();
        self.server.proxy.record_messages();
        let status = self.server.request(&request).status;
        let messages = normalize_order(self.server.proxy.recorded_messages());
        self.server.close_database_connections();
        if self.may_time_out && status == 503 {
            return None;
        }
        let change = difference(&self.server.counts(), &before);
        Some(BaselineRun { status, messages, change })
    }

    /// Opens the connection and prepares its statements.
    fn warm_up(&mut self, kind: RequestKind) -> u16 {
        for _ in 0..RETRIES_MAX {
            let request = kind(self);
            let status = self.server.request(&request).status;
            if !self.may_time_out || status != 503 {
                return status;
            }
            // No statement of it may complete later, while the next request is recorded.
            self.server.close_database_connections();
        }
        panic!("{RETRIES_MAX} requests without a fault timed out");
    }

    /// The connection that serves requests of this kind, after the warm-up. `None` if the request timed out, or if
    /// background work of the server had messages at the same time.
    fn find_connection(&mut self, kind: RequestKind) -> Option<ConnectionNumber> {
        let request = kind(self);
        self.server.proxy.record_messages();
        let status = self.server.request(&request).status;
        let connection = self.server.proxy.sole_connection();
        if connection.is_none() || self.may_time_out && status == 503 {
            self.server.close_database_connections();
            return None;
        }
        connection
    }

    /// Whether the messages up to the fault, of one connection or of all, were those of the baseline. If the
    /// server sends a read again, the messages differ, and the fault has hit another message than the test means.
    pub(super) fn has_usual_messages(
        &self,
        usual: &BaselineRun,
        fault: Fault,
        connection: Option<ConnectionNumber>,
    ) -> bool {
        let of_side = |messages: &[(MessageSender, char)]| -> Vec<char> {
            let sent = messages.iter().filter(|(side, _)| *side == fault.side);
            sent.map(|(_, kind)| *kind).take(fault.number).collect()
        };
        of_side(&self.server.proxy.messages_on(connection)) == of_side(&usual.messages)
    }

    /// Runs a request with a fault, and returns the kind of its response.
    pub(super) fn run_with_fault(
        &mut self,
        kind: RequestKind,
        usual: &BaselineRun,
        fault: Fault,
        is_new: bool,
    ) -> char {
        retry_until_met(fault, || self.try_run_with_fault(kind, usual, fault, is_new))
    }

    /// `None` when the request timed out before it reached the message with the fault, or had other messages
    /// than the baseline.
    fn try_run_with_fault(
        &mut self,
        kind: RequestKind,
        usual: &BaselineRun,
        fault: Fault,
        is_new: bool,
    ) -> Option<char> {
        assert_eq!(self.warm_up(kind), usual.status, "before {fault:?}");
        let connection = match is_new {
            true => None,
            false => Some(self.find_connection(kind)?),
        };
        let request = kind(self);
        if is_new {
            self.server.close_database_connections();
        }
        let before = self.server.counts();
        self.server.proxy.plant_fault_on(connection, fault);
        let start = Stopwatch::start();
        let answer = self.server.request(&request);
        assert!(start.elapsed() < ANSWER_MAX, "{:?} for {fault:?}", start.elapsed());
        let is_met = !self.server.proxy.is_planted();
        if !is_met {
            let has_timed_out = self.may_time_out && answer.status == 503;
            assert!(has_timed_out || answer.status == usual.status, "{fault:?}: {answer:?}");
        }
        if !is_met || !self.has_usual_messages(usual, fault, connection) {
            self.server.close_database_connections();
            return None;
        }
        // The next request succeeds without help.
        self.server.proxy.clear_fault();
        let get = (format!("GET {}", self.person), String::new());
        let mut next = self.server.request(&get);
        // A connection that drops everything is noticed at its next use.
        let is_found_late =
            (fault.position, fault.kind) == (MessagePosition::After, FaultKind::Blackhole);
        let retries = if self.may_time_out { RETRIES_MAX } else { usize::from(is_found_late) };
        for _ in 0..retries {
            if next.status == 503 {
                next = self.server.request(&get);
            }
        }
        assert_eq!(next.status, 200, "after {fault:?}: {next:?}");
        self.server.close_database_connections();
        let change = difference(&self.server.counts(), &before);
        let told = classify_response(&answer, &change, usual).unwrap_or_else(|wrong| {
            panic!("{wrong}\n{fault:?}\n{request:?}\n{change:?}\n{answer:?}")
        });
        Some(told)
    }
}

/// Runs a request without a fault until it has the same messages twice: on a busy machine a read that waits
/// too long for its answer is sent again, over another connection.
pub(super) fn repeat_baseline(mut run: impl FnMut() -> Option<BaselineRun>) -> BaselineRun {
    let mut last: Option<BaselineRun> = None;
    for _ in 0..RETRIES_MAX {
        let Some(next) = run() else { continue };
        if last.is_some_and(|last| last.messages == next.messages) {
            return next;
        }
        last = Some(next);
    }
    panic!("{RETRIES_MAX} requests without a fault timed out, or differed");
}

/// Runs a request with a fault until the message with the fault is met.
pub(super) fn retry_until_met(fault: Fault, mut run: impl FnMut() -> Option<char>) -> char {
    (0..RETRIES_MAX).find_map(|_| run()).unwrap_or_else(|| panic!("{fault:?} was not met"))
}

/// The server acts on an error before the message behind it has arrived: their order is not determined,
/// and does not matter.
pub(super) fn normalize_order(
    mut messages: Vec<(MessageSender, char)>,
) -> Vec<(MessageSender, char)> {
    for at in 1..messages.len() {
        if messages[at - 1] != (MessageSender::Database, 'E') {
            continue;
        }
        let rest = &mut messages[at..];
        if let Some(ready) =
            rest.iter().position(|message| *message == (MessageSender::Database, 'Z'))
        {
            rest[..=ready].rotate_right(1);
        }
    }
    messages
}

pub(super) fn difference(after: &StoredCounts, before: &StoredCounts) -> StoredCounts {
    after.iter().zip(before).map(|(after, before)| after - before).collect()
}

/// The kind of the response, if it matches the change in the database.
fn classify_response(
    answer: &Answer,
    change: &StoredCounts,
    usual: &BaselineRun,
) -> Result<char, &'static str> {
    let is_nothing = change.iter().all(|&count| count == 0);
    let is_whole = *change == usual.change;
    if answer.status == usual.status {
        return if is_whole { Ok('o') } else { Err("told as usual, and not done as usual") };
    }
    if answer.status != 503 {
        return Err("expected what is usual, or a 503");
    }
    if answer.header("Retry-After").is_none() {
        return Err("no Retry-After");
    }
    match &*answer.problem() {
        "outcome-unknown" if is_nothing || is_whole => Ok('?'),
        "outcome-unknown" => Err("done in part, or more than once"),
        slug @ ("unavailable" | "timed-out" | "busy") if is_nothing => {
            Ok(slug.chars().next().unwrap())
        }
        "unavailable" | "timed-out" | "busy" => Err("told that nothing was done"),
        _ => Err("another problem"),
    }
}

/// A message of an exchange.
pub(super) struct FaultPoint {
    pub(super) label: String,
    pub(super) side: MessageSender,
    pub(super) number: usize,
    pub(super) positions: &'static [MessagePosition],
}

/// Every message at which the exchange can break, with its label.
pub(super) fn fault_points(messages: &[(MessageSender, char)]) -> Vec<FaultPoint> {
    let mut numbers = [0, 0];
    let mut all = Vec::new();
    for (side, kind) in messages {
        let number = &mut numbers[*side as usize];
        *number += 1;
        let positions = &[MessagePosition::Before, MessagePosition::Middle];
        all.push(FaultPoint {
            label: message_name(*side, *kind),
            side: *side,
            number: *number,
            positions,
        });
    }
    let FaultPoint { side, number, .. } = *all.last().unwrap();
    all.push(FaultPoint {
        label: "after the last message".to_owned(),
        side,
        number,
        positions: &[MessagePosition::After],
    });
    all
}

fn message_name(side: MessageSender, kind: char) -> String {
    let (arrow, word) = match (side, kind) {
        (MessageSender::Server, '-') => (">", "start"),
        (MessageSender::Server, 'B') => (">", "bind"),
        (MessageSender::Server, 'D') => (">", "describe"),
        (MessageSender::Server, 'E') => (">", "execute"),
        (MessageSender::Server, 'P') => (">", "parse"),
        (MessageSender::Server, 'Q') => (">", "query"),
        (MessageSender::Server, 'S') => (">", "sync"),
        (MessageSender::Database, '1') => ("<", "parsed"),
        (MessageSender::Database, '2') => ("<", "bound"),
        (MessageSender::Database, 'C') => ("<", "complete"),
        (MessageSender::Database, 'D') => ("<", "row"),
        (MessageSender::Database, 'E') => ("<", "error"),
        (MessageSender::Database, 'Z') => ("<", "ready"),
        (side, kind) => return format!("{side:?} {kind}"),
    };
    format!("{arrow} {word}")
}

const REQUEST_KINDS: [RequestKind; 17] = [
    create,
    create_with_integer_id,
    create_child,
    create_many,
    create_taken,
    create_many_taken,
    create_without_parent,
    put,
    put_unchanged,
    put_taken,
    put_with_missing_reference,
    put_missing,
    delete,
    delete_referenced,
    get,
    list,
    list_without_parent,
];

/// Runs this many servers concurrently. Each kind of request gets the fault at each message of its
/// exchange; in the short version at one of `one_of`.
fn run_at_every_message(
    way: FaultKind,
    limits: &str,
    is_new: bool,
    (workers, one_of): (usize, usize),
) {
    let one_of = if is_soak() { 1 } else { one_of };
    let start = Stopwatch::start();
    let run_worker = |worker: usize| {
        let mut fixture = FaultFixture::new(limits);
        let (mut met, mut number) = (0, 0);
        for kind in REQUEST_KINDS {
            let usual = fixture.run_baseline(kind, is_new);
            for FaultPoint { side, number: message, positions, .. } in fault_points(&usual.messages)
            {
                for &position in positions {
                    number += 1;
                    if number % one_of == 0 && (number / one_of) % workers == worker {
                        let fault = Fault { side, number: message, position, kind: way };
                        fixture.run_with_fault(kind, &usual, fault, is_new);
                        met += 1;
                    }
                }
            }
        }
        fixture.server.check_log();
        met
    };
    let run_worker = &run_worker;
    let met: usize = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..workers).map(|number| scope.spawn(move || run_worker(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{way:?}: {met} faults in {:?}", start.elapsed());
    assert!(met > 0);
}

#[test]
fn connection_reset_at_any_message_response_is_true() {
    run_at_every_message(FaultKind::Reset, LIMITS, false, (1, 12));
}

#[test]
fn delay_at_any_message_response_is_as_usual() {
    run_at_every_message(FaultKind::Delay(Duration::from_millis(50)), LIMITS, false, (1, 12));
}

#[test]
fn connection_cut_at_any_message_while_connecting_response_is_true() {
    run_at_every_message(FaultKind::Close, LIMITS, true, (1, 30));
}

/// No side notices that nothing goes through any more.
#[test]
fn blackholed_connection_at_any_message_response_is_true() {
    run_at_every_message(FaultKind::Blackhole, SHORT_LIMITS, false, (8, 53));
}

#[test]
fn blackholed_connection_while_connecting_response_is_true() {
    run_at_every_message(FaultKind::Blackhole, SHORT_LIMITS, true, (8, 187));
}
