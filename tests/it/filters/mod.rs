//! Filtered and sorted lists, compared with an evaluation in memory that shares no code with the
//! server, and lists during concurrent writes.
//!
//! `NOUNS_SOAK=1` has 500 data sets in place of 20, each with every operator of every field, and 20
//! walks during writes in place of one. A failure prints the seed, which `NOUNS_SEED` sets for a run.

mod concurrent_writes;
mod matching;
mod oracle;
mod random;
mod query_method;
mod relations;
mod relations_random;
mod slow_lists;
mod trees;

use std::fmt::Write as _;

use serde_json::{Value, json};

use self::oracle::{ComparableValue, FieldKind, Filter, SortKey, expected_items, value_of_item};
use self::random::{LIST_FIELDS, OPERATORS, SORTABLE_FIELDS, draft, filter, sort, text_of};
use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Backend, Client, Setup, is_soak};

/// The fields of every resource here.
const FIELDS: &str = r#"
t = { type = "text", filter = true }
s = { type = "text", filter = true, max_length = 40, nullable = true }
c = { type = "text", filter = true, required = true, one_of = ["red", "green", "blue"] }
e = { type = "email", filter = true }
l = { type = "url", filter = true }
i = { type = "integer", filter = true }
d = { type = "decimal", scale = 2, filter = true }
n = { type = "number", filter = true }
b = { type = "boolean", filter = true, nullable = true }
day = { type = "date", filter = true }
at = { type = "timestamp", filter = true }
u = { type = "uuid", filter = true }
r = { type = "ref", to = "target", filter = true }
k = { type = "ref", to = "numbered", filter = true }
st = { type = "state", initial = "new", next = { new = ["old"], old = [] } }
count = { type = "integer", filter = true }
tags = { type = "list", of = { type = "text" }, filter = true }
numbers = { type = "list", of = { type = "integer" }, filter = true }
o = { type = "object", fields = { tags = { type = "list", of = { type = "text" }, filter = true }, t = { type = "text", filter = true }, i = { type = "integer", filter = true }, d = { type = "decimal", scale = 3, filter = true }, n = { type = "number", filter = true }, b = { type = "boolean", filter = true }, at = { type = "timestamp", filter = true }, day = { type = "date", filter = true }, in = { type = "object", fields = { t = { type = "text", filter = true, max_length = 20 } } } } }
"#;

/// Top-level resources, each for one data set; the others are children of a box of their own.
const TOP_LEVEL_RESOURCES: usize = 4;

fn model() -> String {
    let mut text = "title = \"Filters\"\n[server.limits]\nfilter_terms_max = 100\ntarget_bytes_max = 30000\n\
        [resources.target.fields]\nname = { type = \"text\" }\n\
        [resources.numbered]\nid = \"integer\"\n[resources.numbered.fields]\nname = { type = \"text\" }\n\
        [resources.box.fields]\nname = { type = \"text\" }\n"
        .to_owned();
    let mut add = |name: &str, lines: &str| {
        let _ = write!(text, "[resources.{name}]\n{lines}\n[resources.{name}.fields]{FIELDS}");
    };
    add("part", "parent = \"box\"");
    add("bit", "parent = \"box\"\nid = \"integer\"");
    for number in 0..TOP_LEVEL_RESOURCES {
        let id = if number % 2 == 0 { "uuid" } else { "integer" };
        add(&format!("top{number}"), &format!("id = \"{id}\"\nplural = \"top{number}s\""));
    }
    text
}

/// One collection and its items.
struct DataSet {
    path: String,
    singular: String,
    plural: String,
    items: Vec<Value>,
}

/// The ids of items that others refer to.
fn create_targets(client: &mut Client) -> [Value; 2] {
    ["target", "numbered"].map(|noun| {
        let made = (0..3).map(|_| {
            let answer =
                client.request(&format!("POST /{noun}s"), &[], json!({noun: {}}).to_string());
            answer.json()[noun]["id"].clone()
        });
        Value::Array(made.collect())
    })
}

fn create_data_set(
    client: &mut Client,
    chance: &mut SeededRandom,
    number: usize,
    ids: &[Value; 2],
) -> DataSet {
    let (path, singular) = match number {
        number if number < TOP_LEVEL_RESOURCES => {
            (format!("/top{number}s"), format!("top{number}"))
        }
        number => {
            let made = client.request("POST /boxes", &[], r#"{"box":{}}"#);
            let path = made.header("Location").unwrap();
            let child = ["part", "bit"][number % 2];
            (format!("{path}/{child}s"), child.to_owned())
        }
    };
    let mut set = DataSet { path, plural: format!("{singular}s"), singular, items: Vec::new() };
    // Items of one request have the same timestamps.
    for _ in 0..3 {
        let drafts: Vec<Value> = (0..=chance.below(15)).map(|_| draft(chance, ids)).collect();
        let body = json!({&set.plural: drafts}).to_string();
        let answer = client.request(&format!("POST {}", set.path), &[], body);
        assert_eq!(answer.status, 201, "{answer:?}");
        set.items.extend(answer.json()[&set.plural].as_array().unwrap().iter().cloned());
    }
    for at in 0..set.items.len() {
        if chance.below(3) == 0 {
            let line = format!("PATCH {}/{}", set.path, text_of(&set.items[at]["id"]));
            let answer =
                client.request(&line, &[], json!({&set.singular: {"st": "old"}}).to_string());
            assert_eq!(answer.status, 200, "{answer:?}");
            set.items[at] = answer.json()[&set.singular].clone();
        }
    }
    set
}

fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// The query string of filters and an order.
fn query_string(filters: &[Filter], keys: &[SortKey]) -> String {
    let mut pairs: Vec<String> = filters
        .iter()
        .map(|filter| match filter.operator {
            // The short form means the same, except for a name that is a parameter.
            "eq" if filter.value.len() % 2 == 0 && filter.name != "count" => {
                format!("{}={}", filter.name, percent_encode(&filter.value))
            }
            operator => format!("{}:{operator}={}", filter.name, percent_encode(&filter.value)),
        })
        .collect();
    if !keys.is_empty() {
        let keys: Vec<String> = keys
            .iter()
            .map(|key| format!("{}{}", if key.is_descending { "-" } else { "" }, key.name))
            .collect();
        pairs.push(format!("sort={}", keys.join(",")));
    }
    pairs.join("&")
}

/// All ids of a list, page by page.
fn walk_pages(
    client: &mut Client,
    set: &DataSet,
    query: &str,
    limit: usize,
    total: usize,
) -> Vec<String> {
    let mut path = format!("{}?{query}&limit={limit}&count=exact&fields=id", set.path);
    let mut ids = Vec::new();
    loop {
        let answer = client.request(&format!("GET {path}"), &[], "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let page = answer.json();
        let items = page[&set.plural].as_array().unwrap();
        assert!(items.len() <= limit, "{path}");
        assert_eq!(page["page"]["total"], total, "{path}");
        ids.extend(items.iter().map(|item| {
            assert_eq!(item.as_object().unwrap().len(), 1, "{item}");
            text_of(&item["id"])
        }));
        match answer.header("Link") {
            Some(link) => {
                assert_eq!(items.len(), limit, "{path}");
                path = link.strip_prefix('<').unwrap().split_once('>').unwrap().0.to_owned();
            }
            None => return ids,
        }
        assert!(ids.len() <= set.items.len(), "{path}: it does not end");
    }
}

fn check_against_oracle(
    client: &mut Client,
    set: &DataSet,
    filters: &[Filter],
    keys: &[SortKey],
    limit: usize,
) -> usize {
    let expected: Vec<String> = expected_items(&set.items, filters, keys)
        .into_iter()
        .map(|item| text_of(&item["id"]))
        .collect();
    let query = query_string(filters, keys);
    let got = walk_pages(client, set, &query, limit, expected.len());
    assert_eq!(got, expected, "{}?{query}\n{filters:#?}\n{:#?}", set.path, set.items);
    expected.len()
}

on_every_backend! {
    fn list_filters_and_sorting_match_the_oracle(backend: Backend) {
        let server = Setup::new(backend).model(&model()).start();
        let mut client = server.client();
        let seed = print_seed("filters");
        let ids = create_targets(&mut client);
        let (sets, mut lists, mut found) = (if is_soak() { 500 } else { 20 }, 0, 0);
        for number in 0..sets {
            let mut chance = SeededRandom::new(seed.wrapping_add(number));
            let number = usize::try_from(number).unwrap();
            let set = create_data_set(&mut client, &mut chance, number, &ids);
            for (name, kind) in SORTABLE_FIELDS.iter().chain(LIST_FIELDS) {
                for operator in OPERATORS.iter().filter(|operator| oracle::is_applicable(operator, *kind)) {
                    // In the short version the data sets share the work.
                    if is_soak() || chance.below(4) == 0 {
                        let filter = filter(&mut chance, &set.items, (name, *kind), operator, &ids);
                        found += check_against_oracle(&mut client, &set, &[filter], &[], 500);
                        lists += 1;
                    }
                }
            }
            for _ in 0..20 {
                let mut filters = Vec::new();
                for _ in 0..chance.below(3) {
                    let (name, kind) = chance.one_of(SORTABLE_FIELDS).unwrap();
                    let operators: Vec<&str> = OPERATORS.iter().copied().filter(|one| oracle::is_applicable(one, *kind)).collect();
                    let operator = chance.one_of(&operators).unwrap();
                    filters.push(filter(&mut chance, &set.items, (name, *kind), operator, &ids));
                }
                let keys = sort(&mut chance);
                let limit = 1 + chance.below(12);
                found += check_against_oracle(&mut client, &set, &filters, &keys, limit);
                lists += 1;
            }
        }
        println!("filters: {sets} data sets, {lists} lists with {found} items in all");
        assert!(lists > 50 * sets && found > 2 * usize::try_from(lists).unwrap(), "{lists} {found}");
    }
}

/// Tests of the evaluation itself, by a few readable cases.
#[test]
fn oracle_matches_readable_cases() {
    let items = [
        json!({"id": 1, "t": "b", "d": "1.50"}),
        json!({"id": 2}),
        json!({"id": 3, "t": "a", "d": "-2.00"}),
    ];
    let ids = |filters: &[Filter], keys: &[SortKey]| -> Vec<i64> {
        expected_items(&items, filters, keys)
            .iter()
            .map(|item| item["id"].as_i64().unwrap())
            .collect()
    };
    let filter = |name: &'static str, kind, operator, value: &str| Filter {
        name,
        kind,
        operator,
        value: value.to_owned(),
    };
    let key = |name, kind, is_descending| SortKey { name, kind, is_descending };
    assert_eq!(ids(&[], &[]), [1, 2, 3]);
    assert_eq!(ids(&[], &[key("t", FieldKind::Text, false)]), [3, 1, 2]);
    assert_eq!(ids(&[], &[key("t", FieldKind::Text, true)]), [2, 1, 3]);
    assert_eq!(ids(&[filter("t", FieldKind::Text, "ne", "a")], &[]), [1]);
    assert_eq!(ids(&[filter("d", FieldKind::Decimal(2), "lt", "1.5")], &[]), [3]);
    assert_eq!(ids(&[filter("d", FieldKind::Decimal(2), "exists", "false")], &[]), [2]);
    assert_eq!(
        value_of_item(&items[2], "d", FieldKind::Decimal(2)),
        ComparableValue::Integer(-200)
    );
}
