//! Tests of the rights of role sets, and of the routes they grant.

use std::fmt::Write as _;
use std::sync::Arc;

use expect_test::{Expect, expect, expect_file};

use super::*;
use crate::intent;
use crate::model::expr::RowVersion;
use crate::model::{self, Model};
use crate::value::Id;

const MODEL: &str = r#"
title = "Shop"

[resources.customer.fields]
name = { type = "text", required = true }
email = { type = "email" }
note = { type = "text" }
score = { type = "integer", default = 0 }

[resources.order]
parent = "customer"

[resources.order.fields]
text = { type = "text" }

[roles.clerk]
"*" = "*"
customer = { verbs = ["get", "put"], hide = ["score"], readonly = ["email", "note"] }

[roles.shopper]
customer = { verbs = ["get", "put", "delete"], where = "email = $user", hide = ["note", "score"], readonly = ["name"] }
order = ["get"]

[roles.reader]
customer = { verbs = ["get"], where = "score > 0", hide = ["score"] }

[roles.idle]

[roles.anyone]
customer = { verbs = ["get"], where = "name = 'public'", hide = ["note", "score"] }
"#;

fn read() -> Model {
    model::read("shop.toml", MODEL).unwrap_or_else(|errors| panic!("{errors}"))
}

fn check_access(roles: &[&str], expected: &Expect) {
    let model = read();
    let rights = Rights::of_roles(&model, roles.iter().copied());
    let mut shown = String::new();
    for resource in &model.resources {
        for verb in ["get", "post", "put", "delete"] {
            let as_verb = match verb {
                "get" => GrantVerb::Get,
                "post" => GrantVerb::Post,
                "put" => GrantVerb::Put,
                _ => GrantVerb::Delete,
            };
            let Some(access) = rights.access(resource.index, as_verb) else { continue };
            let names = |indices: &[usize]| {
                let names = indices.iter().map(|index| &*resource.fields[*index].name);
                names.collect::<Vec<_>>().join(" ")
            };
            let limited: Vec<usize> =
                access.limited_fields.iter().flat_map(|limited| limited.fields.clone()).collect();
            let only: Vec<_> = access.row_filters.iter().map(|only| &*only.text).collect();
            writeln!(
                shown,
                "{} {verb}: rows [{}] hidden [{}] readonly [{}] limited [{}]",
                resource.name,
                only.join(" | "),
                names(&access.hidden),
                names(&access.readonly),
                names(&limited)
            )
            .unwrap();
            assert_eq!(access.hidden_hash == 0, access.hidden.is_empty());
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn rights_of_one_role_include_anyone() {
    check_access(
        &["shopper"],
        &expect![[r#"
            customer get: rows [email = $user | name = 'public'] hidden [note score] readonly [] limited [name]
            customer put: rows [email = $user] hidden [note score] readonly [name] limited []
            customer delete: rows [email = $user] hidden [note score] readonly [name] limited []
            order get: rows [] hidden [] readonly [] limited []
        "#]],
    );
}

#[test]
fn rights_of_several_roles_are_their_union() {
    // No role makes `note` writable: one hides it, in the other it is read-only.
    check_access(
        &["shopper", "clerk"],
        &expect![[r#"
            customer get: rows [] hidden [score] readonly [note] limited [email]
            customer put: rows [] hidden [score] readonly [note] limited [email]
            customer delete: rows [email = $user] hidden [note score] readonly [name] limited []
            order get: rows [] hidden [] readonly [] limited []
            order post: rows [] hidden [] readonly [] limited []
            order put: rows [] hidden [] readonly [] limited []
            order delete: rows [] hidden [] readonly [] limited []
        "#]],
    );
    check_access(
        &["reader", "shopper", "reader"],
        &expect![[r#"
            customer get: rows [email = $user | score > 0 | name = 'public'] hidden [note score] readonly [] limited [name]
            customer put: rows [email = $user] hidden [note score] readonly [name] limited []
            customer delete: rows [email = $user] hidden [note score] readonly [name] limited []
            order get: rows [] hidden [] readonly [] limited []
        "#]],
    );
}

#[test]
fn rights_of_unknown_roles_are_empty_and_of_admin_unrestricted() {
    let model = read();
    let of = |roles: &[&str]| Rights::of_roles(&model, roles.iter().copied());
    assert!(of(&["idle", "admin"]).is_unrestricted());
    assert!(!of(&["Admin", "administrator", "*"]).is_unrestricted());
    assert_eq!(of(&["nobody"]).key(), of(&[]).key());
    assert_eq!(of(&["clerk", "idle"]).key(), of(&["idle", "clerk", "nobody"]).key());
    assert_ne!(of(&["clerk"]).key(), of(&["shopper"]).key());
}

/// The grant of `/-/metrics` belongs to no resource, and its loss counts too.
#[test]
fn is_same_counts_the_grant_of_the_metrics() {
    let text = "title = \"T\"\n[resources.thing]\n[roles.reader]\nthing = [\"get\"]\n\
                [roles.other]\nthing = [\"get\"]\n\
                [roles.monitor]\nthing = [\"get\"]\n\"/-/metrics\" = [\"get\"]\n";
    let model = model::read("t.toml", text).unwrap_or_else(|errors| panic!("{errors}"));
    let of = |roles: &[&str]| Rights::of_roles(&model, roles.iter().copied());
    let (reader, monitor) = (of(&["reader"]), of(&["monitor"]));
    assert!(reader.is_equivalent(&of(&["other", "reader"])));
    assert!(monitor.is_equivalent(&of(&["reader", "monitor"])));
    assert!(!reader.is_equivalent(&monitor) && !monitor.is_equivalent(&reader));
}

/// The fields that one role shows for its rows stay hidden in the rows of another role.
#[test]
fn rights_of_several_roles_do_not_mix_fields_and_rows() {
    let text = r#"
title = "Staff"
[resources.person.fields]
email  = { type = "text" }
salary = { type = "integer" }
phone  = { type = "text" }
[roles.own]
person = { verbs = ["get", "put"], where = "email = $user" }
[roles.list]
person = { verbs = ["get", "put"], hide = ["salary"], readonly = ["phone"] }
[roles.own_phone]
person = { verbs = ["get", "put"], where = "email = $user", hide = ["salary"] }
[roles.boss]
person = ["get", "put"]
"#;
    let model = model::read("m.toml", text).unwrap();
    let shown = |roles: &[&str]| {
        let rights = Rights::of_roles(&model, roles.iter().copied());
        let access = rights.access(model.resources[0].index, GrantVerb::Put).unwrap();
        (access.row_filters.len(), access.hidden.clone(), access.readonly_or_limited.clone())
    };
    assert_eq!(shown(&["own"]), (1, vec![], vec![]));
    assert_eq!(shown(&["list"]), (0, vec![1], vec![2]));
    assert_eq!(shown(&["own", "list"]), (0, vec![1], vec![2]), "all rows, as the list shows them");
    assert_eq!(shown(&["own", "own_phone"]), (1, vec![], vec![]), "the same rows");
    assert_eq!(shown(&["list", "own", "boss"]), (0, vec![], vec![]));
}

#[test]
fn check_for_each_caller_and_route() {
    let model = read();
    let user = |role: &str| {
        Caller::user("ann".into(), Arc::new(Rights::of_roles(&model, [role].into_iter())))
    };
    let nothing =
        model::read("m.toml", "title = \"A\"\n[resources.a.fields]\nx = { type = \"text\" }\n")
            .unwrap();
    let callers = [
        ("open", Caller::open(&model)),
        ("admin", user("admin")),
        ("clerk", user("clerk")),
        ("shopper", user("shopper")),
        ("anyone", Caller::anonymous(Arc::new(Rights::of_roles(&model, [].into_iter())))),
        ("closed", Caller::anonymous(Arc::new(Rights::of_roles(&nothing, [].into_iter())))),
    ];
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let places = [
        "/".to_owned(),
        "/customers".to_owned(),
        format!("/customers/{id}"),
        format!("/customers/{id}/orders"),
        format!("/customers/{id}/orders/{id}"),
        "/-/metrics".to_owned(),
        "/-/health".to_owned(),
        "/-/ready".to_owned(),
        "/-/problems/forbidden".to_owned(),
        "*".to_owned(),
    ];
    let mut shown = String::new();
    for place in &places {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"] {
            let Ok(route) = intent::route(&model, &method.parse().unwrap(), place, None) else {
                continue;
            };
            let answers = callers.iter().map(|(name, caller)| match check(caller, &route) {
                Ok(()) => format!(" {name}"),
                Err(AccessDenied::Unauthenticated) => format!(" {name}:401"),
                Err(AccessDenied::NotGranted) => format!(" {name}:403"),
            });
            let place = place.replace(id, "1");
            let open = if is_public(&route) { " (open)" } else { "" };
            writeln!(shown, "{method} {place}{open}:{}", answers.collect::<String>()).unwrap();
        }
    }
    expect_file!["places.txt"].assert_eq(&shown);
}

#[test]
fn scope_without_get_on_an_ancestor_reaches_nothing_below() {
    let model = model::read(
        "m.toml",
        "title = \"A\"\n[resources.a.fields]\nx = { type = \"text\" }\n[resources.b]\nparent = \"a\"\n[resources.b.fields]\nx = { type = \"text\" }\n\
         [roles.below]\nb = \"*\"\n[roles.above]\na = [\"get\"]\nb = [\"get\"]\n",
    )
    .unwrap();
    let reach = |role: &str| {
        let rights = Arc::new(Rights::of_roles(&model, [role].into_iter()));
        AccessScope::new(&Caller::user("ann".into(), rights), GrantVerb::Get)
    };
    let (a, b) = (ResourceIndex(0), ResourceIndex(1));
    assert!(!reach("below").can_read_ancestors(&model, b));
    assert!(reach("above").can_read_ancestors(&model, b));
    assert!(reach("admin").can_read_ancestors(&model, b) && reach("admin").is_unrestricted());
    assert!(reach("below").has_any_grant(b) && !reach("below").has_any_grant(a));
    // `check` was not called here, and still no row is accessible.
    let (id, facts) = (Id::Integer(1), FactReader::without_facts(&model));
    let row = StoredRow { id, parent: None, values: &[], version: RowVersion::Stored };
    let below = reach("below");
    assert!(!below.access(a).allows_row(&model.resources[0], row, below.user(), &facts));
    assert!(reach("below").has_row_filter(&model, b) && !reach("above").has_row_filter(&model, b));
}

/// Writes after which the store has to read whether GET shows the written item.
#[test]
fn read_check_is_needed_only_where_a_write_can_change_its_answer() {
    let text = r#"
title = "Teams"
[resources.project.fields]
owner = { type = "text" }
[resources.member.fields]
project = { type = "ref", to = "project" }
user    = { type = "text" }
[resources.ticket]
parent = "project"
[resources.ticket.fields]
assignee = { type = "text" }
[roles.plain]
project = { verbs = "*", where = "owner = $user" }
member  = { verbs = "*", where = "user = $user" }
ticket  = "*"
[roles.member]
project = { verbs = "*", where = "exists(member where project = this.id and user = $user)" }
member  = { verbs = "*", where = "project.owner = $user" }
ticket  = { verbs = "*", where = "project.owner = $user" }
[roles.blind]
project = "*"
member  = [{ verbs = ["get"], where = "project.owner = $user" }, { verbs = ["post", "patch"] }]
ticket  = [{ verbs = ["get"], where = "project.owner = $user" }, { verbs = ["post", "patch"], where = "assignee = $user" }]
[roles.circle]
project = { verbs = "*", where = "exists(ticket where project = this.id and assignee = $user)" }
member  = { verbs = "*", where = "exists(member where project = this.project and user = $user)" }
ticket  = "*"
[roles.path]
project = { verbs = "*", where = "exists(member where project = this.id and project.owner = $user)" }
ticket  = "*"
"#;
    let model = model::read("m.toml", text).unwrap_or_else(|errors| panic!("{errors}"));
    let mut shown = String::new();
    for role in ["admin", "plain", "member", "blind", "circle", "path"] {
        let rights = Arc::new(Rights::of_roles(&model, [role].into_iter()));
        let caller = Caller::user("ann".into(), rights);
        let scope = AccessScope::new(&caller, GrantVerb::Patch);
        let checked = model.declared().filter(|one| scope.needs_read_check(&model, one.index));
        let checked: Vec<&str> = checked.map(|one| &*one.name).collect();
        writeln!(shown, "{role}: [{}]", checked.join(" ")).unwrap();
    }
    expect![[r#"
        admin: []
        plain: []
        member: []
        blind: [member ticket]
        circle: [member ticket]
        path: [project]
    "#]]
    .assert_eq(&shown);
}

/// A row filter with every kind of node and comparison that one can have, and a hidden field.
const EXPRESSIONS: &str = r#"
title = "Shop"

[resources.customer.fields]
name = { type = "text" }
email = { type = "email" }
score = { type = "integer" }
vip = { type = "boolean" }

[resources.order]
parent = "customer"

[resources.order.fields]
text = { type = "text" }

[roles.filtered]
customer = { verbs = ["get"], where = "not vip and (name in ['a', 'b'] or email = $user) and score > -1 and score >= 0 and score < 9 and score <= 8 and name != 'x'" }
order = ["get"]

[roles.hidden]
customer = { verbs = ["get"], hide = ["score"] }
order = ["get"]

[roles.whole]
"*" = "*"

[roles.without_parent]
order = ["get"]
"#;

/// The hash is stored in the fingerprints of requests with an `Idempotency-Key`. Where it changes for the same
/// model and grants, every retry of a caller with row filters or hidden fields is refused after an upgrade.
#[test]
fn read_access_hash_of_a_fixed_model_does_not_change() {
    let model = model::read("m.toml", EXPRESSIONS).unwrap_or_else(|errors| panic!("{errors}"));
    let mut shown = String::new();
    for role in ["filtered", "hidden", "whole", "without_parent", "admin"] {
        let rights = Arc::new(Rights::of_roles(&model, [role].into_iter()));
        let scope = AccessScope::new(&Caller::user("ann".into(), rights), GrantVerb::Put);
        let hash = |index| scope.read_access_hash(&model, ResourceIndex(index));
        writeln!(shown, "{role}: {} {}", hash(0), hash(1)).unwrap();
    }
    expect![[r#"
        filtered: 3843525530 765821783
        hidden: 366104937 688021565
        whole: 0 0
        without_parent: 354143746 2461793723
        admin: 0 0
    "#]]
    .assert_eq(&shown);
}
