//! Tables of what readers see of changes.

use std::fmt::Write as _;

use expect_test::expect;

use super::*;
use crate::intent::{self, Intent};
use crate::model::{self, GrantVerb};
use crate::permit::{Caller, Rights};
use crate::permit::{MemberQuestion, NoFacts};
use crate::value::{Change, Moment};

const MODEL: &str = r#"
title = "Shop"
[resources.customer]
id = "integer"
[resources.customer.fields]
owner = { type = "text" }
[resources.order]
parent = "customer"
id = "integer"
[resources.order.fields]
status = { type = "text", filter = true }
owner = { type = "text" }
note = { type = "text" }
[resources.visit]
id = "integer"
changes = "ids"
[resources.visit.fields]
owner = { type = "text" }

[roles.all]
customer = ["get"]
order = ["get"]
visit = ["get"]
[roles.own]
customer = ["get"]
order = { verbs = ["get"], where = "owner = $user", hide = ["note"] }
visit = { verbs = ["get"], where = "owner = $user" }
[roles.below]
customer = { verbs = ["get"], where = "owner = $user" }
order = ["get"]
[roles.no_parent]
order = ["get"]
[roles.none]
"#;

fn shop() -> Model {
    model::read("m.toml", MODEL).unwrap_or_else(|errors| panic!("{errors}"))
}

fn access(model: &Model, role: &str) -> AccessScope {
    let rights = Arc::new(Rights::of_roles(model, [role].into_iter()));
    AccessScope::new(&Caller::user("ann".into(), rights), GrantVerb::Get)
}

/// The query of a list, as a request has it.
fn list(model: &Model, path: &str, query: &str) -> Arc<ListQuery> {
    let route = intent::route(model, &http::Method::GET, path, None).unwrap();
    match intent::read(model, route, (Some(query), &intent::AllReadable), b"").unwrap() {
        Intent::List(_, list) => list,
        other => panic!("{other:?}"),
    }
}

/// An order: its status and its owner.
fn order((status, owner): (&str, &str)) -> String {
    format!(
        r#"{{"id":2,"customer_id":1,"status":"{status}","owner":"{owner}","note":"n","created_at":"2026-11-17T03:20:01Z","updated_at":"2026-11-17T03:20:01Z","version":3}}"#
    )
}

type OrderState = Option<(&'static str, &'static str)>;

fn change(kind: &str, before: OrderState, after: OrderState) -> Change {
    Change {
        sequence: 7,
        time: Moment::parse("2026-11-17T03:20:01Z").unwrap(),
        resource: "order".to_owned(),
        id: "2".to_owned(),
        subject: "/customers/1/orders/2".to_owned(),
        kind: kind.to_owned(),
        actor: "bob".to_owned(),
        request_id: "r".to_owned(),
        changed: None,
        before: before.map(order),
        after: after.map(order),
    }
}

fn show(visibility: &Visibility) -> String {
    match visibility {
        Visibility::Hidden => "-".to_owned(),
        Visibility::Visible { kind, shows_before } => {
            format!("{}{}", kind.as_str(), if *shows_before { " with before" } else { "" })
        }
        Visibility::NeedsFacts(of) => format!("needs {of:?}"),
    }
}

struct OneState(ResourceIndex, Option<Item>);

impl KnownFacts for OneState {
    fn item(&self, resource: ResourceIndex, id: Id) -> ItemLookup<'_> {
        assert_eq!((resource, id), (self.0, Id::Integer(1)));
        self.1.as_ref().map_or(ItemLookup::Absent, ItemLookup::Present)
    }

    fn member(&self, _: &MemberQuestion) -> Option<bool> {
        None
    }
}

#[test]
fn change_visibility_follows_the_values_before_and_after() {
    let model = shop();
    let all = || ChangeTarget::All(Arc::default());
    let paid = || {
        let list = list(&model, "/customers/1/orders", "status=paid");
        ChangeTarget::Collection(ResourceIndex(1), vec![Id::Integer(1)], list)
    };
    let (mine, others) = (Some(("paid", "ann")), Some(("paid", "bob")));
    let (open, open_others) = (Some(("open", "ann")), Some(("open", "bob")));
    let mut shown = String::new();
    for (name, before, after) in [
        ("created", None, mine),
        ("created", None, others),
        ("created", None, open),
        ("updated", mine, mine),
        ("updated", open, mine),
        ("updated", mine, open),
        ("updated", others, mine),
        ("updated", mine, others),
        ("updated", open_others, mine),
        ("updated", others, open),
        ("deleted", mine, None),
        ("deleted", others, None),
        ("renamed", mine, mine),
    ] {
        let logged = LoggedChange::new(&model, change(name, before, after));
        let judged = [("admin", all()), ("admin", paid()), ("own", all()), ("own", paid())].map(
            |(role, target)| {
                let scope = ChangeScope { access: access(&model, role), target };
                show(&judge(&model, &scope, &logged, &NoFacts))
            },
        );
        writeln!(shown, "{name} {before:?} {after:?}: {}", judged.join(" | ")).unwrap();
    }
    expect![[r#"
        created None Some(("paid", "ann")): created | created | created | created
        created None Some(("paid", "bob")): created | created | - | -
        created None Some(("open", "ann")): created | - | created | -
        updated Some(("paid", "ann")) Some(("paid", "ann")): updated with before | updated with before | updated with before | updated with before
        updated Some(("open", "ann")) Some(("paid", "ann")): updated with before | updated | updated with before | updated
        updated Some(("paid", "ann")) Some(("open", "ann")): updated with before | left | updated with before | left
        updated Some(("paid", "bob")) Some(("paid", "ann")): updated with before | updated with before | updated | updated
        updated Some(("paid", "ann")) Some(("paid", "bob")): updated with before | updated with before | left | left
        updated Some(("open", "bob")) Some(("paid", "ann")): updated with before | updated | updated | updated
        updated Some(("paid", "bob")) Some(("open", "ann")): updated with before | left | updated | -
        deleted Some(("paid", "ann")) None: deleted with before | deleted with before | deleted with before | deleted with before
        deleted Some(("paid", "bob")) None: deleted with before | deleted with before | - | -
        renamed Some(("paid", "ann")) Some(("paid", "ann")): - | - | - | -
    "#]]
    .assert_eq(&shown);
}

#[test]
fn change_visibility_of_targets_and_grants() {
    let model = shop();
    let order = ResourceIndex(1);
    let list = |query: &str| list(&model, "/customers/1/orders", query);
    let path = |id| ItemPath { resource: order, ancestors: vec![Id::Integer(1)], id };
    let all = |filter: LogFilter| ChangeTarget::All(Arc::new(filter));
    let left = LogFilter { kinds: Some(vec![EventKind::Left]), ..LogFilter::default() };
    let by = |actor: &str| LogFilter { actors: Some(vec![actor.into()]), ..LogFilter::default() };
    let of =
        |label: &str| LogFilter { resources: Some(vec![label.into()]), ..LogFilter::default() };
    let subject = |id| LogFilter { subject: Some(path(id)), ..LogFilter::default() };
    let at = |text: &str| Moment::parse(text);
    let since = |text: &str| LogFilter { from: at(text), ..LogFilter::default() };
    let until = |text: &str| LogFilter { until: at(text), ..LogFilter::default() };
    let moved = change("updated", Some(("paid", "ann")), Some(("paid", "bob")));
    let logged = LoggedChange::new(&model, moved);
    for (role, target, expected) in [
        ("all", all(LogFilter::default()), "updated with before"),
        ("own", all(LogFilter::default()), "left"),
        ("own", all(left.clone()), "left"),
        ("all", all(left), "-"),
        ("none", all(LogFilter::default()), "-"),
        ("no_parent", all(LogFilter::default()), "-"),
        ("all", all(by("bob")), "updated with before"),
        ("all", all(by("ann")), "-"),
        ("all", all(of("order")), "updated with before"),
        ("all", all(of("customer")), "-"),
        ("all", all(subject(Id::Integer(2))), "updated with before"),
        ("all", all(subject(Id::Integer(3))), "-"),
        ("all", all(since("2026-11-17T03:20:01Z")), "updated with before"),
        ("all", all(since("2026-11-17T03:20:01.000001Z")), "-"),
        ("all", all(until("2026-11-17T03:20:01Z")), "updated with before"),
        ("all", all(until("2026-11-17T03:20:00.999999Z")), "-"),
        ("all", ChangeTarget::Resource(order, list("")), "updated with before"),
        ("all", ChangeTarget::Resource(order, list("status=open")), "-"),
        ("all", ChangeTarget::Resource(ResourceIndex(0), list("")), "-"),
        ("all", ChangeTarget::Collection(order, vec![Id::Integer(9)], list("")), "-"),
        ("all", ChangeTarget::Item(path(Id::Integer(2)), None), "updated with before"),
        ("own", ChangeTarget::Item(path(Id::Integer(2)), None), "left"),
        ("all", ChangeTarget::Item(path(Id::Integer(3)), None), "-"),
    ] {
        let scope = ChangeScope { access: access(&model, role), target };
        let judged = show(&judge(&model, &scope, &logged, &NoFacts));
        assert_eq!(judged, expected, "{role}: {scope:?}");
    }
}

#[test]
fn change_visibility_below_a_filtered_parent_needs_its_state() {
    let model = shop();
    let target = ChangeTarget::All(Arc::default());
    let scope = ChangeScope { access: access(&model, "below"), target };
    let logged = LoggedChange::new(&model, change("created", None, Some(("paid", "x"))));
    let judge = |states: &dyn KnownFacts| judge(&model, &scope, &logged, states);
    let needed = vec![RelatedFact::Item(ResourceIndex(0), Id::Integer(1))];
    assert_eq!(judge(&NoFacts), Visibility::NeedsFacts(needed));
    assert_eq!(judge(&OneState(ResourceIndex(0), None)), Visibility::Hidden);
    let at = Moment::parse("2026-11-17T03:20:01Z").unwrap();
    for (owner, expected) in [("ann", "created"), ("bob", "-")] {
        let values = vec![crate::value::Value::text(owner)];
        let id = Id::Integer(1);
        let parent = Item { id, parent: None, created_at: at, updated_at: at, version: 1, values };
        assert_eq!(show(&judge(&OneState(ResourceIndex(0), Some(parent)))), expected);
    }
}

#[test]
fn change_visibility_without_readable_values_fails_closed() {
    let model = shop();
    let judge = |role: &str, change: &Change| {
        let scope =
            ChangeScope { access: access(&model, role), target: ChangeTarget::All(Arc::default()) };
        show(&judge(&model, &scope, &LoggedChange::new(&model, change.clone()), &NoFacts))
    };
    let ids = Change {
        resource: "visit".to_owned(),
        subject: "/visits/2".to_owned(),
        ..change("updated", None, None)
    };
    let unreadable = Change {
        after: Some("{}".to_owned()),
        before: Some("{}".to_owned()),
        ..change("updated", None, None)
    };
    let moved = Change { subject: "/orders/2".to_owned(), ..unreadable.clone() };
    let undeclared = Change { resource: "purchase".to_owned(), ..unreadable.clone() };
    for (change, expected) in [
        (ids, ["updated with before", "updated with before", "-"]),
        (unreadable, ["updated with before", "updated with before", "-"]),
        (moved, ["updated with before", "-", "-"]),
        (undeclared, ["updated with before", "-", "-"]),
    ] {
        assert_eq!(["admin", "all", "own"].map(|role| judge(role, &change)), expected);
    }
}

#[test]
fn change_scope_view_hides_fields_and_undeclared_members() {
    let model = shop();
    let order = model.resource(ResourceIndex(1));
    let target = || ChangeTarget::All(Arc::default());
    let own = ChangeScope { access: access(&model, "own"), target: target() };
    let view = own.view(Some(order));
    assert_eq!((view.item.unwrap().hidden, view.shows_undeclared), (&[2][..], false));
    let admin = ChangeScope { access: access(&model, "admin"), target: target() };
    let view = admin.view(Some(order));
    assert_eq!((view.item.unwrap().hidden, view.shows_undeclared), (&[][..], true));
    assert!(admin.view(None).item.is_none());
}
