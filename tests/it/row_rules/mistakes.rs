//! Mistakes in conditions over other items, and warnings of missing indexes, as `nouns check` prints them.

use expect_test::expect;

use crate::harness::{Folder, run_nouns};

const MODEL: &str = r#"
title = "Teams"
[resources.project.fields]
name = { type = "text" }
tags = { type = "list", of = { type = "text" } }
[resources.member.fields]
project = { type = "ref", to = "project" }
user    = { type = "text" }
[resources.place]
parent = "project"
[resources.place.fields]
user = { type = "text", filter = true }
[resources.ticket]
parent = "project"
[resources.ticket.fields]
owner = { type = "ref", to = "member" }
box   = { type = "object", fields = { tags = { type = "list", of = { type = "text" } } } }
"#;

const MISTAKES: &[&str] = &[
    "project.nme = $user",
    "project.name.x = $user",
    "owner.projekt.name = $user",
    "owner = $user",
    "owner.project = project",
    "owner = project",
    "contains(project.name, $user)",
    "contains(box.tags, $user)",
    "exists(place where contains(this.project.tags, user))",
    "exists(place where contains(this.box.tags, user))",
    "exists(place where contains(project.tags, this.owner.user))",
    "contains(project.tags, 5)",
    "contains(project.tags)",
    "exists(membr where user = $user)",
    "exists(member where usr = $user)",
    "exists(member where project = this)",
    "exists(member where project = this.owner)",
    "exists(member where exists(member where user = $user))",
    "exists(member user = $user)",
    "this.owner = $user",
    "$user.tenant = 'x'",
    "project.id = 5",
    "project.id = '01890a5d-ac96-774b-bcce-b302099a8057'",
];

/// What `nouns check` says of a condition on tickets.
fn check(condition: &str) -> String {
    let folder = Folder::new();
    let grant = format!("{{ verbs = [\"get\"], where = \"{condition}\" }}");
    let model = format!("{MODEL}[roles.r]\nproject = [\"get\"]\nticket = {grant}\n");
    std::fs::write(folder.path().join("nouns.toml"), model).unwrap();
    let done = run_nouns(folder.path(), &["check"]);
    let lines = done.stderr.lines().filter(|line| !line.contains('|') && !line.contains("-->"));
    let lines: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = if lines.is_empty() { "ok".to_owned() } else { lines.join("\n  ") };
    format!("{condition}\n  {said}\n")
}

#[test]
fn row_rule_mistakes_are_found_by_check() {
    let shown: String = MISTAKES.iter().map(|condition| check(condition)).collect();
    expect![[r#"
        project.nme = $user
          error: there is no field `nme`
          = help: did you mean `name`?
        project.name.x = $user
          error: `name` is of type `text` and has no fields
        owner.projekt.name = $user
          error: there is no field `projekt`
          = help: did you mean `project`?
        owner = $user
          ok
        owner.project = project
          nouns.toml: warning: role `r`: a list of `ticket` reads all items of `ticket` until it is full: add a comparison with `=` of a field that has filter = true
        owner = project
          error: `owner` is the id of a `member`, and `project` of a `project`
        contains(project.name, $user)
          error: expected a list, but `project.name` is none
        contains(box.tags, $user)
          error: expected a list of single values
          = help: `contains` is for lists of texts, numbers, dates and the like, outside of objects
        exists(place where contains(this.project.tags, user))
          error: `contains` cannot look into `this.project.tags`, a list of the row
          = help: inside `exists`, it is for lists of that resource; put it outside, without `this.`
        exists(place where contains(this.box.tags, user))
          error: `contains` cannot look into `this.box.tags`, a list of the row
          = help: inside `exists`, it is for lists of that resource; put it outside, without `this.`
        exists(place where contains(project.tags, this.owner.user))
          nouns.toml: warning: role `r`: `exists(place where …)` reads all items of `place`: compare a field of `place` with `=`
        contains(project.tags, 5)
          error: `project.tags` is of type `text`: expected a text, got a number
        contains(project.tags)
          error: expected `contains(list, value)`, got 1 arguments
        exists(membr where user = $user)
          error: there is no resource `membr`
          = help: it is declared under [resources]; write its name as it is there
        exists(member where usr = $user)
          error: there is no field `usr`
          = help: did you mean `user`?
        exists(member where project = this)
          error: `this` is the row: expected a field of it after a dot
        exists(member where project = this.owner)
          error: `project` is the id of a `project`, and `this.owner` of a `member`
        exists(member where exists(member where user = $user))
          error: an `exists` cannot stand inside another
        exists(member user = $user)
          error: expected `where`, got `user`
        this.owner = $user
          error: there is no field `this`
          = help: a text stands in quotes, a field without them
        $user.tenant = 'x'
          error: users have no field `tenant`
          = help: declare it: [users.fields]
        project.id = 5
          error: expected an id
        project.id = '01890a5d-ac96-774b-bcce-b302099a8057'
          ok
    "#]]
    .assert_eq(&shown);
}

#[test]
fn row_rule_without_an_index_is_warned_of() {
    let conditions = [
        "exists(member where user = $user)",
        "exists(member where project = this.project and user = $user)",
        "exists(member where user != $user)",
        "not exists(member where user = $user and project.name = 'x')",
        "exists(place where user = $user)",
        "exists(place where user = $user and project = this.project)",
    ];
    let shown: String = conditions.iter().map(|condition| check(condition)).collect();
    expect![[r#"
        exists(member where user = $user)
          nouns.toml: warning: role `r`: `exists(member where …)` reads all items of `member`: give `member.user` filter = true
        exists(member where project = this.project and user = $user)
          nouns.toml: warning: role `r`: a list of `ticket` reads all items of `ticket` until it is full: give `member.user` filter = true
        exists(member where user != $user)
          nouns.toml: warning: role `r`: `exists(member where …)` reads all items of `member`: compare a field of `member` with `=`
        not exists(member where user = $user and project.name = 'x')
          nouns.toml: warning: role `r`: `exists(member where …)` reads all items of `member`: give `member.user` filter = true
        exists(place where user = $user)
          ok
        exists(place where user = $user and project = this.project)
          ok
    "#]].assert_eq(&shown);
}
