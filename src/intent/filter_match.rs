//! Evaluation of list filters on an item in memory.
//!
//! The change feed decides with it whether an item belongs to a filtered list. It must select the same items as
//! the SQL of `store::sql::list`; `store::sql::list::filter_tests` compares the two on random values.

use std::borrow::Cow;

use super::attribute::{Attribute, nested_value};
use super::filter::{AttributeTest, Filter, FilterTest};
use crate::fault;
use crate::model::derivation::fold;
use crate::model::expr::Comparison;
use crate::model::{Resource, types};
use crate::value::{Id, Item, Value};

/// Whether all filters hold for the item, which has these ancestors, the top-level one first. A filter on a value that
/// cannot be parsed does not hold, and neither does its opposite. Filters of related items are for lists alone.
pub fn matches(filters: &[Filter], resource: &Resource, item: &Item, ancestors: &[Id]) -> bool {
    let item = FilteredItem { resource, item, ancestors };
    filters.iter().all(|filter| item.evaluate(filter) == Some(true))
}

struct FilteredItem<'i> {
    resource: &'i Resource,
    item: &'i Item,
    ancestors: &'i [Id],
}

impl FilteredItem<'_> {
    /// `None` if a value decides that cannot be parsed.
    fn evaluate(&self, filter: &Filter) -> Option<bool> {
        match filter {
            Filter::Test(AttributeTest { relations, attribute, test }) => {
                if !relations.is_empty() {
                    fault::bug("events have no filters of related items");
                }
                let value = find_value(attribute, self.resource, (self.item, self.ancestors))?;
                Some(test_holds(test, &value))
            }
            Filter::All(filters) => self.find_decisive(filters, false),
            Filter::Any(filters) => self.find_decisive(filters, true),
            Filter::Not(filter) => self.evaluate(filter).map(|holds| !holds),
        }
    }

    /// One filter with the decisive result decides; otherwise all of them have the other one.
    fn find_decisive(&self, filters: &[Filter], decisive: bool) -> Option<bool> {
        let mut is_unknown = false;
        for filter in filters {
            match self.evaluate(filter) {
                Some(holds) if holds == decisive => return Some(decisive),
                Some(_) => {}
                None => is_unknown = true,
            }
        }
        (!is_unknown).then_some(!decisive)
    }
}

/// The whole value of an attribute; `None` if it cannot be parsed, or is inside an object that cannot be.
fn find_value<'i>(
    attribute: &Attribute,
    resource: &Resource,
    (item, ancestors): (&'i Item, &[Id]),
) -> Option<Cow<'i, Value>> {
    Some(match attribute {
        Attribute::Id => Cow::Owned(Value::from(item.id)),
        Attribute::Ancestor(at) => Cow::Owned(Value::from(*ancestors.iter().rev().nth(*at)?)),
        Attribute::CreatedAt => Cow::Owned(Value::Moment(item.created_at)),
        Attribute::UpdatedAt => Cow::Owned(Value::Moment(item.updated_at)),
        Attribute::Field(at, inner) => {
            let (field, value) = resource.fields.get(*at).zip(item.values.get(*at))?;
            match (inner.is_empty(), value) {
                // Of another class than its field: the log has it from an older model.
                (true, Value::Json(_)) => {
                    Cow::Owned(types::try_parse_canonical(field, value.clone()).ok()?)
                }
                (true, value) => Cow::Borrowed(value),
                (false, value) => {
                    let object = types::try_parse_canonical(field, value.clone()).ok()?;
                    Cow::Owned(nested_value(object, inner))
                }
            }
        }
    })
}

fn test_holds(test: &FilterTest, value: &Value) -> bool {
    match (test, value) {
        (FilterTest::Exists(exists), value) => *exists != value.is_null(),
        // As in SQL, no comparison holds for a missing value, not even `ne`.
        (_, Value::Null) => false,
        (FilterTest::Compare(comparison, other), value) => compare(*comparison, value, other),
        (FilterTest::Between(from, to), value) => {
            compare(Comparison::GreaterOrEqual, value, from)
                && compare(Comparison::LessOrEqual, value, to)
        }
        (FilterTest::Has(other), Value::List(elements)) => {
            elements.iter().any(|element| compare(Comparison::Equal, element, other))
        }
        (FilterTest::In(others), value) => {
            others.iter().any(|other| compare(Comparison::Equal, value, other))
        }
        (FilterTest::Prefix(from, to), Value::Text(text)) => {
            *text >= *from && to.as_ref().is_none_or(|to| *text < *to)
        }
        (FilterTest::Contains(part), Value::Text(text)) => text.contains(&**part),
        (FilterTest::Match(part), Value::Text(text)) => fold(text).contains(&*part.folded),
        (
            FilterTest::Has(_)
            | FilterTest::Prefix(..)
            | FilterTest::Contains(_)
            | FilterTest::Match(_),
            _,
        ) => false,
    }
}

fn compare(comparison: Comparison, value: &Value, other: &Value) -> bool {
    let order = match (value, other) {
        (Value::Boolean(value), Value::Boolean(other)) => Some(value.cmp(other)),
        (value, other) => types::compare(value, other),
    };
    order.is_some_and(|order| comparison.holds(order))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::target::{PathIds, ResourcePath};
    use crate::intent::{AllReadable, expand};
    use crate::model::{self, Model, ResourceIndex};
    use crate::value::{Decimal, Moment};

    const MODEL: &str = r#"
title = "Shop"
[resources.thing.fields]
name = { type = "text", filter = true }
stock = { type = "integer", filter = true }
price = { type = "decimal", filter = true }
weight = { type = "number", filter = true }
is_new = { type = "boolean", filter = true }
sold_at = { type = "timestamp", filter = true }
place = { type = "object", fields = { city = { type = "text", filter = true }, floor = { type = "integer", filter = true } } }
note = { type = "text", filter = true }
tags = { type = "list", of = { type = "text" }, filter = true }
"#;

    fn item(place: &str) -> Item {
        let at = Moment::parse("2026-11-17T03:20:01Z").unwrap();
        let values = vec![
            Value::text("Änne"),
            Value::Integer(7),
            Value::Decimal(Decimal { units: 150, scale: 2 }),
            Value::Number(0.5),
            Value::Boolean(false),
            Value::Moment(at),
            Value::Json(place.into()),
            Value::Null,
            Value::Json(r#"["red","blue"]"#.into()),
        ];
        let id = Id::Uuid("01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap());
        Item { id, parent: None, created_at: at, updated_at: at, version: 1, values }
    }

    fn holds(model: &Model, item: &Item, query: &str) -> bool {
        let path = ResourcePath::nested(ResourceIndex(0), PathIds::default());
        let list = expand::read_list(model, &path, (Some(query), &AllReadable)).unwrap();
        matches(&list.filters, &model.resources[0], item, &[])
    }

    #[test]
    fn filter_match_agrees_with_the_meaning_of_each_operator() {
        let model = model::read("m.toml", MODEL).unwrap();
        let item = item(r#"{"city":"Ulm","floor":2}"#);
        for (query, expected) in [
            ("", true),
            ("name=Änne", true),
            ("name=änne", false),
            ("name:ne=x", true),
            ("name:gt=Z", true),
            ("name:prefix=Än", true),
            ("name:prefix=n", false),
            ("name:prefix=", true),
            ("name:contains=nn", true),
            ("name:contains=", true),
            ("name:contains=N", false),
            ("name:in=a,Änne", true),
            ("name:in=a,b", false),
            ("stock=7&stock:lt=8&stock:gte=7", true),
            ("stock=7&stock:gt=7", false),
            ("price=1.5", true),
            ("price:lte=1.49", false),
            ("weight=0.5", true),
            ("is_new=false", true),
            ("is_new:ne=false", false),
            ("sold_at=2026-11-17T04:20:01%2B01:00", true),
            ("place.city=Ulm", true),
            ("place.floor:gt=2", false),
            ("place.floor:exists=true", true),
            ("note=a", false),
            ("note:ne=a", false),
            ("note:in=a", false),
            ("note:prefix=", false),
            ("note:contains=", false),
            ("note:exists=false", true),
            ("note:exists=true", false),
            ("stock:between=7,8", true),
            ("stock:between=8,7", false),
            ("note:between=a,z", false),
            ("tags:has=red", true),
            ("tags:has=re", false),
            ("tags:exists=true", true),
            ("any=(stock=1;name=Änne)", true),
            ("any=(stock=1;stock=2)", false),
            ("any=(stock=1;all(stock=7;name=x))", false),
            ("any=(stock=1;all(stock=7;not(name=x)))", true),
            ("not=(stock=7)", false),
            ("not=(stock=7;name=x)", true),
            ("not=(note=a)", true),
            ("not=(note:ne=a)", true),
            ("not=(note:exists=false)", false),
            ("not=(not(note=a))", false),
            ("any=(stock=7)&not=(stock=7)", false),
            ("id=01890A5D-AC96-774B-BCCE-B302099A8057", true),
            ("id:gt=01890a5d-ac96-774b-bcce-b302099a8057", false),
            ("created_at:gte=2026-11-17T03:20:01Z", true),
            ("updated_at:lt=2026-11-17T03:20:01Z", false),
        ] {
            assert_eq!(holds(&model, &item, query), expected, "{query}");
        }
    }

    #[test]
    fn filter_match_inside_a_damaged_object_fails() {
        let model = model::read("m.toml", MODEL).unwrap();
        let item = item("{");
        for query in [
            "place.city=Ulm",
            "place.city:exists=false",
            "place.city:exists=true",
            "not=(place.city=Ulm)",
            "not=(stock=7;place.city=Ulm)",
        ] {
            assert!(!holds(&model, &item, query), "{query}");
        }
        for query in ["stock=7", "any=(place.city=Ulm;stock=7)", "not=(stock=1;place.city=Ulm)"] {
            assert!(holds(&model, &item, query), "{query}");
        }
    }
}
