//! Each kind of request, with a fault at any message of its exchange with PostgreSQL.
//!
//! The response is compared with what is stored afterwards: done once, completely or not at all, with
//! its entry in the change log; and the next request succeeds.
//! `tables` tests every message with the faults whose results are always the same; this file has the
//! others.

use std::thread;
use std::time::{Duration, Instant};

use super::proxy::{Fault, Place, Side, Way};
use super::{Bench, Counts, RETRIES_MAX};
use crate::harness::Answer;

/// A kind of request: creates what it needs, and returns the line and the body.
pub(super) type Kind = fn(&mut Scene) -> (String, String);

pub(super) const LIMITS: &str = "request_seconds_max = 20\nstatement_seconds_max = 10";
/// With a connection that drops everything, the server gives up after this, and 5 s more.
const SHORT_LIMITS: &str = "request_seconds_max = 1\nstatement_seconds_max = 1";
/// A second, five more, and an allowance for a slow machine.
const ANSWER_MAX: Duration = Duration::from_secs(16);

/// A server with the items that the requests refer to.
pub(super) struct Scene {
    pub(super) bench: Bench,
    person: String,
    team: String,
    serial: usize,
    /// With the short limits a request on a busy machine may time out without a fault.
    may_time_out: bool,
}

impl Scene {
    pub(super) fn new(limits: &str) -> Self {
        let mut bench = Bench::start(limits);
        let person = bench.create("/people", r#"{"person":{"name":"Ann"}}"#.to_owned());
        // By a PUT, which can be retried: its badge is unique.
        let badge = r#"{"person":{"name":"Ann","badge":"a"}}"#.to_owned();
        let answer = bench.retry_unavailable(&(format!("PUT {person}"), badge));
        assert_eq!(answer.status, 200, "{answer:?}");
        let team = bench.create("/teams", r#"{"team":{"name":"One"}}"#.to_owned());
        let other = bench.create("/teams", r#"{"team":{"name":"Two"}}"#.to_owned());
        let may_time_out = limits == SHORT_LIMITS;
        let mut scene = Self { bench, person, team: other, serial: 0, may_time_out };
        let (line, body) = create_below(&mut scene);
        scene.bench.create(line.strip_prefix("POST ").unwrap(), body);
        Self { team, ..scene }
    }

    pub(super) fn name(&mut self) -> String {
        self.serial += 1;
        format!("n{}", self.serial)
    }

    fn person_id(&self) -> &str {
        self.person.rsplit_once('/').unwrap().1
    }
}

pub(super) fn create(scene: &mut Scene) -> (String, String) {
    ("POST /people".to_owned(), format!(r#"{{"person":{{"name":"{}"}}}}"#, scene.name()))
}

pub(super) fn create_with_a_number(scene: &mut Scene) -> (String, String) {
    ("POST /teams".to_owned(), format!(r#"{{"team":{{"name":"{}"}}}}"#, scene.name()))
}

pub(super) fn create_below(scene: &mut Scene) -> (String, String) {
    let (title, owner) = (scene.name(), scene.person_id());
    let body = format!(r#"{{"task":{{"title":"{title}","owner":"{owner}"}}}}"#);
    (format!("POST {}/tasks", scene.team), body)
}

pub(super) fn create_many(scene: &mut Scene) -> (String, String) {
    let names = [scene.name(), scene.name()].map(|name| format!(r#"{{"name":"{name}"}}"#));
    ("POST /people".to_owned(), format!(r#"{{"people":[{}]}}"#, names.join(",")))
}

pub(super) fn create_taken(scene: &mut Scene) -> (String, String) {
    let body = format!(r#"{{"person":{{"name":"{}","badge":"a"}}}}"#, scene.name());
    ("POST /people".to_owned(), body)
}

pub(super) fn create_many_taken(scene: &mut Scene) -> (String, String) {
    let name = scene.name();
    let body = format!(r#"{{"people":[{{"name":"{name}"}},{{"name":"{name}","badge":"a"}}]}}"#);
    ("POST /people".to_owned(), body)
}

pub(super) fn create_below_nothing(scene: &mut Scene) -> (String, String) {
    let body = format!(r#"{{"task":{{"title":"{}"}}}}"#, scene.name());
    ("POST /teams/999999/tasks".to_owned(), body)
}

pub(super) fn put(scene: &mut Scene) -> (String, String) {
    let (before, after) = (scene.name(), scene.name());
    let path = scene.bench.create("/people", format!(r#"{{"person":{{"name":"{before}"}}}}"#));
    (format!("PUT {path}"), format!(r#"{{"person":{{"name":"{after}"}}}}"#))
}

pub(super) fn put_the_same(scene: &mut Scene) -> (String, String) {
    let person = r#"{"person":{"name":"Ann","badge":"a"}}"#;
    (format!("PUT {}", scene.person), person.to_owned())
}

pub(super) fn put_taken(scene: &mut Scene) -> (String, String) {
    let (line, _) = put(scene);
    (line, r#"{"person":{"name":"Bob","badge":"a"}}"#.to_owned())
}

pub(super) fn put_lost(scene: &mut Scene) -> (String, String) {
    let (line, _) = create_below(scene);
    let task = scene.bench.create(
        line.strip_prefix("POST ").unwrap(),
        format!(r#"{{"task":{{"title":"{}"}}}}"#, scene.serial),
    );
    let owner = "00000000-0000-7000-8000-000000000000";
    (format!("PUT {task}"), format!(r#"{{"task":{{"title":"x","owner":"{owner}"}}}}"#))
}

pub(super) fn put_missing(_: &mut Scene) -> (String, String) {
    let line = "PUT /people/00000000-0000-7000-8000-000000000000";
    (line.to_owned(), r#"{"person":{"name":"Nobody"}}"#.to_owned())
}

pub(super) fn delete_referenced(scene: &mut Scene) -> (String, String) {
    (format!("DELETE {}", scene.person), String::new())
}

pub(super) fn delete(scene: &mut Scene) -> (String, String) {
    let name = scene.name();
    let team = scene.bench.create("/teams", format!(r#"{{"team":{{"name":"{name}"}}}}"#));
    scene.bench.create(&format!("{team}/tasks"), format!(r#"{{"task":{{"title":"{name}"}}}}"#));
    (format!("DELETE {team}"), String::new())
}

pub(super) fn get(scene: &mut Scene) -> (String, String) {
    (format!("GET {}", scene.person), String::new())
}

pub(super) fn list(_: &mut Scene) -> (String, String) {
    ("GET /people?limit=1".to_owned(), String::new())
}

pub(super) fn list_of_nothing(scene: &mut Scene) -> (String, String) {
    (format!("GET {}/tasks", scene.team), String::new())
}

/// A request without a fault, as the baseline.
pub(super) struct Usual {
    pub(super) status: u16,
    pub(super) messages: Vec<(Side, char)>,
    pub(super) change: Counts,
}

impl Scene {
    /// `is_new`: over a connection that has to be opened first.
    pub(super) fn usual(&mut self, kind: Kind, is_new: bool) -> Usual {
        for _ in 0..RETRIES_MAX {
            self.warm(kind);
            let request = kind(self);
            if is_new {
                self.bench.settle();
            }
            let before = self.bench.counts();
            self.bench.proxy.watch();
            let status = self.bench.request(&request).status;
            let messages = in_order(self.bench.proxy.seen());
            self.bench.settle();
            if self.may_time_out && status == 503 {
                continue;
            }
            let change = difference(&self.bench.counts(), &before);
            return Usual { status, messages, change };
        }
        panic!("{RETRIES_MAX} requests without a fault timed out");
    }

    /// Opens the connection and prepares its statements.
    fn warm(&mut self, kind: Kind) -> u16 {
        for _ in 0..RETRIES_MAX {
            let request = kind(self);
            let status = self.bench.request(&request).status;
            if !self.may_time_out || status != 503 {
                return status;
            }
            // No statement of it may complete later, while the next request is recorded.
            self.bench.settle();
        }
        panic!("{RETRIES_MAX} requests without a fault timed out");
    }

    /// Runs a request with a fault, and returns the kind of its response.
    pub(super) fn meet(&mut self, kind: Kind, usual: &Usual, fault: Fault, is_new: bool) -> char {
        let mut tries = (0..RETRIES_MAX).map(|_| self.try_to_meet(kind, usual, fault, is_new));
        tries.find_map(|met| met).unwrap_or_else(|| panic!("{fault:?} was not met"))
    }

    /// `None` when the request timed out before it reached the message with the fault.
    fn try_to_meet(
        &mut self,
        kind: Kind,
        usual: &Usual,
        fault: Fault,
        is_new: bool,
    ) -> Option<char> {
        assert_eq!(self.warm(kind), usual.status, "before {fault:?}");
        let request = kind(self);
        if is_new {
            self.bench.settle();
        }
        let before = self.bench.counts();
        self.bench.proxy.plant(fault);
        let start = Instant::now();
        let answer = self.bench.request(&request);
        assert!(start.elapsed() < ANSWER_MAX, "{:?} for {fault:?}", start.elapsed());
        if self.bench.proxy.is_planted() {
            assert!(self.may_time_out && answer.status == 503, "{fault:?} was not met: {answer:?}");
            self.bench.settle();
            return None;
        }
        // The next request succeeds without help.
        self.bench.proxy.relent();
        let get = (format!("GET {}", self.person), String::new());
        let mut next = self.bench.request(&get);
        // A connection that drops everything is noticed at its next use.
        let is_found_late = (fault.place, fault.way) == (Place::After, Way::Hole);
        let retries = if self.may_time_out { RETRIES_MAX } else { usize::from(is_found_late) };
        for _ in 0..retries {
            if next.status == 503 {
                next = self.bench.request(&get);
            }
        }
        assert_eq!(next.status, 200, "after {fault:?}: {next:?}");
        self.bench.settle();
        let change = difference(&self.bench.counts(), &before);
        let told = judge(&answer, &change, usual).unwrap_or_else(|wrong| {
            panic!("{wrong}\n{fault:?}\n{request:?}\n{change:?}\n{answer:?}")
        });
        Some(told)
    }
}

/// The server acts on an error before the message behind it has arrived: their order is not determined,
/// and does not matter.
pub(super) fn in_order(mut messages: Vec<(Side, char)>) -> Vec<(Side, char)> {
    for at in 1..messages.len() {
        if messages[at - 1] != (Side::Database, 'E') {
            continue;
        }
        let rest = &mut messages[at..];
        if let Some(ready) = rest.iter().position(|message| *message == (Side::Database, 'Z')) {
            rest[..=ready].rotate_right(1);
        }
    }
    messages
}

pub(super) fn difference(after: &Counts, before: &Counts) -> Counts {
    after.iter().zip(before).map(|(after, before)| after - before).collect()
}

/// The kind of the response, if it matches the change in the database.
fn judge(answer: &Answer, change: &Counts, usual: &Usual) -> Result<char, &'static str> {
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
pub(super) struct Point {
    pub(super) label: String,
    pub(super) side: Side,
    pub(super) number: usize,
    pub(super) places: &'static [Place],
}

/// Every message at which the exchange can break, with its label.
pub(super) fn points(messages: &[(Side, char)]) -> Vec<Point> {
    let mut numbers = [0, 0];
    let mut all = Vec::new();
    for (side, kind) in messages {
        let number = &mut numbers[*side as usize];
        *number += 1;
        let places = &[Place::Before, Place::Middle];
        all.push(Point { label: name(*side, *kind), side: *side, number: *number, places });
    }
    let Point { side, number, .. } = *all.last().unwrap();
    all.push(Point { label: "behind it all".to_owned(), side, number, places: &[Place::After] });
    all
}

fn name(side: Side, kind: char) -> String {
    let (arrow, word) = match (side, kind) {
        (Side::Server, '-') => (">", "start"),
        (Side::Server, 'B') => (">", "bind"),
        (Side::Server, 'D') => (">", "describe"),
        (Side::Server, 'E') => (">", "execute"),
        (Side::Server, 'P') => (">", "parse"),
        (Side::Server, 'Q') => (">", "query"),
        (Side::Server, 'S') => (">", "sync"),
        (Side::Database, '1') => ("<", "parsed"),
        (Side::Database, '2') => ("<", "bound"),
        (Side::Database, 'C') => ("<", "complete"),
        (Side::Database, 'D') => ("<", "row"),
        (Side::Database, 'E') => ("<", "error"),
        (Side::Database, 'Z') => ("<", "ready"),
        (side, kind) => return format!("{side:?} {kind}"),
    };
    format!("{arrow} {word}")
}

const KINDS: [Kind; 17] = [
    create,
    create_with_a_number,
    create_below,
    create_many,
    create_taken,
    create_many_taken,
    create_below_nothing,
    put,
    put_the_same,
    put_taken,
    put_lost,
    put_missing,
    delete,
    delete_referenced,
    get,
    list,
    list_of_nothing,
];

/// Runs this many servers concurrently. Each kind of request gets the fault at each message of its
/// exchange; in the short version at one of `one_of`.
fn everywhere(way: Way, limits: &str, is_new: bool, (lanes, one_of): (usize, usize)) {
    let one_of = if std::env::var_os("NOUNS_SOAK").is_some() { 1 } else { one_of };
    let start = Instant::now();
    let lane = |lane: usize| {
        let mut scene = Scene::new(limits);
        let (mut met, mut number) = (0, 0);
        for kind in KINDS {
            let usual = scene.usual(kind, is_new);
            for Point { side, number: message, places, .. } in points(&usual.messages) {
                for &place in places {
                    number += 1;
                    if number % one_of == 0 && (number / one_of) % lanes == lane {
                        let fault = Fault { side, number: message, place, way };
                        scene.meet(kind, &usual, fault, is_new);
                        met += 1;
                    }
                }
            }
        }
        scene.bench.check_log();
        met
    };
    let lane = &lane;
    let met: usize = thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|number| scope.spawn(move || lane(number))).collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).sum()
    });
    println!("{way:?}: {met} faults in {:?}", start.elapsed());
    assert!(met > 0);
}

#[test]
fn connection_reset_at_any_message_response_is_true() {
    everywhere(Way::Reset, LIMITS, false, (1, 12));
}

#[test]
fn delay_at_any_message_response_is_as_usual() {
    everywhere(Way::Delay(Duration::from_millis(50)), LIMITS, false, (1, 12));
}

#[test]
fn connection_cut_at_any_message_while_connecting_response_is_true() {
    everywhere(Way::Cut, LIMITS, true, (1, 30));
}

/// No side notices that nothing goes through any more.
#[test]
fn blackholed_connection_at_any_message_response_is_true() {
    everywhere(Way::Hole, SHORT_LIMITS, false, (8, 53));
}

#[test]
fn blackholed_connection_while_connecting_response_is_true() {
    everywhere(Way::Hole, SHORT_LIMITS, true, (8, 187));
}
