//! Random filters over relations, for callers who see all related items or some, compared with an evaluation in memory.
//!
//! An item that the caller cannot see makes a test neither true nor false; an item that is not there has no value.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::oracle::{FieldKind, Filter, is_applicable, matches_filter, split_in_values};
use super::percent_encode;
use super::random::{OPERATORS, filter, text_of};
use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Backend, Client, Person, Setup, is_soak};

const MODEL: &str = r#"
title = "Related"
[server.limits]
target_bytes_max = 30000
[resources.region.fields]
t = { type = "text", filter = true }
i = { type = "integer", filter = true }
owner = { type = "text" }
[resources.carrier]
id = "integer"
parent = "region"
[resources.carrier.fields]
t = { type = "text", filter = true }
b = { type = "boolean", filter = true }
tags = { type = "list", of = { type = "text" }, filter = true }
owner = { type = "text" }
[resources.customer.fields]
t = { type = "text", filter = true }
i = { type = "integer", filter = true }
o = { type = "object", fields = { t = { type = "text", filter = true } } }
region = { type = "ref", to = "region" }
[resources.order]
parent = "customer"
[resources.order.fields]
t = { type = "text", filter = true }
i = { type = "integer", filter = true }
carrier = { type = "ref", to = "carrier" }
previous = { type = "ref", to = "order" }
[roles.clerk]
region = { verbs = ["get"], where = "owner = $user" }
carrier = { verbs = ["get"], where = "owner = $user or b = true" }
customer = ["get"]
order = ["get"]
"#;

/// The relations from an order, and the resource at their end.
const PATHS: &[(&str, &str)] = &[
    ("", "order"),
    ("customer", "customer"),
    ("customer.region", "region"),
    ("carrier", "carrier"),
    ("carrier.region", "region"),
    ("previous", "order"),
    ("previous.carrier", "carrier"),
    ("previous.previous", "order"),
    ("previous.customer", "customer"),
];

fn fields(resource: &str) -> &'static [(&'static str, FieldKind)] {
    match resource {
        "region" => &[("t", FieldKind::Text), ("i", FieldKind::Integer), ("id", FieldKind::Id)],
        "carrier" => &[
            ("t", FieldKind::Text),
            ("b", FieldKind::Boolean),
            ("tags", FieldKind::TextList),
            ("id", FieldKind::Id),
        ],
        "customer" => {
            &[("t", FieldKind::Text), ("i", FieldKind::Integer), ("o.t", FieldKind::Text)]
        }
        _ => &[
            ("t", FieldKind::Text),
            ("i", FieldKind::Integer),
            ("created_at", FieldKind::Datetime),
        ],
    }
}

/// All items, by resource.
#[derive(Default)]
struct World {
    items: HashMap<&'static str, Vec<Value>>,
}

impl World {
    fn find(&self, resource: &str, id: &Value) -> &Value {
        self.items[resource].iter().find(|item| item["id"] == *id).unwrap()
    }

    /// Whether the clerk sees the item: its own rule, and those of its ancestors.
    fn is_visible(&self, resource: &str, item: &Value) -> bool {
        match resource {
            "region" => item["owner"] == "ann",
            "carrier" => {
                let own = item["owner"] == "ann" || item["b"] == true;
                own && self.is_visible("region", self.find("region", &item["region_id"]))
            }
            _ => true,
        }
    }

    /// The result of a test; `None` where an invisible item would decide.
    fn test(&self, order: &Value, path: &str, filter: &Filter, sees_all: bool) -> Option<bool> {
        let mut item = order;
        for name in path.split('.').filter(|name| !name.is_empty()) {
            let resource = if name == "previous" { "order" } else { name };
            let is_parent =
                name == "customer" || name == "region" && item.get("region_id").is_some();
            let id = if is_parent { &item[format!("{name}_id")] } else { &item[name] };
            if id.is_null() {
                return Some(matches_filter(&Value::Null, filter));
            }
            item = self.find(resource, id);
            if !sees_all && !self.is_visible(resource, item) {
                return None;
            }
        }
        Some(matches_filter(item, filter))
    }
}

enum Tree {
    Test(&'static str, Filter),
    All(Vec<Tree>),
    Any(Vec<Tree>),
    Not(Box<Tree>),
}

impl Tree {
    fn random(chance: &mut SeededRandom, world: &World, level: usize) -> Self {
        let kind = if level == 0 { 0 } else { chance.below(6) };
        let several = |chance: &mut SeededRandom| {
            (0..=chance.below(3)).map(|_| Self::random(chance, world, level - 1)).collect()
        };
        match kind {
            0..=2 => {
                let (path, resource) = *chance.one_of(PATHS).unwrap();
                let (name, kind) = *chance.one_of(fields(resource)).unwrap();
                let fits =
                    OPERATORS.iter().copied().filter(|operator| is_applicable(operator, kind));
                let operator = *chance.one_of(&fits.collect::<Vec<_>>()).unwrap();
                let ids = [json!([]), json!([])];
                let items = &world.items[resource];
                Self::Test(path, filter(chance, items, (name, kind), operator, &ids))
            }
            3 => Self::All(several(chance)),
            4 => Self::Any(several(chance)),
            _ => Self::Not(Box::new(Self::random(chance, world, level - 1))),
        }
    }

    fn holds(&self, world: &World, order: &Value, sees_all: bool) -> Option<bool> {
        let decide = |inner: &[Self], decisive: bool| {
            let results: Vec<Option<bool>> =
                inner.iter().map(|tree| tree.holds(world, order, sees_all)).collect();
            match results.contains(&Some(decisive)) {
                true => Some(decisive),
                false => (!results.contains(&None)).then_some(!decisive),
            }
        };
        match self {
            Self::Test(path, filter) => world.test(order, path, filter, sees_all),
            Self::All(inner) => decide(inner, false),
            Self::Any(inner) => decide(inner, true),
            Self::Not(inner) => inner.holds(world, order, sees_all).map(|holds| !holds),
        }
    }

    /// As a part of a group in a URL.
    fn text(&self) -> String {
        let join = |inner: &[Self]| inner.iter().map(Self::text).collect::<Vec<_>>().join(";");
        match self {
            Self::Test(path, filter) => {
                let value: String = filter
                    .value
                    .chars()
                    .flat_map(|c| {
                        matches!(c, ';' | '(' | ')' | '\\').then_some('\\').into_iter().chain([c])
                    })
                    .collect();
                format!("{}:{}={value}", full_name(path, filter), filter.operator)
            }
            Self::All(inner) => format!("all({})", join(inner)),
            Self::Any(inner) => format!("any({})", join(inner)),
            Self::Not(inner) => format!("not({})", inner.text()),
        }
    }

    fn json(&self) -> Value {
        let list = |inner: &[Self]| inner.iter().map(Self::json).collect::<Value>();
        match self {
            Self::Test(path, filter) => {
                json!({full_name(path, filter): {filter.operator: json_value(filter)}})
            }
            Self::All(inner) => json!({"all": list(inner)}),
            Self::Any(inner) => json!({"any": list(inner)}),
            Self::Not(inner) => json!({"not": inner.json()}),
        }
    }
}

fn full_name(path: &str, filter: &Filter) -> String {
    match path {
        "" => filter.name.to_owned(),
        path => format!("{path}.{}", filter.name),
    }
}

fn json_value(filter: &Filter) -> Value {
    let one = |text: &str| match filter.kind {
        FieldKind::Integer => json!(text.parse::<i64>().unwrap()),
        // The ids of carriers are numbers, those of the others are not.
        FieldKind::Id => text.parse::<i64>().map_or_else(|_| json!(text), |number| json!(number)),
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

fn create_world(client: &mut Client, admin: &str, chance: &mut SeededRandom) -> World {
    let mut world = World::default();
    let texts = ["a", "b", "ab", "é", "", "a,b", "\\"];
    let mut create =
        |world: &mut World, path: &str, noun: &'static str, item: Map<String, Value>| {
            let body = json!({noun: item}).to_string();
            let answer =
                client.request(&format!("POST {path}"), &[("Authorization", admin)], &body);
            assert_eq!(answer.status, 201, "{body}: {answer:?}");
            world.items.entry(noun).or_default().push(answer.json()[noun].clone());
        };
    let draft = |chance: &mut SeededRandom, names: &[&str]| {
        let mut item = Map::new();
        for name in names {
            let value = match *name {
                "t" => json!(chance.one_of(&texts).unwrap()),
                "i" => json!(chance.below(4)),
                "b" => json!(chance.below(2) == 0),
                "owner" => json!(chance.one_of(&["ann", "bea"]).unwrap()),
                "o" => json!({"t": chance.one_of(&texts).unwrap()}),
                _ => json!([chance.one_of(&texts).unwrap(), chance.one_of(&texts).unwrap()]),
            };
            if *name == "owner" || chance.below(4) > 0 {
                item.insert((*name).to_owned(), value);
            }
        }
        item
    };
    let pick = |chance: &mut SeededRandom, world: &World, noun: &str| {
        let items = world.items.get(noun).map_or(&[][..], Vec::as_slice);
        chance.one_of(items).map(|item| item["id"].clone())
    };
    // The clerk sees half of the regions, and every region has carriers.
    for owner in ["ann", "bea", "ann", "bea"] {
        let mut item = draft(chance, &["t", "i"]);
        item.insert("owner".to_owned(), json!(owner));
        create(&mut world, "/regions", "region", item);
    }
    for number in 0..8 {
        let item = draft(chance, &["t", "b", "tags", "owner"]);
        let region = text_of(&world.items["region"][number % 4]["id"]);
        create(&mut world, &format!("/regions/{region}/carriers"), "carrier", item);
    }
    for _ in 0..5 {
        let mut item = draft(chance, &["t", "i", "o"]);
        if chance.below(4) > 0 {
            item.insert("region".to_owned(), pick(chance, &world, "region").unwrap());
        }
        create(&mut world, "/customers", "customer", item);
    }
    for _ in 0..30 {
        let mut item = draft(chance, &["t", "i"]);
        for (name, noun) in [("carrier", "carrier"), ("previous", "order")] {
            if let Some(id) = pick(chance, &world, noun).filter(|_| chance.below(4) > 0) {
                item.insert(name.to_owned(), id);
            }
        }
        let customer = text_of(&pick(chance, &world, "customer").unwrap());
        create(&mut world, &format!("/customers/{customer}/orders"), "order", item);
    }
    world
}

/// All ids of a list, page by page.
fn walk(client: &mut Client, login: &str, first: String) -> Vec<String> {
    let (mut ids, mut next) = (Vec::new(), Some(first));
    while let Some(path) = next {
        let answer = client.request(&format!("GET {path}"), &[("Authorization", login)], "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let page = answer.json();
        ids.extend(page["orders"].as_array().unwrap().iter().map(|item| text_of(&item["id"])));
        next = answer
            .header("Link")
            .map(|link| link.strip_prefix('<').unwrap().split_once('>').unwrap().0.to_owned());
    }
    ids
}

on_every_backend! {
    fn relation_filters_match_an_evaluation_in_memory(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let ann = Person::new("ann", "a long password of hers");
        server.add_user(&ann, &["clerk"]);
        let (admin, ann) = (server.admin().basic(), ann.basic());
        let mut client = server.client();
        let mut chance = SeededRandom::new(print_seed("relations"));
        let world = create_world(&mut client, &admin, &mut chance);
        let (mut found, mut left_out, mut unknown) = (0, 0, 0);
        for _ in 0..if is_soak() { 5_000 } else { 250 } {
            let tree = Tree::random(&mut chance, &world, 3);
            for (login, sees_all) in [(&admin, true), (&ann, false)] {
                let mut expected = Vec::new();
                for order in &world.items["order"] {
                    match tree.holds(&world, order, sees_all) {
                        Some(true) => expected.push(text_of(&order["id"])),
                        Some(false) => left_out += 1,
                        None => unknown += 1,
                    }
                }
                found += expected.len();
                let limit = 1 + chance.below(40);
                let group = percent_encode(&format!("({})", tree.text()));
                let got = walk(&mut client, login, format!("/orders?any={group}&limit={limit}"));
                assert_eq!(got, expected, "{}", tree.text());
                let body = json!({"filter": tree.json(), "limit": 500}).to_string();
                let headers = [("Authorization", login.as_str()), ("Content-Type", "application/json")];
                let answer = client.request("QUERY /orders", &headers, &body);
                assert_eq!(answer.status, 200, "{body}: {answer:?}");
                let page = answer.json();
                let items = page["orders"].as_array().unwrap().iter();
                let got: Vec<String> = items.map(|item| text_of(&item["id"])).collect();
                assert_eq!(got, expected, "{body}");
            }
        }
        println!("relation filters: {found} items found, {left_out} left out, {unknown} unknown");
        assert!(found > 1000 && left_out > 1000 && unknown > 100, "{found} {left_out} {unknown}");
    }
}
