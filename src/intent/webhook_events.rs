//! The events that a webhook sends: patterns of resources and kinds, and a filter.
//!
//! A pattern is `*`, `order.*` or `order.created`. Only resources of the model file have events; changes below
//! `/-/` are never sent.

use super::filter_tree::{FilterUse, plain_controls};
use super::list::{self, ListQuery, ListRules};
use super::query::{bad_query, split_query};
use super::relations::AllReadable;
use super::target::{PathForm, ResourcePath};
use crate::json::quote_for_message;
use crate::model::{ChangeLogDetail, Model, ResourceIndex, nearest};
use crate::problem::Problem;
use crate::value::EventKind;

/// The events that a webhook sends.
#[derive(Debug)]
pub struct EventSelection {
    patterns: Vec<EventPattern>,
    /// The filters, if there are any. All patterns are then of one resource.
    pub list: Option<ListQuery>,
}

/// One pattern; `None` stands for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EventPattern {
    resource: Option<ResourceIndex>,
    kind: Option<EventKind>,
}

/// Why a part of the events of a webhook cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum SelectionFault {
    /// The index of the pattern, and the message.
    Pattern(usize, String),
    Filter(String),
}

impl EventSelection {
    /// Parses the patterns and the filter of a webhook, a query such as `status=open&total:gt=5`.
    pub fn parse(
        model: &Model,
        patterns: &[&str],
        filter: Option<&str>,
    ) -> Result<Self, Vec<SelectionFault>> {
        match Self::parse_stored(model, patterns, filter) {
            (selection, faults) if faults.is_empty() => Ok(selection),
            (_, faults) => Err(faults),
        }
    }

    /// Parses the patterns and the filter of a stored webhook. Patterns that do not fit the model are left out, and
    /// reported. A filter that does not fit leaves no pattern, because events must not be sent unfiltered.
    pub fn parse_stored(
        model: &Model,
        patterns: &[&str],
        filter: Option<&str>,
    ) -> (Self, Vec<SelectionFault>) {
        let parsed = patterns.iter().map(|text| parse_pattern(model, text, filter.is_some()));
        let mut faults = Vec::new();
        let mut known = Vec::with_capacity(patterns.len());
        for (at, pattern) in parsed.enumerate() {
            match pattern {
                Ok(pattern) => known.push(pattern),
                Err(detail) => faults.push(SelectionFault::Pattern(at, detail)),
            }
        }
        // Without a pattern there is no resource whose fields the filter could have.
        let filter = filter.filter(|_| !known.is_empty() || faults.is_empty());
        let list = match filter.map(|filter| parse_filter(model, &known, filter)).transpose() {
            Ok(list) => list,
            Err(detail) => {
                faults.push(SelectionFault::Filter(detail));
                known.clear();
                None
            }
        };
        (Self { patterns: known, list }, faults)
    }

    /// Whether it selects events of every resource.
    pub fn selects_every_resource(&self) -> bool {
        self.patterns.iter().any(|pattern| pattern.resource.is_none())
    }

    /// Whether an event is selected, regardless of the filter.
    pub fn selects(&self, resource: ResourceIndex, kind: EventKind) -> bool {
        self.patterns.iter().any(|pattern| {
            pattern.resource.is_none_or(|own| own == resource)
                && pattern.kind.is_none_or(|own| own == kind)
                && (kind != EventKind::Left || self.list.is_some())
        })
    }
}

fn parse_pattern(model: &Model, text: &str, has_filter: bool) -> Result<EventPattern, String> {
    if text == "*" {
        return Ok(EventPattern { resource: None, kind: None });
    }
    let Some((name, kind)) = text.split_once('.') else {
        let got = quote_for_message(text);
        return Err(format!(
            r#"expected "*", or a resource and a kind, such as "order.*" or "order.created", got {got}"#
        ));
    };
    let resource = model.declared().find(|resource| *resource.name == *name).ok_or_else(|| {
        let near = nearest(name, model.declared().map(|resource| &*resource.name));
        unknown_word("resource", name, near)
    })?;
    // Without a filter, no item leaves.
    let kinds = EventKind::ALL.into_iter().filter(|kind| has_filter || *kind != EventKind::Left);
    let found = kinds.clone().find(|known| known.as_str() == kind);
    if kind != "*" && found.is_none() {
        let near = nearest(kind, kinds.clone().map(EventKind::as_str));
        let listed = kinds.map(EventKind::as_str).collect::<Vec<_>>().join(", ");
        return Err(format!("{} (there are *, {listed})", unknown_word("kind", kind, near)));
    }
    Ok(EventPattern { resource: Some(resource.index), kind: found })
}

fn unknown_word(what: &str, got: &str, near: Option<&str>) -> String {
    let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
    format!("no such {what}: {}{near}", quote_for_message(got))
}

fn parse_filter(
    model: &Model,
    patterns: &[EventPattern],
    filter: &str,
) -> Result<ListQuery, String> {
    let mut resources = patterns.iter().map(|pattern| pattern.resource);
    let common =
        resources.next().flatten().filter(|first| resources.all(|other| other == Some(*first)));
    let index = common.ok_or("expected events of one resource, because a filter has its fields")?;
    let resource = model.resource(index);
    if resource.changes == ChangeLogDetail::Ids {
        let plural = &resource.plural;
        return Err(format!("the change log has no values of {plural}, so no filter"));
    }
    let list = read_filter(model, index, filter).map_err(|problem| {
        problem.parts().detail.clone().unwrap_or_else(|| problem.kind().title.to_owned())
    })?;
    match list.filters.is_empty() {
        true => Err("expected a filter such as status=open, got none".to_owned()),
        false => Ok(list),
    }
}

fn read_filter(model: &Model, resource: ResourceIndex, filter: &str) -> Result<ListQuery, Problem> {
    let parameters = split_query(Some(filter))?;
    let controls = ["limit", "cursor", "sort", "count", "fields"];
    if let Some((name, _)) = parameters.iter().find(|(name, _)| controls.contains(&&**name)) {
        return Err(bad_query(format!("{name}: expected filters alone")));
    }
    let address = ResourcePath::of_resource(resource, PathForm::Nested);
    let (readable, controls) = (&AllReadable, plain_controls());
    let rules = ListRules { readable, controls, used_for: FilterUse::Events };
    list::read_parameters(model, &address, rules, parameters)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::model;

    const MODEL: &str = r#"
title = "T"
[resources.order.fields]
status = { type = "text", filter = true }
total = { type = "integer", filter = true }
note = { type = "text" }
[resources.customer.fields]
name = { type = "text", filter = true }
[resources.visit]
changes = "ids"
[resources.visit.fields]
place = { type = "text", filter = true }
"#;

    fn read_model() -> Model {
        model::read("t.toml", MODEL).unwrap()
    }

    #[track_caller]
    fn check(patterns: &[&str], filter: Option<&str>, expected: &Expect) {
        let shown = match EventSelection::parse(&read_model(), patterns, filter) {
            Ok(_) => "valid".to_owned(),
            Err(faults) => faults.iter().map(|fault| format!("{fault:?}\n")).collect(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn webhook_events_are_patterns_of_declared_resources() {
        check(&["*"], None, &expect!["valid"]);
        check(&["order.*", "customer.created", "customer.deleted"], None, &expect!["valid"]);
        let bad =
            ["", "order", "ordr.*", "order.creatd", "order.left", "-/user.*", "order.*.*", "**"];
        check(
            &bad,
            None,
            &expect![[r#"
                Pattern(0, "expected \"*\", or a resource and a kind, such as \"order.*\" or \"order.created\", got \"\"")
                Pattern(1, "expected \"*\", or a resource and a kind, such as \"order.*\" or \"order.created\", got \"order\"")
                Pattern(2, "no such resource: \"ordr\"; did you mean \"order\"?")
                Pattern(3, "no such kind: \"creatd\"; did you mean \"created\"? (there are *, created, updated, deleted)")
                Pattern(4, "no such kind: \"left\" (there are *, created, updated, deleted)")
                Pattern(5, "no such resource: \"-/user\"")
                Pattern(6, "no such kind: \"*.*\" (there are *, created, updated, deleted)")
                Pattern(7, "expected \"*\", or a resource and a kind, such as \"order.*\" or \"order.created\", got \"**\"")
            "#]],
        );
    }

    #[test]
    fn webhook_filter_is_one_of_a_list_of_one_resource() {
        let orders = ["order.created", "order.left"];
        check(&orders, Some("status=open&total:gt=5"), &expect!["valid"]);
        for (patterns, filter, expected) in [
            (
                &["*"][..],
                "status=open",
                expect![[r#"
                Filter("expected events of one resource, because a filter has its fields")
            "#]],
            ),
            (
                &["order.*", "customer.*"],
                "status=open",
                expect![[r#"
                Filter("expected events of one resource, because a filter has its fields")
            "#]],
            ),
            (
                &["visit.*"],
                "place=a",
                expect![[r#"
                Filter("the change log has no values of visits, so no filter")
            "#]],
            ),
            (
                &orders,
                "",
                expect![[r#"
                Filter("expected a filter such as status=open, got none")
            "#]],
            ),
            (
                &orders,
                "sort=total",
                expect![[r#"
                Filter("sort: expected filters alone")
            "#]],
            ),
            (
                &orders,
                "note=a",
                expect![[r#"
                Filter("note: the field is not declared filter = true, so it cannot be filtered or sorted by")
            "#]],
            ),
            (
                &orders,
                "total:gt=x",
                expect![[r#"
                Filter("total:gt: expected an integer, got \"x\"")
            "#]],
            ),
            (
                &orders,
                "status=%zz",
                expect![[r#"
                Filter("status: expected two hex digits after %, got \"%zz\"")
            "#]],
            ),
        ] {
            check(patterns, Some(filter), &expected);
        }
    }

    #[test]
    fn webhook_events_select_by_resource_and_kind() {
        let model = read_model();
        let [order, customer] = [ResourceIndex(0), ResourceIndex(1)];
        let some = EventSelection::parse(&model, &["order.*", "customer.created"], None).unwrap();
        assert!(some.selects(order, EventKind::Updated));
        assert!(some.selects(customer, EventKind::Created));
        assert!(!some.selects(customer, EventKind::Deleted));
        assert!(!some.selects(order, EventKind::Left));
        let filtered = EventSelection::parse(&model, &["order.*"], Some("status=open")).unwrap();
        assert!(filtered.selects(order, EventKind::Left));
        assert!(!filtered.selects(customer, EventKind::Created));
    }
}
