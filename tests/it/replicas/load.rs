//! Three replicas under load that are killed in turn, while PostgreSQL is restarted twice.
//!
//! `NOUNS_SOAK=1` runs for ten minutes in place of half a minute.
//! The test starts its own PostgreSQL, with fsync on. The server that the other tests share must not be
//! restarted, and runs without fsync, so that it could lose data.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{REPLICAS, postgres_contents};
use crate::durability::fallible_connection::FallibleConnection;
use crate::durability::judge::judge;
use crate::durability::ledger::{Ledger, RequestOutcome, model};
use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::durability::serving::{VerdictTotals, compare_served};
use crate::durability::workload::{Item, LedgerPage};
use crate::harness::{OwnPostgres, Server, Setup, is_soak, wait_until};

const CLIENTS: usize = 32;
const DATABASE: &str = "load";
/// The delay after which a refused client retries.
const RETRY_DELAY: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy)]
struct LoadPlan {
    /// At the end of each but the last a server is killed or restarted.
    turns: u32,
    turn: Duration,
    /// Between two requests of a client: the ledger of ten minutes has to fit into memory.
    think_time: Duration,
}

fn load_plan() -> LoadPlan {
    if is_soak() {
        LoadPlan { turns: 30, turn: Duration::from_secs(20), think_time: Duration::from_millis(60) }
    } else {
        LoadPlan { turns: 10, turn: Duration::from_secs(3), think_time: Duration::ZERO }
    }
}

/// The addresses of the replicas; `None` while one is being started.
type ReplicaAddresses = Mutex<[Option<SocketAddr>; REPLICAS]>;

/// A client's connections, one to each replica, used round-robin.
struct RoundRobin<'a> {
    addresses: &'a ReplicaAddresses,
    connections: [Option<(SocketAddr, FallibleConnection)>; REPLICAS],
    turn: usize,
}

impl<'a> RoundRobin<'a> {
    fn new(addresses: &'a ReplicaAddresses, turn: usize) -> Self {
        Self { addresses, connections: [const { None }; REPLICAS], turn }
    }

    /// The next replica that can be reached.
    fn next_connection(&mut self) -> Option<&mut FallibleConnection> {
        for _ in 0..REPLICAS {
            self.turn = (self.turn + 1) % REPLICAS;
            let address = self.addresses.lock().unwrap()[self.turn];
            let line = &mut self.connections[self.turn];
            if line.as_ref().map(|(known, _)| *known) != address || address.is_none() {
                *line = address
                    .and_then(|address| Some((address, FallibleConnection::connect(address)?)));
            }
            if line.is_some() {
                break;
            }
        }
        self.connections[self.turn].as_mut().map(|(_, line)| line)
    }

    /// After a missing response: discards the connection.
    fn discard_connection(&mut self) {
        self.connections[self.turn] = None;
    }
}

/// One client, until the end. In between it reads its items, each time from another replica.
fn run_client(
    page: &mut LedgerPage,
    shared: &[Item],
    robin: &mut RoundRobin<'_>,
    is_over: &AtomicBool,
) {
    let LoadPlan { think_time: think, .. } = load_plan();
    while !is_over.load(Ordering::Relaxed) {
        let Some(line) = robin.next_connection() else {
            thread::sleep(RETRY_DELAY);
            continue;
        };
        let (asked, expected) = page.choose(shared);
        if !page.send_and_record(line, asked, expected) {
            page.drop_last_customer();
            robin.discard_connection();
        } else if page.was_turned_away() {
            thread::sleep(RETRY_DELAY);
        }
        check_reads(page, robin);
        thread::sleep(think);
    }
}

/// Asserts that every replica shows this client its answered writes.
fn check_reads(page: &mut LedgerPage, robin: &mut RoundRobin<'_>) {
    let Some(known) = page.some_customer() else { return };
    let Some(line) = robin.next_connection() else { return };
    let Some(answer) = line.request(&format!("GET {}", known.item.path), "") else {
        return robin.discard_connection();
    };
    match answer.status {
        200 => assert_eq!(answer.json()["customer"], known.item.body, "{answer:?}"),
        503 => assert!(answer.header("Retry-After").is_some(), "{answer:?}"),
        _ => panic!("{} is there, but the answer is {answer:?}", known.item.path),
    }
}

/// Stops the clients, also when the test fails.
struct StopClientsOnDrop<'a>(&'a AtomicBool);

impl Drop for StopClientsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The disturbances of three replicas.
struct Disturbance<'a> {
    servers: &'a mut Vec<Server>,
    setup: &'a Setup,
    postgres: &'a OwnPostgres,
    addresses: &'a ReplicaAddresses,
}

impl Disturbance<'_> {
    /// Kills a replica at the end of each turn and starts it again; after two of them, restarts
    /// PostgreSQL instead. Returns the number of kills.
    fn run(&mut self) -> usize {
        let LoadPlan { turns, turn, .. } = load_plan();
        let (began, mut kills) = (Instant::now(), 0);
        for number in 1..=turns {
            let at = began + turn * number;
            wait_until("the turn is over", || (Instant::now() >= at).then_some(()));
            match number {
                _ if number == turns / 3 => self.restart("fast"),
                _ if number == 2 * turns / 3 => self.restart("immediate"),
                _ if number == turns => {}
                _ => {
                    self.kill(usize::try_from(number).unwrap() % REPLICAS);
                    kills += 1;
                }
            }
        }
        kills
    }

    fn restart(&self, mode: &str) {
        self.postgres.restart(mode);
        for server in &*self.servers {
            wait_until("a replica is ready by itself", || {
                (server.get("/-/ready").status == 200).then_some(())
            });
        }
    }

    fn kill(&mut self, index: usize) {
        self.addresses.lock().unwrap()[index] = None;
        let folder = self.servers.remove(index).kill();
        self.servers.insert(index, self.setup.clone().start_in(folder));
        self.addresses.lock().unwrap()[index] = Some(self.servers[index].address);
    }
}

#[test]
fn replicas_killed_under_load_lose_and_repeat_no_write() {
    let seed = print_seed("load");
    let postgres = OwnPostgres::start();
    postgres.sql("postgres", &format!("CREATE DATABASE {DATABASE}"));
    let setup = Setup::replica(postgres.database_url(DATABASE)).model(&model());
    let mut servers: Vec<_> = (0..REPLICAS).map(|_| setup.clone().start()).collect();
    let addresses = Mutex::new(std::array::from_fn(|index| Some(servers[index].address)));
    let mut ledger = Ledger::with_connection_count(seed, CLIENTS);
    let mut line = FallibleConnection::connect(servers[0].address).unwrap();
    let (pages, shared) = ledger.open_pages(&mut line);
    let is_over = AtomicBool::new(false);
    let mut chance = SeededRandom::new(seed);
    let kills = thread::scope(|scope| {
        for page in pages {
            let mut robin = RoundRobin::new(&addresses, chance.below(REPLICAS));
            let is_over = &is_over;
            scope.spawn(move || run_client(page, shared, &mut robin, is_over));
        }
        let _over = StopClientsOnDrop(&is_over);
        let (servers, setup) = (&mut servers, &setup);
        Disturbance { servers, setup, postgres: &postgres, addresses: &addresses }.run()
    });
    let found = postgres_contents::read_contents(&postgres, DATABASE);
    let mut verdict = judge(&ledger.now(), &found);
    for server in &servers {
        verdict.faults.extend(compare_served(server, &found));
    }
    verdict.assert_sound(&format!("NOUNS_SEED={seed}"));
    let mut figures = VerdictTotals::default();
    figures.add(&verdict);
    println!("load: {kills} kills, 2 restarts: {figures}");
    let refusals = ledger.entries().filter_map(|entry| match &entry.outcome {
        RequestOutcome::Answered(answered) if answered.status == 503 => answered.problem.clone(),
        _ => None,
    });
    let slugs: BTreeSet<_> = refusals.collect();
    println!("load: turned away with {slugs:?}");
    assert!(verdict.answered > 500, "{figures}");
}
