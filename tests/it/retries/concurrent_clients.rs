//! Twenty concurrent clients send the same request under the same key, and retry until they have a
//! response.
//!
//! `NOUNS_SOAK=1` makes 200 rounds in place of 15. In every third a server is killed (SIGKILL) after
//! some responses, and started again.
//! A client that gets 409, 503 or nothing sends the very same request to the next server: that is all
//! that it has to know.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{ANN, REPLAYED, replayed_part};
use crate::durability::fallible_connection::FallibleConnection;
use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Answer, Backend, Folder, Server, Setup, TIMEOUT, is_soak, wait_until};

const CLIENTS: usize = 20;
const REPLICAS: usize = 3;
/// The delay after which a client retries.
const RETRY_DELAY: Duration = Duration::from_millis(20);

fn rounds() -> usize {
    if is_soak() { 200 } else { 15 }
}

/// The addresses of the servers; `None` while one is being started.
type FleetAddresses = Mutex<Vec<Option<SocketAddr>>>;

/// Servers on one database, each with its setup.
struct ReplicaFleet {
    servers: Vec<(Setup, Server)>,
    addresses: FleetAddresses,
}

impl ReplicaFleet {
    fn new(backend: Backend, count: usize) -> Self {
        let setup = Setup::new(backend);
        let first = setup.clone().start();
        let mut servers = Vec::new();
        for _ in 1..count {
            let setup = Setup::replica(first.database());
            servers.push((setup.clone(), setup.start_in(Folder::new())));
        }
        // The first one is dropped last, since it owns the database.
        servers.push((setup, first));
        let addresses = servers.iter().map(|(_, server)| Some(server.address)).collect();
        Self { servers, addresses: Mutex::new(addresses) }
    }

    fn kill(servers: &mut Vec<(Setup, Server)>, addresses: &FleetAddresses, index: usize) {
        addresses.lock().unwrap()[index] = None;
        let (setup, server) = servers.remove(index);
        let server = setup.clone().start_in(server.kill());
        addresses.lock().unwrap()[index] = Some(server.address);
        servers.insert(index, (setup, server));
    }

    /// Runs all clients concurrently; `killed` says which server is killed, and after how many
    /// responses.
    fn run_round(&mut self, sent: &SharedRequest, killed: Option<(usize, usize)>) -> Vec<Answer> {
        let (start, answered) = (&Barrier::new(CLIENTS), &AtomicUsize::new(0));
        let Self { servers, addresses } = self;
        let addresses = &*addresses;
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    scope.spawn(move || {
                        start.wait();
                        let answer = sent.retry_until_answered(addresses, client);
                        answered.fetch_add(1, Ordering::Relaxed);
                        answer
                    })
                })
                .collect();
            if let Some((index, answers)) = killed {
                wait_until("so many are answered", || {
                    (answered.load(Ordering::Relaxed) >= answers).then_some(())
                });
                Self::kill(servers, addresses, index);
            }
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        })
    }
}

/// The request of all clients.
struct SharedRequest {
    line: String,
    headers: String,
    body: String,
}

impl SharedRequest {
    fn retry_until_answered(&self, addresses: &FleetAddresses, first: usize) -> Answer {
        let began = Instant::now();
        for turn in first.. {
            let address = {
                let addresses = addresses.lock().unwrap();
                addresses[turn % addresses.len()]
            };
            let mut line = address.and_then(FallibleConnection::connect);
            let told = line
                .as_mut()
                .and_then(|line| line.request_with(&self.line, &self.headers, &self.body));
            match told {
                Some(answer) if !matches!(answer.status, 409 | 503) => return answer,
                told => {
                    assert!(began.elapsed() < TIMEOUT, "not told after {TIMEOUT:?}: {told:?}");
                }
            }
            thread::sleep(RETRY_DELAY);
        }
        unreachable!()
    }
}

/// The request of a round: an item, a list of them, or a patch that would add once more each time.
fn request_of_round(number: usize, order: &str) -> SharedRequest {
    let customer = |n: usize| json!({"name": format!("{number}.{n}"), "email": "a@example.com"});
    let (line, kind, body) = match number % 3 {
        0 => ("POST /customers".to_owned(), "application/json", json!({ "customer": customer(0) })),
        1 => {
            let all: Vec<_> = (0..3).map(customer).collect();
            ("POST /customers".to_owned(), "application/json", json!({ "customers": all }))
        }
        _ => {
            let item = json!({"product": format!("{number}"), "unit_price": 1});
            let add = json!([{"op": "add", "path": "/order/items/-", "value": item}]);
            (format!("PATCH {order}"), "application/json-patch+json", add)
        }
    };
    let headers = format!("Idempotency-Key: \"round {number}\"\r\nContent-Type: {kind}\r\n");
    SharedRequest { line, headers, body: body.to_string() }
}

fn run_rounds(mut fleet: ReplicaFleet, has_kills: bool) {
    let mut chance = SeededRandom::new(print_seed("rounds"));
    let any = |fleet: &ReplicaFleet| fleet.servers.len() - 1;
    let of = any(&fleet);
    let customer = fleet.servers[of].1.create("/customers", ANN);
    let tea = r#"{"order":{"items":[{"product":"tea","unit_price":1}]}}"#;
    let order = fleet.servers[of].1.create(&format!("{customer}/orders"), tea);
    let (mut customers, mut items, mut kills) = (1, 1, 0);
    for number in 0..rounds() {
        let is_killed = has_kills && number % 3 == chance.below(3);
        let count = fleet.servers.len();
        let killed = is_killed.then(|| (chance.below(count), chance.below(CLIENTS / 2)));
        let answers = fleet.run_round(&request_of_round(number, &order), killed);
        kills += usize::from(is_killed);
        let first = &answers[0];
        for answer in &answers {
            assert!(matches!(answer.status, 200 | 201), "round {number}: {answer:?}");
            assert_eq!(replayed_part(answer), replayed_part(first), "round {number}");
        }
        let new = answers.iter().filter(|answer| answer.header(REPLAYED).is_none()).count();
        // The client that was answered first may have got nothing.
        assert!(
            new == 1 || (is_killed && new == 0),
            "round {number}: {new} answers are not repeated"
        );
        customers += [1, 3, 0][number % 3];
        items += [0, 0, 1][number % 3];
        let server = &fleet.servers[chance.below(count)].1;
        assert_eq!(super::count(server, "customers"), customers, "round {number}");
        let stored = server.get(&order).json()["order"].clone();
        let total = (&stored["version"], stored["items"].as_array().unwrap().len());
        assert_eq!(total, (&json!(items), items), "round {number}");
    }
    println!("rounds: {}, kills: {kills}, servers: {}", rounds(), fleet.servers.len());
}

on_every_backend! {
    fn idempotency_concurrent_clients_at_one_server(backend: Backend) {
        run_rounds(ReplicaFleet::new(backend, 1), false);
    }

    fn idempotency_concurrent_clients_at_a_killed_server(backend: Backend) {
        run_rounds(ReplicaFleet::new(backend, 1), true);
    }
}

#[test]
fn idempotency_concurrent_clients_at_three_replicas() {
    run_rounds(ReplicaFleet::new(Backend::Postgres, REPLICAS), false);
}

#[test]
fn idempotency_concurrent_clients_at_three_killed_replicas() {
    run_rounds(ReplicaFleet::new(Backend::Postgres, REPLICAS), true);
}
