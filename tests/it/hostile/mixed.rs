//! Several attacks one after another on one server with the default limits: what each leaves behind adds up.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use bench::attack::{self, Force};

use super::siege::{fill, megabytes, start};
use crate::harness::{Backend, Server};

/// Of a debug build, which had between 447 and 547 here. A container with 512 MB is not promised yet.
const MEGABYTES_MAX: u64 = 640;

/// Those that take up most memory, with fewer connections than the benchmark has.
const ATTACKS: &[(&str, usize, u32)] = &[
    ("large bodies that stall", 200, 100),
    ("answers never read", 100, 20),
    ("large heads without an end", 1_000, 500),
    ("answers read byte by byte", 50, 20),
    ("11,000 connections", 1_000, 1_000),
    ("HTTP/2 windows of zero", 20, 20),
    ("oversized requests", 20, 25),
];

#[test]
fn mixed_attacks_one_after_another_stay_bounded() {
    let server = start("");
    fill(&server, 7_750_000);
    let mut peaks = Vec::new();
    for &(name, connections, actions_per_second) in ATTACKS {
        let force = Force { connections, actions_per_second, time: Duration::from_secs(5) };
        let (done, is_done) = mpsc::channel();
        let address = server.address;
        let attacker = thread::spawn(move || {
            attack::run(attack::find(name).unwrap(), address, force).unwrap();
            done.send(()).unwrap();
        });
        let mut peak = megabytes(&server);
        while is_done.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
            peak = peak.max(megabytes(&server));
        }
        attacker.join().unwrap();
        peaks.push((name, peak));
        assert!(peak < MEGABYTES_MAX, "{peaks:?}");
    }
    println!("{peaks:?}");
    assert_eq!(server.get("/-/health").status, 200);
}

/// Each took 15 kB, of which hyper's buffers were the most.
#[test]
fn silent_connections_take_up_little_memory() {
    const CONNECTIONS: u64 = 1_000;
    let server = Server::on(Backend::Sqlite);
    assert_eq!(server.get("/-/health").status, 200);
    let before = megabytes(&server);
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| server.client()).collect();
    // All that came before the last one are with their workers.
    let last = clients.last_mut().unwrap();
    assert_eq!(last.request("GET /-/health", &[], "").status, 200);
    let after = megabytes(&server);
    assert!(after - before <= 8, "{before} MB, then {after} MB");
}
