//! Faults that affect a whole commit group, and writes with a separate commit.

use expect_test::expect;

use crate::store::fault_injection::{self, FaultKind};
use crate::store::sqlite::write_faults::{NEIGHBOUR, WriterHarness, heading, line, steps};

/// A fault in BEGIN or COMMIT fails the whole group. `!`: the writer has stopped until a restart.
#[test]
fn group_fails_whole_at_begin_and_commit() {
    let group = [NEIGHBOUR, NEIGHBOUR, NEIGHBOUR];
    let all = steps(&mut WriterHarness::new(), &group);
    let mut text = heading();
    for at in [1, all.len()] {
        let mut trial = WriterHarness::new();
        let cells = FaultKind::ALL.map(|way| {
            fault_injection::inject(Some((at, way)));
            let outcome = trial.run(&group);
            fault_injection::inject(None);
            assert_eq!(trial.run(&group), "ooo", "afterwards, {way:?}");
            outcome
        });
        text.push_str(&line(&all[at - 1], &cells));
    }
    expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        BEGIN IMMEDIATE         uuu   uuu   uuu   uuu   uuu   uuu   uuu   uuu   poo
        COMMIT                  iii   ???!  ???!  uuu   uuu   ???!  ???!  ???!  ppp
    "#]]
    .assert_eq(&text);
}

/// When even ROLLBACK fails, the state of the open transaction is unknown, so the writer stops.
#[test]
fn writer_stops_when_rollback_fails_too() {
    let create = ("POST /people", r#"{"people":[{"name":"Dan"},{"name":"Eve"}]}"#);
    let count = steps(&mut WriterHarness::new(), &[NEIGHBOUR, create]).len();
    let mut trial = WriterHarness::new();
    // From the second step on: before the first one there is nothing to roll back.
    for at in 2..=count {
        for way in [FaultKind::DiskFull, FaultKind::Locked, FaultKind::Engine] {
            fault_injection::inject_persistent(at, way);
            let outcome = trial.run(&[NEIGHBOUR, create]);
            assert!(outcome.ends_with('!') && !outcome.contains('o'), "{way:?} at {at}: {outcome}");
        }
    }
    fault_injection::inject(None);
    assert_eq!(trial.run(&[NEIGHBOUR, create]), "oo");
}

/// A write with more rows than a commit group should wait for gets its own commit, after the group.
#[test]
fn exclusive_create_fails_without_failing_adjacent_requests() {
    let people: Vec<_> = (0..101).map(|number| format!(r#"{{"name":"{number}"}}"#)).collect();
    let body = format!(r#"{{"people":[{}]}}"#, people.join(","));
    let group = [NEIGHBOUR, ("POST /people", &*body), NEIGHBOUR];
    let count = steps(&mut WriterHarness::new(), &group).len();
    let mut trial = WriterHarness::new();
    let alone = |outcome: &str| ["oio", "ouo", "opo", "ouu!"].contains(&outcome);
    // The first steps, some in the middle, and the last ones before its commit.
    for at in (10..=14).chain([50, 51]).chain(count - 9..count - 5) {
        for way in FaultKind::ALL {
            fault_injection::inject(Some((at, way)));
            let outcome = trial.run(&group);
            assert!(alone(&outcome) || outcome == "oto", "{way:?} at {at} of {count}: {outcome}");
        }
    }
    fault_injection::inject(None);
    assert_eq!(trial.run(&group), "ooo");
}
