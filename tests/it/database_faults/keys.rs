//! Requests with an `Idempotency-Key`, with the connection to PostgreSQL lost at each message.
//!
//! Whatever the first response is, a retry under the same key reports the real outcome: the request is
//! done once, and from then on every response is the same.
//! `NOUNS_SOAK=1` tests every message in place of one of four.

use super::Counts;
use super::points::{
    self, Kind, LIMITS, Scene, create, create_below, create_below_nothing, create_many,
    create_many_taken, create_taken, difference, in_order,
};
use super::proxy::{Fault, Side, Way};
use crate::harness::Answer;

const REPLAYED: &str = "Idempotent-Replayed";

fn patch(scene: &mut Scene) -> (String, String) {
    let (before, after) = (scene.name(), scene.name());
    let path = scene.bench.create("/people", format!(r#"{{"person":{{"name":"{before}"}}}}"#));
    (format!("PATCH {path}"), format!(r#"{{"person":{{"name":"{after}"}}}}"#))
}

const KINDS: [Kind; 7] = [
    create,
    create_below,
    create_many,
    create_taken,
    create_many_taken,
    create_below_nothing,
    patch,
];

/// A request with its key.
struct Keyed {
    key: String,
    line: String,
    body: String,
}

impl Keyed {
    fn new(scene: &mut Scene, kind: Kind) -> Self {
        let (line, body) = kind(scene);
        Self { key: scene.name(), line, body }
    }

    fn send(&self, scene: &mut Scene) -> Answer {
        scene.bench.client.request(&self.line, &[("Idempotency-Key", &self.key)], &self.body)
    }
}

/// A request without a fault, as the baseline.
struct Usual {
    status: u16,
    messages: Vec<(Side, char)>,
    change: Counts,
}

fn usual(scene: &mut Scene, kind: Kind) -> Usual {
    Keyed::new(scene, kind).send(scene);
    let keyed = Keyed::new(scene, kind);
    let before = scene.bench.counts();
    scene.bench.proxy.watch();
    let status = keyed.send(scene).status;
    let messages = in_order(scene.bench.proxy.seen());
    let change = difference(&scene.bench.counts(), &before);
    Usual { status, messages, change }
}

fn same(first: &Answer, other: &Answer) -> bool {
    (first.status, &first.body) == (other.status, &other.body)
        && first.header("Location") == other.header("Location")
        && first.header("ETag") == other.header("ETag")
}

/// Runs a request with a fault; returns the kind of the first response: as usual, refused, or outcome
/// unknown.
fn meet(scene: &mut Scene, kind: Kind, usual: &Usual, fault: Fault) -> char {
    // The connection is open, and its statements are prepared.
    assert_eq!(Keyed::new(scene, kind).send(scene).status, usual.status, "before {fault:?}");
    let keyed = Keyed::new(scene, kind);
    let before = scene.bench.counts();
    scene.bench.proxy.plant(fault);
    let told = keyed.send(scene);
    assert!(!scene.bench.proxy.is_planted(), "{fault:?} was not met");
    scene.bench.settle();
    let again = keyed.send(scene);
    let change = difference(&scene.bench.counts(), &before);
    assert_eq!(
        (again.status, &change),
        (usual.status, &usual.change),
        "{fault:?}\n{told:?}\n{again:?}"
    );
    let once_more = keyed.send(scene);
    assert!(same(&again, &once_more), "{fault:?}\n{again:?}\n{once_more:?}");
    assert_eq!(once_more.header(REPLAYED), Some("true"));
    if told.status == usual.status {
        assert!(same(&told, &again), "{fault:?}\n{told:?}\n{again:?}");
        assert_eq!(again.header(REPLAYED), Some("true"));
        return 'o';
    }
    assert_eq!(told.status, 503, "{fault:?}\n{told:?}");
    match &*told.problem() {
        "outcome-unknown" => '?',
        slug => {
            assert_eq!(again.header(REPLAYED), None, "{fault:?}: told {slug}, and was done");
            'u'
        }
    }
}

/// Runs each kind of request on a server of its own.
fn everywhere(way: Way) {
    let one_of = if std::env::var_os("NOUNS_SOAK").is_some() { 1 } else { 4 };
    let mut all = String::new();
    for (lane, kind) in KINDS.into_iter().enumerate() {
        let mut scene = Scene::new(LIMITS);
        let usual = usual(&mut scene, kind);
        let points = points::points(&usual.messages);
        let places =
            points.iter().flat_map(|point| point.places.iter().map(move |place| (point, *place)));
        for (number, (point, place)) in places.enumerate() {
            if number % one_of == lane % one_of {
                let fault = Fault { side: point.side, number: point.number, place, way };
                all.push(meet(&mut scene, kind, &usual, fault));
            }
        }
        scene.bench.check_log();
        all.push(' ');
    }
    println!("keys, {way:?}: {all}");
    // Each kind of response occurred.
    assert!(all.contains('o') && all.contains('?'), "{all}");
}

#[test]
fn idempotent_retry_after_a_cut_connection_reports_the_outcome() {
    everywhere(Way::Cut);
}

#[test]
fn idempotent_retry_after_an_outage_reports_the_outcome() {
    everywhere(Way::Away);
}
