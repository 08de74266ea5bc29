//! Three replicas under load that are killed in turn, while PostgreSQL is restarted twice.
//!
//! `NOUNS_SOAK=1` runs for ten minutes in place of half a minute.
//! The one surprising thing: the test has a PostgreSQL of its own, with fsync on: the one that the
//! other tests share must not be restarted, and would lose data.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{REPLICAS, stored};
use crate::durability::chance::{Chance, seed};
use crate::durability::judge::judge;
use crate::durability::ledger::{Ledger, Outcome, model};
use crate::durability::line::Line;
use crate::durability::serving::{Figures, compare_served};
use crate::durability::workload::{Item, Page};
use crate::harness::{OwnPostgres, Server, Setup, wait_until};

const CLIENTS: usize = 32;
const DATABASE: &str = "load";
/// The delay after which a refused client retries.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy)]
struct Pace {
    /// At the end of each but the last a server is killed or restarted.
    turns: u32,
    turn: Duration,
    /// Between two requests of a client: the ledger of ten minutes has to fit into memory.
    think: Duration,
}

fn pace() -> Pace {
    if std::env::var_os("NOUNS_SOAK").is_some() {
        Pace { turns: 30, turn: Duration::from_secs(20), think: Duration::from_millis(60) }
    } else {
        Pace { turns: 10, turn: Duration::from_secs(3), think: Duration::ZERO }
    }
}

/// The addresses of the replicas; `None` while one is being started.
type Addresses = Mutex<[Option<SocketAddr>; REPLICAS]>;

/// A client's connections, one to each replica, used round-robin.
struct Robin<'a> {
    addresses: &'a Addresses,
    lines: [Option<(SocketAddr, Line)>; REPLICAS],
    turn: usize,
}

impl<'a> Robin<'a> {
    fn new(addresses: &'a Addresses, turn: usize) -> Self {
        Self { addresses, lines: [const { None }; REPLICAS], turn }
    }

    /// The next replica that can be reached.
    fn line(&mut self) -> Option<&mut Line> {
        for _ in 0..REPLICAS {
            self.turn = (self.turn + 1) % REPLICAS;
            let address = self.addresses.lock().unwrap()[self.turn];
            let line = &mut self.lines[self.turn];
            if line.as_ref().map(|(known, _)| *known) != address || address.is_none() {
                *line = address.and_then(|address| Some((address, Line::connect(address)?)));
            }
            if line.is_some() {
                break;
            }
        }
        self.lines[self.turn].as_mut().map(|(_, line)| line)
    }

    /// After a missing response: discards the connection.
    fn hang_up(&mut self) {
        self.lines[self.turn] = None;
    }
}

/// One client, until the end. In between it reads its items, each time from another replica.
fn client(page: &mut Page, shared: &[Item], robin: &mut Robin<'_>, is_over: &AtomicBool) {
    let Pace { think, .. } = pace();
    while !is_over.load(Ordering::Relaxed) {
        let Some(line) = robin.line() else {
            thread::sleep(AGAIN_AFTER);
            continue;
        };
        let (asked, expected) = page.choose(shared);
        if !page.ask(line, asked, expected) {
            page.forget_last();
            robin.hang_up();
        } else if page.was_turned_away() {
            thread::sleep(AGAIN_AFTER);
        }
        look(page, robin);
        thread::sleep(think);
    }
}

/// Asserts that every replica shows this client its answered writes.
fn look(page: &mut Page, robin: &mut Robin<'_>) {
    let Some(known) = page.some_customer() else { return };
    let Some(line) = robin.line() else { return };
    let Some(answer) = line.ask(&format!("GET {}", known.item.path), "") else {
        return robin.hang_up();
    };
    match answer.status {
        200 => assert_eq!(answer.json()["customer"], known.item.body, "{answer:?}"),
        503 => assert!(answer.header("Retry-After").is_some(), "{answer:?}"),
        _ => panic!("{} is there, but the answer is {answer:?}", known.item.path),
    }
}

/// Stops the clients, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The disturbances of three replicas.
struct Disturbance<'a> {
    servers: &'a mut Vec<Server>,
    setup: &'a Setup,
    postgres: &'a OwnPostgres,
    addresses: &'a Addresses,
}

impl Disturbance<'_> {
    /// Kills a replica at the end of each turn and starts it again; after two of them, restarts
    /// PostgreSQL instead. Returns the number of kills.
    fn run(&mut self) -> usize {
        let Pace { turns, turn, .. } = pace();
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
    let seed = seed("load");
    let postgres = OwnPostgres::start();
    postgres.sql("postgres", &format!("CREATE DATABASE {DATABASE}"));
    let setup = Setup::replica(postgres.address_of(DATABASE)).model(&model());
    let mut servers: Vec<_> = (0..REPLICAS).map(|_| setup.clone().start()).collect();
    let addresses = Mutex::new(std::array::from_fn(|index| Some(servers[index].address)));
    let mut ledger = Ledger::of(seed, CLIENTS);
    let mut line = Line::connect(servers[0].address).unwrap();
    let (pages, shared) = ledger.open(&mut line);
    let is_over = AtomicBool::new(false);
    let mut chance = Chance::new(seed);
    let kills = thread::scope(|scope| {
        for page in pages {
            let mut robin = Robin::new(&addresses, chance.below(REPLICAS));
            let is_over = &is_over;
            scope.spawn(move || client(page, shared, &mut robin, is_over));
        }
        let _over = Over(&is_over);
        let (servers, setup) = (&mut servers, &setup);
        Disturbance { servers, setup, postgres: &postgres, addresses: &addresses }.run()
    });
    let found = stored::read(&postgres, DATABASE);
    let mut verdict = judge(&ledger.now(), &found);
    for server in &servers {
        verdict.faults.extend(compare_served(server, &found));
    }
    verdict.assert_sound(&format!("NOUNS_SEED={seed}"));
    let mut figures = Figures::default();
    figures.add(&verdict);
    println!("load: {kills} kills, 2 restarts: {figures}");
    let refusals = ledger.entries().filter_map(|entry| match &entry.outcome {
        Outcome::Answered(answered) if answered.status == 503 => answered.problem.clone(),
        _ => None,
    });
    let slugs: BTreeSet<_> = refusals.collect();
    println!("load: turned away with {slugs:?}");
    assert!(verdict.answered > 500, "{figures}");
}
