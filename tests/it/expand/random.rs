//! Expanded responses compared with an evaluation in memory, on random models, items and queries: for each caller, the
//! related items are those that plain lists show.
//!
//! `NOUNS_SOAK=1` has 30 models in place of two. A failure prints the seed, which `NOUNS_SEED` sets for a run.

use std::cmp::Ordering;

use serde_json::{Value, json};

use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Backend, Client, Person, Setup, is_soak};

/// A resource of every model here: its name, its parent, and the resource that its field `link` refers to.
const RESOURCES: [(&str, Option<usize>, usize); 4] =
    [("a", None, 2), ("b", Some(0), 0), ("c", Some(1), 3), ("d", Some(0), 1)];
const USERS: [&str; 3] = ["u0", "u1", "u2"];
const CONDITIONS: [&str; 4] =
    ["owner = $user", "n < 6", "owner = $user or n >= 7", "not (owner = 'u1')"];

/// A random model with a role for each user. A role may lack the grant on a resource, also on an ancestor.
fn random_model(chance: &mut SeededRandom) -> String {
    let mut text = "title = \"Random\"\n".to_owned();
    for (name, parent, link) in RESOURCES {
        text.push_str(&format!("[resources.{name}]\n"));
        if let Some(parent) = parent {
            text.push_str(&format!("parent = \"{}\"\n", RESOURCES[parent].0));
        }
        if chance.below(2) == 0 {
            text.push_str("id = \"integer\"\n");
        }
        text.push_str(&format!(
            "[resources.{name}.fields]\nowner = {{ type = \"text\", filter = true }}\n\
             n = {{ type = \"integer\", filter = true }}\nsecret = {{ type = \"text\" }}\n\
             link = {{ type = \"ref\", to = \"{}\" }}\n",
            RESOURCES[link].0
        ));
    }
    for user in USERS {
        text.push_str(&format!("[roles.{user}]\n"));
        for (name, ..) in RESOURCES {
            let condition = CONDITIONS[chance.below(CONDITIONS.len())];
            match chance.below(10) {
                0 => {}
                1..=4 => text.push_str(&format!("{name} = [\"get\"]\n")),
                5 => text.push_str(&format!(
                    "{name} = {{ verbs = [\"get\"], hide = [\"secret\", \"link\"] }}\n"
                )),
                _ => text.push_str(&format!(
                    "{name} = {{ verbs = [\"get\"], where = \"{condition}\" }}\n"
                )),
            }
        }
    }
    text
}

/// The items of each resource that one caller sees; `None` if it may not read them.
type VisibleItems = Vec<Option<Vec<Value>>>;

/// A relation to follow, and its list for children.
#[derive(Debug, Clone)]
struct Expansion {
    member: Member,
    target: usize,
    list: ChildList,
    inner: Vec<Expansion>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Parent,
    Children,
    Link,
}

#[derive(Debug, Clone, Default)]
struct ChildList {
    above: Option<i64>,
    is_by_n: bool,
    is_descending: bool,
    limit: Option<usize>,
}

impl Expansion {
    fn name(&self) -> String {
        let name = RESOURCES[self.target].0;
        match self.member {
            Member::Parent => name.to_owned(),
            Member::Children => format!("{name}s"),
            Member::Link => "link".to_owned(),
        }
    }

    /// As in a query.
    fn text(&self) -> String {
        let ChildList { above, is_by_n, is_descending, limit } = &self.list;
        let sign = if *is_descending { "-" } else { "" };
        let mut parts = Vec::new();
        parts.extend(above.map(|n| format!("n:gt={n}")));
        parts.extend(is_by_n.then(|| format!("sort={sign}n")));
        parts.extend((!is_by_n && *is_descending).then(|| "sort=-id".to_owned()));
        parts.extend(limit.map(|limit| format!("limit={limit}")));
        match parts.is_empty() {
            true => self.name(),
            false => format!("{}({})", self.name(), parts.join(";")),
        }
    }

    /// The paths of a query, the first of which has the options.
    fn paths(&self) -> Vec<String> {
        match &*self.inner {
            [] => vec![self.text()],
            [first, rest @ ..] => {
                let first = format!("{}.{}", self.text(), first.text());
                [first]
                    .into_iter()
                    .chain(rest.iter().map(|one| format!("{}.{}", self.name(), one.text())))
                    .collect()
            }
        }
    }
}

/// The relations that a caller can follow from a resource, by what plain requests show of it.
fn relations(seen: &VisibleItems, hides_link: &[bool], resource: usize) -> Vec<(Member, usize)> {
    let (_, parent, link) = RESOURCES[resource];
    let parent = parent.map(|parent| (Member::Parent, parent));
    let children = (0..RESOURCES.len()).filter(|child| RESOURCES[*child].1 == Some(resource));
    let link = (!hides_link[resource]).then_some((Member::Link, link));
    let all = parent.into_iter().chain(children.map(|child| (Member::Children, child))).chain(link);
    all.filter(|(_, target)| seen[*target].is_some()).collect()
}

fn random_expansions(
    (seen, hides_link): (&VisibleItems, &[bool]),
    (resource, levels): (usize, usize),
    chance: &mut SeededRandom,
) -> Vec<Expansion> {
    let mut all = Vec::new();
    for (member, target) in relations(seen, hides_link, resource) {
        if chance.below(3) == 0 {
            continue;
        }
        let mut list = ChildList::default();
        if member == Member::Children {
            list.above = (chance.below(3) == 0).then_some(3);
            list.is_by_n = chance.below(2) == 0;
            list.is_descending = chance.below(2) == 0;
            list.limit = (chance.below(3) > 0).then(|| 1 + chance.below(4));
        }
        let inner = match levels {
            0 => Vec::new(),
            _ => random_expansions((seen, hides_link), (target, levels - 1), chance),
        };
        all.push(Expansion { member, target, list, inner });
    }
    all
}

fn compare(one: &Value, other: &Value) -> Ordering {
    match (one.as_i64(), other.as_i64()) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => one.as_str().cmp(&other.as_str()),
    }
}

/// An item with its related items, by plain comparisons. All children are there: the limit is applied to the response.
fn expand(seen: &VisibleItems, resource: usize, item: &Value, expansions: &[Expansion]) -> Value {
    let mut all = item.clone();
    for one in expansions {
        let (items, target) = (seen[one.target].as_ref().unwrap(), one.target);
        let find = |id: &Value| items.iter().find(|item| item["id"] == *id);
        let inner = |item: &Value| expand(seen, target, item, &one.inner);
        match one.member {
            Member::Link => {
                if let Some(found) = item.get("link").and_then(find) {
                    all["link"] = inner(found);
                }
            }
            Member::Parent => {
                let key = format!("{}_id", RESOURCES[target].0);
                all[one.name()] = inner(find(&item[key]).unwrap());
            }
            Member::Children => {
                let key = format!("{}_id", RESOURCES[resource].0);
                let above =
                    |item: &Value| one.list.above.is_none_or(|n| item["n"].as_i64() > Some(n));
                let mut found: Vec<&Value> = items
                    .iter()
                    .filter(|child| child[&key] == item["id"] && above(child))
                    .collect();
                found.sort_by(|left, right| {
                    let by_n = match one.list.is_by_n {
                        true => order_of_n(left, right),
                        false => Ordering::Equal,
                    };
                    let order = by_n.then_with(|| compare(&left["id"], &right["id"]));
                    if one.list.is_descending { order.reverse() } else { order }
                });
                all[one.name()] = found.into_iter().map(inner).collect();
            }
        }
    }
    all
}

/// Absent values come last.
fn order_of_n(one: &Value, other: &Value) -> Ordering {
    let key = |item: &Value| item.get("n").map_or((1, 0), |n| (0, n.as_i64().unwrap()));
    key(one).cmp(&key(other))
}

/// One caller's connection.
struct Reader {
    client: Client,
    login: String,
}

impl Reader {
    fn get(&mut self, path: &str) -> (u16, Value) {
        let headers = [("Authorization", &*self.login)];
        let answer = self.client.request(&format!("GET {path}"), &headers, "");
        (answer.status, answer.json())
    }

    /// All items of a list from an address on, page by page.
    fn list(&mut self, address: &str, plural: &str) -> Option<Vec<Value>> {
        let (mut all, mut address) = (Vec::new(), address.to_owned());
        loop {
            let (status, page) = self.get(&address);
            if status != 200 {
                assert!([403, 404].contains(&status), "{address}: {status} {page}");
                return None;
            }
            all.extend(page[plural].as_array().unwrap().iter().cloned());
            let Some(next) = page["page"]["next"].as_str() else { return Some(all) };
            let (start, _) = address.split_once("&cursor=").unwrap_or((&address, ""));
            address = format!("{start}&cursor={next}");
        }
    }

    /// Compares a part of a response with what is expected; children that it leaves out are read from their address.
    fn check(
        &mut self,
        found: &Value,
        expected: &Value,
        expansions: &[Expansion],
        about: &str,
    ) -> usize {
        let mut related = 0;
        let (mut found_bare, mut expected_bare) = (found.clone(), expected.clone());
        for one in expansions {
            let name = one.name();
            let next = found_bare.as_object_mut().unwrap().remove(&format!("{name}_next"));
            let parts = [&mut found_bare, &mut expected_bare]
                .map(|item| item.as_object_mut().unwrap().remove(&name));
            let [Some(found), Some(expected)] = parts else {
                assert_eq!(parts, [None, None], "{about}: {name}");
                continue;
            };
            if one.member != Member::Children {
                match expected.is_object() {
                    true => related += 1 + self.check(&found, &expected, &one.inner, about),
                    false => assert_eq!(found, expected, "{about}: {name}"),
                }
                continue;
            }
            let (shown, all) = (found.as_array().unwrap(), expected.as_array().unwrap());
            let limit = one.list.limit.unwrap_or(50);
            assert_eq!(
                (shown.len(), next.is_some()),
                (all.len().min(limit), all.len() > limit),
                "{about}: {name}"
            );
            for (found, expected) in shown.iter().zip(all) {
                related += 1 + self.check(found, expected, &one.inner, about);
            }
            if let Some(next) = next {
                let rest = self.list(next.as_str().unwrap(), &name).unwrap();
                let ids = |items: &[Value]| {
                    items.iter().map(|item| item["id"].clone()).collect::<Vec<_>>()
                };
                assert_eq!(ids(&rest), ids(&all[limit..]), "{about}: {next}");
            }
        }
        assert_eq!(found_bare, expected_bare, "{about}");
        related
    }
}

/// Creates items of all resources, with links to items that exist.
fn fill(admin: &mut Reader, chance: &mut SeededRandom) {
    let mut paths: Vec<Vec<String>> = vec![Vec::new(); RESOURCES.len()];
    let id = |path: &str| {
        let id = path.rsplit('/').next().unwrap();
        id.parse::<i64>().map_or_else(|_| json!(id), |number| json!(number))
    };
    for round in 0..3 {
        for (resource, (name, parent, link)) in RESOURCES.into_iter().enumerate() {
            for _ in 0..3 + 3 * resource {
                let mut item = json!({"owner": USERS[chance.below(USERS.len())], "secret": "s"});
                if chance.below(5) > 0 {
                    item["n"] = json!(chance.below(10));
                }
                if let Some(target) = chance.one_of(&paths[link]).filter(|_| round > 0) {
                    item["link"] = id(target);
                }
                let above = parent.map_or("", |parent| chance.one_of(&paths[parent]).unwrap());
                let line = format!("POST {above}/{name}s");
                let headers = [("Authorization", &*admin.login)];
                let made = admin.client.request(&line, &headers, json!({name: item}).to_string());
                assert_eq!(made.status, 201, "{made:?}");
                paths[resource].push(made.header("Location").unwrap().to_owned());
            }
        }
    }
}

/// Compares random queries of one caller. Returns the number of related items.
fn check_reader(reader: &mut Reader, chance: &mut SeededRandom) -> usize {
    let lists = RESOURCES
        .iter()
        .map(|(name, ..)| reader.list(&format!("/{name}s?limit=500"), &format!("{name}s")));
    let seen: VisibleItems = lists.collect();
    // Links are hidden together with secrets.
    let has_secret = |items: &Vec<Value>| items.iter().any(|item| item.get("secret").is_some());
    let hides_link: Vec<bool> =
        seen.iter().map(|items| !items.as_ref().is_some_and(has_secret)).collect();
    let mut related = 0;
    for resource in (0..RESOURCES.len()).chain(0..RESOURCES.len()).chain(0..RESOURCES.len()) {
        let Some(items) = seen[resource].clone() else { continue };
        let expansions = random_expansions((&seen, &hides_link), (resource, 1), chance);
        let query: Vec<String> = expansions.iter().flat_map(Expansion::paths).collect();
        if query.is_empty() || query.len() > 10 || items.is_empty() {
            continue;
        }
        let (name, query) = (RESOURCES[resource].0, query.join(","));
        let about = format!("/{name}s?limit=500&expand={query}");
        let (status, page) = reader.get(&about);
        assert_eq!(status, 200, "{about}: {page}");
        let found = page[format!("{name}s")].as_array().unwrap().clone();
        assert_eq!(found.len(), items.len(), "{about}");
        for (found, item) in found.iter().zip(&items) {
            let expected = expand(&seen, resource, item, &expansions);
            related += reader.check(found, &expected, &expansions, &about);
        }
        let one = chance.one_of(&found).unwrap();
        let id = one["id"].as_str().map_or_else(|| one["id"].to_string(), str::to_owned);
        let (_, item) = reader.get(&format!("/{name}s/{id}?expand={query}"));
        assert_eq!(item[name], *one, "{about}");
    }
    related
}

fn check_model(backend: Backend, seed: u64) -> usize {
    let mut chance = SeededRandom::new(seed);
    let model = random_model(&mut chance);
    println!("{model}");
    let server = Setup::new(backend).model(&model).with_authentication().start();
    let log_in = |login: String| Reader { client: server.client(), login };
    let mut admin = log_in(server.admin().basic());
    fill(&mut admin, &mut chance);
    let mut related = check_reader(&mut admin, &mut chance);
    for user in USERS {
        let person = Person::new(user, "a word for each");
        server.add_user(&person, &[user]);
        related += check_reader(&mut log_in(person.basic()), &mut chance);
    }
    related
}

on_every_backend! {
    fn expanded_responses_equal_an_evaluation_of_plain_ones(backend: Backend) {
        let seed = print_seed("expanded responses");
        let models = if is_soak() { 30 } else { 2 };
        let related: usize = (0..models).map(|number| check_model(backend, seed.wrapping_add(number))).sum();
        assert!(related > 100, "{related} related items");
    }
}
