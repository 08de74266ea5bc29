//! Requests that change nothing, with the connection to the database lost at each message: reads, and what
//! is refused. The letters are those of `tables`.

use expect_test::expect;

use super::points;
use super::tables::check;

#[test]
fn a_create_that_is_refused() {
    check(
        points::create_taken,
        &expect![[r#"
                       409 cut   away
            > bind         ??    ?
            > execute      ??    ?
            > sync         ??    ?
            < bound        ??    ?
            < error        ??    ?
            < ready        oo    u
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
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
            < error        ??    ?
            < ready        oo    u
            < complete     oo    u
            < ready        oo    u
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
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
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < bound        oo    u
            < complete     oo    u
            < ready        oo    u
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
            < error        ??    ?
            < ready        oo    u
            < complete     oo    u
            < ready        oo    u
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
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
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
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
            < complete     oo    u
            < ready        oo    u
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < bound        oo    u
            < row          oo    u
            < complete     oo    u
            < ready        oo    u
            behind it all  o     o
        "#]],
    );
}

#[test]
fn a_replace_with_a_lost_reference() {
    check(
        points::put_lost,
        &expect![[r#"
                       422 cut   away
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
            < complete     oo    u
            < ready        oo    u
            > query        oo    o
            < complete     oo    o
            < ready        oo    o
            behind it all  o     o
        "#]],
    );
}

#[test]
fn a_replace_of_nothing() {
    check(
        points::put_missing,
        &expect![[r#"
                       404 cut   away
            > query        oo    u
            > bind         oo    u
            > execute      oo    u
            > sync         oo    u
            < complete     oo    u
            < ready        oo    u
            < bound        oo    u
            < complete     oo    u
            < ready        oo    u
            > query        oo    o
            < complete     oo    o
            < ready        oo    o
            behind it all  o     o
        "#]],
    );
}

#[test]
fn a_delete_that_is_refused() {
    check(
        points::delete_referenced,
        &expect![[r#"
                       409 cut   away
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
            > query        oo    o
            < complete     oo    o
            < ready        oo    o
            behind it all  o     o
        "#]],
    );
}
