//! Random trees of filters: as the body of a QUERY, in the query of a URL, and evaluated in memory.

use serde_json::{Map, Value, json};

use super::oracle::{
    FieldKind, Filter, expected_items, is_applicable, matches_filter, split_in_values,
};
use super::random::{LIST_FIELDS, OPERATORS, SORTABLE_FIELDS, filter, sort, text_of};
use super::{DataSet, create_data_set, create_targets, model, percent_encode, query_string};
use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Backend, Client, Setup, is_soak};

enum FilterTree {
    Test(Filter),
    All(Vec<FilterTree>),
    Any(Vec<FilterTree>),
    Not(Vec<FilterTree>),
}

impl FilterTree {
    fn random(chance: &mut SeededRandom, set: &DataSet, ids: &[Value; 2], level: usize) -> Self {
        let kind = if level == 0 { 0 } else { chance.below(5) };
        if kind < 2 {
            let fields: Vec<_> = SORTABLE_FIELDS.iter().chain(LIST_FIELDS).collect();
            let (name, kind) = **chance.one_of(&fields).unwrap();
            let fits = OPERATORS.iter().copied().filter(|operator| is_applicable(operator, kind));
            let operator = *chance.one_of(&fits.collect::<Vec<_>>()).unwrap();
            return Self::Test(filter(chance, &set.items, (name, kind), operator, ids));
        }
        let count = 1 + chance.below(3);
        let inner = (0..count).map(|_| Self::random(chance, set, ids, level - 1)).collect();
        match kind {
            2 => Self::All(inner),
            3 => Self::Any(inner),
            _ => Self::Not(inner),
        }
    }

    fn holds(&self, item: &Value) -> bool {
        match self {
            Self::Test(filter) => matches_filter(item, filter),
            Self::All(inner) => inner.iter().all(|tree| tree.holds(item)),
            Self::Any(inner) => inner.iter().any(|tree| tree.holds(item)),
            Self::Not(inner) => !inner.iter().all(|tree| tree.holds(item)),
        }
    }

    /// As a part of a group in a URL.
    fn text(&self) -> String {
        let group = |word: &str, inner: &[Self]| {
            let parts: Vec<String> = inner.iter().map(Self::text).collect();
            format!("{word}({})", parts.join(";"))
        };
        match self {
            Self::Test(Filter { name, operator, value, .. }) => {
                let escaped: String = value
                    .chars()
                    .flat_map(|c| {
                        let escape = matches!(c, ';' | '(' | ')' | '\\').then_some('\\');
                        escape.into_iter().chain([c])
                    })
                    .collect();
                format!("{name}:{operator}={escaped}")
            }
            Self::All(inner) => group("all", inner),
            Self::Any(inner) => group("any", inner),
            Self::Not(inner) => group("not", inner),
        }
    }

    /// As an object that holds nothing else.
    fn json(&self, has_integer_ids: bool) -> Value {
        let list =
            |inner: &[Self]| inner.iter().map(|tree| tree.json(has_integer_ids)).collect::<Value>();
        match self {
            Self::Test(filter) => {
                let value = json_value(filter, has_integer_ids);
                match (filter.operator, filter.value.len() % 3) {
                    ("eq", 0) => json!({filter.name: value}),
                    (operator, 1) => json!({format!("{}:{operator}", filter.name): value}),
                    (operator, _) => json!({filter.name: {operator: value}}),
                }
            }
            Self::All(inner) => json!({"all": list(inner)}),
            Self::Any(inner) => json!({"any": list(inner)}),
            Self::Not(inner) => json!({"not": {"all": list(inner)}}),
        }
    }
}

/// The value of a filter in the JSON type of its field.
fn json_value(filter: &Filter, has_integer_ids: bool) -> Value {
    let one = |text: &str| match filter.kind {
        FieldKind::Id if !has_integer_ids => json!(text),
        FieldKind::Integer | FieldKind::Numbered | FieldKind::IntegerList | FieldKind::Id => {
            json!(text.parse::<i64>().unwrap())
        }
        FieldKind::Number => json!(text.parse::<f64>().unwrap()),
        FieldKind::Boolean => json!(text == "true"),
        _ => json!(text),
    };
    match filter.operator {
        "exists" => json!(filter.value == "true"),
        "in" | "between" => split_in_values(&filter.value).iter().map(|text| one(text)).collect(),
        "prefix" | "contains" => json!(filter.value),
        _ => one(&filter.value),
    }
}

fn ids_of(set: &DataSet, page: &Value) -> Vec<String> {
    page[&set.plural].as_array().unwrap().iter().map(|item| text_of(&item["id"])).collect()
}

/// All ids of a list by QUERY, with the cursor in the body, and the addresses of the first page and the second.
fn walk_query(
    client: &mut Client,
    set: &DataSet,
    query: &mut Map<String, Value>,
) -> (Vec<String>, Option<String>, Option<String>) {
    let (mut ids, mut addresses) = (Vec::new(), Vec::new());
    loop {
        let body = json!(query).to_string();
        let answer = client.request(
            &format!("QUERY {}", set.path),
            &[("Content-Type", "application/json")],
            body.as_str(),
        );
        assert_eq!(answer.status, 200, "{body}: {answer:?}");
        let page = answer.json();
        ids.extend(ids_of(set, &page));
        let link = answer
            .header("Link")
            .map(|link| link.strip_prefix('<').unwrap().split_once('>').unwrap().0.to_owned());
        addresses.push((answer.header("Content-Location").map(str::to_owned), link));
        if page["page"]["next"].is_null() {
            let (own, next) = addresses.remove(0);
            return (ids, own, next);
        }
        query.insert("cursor".to_owned(), page["page"]["next"].clone());
        assert!(ids.len() <= set.items.len(), "{body}: it does not end");
    }
}

fn walk_urls(client: &mut Client, set: &DataSet, first: String) -> Vec<String> {
    let (mut ids, mut next) = (Vec::new(), Some(first));
    while let Some(path) = next {
        let answer = client.request(&format!("GET {path}"), &[], "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        ids.extend(ids_of(set, &answer.json()));
        next = answer
            .header("Link")
            .map(|link| link.strip_prefix('<').unwrap().split_once('>').unwrap().0.to_owned());
    }
    ids
}

on_every_backend! {
    fn filter_trees_by_query_and_url_match_the_oracle(backend: Backend) {
        let server = Setup::new(backend).model(&model()).start();
        let mut client = server.client();
        let seed = print_seed("filters");
        let ids = create_targets(&mut client);
        let sets = if is_soak() { 200 } else { 8 };
        let (mut found, mut left_out, mut addresses) = (0, 0, 0);
        for number in 0..sets {
            let mut chance = SeededRandom::new(seed.wrapping_add(number));
            let number = usize::try_from(number).unwrap();
            let set = create_data_set(&mut client, &mut chance, number, &ids);
            let has_integer_ids = set.items[0]["id"].is_number();
            for _ in 0..25 {
                let trees: Vec<FilterTree> = (0..=chance.below(2))
                    .map(|_| FilterTree::random(&mut chance, &set, &ids, 3))
                    .collect();
                let keys = sort(&mut chance);
                let limit = 1 + chance.below(20);
                let items: Vec<Value> =
                    set.items.iter().filter(|item| trees.iter().all(|tree| tree.holds(item))).cloned().collect();
                let expected: Vec<String> =
                    expected_items(&items, &[], &keys).into_iter().map(|item| text_of(&item["id"])).collect();
                found += expected.len();
                left_out += set.items.len() - expected.len();

                let trees_json: Value = trees.iter().map(|tree| tree.json(has_integer_ids)).collect();
                let names = keys.iter().map(|key| format!("{}{}", if key.is_descending { "-" } else { "" }, key.name));
                let names: Vec<String> = names.collect();
                let mut query = Map::new();
                query.insert("filter".to_owned(), json!({"all": trees_json}));
                query.insert("limit".to_owned(), json!(limit));
                if !names.is_empty() {
                    query.insert("sort".to_owned(), json!(names));
                }
                let about = json!(query).to_string();
                let (by_query, own, next) = walk_query(&mut client, &set, &mut query);
                assert_eq!(by_query, expected, "{about}");

                // The address of the response has the same list, and so has the next page from there on.
                // Few are too long for a URL.
                let Some(own) = own else { continue };
                addresses += 1;
                assert_eq!(walk_urls(&mut client, &set, own), expected, "{about}");
                if let Some(next) = next {
                    assert_eq!(walk_urls(&mut client, &set, next), expected[limit..], "{about}");
                }
                // As a person would write it.
                let groups: Vec<String> = trees
                    .iter()
                    .map(|tree| format!("any={}", percent_encode(&format!("({})", tree.text()))))
                    .collect();
                let query = query_string(&[], &keys);
                let url = format!("{}?{}&{query}&limit={limit}", set.path, groups.join("&"));
                assert_eq!(walk_urls(&mut client, &set, url), expected, "{about}");
            }
        }
        assert!(addresses > 20 * sets, "{addresses}");
        println!("filter trees: {sets} data sets, {found} items found, {left_out} left out");
        assert!(found > 500 && left_out > 500, "{found} {left_out}");
    }
}
