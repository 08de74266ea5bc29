//! Tables of connection losses: each kind of request, with the connection to PostgreSQL lost at each
//! message.
//!
//! A row for each message, `>` to the database and `<` from it, over a connection that is in use
//! already; a column for each kind of loss; in each cell the kind of response when the connection is
//! lost before the message, and in the middle of it; the last row is behind the last message.
//! o: as without a fault. u: unavailable. t: timed out. b: busy. ?: outcome unknown.

use std::fmt::Write;

use expect_test::{Expect, expect};

use super::points::{self, Kind, LIMITS, Point, Scene};
use super::proxy::{Fault, Way};

pub(super) fn check(kind: Kind, expected: &Expect) {
    let ways = [("cut", Way::Cut), ("away", Way::Away)];
    let mut scene = Scene::new(LIMITS);
    let usual = scene.usual(kind, false);
    let mut text = format!("{:14}", usual.status);
    ways.iter().for_each(|(word, _)| write!(text, " {word:5}").unwrap());
    for Point { label, side, number, places } in points::points(&usual.messages) {
        write!(text, "\n{label:14}").unwrap();
        for (_, way) in ways {
            // New connections are refused too, wherever in the message it was.
            let places = if way == Way::Away { &places[..1] } else { places };
            let told: String = places
                .iter()
                .map(|&place| scene.meet(kind, &usual, Fault { side, number, place, way }, false))
                .collect();
            write!(text, " {told:5}").unwrap();
        }
    }
    scene.bench.check_log();
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn connection_loss_during_create() {
    check(
        points::create,
        &expect![[r#"
                       201 cut   away
            > bind         ??    ?
            > execute      ??    ?
            > sync         ??    ?
            < bound        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            behind it all  o     o
        "#]],
    );
}

#[test]
fn connection_loss_during_create_with_integer_id() {
    check(
        points::create_with_a_number,
        &expect![[r#"
                       201 cut   away
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
            > bind         ??    ?
            > execute      ??    ?
            > sync         ??    ?
            < bound        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            behind it all  o     o
        "#]],
    );
}

#[test]
fn connection_loss_during_create_with_parent_and_reference() {
    check(
        points::create_below,
        &expect![[r#"
                       201 cut   away
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
            > bind         ??    ?
            > execute      ??    ?
            > sync         ??    ?
            < bound        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            behind it all  o     o
        "#]],
    );
}

#[test]
fn connection_loss_during_bulk_create() {
    check(
        points::create_many,
        &expect![[r#"
                       201 cut   away
            > query        ??    ?
            > bind         ??    ?
            > execute      ??    ?
            > sync         ??    ?
            > bind         ??    ?
            > execute      ??    ?
            > sync         ??    ?
            > query        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            < bound        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            < bound        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            behind it all  o     o
        "#]],
    );
}

#[test]
fn connection_loss_during_replace() {
    check(
        points::put,
        &expect![[r#"
                       200 cut   away
            > query        oo    u
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < complete     oo    u
            < ready        oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
            > bind         ??    ?
            > execute      ??    ?
            > sync         ??    ?
            > query        ??    ?
            < bound        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            behind it all  o     o
        "#]],
    );
}

#[test]
fn connection_loss_during_unchanged_replace() {
    check(
        points::put_the_same,
        &expect![[r#"
                       200 cut   away
            > query        oo    u
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < complete     oo    u
            < ready        oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
            > query        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            behind it all  o     o
        "#]],
    );
}

#[test]
fn connection_loss_during_cascading_delete() {
    check(
        points::delete,
        &expect![[r#"
                       204 cut   away
            > query        oo    u
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < complete     oo    u
            < ready        oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
            > bind         ??    ?
            > execute      ??    ?
            > sync         ??    ?
            > bind         ??    ?
            > execute      ??    ?
            > sync         ??    ?
            > query        ??    ?
            < bound        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            < bound        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            < complete     ??    ?
            < ready        ??    ?
            behind it all  o     o
        "#]],
    );
}
