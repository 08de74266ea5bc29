//! Each kind of request: a row for each step, a column for each way to fail, and in each cell what the
//! three that share the commit are told.
//!
//! o: done. c, r: refused, as it would have been. t: timed out. i: internal. u: unavailable.
//! k: refused, and kept so. p: the writer panicked, which is told as internal. `!`: writing has stopped.

use expect_test::{Expect, expect};

use super::{NEIGHBOUR, Trial, UNCHANGED, heading, line, steps};
use crate::store::faulty::{self, Way};

/// Fails a request between two others at each of its steps in every way; a row for each step.
fn table(request: (&str, &str), expected: &str) -> String {
    let group = [NEIGHBOUR, request, NEIGHBOUR];
    let neighbours = steps(&mut Trial::new(), &[NEIGHBOUR, NEIGHBOUR]);
    let all = steps(&mut Trial::new(), &group);
    // Between BEGIN and COMMIT there are both neighbours, one before and one after it.
    let first = 1 + (neighbours.len() - 2) / 2;
    let own = first..first + all.len() - neighbours.len();
    let mut cells = vec![Vec::new(); own.len()];
    for way in Way::ALL {
        let mut trial = Trial::new();
        for (row, step) in own.clone().enumerate() {
            faulty::plant(Some((step + 1, way)));
            cells[row].push(trial.run(&group));
            assert!(faulty::steps().len() > step, "the fault was not met");
        }
        faulty::plant(None);
        assert_eq!(trial.run(&group), format!("o{expected}o"), "afterwards, {way:?}");
    }
    let mut text = heading();
    for (row, step) in cells.iter().zip(&all[own]) {
        text.push_str(&line(step, row));
    }
    text
}

fn check(request: (&str, &str), expected: &Expect) {
    expected.assert_eq(&table(request, "o"));
}

#[test]
fn a_create() {
    check(
        ("POST /people", r#"{"person":{"name":"Dan"}}"#),
        &expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        allocate ids            oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT nouns_changes    uuo   uuo   uuo   uuo   uuo   uuo   uuu!  uuo   uuo
    "#]],
    );
}

#[test]
fn a_create_with_a_parent_and_a_reference() {
    check(
        ("POST /teams/team/tasks", r#"{"task":{"title":"z","owner":1}}"#),
        &expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        allocate ids            oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT "tasks"          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT nouns_changes    uuo   uuo   uuo   uuo   uuo   uuo   uuu!  uuo   uuo
    "#]],
    );
}

#[test]
fn a_create_of_many() {
    let body = r#"{"people":[{"name":"Dan"},{"name":"Eve"}]}"#;
    check(
        ("POST /people", body),
        &expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        allocate ids            oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
    "#]],
    );
}

#[test]
fn a_create_that_is_refused() {
    let body = r#"{"person":{"name":"Dan","badge":"a"}}"#;
    expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        allocate ids            oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
    "#]]
    .assert_eq(&table(("POST /people", body), "c"));
}

#[test]
fn a_create_of_many_of_which_the_last_is_refused() {
    let body = r#"{"people":[{"name":"Dan"},{"name":"Eve","badge":"a"}]}"#;
    expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        allocate ids            oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        ROLLBACK TO             uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
    "#]]
    .assert_eq(&table(("POST /people", body), "c"));
}

#[test]
fn a_replace() {
    check(
        ("PUT /people/1", r#"{"person":{"name":"Anna","badge":"a"}}"#),
        &expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        UPDATE "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT nouns_changes    uuo   uuo   uuo   uuo   uuo   uuo   uuu!  uuo   uuo
    "#]],
    );
}

#[test]
fn a_replace_that_changes_nothing() {
    check(
        (UNCHANGED, r#"{"person":{"name":"Bob"}}"#),
        &expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
    "#]],
    );
}

#[test]
fn a_move_of_a_state_with_a_reference() {
    let body = r#"{"task":{"title":"x","owner":2,"stage":"done"}}"#;
    check(
        ("PUT /teams/team/tasks/task", body),
        &expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        UPDATE "tasks"          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT nouns_changes    uuo   uuo   uuo   uuo   uuo   uuo   uuu!  uuo   uuo
    "#]],
    );
}

#[test]
fn a_removal() {
    check(
        ("DELETE /people/3", ""),
        &expect![[r#"
                                    taken time  intr  lock  full  gone  sync  fault panic
            SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            DELETE "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        "#]],
    );
}

#[test]
fn a_removal_that_takes_children_along() {
    check(
        ("DELETE /teams/team", ""),
        &expect![[r#"
                                    taken time  intr  lock  full  gone  sync  fault panic
            SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            DELETE "tasks"          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            DELETE "tasks"          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            DELETE "teams"          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        "#]],
    );
}

#[test]
fn a_removal_that_takes_referrers_along() {
    check(
        ("DELETE /people/2", ""),
        &expect![[r#"
                                    taken time  intr  lock  full  gone  sync  fault panic
            SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            DELETE "tasks"          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            DELETE "tasks"          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            DELETE "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        "#]],
    );
}

#[test]
fn a_removal_that_is_refused() {
    expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        ROLLBACK TO             uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
    "#]]
    .assert_eq(&table(("DELETE /people/1", ""), "r"));
}

#[test]
fn a_create_with_a_key() {
    check(
        ("KEYED POST /people", r#"{"person":{"name":"Dan"}}"#),
        &expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        allocate ids            oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT nouns_keys       oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
    "#]],
    );
}

#[test]
fn a_create_of_many_with_a_key_that_is_refused() {
    let body = r#"{"people":[{"name":"Dan"},{"name":"Eve","badge":"a"}]}"#;
    expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        allocate ids            oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        ROLLBACK TO             oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT nouns_keys       oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
    "#]]
    .assert_eq(&table(("KEYED POST /people", body), "k"));
}
