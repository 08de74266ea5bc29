//! What concerns a whole group: its begin and its end, the end of everything, and what runs alone.

use expect_test::expect;

use super::{NEIGHBOUR, Trial, heading, line, steps};
use crate::store::faulty::{self, Way};

/// What begins and ends a group concerns all of it. `!` says that writing stops until a restart.
#[test]
fn the_frame_of_a_group() {
    let group = [NEIGHBOUR, NEIGHBOUR, NEIGHBOUR];
    let all = steps(&mut Trial::new(), &group);
    let mut text = heading();
    for at in [1, all.len()] {
        let mut trial = Trial::new();
        let cells = Way::ALL.map(|way| {
            faulty::plant(Some((at, way)));
            let told = trial.run(&group);
            faulty::plant(None);
            assert_eq!(trial.run(&group), "ooo", "afterwards, {way:?}");
            told
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

/// Not even a rollback: nothing is known of the transaction that is still open, so writing stops.
#[test]
fn when_nothing_works_any_more_writing_stops() {
    let create = ("POST /people", r#"{"people":[{"name":"Dan"},{"name":"Eve"}]}"#);
    let count = steps(&mut Trial::new(), &[NEIGHBOUR, create]).len();
    let mut trial = Trial::new();
    // From the second step on: before the first one there is nothing to roll back.
    for at in 2..=count {
        for way in [Way::Full, Way::Locked, Way::Engine] {
            faulty::plant_lasting(at, way);
            let told = trial.run(&[NEIGHBOUR, create]);
            assert!(told.ends_with('!') && !told.contains('o'), "{way:?} at {at}: {told}");
        }
    }
    faulty::plant(None);
    assert_eq!(trial.run(&[NEIGHBOUR, create]), "oo");
}

/// More rows than those who share a commit should wait for: it runs alone, after them.
#[test]
fn a_create_that_runs_alone() {
    let people: Vec<_> = (0..101).map(|number| format!(r#"{{"name":"{number}"}}"#)).collect();
    let body = format!(r#"{{"people":[{}]}}"#, people.join(","));
    let group = [NEIGHBOUR, ("POST /people", &*body), NEIGHBOUR];
    let count = steps(&mut Trial::new(), &group).len();
    let mut trial = Trial::new();
    let alone = |told: &str| ["oio", "ouo", "opo", "ouu!"].contains(&told);
    // The first ones, some in the middle, and the last before its commit.
    for at in (10..=14).chain([50, 51]).chain(count - 9..count - 5) {
        for way in Way::ALL {
            faulty::plant(Some((at, way)));
            let told = trial.run(&group);
            assert!(alone(&told) || told == "oto", "{way:?} at {at} of {count}: {told}");
        }
    }
    faulty::plant(None);
    assert_eq!(trial.run(&group), "ooo");
}
