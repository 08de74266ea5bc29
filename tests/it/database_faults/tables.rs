//! Tables of connection losses: each kind of request, with the connection to PostgreSQL lost at each
//! message.
//!
//! A row for each message, `>` to the database and `<` from it, over a connection that is in use
//! already; a column for each kind of loss; in each cell the kind of response when the connection is
//! lost before the message, and in the middle of it; the last row is after the last message.
//! o: as without a fault. u: unavailable. t: timed out. b: busy. ?: outcome unknown.

use std::fmt::Write;

use expect_test::{Expect, expect};

use super::message_faults::{self, FaultFixture, FaultPoint, LIMITS, RequestKind};
use super::proxy::{Fault, FaultKind};

pub(super) fn check_table(kind: RequestKind, expected: &Expect) {
    let ways = [("cut", FaultKind::Close), ("away", FaultKind::Outage)];
    let mut fixture = FaultFixture::new(LIMITS);
    let usual = fixture.run_baseline(kind, false);
    let mut text = format!("{:22}", usual.status);
    ways.iter().for_each(|(word, _)| write!(text, " {word:5}").unwrap());
    for FaultPoint { label, side, number, positions } in
        message_faults::fault_points(&usual.messages)
    {
        write!(text, "\n{label:22}").unwrap();
        for (_, way) in ways {
            // New connections are refused too, wherever in the message it was.
            let positions = if way == FaultKind::Outage { &positions[..1] } else { positions };
            let outcomes: String = positions
                .iter()
                .map(|&position| {
                    fixture.run_with_fault(
                        kind,
                        &usual,
                        Fault { side, number, position, kind: way },
                        false,
                    )
                })
                .collect();
            write!(text, " {outcomes:5}").unwrap();
        }
    }
    fixture.server.check_log();
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn connection_loss_outcomes_of_create() {
    check_table(
        message_faults::create,
        &expect![[r#"
                               201 cut   away
            > bind                 ??    ?
            > execute              ??    ?
            > sync                 ??    ?
            < bound                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_create_with_integer_id() {
    check_table(
        message_faults::create_with_integer_id,
        &expect![[r#"
                               201 cut   away
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            > bind                 ??    ?
            > execute              ??    ?
            > sync                 ??    ?
            < bound                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_create_with_parent_and_reference() {
    check_table(
        message_faults::create_child,
        &expect![[r#"
                               201 cut   away
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            > bind                 ??    ?
            > execute              ??    ?
            > sync                 ??    ?
            < bound                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_bulk_create() {
    check_table(
        message_faults::create_many,
        &expect![[r#"
                               201 cut   away
            > query                ??    ?
            > bind                 ??    ?
            > execute              ??    ?
            > sync                 ??    ?
            > bind                 ??    ?
            > execute              ??    ?
            > sync                 ??    ?
            > query                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            < bound                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            < bound                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_replace() {
    check_table(
        message_faults::put,
        &expect![[r#"
                               200 cut   away
            > query                oo    u
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < complete             oo    u
            < ready                oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            > bind                 ??    ?
            > execute              ??    ?
            > sync                 ??    ?
            > query                ??    ?
            < bound                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_unchanged_replace() {
    check_table(
        message_faults::put_unchanged,
        &expect![[r#"
                               200 cut   away
            > query                oo    u
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < complete             oo    u
            < ready                oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            > query                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_cascading_delete() {
    check_table(
        message_faults::delete,
        &expect![[r#"
                               204 cut   away
            > query                oo    u
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < complete             oo    u
            < ready                oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            > bind                 ??    ?
            > execute              ??    ?
            > sync                 ??    ?
            > bind                 ??    ?
            > execute              ??    ?
            > sync                 ??    ?
            > query                ??    ?
            < bound                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            < bound                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            < complete             ??    ?
            < ready                ??    ?
            after the last message o     o
        "#]],
    );
}
