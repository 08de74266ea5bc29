//! The cluster of `docs/scaling.md` under load: its primary is killed, and Patroni promotes a standby.
//!
//! One server has the three hosts in its address, the other one reaches the primary through HAProxy; clients reach both
//! through HAProxy. `NOUNS_SOAK=1` kills five times in place of once.

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use super::patroni_cluster::PatroniCluster;
use super::workload::{CLIENTS, EndOnDrop, MODEL, Workload, follow};
use crate::durability::seeded_random::{SeededRandom, print_seed};
use crate::harness::{Client, Folder, Server, Setup, is_soak, wait_until};

/// The requests of each client before each kill.
const REQUESTS_EACH: usize = 40;

fn kills() -> usize {
    if is_soak() { 5 } else { 1 }
}

fn start_servers(cluster: &PatroniCluster) -> [Server; 2] {
    let primary = wait_until("there is a primary", || cluster.primary());
    primary.sql("postgres", "CREATE ROLE nouns LOGIN PASSWORD 'PASSWORD'");
    primary.sql("postgres", "CREATE DATABASE shop OWNER nouns ENCODING UTF8 TEMPLATE template0");
    let passfile = cluster.write_passfile("nouns", "PASSWORD");
    let hosts = [11, 12, 13].map(|last| cluster.guide_address(last, 5432).to_string()).join(",");
    let haproxy = cluster.guide_address(5, 5432).to_string();
    let setup = |hosts: &str, last: u8| {
        let address = format!("postgres://nouns@{hosts}/shop?passfile={}", passfile.display());
        let listen = cluster.guide_address(last, 8080).to_string();
        let flags = ["--listen", &listen, "--behind-proxy", "127.0.0.1"];
        Setup::replica(address).model(MODEL).flags(&flags).with_authentication()
    };
    let first = setup(&hosts, 21).start();
    let second = setup(&haproxy, 22).key_file(first.key_file()).start_in(Folder::new());
    [first, second]
}

#[test]
fn patroni_primaries_killed_under_load_lose_and_repeat_no_write() {
    let mut random = SeededRandom::new(print_seed("patroni"));
    let mut cluster = PatroniCluster::start(&mut random);
    cluster.start_haproxy();
    let servers = start_servers(&cluster);
    let front = cluster.guide_address(5, 8080);
    wait_until("HAProxy has found a server", || {
        (Client::connect(front).request("GET /-/ready", &[], "").status == 200).then_some(())
    });
    let load = Workload::new(vec![front], servers[0].admin().basic());
    let last = Mutex::new(None);
    let (events, reconnects) = thread::scope(|scope| {
        let load = &load;
        let _end = EndOnDrop(load);
        let reader = scope.spawn(|| follow(load, &last));
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || load.run_client(number))).collect();
        for kill in 1..=kills() {
            load.wait_for_progress("before a kill", REQUESTS_EACH);
            let former = wait_until("there is a primary", || cluster.leader());
            cluster.kill_node(former);
            let killed = Instant::now();
            let leader = wait_until("there is another primary", || {
                cluster.leader().filter(|leader| *leader != former)
            });
            let promoted = killed.elapsed();
            load.wait_for_progress("after a kill", 1);
            println!(
                "patroni: kill {kill}: db{} to db{}, promoted after {promoted:.1?}, all clients write after {:.1?}",
                former + 1,
                leader + 1,
                killed.elapsed()
            );
            cluster.start_node(former);
            cluster.wait_until_whole();
        }
        load.wait_for_progress("at the end", REQUESTS_EACH);
        load.end();
        clients.into_iter().for_each(|client| client.join().unwrap());
        let newest = "SELECT max(sequence) FROM nouns_changes WHERE resource IN ('note', 'beat')";
        let primary = wait_until("there is a primary", || cluster.primary());
        let newest = primary.sql("shop", newest);
        *last.lock().unwrap() = Some(newest.trim().parse().unwrap());
        reader.join().unwrap()
    });
    let totals = load.into_totals();
    println!("patroni: {} kills, {totals}, {reconnects} reconnects of the stream", kills());
    let primary = wait_until("there is a primary", || cluster.primary());
    let log = totals.assert_stored_once(&primary, "shop");
    let sequences: Vec<_> = log.iter().map(|(sequence, ..)| *sequence).collect();
    assert_eq!(events, sequences, "the stream has every change once and in order");
}
