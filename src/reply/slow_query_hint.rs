//! Hints on why a list timed out: for the client, and for the author of the model.
//!
//! Pure. The client gets a hint about its own query only. The fields that row-level permissions filter by
//! concern only the operator, so these go to the log.

use crate::intent::{Attribute, AttributeTest, Filter, FilterTest, ListQuery, tests_in};
use crate::model::expr::{Comparison, Path, PathRoot};
use crate::model::{Model, Resource};
use crate::plan::Collection;
use crate::problem::Problem;

/// Adds a hint to the timeout of a list: the part of the query that no index supports.
pub fn add_hint(
    model: &Model,
    collection: &Collection,
    list: &ListQuery,
    problem: Problem,
) -> Problem {
    let resource = model.resource(collection.resource);
    let problem = match client_hint((model, resource), list) {
        Some(words) => problem.detail(words),
        None => problem,
    };
    let unindexed = unindexed_role_fields(model, collection);
    if unindexed.is_empty() {
        return problem;
    }
    problem.cause(format!(
        "a role's `where` looks at fields that are not declared filter = true: {}",
        unindexed.join(", ")
    ))
}

fn client_hint((model, resource): (&Model, &Resource), list: &ListQuery) -> Option<String> {
    if list.is_whole_by_id() && !list.is_counted {
        return None;
    }
    let of = (model, resource);
    let slow: Vec<String> =
        list.filters.iter().filter_map(|term| unindexable_filter(of, term)).collect();
    if !slow.is_empty() {
        let slow = slow.join(", ");
        return Some(format!(
            "no index helps with {slow}; add a filter with eq, in, prefix or a range that few items pass"
        ));
    }
    let keys: Vec<String> = list.sort.iter().map(|key| key.attribute.name(resource)).collect();
    let is_updated = list.sort.iter().any(|key| key.attribute == Attribute::UpdatedAt);
    Some(if is_updated || keys.len() > 1 {
        format!(
            "no index has the items sorted by {}; sort by one field alone that is declared filter = true, or add a filter that few items pass",
            keys.join(", ")
        )
    } else if let (Some(key), true) = (keys.first(), filters_by_another(list)) {
        format!(
            "one index sorts by {key} and another one filters; leave out one of them, or filter so that few items pass"
        )
    } else if list.is_counted {
        "all items have to be counted; leave out count=exact, or add a filter that few items pass"
            .to_owned()
    } else {
        "too many items pass the filters; add one that few items pass".to_owned()
    })
}

/// Whether a filter tests another attribute than the list is sorted by.
fn filters_by_another(list: &ListQuery) -> bool {
    let sorted = list.sort.first().map(|key| &key.attribute);
    tests_in(&list.filters).iter().any(|test| Some(&test.attribute) != sorted)
}

/// A filter that has to scan every item.
fn unindexable_filter(of: (&Model, &Resource), filter: &Filter) -> Option<String> {
    match filter {
        Filter::Test(test) => unindexable_test(of, test),
        Filter::Not(_) => Some("not".to_owned()),
        // One branch that needs a scan is enough.
        Filter::Any(_) => {
            let tests = tests_in(std::slice::from_ref(filter)).into_iter();
            let slow: Vec<String> = tests.filter_map(|test| unindexable_test(of, test)).collect();
            (!slow.is_empty()).then(|| format!("any with {}", slow.join(", ")))
        }
        Filter::All(filters) => filters.iter().find_map(|one| unindexable_filter(of, one)),
    }
}

fn unindexable_test(of: (&Model, &Resource), term: &AttributeTest) -> Option<String> {
    let name = term.name(of);
    match &term.test {
        FilterTest::Contains(_) => Some(format!("{name}:contains")),
        FilterTest::Match(_) => Some(format!("{name}:match")),
        FilterTest::Has(_) => Some(format!("{name}:has")),
        FilterTest::Compare(Comparison::NotEqual, _) => Some(format!("{name}:ne")),
        FilterTest::Compare(_, _)
        | FilterTest::Between(..)
        | FilterTest::In(_)
        | FilterTest::Prefix(..)
        | FilterTest::Exists(_) => (term.attribute == Attribute::UpdatedAt).then_some(name),
    }
}

/// The fields of a role's conditions, on the rows and on their ancestors, that have no index.
fn unindexed_role_fields(model: &Model, collection: &Collection) -> Vec<String> {
    let mut names = Vec::new();
    for level in model.lineage(collection.resource) {
        let conditions = match level.index == collection.resource {
            true => &collection.scope.access(level.index).row_filters,
            false => &collection.scope.read_access(level.index).row_filters,
        };
        for condition in conditions {
            condition.root.for_each_path(&mut |path| push_field(&mut names, level, path));
        }
    }
    names
}

fn push_field(names: &mut Vec<String>, resource: &Resource, path: &Path) {
    let PathRoot::Field(at) = path.root else { return };
    let aspect = Attribute::Field(at, path.inner.clone());
    let is_indexed = aspect.field(resource).is_none_or(|field| field.filter);
    let name = format!("{}.{}", resource.name, aspect.name(resource));
    if !is_indexed && !names.contains(&name) {
        names.push(name);
    }
}
