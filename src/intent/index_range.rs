//! Lists whose pages are ranges of an index.

use super::attribute::{Attribute, is_longer_than_index};
use super::filter::{AttributeTest, Filter, FilterTest};
use super::list::ListQuery;
use crate::model::Resource;
use crate::model::expr::Comparison;
use crate::value::Value;

/// Whether each page is one range of an index, read in its order: sorted by one field and filtered by the same one, or
/// sorted by id and filtered by one value. A page costs what it shows, however many items there are.
pub fn is_index_range(list: &ListQuery, resource: &Resource) -> bool {
    let tests = list.filters.iter().map(|filter| match filter {
        Filter::Test(test) if is_range(test) => Some(test),
        _ => None,
    });
    let Some(tests) = tests.collect::<Option<Vec<_>>>() else { return false };
    match (&*list.sort, &*tests) {
        ([], []) => true,
        // There are few users and webhooks, and their filters have no index.
        _ if resource.is_builtin => false,
        ([], [test]) => matches!(test.test, FilterTest::Compare(Comparison::Equal, _)),
        ([key], tests) => {
            let is_same = tests.iter().all(|test| test.attribute == key.attribute);
            // Sort keys have an index of their own, and filters compare code points.
            let is_one_index = tests.is_empty() || !key.attribute.has_sort_key(resource);
            is_own_field(&key.attribute)
                && is_same
                && is_one_index
                && is_one_range(tests)
                && key.is_descending == list.is_id_descending
        }
        _ => false,
    }
}

/// Whether a filter leaves out the items without a value of the attribute. All tests do but `exists=false`.
pub fn excludes_null(list: &ListQuery, attribute: &Attribute) -> bool {
    list.filters.iter().any(|filter| match filter {
        Filter::Test(test) => {
            test.relations.is_empty()
                && test.attribute == *attribute
                && test.test != FilterTest::Exists(false)
        }
        Filter::All(_) | Filter::Any(_) | Filter::Not(_) => false,
    })
}

/// Of several bounds on one side, an engine may use one that leaves too many items.
fn is_one_range(tests: &[&AttributeTest]) -> bool {
    use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};
    use FilterTest::Compare;
    let is_lower = |test: &FilterTest| matches!(test, Compare(Greater | GreaterOrEqual, _));
    let is_upper = |test: &FilterTest| matches!(test, Compare(Less | LessOrEqual, _));
    match tests {
        [] | [_] => true,
        [one, other] => {
            is_lower(&one.test) && is_upper(&other.test)
                || is_upper(&one.test) && is_lower(&other.test)
        }
        _ => false,
    }
}

/// A field inside an object is found by an expression, which costs more for each row.
fn is_own_field(attribute: &Attribute) -> bool {
    matches!(attribute, Attribute::Field(_, inner) if inner.is_empty())
}

/// Whether the items that pass are one range of the index of the field, which may have the beginnings of texts only.
fn is_range(test: &AttributeTest) -> bool {
    let is_indexed =
        |value: &Value| !matches!(value, Value::Text(text) if is_longer_than_index(text));
    let is_range = match &test.test {
        FilterTest::Compare(Comparison::NotEqual, _) => false,
        FilterTest::Compare(_, value) => is_indexed(value),
        FilterTest::Between(from, to) => is_indexed(from) && is_indexed(to),
        FilterTest::Prefix(from, _) => !is_longer_than_index(from),
        FilterTest::In(_)
        | FilterTest::Has(_)
        | FilterTest::Contains(_)
        | FilterTest::Match(_)
        | FilterTest::Exists(_) => false,
    };
    is_range && test.relations.is_empty() && is_own_field(&test.attribute)
}

#[cfg(test)]
mod tests {
    use super::super::expand::read_list;
    use super::super::relations::AllReadable;
    use super::super::target::{PathIds, ResourcePath};
    use super::is_index_range;
    use crate::model::{self, ResourceIndex};

    const MODEL: &str = r#"
title = "Ranges"
[resources.note.fields]
title = { type = "text", filter = true }
size = { type = "integer", filter = true }
name = { type = "text", filter = true, match = true, order = "unicode" }
tags = { type = "list", of = { type = "text" }, filter = true }
maker = { type = "object", fields = { city = { type = "text", filter = true } } }
other = { type = "ref", to = "note", filter = true }
"#;

    fn is_range(query: &str) -> bool {
        let model = model::read("ranges.toml", MODEL).unwrap_or_else(|errors| panic!("{errors}"));
        let path = ResourcePath::nested(ResourceIndex(0), PathIds::default());
        let list = read_list(&model, &path, (Some(query), &AllReadable)).unwrap();
        is_index_range(&list, model.resource(ResourceIndex(0)))
    }

    #[test]
    fn list_is_an_index_range_with_one_field() {
        for query in [
            "",
            "sort=-id",
            "size=5",
            "size=5&sort=-id",
            "sort=size",
            "sort=-title",
            "size:gt=5&sort=size",
            "size:gte=5&size:lt=9&sort=-size",
            "size:between=5,9&sort=size",
            "title:prefix=a&sort=title",
            "sort=-created_at",
            "sort=name",
            "name=x",
            "limit=5&fields=title",
        ] {
            assert!(is_range(query), "{query}");
        }
    }

    #[test]
    fn list_is_no_index_range_with_other_tests() {
        for query in [
            "size:gt=5",
            "size:ne=5",
            "size:in=5,6",
            "size:exists=false",
            "size=5&title=x",
            "size=5&sort=title",
            "sort=size,title",
            "sort=size,-id",
            "size:gte=5&size:gt=9&sort=size",
            "size=5&size:gt=5&sort=size",
            "name:gt=x&sort=name",
            "name~=x",
            "title:contains=x",
            "tags:has=x",
            "maker.city=x",
            "sort=maker.city",
            "other.size=5",
            "any=(size=5;size=6)",
            "not=(size=5)",
            "sort=updated_at",
        ] {
            assert!(!is_range(query), "{query}");
        }
        let (short, long) = ("a".repeat(255), "a".repeat(256));
        assert!(is_range(&format!("title={short}")) && !is_range(&format!("title={long}")));
    }
}
