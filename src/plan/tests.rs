//! Tests of body validation and of the decisions that depend on stored data.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use uuid::Uuid;

use super::decide::{Script, ScriptResult};
use super::*;
use crate::formats::PatchForm;
use crate::intent::{self, RequestVerb, Route};
use crate::model::expr::UserValues;
use crate::model::{self, ResourceIndex};
use crate::permit::FactReader;
use crate::value::{Item, Moment, Value};

const MODEL: &str = r#"
title = "Shop"

[resources.shop]
id = "integer"

[resources.shop.fields]
name = { type = "text", required = true }

[resources.order]
parent = "shop"

[resources.order.fields]
status = { type = "state", initial = "placed", next = { placed = ["paid", "gone"], paid = ["gone"], gone = [] } }
note = { type = "text", max_length = 5 }
place = { type = "text", nullable = true }
currency = { type = "text", default = "EUR" }
lines = { type = "list", required = true, of = { fields = { count = { type = "integer", default = 1 }, price = { type = "integer", required = true } } } }
total = { type = "integer", computed = "sum(lines, count * price)" }
friend = { type = "ref", to = "shop" }
"#;

const ORDER: u128 = 0x0189_0a5d_ac96_774b_bcce_b302_099a_8057;

fn order() -> Id {
    Id::Uuid(Uuid::from_u128(ORDER))
}

fn address(item: Option<Id>) -> ResourcePath {
    let ids = PathIds { ancestors: vec![Id::Integer(7)], item };
    ResourcePath::nested(ResourceIndex(1), ids)
}

fn plan(model: &Model, verb: RequestVerb, body: &str) -> Plan {
    let place = match verb {
        RequestVerb::Post => RouteTarget::Collection(address(None)),
        _ => RouteTarget::Item(address(Some(order()))),
    };
    let intent = intent::read(
        model,
        Route { verb, target: place },
        (None, &intent::AllReadable),
        body.as_bytes(),
    )
    .unwrap();
    make(model, intent, &Caller::open(model), || ChangeAuthor::without_user("ann", "r1")).unwrap()
}

fn show_faults(faults: &[FieldFault]) -> String {
    faults.iter().fold(String::new(), |mut text, fault| {
        writeln!(text, "{} {} {}", fault.pointer, fault.code.as_str(), fault.detail).unwrap();
        text
    })
}

fn show_values(values: &[Value]) -> String {
    values.iter().fold(String::new(), |mut text, value| {
        let mut out = Vec::new();
        crate::json::write_value(&mut out, value);
        writeln!(text, "{}", String::from_utf8(out).unwrap()).unwrap();
        text
    })
}

fn read() -> Model {
    model::read("shop.toml", MODEL).unwrap_or_else(|errors| panic!("{errors}"))
}

fn check_admit(verb: RequestVerb, body: &str, expected: &Expect) {
    let shown = match plan(&read(), verb, body) {
        Plan::Write(write) => match &write.action {
            WriteAction::Create { drafts, .. } => drafts.iter().map(show_draft).collect(),
            WriteAction::Replace { draft, .. } => show_draft(draft),
            other => format!("{other:?}"),
        },
        Plan::Read(ReadPlan::InvalidWrite(refuse)) => {
            let references = refuse
                .references
                .iter()
                .map(|reference| format!("look up {}\n", reference.pointer));
            show_faults(&refuse.faults) + &references.collect::<String>()
        }
        other => format!("{other:?}"),
    };
    expected.assert_eq(&shown);
}

fn show_draft(draft: &ItemDraft) -> String {
    match &draft.values {
        DraftValues::Complete(values) => show_values(values),
        DraftValues::Partial(values) => {
            values.iter().fold(String::new(), |text, value| match value {
                Some(value) => text + &format!("{value:?}\n"),
                None => text + "stays\n",
            })
        }
    }
}

#[test]
fn create_without_faults_is_a_complete_draft() {
    check_admit(
        RequestVerb::Post,
        r#"{"order":{"lines":[{"count":2,"price":5},{"price":1}],"note":"hi"}}"#,
        &expect![[r#"
        "placed"
        "hi"
        null
        "EUR"
        [{"count":2,"price":5},{"count":1,"price":1}]
        11
        null
    "#]],
    );
}

#[test]
fn create_with_faults_lists_all_of_them_and_looks_up_references() {
    check_admit(
        RequestVerb::Post,
        r#"{"orders":[{"lines":[{}],"note":"too long","total":1,"friend":3},{"id":"x","curency":"EUR","status":7,"shop_id":8}]}"#,
        &expect![[r#"
            /orders/0/lines/0/price required expected an integer, got nothing
            /orders/0/note length expected at most 5 characters, got 8
            /orders/0/total read_only computed by the server
            /orders/1/id read_only set by the server
            /orders/1/curency unknown no such field; did you mean "currency"?
            /orders/1/status type expected a state, got a number
            /orders/1/shop_id mismatch the path says 7
            /orders/1/lines required expected a list, got nothing
            look up /orders/0/friend
        "#]],
    );
}

#[test]
fn replace_accepts_server_set_members_of_the_right_type() {
    let id = order();
    let body = format!(
        r#"{{"order":{{"id":"{id}","shop_id":7,"status":"paid","currency":"EUR","lines":[],"total":0,"place":null,
            "created_at":"2026-11-15T02:28:14.000000Z","updated_at":"2026-11-15T02:28:14.000000Z","version":3}}}}"#
    );
    check_admit(
        RequestVerb::Put,
        &body,
        &expect![[r#"
        "paid"
        null
        null
        "EUR"
        []
        0
        null
    "#]],
    );
    let body = r#"{"order":{"id":7,"shop_id":"7","lines":[],"total":"many","created_at":"noon","updated_at":null,"version":"3"}}"#;
    check_admit(
        RequestVerb::Put,
        body,
        &expect![[r#"
            /order/id mismatch the path says 01890a5d-ac96-774b-bcce-b302099a8057
            /order/shop_id mismatch the path says 7
            /order/total type expected an integer, got a string
            /order/created_at type expected a timestamp, got a string
            /order/updated_at type expected a timestamp, got null
            /order/version type expected an integer, got a string
        "#]],
    );
}

#[test]
fn replace_without_state_keeps_the_stored_state() {
    check_admit(
        RequestVerb::Put,
        r#"{"orders":{"lines":[]}}"#,
        &expect![[r#"
        stays
        Null
        Null
        Text("EUR")
        List([])
        Null
        Null
    "#]],
    );
}

#[test]
fn computed_field_out_of_range_is_a_fault() {
    let body = r#"{"order":{"lines":[{"count":9007199254740991,"price":2}]}}"#;
    check_admit(
        RequestVerb::Post,
        body,
        &expect![[r#"
        /order/total overflow the computed value is out of range
    "#]],
    );
}

fn stored(status: &str) -> Item {
    let moment = Moment::parse("2026-11-15T02:28:14Z").unwrap();
    let values = [
        Value::text(status),
        Value::Null,
        Value::Null,
        Value::text("EUR"),
        Value::Json("[]".into()),
        Value::Integer(0),
        Value::Null,
    ];
    let (parent, version) = (Some(Id::Integer(7)), 3);
    Item {
        id: order(),
        parent,
        created_at: moment,
        updated_at: moment,
        version,
        values: values.into(),
    }
}

fn found(item: Option<Item>) -> StoredState {
    // Earlier than the stored item: the clock was set back.
    let now = Moment::parse("2026-11-15T01:00:00Z").unwrap();
    StoredState { ids: vec![order()], item, ..StoredState::empty(now) }
}

fn check_decide(verb: RequestVerb, body: &str, found: StoredState, expected: &Expect) {
    let model = read();
    let Plan::Write(write) = plan(&model, verb, body) else { panic!("not a write") };
    let request = WriteRequest {
        action: &write.action,
        conditions: &write.preconditions,
        user: UserValues::default(),
    };
    let shown = match decide(&FactReader::without_facts(&model), &write.collection, request, found)
    {
        Err(RequestRefusal::Invalid(faults)) => show_faults(&faults),
        Err(refusal) => format!("{refusal:?}\n"),
        Ok(Script { steps, result: said }) => {
            let steps = steps.iter().map(show_step).collect::<String>();
            let said = if let ScriptResult::Unchanged(_) = said {
                "Unchanged".to_owned()
            } else {
                format!("{said:?}")
            };
            format!("{steps}{said}\n")
        }
    };
    expected.assert_eq(&shown);
}

fn show_step(step: &ScriptStep) -> String {
    match step {
        ScriptStep::Insert { item, root } => {
            format!("insert {root} v{} {}\n", item.version, item.updated_at)
        }
        ScriptStep::Update { after, changed, root, .. } => {
            format!("update {root} v{} {} {changed:?}\n", after.version, after.updated_at)
        }
        ScriptStep::ClearReferences(clear) => format!("clear {clear:?}\n"),
        ScriptStep::Delete(dependent) => {
            format!("delete {:?} {}\n", dependent.collection.resource, dependent.id)
        }
    }
}

#[test]
fn replace_with_equal_values_makes_no_step() {
    check_decide(
        RequestVerb::Put,
        r#"{"order":{"lines":[]}}"#,
        found(Some(stored("paid"))),
        &expect![[r#"
        Unchanged
    "#]],
    );
}

#[test]
fn replace_lists_changed_fields_and_never_lowers_updated_at() {
    let body = r#"{"order":{"lines":[{"price":4}],"status":"gone"}}"#;
    check_decide(
        RequestVerb::Put,
        body,
        found(Some(stored("paid"))),
        &expect![[r#"
            update /order v4 2026-11-15T02:28:14.000000Z [0, 4, 5]
            Updated
        "#]],
    );
}

#[test]
fn state_transition_not_declared_is_refused() {
    let body = r#"{"order":{"lines":[],"status":"placed"}}"#;
    check_decide(
        RequestVerb::Put,
        body,
        found(Some(stored("paid"))),
        &expect![[r#"
        Transition { from: Some("paid"), to: "placed", allowed: ["gone"] }
    "#]],
    );
    check_decide(
        RequestVerb::Put,
        body,
        found(Some(stored("placed"))),
        &expect![[r#"
        Unchanged
    "#]],
    );
    check_decide(
        RequestVerb::Post,
        r#"{"order":{"lines":[],"status":"paid"}}"#,
        found(None),
        &expect![[r#"
        Transition { from: None, to: "paid", allowed: ["placed"] }
    "#]],
    );
}

#[test]
fn patch_of_missing_item_is_refused() {
    let body = r#"{"order":{"note":"a"}}"#;
    check_decide(
        RequestVerb::Patch(PatchForm::MergePatch),
        body,
        found(None),
        &expect![[r#"
        Missing
    "#]],
    );
}

/// The store applies a patch before the decision; 404 would hide that it did not.
#[test]
#[should_panic(expected = "a patch of a stored item was not applied before")]
fn patch_of_stored_item_that_was_not_applied_panics() {
    let body = r#"{"order":{"note":"a"}}"#;
    check_decide(
        RequestVerb::Patch(PatchForm::MergePatch),
        body,
        found(Some(stored("paid"))),
        &expect![[""]],
    );
}

#[test]
fn replace_of_missing_item_is_refused_before_dangling_references() {
    let body = r#"{"order":{"lines":[],"friend":9}}"#;
    let lost =
        |item| StoredState { dangling_references: vec!["/order/friend".into()], ..found(item) };
    check_decide(
        RequestVerb::Put,
        body,
        lost(None),
        &expect![[r#"
        Missing
    "#]],
    );
    check_decide(
        RequestVerb::Put,
        body,
        lost(Some(stored("paid"))),
        &expect![[r#"
        /order/friend reference no such item
    "#]],
    );
}

#[test]
fn deletes_run_in_discovery_order_unless_restricted() {
    let dependent = Dependent {
        collection: Collection::nested(ResourceIndex(0), vec![], AccessScope::default()),
        id: Id::Integer(1),
    };
    let own = Dependent {
        collection: Collection::nested(ResourceIndex(1), vec![], AccessScope::default()),
        id: order(),
    };
    let going =
        StoredState { items_to_delete: vec![dependent, own], ..found(Some(stored("paid"))) };
    check_decide(
        RequestVerb::Delete,
        "",
        going,
        &expect![[r#"
        delete ResourceIndex(0) 1
        delete ResourceIndex(1) 01890a5d-ac96-774b-bcce-b302099a8057
        Removed
    "#]],
    );
    let held = StoredState { restricted_by: Some(ResourceIndex(0)), ..found(Some(stored("paid"))) };
    check_decide(
        RequestVerb::Delete,
        "",
        held,
        &expect![[r#"
        Referenced(Some(ResourceIndex(0)))
    "#]],
    );
    check_decide(
        RequestVerb::Delete,
        "",
        found(None),
        &expect![[r#"
        Missing
    "#]],
    );
}
