//! Tables of connection losses for requests that change nothing: reads and refused writes. `tables`
//! explains the letters.

use expect_test::expect;

use super::message_faults;
use super::tables::check_table;

#[test]
fn connection_loss_outcomes_of_refused_create() {
    check_table(
        message_faults::create_taken,
        &expect![[r#"
                               409 cut   away
            > bind                 ??    ?
            > execute              ??    ?
            > sync                 ??    ?
            < bound                ??    ?
            < error                ??    ?
            < ready                oo    u
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_bulk_create_with_refused_last_item() {
    check_table(
        message_faults::create_many_taken,
        &expect![[r#"
                               409 cut   away
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
            < error                ??    ?
            < ready                oo    u
            < complete             oo    u
            < ready                oo    u
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_create_with_missing_parent() {
    check_table(
        message_faults::create_without_parent,
        &expect![[r#"
                               404 cut   away
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < bound                oo    u
            < complete             oo    u
            < ready                oo    u
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_refused_replace() {
    check_table(
        message_faults::put_taken,
        &expect![[r#"
                               409 cut   away
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
            < error                ??    ?
            < ready                oo    u
            < complete             oo    u
            < ready                oo    u
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_get() {
    check_table(
        message_faults::get,
        &expect![[r#"
                               200 cut   away
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_list() {
    check_table(
        message_faults::list,
        &expect![[r#"
                               200 cut   away
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
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_list_with_missing_parent() {
    check_table(
        message_faults::list_without_parent,
        &expect![[r#"
                               200 cut   away
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
            < complete             oo    u
            < ready                oo    u
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < bound                oo    u
            < row                  oo    u
            < complete             oo    u
            < ready                oo    u
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_replace_with_missing_reference() {
    check_table(
        message_faults::put_with_missing_reference,
        &expect![[r#"
                               422 cut   away
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
            < complete             oo    u
            < ready                oo    u
            > query                oo    o
            < complete             oo    o
            < ready                oo    o
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_replace_of_missing_item() {
    check_table(
        message_faults::put_missing,
        &expect![[r#"
                               404 cut   away
            > query                oo    u
            > bind                 oo    u
            > execute              oo    u
            > sync                 oo    u
            < complete             oo    u
            < ready                oo    u
            < bound                oo    u
            < complete             oo    u
            < ready                oo    u
            > query                oo    o
            < complete             oo    o
            < ready                oo    o
            after the last message o     o
        "#]],
    );
}

#[test]
fn connection_loss_outcomes_of_refused_delete() {
    check_table(
        message_faults::delete_referenced,
        &expect![[r#"
                               409 cut   away
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
            > query                oo    o
            < complete             oo    o
            < ready                oo    o
            after the last message o     o
        "#]],
    );
}
