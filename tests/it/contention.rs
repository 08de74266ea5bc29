//! Contention: many clients write one item; they may wait, but none fails and no update is lost.
//!
//! `NOUNS_SOAK=1` runs a thousand rounds for each of the clients instead of eight.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};

use crate::harness::{ANN, Answer, Backend, Client, Server, Setup, is_soak};

pub const CLIENTS: usize = 32;

fn rounds() -> usize {
    if is_soak() { 1_000 } else { 8 }
}

/// Runs `rounds` requests on each of many connections concurrently; `ask` makes the request line and
/// body.
pub fn run_concurrently(
    server: &Server,
    rounds: usize,
    ask: impl Fn(usize, usize) -> (String, String) + Sync,
) -> Vec<Answer> {
    let (start, address) = (Barrier::new(CLIENTS), server.address);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (start, ask) = (&start, &ask);
                scope.spawn(move || {
                    let mut connection = Client::connect(address);
                    start.wait();
                    let answers = (0..rounds).map(|round| {
                        let (line, body) = ask(client, round);
                        connection.request(&line, &[], body)
                    });
                    answers.collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

on_every_backend! {
    fn contention_unconditional_puts_all_succeed(server: Server) {
        let path = server.create("/customers", ANN);
        let rounds = rounds();
        let answers = run_concurrently(&server, rounds, |client, round| {
            let body = json!({"customer": {"name": format!("{client} {round}"), "email": "ann@example.com"}});
            (format!("PUT {path}"), body.to_string())
        });
        let mut names = BTreeMap::new();
        for answer in &answers {
            assert_eq!(answer.status, 200, "{answer:?}");
            let customer = answer.json()["customer"].clone();
            let doubled = names.insert(customer["version"].as_u64().unwrap(), customer["name"].clone());
            assert_eq!(doubled, None, "two answers with one version");
        }
        let last = u64::try_from(CLIENTS * rounds + 1).unwrap();
        assert!(names.keys().copied().eq(2..=last), "the versions have gaps");
        let stored = server.get(&path).json()["customer"].clone();
        assert_eq!((&stored["version"], &stored["name"]), (&json!(last), &names[&last]));
    }

    /// Optimistic concurrency: each client reads, adds one and writes back with `If-Match`.
    fn contention_conditional_puts_lose_no_update(backend: Backend) {
        let model = "title = \"T\"\n[resources.counter.fields]\nvalue = { type = \"integer\", default = 0 }\n";
        let server = Setup::new(backend).model(model).start();
        let path = server.create("/counters", r#"{"counter":{}}"#);
        let (address, rounds) = (server.address, if rounds() == 1_000 { 1_000 } else { 30 });
        let start = Barrier::new(32);
        let done: usize = thread::scope(|scope| {
            let clients: Vec<_> = (0..32).map(|_| scope.spawn(|| {
                let mut client = Client::connect(address);
                start.wait();
                let try_once = |client: &mut Client| {
                    let seen = client.request(&format!("GET {path}"), &[], "");
                    let body = json!({"counter": {"value": seen.json()["counter"]["value"].as_i64().unwrap() + 1}});
                    let tag = seen.header("ETag").unwrap().to_owned();
                    let answer = client.request(&format!("PUT {path}"), &[("If-Match", &tag)], body.to_string());
                    assert!(matches!(answer.status, 200 | 412), "{answer:?}");
                    usize::from(answer.status == 200)
                };
                (0..rounds).map(|_| try_once(&mut client)).sum::<usize>()
            })).collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        let stored = server.get(&path).json()["counter"].clone();
        assert!(done >= rounds, "{done}");
        assert_eq!((&stored["value"], &stored["version"]), (&json!(done), &json!(done + 1)));
    }

    fn contention_identical_puts_make_one_version(server: Server) {
        let path = server.create("/customers", ANN);
        let body = ANN.replace("Ann", "Bea");
        for answer in run_concurrently(&server, 4, |_, _| (format!("PUT {path}"), body.clone())) {
            assert_eq!((answer.status, &answer.json()["customer"]["version"]), (200, &json!(2)), "{answer:?}");
        }
    }

    fn contention_unique_value_goes_to_one_client(backend: Backend) {
        let server = Setup::new(backend).model(include_str!("models/school.toml")).start();
        let body = r#"{"person":{"name":"Mia","badge":"gold"}}"#;
        let answers = run_concurrently(&server, 1, |_, _| ("POST /people".to_owned(), body.to_owned()));
        let created = answers.iter().filter(|answer| answer.status == 201).count();
        let taken = answers.iter().filter(|answer| answer.status == 409 && answer.problem() == "taken").count();
        assert_eq!((created, taken), (1, CLIENTS - 1));
    }

    /// Two transitions that exclude each other: the first wins, for every client.
    fn contention_exclusive_state_transitions_one_wins(server: Server) {
        let orders = format!("{}/orders", server.create("/customers", ANN));
        let order = |status: &str| format!(r#"{{"order":{{"status":"{status}","items":[{{"product":"tea","unit_price":350}}]}}}}"#);
        let path = server.create(&orders, order("placed"));
        assert_eq!(server.put(&path, order("paid")).status, 200);
        let answers = run_concurrently(&server, 2, |client, _| {
            (format!("PUT {path}"), order(if client % 2 == 0 { "shipped" } else { "cancelled" }))
        });
        let stored = server.get(&path).json()["order"].clone();
        assert_eq!(stored["version"], 3);
        for answer in answers {
            match answer.status {
                200 => assert_eq!(answer.json()["order"], stored),
                _ => assert_eq!((answer.problem().as_str(), &answer.json()["state"]), ("transition-not-allowed", &stored["status"])),
            }
        }
    }

    fn contention_concurrent_creates_are_all_stored(server: Server) {
        let answers = run_concurrently(&server, 4, |_, _| ("POST /customers".to_owned(), ANN.to_owned()));
        let mut paths: Vec<_> = answers.iter().map(|answer| answer.header("Location").unwrap()).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), CLIENTS * 4);
        let list = server.get("/customers?limit=500").json();
        assert_eq!(list["customers"].as_array().unwrap().len(), CLIENTS * 4);
    }
    /// Insert batching may coalesce concurrent creates; each item is what its client sent, whatever the
    /// others have in the same field.
    fn insert_batch_keeps_values_of_every_type(backend: Backend) {
        let server = Setup::new(backend).model(EVERY_TYPE).start();
        let answers = run_concurrently(&server, 4, |client, round| {
            ("POST /things".to_owned(), json!({"thing": thing(client, round)}).to_string())
        });
        for (at, answer) in answers.iter().enumerate() {
            assert_eq!(answer.status, 201, "{answer:?}");
            let (told, sent) = (answer.json(), thing(at / 4, at % 4));
            for (name, value) in sent.as_object().unwrap() {
                assert_eq!(&told["thing"][name], value, "{name}");
            }
            let stored = server.get(answer.header("Location").unwrap());
            assert_eq!(stored.json(), told);
            assert_eq!(stored.header("ETag"), answer.header("ETag"));
        }
        let list = server.get("/things?limit=500").json();
        assert_eq!(list["things"].as_array().unwrap().len(), CLIENTS * 4);
        // A batch that the database refuses is retried individually, and is not counted.
        let histogram = match backend {
            Backend::Sqlite => "nouns_sqlite_commit_group_requests",
            Backend::Postgres => "nouns_pool_batch_requests",
        };
        let group =
            |what: &str| -> f64 { server.metric(&format!("{histogram}_{what}")).unwrap() };
        assert_eq!(group("sum"), (CLIENTS * 4) as f64);
        // With very many threads, each with few of the clients, every create may have been sent
        // individually.
        if thread::available_parallelism().unwrap().get() <= 8 {
            assert!(group("count") < group("sum"));
        }
    }
}

const EVERY_TYPE: &str = r#"
title = "T"
[resources.other]
id = "integer"
[resources.other.fields]
name = { type = "text" }
[resources.thing.fields]
t = { type = "text", nullable = true }
e = { type = "email", nullable = true }
l = { type = "url", nullable = true }
i = { type = "integer", nullable = true }
d = { type = "decimal", scale = 3, nullable = true }
n = { type = "number", nullable = true }
b = { type = "boolean", nullable = true }
day = { type = "date", nullable = true }
at = { type = "timestamp", nullable = true }
u = { type = "uuid", nullable = true }
one = { type = "ref", to = "thing" }
two = { type = "ref", to = "other" }
st = { type = "state", initial = "new", next = { new = ["old"], old = [] } }
o = { type = "object", fields = { t = { type = "text" }, i = { type = "integer" } } }
m = { type = "list", of = { type = "text" } }
"#;

/// Some items have a value where others have none.
fn thing(client: usize, round: usize) -> Value {
    let number = client * 4 + round;
    let mut fields = json!({
        "t": format!("{number} \"é\\,{{}}\u{1F600}"),
        "e": format!("n{number}@example.com"),
        "l": format!("https://example.com/{number}"),
        "i": 9_007_199_254_740_000_u64 + number as u64,
        "d": format!("-{number}.125"),
        "n": number as f64 / 7.0,
        "b": number.is_multiple_of(2),
        "day": format!("2026-11-{:02}", 1 + number % 30),
        "at": format!("2026-11-16T01:02:{:02}.{:06}Z", number % 60, number),
        "u": format!("00000000-0000-4000-8000-{number:012}"),
        "o": {"t": "x".repeat(number), "i": number},
        "m": vec!["NULL"; number % 5],
    });
    let all = fields.as_object_mut().unwrap();
    let names: Vec<_> = all.keys().cloned().collect();
    for (at, name) in names.iter().enumerate() {
        if !["o", "m"].contains(&&**name) && (number + at).is_multiple_of(5) {
            all[name] = Value::Null;
        }
    }
    fields
}
