//! Linearizability of concurrent calls on one item through every replica.
//!
//! `NOUNS_SOAK=1` runs 4,000 rounds in place of 150.
//! The server generates the ids, so that clients cannot create the same item; they create into the
//! same slot, by a unique value.

use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Instant;

use serde_json::json;

use super::checker::{CallRequest, CallResponse, RecordedCall, is_linearizable};
use super::start_servers;
use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Backend, Client, Server, is_soak};

const MODEL: &str = "title = \"Slots\"\n[resources.slot.fields]\n\
    key = { type = \"text\", unique = true }\nword = { type = \"text\" }\n";
const CLIENTS: usize = 4;
const CALLS_EACH_MAX: usize = 3;

fn rounds() -> usize {
    if is_soak() { 4_000 } else { 150 }
}

/// State that the clients of a round share.
#[derive(Debug, Default)]
struct SlotRound {
    /// Ids that were created in it.
    ids: Vec<String>,
    calls: Vec<RecordedCall>,
}

/// One client with a connection to each replica.
struct ReplicaClient {
    number: usize,
    clients: Vec<Client>,
    random: SeededRandom,
}

impl ReplicaClient {
    fn choose(&mut self, round: &Mutex<SlotRound>, turn: usize) -> CallRequest {
        let ids = round.lock().unwrap().ids.clone();
        // Mostly the newest; a word is not always new.
        let newest = ids.len() - 1 - usize::from(ids.len() > 1 && self.random.below(6) == 0);
        let id = ids[newest].clone();
        let word = format!("{} {turn}", self.number % (1 + self.random.below(CLIENTS)));
        match self.random.below(10) {
            0..2 => CallRequest::Create { word },
            2..6 => CallRequest::Put { id, word },
            6 => CallRequest::Delete { id },
            _ => CallRequest::Get { id },
        }
    }

    fn call(&mut self, key: &str, asked: CallRequest) -> RecordedCall {
        let body = |word: &str| json!({"slot": {"key": key, "word": word}}).to_string();
        let (line, body) = match &asked {
            CallRequest::Create { word } => ("POST /slots".to_owned(), body(word)),
            CallRequest::Put { id, word } => (format!("PUT /slots/{id}"), body(word)),
            CallRequest::Delete { id } => (format!("DELETE /slots/{id}"), String::new()),
            CallRequest::Get { id } => (format!("GET /slots/{id}"), String::new()),
        };
        let replica = self.random.below(self.clients.len());
        let begun = Instant::now();
        let answer = self.clients[replica].request(&line, &[], body);
        let ended = Instant::now();
        let item = |name: &str| answer.json()["slot"][name].clone();
        let text = |name: &str| item(name).as_str().unwrap().to_owned();
        let answered = match answer.status {
            201 => CallResponse::Created { id: text("id") },
            200 => CallResponse::Item {
                version: item("version").as_u64().unwrap(),
                word: text("word"),
            },
            204 => CallResponse::Deleted,
            404 => CallResponse::Missing,
            409 if answer.problem() == "taken" => CallResponse::Taken,
            _ => panic!("nothing is wrong with the servers: {line}: {answer:?}"),
        };
        RecordedCall { request: asked, response: answered, begun, ended }
    }

    /// Runs its part of a round.
    fn run_round(&mut self, key: &str, round: &Mutex<SlotRound>) {
        for turn in 0..1 + self.random.below(CALLS_EACH_MAX) {
            let asked = self.choose(round, turn);
            let call = self.call(key, asked);
            let mut round = round.lock().unwrap();
            if let CallResponse::Created { id } = &call.response {
                round.ids.push(id.clone());
            }
            round.calls.push(call);
        }
    }
}

on_every_backend! {
    /// Every round begins with an item in its slot.
    fn calls_on_one_item_are_linearizable(backend: Backend) {
        let seed = print_seed("one item");
        let servers: Vec<Server> = start_servers(backend, MODEL);
        let mut chance = SeededRandom::new(seed);
        let mut callers: Vec<_> = (0..CLIENTS)
            .map(|number| ReplicaClient {
                number,
                clients: servers.iter().map(Server::client).collect(),
                random: SeededRandom::new(chance.next()),
            })
            .collect();
        let (mut calls, mut at_once) = (0, 0);
        for number in 0..rounds() {
            let key = format!("{number}");
            let round = Mutex::new(SlotRound::default());
            let first = callers[number % CLIENTS].call(&key, CallRequest::Create { word: "first".to_owned() });
            let CallResponse::Created { id } = &first.response else { panic!("{first:?}") };
            round.lock().unwrap().ids.push(id.clone());
            round.lock().unwrap().calls.push(first);
            let start = Barrier::new(CLIENTS);
            thread::scope(|scope| {
                for caller in &mut callers {
                    let (key, round, start) = (&key, &round, &start);
                    scope.spawn(move || {
                        start.wait();
                        caller.run_round(key, round);
                    });
                }
            });
            let mut history = round.into_inner().unwrap().calls;
            history.sort_by_key(|call| call.begun);
            assert!(is_linearizable(&history), "NOUNS_SEED={seed}: round {number} has no order:\n{history:#?}");
            calls += history.len();
            at_once += history.windows(2).filter(|pair| pair[1].begun < pair[0].ended).count();
        }
        println!("one item: {} rounds with {calls} calls, {at_once} of which began while another was under way", rounds());
        assert!(at_once > rounds(), "hardly any calls were under way at once: {at_once} of {calls}");
    }
}
