//! Items as they were, compared with a replay of the change log.
//!
//! Clients write random histories (creations, one or many at a time, PUT, PATCH, DELETE, cascades), with a change of
//! the model in between. The judge replays `/-/changes` with the responses to the writes as a witness, and asks for
//! every version and for times at, before and after every change. `NOUNS_SOAK` makes 10,000 histories.

use std::collections::HashMap;
use std::thread;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Answer, Backend, Client, Server, Setup, is_soak};

const CLIENTS: usize = 4;
/// Requests that a client sends before it reads the responses.
const PIPELINED_MAX: usize = 16;

const MODEL: &str = r#"
title = "Things"
[server]
changes_keep = "forever"
[resources.thing.fields]
name = { type = "text", required = true }
stock = { type = "integer", default = 0 }
note = { type = "text", nullable = true }
tags = { type = "list", of = { type = "text" } }
[resources.part]
parent = "thing"
on_delete = "cascade"
id = "integer"
[resources.part.fields]
price = { type = "decimal", default = "0.50" }
"#;

/// The field that the second model adds, with the default of items from before.
const NEW_FIELD: (&str, i64) = ("grade", 3);

fn second_model() -> String {
    let (name, default) = NEW_FIELD;
    let line = format!(
        "note = {{ type = \"text\", nullable = true }}\n{name} = {{ type = \"integer\", default = {default} }}"
    );
    MODEL.replace("note = { type = \"text\", nullable = true }", &line)
}

/// A thing, also one of the first model, as the second model shows it.
fn with_new_field(item: &Value, is_thing: bool) -> Value {
    let mut item = item.clone();
    if is_thing {
        item.as_object_mut().unwrap().entry(NEW_FIELD.0).or_insert(json!(NEW_FIELD.1));
    }
    item
}

fn histories() -> usize {
    if is_soak() { 10_000 } else { 60 }
}

/// A client that writes histories.
struct Writer {
    client: Client,
    random: SeededRandom,
    /// Items that exist.
    alive: Vec<String>,
    /// Every item that a response has shown, by its path and version.
    shown: HashMap<(String, i64), Value>,
    created: usize,
}

impl Writer {
    fn send(&mut self, line: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.client.request(line, &[], body);
        assert!(matches!(answer.status, 200 | 201 | 204), "{line}: {answer:?}");
        answer
    }

    /// Remembers an item of a response.
    fn learn(&mut self, collection: &str, item: &Value) -> String {
        let id = &item["id"];
        let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        let path = format!("{collection}/{id}");
        let version = item["version"].as_i64().unwrap();
        // A write that changes nothing shows the version that was there.
        let item = with_new_field(item, !path.contains("/parts/"));
        let known = self.shown.insert((path.clone(), version), item.clone());
        assert!(known.is_none_or(|known| known == item), "{item}");
        path
    }

    fn thing(&mut self) -> Value {
        let number = self.random.below(3);
        let mut thing = json!({"name": format!("é\"{number}"), "stock": self.random.below(2)});
        match self.random.below(3) {
            0 => thing["note"] = Value::Null,
            1 => thing["note"] = json!("a\nnote"),
            _ => {}
        }
        if self.random.below(2) == 0 {
            thing["tags"] = json!(["x", number.to_string()]);
        }
        thing
    }

    /// Creates items; each begins a history.
    fn create(&mut self) -> Vec<String> {
        match self.random.below(8) {
            0 => {
                let things = [self.thing(), self.thing()];
                let answer = self.send("POST /things", &json!({"things": things}));
                let made = answer.json()["things"].as_array().unwrap().clone();
                made.iter().map(|item| self.learn("/things", item)).collect()
            }
            1 | 2 if !self.alive.is_empty() => {
                let parents: Vec<String> =
                    self.alive.iter().filter(|path| !path.contains("parts")).cloned().collect();
                let Some(parent) = self.random.one_of(&parents).cloned() else { return Vec::new() };
                let parts = format!("{parent}/parts");
                let price = format!("1.{}", self.random.below(10));
                let answer =
                    self.send(&format!("POST {parts}"), &json!({"part": {"price": price}}));
                vec![self.learn(&parts, &answer.json()["part"])]
            }
            _ => {
                let thing = self.thing();
                let answer = self.send("POST /things", &json!({"thing": thing}));
                vec![self.learn("/things", &answer.json()["thing"])]
            }
        }
    }

    fn change(&mut self, path: &str) {
        let (collection, _) = path.rsplit_once('/').unwrap();
        let is_part = collection.ends_with("parts");
        let name = if is_part { "part" } else { "thing" };
        let number = self.random.below(4);
        let (method, item) = match (is_part, self.random.below(2)) {
            (true, 0) => ("PUT", json!({"price": format!("2.{number}")})),
            (true, _) => ("PATCH", json!({"price": format!("3.{number}")})),
            (false, 0) => ("PUT", self.thing()),
            (false, _) => ("PATCH", json!({"stock": number})),
        };
        let answer = self.send(&format!("{method} {path}"), &json!({name: item}));
        self.learn(collection, &answer.json()[name]);
    }

    fn delete(&mut self, path: &str) {
        self.send(&format!("DELETE {path}"), &Value::Null);
        self.alive.retain(|known| known != path && !known.starts_with(&format!("{path}/")));
    }

    fn write(&mut self, until: usize) {
        while self.created < until {
            let made = self.create();
            self.created += made.len();
            self.alive.extend(made.iter().cloned());
            for _ in 0..self.random.below(5) {
                let among = if self.random.below(4) == 0 { &self.alive } else { &made };
                let Some(path) = self.random.one_of(among).cloned() else { break };
                if !self.alive.contains(&path) {
                    continue;
                }
                match self.random.below(6) {
                    0 => self.delete(&path),
                    _ => self.change(&path),
                }
            }
            // So that no list grows with the number of histories.
            if self.alive.len() > 20 {
                self.alive.drain(..10);
            }
        }
    }
}

/// One change of an item in the replay: its time, and the item after it.
struct Replayed {
    time: String,
    after: Option<Value>,
}

/// All changes, by the path of the item.
fn replay(server: &Server) -> HashMap<String, Vec<Replayed>> {
    let mut client = server.client();
    let mut states: HashMap<String, Vec<Replayed>> = HashMap::new();
    let mut since = 0;
    loop {
        let page =
            client.request(&format!("GET /-/changes?since={since}&limit=500"), &[], "").json();
        let changes = page["changes"].as_array().unwrap();
        for change in changes {
            let subject = change["subject"].as_str().unwrap().to_owned();
            let after = Some(&change["after"]).filter(|after| !after.is_null());
            let after = after.map(|after| with_new_field(after, change["resource"] == "thing"));
            let time = match &after {
                // An update must not look older than the version before it, whatever the clock says.
                Some(after) => after["updated_at"].as_str().unwrap().to_owned(),
                None => change["time"].as_str().unwrap().to_owned(),
            };
            states.entry(subject).or_default().push(Replayed { time, after });
        }
        since = page["page"]["position"].as_i64().unwrap();
        if page["page"]["next"].is_null() {
            return states;
        }
    }
}

fn micros(time: &str) -> i64 {
    time.parse::<Timestamp>().unwrap().as_microsecond()
}

fn timestamp(micros: i64) -> String {
    format!("{:.6}", Timestamp::from_microsecond(micros).unwrap())
}

/// A question, and the item of the replay that answers it.
type Question<'a> = (String, Option<&'a Value>);

/// Every version, and times around every change.
fn questions<'a>(path: &str, states: &'a [Replayed]) -> Vec<Question<'a>> {
    let mut questions = Vec::new();
    let mut times = Vec::new();
    for (at, state) in states.iter().enumerate() {
        let time = micros(&state.time);
        times.extend([time - 1, time]);
        if let Some(next) = states.get(at + 1) {
            times.push(i64::midpoint(time, micros(&next.time)));
        }
        if let Some(after) = &state.after {
            let version = after["version"].as_i64().unwrap();
            assert_eq!(version, i64::try_from(at).unwrap() + 1, "{path}");
            questions.push((format!("{path}?version={version}"), Some(after)));
        }
    }
    let versions = states.iter().filter(|state| state.after.is_some()).count();
    questions.push((format!("{path}?version={}", versions + 1), None));
    times.sort_unstable();
    times.dedup();
    for time in times {
        let state = states.iter().rev().find(|state| micros(&state.time) <= time);
        let after = state.and_then(|state| state.after.as_ref());
        questions.push((format!("{path}?as_of={}", timestamp(time)), after));
    }
    questions
}

/// Asks on one connection, several questions at a time. Returns how many answers were items.
fn check(client: &mut Client, questions: &[Question<'_>]) -> usize {
    let mut items = 0;
    for some in questions.chunks(PIPELINED_MAX) {
        let ask =
            |(line, _): &Question<'_>| format!("GET {line} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        client.write(some.iter().map(ask).collect::<String>().as_bytes());
        for (line, expected) in some {
            let answer = client.read_answer(false);
            let body = answer.json();
            match expected {
                Some(expected) => {
                    items += 1;
                    let name = if line.contains("/parts/") { "part" } else { "thing" };
                    assert_eq!((answer.status, &body[name]), (200, *expected), "{line}");
                    let (path, _) = line.split_once('?').unwrap();
                    let version = &expected["version"];
                    let location = format!("{path}?version={version}");
                    assert_eq!(answer.header("Content-Location"), Some(&*location));
                    assert!(answer.header("ETag").unwrap().starts_with(&format!("\"{version}-")));
                }
                None => {
                    assert_eq!(
                        (answer.status, &*answer.problem()),
                        (404, "no-such-version"),
                        "{line}"
                    );
                }
            }
        }
    }
    items
}

/// Runs a function for each writer, on its own thread.
fn write_all(writers: &mut [Writer], server: &Server, until: usize) {
    thread::scope(|scope| {
        for writer in writers {
            writer.client = server.client();
            scope.spawn(move || writer.write(until));
        }
    });
}

on_every_backend! {
    fn history_agrees_with_a_replay_of_the_log(backend: Backend) {
        let seed = print_seed("history replay");
        let each = histories().div_ceil(CLIENTS);
        let server = Setup::new(backend).model(MODEL).start();
        let writer = |number: usize| Writer {
            client: server.client(),
            random: SeededRandom::new(seed.wrapping_add(u64::try_from(number).unwrap())),
            alive: Vec::new(),
            shown: HashMap::new(),
            created: 0,
        };
        let mut writers: Vec<Writer> = (0..CLIENTS).map(writer).collect();
        write_all(&mut writers, &server, each / 2);
        let server = Setup::new(backend).model(&second_model()).start_in(server.stop());
        write_all(&mut writers, &server, each);

        let states = replay(&server);
        let created: usize = writers.iter().map(|writer| writer.created).sum();
        assert_eq!(states.len(), created);
        for ((path, version), item) in writers.iter().flat_map(|writer| &writer.shown) {
            let at = usize::try_from(*version).unwrap() - 1;
            assert_eq!(states[path][at].after.as_ref(), Some(item), "{path} {version}");
        }
        let all: Vec<(&String, &Vec<Replayed>)> = states.iter().collect();
        let counts = thread::scope(|scope| {
            let checkers = all.chunks(all.len().div_ceil(CLIENTS)).map(|part| {
                let mut client = server.client();
                scope.spawn(move || {
                    let count = |(path, states): &(&String, &Vec<Replayed>)| {
                        let questions = questions(path, states);
                        (questions.len(), check(&mut client, &questions))
                    };
                    part.iter().map(count).fold((0, 0), |one, other| (one.0 + other.0, one.1 + other.1))
                })
            });
            let checkers: Vec<_> = checkers.collect();
            checkers.into_iter().map(|checker| checker.join().unwrap()).collect::<Vec<_>>()
        });
        let (asked, items) = counts.iter().fold((0, 0), |one, other| (one.0 + other.0, one.1 + other.1));
        let changes: usize = states.values().map(Vec::len).sum();
        println!("{created} histories, {changes} changes, {asked} questions, {items} answered with an item");
        assert!(items > created && asked > items + created, "{asked} {items}");
    }
}
