//! Faults in each kind of request: a row for each step, a column for each kind of fault, and in each cell the
//! answers to the three requests that share the commit.
//!
//! A cell has a letter for each request, in order; the fault is in the second. o: done. c, r: refused, as
//! without the fault. t: timed out. i: internal. u: unavailable. k: refused, with a stored response.
//! p: the writer panicked (reported as internal). `!`: the writer has stopped.
//! So `oio`: the second gets an internal error, and the others are done; `uuu!`: none is done, and the writer
//! has stopped.

use expect_test::{Expect, expect};

use crate::store::fault_injection::{self, FaultKind};
use crate::store::sqlite::write_faults::{
    NEIGHBOUR, UNCHANGED, WriterHarness, heading, line, steps,
};

/// Fails a request between two others at each of its steps in every way; a row for each step.
fn table(request: (&str, &str), expected: &str) -> String {
    let group = [NEIGHBOUR, request, NEIGHBOUR];
    let neighbours = steps(&mut WriterHarness::new(), &[NEIGHBOUR, NEIGHBOUR]);
    let all = steps(&mut WriterHarness::new(), &group);
    // Between BEGIN and COMMIT run both neighbours, one before the request and one after it.
    let first = 1 + (neighbours.len() - 2) / 2;
    let own = first..first + all.len() - neighbours.len();
    let mut cells = vec![Vec::new(); own.len()];
    for way in FaultKind::ALL {
        let mut trial = WriterHarness::new();
        for (row, step) in own.clone().enumerate() {
            fault_injection::inject(Some((step + 1, way)));
            cells[row].push(trial.run(&group));
            assert!(fault_injection::steps_since_inject().len() > step, "the fault was not met");
        }
        fault_injection::inject(None);
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
fn fault_outcomes_of_create() {
    check(
        ("POST /people", r#"{"person":{"name":"Dan"}}"#),
        &expect![[r#"
                                    taken time  intr  lock  full  gone  sync  fault panic
            WITH RECURSIVE          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    uuo   uuo   uuo   uuo   uuo   uuo   uuu!  uuo   uuo
        "#]],
    );
}

#[test]
fn fault_outcomes_of_create_with_parent_and_reference() {
    check(
        ("POST /teams/team/tasks", r#"{"task":{"title":"z","owner":1}}"#),
        &expect![[r#"
                                    taken time  intr  lock  full  gone  sync  fault panic
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT "tasks"          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    uuo   uuo   uuo   uuo   uuo   uuo   uuu!  uuo   uuo
        "#]],
    );
}

/// A read check that fails rolls back the write before it.
#[test]
fn fault_outcomes_of_create_with_read_check() {
    check(
        ("LEAD POST /teams/team/tasks", r#"{"task":{"title":"z"}}"#),
        &expect![[r#"
                                    taken time  intr  lock  full  gone  sync  fault panic
            SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT "tasks"          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        "#]],
    );
}

#[test]
fn fault_outcomes_of_replace_with_read_check() {
    check(
        ("LEAD PUT /teams/team/tasks/task", r#"{"task":{"title":"x","stage":"done"}}"#),
        &expect![[r#"
                                    taken time  intr  lock  full  gone  sync  fault panic
            SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            UPDATE "tasks"          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        "#]],
    );
}

#[test]
fn fault_outcomes_of_bulk_create() {
    let body = r#"{"people":[{"name":"Dan"},{"name":"Eve"}]}"#;
    check(
        ("POST /people", body),
        &expect![[r#"
                                    taken time  intr  lock  full  gone  sync  fault panic
            SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
            WITH RECURSIVE          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        "#]],
    );
}

#[test]
fn fault_outcomes_of_refused_create() {
    let body = r#"{"person":{"name":"Dan","badge":"a"}}"#;
    expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        WITH RECURSIVE          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
    "#]]
    .assert_eq(&table(("POST /people", body), "c"));
}

#[test]
fn fault_outcomes_of_bulk_create_with_last_refused() {
    let body = r#"{"people":[{"name":"Dan"},{"name":"Eve","badge":"a"}]}"#;
    expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        WITH RECURSIVE          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
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
fn fault_outcomes_of_replace() {
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
fn fault_outcomes_of_unchanged_replace() {
    check(
        (UNCHANGED, r#"{"person":{"name":"Bob"}}"#),
        &expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
    "#]],
    );
}

#[test]
fn fault_outcomes_of_state_transition_with_reference() {
    let body = r#"{"task":{"title":"x","owner":2,"stage":"done"}}"#;
    check(
        ("PUT /teams/team/tasks/task", body),
        &expect![[r#"
                                    taken time  intr  lock  full  gone  sync  fault panic
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            UPDATE "tasks"          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    uuo   uuo   uuo   uuo   uuo   uuo   uuu!  uuo   uuo
        "#]],
    );
}

#[test]
fn fault_outcomes_of_delete() {
    check(
        ("DELETE /people/3", ""),
        &expect![[r#"
                                    taken time  intr  lock  full  gone  sync  fault panic
            SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            DELETE "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        "#]],
    );
}

#[test]
fn fault_outcomes_of_delete_cascading_to_children() {
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
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        "#]],
    );
}

#[test]
fn fault_outcomes_of_delete_cascading_to_referrers() {
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
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        "#]],
    );
}

#[test]
fn fault_outcomes_of_refused_delete() {
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
fn fault_outcomes_of_idempotent_create() {
    check(
        ("KEYED POST /people", r#"{"person":{"name":"Dan"}}"#),
        &expect![[r#"
                                    taken time  intr  lock  full  gone  sync  fault panic
            SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
            SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            WITH RECURSIVE          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT "people"         oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_changes    oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            INSERT nouns_keys       oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
            RELEASE request         uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        "#]],
    );
}

#[test]
fn fault_outcomes_of_refused_idempotent_bulk_create() {
    let body = r#"{"people":[{"name":"Dan"},{"name":"Eve","badge":"a"}]}"#;
    expect![[r#"
                                taken time  intr  lock  full  gone  sync  fault panic
        SAVEPOINT request       uuo   uuo   uuo   uuo   uuo   uuo   uuo   uuo   ppo
        SELECT                  oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
        WITH RECURSIVE          oio   oto   uuo   uuo   uuo   uuo   uuu!  oio   oio
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
