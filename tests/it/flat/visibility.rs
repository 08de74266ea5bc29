//! Flat lists compared with the union of the nested lists, on random models and items: for each caller both show the
//! same items, in the order that plain comparisons give.
//!
//! `NOUNS_SOAK=1` has 30 models in place of two. A failure prints the seed, which `NOUNS_SEED` sets for a run.

use std::cmp::Ordering;

use serde_json::{Value, json};

use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Backend, Client, Person, Setup, is_soak};

/// A resource of every model here: its name, and its parent.
const RESOURCES: [(&str, Option<usize>); 5] =
    [("a", None), ("b", Some(0)), ("c", Some(1)), ("d", Some(0)), ("e", Some(2))];
const USERS: [&str; 3] = ["u0", "u1", "u2"];
const CONDITIONS: [&str; 5] = [
    "owner = $user",
    "n < 6",
    "owner = $user or n >= 7",
    "not (owner = 'u1')",
    "n in [1, 2, 3, 4, 5]",
];

/// A random model with a role for each user. A role may lack the grant on a resource, also on an ancestor.
fn random_model(chance: &mut SeededRandom) -> String {
    let mut text = "title = \"Random\"\n".to_owned();
    for (name, parent) in RESOURCES {
        text.push_str(&format!("[resources.{name}]\n"));
        if let Some(parent) = parent {
            text.push_str(&format!("parent = \"{}\"\n", RESOURCES[parent].0));
        }
        if chance.below(2) == 0 {
            text.push_str("id = \"integer\"\n");
        }
        text.push_str(&format!(
            "[resources.{name}.fields]\nowner = {{ type = \"text\", filter = true }}\n\
             n = {{ type = \"integer\", filter = true }}\nsecret = {{ type = \"text\" }}\n"
        ));
    }
    for user in USERS {
        text.push_str(&format!("[roles.{user}]\n"));
        for (name, _) in RESOURCES {
            let condition = CONDITIONS[chance.below(CONDITIONS.len())];
            match chance.below(10) {
                0 => {}
                1..=4 => text.push_str(&format!("{name} = [\"get\"]\n")),
                5 => text
                    .push_str(&format!("{name} = {{ verbs = [\"get\"], hide = [\"secret\"] }}\n")),
                _ => text.push_str(&format!(
                    "{name} = {{ verbs = [\"get\"], where = \"{condition}\" }}\n"
                )),
            }
        }
    }
    text
}

/// One caller's connection.
struct Reader {
    client: Client,
    login: String,
}

impl Reader {
    fn get(&mut self, path: &str) -> (u16, Value) {
        let answer =
            self.client.request(&format!("GET {path}"), &[("Authorization", &self.login)], "");
        (answer.status, answer.json())
    }

    /// All items of a list, page by page; `None` if it is refused.
    fn list(&mut self, path: &str, plural: &str, limit: usize) -> Option<Vec<Value>> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let mark = if path.contains('?') { '&' } else { '?' };
            let (status, page) = self.get(&format!("{path}{mark}limit={limit}{cursor}"));
            if status != 200 {
                assert!(status == 404 || status == 403, "{path}: {status} {page}");
                assert!(all.is_empty());
                return None;
            }
            all.extend(page[plural].as_array().unwrap().iter().cloned());
            match page["page"]["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Some(all),
            }
        }
    }

    /// The items of a resource that the nested lists show, each with its path and the ids of its ancestors, the nearest
    /// first.
    fn nested_items(&mut self, resource: usize) -> Vec<NestedItem> {
        let (name, parent) = RESOURCES[resource];
        let above = match parent {
            None => vec![NestedItem::default()],
            Some(parent) => self.nested_items(parent),
        };
        let mut all = Vec::new();
        for parent in above {
            let path = format!("{}/{name}s", parent.path);
            for item in self.list(&path, &format!("{name}s"), 500).unwrap_or_default() {
                let own = (!parent.path.is_empty()).then(|| parent.item["id"].clone());
                let ancestors = own.into_iter().chain(parent.ancestors.clone()).collect();
                let path = format!("{path}/{}", text(&item["id"]));
                all.push(NestedItem { path, item, ancestors });
            }
        }
        all
    }
}

#[derive(Debug, Clone, Default)]
struct NestedItem {
    path: String,
    item: Value,
    ancestors: Vec<Value>,
}

fn text(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

fn compare(one: &Value, other: &Value) -> Ordering {
    match (one.as_i64(), other.as_i64()) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => one.as_str().cmp(&other.as_str()),
    }
}

/// The names of a resource's ancestors, the nearest first.
fn ancestor_names(resource: usize) -> Vec<&'static str> {
    let parent = |index: &usize| RESOURCES[*index].1;
    std::iter::successors(parent(&resource), parent).map(|index| RESOURCES[index].0).collect()
}

/// Compares one flat list, in several orders and with filters by ancestors, with the nested ones. Returns the number of
/// items.
fn compare_lists(reader: &mut Reader, resource: usize, chance: &mut SeededRandom) -> usize {
    let name = RESOURCES[resource].0;
    let nested = reader.nested_items(resource);
    let mut queries = vec![(String::new(), nested.clone())];
    for (level, ancestor) in ancestor_names(resource).into_iter().enumerate() {
        let Some(some) = chance.one_of(&nested).map(|found| found.ancestors[level].clone()) else {
            continue;
        };
        let query = format!("{ancestor}_id={}", text(&some));
        let mut matching = nested.clone();
        matching.retain(|found| found.ancestors[level] == some);
        queries.push((query, matching));
    }
    for (query, matching) in queries {
        let mut expected: Vec<Value> = matching.into_iter().map(|found| found.item).collect();
        expected.sort_by(|one, other| compare(&one["id"], &other["id"]));
        let limit = 1 + chance.below(7);
        let found = reader.list(&format!("/{name}s?{query}"), &format!("{name}s"), limit);
        let Some(found) = found else {
            assert!(expected.is_empty(), "{name} {query}: refused, expected {expected:?}");
            continue;
        };
        assert_eq!(found, expected, "{name} {query}");
        expected.retain(|item| item["n"].as_i64() > Some(3));
        expected.sort_by(|one, other| {
            compare(&other["n"], &one["n"]).then_with(|| compare(&other["id"], &one["id"]))
        });
        let path = format!("/{name}s?{query}&sort=-n&n:gt=3");
        let found = reader.list(&path, &format!("{name}s"), limit).unwrap();
        assert_eq!(found, expected, "{path}");
    }
    nested.len()
}

fn check_model(backend: Backend, seed: u64) -> (usize, usize) {
    let mut chance = SeededRandom::new(seed);
    let model = random_model(&mut chance);
    println!("{model}");
    let server = Setup::new(backend).model(&model).with_authentication().start();
    let mut readers: Vec<Reader> = Vec::new();
    let log_in = |login: String| Reader { client: server.client(), login };
    let mut admin = log_in(server.admin().basic());
    for user in USERS {
        let person = Person::new(user, "a word for each");
        server.add_user(&person, &[user]);
        readers.push(log_in(person.basic()));
    }
    // Some parents have no items, and items are created in no order of their parents.
    let mut paths: Vec<Vec<String>> = vec![Vec::new(); RESOURCES.len()];
    for (resource, (name, parent)) in RESOURCES.into_iter().enumerate() {
        for _ in 0..8 + 4 * resource {
            let owner = USERS[chance.below(USERS.len())];
            let body = json!({name: {"owner": owner, "n": chance.below(10), "secret": "s"}});
            let above = parent.map_or("", |parent| chance.one_of(&paths[parent]).unwrap());
            let line = format!("POST {above}/{name}s");
            let headers = [("Authorization", admin.login.as_str())];
            let made = admin.client.request(&line, &headers, body.to_string());
            assert_eq!(made.status, 201, "{made:?}");
            paths[resource].push(made.header("Location").unwrap().to_owned());
        }
    }
    let (mut shown, mut hidden) = (0, 0);
    for resource in 1..RESOURCES.len() {
        let all = compare_lists(&mut admin, resource, &mut chance);
        assert_eq!(all, paths[resource].len());
        for reader in &mut readers {
            let seen = compare_lists(reader, resource, &mut chance);
            shown += seen;
            hidden += all - seen;
            for path in &paths[resource] {
                let flat =
                    format!("/{}s/{}", RESOURCES[resource].0, path.rsplit('/').next().unwrap());
                let (there, found) = (reader.get(path), reader.get(&flat));
                assert_eq!(
                    (there.0, &there.1[RESOURCES[resource].0]),
                    (found.0, &found.1[RESOURCES[resource].0]),
                    "{flat}"
                );
            }
        }
    }
    (shown, hidden)
}

on_every_backend! {
    fn flat_lists_are_the_union_of_the_nested_lists(backend: Backend) {
        let seed = print_seed("flat lists");
        let models = if is_soak() { 30 } else { 2 };
        let (mut shown, mut hidden) = (0, 0);
        for number in 0..models {
            let (more_shown, more_hidden) = check_model(backend, seed.wrapping_add(number));
            shown += more_shown;
            hidden += more_hidden;
        }
        assert!(shown > 0 && hidden > 0, "{shown} shown, {hidden} hidden");
    }
}
