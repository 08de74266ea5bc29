//! Random models, rules and items: each list, count, item, related item, change and event that a user gets, and the
//! result of each PATCH, is compared with an evaluation in memory, which shares no code with the server.
//!
//! `NOUNS_SOAK=1` has 500 models in place of two. A failure prints the seed, which `NOUNS_SEED` sets for a run.

mod evaluation;
mod related;
mod rule;

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{RowRules, id, reference, text};
use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Backend, EventSource, is_soak};
use evaluation::{Logged, Moment, judge};
use related::compare_related;
use rule::{NAMES, Noun, Row, User, World};

const USERS: [&str; 3] = ["u0", "u1", "u2"];
const TENANTS: [&str; 2] = ["t0", "t1"];
const ITEMS: usize = 6;
const CHANGES: usize = 8;
const PATCHES: usize = 24;
const FIELDS: [&str; 4] = ["owner", "n", "flag", "tags"];

struct Run {
    rules: RowRules,
    world: World,
    users: Vec<User>,
    log: Vec<Logged>,
    /// By number.
    paths: Vec<String>,
}

/// Sets the declared fields of a user.
fn set_fields(rules: &mut RowRules, user: &User) {
    let found = rules.request("admin", &format!("GET /-/users?name={}", user.name), &Value::Null);
    let id = text(&found.json()["users"][0]["id"]);
    let fields = serde_json::to_value(&user.fields).unwrap();
    let patched = rules.request("admin", &format!("PATCH /-/users/{id}"), &json!({"user": fields}));
    assert_eq!(patched.status, 200, "{patched:?}");
}

fn random_values(chance: &mut SeededRandom) -> HashMap<&'static str, Value> {
    let names = || USERS.iter().chain(&TENANTS).copied().collect::<Vec<_>>();
    let mut values = HashMap::new();
    if chance.below(6) > 0 {
        values.insert("owner", json!(chance.one_of(&names()).unwrap()));
    }
    if chance.below(6) > 0 {
        values.insert("n", json!(chance.below(5)));
    }
    if chance.below(6) > 0 {
        values.insert("flag", json!(chance.below(2) == 0));
    }
    if chance.below(4) > 0 {
        let tags: Vec<&str> =
            (0..chance.below(3)).map(|_| *chance.one_of(&names()).unwrap()).collect();
        values.insert("tags", json!(tags));
    }
    values
}

impl Run {
    fn start(backend: Backend, chance: &mut SeededRandom) -> Self {
        let mut nouns = Vec::new();
        for index in 0..3 + chance.below(2) {
            let parent = (index > 0 && chance.below(2) == 0).then(|| chance.below(index));
            let refs = (0..chance.below(3)).map(|_| chance.below(index + 1)).collect();
            nouns.push(Noun { parent, refs, is_integer: chance.below(2) == 0 });
        }
        let world = World { nouns, now: HashMap::new() };
        let mut model = "title = \"Random\"\n[users.fields]\ntenant = { type = \"text\" }\nlevel = { type = \"integer\" }\n".to_owned();
        for (index, noun) in world.nouns.iter().enumerate() {
            model += &format!("[resources.{}]\n", NAMES[index]);
            if let Some(parent) = noun.parent {
                model += &format!("parent = \"{}\"\n", NAMES[parent]);
            }
            if noun.is_integer {
                model += "id = \"integer\"\n";
            }
            let filter = if chance.below(2) == 0 { ", filter = true" } else { "" };
            model += &format!(
                "[resources.{}.fields]\nowner = {{ type = \"text\"{filter} }}\nn = {{ type = \"integer\"{filter} }}\nflag = {{ type = \"boolean\" }}\ntags = {{ type = \"list\", of = {{ type = \"text\" }} }}\n",
                NAMES[index]
            );
            for (at, to) in noun.refs.iter().enumerate() {
                model += &format!("r{at} = {{ type = \"ref\", to = \"{}\" }}\n", NAMES[*to]);
            }
        }
        let mut users = Vec::new();
        for name in USERS {
            let (mut rules, mut patch_rules) = (Vec::new(), Vec::new());
            model += &format!("[roles.{name}]\n\"/-/changes\" = [\"get\"]\n");
            for (index, noun) in NAMES.into_iter().enumerate().take(world.nouns.len()) {
                let is_parent = world.nouns.iter().any(|noun| noun.parent == Some(index));
                let rule = match chance.below(12) {
                    0 => None,
                    1 | 2 => Some(None),
                    3..=5 if is_parent => Some(None),
                    _ => Some(Some(world.random_rule(chance, index, 3))),
                };
                let patch_rule = match chance.below(4) {
                    0 => Some(Some(world.random_rule(chance, index, 3))),
                    _ => rule.clone(),
                };
                let grants = [("get", &rule), ("patch", &patch_rule)]
                    .into_iter()
                    .filter_map(|(verb, grant)| world.show_grant(index, verb, grant))
                    .collect::<Vec<_>>();
                if !grants.is_empty() {
                    model += &format!("{noun} = [{}]\n", grants.join(", "));
                }
                rules.push(rule);
                patch_rules.push(patch_rule);
            }
            let mut fields = HashMap::new();
            if chance.below(4) > 0 {
                fields.insert("tenant", json!(TENANTS[chance.below(2)]));
            }
            if chance.below(4) > 0 {
                fields.insert("level", json!(chance.below(5)));
            }
            users.push(User { name, fields, rules, patch_rules });
        }
        println!("{model}");
        let logins: Vec<(&str, &str)> = USERS.iter().map(|name| (*name, *name)).collect();
        let mut rules = RowRules::start(backend, &model, &logins);
        for user in &users {
            set_fields(&mut rules, user);
        }
        Self { rules, world, users, log: Vec::new(), paths: Vec::new() }
    }

    fn body(&self, row: &Row) -> Value {
        let mut members = serde_json::to_value(&row.values).unwrap();
        for (at, to) in row.refs.iter().enumerate() {
            if let Some(to) = to {
                members[format!("r{at}")] = reference(&self.paths[*to]);
            }
        }
        json!({NAMES[row.noun]: members})
    }

    fn some(&self, chance: &mut SeededRandom, noun: usize) -> Option<usize> {
        let mut all: Vec<usize> =
            self.world.now.values().filter(|row| row.noun == noun).map(|row| row.number).collect();
        all.sort_unstable();
        chance.one_of(&all).copied()
    }

    fn random_refs(&self, chance: &mut SeededRandom, noun: usize) -> Vec<Option<usize>> {
        let targets = self.world.nouns[noun].refs.clone();
        let some = |to: usize| if chance.below(5) == 0 { None } else { self.some(chance, to) };
        targets.into_iter().map(some).collect()
    }

    fn create(&mut self, chance: &mut SeededRandom, noun: usize) {
        let parent = match self.world.nouns[noun].parent {
            None => None,
            Some(parent) => match self.some(chance, parent) {
                None => return,
                some => some,
            },
        };
        let (number, refs) = (self.paths.len(), self.random_refs(chance, noun));
        let row = Row { noun, number, parent, refs, values: random_values(chance) };
        let above = parent.map_or("", |parent| &self.paths[parent]);
        let (path, body) = (format!("{above}/{}s", NAMES[noun]), self.body(&row));
        let path = self.rules.create(&path, &body);
        self.paths.push(path);
        self.world.now.insert(number, row.clone());
        self.add_to_log(number, None, Some(row));
    }

    fn add_to_log(&mut self, number: usize, before: Option<Row>, after: Option<Row>) {
        let items = self.world.now.clone();
        self.log.push(Logged { number, before, after, items });
    }

    /// Replaces an item, or deletes it if nothing is below it or refers to it.
    fn change(&mut self, chance: &mut SeededRandom) {
        let noun = chance.below(self.world.nouns.len());
        let Some(number) = self.some(chance, noun) else { return };
        let before = self.world.now[&number].clone();
        if chance.below(5) == 0 {
            let line = format!("DELETE {}", self.paths[number]);
            if self.rules.status("admin", &line, &Value::Null) == 204 {
                self.world.now.remove(&number);
                self.add_to_log(number, Some(before), None);
                return;
            }
        }
        let (refs, values) = (self.random_refs(chance, noun), random_values(chance));
        let after = Row { noun, number, parent: before.parent, refs, values };
        let body = self.body(&after);
        let put = self.rules.request("admin", &format!("PUT {}", self.paths[number]), &body);
        assert_eq!(put.status, 200, "{put:?}");
        if (&after.refs, &after.values) != (&before.refs, &before.values) {
            self.world.now.insert(number, after.clone());
            self.add_to_log(number, Some(before), Some(after));
        }
    }

    /// Changes values of an item as a user, if its rule allows it; returns whether it did, if there was an item.
    fn patch(&mut self, chance: &mut SeededRandom) -> Option<bool> {
        let noun = chance.below(self.world.nouns.len());
        let user = chance.below(self.users.len());
        let (Some(number), user) = (self.some(chance, noun), &self.users[user]) else {
            return None;
        };
        let before = self.world.now[&number].clone();
        let after = Row { values: random_values(chance), ..before.clone() };
        let grant = &user.patch_rules[noun];
        let moment =
            Moment { world: &self.world, items: &self.world.now, user, is_requested: false };
        let is_found = moment.allows(grant, &before) && moment.sees_ancestors(&before);
        // The same values make a new version too, so that nobody learns them.
        let is_blind = !moment.is_granted(&before);
        let requested = Moment { is_requested: true, ..moment };
        let expected: &[u16] = match (is_found, requested.allows(grant, &after)) {
            (false, _) if grant.is_none() => &[403, 404],
            (false, _) => &[404],
            (true, false) => &[403],
            (true, true) => &[200, 204],
        };
        let value = |name| after.values.get(name).cloned().unwrap_or(Value::Null);
        let values: serde_json::Map<String, Value> =
            FIELDS.iter().map(|name| ((*name).to_owned(), value(name))).collect();
        let line = format!("PATCH {}", self.paths[number]);
        let answer = self.rules.request(user.name, &line, &json!({NAMES[noun]: values}));
        let name = user.name;
        assert!(
            expected.contains(&answer.status),
            "{line} as {name}: {expected:?} {before:?} {after:?} {answer:?}"
        );
        let is_done = matches!(answer.status, 200 | 204);
        if is_done {
            self.world.now.insert(number, after.clone());
            let moment =
                Moment { world: &self.world, items: &self.world.now, user, is_requested: false };
            // 200 with the item if the user may GET it after the write, otherwise 204.
            assert_eq!(answer.status == 200, moment.is_seen(&after), "{line} as {name}: {after:?}");
            if after.values != before.values || is_blind {
                self.add_to_log(number, Some(before), Some(after));
            }
        }
        Some(is_done)
    }

    /// Compares all that a user gets; returns how many items are shown and hidden, and how many related ones are shown.
    fn compare(&mut self, user: usize) -> [usize; 3] {
        let (mut shown, mut hidden, mut related) = (0, 0, 0);
        let user = &self.users[user];
        let moment =
            Moment { world: &self.world, items: &self.world.now, user, is_requested: false };
        for (noun, name) in NAMES.into_iter().enumerate().take(self.world.nouns.len()) {
            if user.rules[noun].is_none() {
                continue;
            }
            let mut expected: Vec<String> = Vec::new();
            for row in self.world.now.values().filter(|row| row.noun == noun) {
                let is_seen = moment.is_seen(row);
                let path = &self.paths[row.number];
                let answer = self.rules.request(user.name, &format!("GET {path}"), &Value::Null);
                let status = answer.status;
                assert_eq!(status == 200, is_seen, "{path} as {}: {status} {row:?}", user.name);
                if is_seen {
                    expected.push(id(path).to_owned());
                    let item = &answer.json()[name];
                    for field in FIELDS {
                        assert_eq!(item.get(field), row.values.get(field), "{path}: {item}");
                    }
                }
                (shown, hidden) = (shown + usize::from(is_seen), hidden + usize::from(!is_seen));
            }
            expected.sort();
            let list = format!("GET /{name}s?limit=500&count=exact");
            let answer = self.rules.request(user.name, &list, &Value::Null);
            if answer.status != 200 {
                assert!(matches!(answer.status, 403 | 404), "{answer:?}");
                assert!(expected.is_empty(), "{answer:?}");
                continue;
            }
            let page = answer.json();
            let items = page[format!("{name}s")].as_array().unwrap().iter();
            let mut found: Vec<String> = items.map(|item| text(&item["id"])).collect();
            found.sort();
            assert_eq!(found, expected, "{name} as {}", user.name);
            assert_eq!(page["page"]["total"], expected.len(), "{name} as {}", user.name);
            related += compare_related(&mut self.rules, &self.paths, &moment, (noun, &expected));
            self.compare_events(user, noun);
        }
        [shown, hidden, related]
    }

    fn compare_events(&self, user: &User, noun: usize) {
        let name = NAMES[noun];
        let changes = self.log.iter().filter(|change| {
            change.after.as_ref().or(change.before.as_ref()).unwrap().noun == noun
        });
        let expected: Vec<String> = changes
            .filter_map(|change| {
                let kind = judge(&self.world, user, change)?;
                Some(format!("{kind} {}", id(&self.paths[change.number])))
            })
            .collect();
        let login = self.rules.login(user.name);
        let headers = [("Authorization", login.as_str())];
        let line = format!("GET /-/changes?since=0&limit=500&resource={name}");
        let page = self.rules.server.request(&line, &headers, "").json();
        let changes = page["changes"].as_array().unwrap_or_else(|| panic!("{page}")).iter();
        let found: Vec<String> = changes
            .map(|change| format!("{} {}", text(&change["kind"]), text(&change["id"])))
            .collect();
        assert_eq!(found, expected, "changes of {name} as {}: {page:#}", user.name);
        let mut stream = EventSource::new(&format!("/{name}s?since=0"))
            .header("Authorization", &login)
            .connected(self.rules.server.address);
        let mut found = Vec::new();
        while found.len() < expected.len() {
            for event in stream.next_events(1) {
                let subject = text(&event.json()["subject"]);
                // An item above that is no longer visible, with all that is below it.
                if subject.rsplit('/').nth(1) != Some(&format!("{name}s")) {
                    assert_eq!(event.kind, "left", "{subject} in events of {name}");
                    continue;
                }
                found.push(format!("{} {}", event.kind, id(&subject)));
            }
        }
        assert_eq!(found, expected, "events of {name} as {}", user.name);
    }
}

on_every_backend! {
    fn row_rules_of_random_models_agree_with_an_evaluation_in_memory(backend: Backend) {
        let seed = print_seed("row rules");
        let models = if is_soak() { 500 } else { 2 };
        let (mut counts, mut patched, mut refused) = ([0; 3], 0, 0);
        for number in 0..models {
            let mut chance = SeededRandom::new(seed.wrapping_add(number));
            let mut run = Run::start(backend, &mut chance);
            for noun in 0..run.world.nouns.len() {
                for _ in 0..ITEMS {
                    run.create(&mut chance, noun);
                }
            }
            for _ in 0..CHANGES {
                run.change(&mut chance);
            }
            for is_done in (0..PATCHES).filter_map(|_| run.patch(&mut chance)) {
                match is_done {
                    true => patched += 1,
                    false => refused += 1,
                }
            }
            for user in 0..USERS.len() {
                let more = run.compare(user);
                counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
            }
        }
        let [shown, hidden, related] = counts;
        println!(
            "{models} models: {shown} items shown, {hidden} hidden, {related} related ones, {patched} patched, {refused} not"
        );
        assert!(shown > 0 && hidden > 0, "{shown} shown, {hidden} hidden");
        let others = [related, patched, refused];
        assert!(models < 10 || others.iter().all(|count| *count > 0), "{others:?}");
    }
}
