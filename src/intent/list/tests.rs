//! Tests of list queries: valid ones, and the messages for invalid ones.

use expect_test::{ExpectFile, expect_file};

use super::*;
use crate::intent::PathIds;
use crate::intent::ReadableResources;
use crate::intent::expand::read_list;
use crate::model::{self, ResourceIndex};

const MODEL: &str = r#"
title = "Lists"
[server.limits]
filter_terms_max = 3
filter_values_max = 3
sort_keys_max = 2

[resources.shelf]
plural = "shelves"
id = "integer"
[resources.shelf.fields]
label = { type = "text" }

[resources.book]
parent = "shelf"
[resources.book.fields]
title = { type = "text", filter = true }
contact = { type = "email", filter = true }
pages = { type = "integer", filter = true }
price = { type = "decimal", filter = true }
weight = { type = "number", filter = true }
is_new = { type = "boolean", filter = true }
printed = { type = "date", filter = true }
sold_at = { type = "timestamp", filter = true }
isbn = { type = "uuid", filter = true }
sequel_to = { type = "ref", to = "book", filter = true }
count = { type = "integer", filter = true }
note = { type = "text" }
secret_note = { type = "text", filter = true }
tags = { type = "list", of = { type = "text" } }
colors = { type = "list", of = { type = "text" }, filter = true }
any = { type = "integer", filter = true }
maker = { type = "object", fields = { city = { type = "text", filter = true }, zip = { type = "text" }, at = { type = "object", fields = { street = { type = "text", filter = true } } } } }
status = { type = "state", initial = "new", next = { new = ["sold"], sold = [] } }
"#;

/// The index of `secret_note`.
const HIDDEN: &[usize] = &[12];

fn asked(model: &Model, query: &str) -> Result<ListQuery, Problem> {
    let ids = PathIds { ancestors: vec![Id::Integer(1)], item: None };
    let address = ResourcePath::nested(ResourceIndex(1), ids);
    read_list(model, &address, (Some(query), &HiddenNote))
}

struct HiddenNote;

impl ReadableResources for HiddenNote {
    fn hidden(&self, _: ResourceIndex) -> Option<&[usize]> {
        Some(HIDDEN)
    }
}

/// The file has a line `? …` for each query, and below it the result.
fn check(file: &str, expected: &ExpectFile) {
    let model = model::read("lists.toml", MODEL).unwrap();
    let shown = file.lines().filter_map(|line| line.strip_prefix("? ")).map(|query| {
        let read = asked(&model, query);
        let shown = match &read {
            Ok(list) => show(&model, list),
            Err(problem) => {
                let detail = problem.parts().detail.clone();
                format!("{} {}", problem.kind().slug, detail.unwrap_or_default())
            }
        };
        format!("? {query}\n    {shown}\n")
    });
    expected.assert_eq(&shown.collect::<String>());
}

fn show(model: &Model, list: &ListQuery) -> String {
    let book = &model.resources[1];
    let mut words = Vec::new();
    for term in &list.filters {
        match term {
            Filter::Test(term) => {
                words.push(format!("{} {:?}", term.name((model, book)), term.test));
            }
            group => {
                let (name, value) = filter_tree::as_parameter(group, (model, book));
                words.push(format!("{name}={value}"));
            }
        }
    }
    for key in &list.sort {
        let way = if key.is_descending { "down" } else { "up" };
        words.push(format!("by {} {way}", key.attribute.name(book)));
    }
    words.push(format!("id {}", if list.is_id_descending { "down" } else { "up" }));
    words.extend(list.selected_members.as_ref().map(|chosen| format!("{chosen:?}")));
    words.extend(list.is_counted.then(|| "counted".to_owned()));
    words.push(list.link.page_url("", list.limit, "…"));
    words.join("; ")
}

#[test]
fn list_query_with_valid_parameters_is_parsed() {
    check(include_str!("queries.txt"), &expect_file!["queries.txt"]);
}

#[test]
fn list_query_with_an_invalid_parameter_is_refused() {
    check(include_str!("refused.txt"), &expect_file!["refused.txt"]);
}

/// The message for a hidden field is the same as for an undeclared name.
#[test]
fn list_query_of_a_hidden_field_is_like_an_unknown_name() {
    let model = model::read("lists.toml", MODEL).unwrap();
    let said = |query: &str, name: &str| {
        let problem = asked(&model, query).unwrap_err();
        problem.parts().detail.clone().unwrap().replace(name, "NAME")
    };
    for query in [
        "NAME=x",
        "NAME:eq=x",
        "NAME:nonsense=x",
        "sort=NAME",
        "sort=-NAME",
        "fields=NAME",
        "NAME.x=1",
    ] {
        let [hidden, unknown] =
            ["secret_note", "sacred_mote"].map(|name| said(&query.replace("NAME", name), name));
        assert_eq!(hidden, unknown, "{query}");
    }
    // Nor is the hidden field ever suggested.
    assert!(!said("secret_not=x", "secret_not=").contains("secret_note"));
    assert!(!said("sort=secret_not", "-").contains("secret_note"));
    assert!(!said("fields=secret_not", "-").contains("secret_note"));
}

#[test]
fn cursor_is_bound_to_the_filters_and_the_order() {
    let model = model::read("lists.toml", MODEL).unwrap();
    let bound = |query: &str| {
        asked(&model, query)
            .unwrap()
            .list_hash("/shelves/1/books", model.resource(ResourceIndex(1)))
    };
    let same = [
        "pages=1&title:eq=x&sort=-title",
        "sort=-title&title=x&pages:eq=1&limit=3",
        "title=x&fields=title&pages=1&count=exact&sort=-title",
        "ti%74le=%78&pages=1&sort=-title",
    ];
    let other = [
        "",
        "pages=1&title=x",
        "pages=1&sort=-title",
        "pages=1&title=x&sort=title",
        "pages=1&title=y&sort=-title",
        "pages:gte=1&title=x&sort=-title",
        "pages=1&title=x&sort=-title,pages",
        "pages=1&title=x&title=x&sort=-title",
    ];
    for query in same {
        assert_eq!(bound(query), bound(same[0]), "{query}");
    }
    for (at, query) in other.iter().enumerate() {
        assert_ne!(bound(query), bound(same[0]), "{query}");
        assert!(other[at + 1..].iter().all(|next| bound(next) != bound(query)), "{query}");
    }
    assert_eq!(bound("limit=3&fields=title"), bound(""));
    // Another spelling of a value is the same filter.
    assert_eq!(bound("price=1.50"), bound("price:eq=1.5"));
    assert_eq!(
        bound("sold_at:gt=2026-01-01T01:00:00%2B01:00"),
        bound("sold_at:gt=2026-01-01T00:00:00Z")
    );
    assert_ne!(
        bound(""),
        asked(&model, "").unwrap().list_hash("/shelves/2/books", model.resource(ResourceIndex(1)))
    );
}
