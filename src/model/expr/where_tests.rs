//! Tests of conditions of roles.

use std::sync::Arc;

use super::tests::{model, values};
use super::*;
use crate::model::{Model, Resource, ResourceIndex};
use crate::value::{Decimal, Id, Value};

fn scopes(model: &Model) -> Vec<ResourceScope<'_>> {
    fn scope(resource: &Resource) -> ResourceScope<'_> {
        ResourceScope {
            name: &resource.name,
            parent: resource.parent,
            id: resource.id,
            fields: &resource.fields,
            invalid_fields: &[],
        }
    }
    model.declared().map(scope).collect()
}

/// The names of a `where` of the first resource.
fn where_scope<'f>(resources: &'f [ResourceScope<'f>]) -> ExprScope<'f> {
    let row = ResourceIndex(0);
    RelationScope { resources, row, user_fields: &[] }.of(row).unwrap()
}

struct NothingRelated;

impl RelationFacts for NothingRelated {
    fn value(&self, _: ResourceIndex, _: Id, _: PathRoot) -> Option<Value> {
        None
    }

    fn exists(&self, _: &Arc<MemberTest>, _: Vec<Value>, _: Candidates) -> Option<bool> {
        None
    }
}

#[test]
fn where_holds_only_when_true_not_null() {
    let model = model();
    let resources = scopes(&model);
    let scope = where_scope(&resources);
    let holds_for = |text: &str, name: Option<&str>| {
        let (values, id) = (values(), Id::Integer(1));
        let row = ExprRow {
            resource: ResourceIndex(0),
            id,
            parent: None,
            values: &values,
            version: RowVersion::Stored,
        };
        let user = UserValues { name, fields: &[] };
        holds(&parse_condition(text, scope).unwrap(), row, user, &NothingRelated)
    };
    let holds_for_ann = |text: &str| holds_for(text, Some("ann"));
    assert!(holds_for_ann("name = $user"));
    assert!(holds_for_ann("$user = name and a = 6"));
    assert!(!holds_for_ann("b = 1"));
    assert!(!holds_for_ann("not b = 1"));
    assert!(holds_for_ann("price > 2.49 and price < 2.51"));
    let of_nobody = |text: &str| holds_for(text, None);
    assert!(!of_nobody("name = $user"));
    assert!(!of_nobody("not name = $user"));
    assert!(of_nobody("name = $user or a = 6"));
}

#[test]
fn where_literals_are_parsed_by_their_field() {
    let model = model();
    let resources = scopes(&model);
    let scope = where_scope(&resources);
    let literal = |text: &str| match parse_condition(text, scope).unwrap().root {
        ExprNode::Compare(comparison, _, right) => (comparison, *right),
        node => panic!("{node:?}"),
    };
    let decimal = Value::Decimal(Decimal { units: 250, scale: 2 });
    assert_eq!(literal("2.5 < price"), (Comparison::Greater, ExprNode::Literal(decimal)));
    assert_eq!(literal("ratio = 1"), (Comparison::Equal, ExprNode::Literal(Value::Number(1.0))));
    assert_eq!(literal("a = -1"), (Comparison::Equal, ExprNode::Literal(Value::Integer(-1))));
    assert!(parse_condition("price = 2.555", scope).is_err());
    assert!(parse_condition("a + 1 = 2", scope).is_err());
}
