//! Requests with an `Idempotency-Key`, with the connection to PostgreSQL lost at each message.
//!
//! Whatever the first response is, a retry under the same key reports the real outcome: the request is
//! done once, and from then on every response is the same.
//! `NOUNS_SOAK=1` tests every message in place of one of four.

use super::message_faults::{
    self, BaselineRun, FaultFixture, LIMITS, RequestKind, create, create_child, create_many,
    create_many_taken, create_taken, create_without_parent, difference, normalize_order,
};
use super::proxy::{Fault, FaultKind};
use crate::harness::{Answer, is_soak};

const REPLAYED: &str = "Idempotent-Replayed";

fn patch(fixture: &mut FaultFixture) -> (String, String) {
    let (before, after) = (fixture.next_name(), fixture.next_name());
    let path = fixture.server.create("/people", format!(r#"{{"person":{{"name":"{before}"}}}}"#));
    (format!("PATCH {path}"), format!(r#"{{"person":{{"name":"{after}"}}}}"#))
}

const REQUEST_KINDS: [RequestKind; 7] = [
    create,
    create_child,
    create_many,
    create_taken,
    create_many_taken,
    create_without_parent,
    patch,
];

/// A request with its key.
struct IdempotentRequest {
    key: String,
    line: String,
    body: String,
}

impl IdempotentRequest {
    fn new(fixture: &mut FaultFixture, kind: RequestKind) -> Self {
        let (line, body) = kind(fixture);
        Self { key: fixture.next_name(), line, body }
    }

    fn send(&self, fixture: &mut FaultFixture) -> Answer {
        fixture.server.client.request(&self.line, &[("Idempotency-Key", &self.key)], &self.body)
    }
}

fn run_baseline(fixture: &mut FaultFixture, kind: RequestKind) -> BaselineRun {
    message_faults::repeat_baseline(|| {
        IdempotentRequest::new(fixture, kind).send(fixture);
        let keyed = IdempotentRequest::new(fixture, kind);
        let before = fixture.server.counts();
        fixture.server.proxy.record_messages();
        let status = keyed.send(fixture).status;
        let messages = normalize_order(fixture.server.proxy.recorded_messages());
        let change = difference(&fixture.server.counts(), &before);
        Some(BaselineRun { status, messages, change })
    })
}

fn is_same_response(first: &Answer, other: &Answer) -> bool {
    (first.status, &first.body) == (other.status, &other.body)
        && first.header("Location") == other.header("Location")
        && first.header("ETag") == other.header("ETag")
}

/// Runs a request with a fault; returns the kind of the first response: as usual, refused, or outcome
/// unknown.
fn run_with_fault(
    fixture: &mut FaultFixture,
    kind: RequestKind,
    usual: &BaselineRun,
    fault: Fault,
) -> char {
    message_faults::retry_until_met(fault, || try_run_with_fault(fixture, kind, usual, fault))
}

/// `None` when the request had other messages than the baseline.
fn try_run_with_fault(
    fixture: &mut FaultFixture,
    kind: RequestKind,
    usual: &BaselineRun,
    fault: Fault,
) -> Option<char> {
    // The first request opens the connection and prepares its statements, and the second shows which one it is.
    for _ in 0..2 {
        let request = IdempotentRequest::new(fixture, kind);
        fixture.server.proxy.record_messages();
        assert_eq!(request.send(fixture).status, usual.status, "before {fault:?}");
    }
    let connection = Some(fixture.server.proxy.sole_connection()?);
    let keyed = IdempotentRequest::new(fixture, kind);
    let before = fixture.server.counts();
    fixture.server.proxy.plant_fault_on(connection, fault);
    let told = keyed.send(fixture);
    let is_met = !fixture.server.proxy.is_planted();
    if !is_met {
        assert_eq!(told.status, usual.status, "{fault:?}\n{told:?}");
    }
    if !is_met || !fixture.has_usual_messages(usual, fault, connection) {
        fixture.server.close_database_connections();
        return None;
    }
    fixture.server.close_database_connections();
    let again = keyed.send(fixture);
    let change = difference(&fixture.server.counts(), &before);
    assert_eq!(
        (again.status, &change),
        (usual.status, &usual.change),
        "{fault:?}\n{told:?}\n{again:?}"
    );
    let once_more = keyed.send(fixture);
    assert!(is_same_response(&again, &once_more), "{fault:?}\n{again:?}\n{once_more:?}");
    assert_eq!(once_more.header(REPLAYED), Some("true"));
    if told.status == usual.status {
        assert!(is_same_response(&told, &again), "{fault:?}\n{told:?}\n{again:?}");
        assert_eq!(again.header(REPLAYED), Some("true"));
        return Some('o');
    }
    assert_eq!(told.status, 503, "{fault:?}\n{told:?}");
    match &*told.problem() {
        "outcome-unknown" => Some('?'),
        slug => {
            assert_eq!(again.header(REPLAYED), None, "{fault:?}: told {slug}, and was done");
            Some('u')
        }
    }
}

/// Runs each kind of request on a server of its own.
fn run_at_every_message(way: FaultKind) {
    let one_of = if is_soak() { 1 } else { 4 };
    let mut all = String::new();
    for (lane, kind) in REQUEST_KINDS.into_iter().enumerate() {
        let mut fixture = FaultFixture::new(LIMITS);
        let usual = run_baseline(&mut fixture, kind);
        let points = message_faults::fault_points(&usual.messages);
        let places = points
            .iter()
            .flat_map(|point| point.positions.iter().map(move |place| (point, *place)));
        for (number, (point, place)) in places.enumerate() {
            if number % one_of == lane % one_of {
                let fault =
                    Fault { side: point.side, number: point.number, position: place, kind: way };
                all.push(run_with_fault(&mut fixture, kind, &usual, fault));
            }
        }
        fixture.server.check_log();
        all.push(' ');
    }
    println!("keys, {way:?}: {all}");
    // Each kind of response occurred.
    assert!(all.contains('o') && all.contains('?'), "{all}");
}

#[test]
fn idempotent_retry_after_a_cut_connection_reports_the_outcome() {
    run_at_every_message(FaultKind::Close);
}

#[test]
fn idempotent_retry_after_an_outage_reports_the_outcome() {
    run_at_every_message(FaultKind::Outage);
}
