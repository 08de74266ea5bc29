//! Each kind of request, with the connection to the database lost at each message.
//!
//! A row for each message, `>` to the database and `<` from it, as they go over a connection that is in
//! use already; a column for each way to lose it; in each cell what the client is told when it is lost
//! before the message, and in the middle of it; the last row is behind the last message.
//! o: as if nothing had happened. u: unavailable. t: timed out. b: busy. ?: outcome unknown.

use std::fmt::Write;

use expect_test::{Expect, expect};

use super::points::{self, Kind, LIMITS, Point, Scene};
use super::proxy::{Fault, Way};

fn check(kind: Kind, expected: &Expect) {
    let ways = [("cut", Way::Cut), ("away", Way::Away)];
    let mut scene = Scene::new(LIMITS);
    let usual = scene.usual(kind, false);
    let mut text = format!("{:14}", usual.status);
    ways.iter().for_each(|(word, _)| write!(text, " {word:5}").unwrap());
    for Point { label, side, number, places } in points::points(&usual.messages) {
        write!(text, "\n{label:14}").unwrap();
        for (_, way) in ways {
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
fn a_create() {
    check(
        points::create,
        &expect![[r#"
                   201 cut   away
        > bind         ??    ??
        > execute      ??    ??
        > sync         ??    ??
        < bound        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_create_with_a_number() {
    check(
        points::create_with_a_number,
        &expect![[r#"
                   201 cut   away
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        > bind         ??    ??
        > execute      ??    ??
        > sync         ??    ??
        < bound        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_create_with_a_parent_and_a_reference() {
    check(
        points::create_below,
        &expect![[r#"
                   201 cut   away
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        > bind         ??    ??
        > execute      ??    ??
        > sync         ??    ??
        < bound        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_create_of_many() {
    check(
        points::create_many,
        &expect![[r#"
                   201 cut   away
        > query        ??    ??
        > bind         ??    ??
        > execute      ??    ??
        > sync         ??    ??
        > bind         ??    ??
        > execute      ??    ??
        > sync         ??    ??
        > query        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        < bound        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        < bound        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_create_that_is_refused() {
    check(
        points::create_taken,
        &expect![[r#"
                   409 cut   away
        > bind         ??    ??
        > execute      ??    ??
        > sync         ??    ??
        < bound        ??    ??
        < error        ??    ??
        < ready        o?    oo
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_create_of_many_of_which_the_last_is_refused() {
    check(
        points::create_many_taken,
        &expect![[r#"
                   409 cut   away
        > query        ??    ??
        > bind         ??    ??
        > execute      ??    ??
        > sync         ??    ??
        > bind         ??    ??
        > execute      ??    ??
        > sync         ??    ??
        > query        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        < bound        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        < bound        ??    ??
        < error        ??    ??
        < ready        oo    oo
        < complete     oo    oo
        < ready        oo    oo
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_create_without_its_parent() {
    check(
        points::create_below_nothing,
        &expect![[r#"
                   404 cut   away
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < bound        oo    uu
        < complete     oo    uu
        < ready        oo    uu
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_replace() {
    check(
        points::put,
        &expect![[r#"
                   200 cut   away
        > query        oo    uu
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < complete     oo    uu
        < ready        oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        > bind         ??    ??
        > execute      ??    ??
        > sync         ??    ??
        > query        ??    ??
        < bound        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_replace_that_changes_nothing() {
    check(
        points::put_the_same,
        &expect![[r#"
                   200 cut   away
        > query        oo    uu
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < complete     oo    uu
        < ready        oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        > query        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_replace_that_is_refused() {
    check(
        points::put_taken,
        &expect![[r#"
                   409 cut   away
        > query        oo    uu
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < complete     oo    uu
        < ready        oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        > bind         ??    ??
        > execute      ??    ??
        > sync         ??    ??
        > query        ??    ??
        < bound        ??    ??
        < error        ??    ??
        < ready        oo    oo
        < complete     oo    oo
        < ready        oo    oo
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_delete_with_all_below() {
    check(
        points::delete,
        &expect![[r#"
                   204 cut   away
        > query        oo    uu
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < complete     oo    uu
        < ready        oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        > bind         ??    ??
        > execute      ??    ??
        > sync         ??    ??
        > bind         ??    ??
        > execute      ??    ??
        > sync         ??    ??
        > query        ??    ??
        < bound        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        < bound        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        < complete     ??    ??
        < ready        ??    ??
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_read() {
    check(
        points::get,
        &expect![[r#"
                   200 cut   away
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_list() {
    check(
        points::list,
        &expect![[r#"
                   200 cut   away
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        behind it all  o     o
    "#]],
    );
}

#[test]
fn a_list_of_nothing() {
    check(
        points::list_of_nothing,
        &expect![[r#"
                   200 cut   away
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < bound        oo    uu
        < complete     oo    uu
        < ready        oo    uu
        > bind         oo    uu
        > execute      oo    uu
        > sync         oo    uu
        < bound        oo    uu
        < row          oo    uu
        < complete     oo    uu
        < ready        oo    uu
        behind it all  o     o
    "#]],
    );
}
