//! Several attacks one after another on one server with the default limits, in the memory of a small
//! container: memory that each leaves behind adds up.
//!
//! Where a control group can be created, the kernel limits the server to 512 MiB; elsewhere its memory is
//! measured instead. `NOUNS_SOAK=1` runs every attack with the force of the benchmark.

use std::fs;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bench::attack::{self, ALL, AttackStrength};

use super::attack_run::{besieged, fill_first_page, memory_megabytes};
use crate::harness::{Backend, Server, Setup, is_soak};

const CONTAINER_BYTES: u64 = 512 << 20;
/// Of the server itself, of which a debug build had up to 382; the rest of the container is for cached
/// pages of its files and for sockets.
const MEGABYTES_MAX: u64 = 470;
/// With 40 clients that read the largest page. A debug build had 220 with SQLite and 202 with PostgreSQL,
/// 287 without the limit of large reads.
const LARGEST_PAGES_MEGABYTES_MAX: u64 = 260;
const LARGEST_PAGE: &[u8] =
    b"GET /customers?limit=500 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The attacks that use most memory, with fewer connections than in the benchmark.
const ATTACKS: &[(&str, usize, u32)] = &[
    ("large bodies that stall", 200, 100),
    ("answers never read", 100, 20),
    ("large heads without an end", 1_000, 500),
    ("slow bodies behind large heads", 2_000, 20_000),
    ("answers read byte by byte", 50, 20),
    ("11,000 connections", 1_000, 1_000),
    ("HTTP/2 windows of zero", 20, 20),
    ("oversized requests", 20, 25),
];

/// A control group with little memory; removed when dropped, after the process in it has ended.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// None where the system does not let us make one.
    fn new(name: &str) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let is_unified = root.join("cgroup.controllers").exists();
        let (parent, limit) = match is_unified {
            true => (root.to_owned(), "memory.max"),
            false => (root.join("memory"), "memory.limit_in_bytes"),
        };
        let folder = parent.join(format!("nouns-test-{}-{name}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let group = Self(folder);
        fs::write(group.0.join(limit), CONTAINER_BYTES.to_string()).ok()?;
        Some(group)
    }

    /// The program that runs a server in the group.
    fn program(&self) -> [String; 3] {
        let folder = self.0.display();
        let script = format!("echo $$ > {folder}/cgroup.procs && exec \"$0\" \"$@\"");
        ["/bin/sh".to_owned(), "-c".to_owned(), script]
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // It cannot be removed while the server runs; then the test has failed in another way.
        let _ = fs::remove_dir(&self.0);
    }
}

/// What a test does with a server that has the memory of a small container.
struct Container {
    // Before its group, so that the process is gone when the group goes.
    server: Server,
    _group: Option<MemoryGroup>,
}

impl Container {
    fn on(backend: Backend) -> Self {
        let group = MemoryGroup::new(&format!("{backend:?}"));
        println!("held to 512 MiB by the kernel: {}", group.is_some());
        let setup = Setup::new(backend).model(&besieged(""));
        let server = match &group {
            Some(group) => setup.run_under(&group.program()).start(),
            None => setup.start(),
        };
        Self { server, _group: group }
    }

    /// The peak memory of the server during the attack.
    fn besiege(&self, name: &'static str, force: AttackStrength) -> u64 {
        let (done, is_done) = mpsc::channel();
        let address = self.server.address;
        let attacker = thread::spawn(move || {
            attack::run(attack::find_attack(name).unwrap(), address, force).unwrap();
            done.send(()).unwrap();
        });
        let mut peak = memory_megabytes(&self.server);
        while is_done.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
            peak = peak.max(memory_megabytes(&self.server));
        }
        attacker.join().unwrap();
        peak
    }
}

/// Under memory pressure some are refused, or cut off.
fn read_largest_pages(address: SocketAddr) {
    for _ in 0..4 {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(LARGEST_PAGE).unwrap();
        let _ = io::copy(&mut client, &mut io::sink());
    }
}

fn series() -> Vec<(&'static str, AttackStrength)> {
    if is_soak() {
        return ALL.iter().map(|attack| (attack.name, attack.force)).collect();
    }
    let short = |&(name, connections, actions_per_second)| {
        let time = Duration::from_secs(4);
        (name, AttackStrength { connections, actions_per_second, time, awaited_ends: &[] })
    };
    ATTACKS.iter().map(short).collect()
}

on_every_backend! {
    fn mixed_attacks_one_after_another_fit_into_a_small_container(container: Container) {
        fill_first_page(&container.server, 7_750_000);
        let mut peaks = Vec::new();
        for (name, force) in series() {
            let peak = container.besiege(name, force);
            peaks.push((name, peak));
            assert!(peak < MEGABYTES_MAX, "{peaks:?}");
        }
        println!("{peaks:?}, at the end {} MB", memory_megabytes(&container.server));
        assert_eq!(container.server.get("/-/health").status, 200);
    }

    // Regression: with PostgreSQL each of twenty database connections held a page of 8 MB.
    fn largest_pages_read_concurrently_fit_into_a_small_container(container: Container) {
        fill_first_page(&container.server, 7_750_000);
        let (before, address) = (memory_megabytes(&container.server), container.server.address);
        let mut peak = before;
        let readers: Vec<_> = (0..40).map(|_| thread::spawn(move || read_largest_pages(address))).collect();
        while !readers.iter().all(JoinHandle::is_finished) {
            peak = peak.max(memory_megabytes(&container.server));
            thread::sleep(Duration::from_millis(5));
        }
        println!("{before} MB before, {peak} MB at the peak");
        assert!(peak < LARGEST_PAGES_MEGABYTES_MAX, "{before} MB, then {peak} MB");
        assert_eq!(container.server.get("/-/health").status, 200);
    }

    // Regression: each JSON value took up to 88 unaccounted bytes: one such body took 382 MB, eight took 885.
    fn bodies_with_millions_of_values_are_refused_before_they_take_up_memory(container: Container) {
        let values = ["[0]", "{\"\":0}", "0"].map(|unit| {
            let count = (8_000_000) / (unit.len() + 1);
            format!("{{\"customers\":[{}]}}", vec![unit; count].join(","))
        });
        let before = memory_megabytes(&container.server);
        for body in &values {
            let answer = container.server.post("/customers", body);
            assert_eq!((answer.status, answer.problem().as_str()), (413, "too-large"), "{answer:?}");
        }
        let after = memory_megabytes(&container.server);
        assert!(after <= before + 60, "{before} MB, then {after} MB");
    }
}

/// The variables of the environment that the server runs with.
fn variables(server: &Server) -> Vec<String> {
    let all = fs::read_to_string(format!("/proc/{}/environ", server.process_id())).unwrap();
    all.split('\0').map(str::to_owned).collect()
}

#[test]
fn allocator_settings_are_ours_unless_the_operator_has_some() {
    let has = |server: &Server, start: &str| {
        variables(server).iter().any(|variable| variable.starts_with(start))
    };
    let tuned = "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=";
    assert!(has(&Server::on(Backend::Sqlite), tuned));
    let own = ["env", "MALLOC_ARENA_MAX=1"];
    let server = Setup::new(Backend::Sqlite).run_under(&own).start();
    assert!(!has(&server, tuned) && has(&server, "MALLOC_ARENA_MAX=1"));
}

/// Regression: each used 15 kB, mostly hyper's buffers.
#[test]
fn memory_of_silent_connections_is_small() {
    const CONNECTIONS: u64 = 1_000;
    let server = Server::on(Backend::Sqlite);
    assert_eq!(server.get("/-/health").status, 200);
    let before = memory_megabytes(&server);
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| server.client()).collect();
    // All connections before the last one have been accepted by their workers.
    let last = clients.last_mut().unwrap();
    assert_eq!(last.request("GET /-/health", &[], "").status, 200);
    let after = memory_megabytes(&server);
    assert!(after - before <= 8, "{before} MB, then {after} MB");
}
